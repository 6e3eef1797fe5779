# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rancher_harvesters
short_description: The Harvester clusters that a Rancher manages as hosts
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Makes a host of each Harvester cluster that is imported into a Rancher, with the variables by which the playbooks
    and roles of this collection reach it through Rancher.
  - It takes one request, however many clusters there are.
  - The inventory file is YAML, and its name ends with C(rancher_harvesters.yml) or C(rancher_harvesters.yaml).
  - The token does not become a variable of hosts. C(harvester_api_key) is the template that O(token) was given as, or
    a lookup of the environment variable that the token came from. A token that is written into the file, also one that
    is encrypted with ansible-vault, is not handed on, unless O(expose_token) says so.
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description:
      - Always V(vgpu.fleet.rancher_harvesters).
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
      - Whether C(harvester_api_key) is the token itself where it cannot be a reference to it. Whoever may see the
        inventory sees it then.
    type: bool
    default: false
  ca_cert:
    description:
      - Path to the certificate of the authority that signed Rancher's certificate.
      - It becomes C(harvester_ca_cert) of the hosts.
    type: path
    env:
      - name: K8S_AUTH_SSL_CA_CERT
  validate_certs:
    description:
      - Whether to verify Rancher's certificate.
      - The modules verify it as well. Use E(K8S_AUTH_VERIFY_SSL), which they read too.
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
      - Hosts and domains, separated by commas, that are not reached through O(proxy).
    type: str
    env:
      - name: K8S_AUTH_NO_PROXY
  ready_only:
    description:
      - Whether clusters that Rancher does not call ready, such as those whose agent is not connected, are left out.
      - By default they are hosts, so that a report does not leave out a cluster silently.
    type: bool
    default: false
  hostnames:
    description:
      - Expressions for the name of a host, of which the first that is not empty is used.
      - Without it, the name is the one that the cluster has in Rancher. Where several clusters have the same name, or a
        name means something else to Ansible, such as V(localhost), an underscore and the id of the cluster follow.
      - Characters other than letters, digits and C(_.:-) become underscores.
      - Two clusters with the same name are an error.
    type: list
    elements: str
    default: []
  group:
    description:
      - The group that all clusters are in.
    type: str
    default: harvesters
requirements:
  - Python package C(urllib3)
notes:
  - The token's user has to be allowed to list C(clusters.management.cattle.io) in Rancher's own cluster.
  - Tasks for these hosts run on the controller (C(ansible_connection) is V(local)), with the Python of Ansible.
seealso:
  - plugin: vgpu.fleet.gpu_vms
    plugin_type: inventory
  - module: vgpu.fleet.harvester_gpu_info
"""

EXAMPLES = r"""
# all.rancher_harvesters.yml: all Harvesters of the Rancher of RANCHER_URL, with the token of RANCHER_TOKEN_KEY.
# ansible-playbook vgpu.fleet.capacity -i all.rancher_harvesters.yml -e vgpu_fleet_hosts=harvesters
---
plugin: vgpu.fleet.rancher_harvesters

# edge.rancher_harvesters.yml: only clusters that are connected, grouped by a label that they have in Rancher.
---
plugin: vgpu.fleet.rancher_harvesters
url: https://rancher.example
token: "{{ lookup('ansible.builtin.env', 'EDGE_RANCHER_TOKEN') }}"
ready_only: true
keyed_groups:
  - key: rancher_harvester_labels.site | default('nowhere')
    prefix: site
"""

import os
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.kube.connection import BadConnection
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory import harvesters
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory.source import Record, Source
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory.trust import as_template, plain

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
        """Return what leads to the token where it is used; None if nothing does and it must not be shown."""
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
