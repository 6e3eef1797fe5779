#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_mig
short_description: Manage MIG instances of GPUs on a Harvester cluster
version_added: 0.1.0
description:
  - Creates MIG instances on GPUs such as A30, A100 and H100, removes them, or keeps the GPUs time-sliced. Harvester 1.7
    and 1.8 put such GPUs into MIG mode as soon as SR-IOV is enabled. They then offer no vGPU profile until they have
    instances.
  - With O(state=enabled), the task ends when each GPU has exactly the requested instances, and its vGPU devices offer
    the profiles that these serve. An instance of V(1g.5gb) serves one vGPU of the profile V(A100-1-5C).
  - On boards with graphics instances, such as the RTX PRO 6000 Blackwell, only instances whose name ends in V(+gfx)
    serve vGPUs, and each serves several vGPUs of one size. The task refuses instances that serve no vGPU before it
    writes anything.
  - Before it writes anything, the module checks whether the instances fit on the GPU together.
  - Harvester creates instances one by one and stops at the first failure. The instances created until then are
    unusable, so the module removes them and reports Harvester's message. It also repairs a GPU that is already in this
    state and has no vGPUs.
  - Instances cannot change while a vGPU of the GPU is enabled. In this case the task fails and names the vGPU, and the
    VM that refers to it, if any.
  - If a GPU is still changing, for example because vGPUs were just disabled, the module waits up to O(wait_timeout)
    until the GPU has settled before it plans. In check mode it does not wait and warns that the result is not final.
  - If another user changes one of the devices during the task, the task stops immediately with the error code
    V(changed_by_other) and names the writer.
options:
  gpus:
    description:
      - Names of the GPUs, as Harvester lists them under SR-IOV GPU devices, or shell patterns.
      - At least one of O(gpus) and O(nodes) is required. With both, a GPU must match both. An empty list is an error.
      - With O(state=enabled), a GPU that is only matched by a pattern is skipped if its board does not support the
        instances. If a GPU is named in full, its board must support them.
    type: list
    elements: str
  nodes:
    description:
      - Names of nodes, or shell patterns, whose GPUs to select. GPUs whose board does not support the instances are
        skipped.
    type: list
    elements: str
  instances:
    description:
      - The instances of each selected GPU. Other instances are removed.
    type: list
    elements: dict
    suboptions:
      profile:
        description:
          - The instance, in any spelling, such as V(1g.5gb), V(MIG 1g.5gb), V(1g.24gb+gfx), or a vGPU profile that it
            serves, such as V(A100-1-5C).
          - A vGPU profile stands for the instance with its slices, also if the driver has another name for them.
        type: str
        required: true
      count:
        description:
          - Number of instances.
        type: int
        required: true
  state:
    description:
      - Whether the GPUs should have O(instances) or no instances.
    type: str
    choices: [enabled, disabled]
    default: enabled
  mode:
    description:
      - The mode of the GPUs.
      - V(time_sliced) keeps MIG-capable GPUs out of MIG mode. It sets an annotation that Harvester reads from 1.9 on
        when SR-IOV is enabled. On versions that ignore the annotation, the task fails.
      - If Harvester has not been able to put a GPU into MIG mode yet and keeps trying (finding V(mig_unstable) of
        M(vgpu.fleet.harvester_gpu_info)), the annotation ends the attempts, and the vGPUs of the GPU stay as they are.
    type: str
    choices: [mig, time_sliced]
    default: mig
  take_over:
    description:
      - Whether to first undo another run that was interrupted on one of the GPUs and is dead. Its journal on the GPU
        records the state to restore.
      - With V(false), the task fails with the error code V(journal_held) and names the run. A run that is still alive
        is never taken over.
      - Running the interrupted task again finishes it and does not need this option.
    type: bool
    default: false
  relayout:
    description:
      - Whether to disable, change and enable a GPU that has other instances or is in the other mode.
      - All vGPUs of the GPU must be disabled before.
    type: bool
    default: false
  enable_sriov:
    description:
      - Whether to enable SR-IOV on GPUs where it is disabled. Instances require SR-IOV.
    type: bool
    default: false
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.waiting
  - vgpu.fleet.harvester.fail_fast
attributes:
  check_mode:
    description: >-
      Predicts the changes. Steps that do not depend on other steps are sent as dry runs, which the cluster validates.
    support: full
  diff_mode:
    description: Shows the mode and the instances of each GPU that changes.
    support: full
seealso:
  - module: vgpu.fleet.harvester_sriov_gpu
  - module: vgpu.fleet.harvester_vgpu
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Create one large and two small instances on every A100 of the GPU nodes
  vgpu.fleet.harvester_mig:
    nodes: ["mig-*"]
    instances:
      - profile: A100-3-20C
        count: 1
      - profile: 1g.5gb
        count: 2
    enable_sriov: true

- name: Replace the instances of a GPU without vGPUs
  vgpu.fleet.harvester_mig:
    gpus: [mig-a100-000004000]
    instances:
      - profile: MIG 7g.40gb
        count: 1
    relayout: true

- name: Remove the instances of a GPU
  vgpu.fleet.harvester_mig:
    gpus: [mig-a100-000004000]
    state: disabled

- name: Keep a GPU time-sliced when SR-IOV is enabled (Harvester 1.9)
  vgpu.fleet.harvester_mig:
    gpus: [mig-h100-0000ca000]
    mode: time_sliced
"""

RETURN = r"""
finished:
  description: Interrupted runs of the same task that this task finished, or in check mode would finish.
  returned: success
  type: list
  elements: str
  sample: []
undone:
  description: Interrupted runs of other tasks that this task undid, or in check mode would undo. See O(take_over).
  returned: success
  type: list
  elements: str
  sample: []
gpus:
  description: The selected GPUs after the task, or in check mode as predicted, ordered by node and address.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the GPU.
      type: str
      sample: mig-a100-000004000
    node:
      description: The node of the GPU.
      type: str
      sample: mig-a100
    address:
      description: PCI address of the GPU.
      type: str
      sample: "0000:04:00.0"
    board:
      description: The board, as vGPU profiles name it; null while several are possible.
      type: str
      sample: A100
    mode:
      description: V(mig) or V(time_sliced). While SR-IOV is disabled, the mode that the GPU will have with SR-IOV.
      type: str
      sample: mig
    vgpu_enabled:
      description: Whether SR-IOV is enabled.
      type: bool
      sample: true
    state:
      description: Whether the MIG configuration of the GPU is V(enabled) or V(disabled).
      type: str
      sample: enabled
    status:
      description: Status of the MIG configuration, V(synced), V(out-of-sync), V(disabled) or empty.
      type: str
      sample: synced
    message:
      description: Why the MIG configuration is out of sync, from Harvester 1.9 on.
      type: str
      sample: ""
    instances:
      description: The instances of the GPU, the largest first.
      type: list
      elements: dict
      contains:
        profile:
          description: Name of the instance.
          type: str
          sample: 3g.20gb
        type:
          description:
            - The vGPU profile that the instance serves; null if the board is unknown. If the instance serves several
              profiles, the one that has the whole instance.
          type: str
          sample: GRID A100-3-20C
        types:
          description: All vGPU profiles that the instance serves, each with its maximum number on one instance.
          type: dict
          sample:
            GRID A100-3-20C: 1
        count:
          description: Number of instances.
          type: int
          sample: 1
steps:
  description: The steps that were applied, or in check mode would be applied, in order.
  returned: success
  type: list
  elements: dict
  contains:
    action:
      description:
        - V(create_mig_instances) creates instances, after removing others. V(remove_mig_instances) removes them.
        - V(set_mode) marks the GPU for a mode. V(enable_sriov) enables SR-IOV, V(disable_sriov) disables it.
      type: str
      sample: create_mig_instances
    node:
      description: The node.
      type: str
      sample: mig-a100
    gpu:
      description: The GPU.
      type: str
      sample: mig-a100-000004000
    slot:
      description: Always null.
      type: str
      sample: null
    before:
      description: Instances or mode before the step.
      type: str
      sample: null
    after:
      description: Instances or mode after the step.
      type: str
      sample: 1 x 3g.20gb, 2 x 1g.5gb
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

from ..module_utils.harvester.apply.journaled_task import JournaledTask
from ..module_utils.harvester.cluster import Cluster
from ..module_utils.harvester.decide.mig import request_from
from ..module_utils.harvester.result.mig_result import MigResult
from ..module_utils.kube.options import connection_spec, waiting_spec
from ..module_utils.module import finish, reporting_errors


def main() -> None:
    options = {
        **waiting_spec(),
        "gpus": {"type": "list", "elements": "str"},
        "nodes": {"type": "list", "elements": "str"},
        "instances": {
            "type": "list",
            "elements": "dict",
            "options": {
                "profile": {"type": "str", "required": True},
                "count": {"type": "int", "required": True},
            },
        },
        "state": {"type": "str", "choices": ["enabled", "disabled"], "default": "enabled"},
        "mode": {"type": "str", "choices": ["mig", "time_sliced"], "default": "mig"},
        "relayout": {"type": "bool", "default": False},
        "enable_sriov": {"type": "bool", "default": False},
        "take_over": {"type": "bool", "default": False},
    }
    module = AnsibleModule(
        argument_spec={**connection_spec(), **options},
        required_one_of=[("gpus", "nodes")],
        supports_check_mode=True,
    )
    with reporting_errors(module):
        params = module.params
        request = request_from(params)
        task = JournaledTask.of(Cluster.connect(params), "harvester_mig", params, request, options, module.check_mode)
        planned = task.recover_and_plan(request)
        applied = task.apply(planned)
        finish(module, MigResult(planned, applied, task))


if __name__ == "__main__":
    main()
