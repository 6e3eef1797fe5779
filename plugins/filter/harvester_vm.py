# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: harvester_vm
short_description: Build a VirtualMachine manifest from a short description
version_added: 0.1.0
description:
  - Converts the description of a VM in the format of the role P(vgpu.fleet.harvester_gpu_vm#role) into a
    C(VirtualMachine) that you can create with C(kubernetes.core.k8s).
  - The VM is stopped and has no vGPUs. Attach them with M(vgpu.fleet.harvester_vgpu_vm), which handles the differences
    between versions of Harvester.
  - With C(user_data), the VM reads the key C(userdata) of a Secret with the name of the VM and the suffix
    C(-cloudinit). Create that Secret yourself.
positional: _input, storage_classes, owner, large_compute_efi
options:
  _input:
    description:
      - The VM, with C(name) and optionally C(namespace), C(cpus), C(memory_gib), C(reserved_memory_mib), C(efi),
        C(secure_boot), C(disks), C(networks), C(user_data), C(labels) and C(vgpus).
    type: dict
    required: true
  storage_classes:
    description: Storage classes of images, by C(namespace/name) of the image.
    type: dict
    default: {}
  owner:
    description:
      - The owner of the VM. The VM and its disks get the labels C(app.kubernetes.io/managed-by=vgpu.fleet) and
        C(vgpu.fleet/owner) with this value.
    type: str
    default: vgpu.fleet
  large_compute_efi:
    description:
      - Whether a VM without C(efi) boots with EFI if one of its C(vgpus) is of series C and has a framebuffer of 16 GB
        or more. Use it from Harvester 1.6 on.
    type: bool
    default: false
seealso:
  - module: vgpu.fleet.harvester_vgpu_vm
  - plugin: vgpu.fleet.harvester_vm_problems
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Create a VM with a disk from an image
  kubernetes.core.k8s:
    definition: "{{ vm | vgpu.fleet.harvester_vm({'default/ubuntu': 'longhorn-ubuntu'}) }}"
  vars:
    vm:
      name: trainer
      cpus: 8
      memory_gib: 32
      disks:
        - image: default/ubuntu
          size_gib: 40
      networks: [default/vlan1]
"""

RETURN = r"""
_value:
  description: A C(VirtualMachine) of KubeVirt.
  type: dict
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils.errors import FleetError
from ..module_utils.harvester.ownership import DEFAULT_OWNER
from ..plugin_utils.vm_manifest import VmSpec, manifest


def harvester_vm(
    vm: Mapping[str, Any],
    storage_classes: Mapping[str, str] | None = None,
    owner: str = DEFAULT_OWNER,
    large_compute_efi: bool = False,
) -> dict[str, Any]:
    try:
        return manifest(VmSpec.read(vm, owner, large_compute_efi=large_compute_efi), storage_classes or {})
    except FleetError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"harvester_vm": harvester_vm}
