#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: capv_info
short_description: Read the machines of a Cluster API cluster on vSphere, and wait for them
version_added: 0.1.0
description:
  - Returns the API versions of Cluster API that a management cluster serves, and the machines of a cluster with their
    devices and their state. Who created the cluster does not matter. The module changes nothing.
  - With O(wait=true), waits until all machines of O(deployment) are ready. The task fails as soon as a machine has
    failed, with the text of its condition.
options:
  name:
    description:
      - Name of the cluster.
    type: str
    required: true
  namespace:
    description:
      - Namespace of the cluster's objects.
    type: str
    default: default
  deployment:
    description:
      - Return only the machines of this C(MachineDeployment).
    type: str
  wait:
    description:
      - Whether to wait until all machines of O(deployment) are ready and up to date.
    type: bool
    default: false
  wait_timeout:
    description:
      - Maximum time to wait, in seconds.
    type: int
    default: 1800
  fail_fast:
    description:
      - Whether the wait ends as soon as a machine has failed.
    type: bool
    default: true
extends_documentation_fragment:
  - vgpu.fleet.harvester
attributes:
  check_mode:
    description: Does not wait in check mode.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
seealso:
  - module: vgpu.fleet.capv_cluster
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Wait for the machines of a deployment
  vgpu.fleet.capv_info:
    kubeconfig: ~/.kube/management.yaml
    name: ml
    deployment: ml-md-0
    wait: true
"""

RETURN = r"""
api_versions:
  description: The newest version of each API group that the management cluster serves and the collection knows.
  returned: success
  type: dict
  sample: {cluster.x-k8s.io: v1beta2, infrastructure.cluster.x-k8s.io: v1beta1}
machines:
  description: The machines, as M(vgpu.fleet.capv_cluster) returns them.
  returned: success
  type: list
  elements: dict
  sample:
    - name: ml-md-0-x7k2p-hw6dq
      pool: ml-md-0
      control_plane: false
      vm: ml-md-0-x7k2p-hw6dq
      node: ml-md-0-x7k2p-hw6dq
      host: esx1
      template: ml-gpu-1a2b3c4d
      phase: Running
      devices: [{profile: nvidia_a40-8q, vendor_id: "", device_id: "", custom_label: ""}]
      state: ready
      reason: ""
      message: ""
templates:
  description: The C(VSphereMachineTemplate) objects of the namespace, as C(name) and whether they are C(used).
  returned: success
  type: list
  elements: dict
  sample: [{name: ml-gpu-1a2b3c4d, used: true, labels: {}}]
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.capv.info import read_info
from ..module_utils.kube import connection
from ..module_utils.kube.client import ApiClient
from ..module_utils.kube.options import connection_spec, fail_fast_spec
from ..module_utils.module import ReadResult, finish, reporting_errors


def argument_spec() -> dict[str, dict[str, object]]:
    return {
        **connection_spec(),
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "default"},
        "deployment": {"type": "str"},
        "wait": {"type": "bool", "default": False},
        "wait_timeout": {"type": "int", "default": 1800},
        **fail_fast_spec(),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec=argument_spec(), supports_check_mode=True, required_if=[("wait", True, ["deployment"])]
    )
    params = module.params
    with reporting_errors(module):
        api = ApiClient(connection.from_options(params), fail_fast=params["fail_fast"])
        seconds = params["wait_timeout"] if params["wait"] and not module.check_mode else None
        found = read_info(api, params["namespace"], params["name"], params["deployment"] or "", seconds=seconds)
        finish(module, ReadResult(found))


if __name__ == "__main__":
    main()
