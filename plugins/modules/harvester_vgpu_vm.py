#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_vgpu_vm
short_description: Manage the vGPUs of a VM on Harvester
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Attaches vGPUs to an existing VM, or detaches them. The module neither creates nor deletes VMs.
  - A VM requests profiles, not devices. Harvester assigns the devices, all of them on one node, when the VM starts.
    RV(vgpus[].device) returns them once the VM runs.
  - Up to Harvester 1.7, vGPUs are written to the VM's C(gpus). The first of several vGPUs has the boot display. The
    module sets C(virtualGPUOptions.display) of each entry accordingly, because a VM with two boot displays does not
    start and the default differs between versions of KubeVirt. A VM that has the right vGPUs and can start is not
    changed. From 1.8 on, vGPUs are written to C(hostDevices). Both are read in any version.
  - Passed-through devices are not changed, and neither are the names that Harvester gives to devices when a VM stops.
  - Rejects combinations that Harvester accepts but that cannot boot, which are vGPUs of different boards or series in
    one VM, several vGPUs of a series that does not support it, and more vGPUs than any single node has.
options:
  name:
    description:
      - Name of the VM.
    type: str
    required: true
  namespace:
    description:
      - Namespace of the VM.
    type: str
    default: default
  vgpus:
    description:
      - The vGPUs. Required with O(state=present), where an empty list means none.
      - With O(state=absent), all vGPUs of these profiles are detached, whatever their number. If the option is not set,
        all vGPUs are detached. An empty list detaches nothing.
    type: list
    elements: dict
    suboptions:
      profile:
        description:
          - The profile, in any spelling.
        type: str
        required: true
      count:
        description:
          - Number of vGPUs of the profile.
        type: int
        default: 1
  state:
    description:
      - Whether the VM should have the vGPUs.
    type: str
    choices: [present, absent]
    default: present
  exclusive:
    description:
      - Whether the VM should have only the vGPUs of O(vgpus). With V(false), vGPUs of other profiles and additional
        vGPUs of the same profiles stay.
    type: bool
    default: true
  restart:
    description:
      - Whether to restart a running VM, which gets its vGPUs only at a restart. With V(never), the module warns and
        sets RV(restart_required) in every run until the VM is restarted. With V(if_needed), it restarts the VM, also if
        an earlier task has changed it.
      - A VM that could not start again immediately, because the vGPUs are in use elsewhere, is not restarted.
    type: str
    choices: [never, if_needed]
    default: never
  compute:
    description:
      - Whether CUDA programs will run in the VM. The module then warns about profiles of the series A and B, which are
        intended for applications and desktops.
    type: bool
    default: false
  wait:
    description:
      - Whether to wait, after a restart, until the VM runs and its vGPUs are known.
    type: bool
    default: true
  wait_timeout:
    description:
      - Maximum time to wait, in seconds.
    type: int
    default: 300
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.fail_fast
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: The change is sent as a dry run, which the cluster's webhooks validate.
  diff_mode:
    support: full
  platform:
    platforms: posix
notes:
  - Harvester records the devices of a VM in its allocation annotation. Up to 1.8, a stopped VM keeps the annotation
    when devices are removed from its spec, and these devices cannot be disabled. The module updates the annotation of
    a stopped VM.
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.vgpu_availability
"""

EXAMPLES = r"""
- name: Attach one vGPU to the VM at its next start
  vgpu.fleet.harvester_vgpu_vm:
    name: trainer
    vgpus:
      - profile: A2-4Q

- name: Run the VM with two vGPUs
  vgpu.fleet.harvester_vgpu_vm:
    name: trainer
    vgpus:
      - profile: NVIDIA A2-4Q
        count: 2
    compute: true
    restart: if_needed
  register: trainer

- name: Show the devices and the node of the VM
  ansible.builtin.debug:
    msg: "{{ trainer.vgpus | map(attribute='device') | join(', ') }} on {{ trainer.vm.node }}"

- name: Detach all vGPUs from the VM
  vgpu.fleet.harvester_vgpu_vm:
    name: trainer
    state: absent
    restart: if_needed
"""

RETURN = r"""
vm:
  description: The VM.
  returned: success
  type: dict
  contains:
    name:
      description: Name of the VM.
      type: str
      sample: trainer
    namespace:
      description: Namespace of the VM.
      type: str
      sample: default
    running:
      description: Whether the VM is started. This includes a VM that waits for a node with free vGPUs.
      type: bool
      sample: true
    node:
      description: Node of the VM. Unknown for a stopped VM, and in check mode for a VM that would be restarted.
      type: str
      sample: gpu-a
vgpus:
  description: The vGPUs that the VM has or requests, sorted by profile.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: The type name of the profile.
      type: str
      sample: NVIDIA A2-4Q
    spellings:
      description: The profile in all spellings.
      type: dict
      sample:
        type: NVIDIA A2-4Q
        short: A2-4Q
        resource: nvidia.com/NVIDIA_A2-4Q
        vsphere: nvidia_a2-4q
    device:
      description: The vGPU device of the running VM; null if it has none yet.
      type: str
      sample: gpu-a-000008004
restart_required:
  description: Whether the VM runs with other vGPUs than its spec requests.
  returned: success
  type: bool
  sample: false
restarted:
  description: Whether the VM was restarted, or in check mode would be.
  returned: success
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.harvester.cluster import Cluster
from ..module_utils.harvester.vm.apply import VmChange, VmRequest
from ..module_utils.kube.options import connection_spec, waiting_spec
from ..module_utils.module import finish, reporting_errors


def argument_spec() -> dict[str, dict[str, object]]:
    vgpu = {"profile": {"type": "str", "required": True}, "count": {"type": "int", "default": 1}}
    return {
        **connection_spec(),
        **waiting_spec(),
        "wait_timeout": {"type": "int", "default": 300},
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "default"},
        "vgpus": {"type": "list", "elements": "dict", "options": vgpu},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "exclusive": {"type": "bool", "default": True},
        "restart": {"type": "str", "choices": ["never", "if_needed"], "default": "never"},
        "compute": {"type": "bool", "default": False},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(),
        required_if=[("state", "present", ["vgpus"])],
        supports_check_mode=True,
    )
    params = module.params
    with reporting_errors(module):
        request = VmRequest.of(params)
        change = VmChange(Cluster.connect(params), request, wait=params["wait"], seconds=params["wait_timeout"])
        result = change.run(check_mode=module.check_mode)
        finish(module, result)


if __name__ == "__main__":
    main()
