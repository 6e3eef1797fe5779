"""No credential is shown when a connection fails: neither in the events of a job nor in the output with -vvv."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import ansible_runner
import pytest

from lab.kubernetes import certificates
from lab.rundir import RunDir
from tests.integration.modules.examples import examples
from tests.integration.playbooks.runs import INSTALLED
from tests.integration.warm_interpreter import Warm

Json = dict[str, Any]

# Roles that talk to a Kubernetes API server, with what they need to get as far as that.
ROLES: dict[str, Json] = {
    "capv_gpu_cluster": {
        "capv_gpu_cluster_name": "c",
        "capv_gpu_cluster_kubernetes_version": "v1.32.4",
        "capv_gpu_cluster_endpoint": "192.0.2.10",
        "capv_gpu_cluster_server": "vcenter.example",
        "capv_gpu_cluster_username": "capv",
        "capv_gpu_cluster_password": "PLANTED-provider",
        "capv_gpu_cluster_check_room": False,
    },
    "capv_gpu_pool": {
        "capv_gpu_pool_cluster": "c",
        "capv_gpu_pool_vgpus": [{"profile": "A40-8Q"}],
        "capv_gpu_pool_check_room": False,
    },
    "gpu_operator": {"gpu_operator_driver_in_image": True},
    "gpu_smoke_test": {},
    "harvester_gpu_node": {"harvester_gpu_node_profile": "A2-4Q", "harvester_gpu_node_count": 1},
    "harvester_gpu_vm": {"harvester_gpu_vm_vms": [{"name": "desk", "vgpus": []}]},
    "rancher_gpu_cluster": {
        "rancher_gpu_cluster_name": "c",
        "rancher_gpu_cluster_harvester": "c-m-1",
        "rancher_gpu_cluster_kubernetes_version": "v1.32.4+rke2r1",
        "rancher_gpu_cluster_pools": [{"name": "gpu"}],
    },
    "vgpu_capacity": {},
    "vgpu_drift": {},
    "vgpu_reprofile": {
        "vgpu_reprofile_profile": "A2-4Q",
        "vgpu_reprofile_count": 1,
        "vgpu_reprofile_nodes": ["gpu-a"],
    },
    "vsphere_gpu_host": {"vsphere_gpu_host_cluster": "c"},
    "vsphere_gpu_vm": {"vsphere_gpu_vm_vms": [{"name": "desk", "template": "t", "cluster": "c"}]},
}
# The others use kubernetes.core only after modules of ours have answered, or pass a kubeconfig on in the same way.
ONLY = {
    "unreliable": ("gpu_operator", "gpu_smoke_test", "harvester_gpu_vm", "rancher_gpu_cluster"),
    "mapping": ("gpu_smoke_test", "harvester_gpu_node"),
}
PLAY = """
- hosts: all
  gather_facts: false
  strategy: free
  module_defaults:
    group/vgpu.fleet.harvester: "{{ connection }}"
    group/vgpu.fleet.vsphere: {hostname: 127.0.0.1, port: "{{ port }}", username: admin, password: "{{ token }}"}
  tasks:
    - name: Run the role
      block:
        - ansible.builtin.include_role:
            name: "vgpu.fleet.{{ role }}"
          vars:
            capv_gpu_cluster_connection: "{{ connection }}"
            capv_gpu_pool_connection: "{{ connection }}"
            gpu_operator_connection: "{{ connection }}"
            gpu_smoke_test_connection: "{{ connection }}"
            rancher_gpu_cluster_url: "{{ address }}"
            rancher_gpu_cluster_token: "{{ token }}"
            rancher_gpu_cluster_ca_cert: "{{ connection.ca_cert | default('') }}"
      rescue:
        - name: "Report {{ inventory_hostname }}"
          ansible.builtin.debug:
            msg: "{{ ansible_failed_task.action }}: {{ ansible_failed_result.msg | default(ansible_failed_result) }}"
"""


# What an API server says that has nodes and nothing else, below a path at which it works.
API: dict[str, Json] = {
    "/works/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/works/apis": {"kind": "APIGroupList", "groups": []},
    "/works/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get", "list"]}
        ],
    },
    "/works/api/v1/nodes": {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []},
}


class Unreliable(BaseHTTPRequestHandler):
    """Tells its version, so that the connection seems to work, and hangs up on everything else."""

    # Who asked for more than the version.
    seen: ClassVar[set[str]] = set()

    def handle(self) -> None:
        # Clients that do not trust the certificate hang up.
        with contextlib.suppress(OSError):
            super().handle()

    def do_GET(self) -> None:
        content = {"gitVersion": "v1.32.4"} if self.path.endswith("/version") else API.get(self.path.split("?")[0])
        if content is None or "/works/" in self.path:
            self.seen.add(self.headers.get("Authorization", "nobody"))
        if content is None:
            self.close_connection = True
            return
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return RunDir(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def ports(run_dir: RunDir) -> Iterator[dict[str, int]]:
    """A port that is closed, and one with a server that soon breaks down. Who trusts its authority gets further."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    certificates.authority(run_dir)
    pair = certificates.server(run_dir, "unreliable")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Unreliable)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"closed": closed, "untrusted": server.server_port, "unreliable": server.server_port, "mapping": closed}
    server.shutdown()
    server.server_close()


def mapping(address: str, token: str) -> Json:
    """A kubeconfig as a variable holds it."""
    return {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": address}}],
        "users": [{"name": "one", "user": {"token": token}}],
    }


def inventory(ports: dict[str, int], authority: Path) -> Json:
    """One host for each role and each way in which its connection fails, with a token of its own."""
    hosts: Json = {}
    for role, variables in ROLES.items():
        for mode, port in ports.items():
            if role not in ONLY.get(mode, ROLES):
                continue
            address, token = f"https://127.0.0.1:{port}", f"PLANTED-{role}-{mode}-{len(hosts):03}"
            connection: Json = {"host": address, "api_key": token}
            if mode == "mapping":
                connection = {"kubeconfig": mapping(address, token)}
            if mode == "unreliable":
                connection["ca_cert"] = str(authority)
            facts = {"role": role, "port": port, "address": address, "token": token, "connection": connection}
            hosts[f"{role}-{mode}"] = {**facts, **variables}
    shared = {"ansible_connection": "local"}
    return {"all": {"hosts": hosts, "vars": shared}}


def run(folder: Path, play: str, hosts: Json, warm: Warm, **environment: str) -> tuple[list[Json], str]:
    """The events of a job, and everything that was written while it ran, with -vvv."""
    (folder / "temporary").mkdir()
    playbook = folder / "play.yml"
    playbook.write_text(play)
    done = ansible_runner.run(
        private_data_dir=str(folder),
        playbook=str(playbook),
        inventory=hosts,
        extravars={"ansible_python_interpreter": sys.executable},
        envvars={
            "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED),
            "ANSIBLE_FORKS": "8",
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            **warm,
            "TMPDIR": str(folder / "temporary"),
            **environment,
        },
        verbosity=3,
        quiet=True,
        # As in runs.py.
        cancel_callback=lambda: False,
    )
    return list(done.events), done.stdout.read()


def leaks(events: list[Json], shown: str, tokens: list[str]) -> list[str]:
    text = json.dumps(events) + shown
    return [token for token in tokens if token in text]


@pytest.fixture(autouse=True)
def _nobody_was_seen() -> None:
    Unreliable.seen.clear()


def test_the_example_reads_with_its_token_and_leaves_nothing_behind(
    tmp_path: Path, ports: dict[str, int], run_dir: RunDir, warm: Warm
) -> None:
    tasks = json.dumps(examples("kubernetes_session"))
    address = f"https://127.0.0.1:{ports['unreliable']}/works"
    # The authority is not an option of the example, and one in the environment may be that of another cluster.
    authority = f'"{address}", "ca_cert": "{certificates.pair(run_dir, "ca").cert}"'
    tasks = tasks.replace('"https://rancher.example/k8s/clusters/c-m-abcdef"', authority)
    play = json.dumps([{"hosts": "all", "gather_facts": False, "tasks": json.loads(tasks)}])
    facts = {"ansible_connection": "local", "rancher_token": "PLANTED-example"}
    other = {"K8S_AUTH_HOST": "https://127.0.0.1:1", "K8S_AUTH_API_KEY": "PLANTED-foreign"}
    events, shown = run(tmp_path, play, {"all": {"hosts": {"one": facts}}}, warm, **other)
    done = {
        event["event_data"]["task"]: event["event_data"]["res"] for event in events if event["event"] == "runner_on_ok"
    }
    assert list(done) == ["Connect to the cluster", "Read the nodes", "Remove the temporary kubeconfig"], shown
    assert done["Read the nodes"]["api_found"]
    assert Unreliable.seen == {"Bearer PLANTED-example"}
    assert leaks(events, shown, ["PLANTED-example", "PLANTED-foreign"]) == []
    assert not list((tmp_path / "temporary").glob("vgpu-fleet-session-*"))


def test_no_role_shows_a_token_when_its_connection_fails(
    tmp_path: Path, ports: dict[str, int], run_dir: RunDir, warm: Warm
) -> None:
    """S1, M13. Credentials of another cluster in the environment do not get in the way."""
    hosts = inventory(ports, certificates.pair(run_dir, "ca").cert)
    foreign = "PLANTED-foreign"
    events, shown = run(tmp_path, PLAY, hosts, warm, K8S_AUTH_HOST="https://127.0.0.1:1", K8S_AUTH_API_KEY=foreign)
    reported = {
        event["event_data"]["host"]: str(event["event_data"]["res"]["msg"])
        for event in events
        if event["event"] == "runner_on_ok" and event["event_data"]["task"].startswith("Report")
    }
    # Each role got as far as its connection, or a test of its output would prove nothing.
    assert set(reported) == set(hosts["all"]["hosts"])
    for host, message in reported.items():
        if host.endswith("-unreliable"):
            assert message.startswith("kubernetes.core."), (host, message)
            assert "127.0.0.1:1/" not in message, (host, message)
        else:
            assert message.startswith("vgpu.fleet."), (host, message)
            assert "cannot be reached" in message or "vsphere" in message, (host, message)
    asked = [facts["token"] for host, facts in hosts["all"]["hosts"].items() if host.endswith("-unreliable")]
    assert Unreliable.seen == {f"Bearer {token}" for token in asked}
    tokens = [facts["token"] for facts in hosts["all"]["hosts"].values()]
    assert leaks(events, shown, [*tokens, foreign, "PLANTED-provider"]) == []
    left = [path.name for path in (tmp_path / "temporary").iterdir() if path.name.startswith("vgpu-fleet-session-")]
    assert left == [], "a temporary kubeconfig was not removed"
