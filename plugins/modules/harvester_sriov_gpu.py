#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_sriov_gpu
short_description: Switch SR-IOV of GPUs in a Harvester cluster on or off
version_added: 0.1.0
description:
  - Splits GPUs into virtual functions, each of which can become a vGPU, or undoes it.
  - With O(state=enabled) the task ends when the virtual functions are there and every one of them says which vGPU
    profiles it can have. GPUs in MIG mode are done without that, as they offer nothing before they have MIG instances.
  - A GPU that has enabled vGPUs is not switched off unless O(disable_vgpus=true). If a VM uses any of them, refers to
    one, running or not, or asks for a profile of which too few would be left, the task fails in any case and names the
    VM.
  - If a GPU is still changing, such as right after somebody disabled vGPUs, the module waits within O(wait_timeout)
    until it has settled, and plans then. In check mode it does not wait, and says that the answer is not final.
  - If somebody else changes one of the devices while the task works on it, the task stops at once with the error code
    V(changed_by_other) and names who it was.
options:
  gpus:
    description:
      - Names of the GPUs, as Harvester lists them under SR-IOV GPU devices, or shell patterns.
      - At least one of O(gpus) and O(nodes) is needed. With both, a GPU has to match both. An empty list is an error.
      - A name or pattern that matches nothing is an error, which lists what there is.
    type: list
    elements: str
  nodes:
    description:
      - Names of nodes, or shell patterns, whose GPUs to select. V(*) is all nodes.
    type: list
    elements: str
  state:
    description:
      - Whether SR-IOV should be on or off.
    type: str
    choices: [enabled, disabled]
    default: enabled
  disable_vgpus:
    description:
      - With O(state=disabled), first disable the vGPUs that no VM refers to.
    type: bool
    default: false
  remove_mig:
    description:
      - With O(state=disabled), first remove the MIG instances of the GPUs. Without, a GPU that has any is refused,
        because Harvester would leave them behind on the card.
    type: bool
    default: false
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.waiting
  - vgpu.fleet.harvester.fail_fast
attributes:
  check_mode:
    description: Predicts what the run would do; the cluster is asked by dry runs whether it would accept it.
    support: full
  diff_mode:
    description: Shows the state of each GPU, and of the vGPUs that are disabled on the way.
    support: full
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.harvester_gpu_info
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Every GPU of the GPU nodes is split into virtual functions
  vgpu.fleet.harvester_sriov_gpu:
    nodes: ["gpu-*"]

- name: Two GPUs are split into virtual functions, as a user of one context of a kubeconfig
  vgpu.fleet.harvester_sriov_gpu:
    kubeconfig: "{{ lookup('ansible.builtin.env', 'KUBECONFIG') }}"
    context: lab
    gpus:
      - gpu-a-000008000
      - gpu-b-000008000
    wait_timeout: 600

- name: A GPU is given back, with the vGPUs on it that no VM refers to
  vgpu.fleet.harvester_sriov_gpu:
    gpus: [gpu-a-000008000]
    state: disabled
    disable_vgpus: true
"""

RETURN = r"""
gpus:
  description: The chosen GPUs as they are now, or in check mode as they would be, ordered by node and address.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the GPU.
      type: str
      sample: gpu-a-000008000
    node:
      description: The node it is in.
      type: str
      sample: gpu-a
    platform:
      description: Always V(harvester).
      type: str
      sample: harvester
    address:
      description: Its PCI address.
      type: str
      sample: "0000:08:00.0"
    board:
      description: The board, as vGPU profiles name it; null while several are possible.
      type: str
      sample: A2
    possible_boards:
      description: All boards that it can be. Some share a PCI id and cannot be told apart before they offer profiles.
      type: list
      elements: str
      sample: [A2]
    framebuffer_mib:
      description: Its memory, where the platform tells it.
      type: int
      sample: null
    mode:
      description: How it is shared.
      type: str
      sample: time_sliced
    vgpu_enabled:
      description: Whether SR-IOV is on.
      type: bool
      sample: true
    vf_capacity:
      description: How many virtual functions it has; null while SR-IOV is off.
      type: int
      sample: 16
    max_instances:
      description: How many vGPUs of a profile it takes, where the platform tells it.
      type: dict
      sample: {}
    unavailable_reason:
      description: Why it cannot be used at all, or nothing.
      type: str
      sample: ""
    slots:
      description: Its vGPU devices by address, empty or not.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the vGPU device.
          type: str
          sample: gpu-a-000008004
        address:
          description: PCI address of its virtual function.
          type: str
          sample: "0000:08:00.4"
        profile:
          description: The profile it has; null if it is empty.
          type: str
          sample: NVIDIA A2-4Q
        requested:
          description: The requested profile.
          type: str
          sample: NVIDIA A2-4Q
        state:
          description: V(empty), V(requested), V(configured), or V(allocatable) once the node offers it to VMs.
          type: str
          sample: allocatable
        drifted:
          description: Whether the profile differs from the requested one.
          type: bool
          sample: false
        hardware:
          description: The profile that the device itself reports, if its node hands it out as another one; else null.
          type: str
          sample: null
        owner:
          description: For whom it was enabled, by the mark that it carries; null if it carries none.
          type: str
          sample: vgpu.fleet
        holders:
          description: VMs that have it or refer to it, with RV(ignore:kind), RV(ignore:namespace), RV(ignore:name),
            RV(ignore:running) and RV(ignore:labels).
          type: list
          elements: dict
          sample: []
        available_profiles:
          description: The profiles that it could be given right now.
          type: list
          elements: str
          sample: []
steps:
  description: What was done, or in check mode what would be done, in order.
  returned: success
  type: list
  elements: dict
  contains:
    action:
      description:
        - V(enable_sriov) enables SR-IOV, V(disable_sriov) disables it. V(disable) disables a vGPU.
        - V(remove_mig_instances) removes the MIG instances.
      type: str
      sample: enable_sriov
    node:
      description: The node.
      type: str
      sample: gpu-a
    gpu:
      description: The GPU.
      type: str
      sample: gpu-a-000008000
    slot:
      description: The vGPU device, where it is about one.
      type: str
      sample: null
    before:
      description: The profile before.
      type: str
      sample: null
    after:
      description: The profile afterwards.
      type: str
      sample: null
unsettled:
  description:
    - GPUs that matter for the answer and were still changing when it was given, such as right after somebody
      disabled vGPUs.
    - Outside check mode the module waits for them first, within O(wait_timeout), so that only those are listed that
      do not settle.
    - If the task fails because of what such a GPU offers, RV(ignore:error.unsettled) has the same list.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: The GPU.
      type: str
      sample: gpu-a-000008000
    node:
      description: Its node.
      type: str
      sample: gpu-a
    reason:
      description: What has not come to an end.
      type: str
      sample: its vGPU devices do not all offer the same types yet
    moving:
      description: Whether something still happens there. If not, it is stuck, and waiting does not help.
      type: bool
      sample: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.task import GpuTask
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.sriov import SriovRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.sriov_result import SriovResult
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.options import connection_spec, waiting_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.module import finish, reporting_errors


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **connection_spec(),
            **waiting_spec(),
            "gpus": {"type": "list", "elements": "str"},
            "nodes": {"type": "list", "elements": "str"},
            "state": {"type": "str", "choices": ["enabled", "disabled"], "default": "enabled"},
            "disable_vgpus": {"type": "bool", "default": False},
            "remove_mig": {"type": "bool", "default": False},
        },
        required_one_of=[("gpus", "nodes")],
        supports_check_mode=True,
    )
    with reporting_errors(module):
        params = module.params
        request = SriovRequest.of(params)
        task = GpuTask(Cluster.connect(params), module.check_mode, params["wait"], params["wait_timeout"])
        planned = task.plan(request)
        applied = task.apply(planned)
        finish(module, SriovResult(planned, applied))


if __name__ == "__main__":
    main()
