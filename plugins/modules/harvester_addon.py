#!/usr/bin/python

# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: harvester_addon
short_description: Enable, configure or disable an addon of Harvester
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Switches an addon of Harvester on or off, changes its values, and waits until Harvester is done with it.
  - vGPUs need two addons. V(pcidevices-controller) finds the GPUs, so it comes first; V(nvidia-driver-toolkit) then
    builds NVIDIA's vGPU host driver on every node that has one.
  - Harvester calls an addon deployed as soon as its Helm job has ended. For these two addons the module goes on
    waiting until their pods are ready as well, which for the driver means on every node with a GPU that can be
    shared.
options:
  name:
    description:
      - The addon.
    type: str
    required: true
  namespace:
    description:
      - The namespace that the addon is in.
    type: str
    default: harvester-system
  state:
    description:
      - Whether the addon is on.
      - An addon that VMs need is not disabled, unless O(disrupt=true). The refusal names the VMs. Harvester's own
        annotations that skip this check are respected.
    type: str
    choices: [enabled, disabled]
    default: enabled
  values:
    description:
      - Values for the addon's chart, merged into those that it has. Mappings are merged key by key; anything else, a
        list too, takes the place of what was there. No other key is lost.
      - Harvester keeps the values as a text. When a value changes, the text is written anew, so comments in it are
        gone afterwards. When no value changes, it stays as it is.
      - Values are part of the result and of the diff. Use C(no_log) where they hold a secret.
    type: dict
  driver_location:
    description:
      - Where the nodes fetch the vGPU host driver, as a URL. Only for V(nvidia-driver-toolkit), whose value
        C(driverLocation) it is.
      - The location that Harvester ships has the placeholder V(HTTPENDPOINT) in it. The addon is not enabled before
        that is replaced, unless each node has a location of its own by annotation. One that is on and has it, as
        after an upgrade, fails as well.
    type: str
  disrupt:
    description:
      - Any change to V(nvidia-driver-toolkit) while it is on makes Harvester replace the driver's pods on all nodes,
        and they install the driver anew. While VMs run with vGPUs this is refused, also in check mode, and the
        refusal names them. The same holds for disabling it, or V(pcidevices-controller), while VMs have vGPUs or
        passed-through devices.
      - With V(true) the addon is changed in spite of them. From 1.8 on Harvester itself refuses to disable an addon
        that it sees VMs use, and that refusal stands.
    type: bool
    default: false
  wait:
    description:
      - Whether to wait until the addon is what it should be.
      - Harvester refuses any change while an operation is in progress. The end of that is always waited for.
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
    details: The change is sent as a dry run, so that the cluster's webhooks have their say.
  diff_mode:
    support: full
  platform:
    platforms: posix
seealso:
  - module: vgpu.fleet.harvester_sriov_gpu
"""

EXAMPLES = r"""
- name: GPUs are found
  vgpu.fleet.harvester_addon:
    name: pcidevices-controller

- name: The driver is built on every GPU node
  vgpu.fleet.harvester_addon:
    name: nvidia-driver-toolkit
    driver_location: http://files.example/NVIDIA-Linux-x86_64-570.172.07-vgpu-kvm.run

- name: The driver's image comes from another registry
  vgpu.fleet.harvester_addon:
    name: nvidia-driver-toolkit
    values:
      image:
        repository: registry.example/harvester-nvidia-driver-toolkit

- name: The driver is switched off
  vgpu.fleet.harvester_addon:
    name: nvidia-driver-toolkit
    state: disabled
"""

RETURN = r"""
addon:
  description: The addon as it is now, or in check mode as it would be.
  returned: success
  type: dict
  contains:
    name:
      description: Its name.
      type: str
      sample: nvidia-driver-toolkit
    namespace:
      description: Its namespace.
      type: str
      sample: harvester-system
    chart:
      description: The Helm chart behind it.
      type: str
      sample: nvidia-driver-runtime
    version:
      description: The version of the chart.
      type: str
      sample: 1.8.1
    enabled:
      description: Whether it is switched on.
      type: bool
      sample: true
    status:
      description: What Harvester says of it, empty for an addon that has never been on.
      type: str
      sample: AddonDeploySuccessful
    values:
      description: The values that its chart gets.
      type: dict
      sample:
        driverLocation: http://files.example/NVIDIA-Linux-x86_64-570.172.07-vgpu-kvm.run
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.addon.apply import AddonOperation, AddonRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.kube import connection as access
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import ApiClient
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.options import connection_spec, fail_fast_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.module import finish, reporting_errors


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
