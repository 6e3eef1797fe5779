#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vgpu_availability
short_description: What vGPUs are free, and whether machines fit in
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Counts vGPUs by profile and node, as the cluster offers them, as running VMs use them and as stopped VMs claim
    them, and tells what is left and what could still be made.
  - Places machines in what is left. Each machine needs all its vGPUs on one node, and all demands are placed
    together, so an answer holds for all of them at once.
  - The number that a node calls allocatable does not go down when a VM takes a vGPU, so it alone says nothing about
    what is free.
  - Nodes that are not ready or are cordoned do not count, nor do hosts that are not connected or in maintenance mode.
  - On vSphere a vGPU exists while its VM runs, so what is free is room on GPUs. It is counted for each profile alone,
    since profiles share it. VMs on hosts without GPUs are not looked at.
  - The module changes nothing. It takes a constant number of requests, however many devices there are; on vSphere one
    more for each sort of GPU hosts.
options:
  platform:
    description:
      - The kind of system that is asked.
    type: str
    choices: [harvester, vsphere]
    default: harvester
  nodes:
    description:
      - The nodes to look at, by name or shell pattern. Without it, all of them.
      - On vSphere these are hosts, as in O(esxi_hosts).
      - An empty list selects no node at all.
    type: list
    elements: str
  username:
    description:
      - On vSphere the user of vCenter, otherwise a user for HTTP basic authentication.
      - Can also be given in the environment variable E(VMWARE_USER), or E(K8S_AUTH_USERNAME).
    type: str
    aliases: [user, admin]
  password:
    description:
      - The password of the user.
      - Can also be given in the environment variable E(VMWARE_PASSWORD), or E(K8S_AUTH_PASSWORD).
    type: str
    aliases: [pass, pwd]
  validate_certs:
    description:
      - Whether the certificate of the server is verified, which it is unless something says otherwise.
      - Can also be given in the environment variable E(VMWARE_VALIDATE_CERTS), or E(K8S_AUTH_VERIFY_SSL).
    type: bool
    default: null
    aliases: [verify_ssl]
  demand:
    description:
      - Machines that have to fit, all of them together.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - What to call the demand in answers, such as the name of a machine pool.
        type: str
        required: true
      machines:
        description:
          - How many machines there shall be.
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
              - How many of it.
            type: int
            default: 1
      surge:
        description:
          - How many machines there are in addition while machines are being replaced. Rancher's machine pools start
            with a surge of 1.
        type: int
        default: 0
      owner:
        description:
          - A label selector for VMs that belong to the demand already, such as V(harvesterhci.io/machineSetName=gpu).
          - Those with the vGPUs that are asked for count as machines of the demand and stay where they are. What the
            others hold counts as free, since the demand replaces them.
          - On vSphere the labels of a VM are C(name), C(moid), C(host), C(cluster) and C(datacenter).
        type: str
      vms:
        description:
          - VMs that belong to the demand already, by name; on Harvester as namespace and name, such as
            V(default/trainer). They count like those that O(demand[].owner) selects.
        type: list
        elements: str
  require:
    description:
      - Whether the task fails when the demand does not fit. The error says why not and what would help.
    type: bool
    default: true
  wait_timeout:
    description:
      - How many seconds to wait for GPUs that are still changing before a demand that does not fit is refused. With
        V(0) it is refused at once. A demand that fits never waits.
      - A GPU that has stopped changing halfway is not waited for. The error names it.
      - Only on Harvester, and not in check mode, where the error says that the answer is not final.
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
    details: The module changes nothing.
  diff_mode:
    support: none
    details: The module changes nothing.
  platform:
    platforms: posix
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.harvester_vgpu_vm
  - module: vgpu.fleet.vsphere_gpu_info
"""

EXAMPLES = r"""
- name: What is free, and what could be made, is known
  vgpu.fleet.vgpu_availability:
  register: available

- name: It is shown
  ansible.builtin.debug:
    msg: "{{ item.profile }}: {{ item.free }} free, {{ item.creatable }} more could be made"
  loop: "{{ available.profiles }}"
  loop_control:
    label: "{{ item.profile }}"

- name: A pool of three machines fits, also while it is being replaced
  vgpu.fleet.vgpu_availability:
    demand:
      - name: gpu-pool
        machines: 3
        vgpus:
          - profile: A2-4Q
        surge: 1
        owner: pool=gpu

- name: Two pools are looked at together, and nothing fails
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

- name: Three machines with two vGPUs each fit into a cluster of vSphere
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
    - All profiles that are there or could be made, sorted by name, with their counts on all usable nodes.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: The profile as the system calls it.
      type: str
      sample: NVIDIA A2-2Q
    spellings:
      description: All its spellings.
      type: dict
      contains:
        type:
          description: As the system calls it.
          type: str
          sample: NVIDIA A2-2Q
        short:
          description: Without the brand.
          type: str
          sample: A2-2Q
        resource:
          description: The resource that a node advertises for it.
          type: str
          sample: nvidia.com/NVIDIA_A2-2Q
        vsphere:
          description: The name that vSphere has for it.
          type: str
          sample: nvidia_a2-2q
    allocatable:
      description: How many the nodes offer, whether used or not. On vSphere, what is in use and what is free now.
      type: int
      sample: 4
    configured:
      description: How many vGPU devices have the profile. On vSphere, what is in use.
      type: int
      sample: 4
    in_use:
      description: How many running VMs have.
      type: int
      sample: 1
    claimed:
      description: How many VMs will take that are stopped, wait for a node, or get more when they are restarted.
      type: int
      sample: 1
    free_now:
      description: How many no running VM has.
      type: int
      sample: 3
    free:
      description: How many are left when stopped VMs have got theirs too.
      type: int
      sample: 2
    creatable:
      description:
        - How many more could be made on unconfigured slots, with what a GPU takes respected. This holds for each
          profile alone, since they share the slots.
        - On vSphere always 0, since nothing has to be made beforehand.
      type: int
      sample: 4
    drift:
      description: How many are configured and not offered; negative for the other way round.
      type: int
      sample: 0
    exact:
      description:
        - Whether the counts are certain. They are not where vSphere does not tell on which GPU a vGPU is, and where
          only the driver knows what fits, as with mixed sizes.
        - Only on vSphere.
      type: bool
      sample: true
    clusters:
      description:
        - The same counts for each cluster, with RV(ignore:cluster), RV(ignore:datacenter) and RV(ignore:exact). Only
          on vSphere.
        - Clusters of one name in two datacenters are two records.
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
          description: Whether it counts.
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
        exact:
          description: As above.
          type: bool
          sample: true
        gpus:
          description:
            - The counts of each GPU of the host that has to do with the profile. Where RV(ignore:free_now) is 0,
              RV(ignore:reason) says why. Only on vSphere.
          type: list
          elements: dict
          sample:
            - exact: true
              free: 0
              free_now: 0
              gpu: esx1-00003b000
              in_use: 0
              reason: "all vGPUs of a GPU have the same size, and it has 1 x nvidia_a40-8q, held by VM trainer"
devices:
  description: All vGPU devices that have a profile, sorted by node and address.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The device.
      type: str
      sample: gpu-a-000008004
    node:
      description: Its node.
      type: str
      sample: gpu-a
    profile:
      description: Its profile.
      type: str
      sample: NVIDIA A2-2Q
    state:
      description: V(allocatable) when VMs can have it, V(configured) when the node does not offer it (yet).
      type: str
      sample: allocatable
    holders:
      description: The VMs that have it, or would take it.
      type: list
      elements: str
      sample: [default/trainer]
    label:
      description: One line for people to choose from; the number is how many of the profile the usable nodes offer.
      type: str
      sample: "NVIDIA_A2-2Q (profile: gpu-a-000008004 - allocatable: 4)"
nodes:
  description: The nodes looked at, sorted by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
      sample: gpu-a
    usable:
      description: Whether it counts.
      type: bool
      sample: true
    reason:
      description: Why it does not, else empty.
      type: str
      sample: ""
fits:
  description: Whether all of the demand fits.
  returned: success
  type: bool
  sample: true
exhaustive:
  description: Whether all placements were considered. V(false) if the search reached its limit and found none.
  returned: success
  type: bool
  sample: true
demand:
  description: The answer to each demand, in the order in which they were given.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name of the demand.
      type: str
      sample: gpu-pool
    machines:
      description: As asked.
      type: int
      sample: 3
    surge:
      description: As asked.
      type: int
      sample: 1
    vgpus:
      description: As asked, with the system's own names.
      type: list
      elements: dict
      sample: [{profile: NVIDIA A2-4Q, count: 1}]
    existing:
      description: VMs of the owner that are machines of the demand already.
      type: list
      elements: str
      sample: [default/gpu-1]
    placed:
      description: How many further machines fit.
      type: int
      sample: 3
    missing:
      description: How many do not.
      type: int
      sample: 0
    fits:
      description: Whether all of it fits.
      type: bool
      sample: true
    nodes:
      description: One way to place the further machines.
      type: list
      elements: dict
      sample: [{node: gpu-a, machines: 3}]
    reasons:
      description: Why it does not fit.
      type: list
      elements: str
      sample: []
suggestions:
  description: Changes that would help. Each of them alone makes all demands fit.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import Availability, select_nodes
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.fit import FitCheck
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.request import read_demand
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.availability import NodeCapacity
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.records import spellings
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.settled_plan import plan_when_settled
from ansible_collections.vgpu.fleet.plugins.module_utils.module import ReadResult, finish, reporting_errors
from ansible_collections.vgpu.fleet.plugins.module_utils.platform_options import (
    PLATFORMS,
    connection_options,
    connection_spec,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.options import hosts_of, hosts_spec


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
        # Read again rather than watch: a user who only reads may not be allowed to watch.
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
    return ReadResult(records, tuple(counts.drifts()))


def check_vsphere(params: dict[str, Any], *, check_mode: bool) -> ReadResult:
    # Imported here, so that a task for Harvester does not wait for these imports.
    from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.availability import HostsCapacity
    from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.counts import VsphereAvailability
    from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.fleet import read
    from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session

    # Both options name hosts.
    named = [hosts for hosts in (params["esxi_hosts"], params["nodes"]) if hosts is not None]
    chosen = {**hosts_of(params), "esxi_hosts": [host for hosts in named for host in hosts] if named else None}
    with Session.open(params) as session:
        snapshot = read(session, **chosen)
    counts = VsphereAvailability(snapshot)
    fit = FitCheck(HostsCapacity(counts), read_demand(params["demand"], snapshot.known))
    if params["require"]:
        fit.require()
    return ReadResult(
        {
            "profiles": counts.profile_records(),
            "devices": counts.device_records(),
            "nodes": counts.node_records(),
            **fit.as_result(),
        }
    )


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    with reporting_errors(module):
        params = dict(connection_options(module, module.params["platform"]))
        check = check_vsphere if params["platform"] == "vsphere" else check_harvester
        finish(module, check(params, check_mode=module.check_mode))


if __name__ == "__main__":
    main()
