#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_vm_check
short_description: Check that everything a new VM on Harvester needs exists
version_added: 0.1.0
description:
  - Checks the namespace, images, storage classes and networks of VMs that do not exist yet, and fails with all missing
    objects at once.
  - Run it before the first change, so that a misspelt image does not stop a run halfway. The playbook
    C(vgpu.fleet.harvester_gpu_cluster) and the role P(vgpu.fleet.harvester_gpu_vm#role) do so.
  - Objects that the user may not read are not checked. The module warns about them.
options:
  vms:
    description: The VMs. Existing VMs are not checked.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the VM.
        type: str
        required: true
      namespace:
        description: Namespace of the VM.
        type: str
        default: default
      disks:
        description: The disks, each with C(image) as C(namespace/name), or with C(storage_class).
        type: list
        elements: dict
        default: []
      networks:
        description: The VM networks, each as C(namespace/name).
        type: list
        elements: str
        default: []
extends_documentation_fragment:
  - vgpu.fleet.harvester
attributes:
  check_mode:
    description: The module does not change anything.
    support: full
  diff_mode:
    description: The module does not change anything.
    support: none
seealso:
  - module: vgpu.fleet.harvester_vgpu_vm
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Check that the image and the network of a new VM exist
  vgpu.fleet.harvester_vm_check:
    vms:
      - name: trainer
        disks: [{image: default/ubuntu, size_gib: 40}]
        networks: [default/vlan1]
"""

RETURN = r"""
storage_classes:
  description: The storage class for disks of each image.
  returned: success
  type: dict
  sample: {default/ubuntu: longhorn-ubuntu}
existing_vms:
  description: The VMs that exist already, as C(namespace/name).
  returned: success
  type: list
  elements: str
  sample: []
unknown:
  description: The objects that the user may not read.
  returned: success
  type: list
  elements: str
  sample: []
error:
  description: The missing objects.
  returned: failure
  type: dict
  contains:
    code:
      description: Stable error code for C(rescue) blocks, such as V(missing_prerequisites).
      type: str
      sample: missing_prerequisites
    message:
      description: Description of the error.
      type: str
      sample: Image default/ubunto of VM default/trainer does not exist. Did you mean default/ubuntu?
    hint:
      description: How to resolve the error.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.harvester.vm.prerequisites import read_prerequisites
from ..module_utils.kube import connection
from ..module_utils.kube.client import ApiClient
from ..module_utils.kube.options import connection_spec
from ..module_utils.module import ReadResult, finish, reporting_errors


def main() -> None:
    vm = {
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "default"},
        "disks": {"type": "list", "elements": "dict", "default": []},
        "networks": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(
        argument_spec={
            **connection_spec(),
            "vms": {"type": "list", "elements": "dict", "required": True, "options": vm},
        },
        supports_check_mode=True,
    )
    with reporting_errors(module):
        options = {name: module.params[name] for name in connection_spec() if name != "harvester_version"}
        found = read_prerequisites(ApiClient(connection.from_options(options)), module.params["vms"])
        found.require()
        records = {
            "storage_classes": dict(found.storage_classes),
            "existing_vms": list(found.existing_vms),
            "unknown": [str(reference) for reference in found.unknown],
        }
        finish(module, ReadResult(records, found.warnings))


if __name__ == "__main__":
    main()
