# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_map
short_description: Draw the GPUs of clusters as an HTML page
version_added: 0.1.0
description:
  - Draws each GPU as a bar, divided to scale into its vGPUs, with their VMs and the profiles that still fit.
  - The page is a single file that loads nothing from the network. Any browser can filter, fold and print it.
  - For plans, the page draws GPUs that change twice, before and after the change, with the steps in between.
positional: _input
options:
  _input:
    description: >-
      A record of P(vgpu.fleet.fleet_record#filter), a plan of P(vgpu.fleet.fleet_plan#filter), or a list of either.
    type: raw
    required: true
  title:
    description: The title of the page. Defaults to V(GPU fleet), or to V(GPU plan) for plans.
    type: str
  generated:
    description: The time at which the records were read, in any format. Defaults to the current time.
    type: str
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Read the GPUs of a Harvester cluster
  vgpu.fleet.harvester_gpu_info:
    detail: full
  register: fleet

- name: Write the map of the GPUs
  ansible.builtin.copy:
    content: "{{ fleet | vgpu.fleet.fleet_record(cluster='berlin') | vgpu.fleet.fleet_map }}"
    dest: /srv/www/fleet.html
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The page.
  type: str
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from ansible.errors import AnsibleFilterError

from ..plugin_utils.views import map as page


def fleet_map(drawn: Any, title: str | None = None, generated: str | None = None) -> str:
    listed = [drawn] if isinstance(drawn, Mapping) else drawn
    if (
        not isinstance(listed, Sequence)
        or isinstance(listed, str)
        or not all(isinstance(entry, Mapping) for entry in listed)
    ):
        raise AnsibleFilterError("fleet_map draws a record of vgpu.fleet.fleet_record, a plan, or a list of them.")
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC") if generated is None else generated
    plans = [entry for entry in listed if "before" in entry]
    if plans and len(plans) == len(listed):
        return page.plan_map(plans, title=title or page.PLAN_TITLE, generated=when)
    if plans or not all("record_version" in entry for entry in listed):
        raise AnsibleFilterError(
            "fleet_map draws either records of vgpu.fleet.fleet_record or plans, and nothing else."
        )
    return page.fleet_map(listed, title=title or page.TITLE, generated=when)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet_map": fleet_map}
