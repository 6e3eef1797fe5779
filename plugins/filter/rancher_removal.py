# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rancher_removal
short_description: Select the objects that may be deleted with a Rancher cluster
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.rancher_gpu_cluster#role). Machine configs and Secrets are deleted with a cluster only
    if they carry the collection's labels with the same owner and no other cluster uses them.
positional: _input
options:
  _input:
    description: All C(Cluster) objects of C(provisioning.cattle.io/v1).
    type: list
    elements: dict
    required: true
  cluster:
    description: The name of the cluster to delete.
    type: str
    required: true
  namespace:
    description: The namespace of the cluster.
    type: str
    required: true
  owner:
    description: The owner whose objects may be deleted.
    type: str
    required: true
  configs:
    description: All C(HarvesterConfig) objects of the namespace.
    type: list
    elements: dict
    default: []
  secrets:
    description: The existing Secrets that the role creates for a cluster.
    type: list
    elements: dict
    default: []
  named:
    description: A credential that the user specified, in the form C(namespace:name). It is never deleted.
    type: str
    default: ""
  gone:
    description: Whether the machines of the cluster are deleted. Until then Rancher needs the Secrets.
    type: bool
    default: true
  complete:
    description: Whether the input contains the clusters of all namespaces. If V(false), all Secrets are kept.
    type: bool
    default: true
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show the objects that are kept
  ansible.builtin.debug:
    msg: "{{ removal.kept }}"
  vars:
    removal: >-
      {{ clusters | vgpu.fleet.rancher_removal(cluster='demo', namespace='fleet-default', owner='team-a',
                                               configs=configs) }}
"""

RETURN = r"""
_value:
  description:
    - C(configs), the names of machine configs to delete; C(secrets), the names and namespaces of Secrets to delete; and
      C(kept), a sentence for each object that is kept.
  type: dict
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..module_utils.rancher.ownership import removal


def rancher_removal(
    clusters: Sequence[dict[str, Any]], cluster: str, namespace: str, owner: str, **options: Any
) -> dict[str, Any]:
    return removal(cluster, namespace=namespace, owner=owner, clusters=clusters, **options).as_dict()


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rancher_removal": rancher_removal}
