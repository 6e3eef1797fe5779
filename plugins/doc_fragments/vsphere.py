# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation that the vSphere modules share: how to reach vCenter, and which hosts are meant."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  hostname:
    description:
      - Name or address of vCenter.
      - Can also be given in the environment variable E(VMWARE_HOST).
    type: str
  username:
    description:
      - User of vCenter, such as V(administrator@vsphere.local).
      - Can also be given in the environment variable E(VMWARE_USER).
    type: str
    aliases: [user, admin]
  password:
    description:
      - Password of the user.
      - Can also be given in the environment variable E(VMWARE_PASSWORD).
    type: str
    aliases: [pass, pwd]
  port:
    description:
      - Port of vCenter.
      - Can also be given in the environment variable E(VMWARE_PORT).
    type: int
    default: 443
  validate_certs:
    description:
      - Whether the certificate of vCenter is verified.
      - Can also be given in the environment variable E(VMWARE_VALIDATE_CERTS).
    type: bool
    default: true
  proxy_host:
    description:
      - Name or address of an HTTP proxy to reach vCenter through.
      - Can also be given in the environment variable E(VMWARE_PROXY_HOST).
    type: str
  proxy_port:
    description:
      - Port of the proxy; V(80) if it is not given.
      - Can also be given in the environment variable E(VMWARE_PROXY_PORT).
    type: int
requirements:
  - Python package C(pyvmomi)
notes:
  - The options are those of the collection C(vmware.vmware), so credentials that serve it serve here as well.
  - The module runs wherever vCenter can be reached, mostly on C(localhost).
"""

    HOSTS = r"""
options:
  datacenter:
    description:
      - The datacenter whose hosts are meant, by name or by inventory path such as V(/europe/dc1).
      - Needed where two datacenters have a O(cluster) of the same name.
    type: str
  cluster:
    description:
      - The cluster whose hosts are meant.
    type: str
  esxi_hosts:
    description:
      - The hosts that are meant, by name or shell pattern.
      - With O(cluster) or O(datacenter) as well, a host has to be in there.
      - An empty list selects no host.
    type: list
    elements: str
"""
