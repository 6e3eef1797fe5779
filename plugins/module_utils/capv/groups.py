# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups of machines of a role: variables as options of modules, and the room that they need. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .request import CONTROL_PLANE

Json = dict[str, Any]


def machine_groups(
    control_plane: Mapping[str, Any], pools: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]
) -> list[Json]:
    """Return the control plane and the pools, each with the settings that all machines share."""
    groups = [{"name": CONTROL_PLANE, **control_plane}, *pools]
    return [
        dict(group)
        if group.get("state") == "absent"
        else {**group, "machine": {**machine, **(group.get("machine") or {})}}
        for group in groups
    ]


def check_groups(groups: Sequence[Mapping[str, Any]], additional: Mapping[str, int] | None = None) -> list[Json]:
    """Return the groups as option groups of vsphere_template_check."""
    return [
        {
            "name": group["name"],
            "template": (group.get("machine") or {}).get("template") or "",
            "memory_mb": (group.get("machine") or {}).get("memoryMiB") or None,
            "hardware_version": (group.get("machine") or {}).get("hardwareVersion") or None,
            "vgpus": list(group.get("vgpus") or []),
            "pci_devices": list(group.get("pci_devices") or []),
            "machines": (additional or {}).get(group["name"], 0),
        }
        for group in _present(groups)
    ]


def resolved(groups: Sequence[Mapping[str, Any]], checked: Sequence[Mapping[str, Any]]) -> list[Json]:
    """Return the groups with the profile names and VMX settings that the check has found."""
    known = {found["name"]: found for found in checked}
    return [
        {**group, "vgpus": known[group["name"]]["vgpus"], "vmx_keys": known[group["name"]]["vmx_keys"]}
        if group["name"] in known
        else dict(group)
        for group in groups
    ]


def additional_machines(
    groups: Sequence[Mapping[str, Any]], machines: Sequence[Mapping[str, Any]], replaced: Sequence[str]
) -> dict[str, int]:
    """Return how many more machines of each group run at the same time than now."""
    found = {}
    for group in _present(groups):
        there = sum(machine["pool"] == group["name"] for machine in machines)
        surge = _number(group, "surge") if group["name"] in replaced else 0
        found[group["name"]] = max(0, _number(group, "replicas") + surge - there)
    return found


def demand(
    groups: Sequence[Mapping[str, Any]], machines: Sequence[Mapping[str, Any]], replaced: Sequence[str]
) -> list[Json]:
    """Return the groups with vGPUs as option demand of vgpu_availability.

    The surge counts only while machines are replaced. Machines that exist keep their place, by the names of their VMs.
    """
    return [
        {
            "name": group["name"],
            "machines": _number(group, "replicas"),
            "surge": _number(group, "surge") if group["name"] in replaced else 0,
            "vgpus": list(group["vgpus"]),
            **({"owner": f"name in ({','.join(vms)})"} if (vms := _vms(group, machines)) else {}),
        }
        for group in _present(groups)
        if group.get("vgpus")
    ]


def _present(groups: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [group for group in groups if group.get("state") != "absent"]


def _number(group: Mapping[str, Any], name: str) -> int:
    value = group.get(name)
    return 1 if value is None else int(value)


def _vms(group: Mapping[str, Any], machines: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(machine["vm"] for machine in machines if machine["pool"] == group["name"] and machine["vm"])
