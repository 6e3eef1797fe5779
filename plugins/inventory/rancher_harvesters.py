# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rancher_harvesters
short_description: Inventory of the Harvester clusters that a Rancher server manages
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Adds a host for each Harvester cluster that is imported into a Rancher server, with the variables that the playbooks
    and roles of this collection need to reach the cluster through Rancher.
  - The plugin sends one request, regardless of the number of clusters.
  - The inventory file is YAML, and its name ends with C(rancher_harvesters.yml) or C(rancher_harvesters.yaml).
  - The token does not become a host variable. C(harvester_api_key) is the template given in O(token), or a lookup of
    the environment variable that contains the token. A token that is written into the file, even if it is encrypted
    with ansible-vault, is not passed on unless O(expose_token=true).
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description:
      - Must be V(vgpu.fleet.rancher_harvesters).
    type: str
    required: true
    choices: [vgpu.fleet.rancher_harvesters]
  url:
    description:
      - The address of Rancher, such as V(https://rancher.example).
    type: str
    env:
      - name: RANCHER_URL
  token:
    description:
      - An API key of Rancher.
      - Can also be given in the environment variable E(RANCHER_TOKEN_KEY).
    type: str
  expose_token:
    description:
      - Whether to set C(harvester_api_key) to the token itself if it cannot be a reference. Everyone who can read the
        inventory can then see the token.
    type: bool
    default: false
  ca_cert:
    description:
      - Path to the CA certificate of Rancher.
      - It becomes the host variable C(harvester_ca_cert).
    type: path
    env:
      - name: K8S_AUTH_SSL_CA_CERT
  validate_certs:
    description:
      - Whether to verify Rancher's certificate.
      - The modules verify the certificate as well. Use E(K8S_AUTH_VERIFY_SSL), which the modules also read.
    type: bool
    default: true
    env:
      - name: K8S_AUTH_VERIFY_SSL
  proxy:
    description:
      - URL of an HTTP proxy to connect through. The modules read the same environment variable.
    type: str
    env:
      - name: K8S_AUTH_PROXY
  no_proxy:
    description:
      - Comma-separated hosts and domains to connect to without O(proxy).
    type: str
    env:
      - name: K8S_AUTH_NO_PROXY
  ready_only:
    description:
      - Whether to exclude clusters that Rancher does not report as ready, such as clusters without a connected agent.
      - By default these clusters are hosts too, so that no report omits a cluster silently.
    type: bool
    default: false
  hostnames:
    description:
      - Expressions for the name of a host. The first expression that is not empty is used.
      - Defaults to the name of the cluster in Rancher. If several clusters have the same name, or a name is reserved in
        Ansible, such as V(localhost), the plugin appends an underscore and the ID of the cluster.
      - Characters other than letters, digits and C(_.:-) become underscores.
      - The plugin fails if two clusters have the same name.
    type: list
    elements: str
    default: []
  group:
    description:
      - The group of all clusters.
    type: str
    default: harvesters
requirements:
  - Python package C(urllib3) 2.0.2 or later
notes:
  - The token's user requires permission to list C(clusters.management.cattle.io) in Rancher's own cluster.
  - Tasks for these hosts run on the controller (C(ansible_connection) is V(local)), with the Python of Ansible.
seealso:
  - plugin: vgpu.fleet.gpu_vms
    plugin_type: inventory
  - module: vgpu.fleet.harvester_gpu_info
"""

EXAMPLES = r"""
# all.rancher_harvesters.yml: all Harvester clusters of the Rancher in RANCHER_URL, with the token in RANCHER_TOKEN_KEY.
# ansible-playbook vgpu.fleet.capacity -i all.rancher_harvesters.yml -e vgpu_fleet_hosts=harvesters
---
plugin: vgpu.fleet.rancher_harvesters

# edge.rancher_harvesters.yml: only connected clusters, grouped by a label that they have in Rancher.
# ---
# plugin: vgpu.fleet.rancher_harvesters
# url: https://rancher.example
# token: "{{ lookup('ansible.builtin.env', 'EDGE_RANCHER_TOKEN') }}"
# ready_only: true
# keyed_groups:
#   - key: rancher_harvester_labels.site | default('nowhere')
#     prefix: site
"""

import os
from typing import Any

from ..module_utils.kube.connection import BadConnection
from ..plugin_utils.inventory import harvesters
from ..plugin_utils.inventory.source import Record, Source
from ..plugin_utils.inventory.trust import as_template, plain

TOKEN_VARIABLE = "RANCHER_TOKEN_KEY"
LOOKUP = "{{ lookup('ansible.builtin.env', '" + TOKEN_VARIABLE + "') }}"


class InventoryModule(Source):
    NAME = "vgpu.fleet.rancher_harvesters"
    ENDING = "rancher_harvesters"
    IDENTITY = "harvester_host"

    def read(self) -> list[Record]:
        options = {name: self.option(name) for name in ("ca_cert", "validate_certs", "proxy", "no_proxy")}
        return harvesters.read({**options, "url": self._url(), "token": self._token()})

    def target(self) -> dict[str, Any]:
        return {"url": self._url()}

    def prepare(self) -> None:
        self._front, self._ca_cert = self._url(), self.option("ca_cert")
        self._ready_only = bool(self.option("ready_only"))
        self._reference = self._reference_to_token()

    def variables(self, record: Record) -> Record | None:
        if self._ready_only and not record["ready"]:
            return None
        return harvesters.variables(record, self._front, self._ca_cert)

    def own_variables(self, record: Record) -> Record:
        found = {"ansible_python_interpreter": as_template("{{ ansible_playbook_python }}")}
        return {**found, "harvester_api_key": self._reference} if self._reference else found

    def _url(self) -> str:
        url = self.option("url")
        if not url:
            raise BadConnection("The address of Rancher is missing.", hint="Set url, or RANCHER_URL.")
        return str(url)

    def _token(self) -> str:
        token = self.option("token") or os.environ.get(TOKEN_VARIABLE)
        if not token:
            raise BadConnection("The API key of Rancher is missing.", hint=f"Set token, or {TOKEN_VARIABLE}.")
        return str(token)

    def _reference_to_token(self) -> str | None:
        """Return a reference to the token, to be templated on use, or None if the token must stay hidden."""
        given = self.get_option("token")
        if given is None:
            return as_template(LOOKUP)
        if isinstance(given, str) and plain(given) != self._token():
            return as_template(given)
        if self.option("expose_token"):
            return self._token()
        self.display.warning(
            "The hosts of vgpu.fleet.rancher_harvesters have no harvester_api_key, because the token is written into"
            f" the inventory file. Give it as a template or in {TOKEN_VARIABLE}, or set expose_token."
        )
        return None
