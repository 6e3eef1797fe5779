#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_sriov_gpu
short_description: Enable or disable SR-IOV on GPUs of a Harvester cluster
version_added: 0.1.0
description:
  - Divides GPUs into virtual functions, each of which can become a vGPU, or removes the virtual functions.
  - With O(state=enabled), the task ends when the virtual functions exist and each of them reports its available vGPU
    profiles. The task does not wait for the profiles of GPUs in MIG mode, which offer none before they have MIG
    instances.
  - Disabling SR-IOV on a GPU with enabled vGPUs requires O(disable_vgpus=true). If a VM, running or not, uses or refers
    to one of the vGPUs, or requests a profile of which too few would remain, the task always fails and names the VM.
  - If a GPU is still changing, for example because vGPUs were just disabled, the module waits up to O(wait_timeout)
    until the GPU has settled before it plans. In check mode it does not wait and warns that the result is not final.
  - If another user changes one of the devices during the task, the task stops immediately with the error code
    V(changed_by_other) and names the writer.
options:
  gpus:
    description:
      - Names of the GPUs, as Harvester lists them under SR-IOV GPU devices, or shell patterns.
      - At least one of O(gpus) and O(nodes) is required. With both, a GPU must match both. An empty list is an error.
      - A name or pattern that matches nothing is an error. The error lists the existing names.
    type: list
    elements: str
  nodes:
    description:
      - Names of nodes, or shell patterns, whose GPUs to select. V(*) selects all nodes.
    type: list
    elements: str
  state:
    description:
      - Whether SR-IOV should be enabled or disabled.
    type: str
    choices: [enabled, disabled]
    default: enabled
  disable_vgpus:
    description:
      - Whether to first disable the vGPUs that no VM refers to, with O(state=disabled).
    type: bool
    default: false
  remove_mig:
    description:
      - Whether to first remove the MIG instances of the GPUs, with O(state=disabled). With V(false), the task fails if
        a GPU has MIG instances, because Harvester would leave them on the GPU.
    type: bool
    default: false
  detail:
    description: Whether RV(gpus) counts the vGPUs of each GPU by profile (V(summary)) or lists every device (V(full)).
    type: str
    choices: [summary, full]
    default: summary
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.waiting
  - vgpu.fleet.harvester.fail_fast
attributes:
  check_mode:
    description: Predicts the changes and sends them as dry runs, which the cluster validates.
    support: full
  diff_mode:
    description: Shows the state of each GPU, and of the vGPUs that the task disables.
    support: full
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.harvester_gpu_info
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Enable SR-IOV on all GPUs of the GPU nodes
  vgpu.fleet.harvester_sriov_gpu:
    nodes: ["gpu-*"]

- name: Enable SR-IOV on two GPUs, with a context of a kubeconfig
  vgpu.fleet.harvester_sriov_gpu:
    kubeconfig: "{{ lookup('ansible.builtin.env', 'KUBECONFIG') }}"
    context: lab
    gpus:
      - gpu-a-000008000
      - gpu-b-000008000
    wait_timeout: 600

- name: Disable SR-IOV on a GPU, and the vGPUs on it that no VM refers to
  vgpu.fleet.harvester_sriov_gpu:
    gpus: [gpu-a-000008000]
    state: disabled
    disable_vgpus: true
"""

RETURN = r"""
gpus:
  description: The selected GPUs after the task, or in check mode as predicted, ordered by node and address.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the GPU.
      type: str
      sample: gpu-a-000008000
    node:
      description: The node of the GPU.
      type: str
      sample: gpu-a
    platform:
      description: Always V(harvester).
      returned: with O(detail=full)
      type: str
      sample: harvester
    address:
      description: PCI address of the GPU.
      type: str
      sample: "0000:08:00.0"
    board:
      description: The board, as vGPU profiles name it; null while several are possible.
      type: str
      sample: A2
    possible_boards:
      description: All possible boards. Some share a PCI ID and cannot be distinguished before they offer profiles.
      type: list
      elements: str
      sample: [A2]
    framebuffer_mib:
      description: Framebuffer of the GPU, if the platform reports it.
      returned: with O(detail=full)
      type: int
      sample: null
    mode:
      description: Mode of the GPU.
      type: str
      sample: time_sliced
    vgpu_enabled:
      description: Whether SR-IOV is enabled.
      type: bool
      sample: true
    vf_capacity:
      description: Number of virtual functions; null while SR-IOV is disabled.
      returned: with O(detail=full)
      type: int
      sample: 16
    max_instances:
      description: Maximum number of vGPUs of each profile, if the platform reports it.
      returned: with O(detail=full)
      type: dict
      sample: {}
    unavailable_reason:
      description: Why the GPU serves no vGPUs. Empty if it can serve them.
      type: str
      sample: ""
    mig_instances:
      description:
        - The instance profiles that the GPU lists in MIG mode, each with the number of its instances. On boards such as
          the RTX PRO 6000 Blackwell an instance serves several vGPUs of one size.
      type: dict
      sample: {}
    unstable_reason:
      description:
        - Why the mode of the GPU may change by itself, so that nothing new is planned on it. Empty if it cannot. See
          the finding V(mig_unstable) of M(vgpu.fleet.harvester_gpu_info).
      type: str
      sample: ""
    slots:
      description: The vGPU devices of the GPU by address, empty or not.
      returned: with O(detail=full)
      type: list
      elements: dict
      contains:
        name:
          description: Name of the vGPU device.
          type: str
          sample: gpu-a-000008004
        address:
          description: PCI address of the virtual function.
          type: str
          sample: "0000:08:00.4"
        profile:
          description: The profile of the vGPU; null if the slot is empty.
          type: str
          sample: NVIDIA A2-4Q
        requested:
          description: The requested profile.
          type: str
          sample: NVIDIA A2-4Q
        state:
          description: V(empty), V(requested), V(configured), or V(allocatable) once the node offers the vGPU to VMs.
          type: str
          sample: allocatable
        drifted:
          description: Whether the profile differs from the requested one.
          type: bool
          sample: false
        hardware:
          description: The profile that the device reports, if its node offers it as another one; otherwise null.
          type: str
          sample: null
        owner:
          description: The owner in the owner mark of the vGPU; null if it has no mark.
          type: str
          sample: vgpu.fleet
        holders:
          description: VMs that have the vGPU or refer to it, with RV(ignore:kind), RV(ignore:namespace),
            RV(ignore:name), RV(ignore:running) and RV(ignore:labels).
          type: list
          elements: dict
          sample: []
        available_profiles:
          description: The profiles that the slot can be given now.
          type: list
          elements: str
          sample: []
    vgpus:
      description: Number of vGPUs of each profile.
      returned: with O(detail=summary)
      type: dict
      sample: {NVIDIA A2-4Q: 4}
    in_use:
      description: Number of vGPUs that VMs have or refer to.
      returned: with O(detail=summary)
      type: int
      sample: 1
    empty:
      description: Number of vGPU devices without a profile.
      returned: with O(detail=summary)
      type: int
      sample: 12
steps:
  description: The steps that were applied, or in check mode would be applied, in order.
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
      description: The vGPU device, if the step changes a vGPU.
      type: str
      sample: null
    before:
      description: The profile before the step.
      type: str
      sample: null
    after:
      description: The profile after the step.
      type: str
      sample: null
unsettled:
  description:
    - GPUs that affect the result and were still changing when it was computed, for example because vGPUs were just
      disabled.
    - Outside check mode, the module first waits for them up to O(wait_timeout), so the list contains only GPUs that
      did not settle.
    - If the task fails because of the state of such a GPU, RV(ignore:error.unsettled) has the same list.
  returned: success
  type: list
  elements: dict
  contains:
    gpu:
      description: The GPU.
      type: str
      sample: gpu-a-000008000
    node:
      description: The node of the GPU.
      type: str
      sample: gpu-a
    reason:
      description: The change that is not complete.
      type: str
      sample: its vGPU devices do not all offer the same types yet
    moving:
      description: Whether the GPU is still changing. If V(false), it is stuck, and waiting does not help.
      type: bool
      sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.harvester.apply.task import GpuTask
from ..module_utils.harvester.cluster import Cluster
from ..module_utils.harvester.decide.sriov import SriovRequest
from ..module_utils.harvester.result.sriov_result import SriovResult
from ..module_utils.harvester.result.summaries import DETAIL_OPTION
from ..module_utils.harvester.time_limit import TimeLimit
from ..module_utils.kube.options import connection_spec, waiting_spec
from ..module_utils.module import finish, reporting_errors


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
            **DETAIL_OPTION,
        },
        required_one_of=[("gpus", "nodes")],
        supports_check_mode=True,
    )
    with reporting_errors(module):
        params = module.params
        request = SriovRequest.of(params)
        limit = TimeLimit.of(params["wait_timeout"])
        task = GpuTask(Cluster.connect(params), module.check_mode, params["wait"], limit)
        planned = task.plan(request)
        applied = task.apply(planned)
        finish(module, SriovResult(planned, applied, params["detail"]))


if __name__ == "__main__":
    main()
