#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_repair
short_description: Repair what Harvester's controllers lost or left behind
version_added: 0.1.0
description:
  - Repairs three things that no other change of a vGPU repairs. M(vgpu.fleet.harvester_gpu_info) reports them as
    findings, and the role P(vgpu.fleet.vgpu_drift#role) repairs them on request.
  - KubeVirt's list of permitted devices. The controllers of all nodes write this list, and up to Harvester 1.8 they
    lose entries and write others twice. KubeVirt starts no VM with a vGPU whose type is not in the list.
  - Claims (C(PCIDeviceClaim)) of vGPUs that do not exist any more, from Harvester 1.8 on. They remain if SR-IOV was
    disabled on a GPU with enabled vGPUs. The node still offers such a vGPU, and a new vGPU on the same device is
    offered under the old type.
  - vGPUs that are configured but that their node does not offer, from Harvester 1.8 on. The device plugin of a node
    loses count of a vGPU that is disabled and enabled again. Only a restart of the node's controller helps.
  - The module removes only claims that Harvester created for a vGPU, and only if the vGPU is disabled and no VM refers
    to it.
options:
  permitted_devices:
    description:
      - Whether to add the types of existing vGPUs that KubeVirt's list of permitted devices lacks, and to remove
        repeated entries. Other entries of the list stay as they are.
    type: bool
    default: false
  claims:
    description:
      - Names of claims to remove, or shell patterns. The name of a claim is the name of its vGPU device.
      - Claims that were not left behind are skipped if a pattern matches them. If such a claim is named in full, the
        task fails. A claim that does not exist is not an error.
      - The PCI device of the claim must exist, so SR-IOV must be enabled on its GPU.
    type: list
    elements: str
  controllers:
    description:
      - Names of nodes whose pcidevices controller to restart, or shell patterns. The module deletes the pod of the
        controller, and its DaemonSet creates a new one.
      - Only controllers of nodes that do not offer all their configured vGPUs are restarted. VMs keep running with
        their devices. No VM can start with a vGPU of the node until the controller is back.
    type: list
    elements: str
  wait:
    description:
      - Whether to wait until the claims are gone and the nodes offer their vGPUs.
    type: bool
    default: true
  wait_timeout:
    description:
      - Maximum time to wait until the claims are gone, and again until the nodes offer their vGPUs, in seconds.
      - For claims, defaults to 60 seconds, and 5 seconds more for each claim, because a node removes one claim after
        the other. For controllers, defaults to 180 seconds.
    type: int
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.fail_fast
attributes:
  check_mode:
    description: Predicts the changes and sends them as dry runs, which the cluster validates.
    support: full
  diff_mode:
    description: Shows the lists of permitted devices and the claims that change, and the pods that are restarted.
    support: full
seealso:
  - module: vgpu.fleet.harvester_gpu_info
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Permit all types of existing vGPUs in KubeVirt
  vgpu.fleet.harvester_repair:
    permitted_devices: true

- name: Remove all claims that vGPUs of a node left behind
  vgpu.fleet.harvester_repair:
    claims: ["gpu-a-*"]

- name: Restart the controllers of nodes that do not offer all their vGPUs
  vgpu.fleet.harvester_repair:
    controllers: ["*"]
"""

RETURN = r"""
permitted_devices:
  description: Changes to KubeVirt's list of permitted devices.
  returned: success
  type: dict
  contains:
    added:
      description: The resources that were added, or in check mode would be added.
      type: list
      elements: str
      sample: [nvidia.com/NVIDIA_A2-4Q]
    deduplicated:
      description: The resources whose repeated entries were removed, or in check mode would be removed.
      type: list
      elements: str
      sample: []
claims:
  description: The claims that were removed, or in check mode would be removed, sorted by name.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the claim.
      type: str
      sample: gpu-a-000008004
    node:
      description: The node of the claim.
      type: str
      sample: gpu-a
    resource:
      description: The resource as which the node offered the device.
      type: str
      sample: nvidia.com/NVIDIA_A2-4Q
controllers:
  description: The controllers that were restarted, or in check mode would be restarted, sorted by node.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: The node of the controller.
      type: str
      sample: gpu-a
    pod:
      description: The pod that was deleted.
      type: str
      sample: harvester-pcidevices-controller-x7k2p
    vgpus:
      description: The configured vGPUs that the node did not offer.
      type: list
      elements: str
      sample: [gpu-a-000008004]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.harvester.cluster import Cluster
from ..module_utils.harvester.repair.apply import Repair
from ..module_utils.harvester.repair.plan import RepairRequest
from ..module_utils.kube.options import connection_spec, fail_fast_spec
from ..module_utils.module import finish, reporting_errors


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **connection_spec(),
            **fail_fast_spec(),
            "permitted_devices": {"type": "bool", "default": False},
            "claims": {"type": "list", "elements": "str"},
            "controllers": {"type": "list", "elements": "str"},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int"},
        },
        supports_check_mode=True,
    )
    with reporting_errors(module):
        params = module.params
        request = RepairRequest.of(params)
        repair = Repair(
            Cluster.connect(params), request, module.check_mode, wait=params["wait"], seconds=params["wait_timeout"]
        )
        finish(module, repair.run())


if __name__ == "__main__":
    main()
