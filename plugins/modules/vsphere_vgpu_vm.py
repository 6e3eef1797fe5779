#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_vgpu_vm
short_description: Manage the vGPUs of a VM on vSphere
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Attaches vGPUs, whole PCI devices and vendor device groups to a VM, or detaches them, in one change. Creates the VM
    from O(template) if the VM does not exist.
  - The module also sets what a VM with these devices requires, which is reserved memory, a recent hardware version and
    a large enough MMIO region. See O(prepare).
  - Stops a running VM only if a change requires it and O(power_cycle) permits it, and starts the VM again afterwards.
  - Before any change, the module verifies that a host offers the profiles, that they can be combined in one VM and, if
    the VM has to run, that a host has free capacity for them.
  - The module adds and removes devices of a device group only with their group, does not change other kinds of
    passthrough devices, and does not move running VMs.
  - The module marks every VM that it creates with O(owner), and deletes a VM by name only if the VM has this mark. See
    O(owner), O(adopt) and O(uuid) for VMs that were created by other means.
  - An existing VM has to match O(datacenter), O(folder), O(cluster), O(resource_pool) and O(esxi_host). Otherwise the
    task fails before any change, and the error contains the inventory path of the VM.
options:
  name:
    description:
      - The name of the VM. If several VMs have this name, also set O(folder) and O(datacenter).
      - Write the name as the vSphere client shows it, also if it contains a slash or a percent sign.
    type: str
  folder:
    description:
      - The VM folder, such as V(team/ml) or V(/dc1/vm/team/ml). Defaults to the top folder for new VMs.
      - If the name of a folder contains a slash, write it as C(%2f).
      - With O(folder) and either O(datacenter) or a path that begins with a slash, the module finds a VM in one call,
        regardless of the number of VMs.
    type: str
  datacenter:
    description:
      - The datacenter, by name or by inventory path, such as V(dc1) or V(/emea/dc1).
      - Optional if there is only one datacenter, or if O(name) is unique.
    type: str
  uuid:
    description:
      - The BIOS UUID or the instance UUID of the VM.
      - Identifies the VM uniquely, so that the mark of O(owner) is not required.
    type: str
  moid:
    description:
      - The managed object ID of the VM, such as V(vm-42).
      - Identifies the VM uniquely, so that the mark of O(owner) is not required.
    type: str
  owner:
    description:
      - The owner of the VM, such as a team. The module writes the owner to the C(extraConfig) key C(vgpu.fleet.owner)
        of every VM that it creates.
      - The module does not change a VM of another owner by name.
      - The module does not delete a VM without the mark of this owner by name. It does not stop such a VM either,
        unless the task sets O(datacenter), O(folder), O(cluster), O(resource_pool) or O(esxi_host).
      - Changes that do not stop a VM, such as attaching a vGPU to a powered-off VM, do not require the mark if the name
        is unique.
    type: str
    default: vgpu.fleet
  adopt:
    description:
      - Whether to take over a VM that was created by other means. The module writes the mark of O(owner) and treats the
        VM as its own from then on. With O(state=absent), the module deletes the VM without requiring the mark.
      - To take over a VM with the mark of another owner, identify the VM by O(uuid) or O(moid).
    type: bool
    default: false
  state:
    description:
      - With V(present), the module ensures that the VM exists with its devices, and keeps its power state.
      - With V(powered_on) and V(powered_off), the module also starts or stops the VM. It shuts down the guest unless
        O(power_cycle=hard).
      - With V(absent), the module deletes the VM with its disks. The VM must have the mark of O(owner), or be
        identified by O(uuid) or O(moid), or O(adopt) must be V(true). The module deletes a running VM only if
        O(power_cycle) permits stopping it.
    type: str
    choices: [present, powered_on, powered_off, absent]
    default: present
  vgpus:
    description:
      - The vGPUs of the VM. An empty list removes all vGPUs. If not set, the vGPUs are not changed.
      - The vGPUs of a template count, so that the clone of a template with a vGPU does not get a second vGPU.
    type: list
    elements: dict
    suboptions:
      profile:
        description:
          - The profile, in any spelling. For example, V(A40-8Q) matches V(nvidia_a40-8q). The same applies to MIG
            profiles, such as V(grid_a100-3-20c).
        type: str
        required: true
      count:
        description:
          - Number of vGPUs of this profile.
        type: int
        default: 1
  pci_devices:
    description:
      - Whole PCI devices of the VM through Dynamic DirectPath I/O, such as GPUs and network cards for GPUDirect. An
        empty list removes all such devices. If not set, the devices are not changed.
      - Requires vSphere 7.0 or later.
    type: list
    elements: dict
    suboptions:
      vendor_id:
        description:
          - The hexadecimal PCI vendor ID, such as V(10de) for NVIDIA. Quote the value, since YAML converts V(0x10de) to
            a decimal number.
        type: str
        required: true
      device_id:
        description:
          - The hexadecimal PCI device ID. Quote the value.
        type: str
        required: true
      count:
        description:
          - Number of devices with these IDs.
        type: int
        default: 1
      custom_label:
        description:
          - The hardware label that the devices must have.
        type: str
  device_groups:
    description:
      - Vendor device groups of the VM, such as GPUs that NVLink connects, or a GPU with the network card for GPUDirect
        RDMA. The VM gets all devices of a group from one host, and loses them together.
      - An empty list removes all device groups with their devices. If not set, the device groups are not changed.
      - M(vgpu.fleet.vsphere_gpu_info) returns the groups that each host offers. Devices that can be configured, such
        as SR-IOV network cards, keep the settings that the host proposes.
      - Requires vSphere 8.0 or later. With O(prepare), the module upgrades the hardware version to 20.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - The name of the group, as the host offers it.
        type: str
        required: true
      count:
        description:
          - Number of groups of this name.
        type: int
        default: 1
  exclusive:
    description:
      - Whether to remove devices that are not in O(vgpus), O(pci_devices) or O(device_groups). With V(false), the VM
        keeps all its devices, including surplus devices of a listed profile or ID.
    type: bool
    default: true
  prepare:
    description:
      - Whether to set what the devices require. The module locks the memory reservation, upgrades the hardware version
        to 17 and, if the devices need it, enables 64-bit MMIO with a large enough region. It keeps a larger region.
      - An MMIO region is needed in VMs with 32 GB of memory or more (the size depends on the board), for devices with
        16 GB or more, and for vGPUs of series C. Such VMs also require EFI. The module does not change the firmware,
        since an installed system would no longer boot. The task fails instead.
      - With V(false), the module returns a warning with the missing settings.
    type: bool
    default: true
  power_cycle:
    description:
      - Whether the module may stop a running VM for changes that require a powered-off VM.
      - With V(never), the task fails before any change and names the changes that require it.
      - With V(soft), the module shuts down the guest, which requires VMware Tools.
      - With V(hard), the module powers off the VM.
    type: str
    choices: [never, soft, hard]
    default: never
  power_off_timeout:
    description:
      - Maximum time to wait for the guest to shut down, in seconds.
    type: int
    default: 300
  power_off_force:
    description:
      - Whether to power off a VM that does not shut down in time or in which VMware Tools does not run.
    type: bool
    default: false
  discard_suspended:
    description:
      - Whether the module may power off a suspended VM, which discards the content of its memory. The VM then stays
        off, unless O(state=powered_on).
    type: bool
    default: false
  placement:
    description:
      - How to choose the host of the VM.
      - With V(auto), the module finds a host with free capacity for all devices before any change. If DRS is enabled,
        DRS chooses the host. Otherwise, the module starts the VM on the host that it found.
      - vCenter 9.0 and later reports the free vGPUs and device groups of each host. The module uses these numbers and
        returns a warning if its own count differs. Before 9.0, hosts do not report which device groups are free.
      - If no GPU of the host lists the VM within a minute after its start, the module returns a warning and no
        RV(vm.gpus). The list may be outdated; the VM keeps running.
      - With V(none), vSphere chooses the host.
    type: str
    choices: [auto, none]
    default: auto
  cpus:
    description:
      - Number of virtual CPUs. Like O(memory_mb) and O(annotation), the option also applies to existing VMs.
    type: int
  memory_mb:
    description:
      - Memory in MB.
    type: int
  annotation:
    description:
      - The notes of the VM.
    type: str
  template:
    description:
      - The template or VM from which to create a new VM, by name or inventory path. Used only if the VM does not exist,
        or if an earlier run did not complete its creation.
      - After an interrupted run, or if a VM was kept after a failure, the C(extraConfig) key C(vgpu.fleet.stage) of the
        VM is C(cloned). The next run with O(template) writes the missing data, such as O(cloud_init). The module does
        not power on the VM before that.
    type: str
  linked_clone:
    description:
      - Whether a new VM shares the disk of O(template), which must have a VM snapshot. The size of the disk cannot be
        changed.
    type: bool
    default: false
  cluster:
    description:
      - The cluster of the VM. Optional if the datacenter has only one cluster.
    type: str
  resource_pool:
    description:
      - The resource pool of the VM, by name or by path below the cluster. For new VMs, defaults to the root resource
        pool of the cluster.
    type: str
  esxi_host:
    description:
      - The host for a new VM, and the only host on which the module starts the VM. Patterns are not supported.
      - A running VM must run on this host. A powered-off VM must be in the cluster of this host.
    type: str
  datastore:
    description:
      - The datastore for a new VM. Defaults to the datastore of O(template).
    type: str
  datastore_cluster:
    description:
      - The datastore cluster for a new VM. The module uses the datastore with the most free space.
    type: str
  storage_policy:
    description:
      - The storage policy for a new VM, by name.
    type: str
  disk_gb:
    description:
      - Size of the first disk of a new VM, in GB. Must not be smaller than the disk of O(template).
    type: int
  networks:
    description:
      - The network cards of a new VM. The module connects the cards of O(template) in order, and adds or removes cards
        as needed.
      - The guest gets its addresses through cloud-init.
    type: list
    elements: dict
    suboptions:
      name:
        description:
          - The name of the network (port group).
        type: str
        required: true
      mac:
        description:
          - The MAC address. By default, vSphere generates the address.
        type: str
      dhcp4:
        description:
          - Whether the guest uses DHCP for IPv4.
        type: bool
        default: false
      ip:
        description:
          - IP addresses with prefix length, such as V(192.0.2.10/24).
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
      - Data for cloud-init in a new VM, passed through C(guestinfo).
    type: dict
    suboptions:
      user_data:
        description:
          - The user data.
        type: str
      meta_data:
        description:
          - The metadata, as a mapping or as text. In a mapping, the instance ID and the host name default to the name
            of the VM.
          - May contain secrets. The module hides the whole option, also in the invocation. Values of the metadata that
            occur elsewhere in the result, such as a host name, are not masked.
        type: raw
  keep_failed:
    description:
      - Whether to keep a new VM that could not be completed or started, for troubleshooting.
      - With V(false), the module deletes the VM, but only if this run created it, it has never been powered on and the
        failure is certain. After a timeout, a lost connection, an unknown fault or a conflict with another task, the
        module keeps the VM and says so in the error.
    type: bool
    default: false
  wait_timeout:
    description:
      - Maximum time to wait for each vCenter task, in seconds.
    type: int
    default: 600
extends_documentation_fragment:
  - vgpu.fleet.vsphere
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: vCenter validates the creation of a VM in a dry run, and since 6.7 also its reconfiguration and start.
  diff_mode:
    support: full
  platform:
    platforms: posix
notes:
  - The memory reservation stays locked after the last vGPU is removed.
  - Requires the privileges C(VirtualMachine.Config.*) for the settings that a task changes,
    C(VirtualMachine.Interact.PowerOn) and C(VirtualMachine.Interact.PowerOff) to start and stop the VM, and for a new
    VM the privileges to clone. The page on VMs in the collection's documentation has the exact list. In check mode, the
    role C(Read-only) is sufficient, and with O(storage_policy) the privilege C(StorageProfile.View).
seealso:
  - module: vgpu.fleet.vsphere_gpu_host
  - module: vgpu.fleet.vsphere_gpu_info
  - module: vgpu.fleet.vgpu_availability
"""

EXAMPLES = r"""
- name: Run a VM with one vGPU, and create it from a template if needed
  vgpu.fleet.vsphere_vgpu_vm:
    name: trainer
    template: ubuntu-22.04-efi
    cluster: gpu
    cpus: 8
    memory_mb: 16384
    vgpus:
      - profile: A40-8Q
    state: powered_on

- name: Replace the vGPU with two larger vGPUs, and restart the VM if needed
  vgpu.fleet.vsphere_vgpu_vm:
    name: trainer
    vgpus:
      - profile: nvidia_a40-12q
        count: 2
    power_cycle: soft
    power_off_force: true
  register: trainer

- name: Show the host and the GPUs of the VM
  ansible.builtin.debug:
    msg: "{{ trainer.vm.name }} runs on {{ trainer.vm.node }}, on {{ trainer.vm.gpus | join(' and ') }}"

- name: Create a worker VM with cloud-init, as Cluster API does
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

- name: Remove all vGPUs from the VM
  vgpu.fleet.vsphere_vgpu_vm:
    name: trainer
    vgpus: []
    power_cycle: hard

- name: Delete both VMs, which have the mark of the default owner
  vgpu.fleet.vsphere_vgpu_vm:
    name: "{{ item }}"
    cluster: gpu
    state: absent
    power_cycle: hard
  loop: [trainer, worker-1]

- name: Give a VM two GPUs that NVLink connects, as one device group
  vgpu.fleet.vsphere_vgpu_vm:
    name: trainer-nvlink
    template: ubuntu-22.04-efi
    cluster: gpu
    device_groups:
      - name: Nvidia:2@nvidia_a40-48q%NVLink
    state: powered_on

- name: Take over a VM that was created manually
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
      description: Name of the VM.
      type: str
      sample: trainer
    moid:
      description: Managed object ID. Null if the VM does not exist, and in check mode for a VM that would be created.
      type: str
      sample: vm-42
    uuid:
      description: BIOS UUID of the VM.
      type: str
      sample: 4217f2b1-6a54-47be-bd1f-2a53e9b8b9d1
    folder:
      description: Inventory path of the VM's folder. A slash in the name of a folder is shown as C(%2f).
      type: str
      sample: /dc1/vm
    owner:
      description: Owner of the VM. Null for a VM without an owner mark.
      type: str
      sample: vgpu.fleet
    running:
      description: Whether the VM is powered on.
      type: bool
      sample: true
    power:
      description: Power state, V(on), V(off) or V(suspended).
      type: str
      sample: "on"
    node:
      description: Host on which the VM runs. Null for a stopped VM, and in check mode for a VM that would be started.
      type: str
      sample: esx1
    gpus:
      description: GPUs that list the VM. Empty if no GPU lists it yet.
      type: list
      elements: str
      sample: [esx1-0000af000]
vgpus:
  description: The vGPUs of the VM, sorted by profile.
  returned: success
  type: list
  elements: dict
  contains:
    profile:
      description: Profile, in the spelling of vSphere.
      type: str
      sample: nvidia_a40-8q
    spellings:
      description: All spellings of the profile.
      type: dict
      sample:
        type: NVIDIA A40-8Q
        short: A40-8Q
        resource: nvidia.com/NVIDIA_A40-8Q
        vsphere: nvidia_a40-8q
    device:
      description: Name of the device in the VM. Null in check mode for a device that would be added.
      type: str
      sample: PCI device 0
    gpu:
      description: GPU of the vGPU, if only one GPU lists the VM.
      type: str
      sample: esx1-0000af000
pci_devices:
  description: The Dynamic DirectPath I/O devices of the VM.
  returned: success
  type: list
  elements: dict
  contains:
    vendor_id:
      description: PCI vendor ID.
      type: str
      sample: 10de
    device_id:
      description: PCI device ID.
      type: str
      sample: 20f1
    custom_label:
      description: Hardware label that the device must have, or an empty string.
      type: str
      sample: ""
    device:
      description: Name of the device in the VM. Null in check mode for a device that would be added.
      type: str
      sample: PCI device 1
device_groups:
  description: The vendor device groups of the VM, sorted by name. Their devices are not part of C(vgpus) and
    C(pci_devices).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the group.
      type: str
      sample: Nvidia:2@nvidia_a40-48q%NVLink
    devices:
      description: Names of the devices in the VM. Empty in check mode for a group that would be added.
      type: list
      elements: str
      sample: [PCI device 0, PCI device 1]
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

from ..module_utils.concealed_option import conceal
from ..module_utils.device_options import device_spec
from ..module_utils.module import finish, reporting_errors
from ..module_utils.vsphere.options import connection_spec
from ..module_utils.vsphere.session import Session
from ..module_utils.vsphere.vm import run as vm_task
from ..module_utils.vsphere.vm.request import request_of


def argument_spec() -> dict[str, dict[str, object]]:
    device_group = {"name": {"type": "str", "required": True}, "count": {"type": "int", "default": 1}}
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
        **device_spec(),
        "device_groups": {"type": "list", "elements": "dict", "options": device_group},
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
