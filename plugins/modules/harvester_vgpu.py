#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_vgpu
short_description: Give the vGPUs of a Harvester cluster their profiles
version_added: 0.1.0
description:
  - Says how many vGPUs of which profiles there should be, or which device should have which profile, and makes it so.
  - The task ends when every vGPU is configured and its node counts it as allocatable, so that a VM can start with it.
  - Asked for numbers, it keeps what is there, touches as few GPUs as possible, and tells which rule on which GPU is in
    the way if they do not fit, who holds what, and what would help.
  - A number is exact. If the selection has more vGPUs of the profile than O(count), unused ones are disabled. If VMs
    hold more of them than O(count), the task fails and names the VMs. vGPUs of other profiles stay, unless
    O(exclusive=true).
  - vGPUs that a VM refers to, whether it runs or not, are never disabled or given another profile.
  - Harvester accepts another profile for a vGPU that is enabled, ignores it, and applies it at the next reboot. This
    module never sends that. It finds vGPUs that are not what they were asked to be, and repairs them with
    O(reprofile=true). If a task names such a vGPU with the profile that it has, only its specification is set back,
    which changes nothing about the vGPU and is done while a VM uses it, too.
  - If a GPU is still changing, such as right after somebody disabled vGPUs, the module waits within O(wait_timeout)
    until it has settled, and plans then. In check mode it does not wait, and says that the answer is not final.
  - If somebody else changes one of the devices while the task works on it, the task stops at once with the error code
    V(changed_by_other) and names who it was.
options:
  layout:
    description:
      - How many vGPUs of which profiles there should be. All entries are planned together.
      - Exactly one of O(layout), O(devices), O(count) and O(name) is needed.
      - Entries for the same profile add up; each vGPU serves one of them.
      - A configuration file of NVIDIA's vGPU Device Manager can be used through the filter
        P(vgpu.fleet.vgpu_device_manager#filter).
    type: list
    elements: dict
    suboptions:
      profile:
        description:
          - The profile in any spelling, such as V(NVIDIA A2-4Q), V(A2-4Q) or V(nvidia.com/NVIDIA_A2-4Q).
        type: str
        required: true
      count:
        description:
          - How many of them, exactly. V(0) means none.
        type: int
        required: true
      per:
        description:
          - What the count applies to. V(fleet) is the whole selection. V(node) and V(gpu) are each node or GPU in it
            whose board has this profile.
        type: str
        choices: [fleet, node, gpu]
        default: fleet
      nodes:
        description:
          - Names of nodes, or shell patterns. Without any selection here O(nodes) and O(gpus) of the task are used.
            An empty list is an error.
        type: list
        elements: str
      gpus:
        description:
          - Names of GPUs, or shell patterns. With O(layout[].nodes) as well, a GPU has to match both.
        type: list
        elements: str
  devices:
    description:
      - Single vGPU devices and what they should be.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - Name of the vGPU device.
        type: str
        required: true
      profile:
        description:
          - The profile in any spelling. Not needed to disable a device, or to leave an enabled one as it is.
        type: str
      state:
        description:
          - Whether it should be enabled.
        type: str
        choices: [enabled, disabled]
        default: enabled
  profile:
    description:
      - The profile, in any spelling, of O(count) vGPUs or of the device O(name).
    type: str
  count:
    description:
      - How many vGPUs of O(profile) there should be, exactly. V(0) means none. Short for a O(layout) of one entry.
    type: int
  per:
    description:
      - What O(count) applies to, as in O(layout[].per). Defaults to V(fleet).
    type: str
    choices: [fleet, node, gpu]
  nodes:
    description:
      - Names of nodes, or shell patterns, on which the vGPUs should be.
      - Without O(nodes) and O(gpus) the whole fleet is selected. An empty list is an error, as it is in O(gpus).
    type: list
    elements: str
  gpus:
    description:
      - Names of GPUs, or shell patterns, on which the vGPUs should be.
      - With O(nodes) as well, a GPU has to match both.
    type: list
    elements: str
  name:
    description:
      - Name of one vGPU device. Short for O(devices) with one entry.
    type: str
  state:
    description:
      - Whether the device O(name) should be enabled. V(enabled) if not given.
    type: str
    choices: [enabled, disabled]
  exclusive:
    description:
      - Whether to disable enabled vGPUs of profiles that are not requested. Applies to the selected GPUs, or those
        of the devices named. If a VM refers to one of them, the task fails.
      - With O(count=0) as well, no vGPUs are left in the selection.
    type: bool
    default: false
  reprofile:
    description:
      - Whether unused vGPUs may be disabled and enabled with another profile, to make room or because they are not what
        they were asked to be.
    type: bool
    default: false
  enable_sriov:
    description:
      - Whether SR-IOV may be switched on where the vGPUs do not fit otherwise.
    type: bool
    default: false
  enable_mig:
    description:
      - Whether MIG instances may be made for profiles such as V(A100-3-20C) where the vGPUs do not fit otherwise.
      - Only GPUs without enabled vGPUs are cut, and they keep the instances that they have. With O(reprofile=true)
        unused vGPUs may be disabled for it, and unused instances may be removed.
      - Without it the error tells which M(vgpu.fleet.harvester_mig) task would make the vGPUs fit.
    type: bool
    default: false
  take_over:
    description:
      - Whether to undo another run first that was cut off on one of the GPUs and is dead. Its journal on the GPU tells
        what to put back.
      - Without it, the task fails with the error code V(journal_held) and names the run. A run that shows signs of life
        is never taken over.
      - The same task as the one that was cut off finishes it, and does not need this option.
    type: bool
    default: false
  owner:
    description:
      - For whom vGPUs are enabled. It is written on them as the annotation C(vgpu.fleet/owner), in the request that
        enables them, and is removed in the request that disables them.
      - With it, vGPUs with the mark of another owner are never disabled or given another profile, and count as held by
        that owner. O(count) remains the number of all vGPUs of the profile in the selection, whoever they are for.
      - vGPUs that are enabled already get no mark. Without this option, marks are ignored.
    type: str
  placement:
    description:
      - Whether new vGPUs are put on as few GPUs as possible or spread over many.
    type: str
    choices: [consolidate, spread]
    default: consolidate
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
    description: Shows the vGPUs of each GPU that changes.
    support: full
seealso:
  - module: vgpu.fleet.harvester_sriov_gpu
  - module: vgpu.fleet.harvester_mig
  - module: vgpu.fleet.harvester_gpu_info
  - plugin: vgpu.fleet.vgpu_device_manager
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: There are four A2-4Q on each GPU node
  vgpu.fleet.harvester_vgpu:
    profile: A2-4Q
    count: 4
    per: node
    nodes: ["gpu-*"]
    enable_sriov: true

- name: Two devices have the profiles that were agreed upon
  vgpu.fleet.harvester_vgpu:
    devices:
      - name: gpu-a-000008004
        profile: NVIDIA A2-4Q
      - name: gpu-a-000008005
        profile: NVIDIA A2-4C
    reprofile: true

- name: Have seven A2-4Q in all, mark the new ones as those of team blue, and disable none of another team
  vgpu.fleet.harvester_vgpu:
    profile: A2-4Q
    count: 7
    owner: team-blue

- name: A device is not used any more
  vgpu.fleet.harvester_vgpu:
    name: gpu-a-000008005
    state: disabled

- name: There is room for three large and eight small machines, and nothing else
  vgpu.fleet.harvester_vgpu:
    layout:
      - profile: NVIDIA A2-4Q
        count: 3
      - profile: NVIDIA A2-2Q
        count: 8
    exclusive: true
    reprofile: true
    enable_sriov: true
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
vgpus:
  description: >-
    The vGPUs that are enabled on the selected GPUs, or the devices named, as they are now. In check mode as they would
    be: those on a GPU whose SR-IOV is still off have no name and address then.
  returned: success
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
    node:
      description: The node it is on.
      type: str
      sample: gpu-a
    gpu:
      description: The GPU it is on.
      type: str
      sample: gpu-a-000008000
    profile:
      description: The profile it has; null if it is disabled.
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
      description: VMs that have it or refer to it.
      type: list
      elements: dict
      sample: []
    available_profiles:
      description: The profiles that it could be given right now.
      type: list
      elements: str
      sample: []
profiles:
  description: The profiles of RV(vgpus), each in all its spellings.
  returned: success
  type: list
  elements: dict
  contains:
    type:
      description: The type's name, as the cluster's driver spells it.
      type: str
      sample: NVIDIA A2-4Q
    short:
      description: The name without the brand.
      type: str
      sample: A2-4Q
    resource:
      description: The resource that nodes advertise and VMs ask for.
      type: str
      sample: nvidia.com/NVIDIA_A2-4Q
    vsphere:
      description: The name of the profile on vSphere.
      type: str
      sample: nvidia_a2-4q
plan:
  description: What was done, or in check mode would be done.
  returned: success
  type: dict
  contains:
    steps:
      description: >-
        The steps in order. Those on one GPU are done one after the other, those on different GPUs side by side. Each
        has RV(ignore:action) (V(enable_sriov), V(create_mig_instances), V(disable), V(enable) or V(correct)),
        RV(ignore:node), RV(ignore:gpu), RV(ignore:slot), RV(ignore:before) and RV(ignore:after). V(correct)
        writes the profile that a vGPU has into its specification, which changes nothing about
        the vGPU.
      type: list
      elements: dict
      sample:
        - action: enable
          after: NVIDIA A2-4Q
          before: null
          gpu: gpu-a-000008000
          node: gpu-a
          slot: gpu-a-000008004
    waiting:
      description: vGPUs that an earlier run requested and that were not ready yet.
      type: list
      elements: str
      sample: []
    drifted:
      description: vGPUs of the selection that are not what they were asked to be, and that were left alone.
      type: list
      elements: str
      sample: []
    optimal:
      description:
        - Whether it is certain that no plan touches fewer GPUs.
        - V(false) if RV(plan.stuck) lists any vGPU.
      type: bool
      sample: true
    stuck:
      description:
        - Surplus vGPUs that cannot be disabled, because their node is not ready or their GPU
          is passed through. The module warns about them.
        - Each has RV(ignore:name), RV(ignore:node), RV(ignore:gpu), RV(ignore:profile) and RV(ignore:reason).
      type: list
      elements: dict
      sample: []
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
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.layout import request_from
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.vgpu_result import VgpuResult
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.options import connection_spec, waiting_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.module import finish, reporting_errors

SELECTION = {
    "nodes": {"type": "list", "elements": "str"},
    "gpus": {"type": "list", "elements": "str"},
}
STATES = ["enabled", "disabled"]
SCOPES = ["fleet", "node", "gpu"]


def main() -> None:
    options = {
        **waiting_spec(),
        **SELECTION,
        "layout": {
            "type": "list",
            "elements": "dict",
            "options": {
                "profile": {"type": "str", "required": True},
                "count": {"type": "int", "required": True},
                "per": {"type": "str", "choices": SCOPES, "default": "fleet"},
                **SELECTION,
            },
        },
        "devices": {
            "type": "list",
            "elements": "dict",
            "options": {
                "name": {"type": "str", "required": True},
                "profile": {"type": "str"},
                "state": {"type": "str", "choices": STATES, "default": "enabled"},
            },
        },
        "profile": {"type": "str"},
        "count": {"type": "int"},
        "per": {"type": "str", "choices": SCOPES},
        "name": {"type": "str"},
        "state": {"type": "str", "choices": STATES},
        "exclusive": {"type": "bool", "default": False},
        "reprofile": {"type": "bool", "default": False},
        "enable_sriov": {"type": "bool", "default": False},
        "enable_mig": {"type": "bool", "default": False},
        "placement": {"type": "str", "choices": ["consolidate", "spread"], "default": "consolidate"},
        "take_over": {"type": "bool", "default": False},
        "owner": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={**connection_spec(), **options},
        required_one_of=[("layout", "devices", "name", "count")],
        mutually_exclusive=[("layout", "devices", "name", "count"), ("layout", "profile"), ("devices", "profile")],
        required_by={"count": "profile", "per": "count", "state": "name"},
        supports_check_mode=True,
    )
    with reporting_errors(module):
        params = module.params
        request = request_from(params)
        task = JournaledTask.of(Cluster.connect(params), "harvester_vgpu", params, request, options, module.check_mode)
        planned = task.recover_and_plan(request)
        applied = task.apply(planned)
        finish(module, VgpuResult(planned, applied, task))


if __name__ == "__main__":
    main()
