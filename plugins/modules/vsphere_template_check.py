#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_template_check
short_description: Check that VMs with GPUs can be cloned from templates on vSphere
version_added: 0.1.0
description:
  - Checks templates and devices for programs that create the VMs themselves and do not check them, such as the Cluster
    API provider for vSphere. The module changes nothing.
  - Devices need hardware version 17 or later. Some need EFI and a larger MMIO region. The module returns the settings
    for the region.
  - Returns each profile by its name in vCenter, whatever its spelling. A profile that no host offers is an error.
  - For passthrough devices, checks that enough of them are free. For vGPUs use M(vgpu.fleet.vgpu_availability).
options:
  datacenter:
    description:
      - Name or inventory path of the datacenter of the hosts and templates.
    type: str
  cluster:
    description:
      - Name of the cluster whose hosts count. Without it, all hosts count.
    type: str
  groups:
    description:
      - Groups of equal VMs.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the group, for messages and the result.
        type: str
        required: true
      template:
        description: Name or inventory path of the template.
        type: str
        required: true
      vgpus:
        description: The vGPUs of each VM.
        type: list
        elements: dict
        suboptions:
          profile:
            description: The profile, in any spelling.
            type: str
            required: true
          count:
            description: Number of vGPUs.
            type: int
            default: 1
      pci_devices:
        description: The passthrough devices of each VM.
        type: list
        elements: dict
        suboptions:
          vendor_id:
            description: Hexadecimal vendor ID, such as V(10de). Quote the value.
            type: str
            required: true
          device_id:
            description: Hexadecimal device ID. Quote the value.
            type: str
            required: true
          custom_label:
            description: The hardware label that the devices must have.
            type: str
          count:
            description: Number of devices.
            type: int
            default: 1
      memory_mb:
        description: Memory of each VM. By default that of the template.
        type: int
      hardware_version:
        description: Hardware version that the VMs get, such as V(vmx-19). By default that of the template.
        type: str
      machines:
        description: Number of VMs that are to start in addition to those that run. Counts for passthrough devices.
        type: int
        default: 0
extends_documentation_fragment:
  - vgpu.fleet.vsphere
attributes:
  check_mode:
    description: The module changes nothing.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
seealso:
  - module: vgpu.fleet.capv_cluster
  - module: vgpu.fleet.vgpu_availability
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Check that the machines of a pool can have an A40-8Q each
  vgpu.fleet.vsphere_template_check:
    datacenter: dc1
    cluster: gpu
    groups:
      - name: workers
        template: ubuntu-22.04-efi
        memory_mb: 65536
        vgpus: [{profile: A40-8Q}]
"""

RETURN = r"""
groups:
  description: The groups, in the requested order.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name of the group.
      type: str
      sample: workers
    template:
      description: The template, with C(name), C(path), C(hardware_version) and C(firmware).
      type: dict
      sample: {name: ubuntu-22.04-efi, path: /dc1/vm/ubuntu-22.04-efi, hardware_version: 19, firmware: efi}
    vgpus:
      description: The vGPUs, with the names of the profiles in vCenter.
      type: list
      elements: dict
      sample: [{profile: nvidia_a40-8q, count: 1}]
    vmx_keys:
      description: Settings that the VMs need in addition to those of the template.
      type: dict
      sample: {pciPassthru.use64bitMMIO: "TRUE", pciPassthru.64bitMMIOSizeGB: "128"}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.device_options import device_spec
from ..module_utils.module import finish, reporting_errors
from ..module_utils.vsphere.options import connection_spec
from ..module_utils.vsphere.session import Session
from ..module_utils.vsphere.template.check import check, groups_from


def argument_spec() -> dict[str, dict[str, object]]:
    group = {
        "name": {"type": "str", "required": True},
        "template": {"type": "str", "required": True},
        **device_spec(),
        "memory_mb": {"type": "int"},
        "hardware_version": {"type": "str"},
        "machines": {"type": "int", "default": 0},
    }
    return {
        **connection_spec(),
        "datacenter": {"type": "str"},
        "cluster": {"type": "str"},
        "groups": {"type": "list", "elements": "dict", "required": True, "options": group},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    with reporting_errors(module):
        groups = groups_from(params["groups"])
        with Session.open(params) as session:
            result = check(session, groups, datacenter=params["datacenter"], cluster=params["cluster"])
        finish(module, result)


if __name__ == "__main__":
    main()
