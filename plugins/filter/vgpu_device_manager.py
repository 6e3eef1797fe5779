# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vgpu_device_manager
short_description: Use a configuration of NVIDIA's vGPU Device Manager as a layout
version_added: 0.1.0
description:
  - Turns one of the named configurations in a file of NVIDIA's vGPU Device Manager into a layout for
    M(vgpu.fleet.harvester_vgpu).
  - Such a configuration says for each GPU how many vGPUs of which types it has, so the entries count per GPU. It also
    means that a GPU has nothing else; set O(vgpu.fleet.harvester_vgpu#module:exclusive=true) for that.
  - A C(device-filter) is checked against the boards of the types. It selects nothing beyond them, since a type is only
    ever put on GPUs of its board.
positional: _input, config
options:
  _input:
    description: The content of the file, as text or already read as YAML.
    type: raw
    required: true
  config:
    description: The name of the configuration.
    type: str
    required: true
  nodes:
    description: Names of nodes, or shell patterns, to which it applies. Without O(nodes) and O(gpus) it applies to all.
    type: list
    elements: str
  gpus:
    description:
      - Names of GPUs, or shell patterns, to which it applies.
      - If the configuration lists GPUs by number, these have to be the names that the numbers stand for, in order.
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
- name: The GPUs are laid out as the configuration A2-4Q says
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
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.plugin_utils.device_manager_config import layout_of


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
