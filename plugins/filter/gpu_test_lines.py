# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_test_lines
short_description: Describe the results of GPU tests as lines for people
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Used by the role P(vgpu.fleet.gpu_smoke_test#role). Returns a line for each node that says which GPUs passed and how
    long the test took.
positional: _input
options:
  _input:
    description: The results, as P(vgpu.fleet.gpu_test_results#filter) returns them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the results
  vgpu.fleet.show:
    lines: "{{ gpu_smoke_test_result | vgpu.fleet.gpu_test_lines }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
  sample: ["Node worker-1: Test PASSED on 1 GPU (00000000:02:00.0, licensed) in 12 s"]
"""

from collections.abc import Callable
from typing import Any

from ..plugin_utils.guest.smoke_test import lines


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_test_lines": lines}
