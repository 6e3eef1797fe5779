# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rancher_credentials
short_description: Show when cloud credentials for Harvester expire
version_added: 0.1.0
description:
  - Reads the name of the token in the kubeconfig of each cloud credential, and the expiry of that token.
  - From Rancher 2.8 to 2.11 these tokens expire after 30 days by default. Rancher can then neither create nor delete
    machines on that Harvester cluster. From 2.12 on the tokens do not expire.
  - The roles P(vgpu.fleet.rancher_gpu_cluster#role) and P(vgpu.fleet.vgpu_drift#role) use this filter.
positional: _input
options:
  _input:
    description: Secrets of the namespace C(cattle-global-data). Secrets without a kubeconfig for Harvester are ignored.
    type: list
    elements: dict
    required: true
  tokens:
    description:
      - The C(Token) objects of C(management.cattle.io/v3) with the names in C(token).
      - Without them, the state of every credential is C(unknown).
    type: list
    elements: dict
  days:
    description: Number of days before its expiry from which a credential counts as C(expiring).
    type: int
    default: 10
  owner:
    description: The owner whose credentials may be renewed.
    type: str
    default: ""
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show the names of the tokens
  ansible.builtin.debug:
    msg: "{{ secrets.resources | vgpu.fleet.rancher_credentials | map(attribute='token') }}"
"""

RETURN = r"""
_value:
  description: One record for each credential.
  type: list
  elements: dict
  contains:
    name:
      description: Namespace and name of the Secret.
      type: str
      sample: cattle-global-data/cc-demo
    token:
      description: The name of the token. V(null) if the kubeconfig contains no kubeconfig token of Rancher.
      type: str
      sample: kubeconfig-user-abcde
    state:
      description: One of V(valid), V(endless), V(expiring), V(expired) and V(unknown).
      type: str
    expires:
      description: The time at which the token expires, if it does.
      type: str
      sample: "2026-12-18T08:00:00Z"
    renew:
      description: Whether the credential has expired or expires soon, and belongs to O(owner).
      type: bool
    text:
      description: A sentence about the credential.
      type: str
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from ..module_utils.rancher.credential import credentials


def rancher_credentials(secrets: Sequence[Mapping[str, Any]], **options: Any) -> list[dict[str, Any]]:
    return credentials(secrets, now=datetime.now(timezone.utc), **options)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rancher_credentials": rancher_credentials}
