#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_gpu_info
short_description: Gather information about the GPUs and vGPUs of ESXi hosts and the VMs that use them
version_added: 0.1.0
description:
  - Reads the hosts, their GPUs and profiles, and the VMs on GPU hosts with a few requests, regardless of their number.
  - On vSphere a vGPU exists only while its VM runs. The module returns the vGPUs of powered-off VMs as RV(claims).
  - vSphere does not report all data. If a number is an estimate, RV(nodes[].gpus[].exact) is V(false) and
    RV(nodes[].gpus[].notes) contains the reasons.
options:
  gpus:
    description:
      - Names of GPUs, or shell patterns. The module returns only these GPUs and their hosts. An empty list selects no
        GPU.
      - The name of a GPU consists of its host and PCI address, such as V(esx1-00003b000).
    type: list
    elements: str
  profiles:
    description:
      - vGPU profiles in any spelling. The module returns only GPUs that have a vGPU of one of these profiles, or free
        capacity for one. An empty list selects no GPU.
    type: list
    elements: str
extends_documentation_fragment:
  - vgpu.fleet.vsphere
  - vgpu.fleet.vsphere.hosts
attributes:
  check_mode:
    description: The module is read-only.
    support: full
  diff_mode:
    description: The module is read-only.
    support: none
notes:
  - Requires the privileges C(System.View) and C(System.Read) on the hosts and their VMs. The role C(Read-only) contains
    both.
seealso:
  - module: vgpu.fleet.vsphere_gpu_host
  - module: vgpu.fleet.vgpu_availability
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Read the GPUs of all hosts
  vgpu.fleet.vsphere_gpu_info:
  register: fleet

- name: Show the GPUs with their vGPUs
  ansible.builtin.debug:
    msg: >-
      {{ item.name }} ({{ item.board }}, {{ item.graphics_type }}):
      {{ item.slots | map(attribute='profile') | select | list or 'no vGPUs' }}
  loop: "{{ fleet.nodes | map(attribute='gpus') | flatten }}"
  loop_control:
    label: "{{ item.name }}"

- name: Read the GPUs of a cluster that have or can take an A40-8Q, with explicit credentials
  vgpu.fleet.vsphere_gpu_info:
    hostname: "{{ lookup('ansible.builtin.env', 'VMWARE_HOST') }}"
    username: "{{ lookup('ansible.builtin.env', 'VMWARE_USER') }}"
    password: "{{ lookup('ansible.builtin.env', 'VMWARE_PASSWORD') }}"
    cluster: gpu
    esxi_hosts: ["esx*"]
    profiles: [A40-8Q]
  register: candidates

- name: Fail if there are findings
  ansible.builtin.assert:
    that: candidates.findings | length == 0
    fail_msg: "{{ candidates.findings | map(attribute='text') | join(' ') }}"
"""

RETURN = r"""
nodes:
  description: The hosts, ordered by name, each with its GPUs.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the host.
      type: str
      sample: esx1
    ready:
      description: Whether the host is connected.
      type: bool
      sample: true
    schedulable:
      description: Whether the host can run VMs. V(false) in maintenance mode.
      type: bool
      sample: true
    reserved_for_containers:
      description: Always V(false) on vSphere.
      type: bool
      sample: false
    labels:
      description: Cluster, datacenter, version, assignment policy and ID of the host.
      type: dict
      sample: {assignment_policy: performance, cluster: gpu, datacenter: dc1, moid: host-18, version: 8.0.3}
    advertised:
      description: Always null, since hosts do not report counts of vGPUs.
      type: dict
      sample: null
    evacuation:
      description:
        - Whether the running VMs with vGPUs of the host can move to other hosts of its cluster, so that the host can
          enter maintenance mode. Null for hosts without GPUs.
      type: dict
      contains:
        possible:
          description: Whether the VMs can move while they run.
          type: bool
          sample: true
        automatic:
          description: Whether DRS moves the VMs when the host enters maintenance mode.
          type: bool
          sample: false
        reasons:
          description: Reasons why the host cannot be emptied, or why not automatically.
          type: list
          elements: str
          sample:
            - "The vCenter setting vgpu.hotmigrate.enabled is not true, so VM trainer cannot move while it runs."
        vms:
          description: The running VMs with vGPUs.
          type: list
          elements: dict
          contains:
            name:
              description: Name of the VM.
              type: str
              sample: trainer
            vgpus:
              description: Profiles of the vGPUs.
              type: list
              elements: str
              sample: [nvidia_a40-8q]
            stun_times:
              description:
                - Estimated time for which the VM stands still during a migration, by bandwidth. The sum over its vGPUs.
                  Empty before vSphere 8.0.2, and for profiles of series A and B.
              type: list
              elements: dict
              sample: [{bandwidth_mbps: 10000, seconds: 7}]
    device_groups:
      description:
        - The vendor device groups that the host offers, such as GPUs that NVLink connects. Empty before vSphere 8.0.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the group, for C(device_groups) of M(vgpu.fleet.vsphere_vgpu_vm).
          type: str
          sample: Nvidia:2@nvidia_a40-48q%NVLink
        description:
          description: Description of the group.
          type: str
          sample: Two GPUs connected by NVLink
        devices:
          description: Devices of the group, with the profile of a vGPU or the PCI IDs of a whole device.
          type: list
          elements: dict
          sample:
            - device_id: null
              name: NVIDIA A40
              profile: nvidia_a40-48q
              type: nvidiaVgpu
              vendor: NVIDIA Corporation
              vendor_id: null
        in_use:
          description: Number of such groups that running VMs of the host have.
          type: int
          sample: 1
        vms:
          description: VMs on the host that have such a group, running or not.
          type: list
          elements: str
          sample: [trainer]
        free:
          description:
            - Number of free groups as reported by vCenter 9.0 and later. Otherwise null, since hosts do not report it.
          type: int
          sample: null
    gpus:
      description: GPUs of the host, ordered by address.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the GPU, which consists of host and address.
          type: str
          sample: esx1-00003b000
        node:
          description: Host of the GPU.
          type: str
          sample: esx1
        platform:
          description: Always V(vsphere).
          type: str
          sample: vsphere
        address:
          description: PCI address of the GPU, which M(vgpu.fleet.vsphere_gpu_host) calls V(pci_id).
          type: str
          sample: "0000:3b:00.0"
        board:
          description: Board, as in the names of vGPU profiles. Null if several boards are possible.
          type: str
          sample: A40
        possible_boards:
          description: All possible boards of the GPU.
          type: list
          elements: str
          sample: [A40]
        framebuffer_mib:
          description: Framebuffer of the GPU in MiB, or null if unknown.
          type: int
          sample: 49152
        mode:
          description: Mode of the GPU, V(time_sliced) for vGPUs of one size, V(mixed_size) or V(mig).
          type: str
          sample: time_sliced
        vgpu_enabled:
          description: Whether the GPU is shared direct.
          type: bool
          sample: true
        graphics_type:
          description: Graphics type, V(shared_direct), V(shared), V(direct) for a GPU in passthrough, or V(basic).
          type: str
          sample: shared_direct
        pending:
          description: Whether configured settings are not effective yet and require a restart.
          type: bool
          sample: false
        direct_path:
          description:
            - Use of the GPU and data of its driver as reported by vCenter 9.1 and later. Otherwise null. The API does
              not document the units of memory.
          type: dict
          contains:
            mode:
              description:
                - V(none), V(host), V(directPath), V(enhancedDirectPath), V(vGpuSameSize), V(vGpuMixedSize) or
                  V(systemSelect).
              type: str
              sample: vGpuSameSize
            configurable_modes:
              description: Modes that can be configured.
              type: list
              elements: str
              sample: [host, directPath, vGpuSameSize, vGpuMixedSize]
            used_memory:
              description: Memory in use.
              type: int
              sample: 8192
            available_memory:
              description: Memory of the device.
              type: int
              sample: 49152
            interconnect:
              description: Type of the connection to other devices, or null.
              type: str
              sample: NVLink
            driver:
              description: Name of the host driver.
              type: str
              sample: nvidia
            driver_version:
              description: Version of the host driver.
              type: str
              sample: 580.82.02
        vf_capacity:
          description: Always null.
          type: int
          sample: null
        max_instances:
          description: In MIG mode, maximum number of GPU instances per profile, including existing instances.
          type: dict
          sample: {}
        unavailable_reason:
          description: Why the GPU serves no vGPUs, or an empty string.
          type: str
          sample: ""
        exact:
          description: Whether the data of the GPU is certain.
          type: bool
          sample: true
        notes:
          description: Reasons why the data is not certain, one sentence each.
          type: list
          elements: str
          sample: []
        slots:
          description: One slot for each running vGPU, and one empty slot with the profiles that the driver offers.
          type: list
          elements: dict
          sample: []
vgpus:
  description: The running vGPUs, ordered by host and GPU.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the vGPU, which consists of the GPU and a number.
      type: str
      sample: esx1-00003b000-1
    address:
      description: Always empty.
      type: str
      sample: ""
    node:
      description: Host of the vGPU.
      type: str
      sample: esx1
    gpu:
      description: GPU of the vGPU.
      type: str
      sample: esx1-00003b000
    profile:
      description: Profile of the vGPU.
      type: str
      sample: nvidia_a40-8q
    requested:
      description: Same as C(profile).
      type: str
      sample: nvidia_a40-8q
    state:
      description: Always V(allocatable).
      type: str
      sample: allocatable
    drifted:
      description: Always V(false).
      type: bool
      sample: false
    hardware:
      description: Always null.
      type: str
      sample: null
    owner:
      description: Always null.
      type: str
      sample: null
    holders:
      description: The VM that has the vGPU. The labels contain the ID, host, cluster and datacenter of the VM.
      type: list
      elements: dict
      sample:
        - kind: VM
          labels: {cluster: gpu, datacenter: dc1, host: esx1, moid: vm-50, name: trainer}
          name: trainer
          namespace: ""
          running: true
    available_profiles:
      description: Always null.
      type: list
      elements: str
      sample: null
    spellings:
      description: All spellings of the profile, which are type, short name, Kubernetes resource and vSphere profile.
      type: dict
      sample: {resource: nvidia.com/NVIDIA_A40-8Q, short: A40-8Q, type: NVIDIA A40-8Q, vsphere: nvidia_a40-8q}
claims:
  description:
    - The vGPUs of powered-off VMs, and of running VMs that no GPU lists.
    - VMs on hosts without GPUs are not included.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: Profile of the vGPUs.
      type: str
      sample: nvidia_a40-8q
    count:
      description: Number of vGPUs.
      type: int
      sample: 1
    node:
      description: Host of the VM, if the VM runs or DRS is disabled. Otherwise null.
      type: str
      sample: null
    holder:
      description: The VM that claims the vGPUs.
      type: dict
      sample:
        kind: VM
        labels: {cluster: gpu, datacenter: dc1, host: esx1, moid: vm-51, name: trainer-2}
        name: trainer-2
        namespace: ""
        running: false
findings:
  description: Detected problems.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of problem, V(graphics_pending), V(driver_missing), V(profile_not_offered) or V(not_on_a_gpu).
      type: str
      sample: driver_missing
    device:
      description: The affected GPU, host or VM.
      type: str
      sample: esx1-00003b000
    text:
      description: Description of the problem.
      type: str
      sample: >-
        GPU 0000:3b:00.0 of host esx1 is shared direct and offers no vGPU profiles: the NVIDIA host driver is missing
        or does not work.
vsphere:
  description: Information about the vCenter.
  returned: success
  type: dict
  contains:
    version:
      description: API version of the vCenter.
      type: str
      sample: 8.0.3.0
    hot_migrate:
      description: Whether the vCenter setting C(vgpu.hotmigrate.enabled) lets running VMs with vGPUs move.
      type: bool
      sample: false
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.module import ReadResult, finish, reporting_errors
from ..module_utils.vsphere.options import connection_spec, hosts_of, hosts_spec
from ..module_utils.vsphere.read import fleet as snapshot
from ..module_utils.vsphere.read.direct_path import remaining_groups
from ..module_utils.vsphere.read.evacuation import hot_migrate
from ..module_utils.vsphere.result import nodes, records
from ..module_utils.vsphere.result.evacuation import evacuations
from ..module_utils.vsphere.result.findings import findings
from ..module_utils.vsphere.session import Session


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **connection_spec(),
            **hosts_spec(),
            "gpus": {"type": "list", "elements": "str"},
            "profiles": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    with reporting_errors(module):
        params = module.params
        with Session.open(params) as session:
            found = snapshot.read(session, **hosts_of(params))
            migrates = hot_migrate(session)
            offered = {host.name: [group.name for group in host.device_groups] for host in found.inventory.gpu_hosts}
            free_groups = remaining_groups(session, found.inventory.gpu_hosts, offered)
        profiles = params["profiles"]
        if profiles is not None:
            profiles = [found.known.resolve(profile) for profile in profiles]
        fleet = nodes.filtered(found.fleet, gpus=params["gpus"], profiles=profiles)
        emptied = evacuations(found, hot_migrate=migrates)
        result = {
            "nodes": nodes.node_records(found, fleet, emptied, free_groups),
            "vgpus": records.vgpu_records(fleet),
            "claims": [claim.as_dict() for claim in fleet.ordered_claims],
            "findings": [finding.as_dict() for finding in findings(found)],
            "vsphere": {"version": found.inventory.api_version, "hot_migrate": migrates},
        }
        finish(module, ReadResult(result))


if __name__ == "__main__":
    main()
