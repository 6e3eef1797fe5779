# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shared documentation of the vSphere modules: connection and selection of hosts."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  hostname:
    description:
      - Host name or IP address of the vCenter server.
      - Can also be set with the environment variable E(VMWARE_HOST).
    type: str
  username:
    description:
      - User name on the vCenter server, such as V(administrator@vsphere.local).
      - Can also be set with the environment variable E(VMWARE_USER).
    type: str
    aliases: [user, admin]
  password:
    description:
      - Password of the user.
      - Can also be set with the environment variable E(VMWARE_PASSWORD).
    type: str
    aliases: [pass, pwd]
  port:
    description:
      - Port of the vCenter server.
      - Can also be set with the environment variable E(VMWARE_PORT).
    type: int
    default: 443
  validate_certs:
    description:
      - Whether to verify the certificate of the vCenter server.
      - Can also be set with the environment variable E(VMWARE_VALIDATE_CERTS).
    type: bool
    default: true
  proxy_host:
    description:
      - Host name or IP address of an HTTP proxy for the connection.
      - Can also be set with the environment variable E(VMWARE_PROXY_HOST).
    type: str
  proxy_port:
    description:
      - Port of the proxy. Defaults to V(80).
      - Can also be set with the environment variable E(VMWARE_PROXY_PORT).
    type: int
requirements:
  - Python package C(pyvmomi)
notes:
  - The options are the same as in the collection C(vmware.vmware), so you can use the same credentials.
  - Run the module on a host that can reach the vCenter server, usually C(localhost).
"""

    HOSTS = r"""
options:
  datacenter:
    description:
      - Datacenter of the hosts, by name or by inventory path such as V(/europe/dc1).
      - Required if two datacenters have a O(cluster) of the same name.
    type: str
  cluster:
    description:
      - Cluster of the hosts.
    type: str
  esxi_hosts:
    description:
      - Names of hosts, or shell patterns.
      - With O(cluster) or O(datacenter), a host also has to be in that cluster or datacenter.
      - An empty list selects no host.
    type: list
    elements: str
"""
