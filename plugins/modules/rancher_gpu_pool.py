#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rancher_gpu_pool
short_description: Manage a machine pool with vGPUs of a Rancher cluster on Harvester
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Creates, changes and removes a machine pool of a cluster that Rancher provisions on Harvester, together with the
    pool's machine config. The cluster itself must exist.
  - All machines of a pool request the same vGPUs by profile. Harvester assigns the devices when the machines start.
  - Before it changes anything, the module checks that all pools on that Harvester fit together. It counts the vGPUs
    that the pool already has as its own, reserves what other pools still need, and makes sure that a rollout finds
    room. Rancher does not check this and recreates machines that cannot start indefinitely.
  - A pool that was created in the Rancher UI is compared by its meaning. The names of its vGPU requests do not matter.
  - Rancher replaces the machines of every pool that refers to a C(HarvesterConfig) that changes. The module changes a
    C(HarvesterConfig) only if the pool refers to it and no other pool of any cluster does. A pool that shares its
    C(HarvesterConfig) gets a new one when its machines have to change; the shared one stays as it is.
options:
  cluster:
    description:
      - The name of the cluster in Rancher.
    type: str
    required: true
  name:
    description:
      - The name of the pool.
    type: str
    required: true
  namespace:
    description:
      - The namespace of the cluster object.
    type: str
    default: fleet-default
  quantity:
    description:
      - The number of machines. Required for a new pool.
    type: int
  roles:
    description:
      - The roles of the machines in their cluster. Defaults to V(worker) for a new pool.
    type: list
    elements: str
    choices: [etcd, control_plane, worker]
  vgpus:
    description:
      - The vGPUs of each machine. An empty list removes them.
      - Several vGPUs per machine work on Harvester 1.4.2 to 1.7. Up to Harvester 1.4.1 such a machine does not boot,
        because KubeVirt gives each vGPU a boot display. From Harvester 1.8 on every released machine driver of Rancher
        (up to v1.0.6) fails to create it. The module reads the driver's version and refuses several vGPUs where they
        cannot work. See O(allow_multiple_vgpus).
    type: list
    elements: dict
    suboptions:
      profile:
        description:
          - The profile, in any of its spellings.
        type: str
        required: true
      count:
        description:
          - The number of vGPUs of this profile.
        type: int
        default: 1
  cpus:
    description:
      - The CPU cores of each machine. Defaults to 2 for a new pool.
    type: int
  memory_gib:
    description:
      - The memory of each machine in GiB. Defaults to 4 for a new pool.
    type: int
  reserved_memory_mib:
    description:
      - Part of the memory of each machine, in MiB, that is kept for the processes of the hypervisor and not given to
        the guest. Machines with much memory and a vGPU may need more than Harvester's default, which V(0) selects.
    type: int
  efi:
    description:
      - Whether the machines boot with EFI instead of BIOS. The image has to support it.
      - Defaults to V(true) for a new pool on Harvester 1.6 or later with a C profile of 16 GB or more, which may not
        fit into the address space of BIOS, otherwise to V(false). The firmware of an existing pool is changed only if
        the option is set.
    type: bool
  secure_boot:
    description:
      - Whether EFI verifies the signatures of what it boots. Needs O(efi).
    type: bool
  image:
    description:
      - The image of the boot disk, as C(namespace/name). A new pool needs it here or in O(disks).
    type: str
  disks:
    description:
      - The disks of each machine, beginning with the boot disk. Defaults to one disk of 40 GiB for a new pool.
    type: list
    elements: dict
    suboptions:
      size_gib:
        description:
          - The size of the disk in GiB.
        type: int
        required: true
      image:
        description:
          - The image of the disk, as C(namespace/name). Defaults to O(image) for the first disk.
        type: str
      storage_class:
        description:
          - The storage class of a disk without image.
        type: str
      bus:
        description:
          - The bus of the disk. Harvester defaults to C(virtio).
        type: str
  networks:
    description:
      - The networks of each machine, as C(namespace/name). Rancher takes the machine's address from the first one.
        Required for a new pool.
    type: list
    elements: str
  vm_namespace:
    description:
      - The namespace of the VMs on Harvester. Defaults to V(default) for a new pool.
    type: str
  ssh_user:
    description:
      - The user that Rancher logs in as.
    type: str
  user_data:
    description:
      - Cloud-init user data. It has to install and start C(qemu-guest-agent). Without the agent, Rancher does not get
        the address of a machine.
      - The module neither returns it nor shows it in the diff, because it may contain passwords.
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
          - The key of the taint.
        type: str
        required: true
      value:
        description:
          - The value of the taint.
        type: str
      effect:
        description:
          - The effect of the taint.
        type: str
        choices: [NoSchedule, PreferNoSchedule, NoExecute]
        required: true
  rolling_update:
    description:
      - How Rancher replaces machines, by the rules of Cluster API's C(MachineDeployment). New machines are created up
        to the surge, and an old machine is removed while no more than O(rolling_update.max_unavailable) are missing.
      - At least one of the two has to be above zero.
    type: dict
    suboptions:
      max_surge:
        description:
          - The number of machines, or the percentage of the quantity rounded up, that may exist above the quantity.
            Rancher defaults to V(1).
          - If all vGPUs are in use, set this to V(0) or O(rolling_update.max_unavailable) to at least V(1), so that an
            old machine is removed before its successor starts.
        type: str
      max_unavailable:
        description:
          - The number of machines, or the percentage of the quantity rounded down, that may be missing at a time.
            Rancher defaults to V(0).
        type: str
  state:
    description:
      - Whether the pool exists. With V(absent), Rancher deletes its machines, and the data on their disks is lost.
    type: str
    choices: [present, absent]
    default: present
  owner:
    description:
      - The owner in the labels of every C(HarvesterConfig) that the module creates,
        C(app.kubernetes.io/managed-by=vgpu.fleet) and C(vgpu.fleet/owner).
      - With O(state=absent), the module deletes the pool's C(HarvesterConfig) only if it carries these labels and no
        other pool refers to it. Otherwise a warning says that it stays.
    type: str
    default: vgpu.fleet
  harvester_cluster:
    description:
      - The id of the Harvester in Rancher, such as C(c-m-abcdef12). By default the module reads it from the cloud
        credential of the pool, or else of the cluster.
      - If the credential can be read and names another Harvester, the task fails.
    type: str
  allow_multiple_vgpus:
    description:
      - Whether to accept several vGPUs per machine on Harvester 1.8 or newer if it is unknown whether Rancher's machine
        driver supports them. This is the case if the module cannot read the version of the driver (C(NodeDriver)
        C(harvester)), or if the driver is newer than v1.0.6.
      - It has no effect where several vGPUs are known to fail.
    type: bool
    default: false
  wait:
    description:
      - Whether to wait until all machines of the pool are up to date and nodes of the cluster, or with O(state=absent)
        until they are deleted.
      - Disabled by default, because Rancher creates the machines of a new cluster only after all of its pools exist.
    type: bool
    default: false
  wait_timeout:
    description:
      - Maximum time to wait, in seconds.
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
    C(https://rancher.example/k8s/clusters/local) and O(api_key) an API key of Rancher. The module then reaches the
    Harvester through the same proxy. Otherwise it uses the kubeconfig in the cloud credential.
  - Any change of C(cpus), memory, firmware, C(vgpus), disks, networks, C(vm_namespace), C(ssh_user) or C(user_data)
    makes Rancher replace all machines of the pool. Changes of quantity, labels, taints and limits do not.
  - Labels and taints apply to machines that are created afterwards.
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - module: vgpu.fleet.vgpu_availability
"""

EXAMPLES = r"""
- name: Create a pool with two GPU machines
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

- name: Replace the vGPUs with larger ones, removing an old machine first because no vGPU is free
  vgpu.fleet.rancher_gpu_pool:
    cluster: demo
    name: gpu
    vgpus:
      - profile: A2-8Q
    rolling_update:
      max_surge: 0
      max_unavailable: 1
    wait: true

- name: Remove the pool
  vgpu.fleet.rancher_gpu_pool:
    cluster: demo
    name: gpu
    state: absent
"""

RETURN = r"""
pool:
  description: The pool after the task, or in check mode as predicted.
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
      description: The name of the pool.
      type: str
      sample: gpu
    quantity:
      description: The requested number of machines.
      type: int
      sample: 2
    roles:
      description: The roles of the machines.
      type: list
      elements: str
      sample: [worker]
    vgpus:
      description: The vGPUs of each machine, sorted by profile.
      type: list
      elements: dict
      contains:
        profile:
          description: The type name of the profile.
          type: str
          sample: NVIDIA A2-4Q
        count:
          description: The number of vGPUs.
          type: int
          sample: 1
        spellings:
          description: The profile in all spellings.
          type: dict
          sample:
            type: NVIDIA A2-4Q
            short: A2-4Q
            resource: nvidia.com/NVIDIA_A2-4Q
            vsphere: nvidia_a2-4q
    machine_config:
      description:
        - The name of the C(HarvesterConfig).
        - V(null) in check mode if a new one would be created, because the API server chooses its name.
      type: str
      sample: nc-demo-gpu-x7k2p
    cpus:
      description: CPU cores.
      type: int
      sample: 4
    memory_gib:
      description: Memory in GiB.
      type: int
      sample: 16
    reserved_memory_mib:
      description: Memory in MiB that the guest does not get; 0 for Harvester's default.
      type: int
      sample: 0
    efi:
      description: Whether the machines boot with EFI.
      type: bool
      sample: false
    secure_boot:
      description: Whether EFI verifies what it boots.
      type: bool
      sample: false
    image:
      description: The first image of the disks.
      type: str
      sample: default/image-ubuntu
    disks:
      description: The disks.
      type: list
      elements: dict
      sample:
        - {image: default/image-ubuntu, storage_class: null, size_gib: 40, bus: virtio}
    networks:
      description: The networks.
      type: list
      elements: str
      sample: [default/vlan1]
    vm_namespace:
      description: The namespace of the VMs.
      type: str
      sample: default
    ssh_user:
      description: The user that Rancher logs in as.
      type: str
      sample: ubuntu
    user_data_bytes:
      description: The size of the user data.
      type: int
      sample: 118
    labels:
      description: Labels of the nodes.
      type: dict
      sample:
        accelerator: vgpu
    taints:
      description: Taints of the nodes.
      type: list
      elements: dict
      sample:
        - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
    rolling_update:
      description: How Rancher replaces machines.
      type: dict
      sample:
        max_surge: "1"
        max_unavailable: "0"
    machines:
      description: The existing machines, sorted by name.
      type: list
      elements: dict
      contains:
        name:
          description: The name of the machine.
          type: str
          sample: demo-gpu-8xk2p-hw6dq
        vm:
          description: The name of its VM on Harvester.
          type: str
          sample: demo-gpu-8xk2p-hw6dq
        phase:
          description: The phase of the machine in Cluster API.
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

from ..module_utils.kube.options import connection_spec, fail_fast_spec
from ..module_utils.module import finish, reporting_errors
from ..module_utils.rancher.apply import PoolChange, PoolRef
from ..module_utils.rancher.client import Rancher
from ..module_utils.rancher.pool import PoolRequest

REQUEST_OPTIONS = (
    "quantity",
    "roles",
    "cpus",
    "memory_gib",
    "reserved_memory_mib",
    "efi",
    "secure_boot",
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
        "reserved_memory_mib": {"type": "int"},
        "efi": {"type": "bool"},
        "secure_boot": {"type": "bool"},
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
        "allow_multiple_vgpus": {"type": "bool", "default": False},
        "wait": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 1800},
        **fail_fast_spec(),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params = module.params
    with reporting_errors(module):
        rancher = Rancher(params, params["namespace"])
        target = PoolRef(
            params["cluster"],
            params["name"],
            params["harvester_cluster"],
            params["owner"],
            allow_multiple_vgpus=params["allow_multiple_vgpus"],
        )
        change = PoolChange(rancher, target, wait=params["wait"], seconds=params["wait_timeout"])
        if params["state"] == "absent":
            result = change.remove(check_mode=module.check_mode)
        else:
            request = PoolRequest(**{name: params[name] for name in REQUEST_OPTIONS})
            result = change.ensure(request, params["vgpus"], check_mode=module.check_mode)
        finish(module, result)


if __name__ == "__main__":
    main()
