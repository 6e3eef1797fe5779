#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_mig
short_description: Cut GPUs of a Harvester cluster into MIG instances, or keep them time-sliced
version_added: 0.1.0
description:
  - GPUs such as A30, A100 and H100 can be cut into MIG instances. Harvester 1.7 and 1.8 put them into MIG mode as soon
    as SR-IOV is switched on, and then they offer no vGPU profile at all until they have instances.
  - With O(state=enabled) the task ends when each GPU has exactly the requested instances, and its vGPU devices offer
    the profiles that these serve. An instance of V(1g.5gb) serves one vGPU of the profile V(A100-1-5C).
  - Whether the instances fit side by side is checked before anything is written.
  - Harvester creates instances one by one and stops at the first that fails. What was made by then is of no use, so
    the module removes it again and tells what Harvester said. A GPU that is found in this state, without vGPUs, is
    repaired.
  - Instances cannot change under a vGPU. As long as a vGPU of the GPU is enabled the task fails and names it, and the
    VM that refers to it if there is one.
  - If a GPU is still changing, such as right after somebody disabled vGPUs, the module waits within O(wait_timeout)
    until it has settled, and plans then. In check mode it does not wait, and says that the answer is not final.
  - If somebody else changes one of the devices while the task works on it, the task stops at once with the error code
    V(changed_by_other) and names who it was.
options:
  gpus:
    description:
      - Names of the GPUs, as Harvester lists them under SR-IOV GPU devices, or shell patterns.
      - At least one of O(gpus) and O(nodes) is needed. With both, a GPU has to match both. An empty list is an error.
      - With O(state=enabled), a GPU that is only matched by a pattern, and whose board has no such instances, is left
        alone. One that is named in full has to have them.
    type: list
    elements: str
  nodes:
    description:
      - Names of nodes, or shell patterns, whose GPUs to select. Those whose board has no such instances are left alone.
    type: list
    elements: str
  instances:
    description:
      - All the instances that each of the GPUs should have.
    type: list
    elements: dict
    suboptions:
      profile:
        description:
          - The instance in any spelling, such as V(1g.5gb), V(MIG 1g.5gb), or the vGPU profile that it serves, such as
            V(A100-1-5C).
        type: str
        required: true
      count:
        description:
          - How many of them.
        type: int
        required: true
  state:
    description:
      - Whether the GPUs should have O(instances), or none.
    type: str
    choices: [enabled, disabled]
    default: enabled
  mode:
    description:
      - V(time_sliced) keeps GPUs that can do MIG out of MIG mode, by an annotation that Harvester reads from 1.9 on
        when SR-IOV is switched on. On versions that ignore it the task fails.
    type: str
    choices: [mig, time_sliced]
    default: mig
  take_over:
    description:
      - Whether to undo another run first that was cut off on one of the GPUs and is dead. Its journal on the GPU tells
        what to put back.
      - Without it, the task fails with the error code V(journal_held) and names the run. A run that shows signs of life
        is never taken over.
      - The same task as the one that was cut off finishes it, and does not need this option.
    type: bool
    default: false
  relayout:
    description:
      - Whether a GPU that has other instances, or is in the other mode, is disabled, changed and enabled again.
      - All vGPUs of the GPU have to be disabled before.
    type: bool
    default: false
  enable_sriov:
    description:
      - Whether SR-IOV is switched on where it is off. Without SR-IOV there are no instances.
    type: bool
    default: false
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.waiting
  - vgpu.fleet.harvester.fail_fast
attributes:
  check_mode:
    description: >-
      Predicts what the run would do. The cluster is asked by dry runs whether it would accept those steps that do not
      depend on others.
    support: full
  diff_mode:
    description: Shows mode and instances of each GPU that changes.
    support: full
seealso:
  - module: vgpu.fleet.harvester_sriov_gpu
  - module: vgpu.fleet.harvester_vgpu
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Every A100 of the GPU nodes has one large and two small instances
  vgpu.fleet.harvester_mig:
    nodes: ["mig-*"]
    instances:
      - profile: A100-3-20C
        count: 1
      - profile: 1g.5gb
        count: 2
    enable_sriov: true

- name: A GPU is cut in another way, now that it has no vGPUs any more
  vgpu.fleet.harvester_mig:
    gpus: [mig-a100-000004000]
    instances:
      - profile: MIG 7g.40gb
        count: 1
    relayout: true

- name: A GPU has no instances
  vgpu.fleet.harvester_mig:
    gpus: [mig-a100-000004000]
    state: disabled

- name: A GPU stays time-sliced when SR-IOV is switched on (Harvester 1.9)
  vgpu.fleet.harvester_mig:
    gpus: [mig-h100-0000ca000]
    mode: time_sliced
"""

RETURN = r"""
finished:
  description: Runs of the same task that were cut off, and that this one has finished, or in check mode would finish.
  returned: success
  type: list
  elements: str
  sample: []
undone:
  description: Runs of other tasks that were undone first, or in check mode would be. See O(take_over).
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
      description: The node it is in.
      type: str
      sample: mig-a100
    address:
      description: Its PCI address.
      type: str
      sample: "0000:04:00.0"
    board:
      description: The board, as vGPU profiles name it; null while several are possible.
      type: str
      sample: A100
    mode:
      description: V(mig) or V(time_sliced). With SR-IOV off, the mode that it will have once it is on.
      type: str
      sample: mig
    vgpu_enabled:
      description: Whether SR-IOV is on.
      type: bool
      sample: true
    state:
      description: Whether its MIG configuration is V(enabled) or V(disabled).
      type: str
      sample: enabled
    status:
      description: What Harvester says of its MIG configuration, V(synced), V(out-of-sync), V(disabled) or nothing.
      type: str
      sample: synced
    message:
      description: Why it is out of sync, from Harvester 1.9 on.
      type: str
      sample: ""
    instances:
      description: The instances it has, the largest first.
      type: list
      elements: dict
      contains:
        profile:
          description: The instance's name.
          type: str
          sample: 3g.20gb
        type:
          description: The vGPU profile that it serves; null if the board is not known.
          type: str
          sample: GRID A100-3-20C
        count:
          description: How many of them.
          type: int
          sample: 1
steps:
  description: What was done, or in check mode what would be done, in order.
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
      description: Instances or mode before.
      type: str
      sample: null
    after:
      description: Instances or mode afterwards.
      type: str
      sample: 1 x 3g.20gb, 2 x 1g.5gb
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
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.journaled_task import JournaledTask
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.mig import request_from
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.mig_result import MigResult
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.options import connection_spec, waiting_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.module import finish, reporting_errors


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
