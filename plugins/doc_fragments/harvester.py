# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation fragments of the Harvester modules: connection and waiting."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path to a kubeconfig file, or its content as a dictionary.
      - You can use a kubeconfig downloaded from Harvester or from Rancher, including one that runs a program to get
        its credentials.
      - Without this option, O(host) or a service account, the module uses E(KUBECONFIG) and then C(~/.kube/config).
      - If this option, or O(host) with credentials, is given, the module ignores the cluster and credentials of the
        environment, so that a job can have credentials of another cluster in its environment.
      - Can also be given in the environment variable E(K8S_AUTH_KUBECONFIG).
    type: raw
  context:
    description:
      - The context of the kubeconfig to use instead of its current one.
      - Can also be given in the environment variable E(K8S_AUTH_CONTEXT).
    type: str
  host:
    description:
      - URL of the API server, or of Rancher's proxy, such as C(https://rancher.example/k8s/clusters/c-m-abcdef).
      - Can also be given in the environment variable E(K8S_AUTH_HOST).
    type: str
  api_key:
    description:
      - Token to authenticate with.
      - Can also be given in the environment variable E(K8S_AUTH_API_KEY).
    type: str
  username:
    description:
      - User for HTTP basic authentication, which requires a proxy that supports it.
      - Can also be given in the environment variable E(K8S_AUTH_USERNAME).
    type: str
  password:
    description:
      - Password for HTTP basic authentication.
      - Can also be given in the environment variable E(K8S_AUTH_PASSWORD).
    type: str
  client_cert:
    description:
      - Path to a client certificate.
      - Can also be given in the environment variable E(K8S_AUTH_CERT_FILE).
    type: path
    aliases: [cert_file]
  client_key:
    description:
      - Path to the key of the client certificate.
      - Can also be given in the environment variable E(K8S_AUTH_KEY_FILE).
    type: path
    aliases: [key_file]
  ca_cert:
    description:
      - Path to the CA certificate of the API server.
      - Can also be given in the environment variable E(K8S_AUTH_SSL_CA_CERT).
      - The environment variable is ignored if O(kubeconfig), or O(host) with credentials, is given.
    type: path
    aliases: [ssl_ca_cert]
  validate_certs:
    description:
      - Whether to verify the certificate of the API server. Defaults to the setting of the kubeconfig, or to V(true).
      - Can also be given in the environment variable E(K8S_AUTH_VERIFY_SSL).
      - The environment variable is ignored if O(kubeconfig), or O(host) with credentials, is given.
    type: bool
    aliases: [verify_ssl]
  proxy:
    description:
      - URL of an HTTP proxy to connect through. The module ignores E(HTTPS_PROXY) and similar variables.
      - Can also be given in the environment variable E(K8S_AUTH_PROXY).
    type: str
  no_proxy:
    description:
      - Comma-separated hosts and domains to connect to without O(proxy).
      - Can also be given in the environment variable E(K8S_AUTH_NO_PROXY).
    type: str
  proxy_headers:
    description:
      - Headers for the proxy.
    type: dict
    suboptions:
      proxy_basic_auth:
        description:
          - User and password for the proxy, separated by a colon.
          - Can also be given in the environment variable E(K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH).
        type: str
      basic_auth:
        description:
          - User and password for basic authentication, separated by a colon.
          - Can also be given in the environment variable E(K8S_AUTH_PROXY_HEADERS_BASIC_AUTH).
        type: str
      user_agent:
        description:
          - Value of the C(User-Agent) header.
          - Can also be given in the environment variable E(K8S_AUTH_PROXY_HEADERS_USER_AGENT).
        type: str
  persist_config:
    description:
      - Whether to write refreshed tokens of an authentication provider back to the kubeconfig.
      - Can also be given in the environment variable E(K8S_AUTH_PERSIST_CONFIG).
    type: bool
  impersonate_user:
    description:
      - User to impersonate.
      - Can also be given in the environment variable E(K8S_AUTH_IMPERSONATE_USER).
    type: str
  impersonate_groups:
    description:
      - Groups to impersonate.
      - Can also be given in the environment variable E(K8S_AUTH_IMPERSONATE_GROUPS), separated by commas.
    type: list
    elements: str
  harvester_version:
    description:
      - The version of Harvester, such as V(1.7) or V(v1.8.1), if the cluster reports it incorrectly.
      - Up to 1.7, vGPUs are mediated devices. From 1.8 on, they are virtual functions with a vendor-specific driver.
      - Defaults to the setting C(server-version) of the cluster. If the module cannot read it, it detects the version
        from the devices.
    type: str
requirements:
  - Python package C(urllib3) 2.0.2 or later, a dependency of C(kubernetes)
  - Python package C(PyYAML)
  - Python package C(kubernetes) if the kubeconfig runs a program to get its credentials, or consists of several files
notes:
  - Run the module on a host that can reach the API server, usually C(localhost).
  - The documentation of the collection lists the required permissions as a ClusterRole.
"""

    WAITING = r"""
options:
  wait:
    description:
      - Whether to wait until the change is effective. Harvester applies a change after it has accepted the request.
      - Even with V(false), a step that depends on an earlier step waits for it.
    type: bool
    default: true
  wait_timeout:
    description:
      - Maximum time to wait for all changes together, in seconds.
      - After that the task fails, and reports what is missing, what is still changing, and the likely causes.
      - Defaults to 300 seconds and additional time for each vGPU that changes on the busiest node, because a node
        changes one vGPU after the other. This is 5 seconds from Harvester 1.8 on, and 1 second before.
    type: int
"""

    FAIL_FAST = r"""
options:
  fail_fast:
    description:
      - Whether to fail as soon as the wait cannot succeed, instead of after O(wait_timeout).
      - >-
        This applies if the NVIDIA driver pod of a node cannot start (such as C(CrashLoopBackOff) or
        C(ImagePullBackOff)), if a node has not been ready for 60 seconds, or if the API server has not answered for 60
        seconds.
    type: bool
    default: true
"""
