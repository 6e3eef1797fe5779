#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_vgpu_vm
short_description: Give a VM on Harvester an exact set of vGPUs
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Puts vGPUs into a VM that exists, or takes them out. It neither creates nor deletes VMs.
  - A VM asks for profiles, not for devices. Which devices it gets is decided when it starts, all of them on one node,
    and is told by RV(vgpus[].device) once it runs.
  - Up to Harvester 1.7 vGPUs are written to the VM's C(gpus). Of several, the first one has the boot display, and the
    entry of each says so (C(virtualGPUOptions.display)), because a VM with two boot displays does not start and the
    default differs between versions of KubeVirt. A VM that has the right vGPUs and can start is left alone. From 1.8 on
    vGPUs are written to C(hostDevices). Both are read in any version.
  - Devices that are passed through whole are left alone, and so are the names that Harvester gives to devices when a
    VM stops.
  - Refused is what would be accepted and then not start, namely vGPUs of different boards or series in one VM,
    several of a series that does not allow it, and more than any single node has.
options:
  name:
    description:
      - The VM.
    type: str
    required: true
  namespace:
    description:
      - The VM's namespace.
    type: str
    default: default
  vgpus:
    description:
      - The vGPUs. Required with O(state=present), where an empty list means none.
      - With O(state=absent), all vGPUs of these profiles are taken out, whatever their number, and without the option
        all vGPUs there are. An empty list then takes out nothing.
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
          - How many of it.
        type: int
        default: 1
  state:
    description:
      - Whether the VM has the vGPUs.
    type: str
    choices: [present, absent]
    default: present
  exclusive:
    description:
      - Whether the VM has only the vGPUs of O(vgpus). With V(false), vGPUs of other profiles stay, and so do more
        of the same.
    type: bool
    default: true
  restart:
    description:
      - A running VM gets its vGPUs when it is restarted. With V(never), the module warns and sets
        RV(restart_required), in every run until the VM was restarted. With V(if_needed), it restarts the VM, also when
        an earlier task has changed it.
      - A VM that could not start again at once, because the vGPUs are in use elsewhere, is not restarted.
    type: str
    choices: [never, if_needed]
    default: never
  compute:
    description:
      - Whether CUDA programs are to run in the VM. Profiles of the series A and B are meant for applications and
        desktops, so they draw a warning then.
    type: bool
    default: false
  wait:
    description:
      - Whether to wait, after a restart, until the VM runs and it is known which vGPUs it got.
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
    details: The change is sent as a dry run, so that the cluster's webhooks have their say.
  diff_mode:
    support: full
  platform:
    platforms: posix
notes:
  - Harvester notes on a VM which devices it has. Up to 1.8 the note of a stopped VM outlives the devices in its spec,
    and as long as it does they cannot be disabled. The module brings the note of a stopped VM up to date.
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.vgpu_availability
"""

EXAMPLES = r"""
- name: The VM has one vGPU, from its next start on
  vgpu.fleet.harvester_vgpu_vm:
    name: trainer
    vgpus:
      - profile: A2-4Q

- name: The VM runs with two
  vgpu.fleet.harvester_vgpu_vm:
    name: trainer
    vgpus:
      - profile: NVIDIA A2-4Q
        count: 2
    compute: true
    restart: if_needed
  register: trainer

- name: Where they are is shown
  ansible.builtin.debug:
    msg: "{{ trainer.vgpus | map(attribute='device') | join(', ') }} on {{ trainer.vm.node }}"

- name: The VM has no vGPU any more
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
      description: Its name.
      type: str
      sample: trainer
    namespace:
      description: Its namespace.
      type: str
      sample: default
    running:
      description: Whether it is started. One that waits for a node with free vGPUs is.
      type: bool
      sample: true
    node:
      description: The node it runs on. Not known for a stopped VM, nor in check mode for one that would be restarted.
      type: str
      sample: gpu-a
vgpus:
  description: The vGPUs that the VM has, or asks for, sorted by profile.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: The profile as the cluster calls it.
      type: str
      sample: NVIDIA A2-4Q
    spellings:
      description: The profile in all its spellings.
      type: dict
      sample:
        type: NVIDIA A2-4Q
        short: A2-4Q
        resource: nvidia.com/NVIDIA_A2-4Q
        vsphere: nvidia_a2-4q
    device:
      description: The vGPU device that the running VM got. Null where it has none yet.
      type: str
      sample: gpu-a-000008004
restart_required:
  description: Whether the VM runs with other vGPUs than its spec asks for.
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
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.apply import VmChange, VmRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.options import connection_spec, waiting_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.module import finish, reporting_errors


def argument_spec() -> dict[str, dict[str, object]]:
    vgpu = {"profile": {"type": "str", "required": True}, "count": {"type": "int", "default": 1}}
    return {
        **connection_spec(),
        **waiting_spec(),
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
