# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rancher_credential_findings
short_description: Report cloud credentials for Harvester that expire
version_added: 0.1.0
description:
  - Converts the records of P(vgpu.fleet.rancher_credentials#filter) into findings of a drift check. Credentials that
    are valid, or whose expiry is unknown, are omitted.
options:
  _input:
    description: The records of P(vgpu.fleet.rancher_credentials#filter).
    type: list
    elements: dict
    required: true
seealso:
  - plugin: vgpu.fleet.rancher_credentials
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show the credentials that expire
  ansible.builtin.debug:
    msg: "{{ records | vgpu.fleet.rancher_credential_findings | map(attribute='text') }}"
"""

RETURN = r"""
_value:
  description:
    - One finding for each credential that has expired (C(credential_expired)) or expires soon (C(credential_expiring)),
      with C(kind), C(device), C(text) and an empty C(repair).
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ..module_utils.rancher.credential import findings


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rancher_credential_findings": findings}
