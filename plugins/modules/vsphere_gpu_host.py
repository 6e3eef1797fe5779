#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vsphere_gpu_host
short_description: Prepare the GPUs of ESXi hosts for vGPUs
version_added: 0.1.0
description:
  - Sets the graphics type, the assignment policy and the vGPU mode of hosts, for all their NVIDIA GPUs or for some.
  - A graphics type or vGPU mode is configured first and in force when Xorg or the host has restarted. The module
    restarts Xorg, waits, and tells in RV(hosts[].reboot_required) if that was not enough.
  - Only what differs is written. What is not given stays as it is.
  - The GPUs of all hosts are looked at before anything is changed. While a VM uses a GPU that would change, the task
    fails and names the VM, unless O(force=true).
  - Hosts of a O(cluster) without NVIDIA GPUs are left alone.
  - O(cluster) or O(esxi_hosts) is required, so that no host is changed that the task does not name.
options:
  graphics_type:
    description:
      - V(shared_direct) serves vGPUs. V(shared) serves vSphere's own virtual graphics (vSGA).
      - Becomes the default of the hosts and the type of all their GPUs, other than those in O(devices) and those that
        are given away whole by DirectPath I/O.
    type: str
    choices: [shared_direct, shared]
  assignment_policy:
    description:
      - V(performance) spreads VMs over the GPUs of a host, V(consolidation) fills one GPU after the other. The latter
        keeps GPUs free for other profile sizes.
      - In force at once, for VMs that start from then on.
    type: str
    choices: [performance, consolidation]
  vgpu_mode:
    description:
      - V(same_size) lets a GPU serve vGPUs of one size at a time, V(mixed_size) of several, though fewer of some.
      - Needs hosts of vSphere 8.0.3 or later. GPUs in MIG mode keep it.
    type: str
    choices: [same_size, mixed_size]
  devices:
    description:
      - GPUs that are to be different from the others.
      - A PCI id is looked for on each of the hosts, and has to be on one of them at least.
    type: list
    elements: dict
    suboptions:
      pci_id:
        description:
          - The PCI id, such as V(0000:3b:00.0) or V(3b:00.0).
        type: str
        required: true
      graphics_type:
        description:
          - As O(graphics_type), for this GPU.
        type: str
        choices: [shared_direct, shared]
      vgpu_mode:
        description:
          - As O(vgpu_mode), for this GPU.
        type: str
        choices: [same_size, mixed_size]
  restart_xorg:
    description:
      - Whether to restart Xorg on hosts where something is configured and not yet in force, also from earlier.
      - Sessions of VMs with vSphere's own virtual graphics on such a host are interrupted.
    type: bool
    default: true
  force:
    description:
      - Whether to configure GPUs that VMs use. What is configured there comes into force after a reboot.
    type: bool
    default: false
  wait_timeout:
    description:
      - How many seconds to wait for all hosts together after Xorg was restarted.
      - With V(0) nothing is waited for.
    type: int
    default: 60
extends_documentation_fragment:
  - vgpu.fleet.vsphere
  - vgpu.fleet.vsphere.hosts
attributes:
  check_mode:
    description: Predicts what the run would do. Which profiles a GPU will offer is taken from a table.
    support: full
  diff_mode:
    description: Shows the settings of each host that changes.
    support: full
notes:
  - Needs the privilege C(Host.Config.Settings) on the hosts, and C(Host.Config.NetService) to restart Xorg.
seealso:
  - module: vgpu.fleet.vsphere_gpu_info
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: All GPUs of a cluster serve vGPUs, and are filled one after the other
  vgpu.fleet.vsphere_gpu_host:
    cluster: gpu
    graphics_type: shared_direct
    assignment_policy: consolidation

- name: The GPUs of two hosts take vGPUs of several sizes, which needs vSphere 8.0.3
  vgpu.fleet.vsphere_gpu_host:
    esxi_hosts:
      - esx1
      - esx2
    vgpu_mode: mixed_size

- name: One GPU serves ordinary virtual graphics, the others vGPUs
  vgpu.fleet.vsphere_gpu_host:
    esxi_hosts: [esx1]
    graphics_type: shared_direct
    devices:
      - pci_id: "0000:3d:00.0"
        graphics_type: shared
  register: prepared

- name: Hosts that have to be rebooted are shown
  ansible.builtin.debug:
    msg: "{{ prepared.hosts | selectattr('reboot_required') | map(attribute='name') | list }}"
"""

RETURN = r"""
hosts:
  description: The GPU hosts as they are now, or in check mode as they would be, ordered by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the host.
      type: str
      sample: esx1
    cluster:
      description: Its cluster.
      type: str
      sample: gpu
    version:
      description: Its version.
      type: str
      sample: 8.0.3
    graphics_type:
      description: Its default graphics type.
      type: str
      sample: shared_direct
    assignment_policy:
      description: Its assignment policy.
      type: str
      sample: consolidation
    devices:
      description: Its NVIDIA GPUs by address.
      type: list
      elements: dict
      contains:
        pci_id:
          description: The PCI id.
          type: str
          sample: "0000:3b:00.0"
        graphics_type:
          description: The graphics type in force.
          type: str
          sample: shared_direct
        configured_graphics_type:
          description: The graphics type that is configured.
          type: str
          sample: shared_direct
        vgpu_mode:
          description: The vGPU mode in force; null where there is none, V(mig) for MIG.
          type: str
          sample: same_size
        configured_vgpu_mode:
          description: The vGPU mode that is configured, or null.
          type: str
          sample: same_size
        pending:
          description: Whether what is configured is not in force yet.
          type: bool
          sample: false
    pending:
      description: Whether that is so of any of its GPUs.
      type: bool
      sample: false
    reboot_required:
      description: Whether only a reboot is left to bring it into force, since Xorg was restarted or VMs use the GPU.
      type: bool
      sample: false
gpus:
  description: The GPUs of these hosts, as M(vgpu.fleet.vsphere_gpu_info) returns them.
  returned: success
  type: list
  elements: dict
  sample: []
restarted:
  description: The hosts on which Xorg was restarted, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [esx1]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vgpu.fleet.plugins.module_utils.module import finish, reporting_errors
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import NothingSelected, refuse_empty
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.host import plan as host_graphics
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.host.result import HostGraphicsResult
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.options import connection_spec, hosts_of, hosts_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read import fleet as snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session


def argument_spec() -> dict[str, dict[str, object]]:
    types, modes = list(host_graphics.TYPES), list(host_graphics.VGPU_MODES)
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
        "restart_xorg": {"type": "bool", "default": True},
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
            # Both options can be empty. That must not select every host.
            raise NothingSelected(
                "Neither cluster nor esxi_hosts names a host.", hint="Give one of them. Nothing was changed."
            )
        request = host_graphics.HostGraphicsRequest.from_options(params)
        with Session.open(params) as session:
            plan = host_graphics.plan(
                snapshot.read(session, **hosts_of(params)),
                request,
                named=params["esxi_hosts"] or [],
                restart_xorg=params["restart_xorg"],
                force=params["force"],
            )
            if plan.changed and not module.check_mode:
                # Imported here: most tasks find nothing to change.
                from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.host.apply import apply

                after = apply(session, plan, seconds=params["wait_timeout"])
            else:
                after = plan.preview()
        finish(module, HostGraphicsResult(plan, after))


if __name__ == "__main__":
    main()
