#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vgpu_availability
short_description: Report free vGPUs and check whether a demand fits
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Counts vGPUs by profile and node. Reports how many are allocatable, in use by running VMs, claimed by stopped VMs,
    free and creatable.
  - Checks whether machines fit on the free vGPUs. Each machine needs all its vGPUs on one node. All demands are placed
    together, so the result holds for all of them at once.
  - The allocatable number of a node does not decrease when a VM takes a vGPU, so it does not show how many are free.
  - Nodes that are cordoned or not ready do not count, and neither do hosts that are disconnected or in maintenance
    mode.
  - On vSphere, a vGPU exists only while its VM runs, so the free vGPUs are those that still fit on the GPUs. They are
    counted for each profile alone, because profiles share the room. VMs on hosts without GPUs are ignored.
  - The module does not change anything. It sends a constant number of requests, independent of the number of devices,
    and on vSphere one more for each kind of GPU host.
options:
  platform:
    description:
      - Platform to query.
    type: str
    choices: [harvester, vsphere]
    default: harvester
  nodes:
    description:
      - Names of nodes, or shell patterns. Defaults to all nodes.
      - On vSphere, names of hosts, as in O(esxi_hosts).
      - An empty list selects no node.
    type: list
    elements: str
  username:
    description:
      - User name for vCenter on vSphere, otherwise for HTTP basic authentication.
      - Can also be set with the environment variable E(VMWARE_USER) or E(K8S_AUTH_USERNAME).
    type: str
    aliases: [user, admin]
  password:
    description:
      - Password of the user.
      - Can also be set with the environment variable E(VMWARE_PASSWORD) or E(K8S_AUTH_PASSWORD).
    type: str
    aliases: [pass, pwd]
  validate_certs:
    description:
      - Whether to verify the server's certificate. Defaults to V(true).
      - Can also be set with the environment variable E(VMWARE_VALIDATE_CERTS) or E(K8S_AUTH_VERIFY_SSL).
    type: bool
    default: null
    aliases: [verify_ssl]
  demand:
    description:
      - Machines that must fit, all of them together.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - Name of the demand in results and messages, such as the name of a machine pool.
        type: str
        required: true
      machines:
        description:
          - Number of machines.
        type: int
        required: true
      vgpus:
        description:
          - The vGPUs of each machine.
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
              - Number of vGPUs of the profile.
            type: int
            default: 1
      surge:
        description:
          - Number of additional machines during a rollout. Rancher's machine pools default to a surge of 1.
        type: int
        default: 0
      owner:
        description:
          - Label selector for VMs that already belong to the demand, such as V(harvesterhci.io/machineSetName=gpu).
          - Selected VMs with the requested vGPUs count as machines of the demand and stay where they are. The vGPUs of
            the other selected VMs count as free, because the demand replaces these VMs.
          - On vSphere, the labels of a VM are C(name), C(moid), C(host), C(cluster) and C(datacenter).
        type: str
      vms:
        description:
          - Names of VMs that already belong to the demand, on Harvester with the namespace, such as V(default/trainer).
            They count like VMs that O(demand[].owner) selects.
        type: list
        elements: str
  require:
    description:
      - Whether the task fails if the demand does not fit. The error contains the reasons and suggestions.
    type: bool
    default: true
  wait_timeout:
    description:
      - Maximum time to wait for GPUs that are still changing before the task refuses a demand that does not fit, in
        seconds. With V(0), the task refuses it immediately. A demand that fits never waits.
      - The module does not wait for a GPU that is stuck. The error names the GPU.
      - Only on Harvester, and not in check mode, where the error says that the result is not final.
    type: int
    default: 60
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.vsphere
  - vgpu.fleet.vsphere.hosts
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: The module does not change anything.
  diff_mode:
    support: none
    details: The module does not change anything.
  platform:
    platforms: posix
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.harvester_vgpu_vm
  - module: vgpu.fleet.vsphere_gpu_info
"""

EXAMPLES = r"""
- name: Count free and creatable vGPUs
  vgpu.fleet.vgpu_availability:
  register: available

- name: Show the counts
  ansible.builtin.debug:
    msg: "{{ item.profile }}: {{ item.free }} free, {{ item.creatable }} more could be made"
  loop: "{{ available.profiles }}"
  loop_control:
    label: "{{ item.profile }}"

- name: Check that a pool of three machines fits, also during a rollout
  vgpu.fleet.vgpu_availability:
    demand:
      - name: gpu-pool
        machines: 3
        vgpus:
          - profile: A2-4Q
        surge: 1
        owner: pool=gpu

- name: Check two pools together without failing
  vgpu.fleet.vgpu_availability:
    nodes: ["gpu-*"]
    demand:
      - name: training
        machines: 2
        vgpus:
          - profile: NVIDIA A2-4Q
            count: 2
      - name: desktops
        machines: 4
        vgpus:
          - profile: nvidia.com/NVIDIA_A2-4Q
    require: false
  register: fitting

- name: Check that three machines with two vGPUs each fit on a vSphere cluster
  vgpu.fleet.vgpu_availability:
    platform: vsphere
    cluster: gpu
    demand:
      - name: workers
        machines: 3
        vgpus:
          - profile: A40-8Q
            count: 2
"""

RETURN = r"""
profiles:
  description:
    - All existing and creatable profiles, sorted by name, with their counts on all usable nodes.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: The profile as the platform spells it.
      type: str
      sample: NVIDIA A2-2Q
    spellings:
      description: All spellings of the profile.
      type: dict
      contains:
        type:
          description: The profile as the platform spells it.
          type: str
          sample: NVIDIA A2-2Q
        short:
          description: The profile without the brand.
          type: str
          sample: A2-2Q
        resource:
          description: The resource name that a node advertises.
          type: str
          sample: nvidia.com/NVIDIA_A2-2Q
        vsphere:
          description: The name of the profile on vSphere.
          type: str
          sample: nvidia_a2-2q
    permitted:
      description:
        - Whether KubeVirt permits VMs to use existing vGPUs of the profile. If V(false), none of them is free, because
          no VM can start with them. See O(ignore:permitted_devices) of M(vgpu.fleet.harvester_repair).
        - Null if this is unknown, because KubeVirt's configuration cannot be read. Only on Harvester.
      type: bool
      sample: true
    allocatable:
      description: Number of allocatable vGPUs, in use or not. On vSphere, those in use plus those free now.
      type: int
      sample: 4
    configured:
      description: Number of vGPU devices with the profile. On vSphere, the number of vGPUs in use.
      type: int
      sample: 4
    in_use:
      description: Number of vGPUs that running VMs have.
      type: int
      sample: 1
    claimed:
      description: Number of vGPUs for VMs that are stopped, wait for a node, or get more at their next restart.
      type: int
      sample: 1
    free_now:
      description: Number of allocatable vGPUs that no running VM has.
      type: int
      sample: 3
    free:
      description: Number of allocatable vGPUs that are neither in use nor claimed.
      type: int
      sample: 2
    creatable:
      description:
        - How many more vGPUs of the profile fit on empty slots, within the limits of each GPU. The number holds for
          each profile alone, because profiles share the slots.
        - Always 0 on vSphere, where vGPUs are not created in advance.
      type: int
      sample: 4
    drift:
      description: Number of vGPUs that are configured but not allocatable; negative in the opposite case.
      type: int
      sample: 0
    free_now_at_most:
      description:
        - The largest number that RV(profiles[].free_now) may have. On mixed-size GPUs, RV(profiles[].free_now) counts
          the vGPUs that fit in any case; more may fit, depending on the places of the present vGPUs, which only the
          driver knows.
        - Only on vSphere.
      type: int
      sample: 3
    exact:
      description:
        - Whether the counts are certain. V(false) if vSphere does not report the GPU of a vGPU, or if the count depends
          on the places of the present vGPUs on a mixed-size GPU.
        - Only on vSphere.
      type: bool
      sample: true
    clusters:
      description:
        - The same counts for each cluster, with RV(ignore:cluster), RV(ignore:datacenter) and RV(ignore:exact). Only
          on vSphere.
        - Clusters with the same name in two datacenters have separate records.
      type: list
      elements: dict
      sample: []
    nodes:
      description: The same counts for each node. RV(profiles[].nodes[].free) is 0 on nodes that are not usable.
      type: list
      elements: dict
      contains:
        node:
          description: The node.
          type: str
          sample: gpu-a
        usable:
          description: Whether the node counts.
          type: bool
          sample: true
        allocatable:
          description: As above.
          type: int
          sample: 4
        configured:
          description: As above.
          type: int
          sample: 4
        in_use:
          description: As above.
          type: int
          sample: 1
        claimed:
          description: As above, without VMs that are bound to no node.
          type: int
          sample: 1
        free_now:
          description: As above.
          type: int
          sample: 3
        free:
          description: As above, without VMs that are bound to no node.
          type: int
          sample: 2
        creatable:
          description: As above.
          type: int
          sample: 4
        drift:
          description: As above.
          type: int
          sample: 0
        free_now_at_most:
          description: As above.
          type: int
          sample: 3
        exact:
          description: As above.
          type: bool
          sample: true
        gpus:
          description:
            - The counts of each GPU of the host that has or supports the profile. If RV(ignore:free_now) is 0,
              RV(ignore:reason) contains the reason. Only on vSphere.
          type: list
          elements: dict
          sample:
            - exact: true
              free: 0
              free_now: 0
              free_now_at_most: 0
              gpu: esx1-00003b000
              in_use: 0
              reason: "all vGPUs of a GPU have the same size, and it has 1 x nvidia_a40-8q, held by VM trainer"
devices:
  description: All vGPU devices with a profile, sorted by node and address.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The device.
      type: str
      sample: gpu-a-000008004
    node:
      description: Node of the device.
      type: str
      sample: gpu-a
    profile:
      description: Profile of the device.
      type: str
      sample: NVIDIA A2-2Q
    state:
      description: V(allocatable) if the node offers the vGPU to VMs, V(configured) if it does not (yet).
      type: str
      sample: allocatable
    holders:
      description: The VMs that have the vGPU or will take it.
      type: list
      elements: str
      sample: [default/trainer]
    label:
      description: Text for a selection list. The number is the allocatable count of the profile on the usable nodes.
      type: str
      sample: "NVIDIA_A2-2Q (profile: gpu-a-000008004 - allocatable: 4)"
nodes:
  description: The selected nodes, sorted by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
      sample: gpu-a
    usable:
      description: Whether the node counts.
      type: bool
      sample: true
    reason:
      description: Why the node does not count. Empty if it counts.
      type: str
      sample: ""
device_groups:
  description:
    - The vendor device groups of the hosts, such as GPUs that NVLink connects, sorted by name. The vGPUs of groups that
      VMs have are part of the other counts.
  returned: on vSphere
  type: list
  elements: dict
  contains:
    name:
      description: Name of the group.
      type: str
      sample: Nvidia:2@nvidia_a40-48q%NVLink
    in_use:
      description: Number of groups of running VMs.
      type: int
      sample: 1
    claimed:
      description: Number of groups of stopped VMs.
      type: int
      sample: 0
    free_now:
      description: Number of free groups as reported by vCenter 9.0 and later. Otherwise null.
      type: int
      sample: null
    free_now_at_most:
      description:
        - Upper limit of C(free_now). Before vCenter 9.0, how often the vGPUs of the group fit, since hosts do not
          report how their devices are connected. Null for groups without vGPUs.
      type: int
      sample: 1
    nodes:
      description: The same counts for each usable host that offers the group.
      type: list
      elements: dict
      sample: [{free_now: null, free_now_at_most: 1, in_use: 1, node: esx1}]
fits:
  description: Whether all demands fit.
  returned: success
  type: bool
  sample: true
exhaustive:
  description: Whether all placements were considered. V(false) if the search reached its limit and found none.
  returned: success
  type: bool
  sample: true
demand:
  description: The result for each demand, in the order of O(demand).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name of the demand.
      type: str
      sample: gpu-pool
    machines:
      description: As requested.
      type: int
      sample: 3
    surge:
      description: As requested.
      type: int
      sample: 1
    vgpus:
      description: As requested, with the type names of the profiles.
      type: list
      elements: dict
      sample: [{profile: NVIDIA A2-4Q, count: 1}]
    existing:
      description: Existing VMs that count as machines of the demand.
      type: list
      elements: str
      sample: [default/gpu-1]
    placed:
      description: Number of additional machines that fit.
      type: int
      sample: 3
    missing:
      description: Number of additional machines that do not fit.
      type: int
      sample: 0
    fits:
      description: Whether the demand fits.
      type: bool
      sample: true
    nodes:
      description: A possible placement of the additional machines.
      type: list
      elements: dict
      sample: [{node: gpu-a, machines: 3}]
    reasons:
      description: Why the demand does not fit.
      type: list
      elements: str
      sample: []
suggestions:
  description: Suggested changes. Each of them alone makes all demands fit.
  returned: success
  type: list
  elements: str
  sample: []
not_tried:
  description:
    - Changes that were not tried one by one, because only a limited number is tried. They may make all demands fit.
    - If this list and RV(suggestions) are empty and the demand does not fit, no single change makes it fit.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.availability.counts import Availability, select_nodes
from ..module_utils.availability.fit import FitCheck
from ..module_utils.availability.request import read_demand
from ..module_utils.harvester.availability import NodeCapacity
from ..module_utils.harvester.cluster import Cluster
from ..module_utils.harvester.result.records import spellings
from ..module_utils.harvester.settled_plan import plan_when_settled
from ..module_utils.module import ReadResult, finish, reporting_errors
from ..module_utils.platform_options import PLATFORMS, connection_options, connection_spec
from ..module_utils.vsphere.options import hosts_of, hosts_spec


def argument_spec() -> dict[str, dict[str, object]]:
    vgpu = {"profile": {"type": "str", "required": True}, "count": {"type": "int", "default": 1}}
    demand = {
        "name": {"type": "str", "required": True},
        "machines": {"type": "int", "required": True},
        "vgpus": {"type": "list", "elements": "dict", "required": True, "options": vgpu},
        "surge": {"type": "int", "default": 0},
        "owner": {"type": "str"},
        "vms": {"type": "list", "elements": "str"},
    }
    return {
        **connection_spec(),
        **hosts_spec(),
        "platform": {"type": "str", "choices": list(PLATFORMS), "default": "harvester"},
        "nodes": {"type": "list", "elements": "str"},
        "demand": {"type": "list", "elements": "dict", "default": [], "options": demand},
        "require": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int", "default": 60},
    }


def check_harvester(params: dict[str, Any], *, check_mode: bool) -> ReadResult:
    def gpus(cluster: Cluster) -> list[str]:
        nodes = select_nodes(cluster.snapshot.fleet, params["nodes"])
        return [gpu.name for gpu in cluster.snapshot.fleet.gpus if gpu.node in nodes]

    def check(cluster: Cluster) -> tuple[Availability, FitCheck]:
        fleet = cluster.snapshot.fleet
        counts = Availability(fleet, select_nodes(fleet, params["nodes"]))
        fit = FitCheck(NodeCapacity(counts), read_demand(params["demand"], cluster.snapshot.known))
        if params["require"]:
            fit.require()
        return counts, fit

    planned = plan_when_settled(
        Cluster.connect(params),
        check,
        concerned=gpus,
        check_mode=check_mode,
        seconds=params["wait_timeout"],
        # Read again rather than watch: a read-only user may not be allowed to watch.
        watch=False,
        until_counted=True,
    )
    cluster, (counts, fit) = planned.cluster, planned.plan
    records = {
        "profiles": counts.profile_records(lambda profile: spellings(profile, cluster.version)),
        "devices": counts.device_records(lambda profile: spellings(profile, cluster.version)),
        "nodes": counts.node_records(),
        **fit.as_result(),
    }
    return ReadResult(records, (*cluster.version.warnings, *counts.drifts()))


def check_vsphere(params: dict[str, Any], *, check_mode: bool) -> ReadResult:
    # Import here, because tasks for Harvester do not need these modules.
    from ..module_utils.vsphere.availability import HostsCapacity
    from ..module_utils.vsphere.counts import VsphereAvailability
    from ..module_utils.vsphere.read.direct_path import remaining, remaining_groups
    from ..module_utils.vsphere.read.fleet import read
    from ..module_utils.vsphere.session import Session

    # Both options select hosts.
    named = [hosts for hosts in (params["esxi_hosts"], params["nodes"]) if hosts is not None]
    chosen = {**hosts_of(params), "esxi_hosts": [host for hosts in named for host in hosts] if named else None}
    with Session.open(params) as session:
        snapshot = read(session, **chosen)
        hosts = snapshot.inventory.gpu_hosts
        reported = remaining(session, hosts)
        offered = {host.name: [group.name for group in host.device_groups] for host in hosts}
        free_groups = remaining_groups(session, hosts, offered)
    counts = VsphereAvailability(snapshot, reported=reported, reported_groups=free_groups)
    fit = FitCheck(HostsCapacity(counts), read_demand(params["demand"], snapshot.known))
    if params["require"]:
        fit.require()
    return ReadResult(
        {
            "profiles": counts.profile_records(),
            "devices": counts.device_records(),
            "nodes": counts.node_records(),
            "device_groups": counts.group_records(),
            **fit.as_result(),
        },
        tuple(counts.differences()),
    )


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    with reporting_errors(module):
        params = dict(connection_options(module, module.params["platform"]))
        check = check_vsphere if params["platform"] == "vsphere" else check_harvester
        finish(module, check(params, check_mode=module.check_mode))


if __name__ == "__main__":
    main()
