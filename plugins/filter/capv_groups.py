# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: capv_groups
short_description: Prepare the machine groups of a Cluster API cluster on vSphere
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.capv_gpu_cluster#role). Combines pools with shared settings, and converts them for the
    modules that check and create the machines.
positional: _input
options:
  _input:
    description: The pools of workers, as option O(vgpu.fleet.capv_cluster#module:pools).
    type: list
    elements: dict
    required: true
  machine:
    description: Settings that all machines share, as fields of a C(VSphereMachineTemplate).
    type: dict
    default: {}
  control_plane:
    description: The control plane, as option O(vgpu.fleet.capv_cluster#module:control_plane). Leave it out for none.
    type: dict
  checked:
    description: The groups that M(vgpu.fleet.vsphere_template_check) returned.
    type: list
    elements: dict
    default: []
  machines:
    description: The existing machines, as RV(vgpu.fleet.capv_cluster#module:machines).
    type: list
    elements: dict
    default: []
  replaced:
    description: Names of the groups whose machines are replaced.
    type: list
    elements: str
    default: []
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Check that the machines fit
  vgpu.fleet.vgpu_availability:
    platform: vsphere
    demand: "{{ (pools | vgpu.fleet.capv_groups(machine=machine)).demand }}"
"""

RETURN = r"""
_value:
  description:
    - C(check), the groups for M(vgpu.fleet.vsphere_template_check); C(control_plane) and C(pools) for
      M(vgpu.fleet.capv_cluster); C(demand) for M(vgpu.fleet.vgpu_availability); and C(devices), whether a group has
      passthrough devices.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..module_utils.capv import groups
from ..module_utils.capv.request import CONTROL_PLANE


def capv_groups(
    pools: Sequence[Mapping[str, Any]],
    machine: Mapping[str, Any] | None = None,
    control_plane: Mapping[str, Any] | None = None,
    checked: Sequence[Mapping[str, Any]] = (),
    machines: Sequence[Mapping[str, Any]] = (),
    replaced: Sequence[str] = (),
) -> dict[str, Any]:
    every = groups.machine_groups(control_plane or {}, pools, machine or {})
    if control_plane is None:
        every = every[1:]
    found = groups.resolved(every, checked)
    additional = groups.additional_machines(found, machines, replaced)
    return {
        "check": groups.check_groups(every, additional),
        "control_plane": next(
            (
                {key: value for key, value in group.items() if key != "name"}
                for group in found
                if group["name"] == CONTROL_PLANE
            ),
            None,
        ),
        "pools": [group for group in found if group["name"] != CONTROL_PLANE],
        "demand": groups.demand(found, machines, replaced),
        "devices": any(group.get("pci_devices") for group in found),
    }


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"capv_groups": capv_groups}
