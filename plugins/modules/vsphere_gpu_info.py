#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_gpu_info
short_description: Tell which GPUs and vGPUs the hosts of a vCenter have, and which VMs hold them
version_added: 0.1.0
description:
  - Reads hosts, their GPUs and profiles, and the VMs on GPU hosts with a handful of requests, however many there are.
  - On vSphere a vGPU exists while its VM runs. VMs with vGPUs that are off are returned as claims.
  - vSphere does not tell everything. Where a number is an estimate, RV(nodes[].gpus[].exact) is V(false) and
    RV(nodes[].gpus[].notes) says why.
options:
  gpus:
    description:
      - Names of GPUs, or shell patterns. Only these are returned, with the hosts they are in. An empty list selects
        none.
      - A GPU is named after its host and PCI address, such as V(esx1-00003b000).
    type: list
    elements: str
  profiles:
    description:
      - vGPU profiles in any spelling. Only GPUs are returned that have one of them or have room for one right now.
        An empty list selects none.
    type: list
    elements: str
extends_documentation_fragment:
  - vgpu.fleet.vsphere
  - vgpu.fleet.vsphere.hosts
attributes:
  check_mode:
    description: Changes nothing in any mode.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
notes:
  - Needs the privileges C(System.View) and C(System.Read) on hosts and their VMs, which the role C(Read-only) has.
seealso:
  - module: vgpu.fleet.vsphere_gpu_host
  - module: vgpu.fleet.vgpu_availability
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: The GPUs of all hosts are read
  vgpu.fleet.vsphere_gpu_info:
  register: fleet

- name: They are shown with what runs on them
  ansible.builtin.debug:
    msg: >-
      {{ item.name }} ({{ item.board }}, {{ item.graphics_type }}):
      {{ item.slots | map(attribute='profile') | select | list or 'no vGPUs' }}
  loop: "{{ fleet.nodes | map(attribute='gpus') | flatten }}"
  loop_control:
    label: "{{ item.name }}"

- name: The GPUs of a cluster that have room for an A40-8Q are read, as a user of a certain vCenter
  vgpu.fleet.vsphere_gpu_info:
    hostname: "{{ lookup('ansible.builtin.env', 'VMWARE_HOST') }}"
    username: "{{ lookup('ansible.builtin.env', 'VMWARE_USER') }}"
    password: "{{ lookup('ansible.builtin.env', 'VMWARE_PASSWORD') }}"
    cluster: gpu
    esxi_hosts: ["esx*"]
    profiles: [A40-8Q]
  register: candidates

- name: Nothing will lead to trouble
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
      description: Whether it is connected.
      type: bool
      sample: true
    schedulable:
      description: Whether it is not in maintenance mode.
      type: bool
      sample: true
    labels:
      description: Its cluster, datacenter, version, assignment policy and id.
      type: dict
      sample: {assignment_policy: performance, cluster: gpu, datacenter: dc1, moid: host-18, version: 8.0.3}
    advertised:
      description: Always null, since hosts do not count vGPUs.
      type: dict
      sample: null
    gpus:
      description: Its GPUs by address.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the GPU, made of its host and address.
          type: str
          sample: esx1-00003b000
        node:
          description: The host it is in.
          type: str
          sample: esx1
        platform:
          description: Always V(vsphere).
          type: str
          sample: vsphere
        address:
          description: Its PCI address, which M(vgpu.fleet.vsphere_gpu_host) calls V(pci_id).
          type: str
          sample: "0000:3b:00.0"
        board:
          description: The board, as vGPU profiles name it; null while several are possible.
          type: str
          sample: A40
        possible_boards:
          description: All boards that it can be.
          type: list
          elements: str
          sample: [A40]
        framebuffer_mib:
          description: Its memory, as far as it is known.
          type: int
          sample: 49152
        mode:
          description: V(time_sliced) for vGPUs of one size, V(mixed_size), or V(mig).
          type: str
          sample: time_sliced
        vgpu_enabled:
          description: Whether it is shared direct.
          type: bool
          sample: true
        graphics_type:
          description: V(shared_direct), V(shared), V(direct) for a GPU that is given away whole, or V(basic).
          type: str
          sample: shared_direct
        pending:
          description: Whether it is configured to be something else and waits for a restart.
          type: bool
          sample: false
        vf_capacity:
          description: Always null.
          type: int
          sample: null
        max_instances:
          description: In MIG mode, how many instances of each profile there can be, including those that are there.
          type: dict
          sample: {}
        unavailable_reason:
          description: Why it serves no VM at all, or nothing.
          type: str
          sample: ""
        exact:
          description: Whether what is told of it is certain.
          type: bool
          sample: true
        notes:
          description: Why not, one sentence for each reason.
          type: list
          elements: str
          sample: []
        slots:
          description: One for each vGPU that runs on it, and an empty one with the profiles that the driver offers.
          type: list
          elements: dict
          sample: []
vgpus:
  description: The vGPUs that run, ordered by host and GPU.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: A name for it, made of its GPU and a number.
      type: str
      sample: esx1-00003b000-1
    address:
      description: Always empty.
      type: str
      sample: ""
    node:
      description: The host.
      type: str
      sample: esx1
    gpu:
      description: The GPU.
      type: str
      sample: esx1-00003b000
    profile:
      description: Its profile.
      type: str
      sample: nvidia_a40-8q
    requested:
      description: The same.
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
      description: The VM that has it. Its labels have its id, host, cluster and datacenter.
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
      description: Its profile as type, short name, Kubernetes resource and vSphere profile.
      type: dict
      sample: {resource: nvidia.com/NVIDIA_A40-8Q, short: A40-8Q, type: NVIDIA A40-8Q, vsphere: nvidia_a40-8q}
claims:
  description:
    - What VMs will take when they start, and what VMs have that run without any GPU listing them.
    - VMs on hosts without GPUs are not looked at.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: The profile.
      type: str
      sample: nvidia_a40-8q
    count:
      description: How many of them.
      type: int
      sample: 1
    node:
      description: The host, if the VM runs or has to start where it is because DRS is off.
      type: str
      sample: null
    holder:
      description: The VM.
      type: dict
      sample:
        kind: VM
        labels: {cluster: gpu, datacenter: dc1, host: esx1, moid: vm-51, name: trainer-2}
        name: trainer-2
        namespace: ""
        running: false
findings:
  description: What will lead to trouble.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: V(graphics_pending), V(driver_missing), V(profile_not_offered) or V(not_on_a_gpu).
      type: str
      sample: driver_missing
    device:
      description: The GPU, host or VM it is about.
      type: str
      sample: esx1-00003b000
    text:
      description: What is wrong, in a sentence.
      type: str
      sample: >-
        GPU 0000:3b:00.0 of host esx1 is shared direct and offers no vGPU profiles: the NVIDIA host driver is missing
        or does not work.
vsphere:
  description: The vCenter that was asked.
  returned: success
  type: dict
  contains:
    version:
      description: Its API version.
      type: str
      sample: 8.0.3.0
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vgpu.fleet.plugins.module_utils.module import ReadResult, finish, reporting_errors
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.options import connection_spec, hosts_of, hosts_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read import fleet as snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.result import records
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.result.findings import findings
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session


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
        profiles = params["profiles"]
        if profiles is not None:
            profiles = [found.known.resolve(profile) for profile in profiles]
        fleet = records.filtered(found.fleet, gpus=params["gpus"], profiles=profiles)
        result = {
            "nodes": records.node_records(found, fleet),
            "vgpus": records.vgpu_records(fleet),
            "claims": [claim.as_dict() for claim in fleet.ordered_claims],
            "findings": [finding.as_dict() for finding in findings(found)],
            "vsphere": {"version": found.inventory.api_version},
        }
        finish(module, ReadResult(result))


if __name__ == "__main__":
    main()
