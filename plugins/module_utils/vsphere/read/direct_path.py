# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The capacity of hosts as vCenter 9.0 and later reports it (vsphere.md 1.9)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..faults import Operation
from ..session import Session
from .inventory import HostFacts

SINCE = "9.0"
HOSTS_AT_ONCE = 8

# Free vGPUs or device groups by name of the host, and by profile or group.
Remaining = Mapping[str, Mapping[str, int]]


def remaining(session: Session, hosts: Sequence[HostFacts]) -> Remaining:
    """Ask vCenter how many vGPUs of each offered profile hosts can still start, with one call per host.

    Return nothing for older servers, for a pyVmomi without the types, and for profiles that vCenter does not know.
    """
    return _remaining(
        session,
        hosts,
        {host.name: host.profiles for host in hosts},
        lambda types, name: types.VmiopDirectPathConfig(vgpuProfile=name),
    )


def remaining_groups(session: Session, hosts: Sequence[HostFacts], names: Mapping[str, Collection[str]]) -> Remaining:
    """Ask vCenter how many of the named device groups hosts can still give to VMs. `names` are by host."""
    return _remaining(
        session, hosts, names, lambda types, name: types.VirtualDeviceGroupDirectPathConfig(deviceGroupName=name)
    )


def _remaining(
    session: Session,
    hosts: Sequence[HostFacts],
    names: Mapping[str, Collection[str]],
    config: Callable[[Any, str], Any],
) -> Remaining:
    manager = _manager(session)
    asked = [host for host in hosts if names.get(host.name) and host.connected]
    if manager is None or not asked:
        return {}

    def ask(host: HostFacts) -> dict[str, int]:
        return _ask(session, manager, host, {name: config(manager_types, name) for name in names[host.name]})

    manager_types = session.vim.DirectPathProfileManager
    with ThreadPoolExecutor(max_workers=min(len(asked), HOSTS_AT_ONCE)) as pool:
        answers = list(pool.map(ask, asked))
    return {host.name: answer for host, answer in zip(asked, answers, strict=True)}


def _manager(session: Session) -> Any:
    if not session.has(SINCE) or not hasattr(session.vim, "DirectPathProfileManager"):
        return None
    return getattr(session.content, "directPathProfileManager", None)


def _ask(session: Session, manager: Any, host: HostFacts, configs: Mapping[str, Any]) -> dict[str, int]:
    types = session.vim.DirectPathProfileManager
    specs = [types.CapacityQueryByDeviceConfig(deviceConfig=config) for config in configs.values()]
    target = types.TargetHost(host=host.reference)
    subject = Operation(f"tell how many devices host {host.name} has left", host=host.name)
    answers = session.call(subject, manager.QueryDirectPathProfileCapacity, target, specs) or []
    # One answer for each query, in the same order. Unknown capacities have no number.
    return {
        name: int(answer.remaining)
        for name, answer in zip(configs, answers, strict=False)
        if isinstance(answer, types.CapacityInfo)
    }
