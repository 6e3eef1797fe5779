# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vgpu_device_manager
short_description: Use a configuration of NVIDIA's vGPU Device Manager as a layout
version_added: 0.1.0
description:
  - Converts a named configuration from a file of NVIDIA's vGPU Device Manager into a layout for
    M(vgpu.fleet.harvester_vgpu).
  - A configuration lists the vGPUs of each GPU, so the entries of the layout count per GPU. The configuration describes
    the complete GPU; set O(vgpu.fleet.harvester_vgpu#module:exclusive=true) to remove other vGPUs.
  - A C(device-filter) is checked against the boards of the types. It does not select GPUs, because a type is only
    configured on GPUs of its board.
positional: _input, config
options:
  _input:
    description: The content of the file, as text or parsed from YAML.
    type: raw
    required: true
  config:
    description: The name of the configuration.
    type: str
    required: true
  nodes:
    description: Names of nodes, or shell patterns, to which the layout applies. Defaults to all nodes.
    type: list
    elements: str
  gpus:
    description:
      - Names of GPUs, or shell patterns, to which the layout applies.
      - If the configuration lists GPUs by number, give the names of these GPUs in the order of the numbers.
    type: list
    elements: str
seealso:
  - module: vgpu.fleet.harvester_vgpu
  - plugin: vgpu.fleet.vgpu_device_manager_problems
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Configure the GPUs with the configuration A2-4Q
  vgpu.fleet.harvester_vgpu:
    layout: "{{ config | vgpu.fleet.vgpu_device_manager('A2-4Q', nodes=['gpu-*']) }}"
    exclusive: true
    enable_sriov: true
  vars:
    config: "{{ lookup('ansible.builtin.file', 'vgpu-config.yaml') }}"
"""

RETURN = r"""
_value:
  description: A list for O(vgpu.fleet.harvester_vgpu#module:layout).
  type: list
  elements: dict
  sample:
    - profile: A2-4Q
      count: 4
      per: gpu
      nodes: ["gpu-*"]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils.errors import FleetError
from ..plugin_utils.device_manager_config import layout_of


def vgpu_device_manager(
    content: Any, config: str, nodes: Sequence[str] | None = None, gpus: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    if not isinstance(content, Mapping):
        import yaml

        try:
            content = yaml.safe_load(content)
        except yaml.YAMLError as error:
            raise AnsibleFilterError(f"The vGPU Device Manager configuration is not valid YAML: {error}") from error
    try:
        return layout_of(content, config, nodes=nodes, gpus=gpus)
    except FleetError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"vgpu_device_manager": vgpu_device_manager}
