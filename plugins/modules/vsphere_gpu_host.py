#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_gpu_host
short_description: Manage the graphics settings of ESXi hosts and their GPUs
version_added: 0.1.0
description:
  - Prepares GPUs for vGPUs. Sets the graphics type, the assignment policy and the vGPU mode of hosts, for all or some
    of their NVIDIA GPUs.
  - A new graphics type or vGPU mode is pending until Xorg or the host restarts. The module restarts Xorg once, waits,
    and reports in RV(hosts[].reboot_required) whether a reboot is still required. Later tasks do not restart it again.
  - The module writes only settings that differ. Settings that are not given are not changed.
  - The module checks the GPUs of all hosts before any change. If a VM uses a GPU that would change, the task fails and
    names the VM, unless O(force=true).
  - The module skips hosts of a O(cluster) that have no NVIDIA GPUs.
  - O(cluster) or O(esxi_hosts) is required, so that a task does not change hosts unintentionally.
options:
  graphics_type:
    description:
      - GPUs with V(shared_direct) serve vGPUs. GPUs with V(shared) serve vSphere's own virtual graphics (vSGA).
      - Applies to the default of the hosts and to all their GPUs, except GPUs with their own type in O(devices) and
        GPUs in DirectPath I/O passthrough.
    type: str
    choices: [shared_direct, shared]
  assignment_policy:
    description:
      - How a host assigns GPUs to starting VMs. V(performance) spreads VMs over the GPUs of a host, V(consolidation)
        fills one GPU after the other, which keeps GPUs free for other profile sizes.
      - Effective immediately, for all VMs that start afterwards.
    type: str
    choices: [performance, consolidation]
  vgpu_mode:
    description:
      - With V(same_size), all vGPUs of a GPU have one size. With V(mixed_size), a GPU serves vGPUs of several sizes,
        but fewer vGPUs of some sizes.
      - Requires hosts with vSphere 8.0.3 or later. GPUs in MIG mode stay in MIG mode.
    type: str
    choices: [same_size, mixed_size]
  devices:
    description:
      - Settings of individual GPUs, which override those of the host.
      - An entry applies to every selected host that has a GPU with this PCI address. At least one host must have it.
    type: list
    elements: dict
    suboptions:
      pci_id:
        description:
          - The PCI address, such as V(0000:3b:00.0) or V(3b:00.0).
        type: str
        required: true
      graphics_type:
        description:
          - Same as O(graphics_type), for this GPU.
        type: str
        choices: [shared_direct, shared]
      vgpu_mode:
        description:
          - Same as O(vgpu_mode), for this GPU.
        type: str
        choices: [same_size, mixed_size]
  passthrough:
    description:
      - PCI devices to pass through to VMs as a whole (DirectPath I/O), or to return to the host, by vendor and device
        ID. An entry applies to all devices with these IDs on the selected hosts. At least one host must have one.
      - Devices that are not listed are not changed. If a VM uses a device that would be switched, the task fails and
        names the VM, also with O(force=true).
      - The setting is effective immediately, or after a reboot of the host. See RV(passthrough[].reboot_required).
      - If O(passthrough) is the only setting of the task, the graphics settings of the hosts are not changed and Xorg
        is not restarted. The hosts do not need NVIDIA GPUs then.
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
      enabled:
        description:
          - Whether VMs can use the devices. With V(false), the host uses them itself.
        type: bool
        default: true
  restart_xorg:
    description:
      - Whether to restart Xorg on hosts whose settings this task changes, if the change takes effect only with a
        restart.
      - Since vSphere 7.0 U1, vGPUs do not need Xorg, and it may not start. In that case the task returns a warning. It
        fails only if a GPU becomes V(shared), which needs Xorg, or if the host is older.
    type: bool
    default: true
  restart_pending:
    description:
      - Whether to restart Xorg also on hosts with pending settings that an earlier task has written, for example if
        that task was interrupted before the restart.
      - By default such hosts only cause a warning, since the settings may wait for a reboot.
    type: bool
    default: false
  interrupt_vsga:
    description:
      - Whether Xorg may restart on hosts with running VMs that use vSphere's own virtual graphics (vSGA), which
        interrupts their sessions. By default the task fails and names these VMs.
    type: bool
    default: false
  force:
    description:
      - Whether to configure GPUs that VMs use. The settings of these GPUs take effect after a reboot.
    type: bool
    default: false
  wait_timeout:
    description:
      - Maximum time to wait for all hosts after the restart of Xorg, in seconds.
      - With V(0), the module does not wait.
    type: int
    default: 60
extends_documentation_fragment:
  - vgpu.fleet.vsphere
  - vgpu.fleet.vsphere.hosts
attributes:
  check_mode:
    description: Predicts the result of the run. The profiles that a GPU will offer come from a catalog.
    support: full
  diff_mode:
    description: Shows the settings of each changed host.
    support: full
notes:
  - Requires the privilege C(Host.Config.Settings) on the hosts, C(Host.Config.NetService) to restart Xorg, and
    C(Host.Config.PciPassthru) for O(passthrough).
seealso:
  - module: vgpu.fleet.vsphere_gpu_info
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Prepare all GPUs of a cluster for vGPUs and fill one GPU after the other
  vgpu.fleet.vsphere_gpu_host:
    cluster: gpu
    graphics_type: shared_direct
    assignment_policy: consolidation

- name: Enable mixed-size vGPUs on two hosts, which requires vSphere 8.0.3
  vgpu.fleet.vsphere_gpu_host:
    esxi_hosts:
      - esx1
      - esx2
    vgpu_mode: mixed_size

- name: Use one GPU for virtual graphics and all other GPUs for vGPUs
  vgpu.fleet.vsphere_gpu_host:
    esxi_hosts: [esx1]
    graphics_type: shared_direct
    devices:
      - pci_id: "0000:3d:00.0"
        graphics_type: shared
  register: prepared

- name: Pass all A40 GPUs and ConnectX-7 adapters of a host through to VMs
  vgpu.fleet.vsphere_gpu_host:
    esxi_hosts: [esx2]
    passthrough:
      - vendor_id: "10de"
        device_id: "2235"
      - vendor_id: "15b3"
        device_id: "1021"

- name: Show the hosts that require a reboot
  ansible.builtin.debug:
    msg: "{{ prepared.hosts | selectattr('reboot_required') | map(attribute='name') | list }}"
"""

RETURN = r"""
hosts:
  description: The GPU hosts after the run, or as predicted in check mode, ordered by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the host.
      type: str
      sample: esx1
    cluster:
      description: Cluster of the host.
      type: str
      sample: gpu
    version:
      description: Version of the host.
      type: str
      sample: 8.0.3
    graphics_type:
      description: Default graphics type of the host.
      type: str
      sample: shared_direct
    assignment_policy:
      description: Assignment policy of the host.
      type: str
      sample: consolidation
    devices:
      description: NVIDIA GPUs of the host, ordered by address.
      type: list
      elements: dict
      contains:
        pci_id:
          description: PCI address of the GPU.
          type: str
          sample: "0000:3b:00.0"
        graphics_type:
          description: Effective graphics type.
          type: str
          sample: shared_direct
        configured_graphics_type:
          description: Configured graphics type.
          type: str
          sample: shared_direct
        vgpu_mode:
          description: Effective vGPU mode, V(mig) for MIG mode, or null if the GPU has no mode.
          type: str
          sample: same_size
        configured_vgpu_mode:
          description: Configured vGPU mode, or null.
          type: str
          sample: same_size
        pending:
          description: Whether the configured settings are not effective yet.
          type: bool
          sample: false
    pending:
      description: Whether any GPU of the host has pending settings.
      type: bool
      sample: false
    reboot_required:
      description: Whether pending settings require a reboot, since Xorg was already restarted or VMs use the GPU.
      type: bool
      sample: false
gpus:
  description: The GPUs of these hosts, in the format of M(vgpu.fleet.vsphere_gpu_info).
  returned: success
  type: list
  elements: dict
  sample: []
passthrough:
  description: The devices with the IDs in O(passthrough), ordered by host and address.
  returned: success
  type: list
  elements: dict
  contains:
    host:
      description: Name of the host.
      type: str
      sample: esx2
    pci_id:
      description: PCI address of the device.
      type: str
      sample: "0000:3b:00.0"
    vendor_id:
      description: PCI vendor ID.
      type: str
      sample: 10de
    device_id:
      description: PCI device ID.
      type: str
      sample: "2235"
    device_name:
      description: Name of the device.
      type: str
      sample: NVIDIA A40
    enabled:
      description: Whether passthrough is configured.
      type: bool
      sample: true
    active:
      description: Whether passthrough is effective.
      type: bool
      sample: true
    vms:
      description: VMs that use the device, as far as known.
      type: list
      elements: str
      sample: []
    reboot_required:
      description: Whether the setting takes effect after a reboot of the host.
      type: bool
      sample: false
restarted:
  description: The hosts on which Xorg was restarted, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [esx1]
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import FleetError, NothingSelected
from ..module_utils.module import finish, reporting_errors
from ..module_utils.planning.request import refuse_empty
from ..module_utils.vsphere import privileges
from ..module_utils.vsphere.host import passthrough as host_passthrough, plan as host_graphics
from ..module_utils.vsphere.host.result import HostGraphicsResult
from ..module_utils.vsphere.options import connection_spec, hosts_of, hosts_spec
from ..module_utils.vsphere.read import fleet as snapshot, passthrough as read_passthrough
from ..module_utils.vsphere.read.inventory import TYPES, VGPU_MODES
from ..module_utils.vsphere.session import Session


def argument_spec() -> dict[str, dict[str, object]]:
    types, modes = list(TYPES), list(VGPU_MODES)
    device = {
        "pci_id": {"type": "str", "required": True},
        "graphics_type": {"type": "str", "choices": types},
        "vgpu_mode": {"type": "str", "choices": modes},
    }
    return {
        **connection_spec(),
        **hosts_spec(),
        "graphics_type": {"type": "str", "choices": types},
        "assignment_policy": {"type": "str", "choices": ["performance", "consolidation"]},
        "vgpu_mode": {"type": "str", "choices": modes},
        "devices": {"type": "list", "elements": "dict", "options": device},
        # The name contains "pass", but there is no secret in it.
        "passthrough": {
            "no_log": False,
            "type": "list",
            "elements": "dict",
            "options": {
                "vendor_id": {"type": "str", "required": True},
                "device_id": {"type": "str", "required": True},
                "enabled": {"type": "bool", "default": True},
            },
        },
        "restart_xorg": {"type": "bool", "default": True},
        "restart_pending": {"type": "bool", "default": False},
        "interrupt_vsga": {"type": "bool", "default": False},
        "force": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 60},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(), required_one_of=[("cluster", "esxi_hosts")], supports_check_mode=True
    )
    with reporting_errors(module):
        params = module.params
        refuse_empty(esxi_hosts=params["esxi_hosts"])
        if not params["cluster"] and not params["esxi_hosts"]:
            # Empty options must not select every host.
            raise NothingSelected(
                "Neither cluster nor esxi_hosts names a host.", hint="Give one of them. Nothing was changed."
            )
        request = host_graphics.HostGraphicsRequest.from_options(params)
        switching = host_passthrough.PassthroughRequest.from_options(params["passthrough"])
        with Session.open(params) as session:
            found = snapshot.read(session, **hosts_of(params))
            if switching.ids and request.empty:
                plan = host_graphics.unchanged(found)
            else:
                plan = host_graphics.plan(
                    found,
                    request,
                    named=params["esxi_hosts"] or [],
                    restart_xorg=params["restart_xorg"],
                    restart_pending=params["restart_pending"],
                    interrupt_vsga=params["interrupt_vsga"],
                    force=params["force"],
                )
            hosts = found.inventory.hosts
            devices = read_passthrough.read(session, hosts, switching.ids) if switching.ids else []
            switch = host_passthrough.plan(devices, switching)
            if not module.check_mode:
                privileges.require(session, host_passthrough.needed_privileges(plan, switch))
            if plan.changed and not module.check_mode:
                # Import on demand, since most tasks change nothing.
                from ..module_utils.vsphere.host.apply import apply

                applied = apply(session, plan, seconds=params["wait_timeout"])
                result = HostGraphicsResult(plan, applied.snapshot, applied.restarted, applied.warnings)
            else:
                result = HostGraphicsResult(plan, plan.preview(), tuple(plan.restarts))
            if switch.changed and not module.check_mode:
                from ..module_utils.vsphere.host import apply_passthrough

                with changed_by(plan):
                    apply_passthrough.apply(session, switch, seconds=params["wait_timeout"])
                    after = plan.of_its_hosts(snapshot.read(session, **hosts_of(params)))
                    devices = read_passthrough.read(session, hosts, switching.ids)
            else:
                after, devices = host_passthrough.predicted(result.after, switch), switch.preview()
        finish(module, host_passthrough.PassthroughResult(replace(result, after=after), switch, tuple(devices)))


@contextmanager
def changed_by(plan: host_graphics.Plan) -> Iterator[None]:
    """Report in errors that earlier steps have changed something."""
    try:
        yield
    except FleetError as error:
        error.changed = error.changed or plan.changed
        raise


if __name__ == "__main__":
    main()
