#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rancher_gpu_pool
short_description: A machine pool of a Rancher cluster on Harvester, with vGPUs
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Makes, changes and removes a machine pool of a cluster that Rancher provisions on Harvester, with the pool's
    machine config. The cluster itself has to exist.
  - All machines of a pool ask for the same vGPUs by profile. Which devices they get is decided when they start.
  - Before anything is changed it is checked that all pools on that Harvester fit together. What the pool has already
    is its own, what other pools still lack is kept for them, and where machines are replaced there must be room for
    those that come before an old one goes. Rancher itself does not ask, and makes machines that cannot start over and
    over.
  - A pool that Rancher's pages have made is read as equal where it says the same, whatever names its vGPU requests
    have.
  - Rancher replaces the machines of every pool that refers to a C(HarvesterConfig) that changes. The module changes a
    C(HarvesterConfig) only if the pool refers to it and no other pool of any cluster does. A pool that shares its
    C(HarvesterConfig) gets a new one when its machines have to change; the shared one stays as it is.
options:
  cluster:
    description:
      - The cluster, by its name in Rancher.
    type: str
    required: true
  name:
    description:
      - The pool.
    type: str
    required: true
  namespace:
    description:
      - The namespace of the cluster object.
    type: str
    default: fleet-default
  quantity:
    description:
      - How many machines the pool has. Required for a new pool.
    type: int
  roles:
    description:
      - What the machines are in their cluster. A new pool has workers unless this says otherwise.
    type: list
    elements: str
    choices: [etcd, control_plane, worker]
  vgpus:
    description:
      - The vGPUs of each machine. An empty list takes them away.
      - Up to Harvester 1.7 a machine can have one only. From 1.8 on several need a machine driver that was built for
        Harvester 1.8; with older ones Rancher fails to make the machines.
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
          - How many of it.
        type: int
        default: 1
  cpus:
    description:
      - CPU cores of each machine. A new pool has 2 unless this says otherwise.
    type: int
  memory_gib:
    description:
      - Memory of each machine. A new pool has 4 GiB unless this says otherwise.
    type: int
  image:
    description:
      - Image of the disk that machines boot from, as C(namespace/name). A new pool needs it here or in O(disks).
    type: str
  disks:
    description:
      - The disks of each machine, the one to boot from first. A new pool has one of 40 GiB unless this says otherwise.
    type: list
    elements: dict
    suboptions:
      size_gib:
        description:
          - Its size.
        type: int
        required: true
      image:
        description:
          - Its image, as C(namespace/name). The first disk has O(image) unless this says otherwise.
        type: str
      storage_class:
        description:
          - The storage class of a disk without image.
        type: str
      bus:
        description:
          - How it is attached. Harvester takes C(virtio) where nothing is said.
        type: str
  networks:
    description:
      - The networks of each machine, as C(namespace/name). The first one is that of the machine's address. Required
        for a new pool.
    type: list
    elements: str
  vm_namespace:
    description:
      - The namespace of the VMs on Harvester. A new pool has V(default) unless this says otherwise.
    type: str
  ssh_user:
    description:
      - The user that Rancher logs in as.
    type: str
  user_data:
    description:
      - Cloud-init user data. It has to install and start C(qemu-guest-agent), without which Rancher never learns a
        machine's address.
      - It is neither returned nor shown in the diff, since it may hold passwords.
    type: str
  labels:
    description:
      - Labels of the nodes.
    type: dict
  taints:
    description:
      - Taints of the nodes.
    type: list
    elements: dict
    suboptions:
      key:
        description:
          - Its key.
        type: str
        required: true
      value:
        description:
          - Its value.
        type: str
      effect:
        description:
          - What it does.
        type: str
        choices: [NoSchedule, PreferNoSchedule, NoExecute]
        required: true
  rolling_update:
    description:
      - How Rancher replaces machines.
    type: dict
    suboptions:
      max_surge:
        description:
          - How many machines, or which share of them, may come before old ones go. Rancher takes V(1).
          - With V(0) old ones go first, which is the only way when all vGPUs are in use.
        type: str
      max_unavailable:
        description:
          - How many machines, or which share of them, may be missing at a time. Rancher takes V(0).
        type: str
  state:
    description:
      - Whether the pool exists. With V(absent), Rancher deletes its machines, and what is on their disks is lost.
    type: str
    choices: [present, absent]
    default: present
  owner:
    description:
      - The owner in the labels of every C(HarvesterConfig) that the module makes,
        C(app.kubernetes.io/managed-by=vgpu.fleet) and C(vgpu.fleet/owner).
      - With O(state=absent), the module deletes the pool's C(HarvesterConfig) only if it carries these labels and no
        other pool refers to it. Otherwise a warning says that it stays.
    type: str
    default: vgpu.fleet
  harvester_cluster:
    description:
      - The id of the Harvester in Rancher, such as C(c-m-abcdef12). By default it is read from the cluster's cloud
        credential.
    type: str
  wait:
    description:
      - Whether to wait until all machines of the pool are nodes of the cluster and none is of an older make, or with
        O(state=absent) until they are gone.
      - Off by default, since the machines of a new cluster come only after all of its pools are there.
    type: bool
    default: false
  wait_timeout:
    description:
      - The most seconds to wait.
    type: int
    default: 1800
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.fail_fast
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: The diff names the machines that Rancher will replace, by cluster and pool.
  platform:
    platforms: posix
notes:
  - Connect to the cluster that Rancher itself runs on, best through Rancher, with O(host) being
    C(https://rancher.example/k8s/clusters/local) and O(api_key) an API key of Rancher. The Harvester is reached the
    same way then. Without Rancher's proxy it is reached with the kubeconfig in the cluster's cloud credential.
  - Any change of C(cpus), C(memory_gib), C(vgpus), disks, networks, C(vm_namespace), C(ssh_user) or C(user_data) makes
    Rancher replace all machines of the pool. Changes of quantity, labels, taints and limits do not.
  - Labels and taints reach machines that are made from then on.
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.vgpu_availability
"""

EXAMPLES = r"""
- name: The cluster has two GPU machines
  vgpu.fleet.rancher_gpu_pool:
    host: https://rancher.example/k8s/clusters/local
    api_key: "{{ rancher_token }}"
    cluster: demo
    name: gpu
    quantity: 2
    vgpus:
      - profile: A2-4Q
    cpus: 4
    memory_gib: 16
    image: default/image-ubuntu
    networks: [default/vlan1]
    ssh_user: ubuntu
    user_data: |
      #cloud-config
      packages: [qemu-guest-agent]
      runcmd:
        - systemctl enable --now qemu-guest-agent
    labels:
      accelerator: vgpu
    taints:
      - {key: nvidia.com/gpu, value: present, effect: NoSchedule}

- name: They get larger vGPUs, old machines going first since no vGPU is to spare
  vgpu.fleet.rancher_gpu_pool:
    cluster: demo
    name: gpu
    vgpus:
      - profile: A2-8Q
    rolling_update:
      max_surge: 0
      max_unavailable: 1
    wait: true

- name: The pool is gone
  vgpu.fleet.rancher_gpu_pool:
    cluster: demo
    name: gpu
    state: absent
"""

RETURN = r"""
pool:
  description: The pool, as it is or in check mode would be.
  returned: success
  type: dict
  contains:
    cluster:
      description: The cluster.
      type: str
      sample: demo
    namespace:
      description: The namespace of the cluster object.
      type: str
      sample: fleet-default
    name:
      description: Its name.
      type: str
      sample: gpu
    quantity:
      description: How many machines it shall have.
      type: int
      sample: 2
    roles:
      description: What the machines are.
      type: list
      elements: str
      sample: [worker]
    vgpus:
      description: The vGPUs of each machine, sorted by profile.
      type: list
      elements: dict
      contains:
        profile:
          description: The profile as the cluster calls it.
          type: str
          sample: NVIDIA A2-4Q
        count:
          description: How many of it.
          type: int
          sample: 1
        spellings:
          description: The profile in all its spellings.
          type: dict
          sample:
            type: NVIDIA A2-4Q
            short: A2-4Q
            resource: nvidia.com/NVIDIA_A2-4Q
            vsphere: nvidia_a2-4q
    machine_config:
      description:
        - The name of its HarvesterConfig.
        - In check mode V(null) if a new one would be made, since the API server chooses its name.
      type: str
      sample: nc-demo-gpu-x7k2p
    cpus:
      description: CPU cores.
      type: int
      sample: 4
    memory_gib:
      description: Memory.
      type: int
      sample: 16
    image:
      description: The first image of its disks.
      type: str
      sample: default/image-ubuntu
    disks:
      description: Its disks.
      type: list
      elements: dict
      sample:
        - {image: default/image-ubuntu, storage_class: null, size_gib: 40, bus: virtio}
    networks:
      description: Its networks.
      type: list
      elements: str
      sample: [default/vlan1]
    vm_namespace:
      description: The namespace of its VMs.
      type: str
      sample: default
    ssh_user:
      description: The user that Rancher logs in as.
      type: str
      sample: ubuntu
    user_data_bytes:
      description: The size of its user data.
      type: int
      sample: 118
    labels:
      description: Labels of its nodes.
      type: dict
      sample:
        accelerator: vgpu
    taints:
      description: Taints of its nodes.
      type: list
      elements: dict
      sample:
        - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
    rolling_update:
      description: How machines are replaced.
      type: dict
      sample:
        max_surge: "1"
        max_unavailable: "0"
    machines:
      description: The machines there are, sorted by name.
      type: list
      elements: dict
      contains:
        name:
          description: The machine.
          type: str
          sample: demo-gpu-8xk2p-hw6dq
        vm:
          description: Its VM on Harvester.
          type: str
          sample: demo-gpu-8xk2p-hw6dq
        phase:
          description: How far it is.
          type: str
          sample: Running
machines_replaced:
  description:
    - Every pool whose machines Rancher replaces because of the change. Empty if it replaces none, so the value can be
      used as a condition.
  returned: success
  type: list
  elements: dict
  contains:
    cluster:
      description: The cluster.
      type: str
      sample: demo
    pool:
      description: The pool.
      type: str
      sample: gpu
    machines:
      description: The machines that are replaced, sorted by name.
      type: list
      elements: str
      sample: [demo-gpu-8xk2p-hw6dq]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.options import connection_spec, fail_fast_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.module import reporting_errors
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.apply import PoolChange, PoolRef
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.client import Rancher
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.pool import PoolRequest

WISHES = (
    "quantity",
    "roles",
    "cpus",
    "memory_gib",
    "image",
    "disks",
    "networks",
    "vm_namespace",
    "ssh_user",
    "user_data",
    "labels",
    "taints",
    "rolling_update",
)


def argument_spec() -> dict[str, dict[str, object]]:
    vgpu = {"profile": {"type": "str", "required": True}, "count": {"type": "int", "default": 1}}
    disk = {
        "size_gib": {"type": "int", "required": True},
        "image": {"type": "str"},
        "storage_class": {"type": "str"},
        "bus": {"type": "str"},
    }
    taint = {
        "key": {"type": "str", "required": True, "no_log": False},
        "value": {"type": "str"},
        "effect": {"type": "str", "choices": ["NoSchedule", "PreferNoSchedule", "NoExecute"], "required": True},
    }
    limits = {"max_surge": {"type": "str"}, "max_unavailable": {"type": "str"}}
    return {
        **connection_spec(),
        "cluster": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "fleet-default"},
        "quantity": {"type": "int"},
        "roles": {"type": "list", "elements": "str", "choices": ["etcd", "control_plane", "worker"]},
        "vgpus": {"type": "list", "elements": "dict", "options": vgpu},
        "cpus": {"type": "int"},
        "memory_gib": {"type": "int"},
        "image": {"type": "str"},
        "disks": {"type": "list", "elements": "dict", "options": disk},
        "networks": {"type": "list", "elements": "str"},
        "vm_namespace": {"type": "str"},
        "ssh_user": {"type": "str"},
        "user_data": {"type": "str", "no_log": True},
        "labels": {"type": "dict"},
        "taints": {"type": "list", "elements": "dict", "options": taint},
        "rolling_update": {"type": "dict", "options": limits},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "owner": {"type": "str", "default": "vgpu.fleet"},
        "harvester_cluster": {"type": "str"},
        "wait": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 1800},
        **fail_fast_spec(),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    with reporting_errors(module):
        rancher = Rancher(params, params["namespace"])
        target = PoolRef(params["cluster"], params["name"], params["harvester_cluster"], params["owner"])
        change = PoolChange(rancher, target, wait=params["wait"], seconds=params["wait_timeout"])
        if params["state"] == "absent":
            outcome = change.remove(check_mode=module.check_mode)
        else:
            wish = PoolRequest(**{name: params[name] for name in WISHES})
            outcome = change.ensure(wish, params["vgpus"], check_mode=module.check_mode)
        for warning in outcome.warnings:
            module.warn(warning)
        module.exit_json(**outcome.as_result())


if __name__ == "__main__":
    main()
