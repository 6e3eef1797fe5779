# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement of machines with passthrough devices on hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..vm.decide.devices import PciRequest
from ..vm.decide.model import PciId

Device = tuple[PciId, str]
Demand = tuple[Sequence[PciRequest], int]


def machines_that_fit(free: Mapping[str, Sequence[Device]], demands: Sequence[Demand]) -> bool:
    """Return whether all machines can start. All devices of a machine come from one host."""
    hosts = [list(devices) for devices in free.values()]
    machines = [wanted for wanted, count in demands for _machine in range(count)]
    # Machines with more devices, and with labels, have fewer hosts to choose from.
    machines.sort(key=lambda wanted: (-len(wanted), -sum(bool(pci_request.label) for pci_request in wanted)))
    return _place(machines, hosts)


def _place(machines: list[Sequence[PciRequest]], hosts: list[list[Device]]) -> bool:
    if not machines:
        return True
    tried = []
    for index, host in enumerate(hosts):
        # Equal hosts need to be tried only once.
        if sorted(host) in tried:
            continue
        tried.append(sorted(host))
        left = _without(host, machines[0])
        if left is not None and _place(machines[1:], [*hosts[:index], left, *hosts[index + 1 :]]):
            return True
    return False


def _without(host: Sequence[Device], wanted: Sequence[PciRequest]) -> list[Device] | None:
    """Return the devices that a machine leaves on a host, or None if the host lacks one of them."""
    left = list(host)
    for request in sorted(wanted, key=lambda item: not item.label):
        suitable = [
            pci_device for pci_device in left if pci_device[0] == request.ids and request.label in ("", pci_device[1])
        ]
        if not suitable:
            return None
        # Keep labelled devices for requests that name the label.
        left.remove(min(suitable, key=lambda item: bool(item[1]) and not request.label))
    return left
