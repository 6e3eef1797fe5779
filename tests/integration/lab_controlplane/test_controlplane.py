"""A control plane that is real: versions, rights, records, scheduling, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.kubernetes import controlplane, kubeconfig
from lab.programs import binaries, processes
from tests.integration.lab_controlplane.callers import Api, eventually

ROOT = Path(__file__).resolve().parents[3]
VGPU = "nvidia.com/NVIDIA_A2-4Q"


def pod(name, **requests):
    limits = {key.replace("vgpu", VGPU): value for key, value in requests.items()}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "automountServiceAccountToken": False}}


def condition(obj, kind):
    return next((one for one in obj["status"].get("conditions", []) if one["type"] == kind), None)


def alive(pids):
    return [pid for pid in pids if processes.identity(pid) is not None]


class TestServer:
    def test_version_is_the_pinned_one(self, api):
        if os.environ.get("KUBEBUILDER_ASSETS"):
            pytest.skip("the API server comes from KUBEBUILDER_ASSETS")
        pinned = binaries.pinned_version(binaries.CLUSTER, "k8s.io/kubernetes")
        version = api("GET", "/version")
        assert version["gitVersion"] == pinned
        assert f"v{version['major']}.{version['minor']}" == pinned.rpartition(".")[0]

    @pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's table of sockets")
    def test_listens_on_loopback_only(self, api):
        ports = {f"{port:04X}" for port in api.run.read()["ports"].values()}
        listening = [line.split()[1].split(":") for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        addresses = {address for address, port in listening if port in ports}
        assert addresses == {"0100007F"}
        everywhere = Path("/proc/net/tcp6")
        if everywhere.exists():
            assert not [line for line in everywhere.read_text().splitlines()[1:] if line.split()[1][-4:] in ports]

    def test_etcd_refuses_callers_without_a_certificate(self, api):
        port = api.run.read()["ports"]["etcd"]
        probe = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, ssl, urllib.request; urllib.request.urlopen(sys.argv[1], context="
                "ssl.create_default_context(cafile=sys.argv[2]))",
                f"https://127.0.0.1:{port}/version",
                str(api.run.pki / "ca.crt"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert probe.returncode
        assert "certificate required" in probe.stderr


class TestUsers:
    def test_nobody_is_known_and_may_nothing(self, api):
        error = api.as_user("nobody").refusal("GET", "/api/v1/nodes")
        assert (error.status, error.reason) == (403, "Forbidden")
        assert 'User "lab:nobody" cannot list resource "nodes"' in error.message

    def test_an_expired_token_is_unauthorized(self, api):
        error = api.as_user("expired").refusal("GET", "/api/v1/nodes")
        assert (error.status, error.reason) == (401, "Unauthorized")

    def test_the_viewer_reads_and_writes_not(self, api, namespace):
        viewer = api.as_user("viewer")
        assert viewer("GET", "/api/v1/nodes")["kind"] == "NodeList"
        assert viewer.refusal("POST", f"/api/v1/namespaces/{namespace}/pods", pod("no")).status == 403
        assert viewer.refusal("GET", "/api/v1/secrets").status == 403

    @pytest.mark.parametrize("user", kubeconfig.USERS, ids=lambda user: user.kubeconfig)
    def test_each_kubeconfig_is_the_user_it_says(self, api, user):
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = api.as_user(user.kubeconfig)("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        assert answer["status"]["userInfo"]["username"] == user.name
        assert set(user.groups) <= set(answer["status"]["userInfo"]["groups"])

    def test_a_user_can_be_added_while_it_runs(self, api):
        kubeconfig.issue(api.run, "guest", "lab:guest", ["system:masters"])
        assert api.as_user("guest")("GET", "/api/v1/nodes")["kind"] == "NodeList"


class TestAuditLog:
    def test_has_who_did_what_as_soon_as_the_answer_is_there(self, api, namespace):
        api("POST", f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All", {"metadata": {"name": "tried"}})
        events = [json.loads(line) for line in api.run.audit_log.read_text().splitlines()]
        (event,) = [one for one in events if f"{namespace}/configmaps?dryRun=All" in one["requestURI"]]
        assert (event["verb"], event["user"]["username"], event["stage"]) == ("create", "lab:admin", "ResponseComplete")
        assert event["responseStatus"]["code"] == 201
        assert event["userAgent"] == "test"

    def test_health_probes_are_not_in_it(self, api):
        controlplane.wait_ready(api.run)
        assert '"requestURI":"/readyz' not in api.run.audit_log.read_text()


class TestScheduling:
    def test_a_pod_is_bound_to_the_node_that_has_the_vgpu(self, api, namespace, node):
        node({})
        holder = node({VGPU: "1"})
        pods = f"/api/v1/namespaces/{namespace}/pods"
        api("POST", pods, pod("one", vgpu="1"))
        assert eventually(lambda: api("GET", f"{pods}/one")["spec"].get("nodeName")) == holder

    def test_a_pod_waits_with_the_schedulers_words_until_a_node_has_it(self, api, namespace, node):
        waiting = node({})
        pods = f"/api/v1/namespaces/{namespace}/pods"
        api("POST", pods, pod("one", vgpu="2"))
        scheduled = eventually(lambda: condition(api("GET", f"{pods}/one"), "PodScheduled"))
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
        assert f"Insufficient {VGPU}" in scheduled["message"]
        amounts = {"capacity": {VGPU: "2"}, "allocatable": {VGPU: "2"}}
        path = f"/api/v1/nodes/{waiting}/status"
        api("PATCH", path, {"status": amounts}, content_type="application/merge-patch+json")
        assert eventually(lambda: api("GET", f"{pods}/one")["spec"].get("nodeName")) == waiting

    def test_owned_objects_are_collected(self, api, namespace):
        maps = f"/api/v1/namespaces/{namespace}/configmaps"
        owner = api("POST", maps, {"metadata": {"name": "owner"}})["metadata"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
        api("POST", maps, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
        api("DELETE", f"{maps}/owner")
        eventually(lambda: "owned" not in {item["metadata"]["name"] for item in api("GET", maps)["items"]})


class TestRestart:
    def test_the_api_server_comes_back_with_its_data_and_address(self, api, namespace):
        before = api("GET", f"/api/v1/namespaces/{namespace}")["metadata"]["uid"]
        controlplane.restart_apiserver(api.run)
        assert api("GET", f"/api/v1/namespaces/{namespace}")["metadata"]["uid"] == before

    def test_it_can_be_away_for_a_while(self, api):
        controlplane.stop_apiserver(api.run)
        try:
            assert not processes.is_running(api.run, "kube-apiserver")
            assert processes.is_running(api.run, "etcd")
        finally:
            controlplane.start_apiserver(api.run)
        assert api("GET", "/api/v1/nodes")["kind"] == "NodeList"
        assert all(process.running for process in processes.status(api.run))


class TestSideBySide:
    def test_a_second_lab_shares_nothing_and_leaves_nothing(self, api, built, own_run):
        controlplane.start(own_run, built)
        second = Api(own_run)
        second("POST", "/api/v1/namespaces", {"metadata": {"name": "only-here"}})
        assert api.refusal("GET", "/api/v1/namespaces/only-here").status == 404
        found = processes.status(own_run)
        assert {process.name for process in found} == {*controlplane.BINARIES, controlplane.GATE}
        pids = [process.pid for process in found]

        processes.stop_all(own_run)

        assert alive(pids) == []
        assert processes.status(own_run) == []
        assert api("GET", "/api/v1/nodes")["kind"] == "NodeList"

    def test_a_killed_starter_leaves_nothing_that_stop_does_not_find(self, built, own_run):
        program = (
            "import sys, pathlib\n"
            "from lab import rundir\n"
            "from lab.kubernetes import controlplane\n"
            "names = dict(word.split('=') for word in sys.argv[2:])\n"
            "run = rundir.RunDir(sys.argv[1])\n"
            "controlplane.start(run, {name: pathlib.Path(path) for name, path in names.items()})\n"
        )
        words = [f"{name}={path}" for name, path in built.items()]
        starter = subprocess.Popen(
            [sys.executable, "-c", program, str(own_run.path), *words], env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        eventually(lambda: processes.is_running(own_run, "kube-apiserver"))
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        pids = [process.pid for process in processes.status(own_run)]
        assert alive(pids) == pids

        processes.stop_all(own_run)

        assert alive(pids) == []

    def test_a_lost_port_is_replaced(self, built, own_run, monkeypatch, api):
        """Between choosing a port and using it somebody else may take it."""
        choose, taken = controlplane.free_ports, list(api.run.read()["ports"].values())
        answers = [taken, choose(len(controlplane.PORTS))]
        monkeypatch.setattr(controlplane, "free_ports", lambda count: answers.pop(0))
        controlplane.start(own_run, built)
        assert Api(own_run)("GET", "/api/v1/nodes")["kind"] == "NodeList"
        assert answers == []
