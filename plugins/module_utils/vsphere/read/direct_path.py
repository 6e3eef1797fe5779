# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The capacity of hosts as vCenter 9.0 and later reports it (vsphere.md 1.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Operation
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.inventory import HostFacts
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session

SINCE = "9.0"
HOSTS_AT_ONCE = 8

# Free vGPUs by name of the host and profile.
Remaining = Mapping[str, Mapping[str, int]]


def remaining(session: Session, hosts: Sequence[HostFacts]) -> Remaining:
    """Ask vCenter how many vGPUs of each offered profile hosts can still start, with one call per host.

    Return nothing for older servers, for a pyVmomi without the types, and for profiles that vCenter does not know.
    """
    manager = _manager(session)
    asked = [host for host in hosts if host.profiles and host.connected]
    if manager is None or not asked:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(asked), HOSTS_AT_ONCE)) as pool:
        answers = list(pool.map(lambda host: _ask(session, manager, host), asked))
    return {host.name: answer for host, answer in zip(asked, answers, strict=True)}


def _manager(session: Session) -> Any:
    if not session.has(SINCE) or not hasattr(session.vim, "DirectPathProfileManager"):
        return None
    return getattr(session.content, "directPathProfileManager", None)


def _ask(session: Session, manager: Any, host: HostFacts) -> dict[str, int]:
    types = session.vim.DirectPathProfileManager
    specs = [
        types.CapacityQueryByDeviceConfig(deviceConfig=types.VmiopDirectPathConfig(vgpuProfile=profile))
        for profile in host.profiles
    ]
    target = types.TargetHost(host=host.reference)
    subject = Operation(f"tell how many vGPUs host {host.name} has left", host=host.name)
    answers = session.call(subject, manager.QueryDirectPathProfileCapacity, target, specs) or []
    # One answer for each query, in the same order. Unknown capacities have no number.
    return {
        profile: int(answer.remaining)
        for profile, answer in zip(host.profiles, answers, strict=False)
        if isinstance(answer, types.CapacityInfo)
    }
