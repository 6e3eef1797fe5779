#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_vgpu
short_description: Manage vGPU profiles on a Harvester cluster
version_added: 0.1.0
description:
  - Creates, changes and removes vGPUs, either by the number of vGPUs of each profile or by the profile of each device.
  - The task ends when every vGPU is configured and allocatable, so that a VM can start with it.
  - For numbers of vGPUs, the module keeps existing vGPUs and touches as few GPUs as possible. If the vGPUs do not fit,
    the error names the limiting rule of each GPU, the holders, and changes that would help.
  - Numbers are exact. If the selection has more vGPUs of the profile than O(count), unused ones are disabled. If VMs
    hold more of them than O(count), the task fails and names the VMs. vGPUs of other profiles stay, unless
    O(exclusive=true).
  - vGPUs that a VM refers to, running or not, are never disabled or given another profile.
  - Harvester accepts another profile for an enabled vGPU, but applies it only at the next reboot. The module never
    sends such a request. It detects vGPUs whose profile differs from the requested one, and repairs them with
    O(reprofile=true). If a task names such a vGPU with its current profile, the module only corrects the specification.
    This does not affect the vGPU, so it is also done while a VM uses it.
  - If a GPU is still changing, for example because vGPUs were just disabled, the module waits up to O(wait_timeout)
    until the GPU has settled before it plans. In check mode it does not wait and warns that the result is not final.
  - No VM starts with a vGPU whose type is not in KubeVirt's list of permitted devices, and Harvester's controllers can
    lose types from the list. The module waits for them, then adds lost types of its vGPUs and returns them in
    RV(permitted). Without the right to do so, the task fails with the error code V(not_permitted). With O(wait=false)
    it only warns.
  - If another user changes one of the devices during the task, the task stops immediately with the error code
    V(changed_by_other) and names the writer.
options:
  layout:
    description:
      - The number of vGPUs of each profile. All entries are planned together.
      - Exactly one of O(layout), O(devices), O(count) and O(name) is required.
      - Entries for the same profile add up. Each vGPU counts for one entry.
      - To use a configuration file of NVIDIA's vGPU Device Manager, convert it with the filter
        P(vgpu.fleet.vgpu_device_manager#filter).
    type: list
    elements: dict
    suboptions:
      profile:
        description:
          - The profile, in any spelling, such as V(NVIDIA A2-4Q), V(A2-4Q) or V(nvidia.com/NVIDIA_A2-4Q).
        type: str
        required: true
      count:
        description:
          - Exact number of vGPUs. V(0) means none.
        type: int
        required: true
      per:
        description:
          - What the count applies to. V(fleet) means the whole selection. V(node) and V(gpu) mean each node or GPU of
            the selection whose board supports the profile.
        type: str
        choices: [fleet, node, gpu]
        default: fleet
      nodes:
        description:
          - Names of nodes, or shell patterns. An entry without a selection uses O(nodes) and O(gpus) of the task.
            An empty list is an error.
        type: list
        elements: str
      gpus:
        description:
          - Names of GPUs, or shell patterns. With O(layout[].nodes) as well, a GPU must match both.
        type: list
        elements: str
  devices:
    description:
      - Single vGPU devices with their profile or state.
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
          - The profile, in any spelling. Not required to disable a device or to keep the profile of an enabled one.
        type: str
      state:
        description:
          - Whether the device should be enabled or disabled.
        type: str
        choices: [enabled, disabled]
        default: enabled
  profile:
    description:
      - The profile, in any spelling, of O(count) vGPUs or of the device O(name).
    type: str
  count:
    description:
      - Exact number of vGPUs of O(profile). V(0) means none. Shorthand for O(layout) with one entry.
    type: int
  per:
    description:
      - What O(count) applies to, as in O(layout[].per). Defaults to V(fleet).
    type: str
    choices: [fleet, node, gpu]
  nodes:
    description:
      - Names of nodes, or shell patterns, on which to manage vGPUs.
      - Without O(nodes) and O(gpus), the whole fleet is selected. An empty list in either of them is an error.
    type: list
    elements: str
  gpus:
    description:
      - Names of GPUs, or shell patterns, on which to manage vGPUs.
      - With O(nodes) as well, a GPU must match both.
    type: list
    elements: str
  name:
    description:
      - Name of one vGPU device. Shorthand for O(devices) with one entry.
    type: str
  state:
    description:
      - Whether the device O(name) should be enabled or disabled. Defaults to V(enabled).
    type: str
    choices: [enabled, disabled]
  exclusive:
    description:
      - Whether to disable vGPUs of profiles that are not requested. Applies to the selected GPUs, or to the GPUs of the
        named devices. If a VM refers to one of these vGPUs, the task fails.
      - Together with O(count=0), all vGPUs of the selection are disabled.
    type: bool
    default: false
  reprofile:
    description:
      - Whether to allow disabling unused vGPUs and enabling them with another profile, to make room or because their
        profile differs from the requested one.
    type: bool
    default: false
  enable_sriov:
    description:
      - Whether to allow enabling SR-IOV on GPUs if the vGPUs do not fit otherwise.
    type: bool
    default: false
  enable_mig:
    description:
      - Whether to allow creating MIG instances for profiles such as V(A100-3-20C) if the vGPUs do not fit otherwise.
      - Instances are created only on GPUs without enabled vGPUs, and existing instances are kept. With
        O(reprofile=true), unused vGPUs may be disabled for this, and unused instances may be removed.
      - With V(false), the error shows the M(vgpu.fleet.harvester_mig) task that would make the vGPUs fit.
    type: bool
    default: false
  take_over:
    description:
      - Whether to first undo another run that was interrupted on one of the GPUs and is dead. Its journal on the GPU
        records the state to restore.
      - With V(false), the task fails with the error code V(journal_held) and names the run. A run that is still alive
        is never taken over.
      - Running the interrupted task again finishes it and does not need this option.
    type: bool
    default: false
  owner:
    description:
      - The owner of the vGPUs that the task enables. The module sets the annotation C(vgpu.fleet/owner) in the request
        that enables a vGPU and removes it in the request that disables the vGPU.
      - With this option, vGPUs with the mark of another owner are never disabled or given another profile, and count as
        held by that owner. O(count) remains the number of all vGPUs of the profile in the selection, of any owner.
      - vGPUs that are already enabled get no mark. Without this option, marks are ignored.
    type: str
  placement:
    description:
      - Whether to place new vGPUs on as few GPUs as possible or to spread them over many.
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
      Predicts the changes. Steps that do not depend on other steps are sent as dry runs, which the cluster validates.
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
- name: Provision four A2-4Q on each GPU node
  vgpu.fleet.harvester_vgpu:
    profile: A2-4Q
    count: 4
    per: node
    nodes: ["gpu-*"]
    enable_sriov: true

- name: Set the profiles of two devices
  vgpu.fleet.harvester_vgpu:
    devices:
      - name: gpu-a-000008004
        profile: NVIDIA A2-4Q
      - name: gpu-a-000008005
        profile: NVIDIA A2-4C
    reprofile: true

- name: Provision seven A2-4Q in total, mark new ones for team blue, and keep those of other owners
  vgpu.fleet.harvester_vgpu:
    profile: A2-4Q
    count: 7
    owner: team-blue

- name: Disable a device
  vgpu.fleet.harvester_vgpu:
    name: gpu-a-000008005
    state: disabled

- name: Provision three large and eight small vGPUs, and no others
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
vgpus:
  description: >-
    The enabled vGPUs of the selected GPUs, or the named devices, after the task or in check mode as predicted.
    Predicted vGPUs on a GPU whose SR-IOV is still disabled have no name and no address.
  returned: success
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
    node:
      description: The node of the vGPU.
      type: str
      sample: gpu-a
    gpu:
      description: The GPU of the vGPU.
      type: str
      sample: gpu-a-000008000
    profile:
      description: The profile of the vGPU; null if it is disabled.
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
      description: VMs that have the vGPU or refer to it.
      type: list
      elements: dict
      sample: []
    available_profiles:
      description: The profiles that the slot can be given now.
      type: list
      elements: str
      sample: []
profiles:
  description: The profiles of RV(vgpus), each in all spellings.
  returned: success
  type: list
  elements: dict
  contains:
    type:
      description: The type name, as the host driver spells it.
      type: str
      sample: NVIDIA A2-4Q
    short:
      description: The name without the brand.
      type: str
      sample: A2-4Q
    resource:
      description: The resource name that nodes advertise and VMs request.
      type: str
      sample: nvidia.com/NVIDIA_A2-4Q
    vsphere:
      description: The name of the profile on vSphere.
      type: str
      sample: nvidia_a2-4q
plan:
  description: The changes that were made, or in check mode would be made.
  returned: success
  type: dict
  contains:
    steps:
      description: >-
        The steps in order. Steps on one GPU are applied in sequence, steps on different GPUs in parallel. Each
        has RV(ignore:action) (V(enable_sriov), V(create_mig_instances), V(disable), V(enable) or V(correct)),
        RV(ignore:node), RV(ignore:gpu), RV(ignore:slot), RV(ignore:before) and RV(ignore:after). V(correct)
        writes the current profile of a vGPU into its specification, which does not affect the vGPU.
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
      description: vGPUs of the selection whose profile differs from the requested one, and that were not changed.
      type: list
      elements: str
      sample: []
    optimal:
      description:
        - Whether the plan is proven to touch the fewest GPUs of all plans with changes as mild as its own. A plan that
          only enables vGPUs precedes one that creates MIG instances, then one that enables SR-IOV, then one that
          disables unused vGPUs, even if the latter would touch fewer GPUs.
        - V(false) if RV(plan.stuck) lists any vGPU, and if the capacity of a GPU is an estimate, because its board is
          not in the collection's table or because nothing shows which MIG instances its vGPUs share.
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
permitted:
  description:
    - Resources that the task added to KubeVirt's list of permitted devices, or would add in check mode. Without O(wait)
      the task adds none.
  returned: success
  type: list
  elements: str
  sample: []
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
from ..module_utils.harvester.decide.layout import request_from
from ..module_utils.harvester.result.vgpu_result import VgpuResult
from ..module_utils.kube.options import connection_spec, waiting_spec
from ..module_utils.module import finish, reporting_errors

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
