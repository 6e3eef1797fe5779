#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_gpu_info
short_description: Gather information about GPUs and vGPUs of a Harvester cluster
version_added: 0.1.0
description:
  - Reads nodes, GPUs, vGPUs and the VMs that hold them, with a constant number of requests.
  - Also reports inconsistencies between specification, status, claim and node of a vGPU, which Harvester does not show.
options:
  nodes:
    description:
      - Names of the nodes to return, or shell patterns.
      - A name or pattern that matches no node is ignored.
    type: list
    elements: str
  gpus:
    description:
      - Names of the GPUs to return, or shell patterns. Only nodes with a matching GPU are returned.
    type: list
    elements: str
  profiles:
    description:
      - vGPU profiles, in any spelling. Only GPUs that have one of them, or can be given one now, are returned.
    type: list
    elements: str
  detail:
    description:
      - V(summary) counts the vGPUs of each GPU by profile. The result stays small enough for job events of large
        clusters.
      - V(full) lists every vGPU device with its profiles, owner and VMs. The filters and modules of this collection
        that take the result of this module require it.
    type: str
    choices: [summary, full]
    default: summary
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
  - module: vgpu.fleet.harvester_sriov_gpu
  - module: vgpu.fleet.harvester_vgpu
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Read all GPUs of the cluster
  vgpu.fleet.harvester_gpu_info:
  register: fleet

- name: Show the GPUs with their vGPUs
  ansible.builtin.debug:
    msg: "{{ item.name }} ({{ item.board or item.possible_boards | join(' or ') }}): {{ item.vgpus or 'no vGPUs' }}"
  loop: "{{ fleet.nodes | map(attribute='gpus') | flatten }}"
  loop_control:
    label: "{{ item.name }}"

- name: Read every vGPU device
  vgpu.fleet.harvester_gpu_info:
    detail: full
  register: devices

- name: Show the VMs that hold vGPUs
  ansible.builtin.debug:
    msg: "{{ devices.vgpus | map(attribute='holders') | flatten | map(attribute='name') | unique }}"

- name: Read the GPUs of two nodes that have an A2-4Q or can be given one
  vgpu.fleet.harvester_gpu_info:
    nodes: [gpu-a, gpu-b]
    profiles: [A2-4Q]
  register: candidates

- name: Check that there are no findings
  ansible.builtin.assert:
    that: candidates.findings | length == 0
    fail_msg: "{{ candidates.findings | map(attribute='text') | join(' ') }}"
"""

RETURN = r"""
nodes:
  description: The nodes, ordered by name, each with its GPUs.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the node.
      type: str
      sample: gpu-a
    ready:
      description: Whether the node is ready.
      type: bool
      sample: true
    schedulable:
      description: Whether the node is schedulable, that is, not cordoned.
      type: bool
      sample: true
    reserved_for_containers:
      description:
        - Whether the label C(harvesterhci.io/gpu-baremetal-workloads) reserves the GPUs of the node for containers, so
          that they serve no VMs and have no vGPU devices. Harvester ignores the label before 1.9.
      type: bool
      sample: false
    labels:
      description: Labels of the node.
      returned: with O(detail=full)
      type: dict
      sample: {kubernetes.io/hostname: gpu-a}
    advertised:
      description: Number of allocatable vGPUs of each profile, whether or not a VM has them.
      type: dict
      sample: {NVIDIA A2-4Q: 4}
    gpus:
      description: >-
        The GPUs of the node by address, as returned by M(vgpu.fleet.harvester_sriov_gpu) with the same O(detail).
      type: list
      elements: dict
vgpus:
  description: The enabled vGPUs, ordered by node and address.
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
    node:
      description: The node of the vGPU.
      type: str
      sample: gpu-a
    gpu:
      description: The GPU of the vGPU.
      type: str
      sample: gpu-a-000008000
    profile:
      description: The profile of the vGPU.
      type: str
      sample: NVIDIA A2-4Q
    requested:
      description: The requested profile.
      type: str
      sample: NVIDIA A2-4Q
    state:
      description: V(requested), V(configured), or V(allocatable) once the node offers the vGPU to VMs.
      type: str
      sample: allocatable
    drifted:
      description: Whether the profile differs from the requested one.
      type: bool
      sample: false
    hardware:
      description: The profile that the device reports, if its node offers the device as another one; otherwise null.
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
      sample: [{kind: VM, labels: {}, name: worker-1, namespace: default, running: true}]
    available_profiles:
      description: The profiles that the slot can be given now.
      type: list
      elements: str
      sample: []
profiles:
  description: The profiles of the enabled vGPUs, each in all spellings and with the number of vGPUs.
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
    total:
      description: Number of enabled vGPUs.
      type: int
      sample: 4
    in_use:
      description: Number of vGPUs that VMs have or refer to.
      type: int
      sample: 1
claims:
  description: vGPUs that VMs request by profile, while it is unknown which devices the VMs have or will get.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: The profile.
      type: str
      sample: NVIDIA A2-4Q
    count:
      description: Number of vGPUs.
      type: int
      sample: 1
    node:
      description: The node of the VM, if it runs.
      type: str
      sample: gpu-a
    pending:
      description: Whether the VM was edited, runs without these vGPUs, and takes them at its next start.
      type: bool
      sample: false
    protective:
      description: >-
        Whether these vGPUs replace devices that the VM refers to, because another VM may have those. They are not
        additional vGPUs.
      type: bool
      sample: false
    holder:
      description: The VM.
      type: dict
      sample: {kind: VM, labels: {}, name: worker-1, namespace: default, running: false}
findings:
  description: Inconsistencies between specification, status, claim and node, and other conditions that cause problems.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description:
        - The kind of the finding.
        - V(type_differs) is a vGPU whose profile, or the one its node offers it as, differs from the requested profile.
          O(ignore:reprofile=true) of M(vgpu.fleet.harvester_vgpu) repairs it.
        - V(not_configured) and V(not_removed) are vGPUs that were enabled or disabled without any effect so far.
        - V(not_allocatable) is a vGPU that is configured, but that its node does not offer.
        - V(unrequested) is a vGPU with a profile that its specification does not request. The next reboot removes it.
        - V(not_permitted) is a type of existing vGPUs that KubeVirt's list of permitted devices lacks, so that no VM
          can start with it. V(permitted_twice) is a type with repeated entries in such a list. Repeated entries in a
          list that is complete do no harm, and are not a finding.
          O(ignore:permitted_devices=true) of M(vgpu.fleet.harvester_repair) repairs both.
        - V(claim_left_behind) is a vGPU that is disabled, but that its node still offers. O(ignore:claims) of
          M(vgpu.fleet.harvester_repair) repairs it. V(claim_without_device) is a claim whose vGPU device does not
          exist. Enable SR-IOV on its GPU to repair it.
        - V(reserved_node) is a node that is reserved for containers and still has GPU devices, which Harvester removes.
        - V(missing_label) is a device without its node label, which stops the scan of the node.
        - V(invalid_annotation) is a VM whose allocation annotation cannot be parsed, which stops the controllers of all
          nodes.
        - V(stale_annotation) is a stopped VM whose allocation annotation names vGPUs that the VM does not request.
        - V(restart_required) is a VM that runs with other vGPUs than its specification requests, until it is restarted.
        - V(two_displays) is a VM with several vGPUs that have a boot display, which does not start.
        - V(no_functions) is a GPU without virtual functions although SR-IOV is enabled.
        - V(mig_out_of_sync) is a GPU whose MIG instances could not all be created, V(mig_differs) a GPU whose instances
          differ from its MIG configuration. M(vgpu.fleet.harvester_mig) repairs both.
        - V(mig_unstable) is a MIG-capable GPU that offers time-sliced profiles while Harvester keeps trying to put it
          into MIG mode. When an attempt succeeds, these profiles are gone. The modules plan nothing new on it. On
          Harvester 1.9 and later, O(ignore:mode=time_sliced) of M(vgpu.fleet.harvester_mig) ends the attempts.
        - V(mig_serves_nothing) is a GPU with MIG instances that serve no vGPU, such as V(1g.24gb) instead of
          V(1g.24gb+gfx). O(ignore:relayout=true) of M(vgpu.fleet.harvester_mig) replaces them.
      type: str
      sample: type_differs
    device:
      description: The device, VM or node that the finding is about.
      type: str
      sample: gpu-a-000008004
    text:
      description: A description of the problem.
      type: str
      sample: vGPU gpu-a-000008004 is NVIDIA A2-4Q, but NVIDIA A2-4C is requested. It changes at the next reboot.
harvester:
  description: The Harvester version that determines the behavior of the modules.
  returned: success
  type: dict
  contains:
    version:
      description: The release line.
      type: str
      sample: "1.8"
    vfio_framework:
      description: How the host driver provides vGPUs. V(mdev) up to 1.7, V(vendor_vfio) from 1.8 on.
      type: str
      sample: vendor_vfio
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.harvester.cluster import Cluster
from ..module_utils.harvester.paths import SYSTEM_NAMESPACE
from ..module_utils.harvester.result.findings import findings
from ..module_utils.harvester.result.records import filtered, profile_records, vgpu_records
from ..module_utils.harvester.result.summaries import DETAIL_OPTION, FULL, node_summary
from ..module_utils.kube.options import connection_spec
from ..module_utils.module import ReadResult, finish, reporting_errors

PERMITS_UNKNOWN = (
    "KubeVirt's list of permitted devices cannot be read, so the findings do not cover it. Grant the right to list"
    f" kubevirts in namespace {SYSTEM_NAMESPACE}."
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **connection_spec(),
            "nodes": {"type": "list", "elements": "str"},
            "gpus": {"type": "list", "elements": "str"},
            "profiles": {"type": "list", "elements": "str"},
            **DETAIL_OPTION,
        },
        supports_check_mode=True,
    )
    with reporting_errors(module):
        finish(module, read_fleet(Cluster.connect(module.params), module.params))


def read_fleet(cluster: Cluster, params: dict[str, Any]) -> ReadResult:
    """Return the records of the selected part of the fleet."""
    profiles = params["profiles"]
    if profiles is not None:
        profiles = [cluster.snapshot.known.resolve(profile) for profile in profiles]
    fleet = filtered(cluster.snapshot.fleet, nodes=params["nodes"], gpus=params["gpus"], profiles=profiles)
    vgpus = vgpu_records(fleet)
    if params["detail"] == FULL:
        records = {**fleet.as_dict(), "vgpus": vgpus}
    else:
        records = {**fleet.as_dict(), "nodes": [node_summary(node) for node in fleet.ordered_nodes]}
    return ReadResult(
        {
            **records,
            "profiles": profile_records(vgpus, cluster.version),
            "findings": [finding.as_dict() for finding in findings(cluster.snapshot, fleet)],
            "harvester": {"version": str(cluster.version), "vfio_framework": cluster.version.vfio_framework},
        },
        (*cluster.version.warnings, *(() if cluster.snapshot.kubevirts is not None else (PERMITS_UNKNOWN,))),
    )


if __name__ == "__main__":
    main()
