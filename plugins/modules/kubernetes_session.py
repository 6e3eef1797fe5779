#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_session
short_description: Prepare a connection for the modules of kubernetes.core without passing secrets to them
version_added: 0.1.0
description:
  - Checks that the API server of a Kubernetes cluster can be reached and accepts the credentials.
    The error message is clear and shows no secret.
  - Returns options for the modules of C(kubernetes.core). If the connection has secrets, they are in a temporary
    kubeconfig that only the current user can read, and the options name its path.
  - Tasks of C(kubernetes.core) that cannot reach their API server return their arguments, so a token that is passed as
    an argument appears in clear text in the events of a job. E(K8S_AUTH_API_KEY) in C(environment) appears in the
    output with C(-vvv).
  - Use O(state=absent) in an C(always) section to remove the temporary kubeconfig.
    A run that is killed leaves it behind.
options:
  state:
    description:
      - V(present) checks the connection and prepares it. V(absent) removes the kubeconfig at O(path).
    type: str
    choices: [present, absent]
    default: present
  path:
    description:
      - The temporary kubeconfig to remove, as returned in RV(path). Required with O(state=absent).
      - An empty path removes nothing.
    type: str
extends_documentation_fragment:
  - vgpu.fleet.harvester
attributes:
  check_mode:
    description:
      - Changes nothing on the cluster. Later tasks need the temporary kubeconfig, so it is written in check mode too.
    support: full
  diff_mode:
    description: The module does not return a diff.
    support: none
seealso:
  - module: kubernetes.core.k8s
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Use kubernetes.core with a token that appears in no output
  block:
    - name: Connect to the cluster
      vgpu.fleet.kubernetes_session:
        host: https://rancher.example/k8s/clusters/c-m-abcdef
        api_key: "{{ rancher_token }}"
      register: session

    - name: Read the nodes
      kubernetes.core.k8s_info:
        kind: Node
      module_defaults:
        group/kubernetes.core.k8s: "{{ session.options }}"
  always:
    - name: Remove the temporary kubeconfig
      vgpu.fleet.kubernetes_session:
        state: absent
        path: "{{ session.path | default('') }}"
"""

RETURN = r"""
options:
  description: Options for the modules of C(kubernetes.core). None of them is a secret.
  returned: O(state=present)
  type: dict
  sample: {kubeconfig: /tmp/vgpu-fleet-session-x1y2z3/kubeconfig, validate_certs: true}
path:
  description: The temporary kubeconfig; empty if the connection has no secrets, so that none was written.
  returned: O(state=present)
  type: str
  sample: /tmp/vgpu-fleet-session-x1y2z3/kubeconfig
server:
  description: The API server, and its version of Kubernetes if the user may read it.
  returned: O(state=present)
  type: dict
  contains:
    host:
      description: URL of the API server.
      type: str
      sample: https://10.0.0.10:6443
    version:
      description: Version of Kubernetes.
      type: str
      sample: v1.32.4+rke2r1
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.kube import connection as access, session
from ..module_utils.kube.client import ApiClient, Forbidden
from ..module_utils.kube.options import connection_spec
from ..module_utils.module import ReadResult, finish, reporting_errors


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **connection_spec(),
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "path": {"type": "str"},
        },
        required_if=[("state", "absent", ["path"])],
        supports_check_mode=True,
    )
    with reporting_errors(module):
        finish(module, remove(module.params["path"]) if module.params["state"] == "absent" else create(module.params))


def remove(path: str) -> ReadResult:
    """Remove the kubeconfig of a session."""
    if path:
        session.remove(Path(path))
    return ReadResult({})


def create(params: dict[str, Any]) -> ReadResult:
    """Connect once, and write a kubeconfig if the options contain a credential."""
    options = {name: params[name] for name in connection_spec() if name != "harvester_version"}
    config = access.from_options(options)
    version = _version(ApiClient(config))
    prepared = session.prepare(options, config, os.environ)
    path = str(session.write(prepared.content)) if prepared.content else ""
    return ReadResult(
        {
            "options": {**prepared.options, "kubeconfig": path} if path else dict(prepared.options),
            "path": path,
            "server": {"host": config.host, "version": version},
        }
    )


def _version(api: ApiClient) -> str:
    try:
        return str(api.get("/version").get("gitVersion") or "")
    except Forbidden:
        # The user is authenticated even without permission to read the version.
        return ""


if __name__ == "__main__":
    main()
