#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_reprofile
short_description: Change the vGPU layout of GPUs that VMs use on Harvester
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Changes the layout of GPUs although VMs use them. The module stops the VMs, detaches their vGPUs, changes the
    profiles, attaches the vGPUs and starts the VMs that ran, with their previous run strategy. If a step fails, it
    restores the previous state.
  - Stops only VMs that O(vms) or O(vm_labels) select, and only if they use the GPUs or get other vGPUs. A change that
    cannot work is refused before any VM is stopped.
  - Before any change, the module writes a journal to the objects themselves, as annotation C(vgpu.fleet/journal) of
    the GPUs (SRIOVGPUDevice) and VMs. The journal identifies the run and records the state to restore. It is removed
    when everything is done or undone.
  - To finish an interrupted run, run the same task again, from any controller. A task with another request fails
    because of the journal and names the run. With O(take_over=true), it undoes that run first.
  - The device entries of a VM keep their names, tags and options. After an undone change they are exactly as before.
options:
  layout:
    description:
      - The vGPUs of each selected GPU after the task. The GPUs have no others.
    type: list
    elements: dict
    required: true
    suboptions:
      profile:
        description:
          - The profile, in any spelling.
        type: str
        required: true
      count:
        description:
          - Number of vGPUs of the profile on each GPU.
        type: int
        required: true
  gpus:
    description:
      - Names of GPUs, or shell patterns.
    type: list
    elements: str
  nodes:
    description:
      - Names of nodes, or shell patterns, whose GPUs to select. With O(gpus), a GPU must match both.
    type: list
    elements: str
  vms:
    description:
      - VMs that may be stopped. The task is done when those with O(vms[].vgpus) have them.
    type: list
    elements: dict
    suboptions:
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
          - The vGPUs of the VM after the task. Defaults to its current vGPUs. An empty list means none.
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
  vm_labels:
    description:
      - VMs with all of these labels may be stopped as well. They keep the same vGPUs.
      - Without labels, this option selects no VM.
    type: dict
  serial:
    description:
      - Number of GPUs to change at a time. Their VMs are stopped together. If a step fails, all of them are restored
        together.
    type: int
    default: 1
  take_over:
    description:
      - Whether to first undo another run that has the GPUs or VMs in its journal and is dead.
      - A run that is still alive is never taken over.
    type: bool
    default: false
  wait_timeout:
    description:
      - Maximum time for each step, in seconds.
      - Defaults to 600 seconds and additional time for each vGPU that changes on the busiest node, because a node
        changes one vGPU after the other. This is 5 seconds from Harvester 1.8 on, and 1 second before.
    type: int
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.fail_fast
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: The module plans, and refuses, in the same way. The result names interrupted runs.
  diff_mode:
    support: none
  platform:
    platforms: posix
notes:
  - A run updates the annotation C(vgpu.fleet/journal-alive) of one of its objects every 5 seconds. A task that finds a
    journal watches this annotation for 16 seconds before it continues or undoes the run.
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.harvester_vgpu_vm
"""

EXAMPLES = r"""
- name: Change gpu-a to two A2-8Q and attach one to the VM trainer
  vgpu.fleet.harvester_reprofile:
    nodes: [gpu-a]
    layout:
      - profile: A2-8Q
        count: 2
    vms:
      - name: trainer
        vgpus:
          - profile: A2-8Q

- name: Undo a dead run and change the layout of an unused GPU
  vgpu.fleet.harvester_reprofile:
    gpus: [gpu-a-000008000]
    layout:
      - profile: A2-4Q
        count: 4
    take_over: true
"""

RETURN = r"""
plan:
  description: The work that was done, or in check mode would be done.
  returned: success
  type: dict
  contains:
    lines:
      description: The plan as text, one line for each piece of work.
      type: list
      elements: str
      sample: ["gpu-a-000008000: 2 x NVIDIA A2-4Q -> 2 x A2-8Q, stopping default/trainer"]
    work:
      description: >-
        The pieces of work in order. Each has RV(ignore:gpus), RV(ignore:before) with the current vGPUs, and
        RV(ignore:vms) with the vGPUs of each VM before and after.
      type: list
      elements: dict
journals:
  description: Interrupted runs on these GPUs or VMs, before the task.
  returned: success
  type: list
  elements: dict
  contains:
    run:
      description: The id of the run.
      type: str
      sample: 3f2a9c01
    started:
      description: Start time of the run.
      type: str
      sample: "2026-11-18T01:00:00+00:00"
    by:
      description: User and host of the run.
      type: str
      sample: runner@awx-job-17
    phase:
      description: V(planned), V(changing), V(undoing) or V(unreadable).
      type: str
      sample: changing
    gpus:
      description: GPUs with the journal of the run.
      type: list
      elements: str
    vms:
      description: VMs with the journal of the run.
      type: list
      elements: str
finished:
  description: Interrupted runs of the same request that this task finished.
  returned: success
  type: list
  elements: str
  sample: []
undone:
  description: Runs of another request that this task undid.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.harvester.reprofile.run import Reprofile, ReprofileRequest
from ..module_utils.harvester.time_limit import TimeLimit
from ..module_utils.kube import connection as access
from ..module_utils.kube.client import ApiClient
from ..module_utils.kube.options import connection_spec, fail_fast_spec
from ..module_utils.module import finish, reporting_errors

# A step also stops and starts VMs.
BASE_SECONDS = 600.0


def argument_spec() -> dict[str, dict[str, object]]:
    profile = {"type": "str", "required": True}
    vgpu = {"profile": profile, "count": {"type": "int", "default": 1}}
    vm = {
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "default"},
        "vgpus": {"type": "list", "elements": "dict", "options": vgpu},
    }
    per_gpu = {"profile": profile, "count": {"type": "int", "required": True}}
    return {
        **connection_spec(),
        "layout": {"type": "list", "elements": "dict", "required": True, "options": per_gpu},
        "gpus": {"type": "list", "elements": "str"},
        "nodes": {"type": "list", "elements": "str"},
        "vms": {"type": "list", "elements": "dict", "options": vm},
        "vm_labels": {"type": "dict"},
        "serial": {"type": "int", "default": 1},
        "take_over": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int"},
        **fail_fast_spec(),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), required_one_of=[("gpus", "nodes")], supports_check_mode=True)
    params = module.params
    with reporting_errors(module):
        request = ReprofileRequest.of(params)
        run = Reprofile(
            ApiClient(access.from_options(params), fail_fast=params["fail_fast"]),
            params["harvester_version"],
            request,
            limit=TimeLimit.of(params["wait_timeout"], BASE_SECONDS),
            take_over=params["take_over"],
        )
        result = run.run(check_mode=module.check_mode)
        finish(module, result)


if __name__ == "__main__":
    main()
