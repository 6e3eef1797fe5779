# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documentation that the Harvester modules share: how to reach the cluster, and how long to wait for it."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path to a kubeconfig file, or its content as a dictionary.
      - One downloaded from Harvester or from Rancher works, also one that runs a program to get its credentials.
      - Without this option, O(host) or a service account, E(KUBECONFIG) and then C(~/.kube/config) are used.
      - If this option, or O(host) with credentials, is given, cluster and credentials in the environment are ignored.
        A job can therefore hold the credentials of another cluster.
      - Can also be given in the environment variable E(K8S_AUTH_KUBECONFIG).
    type: raw
  context:
    description:
      - The context of the kubeconfig to use instead of its current one.
      - Can also be given in the environment variable E(K8S_AUTH_CONTEXT).
    type: str
  host:
    description:
      - URL of the API server. One of Rancher's proxy, C(https://rancher.example/k8s/clusters/c-m-abcdef), will do.
      - Can also be given in the environment variable E(K8S_AUTH_HOST).
    type: str
  api_key:
    description:
      - Token to authenticate with.
      - Can also be given in the environment variable E(K8S_AUTH_API_KEY).
    type: str
  username:
    description:
      - User for HTTP basic authentication, which needs a proxy that offers it.
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
      - Path to the certificate of the authority that signed the API server's certificate.
      - Can also be given in the environment variable E(K8S_AUTH_SSL_CA_CERT).
      - The variable is about the cluster that the environment names. It is ignored if O(kubeconfig), or O(host) with
        credentials, is given.
    type: path
    aliases: [ssl_ca_cert]
  validate_certs:
    description:
      - Whether to verify the API server's certificate. It is verified unless this, or the kubeconfig, says otherwise.
      - Can also be given in the environment variable E(K8S_AUTH_VERIFY_SSL).
      - The variable is about the cluster that the environment names. It is ignored if O(kubeconfig), or O(host) with
        credentials, is given.
    type: bool
    aliases: [verify_ssl]
  proxy:
    description:
      - URL of an HTTP proxy to connect through. E(HTTPS_PROXY) and the like are not looked at.
      - Can also be given in the environment variable E(K8S_AUTH_PROXY).
    type: str
  no_proxy:
    description:
      - Hosts and domains, separated by commas, that are not reached through O(proxy).
      - Can also be given in the environment variable E(K8S_AUTH_NO_PROXY).
    type: str
  proxy_headers:
    description:
      - Headers for the proxy.
    type: dict
    suboptions:
      proxy_basic_auth:
        description:
          - User and password for the proxy, with a colon between them.
          - Can also be given in the environment variable E(K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH).
        type: str
      basic_auth:
        description:
          - User and password for basic authentication, with a colon between them.
          - Can also be given in the environment variable E(K8S_AUTH_PROXY_HEADERS_BASIC_AUTH).
        type: str
      user_agent:
        description:
          - The user agent to name.
          - Can also be given in the environment variable E(K8S_AUTH_PROXY_HEADERS_USER_AGENT).
        type: str
  persist_config:
    description:
      - Whether refreshed tokens are written back to the kubeconfig, where it has an authentication provider.
      - Can also be given in the environment variable E(K8S_AUTH_PERSIST_CONFIG).
    type: bool
  impersonate_user:
    description:
      - User to act as.
      - Can also be given in the environment variable E(K8S_AUTH_IMPERSONATE_USER).
    type: str
  impersonate_groups:
    description:
      - Groups to act as a member of.
      - Can also be given in the environment variable E(K8S_AUTH_IMPERSONATE_GROUPS), separated by commas.
    type: list
    elements: str
  harvester_version:
    description:
      - The version of Harvester, such as V(1.7) or V(v1.8.1), where the cluster itself does not tell it correctly.
      - Up to 1.7 vGPUs are mediated devices; from 1.8 on they are virtual functions with a vendor's driver.
      - By default the cluster's setting C(server-version) decides; if it cannot be read, the look of the devices does.
    type: str
requirements:
  - Python package C(urllib3), which Ansible's own dependencies or C(kubernetes) bring along
  - Python package C(PyYAML)
  - Python package C(kubernetes) if the kubeconfig runs a program to get its credentials, or consists of several files
notes:
  - The API is used directly, so the module runs wherever the API server can be reached, mostly on C(localhost).
  - The permissions it needs are listed, as a ClusterRole, in the collection's documentation.
"""

    WAITING = r"""
options:
  wait:
    description:
      - Whether to wait until the outcome is there. Harvester does the work after it has taken the request.
      - Even with V(false), a step that depends on an earlier one waits for it.
    type: bool
    default: true
  wait_timeout:
    description:
      - How many seconds to wait for everything together.
      - When they are over, the task fails, says what is missing, and names the likely causes that it found by looking.
    type: int
    default: 300
"""

    FAIL_FAST = r"""
options:
  fail_fast:
    description:
      - Whether to fail as soon as it is certain that waiting is pointless, instead of when O(wait_timeout) is over.
      - >-
        That is the case if the NVIDIA driver pod of a node cannot start (such as C(CrashLoopBackOff) or
        C(ImagePullBackOff)), a node has not been ready for 60 seconds, or the API server has not answered for 60
        seconds.
    type: bool
    default: true
"""
