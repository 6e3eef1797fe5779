#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_vgpu_vm
short_description: Give a VM on vSphere an exact set of vGPUs
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Puts vGPUs and whole PCI devices into a VM, or takes them out, in one change. The VM is made from a template if it
    does not exist and O(template) is given.
  - What such a VM needs besides, namely reserved memory, a recent hardware version and a large enough MMIO region, is
    computed from its devices and set, see O(prepare).
  - A running VM is stopped only if a change needs it and O(power_cycle) allows it, and runs again afterwards.
  - Before anything is changed it is made sure that some host in reach offers the profiles, that one VM may have them
    together, and, if the VM is to run, that a host has room for them.
  - Devices that belong to a device group, and passthrough devices of other kinds, are never touched. A VM that runs is
    never moved.
  - Every VM that the module creates is marked with its O(owner). The module deletes a VM by its name only if the VM
    carries that mark. See O(owner), O(adopt) and O(uuid) for VMs made by other means.
  - What O(datacenter), O(folder), O(cluster), O(resource_pool) and O(esxi_host) say must be true of a VM that exists.
    Otherwise the task fails with the inventory path of the VM, and nothing is changed.
options:
  name:
    description:
      - The name of the VM. Use O(folder) and O(datacenter) to tell several VMs of one name apart.
      - Write the name as the vSphere client shows it, also if it contains a slash or a percent sign.
    type: str
  folder:
    description:
      - The VM folder, such as V(team/ml) or V(/dc1/vm/team/ml). A new VM is created there, by default in the top
        folder.
      - If the name of a folder contains a slash, write it as C(%2f).
      - With O(folder) and either O(datacenter) or a path that begins with a slash, the module finds a VM in one call,
        however many there are.
    type: str
  datacenter:
    description:
      - The datacenter, by name or by inventory path, such as V(dc1) or V(/emea/dc1).
      - Optional if there is only one datacenter, or if O(name) is unique.
    type: str
  uuid:
    description:
      - The BIOS UUID or the instance UUID of the VM.
      - Names the VM beyond doubt, so the mark of O(owner) is not required.
    type: str
  moid:
    description:
      - The managed object ID of the VM, such as V(vm-42).
      - Names the VM beyond doubt, so the mark of O(owner) is not required.
    type: str
  owner:
    description:
      - Who the VM belongs to, such as a team. The module writes it to the C(extraConfig) key C(vgpu.fleet.owner) of
        every VM that it creates.
      - A VM that another owner created is never changed by its name.
      - A VM without the mark of this owner is not deleted by its name. Without a place (O(datacenter), O(folder),
        O(cluster), O(resource_pool) or O(esxi_host)) it is not stopped either.
      - A change that stops nothing, such as attaching a vGPU to a VM that is powered off, needs no mark if the name is
        unique.
    type: str
    default: vgpu.fleet
  adopt:
    description:
      - Whether to take over a VM that was made by other means. The module writes the mark of O(owner) and from then on
        treats the VM as its own. With O(state=absent), the VM is deleted without the mark.
      - A VM that carries the mark of another owner is only taken over if it is named by O(uuid) or O(moid).
    type: bool
    default: false
  state:
    description:
      - With V(present), the VM exists and has its devices, and its power is left alone.
      - With V(powered_on) and V(powered_off), it is started or stopped besides. Stopping is gentle unless
        O(power_cycle=hard).
      - With V(absent), the VM is deleted with its disks. It must carry the mark of O(owner), or be named by O(uuid) or
        O(moid), or O(adopt) must be V(true). A running VM is only deleted if O(power_cycle) allows to stop it.
    type: str
    choices: [present, powered_on, powered_off, absent]
    default: present
  vgpus:
    description:
      - The vGPUs of the VM. An empty list means none. Without the option they are left as they are.
      - What a template has counts, so a clone of a template with a vGPU gets no second one.
    type: list
    elements: dict
    suboptions:
      profile:
        description:
          - The profile, in any spelling. V(A40-8Q) finds V(nvidia_a40-8q). MIG profiles are named alike, such as
            V(grid_a100-3-20c).
        type: str
        required: true
      count:
        description:
          - How many of it.
        type: int
        default: 1
  pci_devices:
    description:
      - Whole devices by Dynamic DirectPath I/O, such as GPUs and network cards for GPUDirect. An empty list means none.
        Without the option they are left as they are.
      - Needs vSphere 7.0.
    type: list
    elements: dict
    suboptions:
      vendor_id:
        description:
          - The PCI vendor id, hexadecimal and in quotes, since YAML makes another number of V(0x10de). NVIDIA's is
            V(10de).
        type: str
        required: true
      device_id:
        description:
          - The PCI device id, hexadecimal and in quotes.
        type: str
        required: true
      count:
        description:
          - How many of it.
        type: int
        default: 1
      custom_label:
        description:
          - Only devices with this hardware label.
        type: str
  exclusive:
    description:
      - Whether O(vgpus) and O(pci_devices) are all that the VM shall have. With V(false), others stay, and so do more
        of the same.
    type: bool
    default: true
  prepare:
    description:
      - Whether to set what the devices need. The memory reservation is locked, the hardware version raised to 17, and
        for devices with 16 GB or more 64-bit MMIO is switched on with a region large enough. A larger region is kept.
      - Such devices need EFI as well, which is demanded and never changed, since an installed system would not boot any
        more.
      - With V(false), a warning tells what is missing.
    type: bool
    default: true
  power_cycle:
    description:
      - Whether a running VM may be stopped for a change that needs it.
      - With V(never), the task fails before it changes anything and tells what needs it.
      - With V(soft), the guest is asked to shut down, which takes VMware Tools.
      - With V(hard), it is powered off.
    type: str
    choices: [never, soft, hard]
    default: never
  power_off_timeout:
    description:
      - The most seconds to wait for a guest to shut down.
    type: int
    default: 300
  power_off_force:
    description:
      - Whether to power a VM off that did not shut down in time, or cannot since VMware Tools does not run in it.
    type: bool
    default: false
  discard_suspended:
    description:
      - Whether a suspended VM may be powered off, which loses what its memory holds. It stays off then, unless
        O(state=powered_on).
    type: bool
    default: false
  placement:
    description:
      - With V(auto), a host with room for all devices is looked for before anything is changed. If DRS is on it makes
        the choice, else the VM is started on the host that was found.
      - If no GPU of the host lists the VM within a minute after it started, the module warns and returns no
        RV(vm.gpus). The list may be behind; the VM keeps running.
      - With V(none), vSphere starts the VM where it likes.
    type: str
    choices: [auto, none]
    default: auto
  cpus:
    description:
      - The number of virtual CPUs. Also set on a VM that exists, as are O(memory_mb) and O(annotation).
    type: int
  memory_mb:
    description:
      - The memory in MB.
    type: int
  annotation:
    description:
      - The notes of the VM.
    type: str
  template:
    description:
      - The template, or VM, that a new VM is made from, by name or inventory path. It is only used if the VM does not
        exist, or if a former run did not finish it. A run that was cut off, or a VM that was kept after a failure,
        leaves the C(extraConfig) key C(vgpu.fleet.stage) at C(cloned). The next run with O(template) then writes what
        is missing, such as O(cloud_init). Until then the VM is not powered on.
    type: str
  linked_clone:
    description:
      - Whether a new VM shares the disk of O(template), which needs a snapshot for that. It keeps the disk's size.
    type: bool
    default: false
  cluster:
    description:
      - The cluster of the VM. Optional if the datacenter has only one.
    type: str
  resource_pool:
    description:
      - The resource pool of the VM, by name or by path below the cluster. By default a new VM is put into the root
        resource pool of its cluster.
    type: str
  esxi_host:
    description:
      - The host for a new VM, and the only one on which a VM is started. Patterns are not supported.
      - A VM that runs must run on this host. A VM that is powered off must be in the cluster of this host.
    type: str
  datastore:
    description:
      - The datastore for a new VM. By default that of O(template).
    type: str
  datastore_cluster:
    description:
      - The datastore cluster for a new VM, of which the datastore with the most free space is used.
    type: str
  storage_policy:
    description:
      - The storage policy for a new VM, by name.
    type: str
  disk_gb:
    description:
      - The size of the first disk of a new VM. It can only be larger than in O(template).
    type: int
  networks:
    description:
      - The network cards of a new VM. Those of O(template) are used in their order, added to or taken away.
      - Addresses are told to the guest through cloud-init.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - The network, that is a port group.
        type: str
        required: true
      mac:
        description:
          - The MAC address. By default vSphere makes one.
        type: str
      dhcp4:
        description:
          - Whether the guest asks for an address.
        type: bool
        default: false
      ip:
        description:
          - Addresses with prefix length, such as V(192.0.2.10/24).
        type: list
        elements: str
      gateway:
        description:
          - The default gateway.
        type: str
      dns:
        description:
          - Addresses of name servers.
        type: list
        elements: str
  cloud_init:
    description:
      - What cloud-init finds in a new VM, through C(guestinfo).
    type: dict
    suboptions:
      user_data:
        description:
          - The user data.
        type: str
      meta_data:
        description:
          - The meta data, as a mapping or as text. The VM's name is used as instance id and host name where a mapping
            has none.
          - It may hold secrets and is hidden as a whole, in the invocation too. Its values are not masked elsewhere in
            the result, where a host name may well be.
        type: raw
  keep_failed:
    description:
      - Whether a new VM that could not be finished or started is kept to be looked at.
      - Otherwise it is deleted, but only if this run created it, it has never been powered on and the failure is
        certain. After a timeout, a lost connection or an unknown fault, and while another task is in the way, the VM is
        kept and the error says so.
    type: bool
    default: false
  wait_timeout:
    description:
      - The most seconds to wait for any single task of vCenter.
    type: int
    default: 600
extends_documentation_fragment:
  - vgpu.fleet.vsphere
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: vCenter is asked whether it would make the VM, and from 6.7 on whether it would change or start it.
  diff_mode:
    support: full
  platform:
    platforms: posix
notes:
  - Removing the last vGPU leaves the memory reservation locked.
  - Needs the privileges C(VirtualMachine.Config.*) for what a task changes, C(VirtualMachine.Interact.PowerOn) and
    C(VirtualMachine.Interact.PowerOff) to start and stop, and for a new VM those of a clone. The page on VMs in the
    collection's documentation has the exact list. In check mode the role C(Read-only) is enough.
seealso:
  - module: vgpu.fleet.vsphere_gpu_host
  - module: vgpu.fleet.vsphere_gpu_info
  - module: vgpu.fleet.vgpu_availability
"""

EXAMPLES = r"""
- name: The VM runs with one vGPU, made from a template if need be
  vgpu.fleet.vsphere_vgpu_vm:
    name: trainer
    template: ubuntu-22.04-efi
    cluster: gpu
    cpus: 8
    memory_mb: 16384
    vgpus:
      - profile: A40-8Q
    state: powered_on

- name: It has two larger ones instead, and is restarted for it
  vgpu.fleet.vsphere_vgpu_vm:
    name: trainer
    vgpus:
      - profile: nvidia_a40-12q
        count: 2
    power_cycle: soft
    power_off_force: true
  register: trainer

- name: Where it runs is shown
  ansible.builtin.debug:
    msg: "{{ trainer.vm.name }} runs on {{ trainer.vm.node }}, on {{ trainer.vm.gpus | join(' and ') }}"

- name: A worker is made as Cluster API would make it
  vgpu.fleet.vsphere_vgpu_vm:
    name: worker-1
    datacenter: dc1
    cluster: gpu
    template: ubuntu-22.04-efi
    datastore: ds1
    cpus: 2
    memory_mb: 8192
    disk_gb: 25
    networks:
      - name: VM Network
        dhcp4: true
    cloud_init:
      user_data: |
        #cloud-config
        packages: [nfs-common]
    vgpus:
      - profile: A40-4Q
    state: powered_on

- name: The VM has no vGPU any more
  vgpu.fleet.vsphere_vgpu_vm:
    name: trainer
    vgpus: []
    power_cycle: hard

- name: Delete both VMs, which carry the mark of the default owner
  vgpu.fleet.vsphere_vgpu_vm:
    name: "{{ item }}"
    cluster: gpu
    state: absent
    power_cycle: hard
  loop: [trainer, worker-1]

- name: Take over a VM that was made by hand
  vgpu.fleet.vsphere_vgpu_vm:
    name: app-1
    cluster: gpu
    adopt: true
"""

RETURN = r"""
vm:
  description: The VM.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: trainer
    moid:
      description: Its managed object id. Null for a VM that would be created, or is not there.
      type: str
      sample: vm-42
    uuid:
      description: Its BIOS uuid.
      type: str
      sample: 4217f2b1-6a54-47be-bd1f-2a53e9b8b9d1
    folder:
      description: The inventory path of its folder. A slash in the name of a folder is shown as C(%2f).
      type: str
      sample: /dc1/vm
    owner:
      description: The owner that its mark names. Null for a VM without a mark.
      type: str
      sample: vgpu.fleet
    running:
      description: Whether it is powered on.
      type: bool
      sample: true
    power:
      description: V(on), V(off) or V(suspended).
      type: str
      sample: "on"
    node:
      description: The host it runs on. Not known for a stopped VM, nor in check mode for one that would be started.
      type: str
      sample: esx1
    gpus:
      description: The GPUs that list it. Empty if none does yet.
      type: list
      elements: str
      sample: [esx1-0000af000]
vgpus:
  description: The vGPUs that the VM has, sorted by profile.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: The profile as the cluster calls it.
      type: str
      sample: nvidia_a40-8q
    spellings:
      description: The profile in all its spellings.
      type: dict
      sample:
        type: NVIDIA A40-8Q
        short: A40-8Q
        resource: nvidia.com/NVIDIA_A40-8Q
        vsphere: nvidia_a40-8q
    device:
      description: The name of the device in the VM. Null in check mode for one that would be added.
      type: str
      sample: PCI device 0
    gpu:
      description: The GPU it is on, where the VM runs on only one.
      type: str
      sample: esx1-0000af000
pci_devices:
  description: The devices that the VM has by Dynamic DirectPath I/O.
  returned: success
  type: list
  elements: dict
  contains:
    vendor_id:
      description: The PCI vendor id.
      type: str
      sample: 10de
    device_id:
      description: The PCI device id.
      type: str
      sample: 20f1
    custom_label:
      description: The hardware label that it must have, or nothing.
      type: str
      sample: ""
    device:
      description: The name of the device in the VM. Null in check mode for one that would be added.
      type: str
      sample: PCI device 1
created:
  description: Whether the VM was created, or in check mode would be.
  returned: success
  type: bool
  sample: false
restarted:
  description: Whether the VM was stopped and started again, or in check mode would be.
  returned: success
  type: bool
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vgpu.fleet.plugins.module_utils.concealed_option import conceal
from ansible_collections.vgpu.fleet.plugins.module_utils.module import finish, reporting_errors
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.options import connection_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm import run as vm_task
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.request import request_of


def argument_spec() -> dict[str, dict[str, object]]:
    count = {"type": "int", "default": 1}
    vgpu = {"profile": {"type": "str", "required": True}, "count": count}
    pci_device = {
        "vendor_id": {"type": "str", "required": True},
        "device_id": {"type": "str", "required": True},
        "count": count,
        "custom_label": {"type": "str"},
    }
    network = {
        "name": {"type": "str", "required": True},
        "mac": {"type": "str"},
        "dhcp4": {"type": "bool", "default": False},
        "ip": {"type": "list", "elements": "str"},
        "gateway": {"type": "str"},
        "dns": {"type": "list", "elements": "str"},
    }
    states = ["present", "powered_on", "powered_off", "absent"]
    return {
        **connection_spec(),
        "name": {"type": "str"},
        "folder": {"type": "str"},
        "datacenter": {"type": "str"},
        "uuid": {"type": "str"},
        "moid": {"type": "str"},
        "owner": {"type": "str", "default": "vgpu.fleet"},
        "adopt": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": states, "default": "present"},
        "vgpus": {"type": "list", "elements": "dict", "options": vgpu},
        "pci_devices": {"type": "list", "elements": "dict", "options": pci_device},
        "exclusive": {"type": "bool", "default": True},
        "prepare": {"type": "bool", "default": True},
        "power_cycle": {"type": "str", "choices": ["never", "soft", "hard"], "default": "never"},
        "power_off_timeout": {"type": "int", "default": 300},
        "power_off_force": {"type": "bool", "default": False},
        "discard_suspended": {"type": "bool", "default": False},
        "placement": {"type": "str", "choices": ["auto", "none"], "default": "auto"},
        "cpus": {"type": "int"},
        "memory_mb": {"type": "int"},
        "annotation": {"type": "str"},
        "template": {"type": "str"},
        "linked_clone": {"type": "bool", "default": False},
        "cluster": {"type": "str"},
        "resource_pool": {"type": "str"},
        "esxi_host": {"type": "str"},
        "datastore": {"type": "str"},
        "datastore_cluster": {"type": "str"},
        "storage_policy": {"type": "str"},
        "disk_gb": {"type": "int"},
        "networks": {"type": "list", "elements": "dict", "options": network},
        "cloud_init": {
            "type": "dict",
            "options": {"user_data": {"type": "str", "no_log": True}, "meta_data": {"type": "raw", "no_log": True}},
        },
        "keep_failed": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 600},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(),
        required_one_of=[("name", "uuid", "moid")],
        mutually_exclusive=[("uuid", "moid"), ("datastore", "datastore_cluster")],
        required_by={"template": ["name"]},
        supports_check_mode=True,
    )
    with reporting_errors(module):
        request = request_of(module.params)
        conceal(module, "cloud_init", "meta_data")
        with Session.open(module.params) as session:
            result = vm_task.run(session, request, check_mode=module.check_mode)
        finish(module, result)


if __name__ == "__main__":
    main()
