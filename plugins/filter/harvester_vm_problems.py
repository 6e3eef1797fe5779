# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: harvester_vm_problems
short_description: Explain why VMs cannot be created
version_added: 0.1.0
description:
  - Returns one sentence for each VM that P(vgpu.fleet.harvester_vm#filter) rejects.
  - Use it with M(ansible.builtin.assert) before you create anything. If a filter fails inside a template, ansible-core
    2.19 and later report all templates that the value passes through.
positional: _input, storage_classes
options:
  _input:
    description: VMs in the format of P(vgpu.fleet.harvester_vm#filter).
    type: list
    elements: dict
    required: true
  storage_classes:
    description: Storage classes of images, by C(namespace/name). If omitted, images are not checked.
    type: dict
seealso:
  - plugin: vgpu.fleet.harvester_vm
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Refuse VMs that cannot be created
  ansible.builtin.assert:
    that: vms | vgpu.fleet.harvester_vm_problems | length == 0
    fail_msg: "{{ vms | vgpu.fleet.harvester_vm_problems | join(' ') }}"
  vars:
    vms:
      - name: trainer
        disks: [{image: default/image-ubuntu, size_gib: 40}]
"""

RETURN = r"""
_value:
  description: Sentences. Empty if all VMs can be created.
  type: list
  elements: str
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..module_utils.errors import FleetError
from ..plugin_utils.vm_manifest import VmSpec, manifest


def harvester_vm_problems(
    vms: Iterable[Mapping[str, Any]], storage_classes: Mapping[str, str] | None = None
) -> list[str]:
    problems = (_problem(vm, storage_classes) for vm in vms)
    return [problem for problem in problems if problem]


def _problem(vm: Mapping[str, Any], storage_classes: Mapping[str, str] | None) -> str:
    try:
        machine = VmSpec.read(vm)
        if storage_classes is not None:
            manifest(machine, storage_classes)
    except FleetError as error:
        return str(error)
    except (AttributeError, TypeError, ValueError):
        name = vm.get("name", "") if isinstance(vm, Mapping) else vm
        return (
            f"VM {name} is not valid. cpus, memory_gib and size_gib must be numbers, disks and networks must be lists,"
            " and each disk and labels must be dictionaries."
        )
    return ""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"harvester_vm_problems": harvester_vm_problems}
