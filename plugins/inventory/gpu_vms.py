# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_vms
short_description: Inventory of machines with vGPUs on Harvester or vSphere
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Adds a host for each VM that has or requests vGPUs, on one Harvester cluster or one vCenter.
  - The address comes from the guest agent or from VMware Tools. A machine without an address is a host without
    C(ansible_host).
  - The number of requests does not depend on the number of machines. On vSphere it grows by one for each kind of GPU
    host.
  - The inventory file is YAML, and its name ends with C(gpu_vms.yml) or C(gpu_vms.yaml).
  - Names and labels of VMs are never templated.
extends_documentation_fragment:
  - vgpu.fleet.harvester
  - vgpu.fleet.vsphere
  - vgpu.fleet.vsphere.hosts
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description:
      - Must be V(vgpu.fleet.gpu_vms).
    type: str
    required: true
    choices: [vgpu.fleet.gpu_vms]
  platform:
    description:
      - The platform that the machines run on.
    type: str
    choices: [harvester, vsphere]
    default: harvester
  states:
    description:
      - The states of machines to add as hosts.
      - Machines in the state V(starting) have no address yet, and their vGPUs have no device.
      - V(stopping) and V(paused) exist on Harvester only, V(suspended) on vSphere only.
    type: list
    elements: str
    choices: [running, starting, stopping, paused, suspended, stopped]
    default: [running, starting]
  namespaces:
    description:
      - On Harvester, the namespaces of the VMs, by name or shell pattern. Defaults to all namespaces.
    type: list
    elements: str
  profiles:
    description:
      - vGPU profiles in any spelling. Only machines with at least one of these profiles become hosts.
    type: list
    elements: str
  require_address:
    description:
      - Whether to exclude machines without an address.
    type: bool
    default: false
  network:
    description:
      - The network whose address becomes C(ansible_host). On Harvester, use the name of the network in the VM, on
        vSphere the name of the port group.
      - By default, the plugin prefers networks outside of the cluster to Harvester's management network, whose
        addresses only pods can reach, the primary address of VMware Tools to other addresses, and IPv4 to IPv6.
    type: str
  cluster_name:
    description:
      - The name of the cluster. It becomes the variable C(gpu_vm_cluster) and the suffix of all host names.
      - Set this option if several inventories may have machines of the same name.
    type: str
  hostnames:
    description:
      - Expressions for the name of a host. The first expression that is not empty is used.
      - Defaults to C(NAME.NAMESPACE) on Harvester and to the name of the VM on vSphere. If several VMs have the same
        name, or a name is reserved in Ansible, such as V(localhost), the plugin appends an underscore and the ID of the
        VM.
      - Characters other than letters, digits and C(_.:-) become underscores.
      - The plugin fails if two machines have the same name.
    type: list
    elements: str
    default: []
  group:
    description:
      - The group of all machines.
    type: str
    default: gpu_vms
  hostname:
    description:
      - Name or address of vCenter.
    type: str
    env:
      - name: VMWARE_HOST
  port:
    description:
      - Port of vCenter.
    type: int
    default: 443
    env:
      - name: VMWARE_PORT
  proxy_host:
    description:
      - Name or address of an HTTP proxy for the connection to vCenter.
    type: str
    env:
      - name: VMWARE_PROXY_HOST
  proxy_port:
    description:
      - Port of the proxy. Defaults to V(80).
    type: int
    env:
      - name: VMWARE_PROXY_PORT
  username:
    description:
      - User of vCenter on vSphere, user for HTTP basic authentication on Harvester.
      - Can also be given in the environment variable E(VMWARE_USER), or E(K8S_AUTH_USERNAME).
    type: str
    aliases: [user, admin]
  password:
    description:
      - The password of the user.
      - Can also be given in the environment variable E(VMWARE_PASSWORD), or E(K8S_AUTH_PASSWORD).
    type: str
    aliases: [pass, pwd]
  validate_certs:
    description:
      - Whether to verify the server's certificate. Defaults to V(true).
      - Can also be given in the environment variable E(VMWARE_VALIDATE_CERTS), or E(K8S_AUTH_VERIFY_SSL).
    type: bool
    default: null
    aliases: [verify_ssl]
notes:
  - Connection options may be templates, such as a lookup of a password. They do not become host variables, and the
    cache does not contain them.
  - On Harvester the ClusterRole C(vgpu-fleet-reader) of the collection's documentation is sufficient, on vSphere the
    role C(Read-only).
seealso:
  - plugin: vgpu.fleet.rancher_harvesters
    plugin_type: inventory
  - module: vgpu.fleet.harvester_gpu_info
  - module: vgpu.fleet.vsphere_gpu_info
"""

EXAMPLES = r"""
# berlin.gpu_vms.yml: the cluster of K8S_AUTH_KUBECONFIG or KUBECONFIG, with a group for each profile and node.
---
plugin: vgpu.fleet.gpu_vms
keyed_groups:
  - key: gpu_vm_profiles
    prefix: profile
  - key: gpu_vm_node
    prefix: node
compose:
  ansible_user: "'ubuntu'"

# vcenter.gpu_vms.yml: a vCenter, including machines that are powered off.
# ---
# plugin: vgpu.fleet.gpu_vms
# platform: vsphere
# hostname: vcenter.example
# username: automation@vsphere.local
# password: "{{ lookup('ansible.builtin.env', 'VCENTER_PASSWORD') }}"
# states: [running, starting, stopped, suspended]
# groups:
#   "off": gpu_vm_state != 'running'

# trainers.gpu_vms.yml: the machines of a Rancher pool, by their address on one network, cached for five minutes.
# ---
# plugin: vgpu.fleet.gpu_vms
# cluster_name: berlin
# network: nic-0
# require_address: true
# groups:
#   trainers: gpu_vm_guest_cluster == 'demo' and gpu_vm_pool == 'gpu'
# strict: true
# cache: true
# cache_plugin: ansible.builtin.jsonfile
# cache_connection: ~/.cache/gpu_vms
# cache_timeout: 300
"""

import os
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.module_utils.common.parameters import DEFAULT_TYPE_VALIDATORS

from ..module_utils.kube import connection as access
from ..module_utils.platform_options import PLATFORMS
from ..module_utils.vsphere.options import hosts_spec
from ..plugin_utils.inventory import machines
from ..plugin_utils.inventory.source import Record, Source

# Options that determine the cluster, the user and the scope of a request. None of them is secret.
SHOWN = (
    *("host", "context", "username", "client_cert", "impersonate_user", "impersonate_groups", "harvester_version"),
    *("hostname", "port", "datacenter", "cluster", "esxi_hosts"),
)


class InventoryModule(Source):
    NAME = "vgpu.fleet.gpu_vms"
    ENDING = "gpu_vms"
    IDENTITY = "gpu_vm_id"

    def read(self) -> list[Record]:
        # Import only the requested platform: neither platform needs the packages of the other.
        if self.option("platform") == "vsphere":
            from ..plugin_utils.inventory import vsphere_machines

            return vsphere_machines.read(self._connection())
        from ..plugin_utils.inventory import harvester_machines

        return harvester_machines.read(self._connection())

    def target(self) -> dict[str, Any]:
        options = self._connection()
        if self.option("platform") == "harvester":
            options = access.completed(options, os.environ)
        shown = {name: options.get(name) for name in SHOWN}
        kubeconfig = options.get("kubeconfig")
        if isinstance(kubeconfig, dict):
            clusters = [cluster for cluster in kubeconfig.get("clusters") or [] if isinstance(cluster, dict)]
            servers = [(cluster.get("cluster") or {}).get("server") for cluster in clusters]
            shown["kubeconfig"] = [servers, kubeconfig.get("current-context")]
        else:
            shown["kubeconfig"] = kubeconfig or os.environ.get("KUBECONFIG")
        return {"platform": self.option("platform"), **shown}

    def prepare(self) -> None:
        self._network = self.option("network")
        self._cluster_name = str(self.option("cluster_name") or "")
        self._selection = machines.Selection(
            states=frozenset(self.option("states")),
            namespaces=self.option("namespaces"),
            profiles=self.option("profiles"),
            require_address=bool(self.option("require_address")),
        )

    def variables(self, record: Record) -> Record | None:
        found = machines.variables(record, network=self._network, cluster=self._cluster_name)
        return found if self._selection.takes(found) else None

    def suffix(self) -> str:
        return self._cluster_name

    def distinct_names(self) -> str:
        return "Set cluster_name or hostnames in one of them."

    def _connection(self) -> dict[str, Any]:
        """Return the connection options of the platform, completed from its environment variables."""
        found = {}
        for name, option in PLATFORMS[self.option("platform")]().items():
            value = self.option(name)
            if value is None:
                value = _from_environment(name, option)
            found[name] = option.get("default") if value is None else value
        hosts = {name: self.option(name) for name in hosts_spec()}
        return {**found, **hosts}


def _from_environment(name: str, option: dict[str, Any]) -> Any:
    for variable in option.get("fallback", (None, []))[1]:
        if os.environ.get(variable):
            try:
                return DEFAULT_TYPE_VALIDATORS[option.get("type", "str")](os.environ[variable])
            except TypeError as error:
                raise AnsibleParserError(f"The environment variable {variable} cannot be used: {error}") from None
    return None
