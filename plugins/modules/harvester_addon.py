#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_addon
short_description: Enable, configure or disable a Harvester addon
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Enables or disables a Harvester addon, changes its values, and waits until Harvester has finished.
  - vGPUs require two addons. Enable V(pcidevices-controller) first, which discovers the GPUs, then
    V(nvidia-driver-toolkit), which builds NVIDIA's vGPU host driver on every node with a GPU.
  - Harvester reports an addon as deployed as soon as its Helm job has ended. For these two addons, the module also
    waits until their pods are ready. For the driver, this includes every node with an SR-IOV capable GPU.
options:
  name:
    description:
      - Name of the addon.
    type: str
    required: true
  namespace:
    description:
      - Namespace of the addon.
    type: str
    default: harvester-system
  state:
    description:
      - Whether the addon should be enabled or disabled.
      - If VMs need the addon, disabling it fails and the error names the VMs, unless O(disrupt=true). The module
        respects Harvester's own annotations that skip this check.
    type: str
    choices: [enabled, disabled]
    default: enabled
  values:
    description:
      - Values for the addon's chart, merged into the existing values. Mappings are merged key by key. Any other value,
        including a list, replaces the existing one. Other keys are kept.
      - Harvester stores the values as text. When a value changes, the module rewrites the text, which removes comments.
        When no value changes, the text is kept.
      - Values are part of the result and of the diff. Use C(no_log) if they contain a secret.
    type: dict
  driver_location:
    description:
      - URL from which the nodes download the vGPU host driver. Only for V(nvidia-driver-toolkit), where it sets the
        value C(driverLocation).
      - The location that Harvester ships contains the placeholder V(HTTPENDPOINT). The task fails if the addon is to be
        enabled with the placeholder, or is enabled with it, for example after an upgrade, unless annotations set the
        location of every node.
    type: str
  disrupt:
    description:
      - Whether to change the addon although VMs need it.
      - Any change to V(nvidia-driver-toolkit) while it is enabled makes Harvester replace the driver pods on all nodes,
        which install the driver again. With V(false), the task fails while VMs run with vGPUs, also in check mode, and
        names the VMs. It also fails if it would disable the addon, or V(pcidevices-controller), while VMs have vGPUs or
        passed-through devices.
      - From 1.8 on, Harvester itself refuses to disable an addon that it detects VMs to use. V(true) does not override
        that refusal.
    type: bool
    default: false
  wait:
    description:
      - Whether to wait until the change is complete.
      - Harvester refuses any change while an operation is in progress. The module always waits for its end.
    type: bool
    default: true
  wait_timeout:
    description:
      - Maximum time to wait, in seconds. Building the driver takes minutes.
    type: int
    default: 600
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.harvester.fail_fast
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details: The change is sent as a dry run, which the cluster's webhooks validate.
  diff_mode:
    support: full
  platform:
    platforms: posix
seealso:
  - module: vgpu.fleet.harvester_sriov_gpu
"""

EXAMPLES = r"""
- name: Enable the discovery of GPUs
  vgpu.fleet.harvester_addon:
    name: pcidevices-controller

- name: Build the driver on every GPU node
  vgpu.fleet.harvester_addon:
    name: nvidia-driver-toolkit
    driver_location: http://files.example/NVIDIA-Linux-x86_64-570.172.07-vgpu-kvm.run

- name: Use the driver image of another registry
  vgpu.fleet.harvester_addon:
    name: nvidia-driver-toolkit
    values:
      image:
        repository: registry.example/harvester-nvidia-driver-toolkit

- name: Disable the driver
  vgpu.fleet.harvester_addon:
    name: nvidia-driver-toolkit
    state: disabled
"""

RETURN = r"""
addon:
  description: The addon after the task, or in check mode as predicted.
  returned: success
  type: dict
  contains:
    name:
      description: Name of the addon.
      type: str
      sample: nvidia-driver-toolkit
    namespace:
      description: Namespace of the addon.
      type: str
      sample: harvester-system
    chart:
      description: The Helm chart of the addon.
      type: str
      sample: nvidia-driver-runtime
    version:
      description: The version of the chart.
      type: str
      sample: 1.8.1
    enabled:
      description: Whether the addon is enabled.
      type: bool
      sample: true
    status:
      description: The status that Harvester reports. Empty for an addon that was never enabled.
      type: str
      sample: AddonDeploySuccessful
    values:
      description: The values of the chart.
      type: dict
      sample:
        driverLocation: http://files.example/NVIDIA-Linux-x86_64-570.172.07-vgpu-kvm.run
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.harvester.addon.apply import AddonOperation, AddonRequest
from ..module_utils.kube import connection as access
from ..module_utils.kube.client import ApiClient
from ..module_utils.kube.options import connection_spec, fail_fast_spec
from ..module_utils.module import finish, reporting_errors


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **connection_spec(),
            "name": {"type": "str", "required": True},
            "namespace": {"type": "str", "default": "harvester-system"},
            "state": {"type": "str", "choices": ["enabled", "disabled"], "default": "enabled"},
            "values": {"type": "dict"},
            "driver_location": {"type": "str"},
            "disrupt": {"type": "bool", "default": False},
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 600},
            **fail_fast_spec(),
        },
        supports_check_mode=True,
    )
    params = module.params
    with reporting_errors(module):
        request = AddonRequest.of(params)
        api = ApiClient(access.from_options(params), fail_fast=params["fail_fast"])
        operation = AddonOperation(api, request, wait=params["wait"], seconds=params["wait_timeout"])
        result = operation.run(check_mode=module.check_mode)
        finish(module, result)


if __name__ == "__main__":
    main()
