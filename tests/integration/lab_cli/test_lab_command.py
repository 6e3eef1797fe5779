"""A lab from the command line: started, looked at, stepped, disturbed and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from lab import hints
from lab.lifecycle.control import Control
from lab.programs import processes
from lab.rundir import RunDir
from tests.integration.api import CLAIMS, SRIOV_GPUS, VGPUS, Api
from tests.integration.lab_cli.conftest import ROOT

PARTS = ("etcd", "kube-apiserver", "api-gate", "harvester", "kube-scheduler", "kube-controller-manager")
GPU, OTHER_GPU = f"{SRIOV_GPUS}/gpu-a-000008000", f"{SRIOV_GPUS}/gpu-b-000008000"


@pytest.fixture
def api(run_dir):
    return Api(RunDir(run_dir).kubeconfig("admin"))


@pytest.fixture
def split(command, run_dir, api):
    """SR-IOV is on at gpu-a."""
    assert api.patch(GPU, {"spec": {"enabled": True}}).status == 200
    of_gpu_a = {"labelSelector": "nodename=gpu-a"}
    if not api.get(VGPUS, **of_gpu_a).items:
        command("advance", "60", run_dir=run_dir)
    assert len(api.get(VGPUS, **of_gpu_a).items) == 16


def _give_rights(api):
    """An account of one's own with a role, in the cluster and in a namespace; the paths of what was made."""
    rbac, account = "/apis/rbac.authorization.k8s.io/v1", "/api/v1/namespaces/default/serviceaccounts"
    subject = {"kind": "ServiceAccount", "name": "mine", "namespace": "default"}
    made = [(account, {"metadata": {"name": "mine"}})]
    for kind, place in (("ClusterRole", rbac), ("Role", f"{rbac}/namespaces/default")):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "mine"}
        binding = {"metadata": {"name": "mine"}, "roleRef": reference, "subjects": [subject]}
        made += [
            (f"{place}/{kind.lower()}s", {"metadata": {"name": "mine"}, "rules": []}),
            (f"{place}/{kind.lower()}bindings", binding),
        ]
    for path, body in made:
        assert api.post(path, body).status == 201
    return [f"{path}/mine" for path, _ in made]


def printed_time(answer):
    assert answer.returncode == 0, answer
    return float(answer.stdout)


class TestStatus:
    def test_it_shows_every_part_and_the_time(self, command, run_dir):
        answer = command("status", run_dir=run_dir)
        lines = answer.stdout.splitlines()
        assert answer.returncode == 0
        assert [(line.split()[0], line.split()[1]) for line in lines[: len(PARTS)]] == [
            (part, "running") for part in PARTS
        ]
        assert lines[len(PARTS)].startswith("Harvester 1.8, scenario default, simulated time ")
        assert lines[len(PARTS)].endswith("clock stopped")


class TestEnvironment:
    def test_a_shell_that_evaluates_it_reaches_the_api(self, run_dir):
        script = (
            f'set -e; eval "$({hints.call("env", RunDir(run_dir))})"\n'
            'curl -sS --fail --cacert "$LAB_CA_FILE" --cert "$LAB_CLIENT_CERT" --key "$LAB_CLIENT_KEY"'
            ' "$LAB_API_SERVER/api/v1/nodes"'
        )
        environment = {**os.environ, "MAKEFLAGS": ""}
        answer = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, answer
        assert {node["metadata"]["name"] for node in json.loads(answer.stdout)["items"]} == {"gpu-a", "gpu-b"}

    def test_it_names_the_kubeconfig_twice_and_the_audit_log(self, command, run_dir):
        lines = dict(
            line.removeprefix("export ").split("=", 1) for line in command("env", run_dir=run_dir).stdout.splitlines()
        )
        run = RunDir(run_dir)
        assert lines["KUBECONFIG"] == lines["K8S_AUTH_KUBECONFIG"] == str(run.kubeconfig("admin"))
        assert lines["LAB_AUDIT_LOG"] == str(run.audit_log)
        assert lines["LAB_RUN_DIR"] == str(run_dir)

    def test_the_run_directory_may_come_from_the_environment(self, command, run_dir):
        assert command("status", LAB_RUN_DIR=str(run_dir)).returncode == 0


class TestAuditLog:
    def test_the_snippet_of_the_documentation_shows_what_people_wrote_and_nothing_else(self, run_dir, api):
        page = (ROOT / "docs/lab.md").read_text()
        snippet = page.split("$ python3 - <<'END'\n")[1].split("END\n")[0]
        name = "/api/v1/namespaces/default/configmaps"
        expired = Api(RunDir(run_dir).kubeconfig("expired"))
        assert api.post(name, {"metadata": {"name": "mine"}}).status == 201
        assert expired.post(name, {"metadata": {"name": "theirs"}}).status == 401
        assert api.delete(f"{name}/mine").status == 200
        environment = {**os.environ, "LAB_AUDIT_LOG": str(RunDir(run_dir).audit_log)}
        answer = subprocess.run(
            [sys.executable, "-c", snippet], env=environment, capture_output=True, text=True, check=False
        )
        assert answer.stderr == ""
        lines = answer.stdout.splitlines()
        assert lines[-2:] == [f"lab:admin create {name} 201", f"lab:admin delete {name}/mine 200"]
        assert not [line for line in lines if "customresourcedefinitions" in line or "/kubevirts" in line]


class TestTime:
    def test_advance_prints_the_new_time(self, command, run_dir):
        before = printed_time(command("advance", "0", run_dir=run_dir))
        assert printed_time(command("advance", "7.5", run_dir=run_dir)) == pytest.approx(before + 7.5)


class TestReset:
    def test_everything_is_as_it_was_at_the_start(self, command, run_dir, api, split):
        rights = _give_rights(api)
        assert [api.get(path).status for path in rights] == [200] * len(rights)
        assert command("reset", run_dir=run_dir).returncode == 0
        assert api.get(GPU).body["spec"]["enabled"] is False
        assert api.get(VGPUS).items == []
        assert [api.get(path).status for path in rights] == [404] * len(rights)
        assert api.as_user("viewer").get(GPU).status == 200
        assert command("status", run_dir=run_dir).returncode == 0


class TestDisturbances:
    def test_a_fault_is_switched_on_and_off(self, command, run_dir, api):
        def status_of_what_should_be_refused():
            claim = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "PCIDeviceClaim"}
            return api.post(CLAIMS, {**claim, "metadata": {"name": "of-no-device"}}, dryRun="All").status

        assert status_of_what_should_be_refused() == 500
        assert command("fault", "webhook-down", run_dir=run_dir).returncode == 0
        assert status_of_what_should_be_refused() == 201
        assert command("fault", "webhook-down", "--off", run_dir=run_dir).returncode == 0
        assert status_of_what_should_be_refused() == 500

    def test_status_tells_where_a_process_is_down(self, command, run_dir):
        command("fault", "process-down", "--node", "gpu-b", run_dir=run_dir)
        assert "pcidevices process is down on gpu-b" in command("status", run_dir=run_dir).stdout
        command("fault", "process-down", "--off", run_dir=run_dir)
        command("advance", "10", run_dir=run_dir)
        assert "process is down" not in command("status", run_dir=run_dir).stdout

    def test_a_rebooted_node_gets_its_functions_back(self, command, run_dir, api, split):
        assert command("reboot", "gpu-a", run_dir=run_dir).returncode == 0
        assert Control(run_dir).hardware("gpu-a")["0000:08:00.0"]["vfs"] == {}
        command("advance", "60", run_dir=run_dir)
        assert len(Control(run_dir).hardware("gpu-a")["0000:08:00.0"]["vfs"]) == 16

    def test_the_lab_goes_on_after_a_restart_of_the_api_server(self, command, run_dir, api):
        before = processes.status(RunDir(run_dir))
        assert command("fault", "apiserver-restart", run_dir=run_dir).returncode == 0
        after = processes.status(RunDir(run_dir))
        assert [old.name for old, new in zip(before, after, strict=True) if old.pid != new.pid] == ["kube-apiserver"]
        wanted = not api.get(OTHER_GPU).body["spec"]["enabled"]
        assert api.patch(OTHER_GPU, {"spec": {"enabled": wanted}}).status == 200
        command("advance", "60", run_dir=run_dir)
        assert bool(api.get(OTHER_GPU).body.get("status")) is wanted


class TestLogs:
    def test_all_parts_or_those_named(self, command, run_dir):
        headers = [line for line in command("logs", run_dir=run_dir).stdout.splitlines() if line.startswith("==> ")]
        assert {header.strip("=<> ") for header in headers} >= set(PARTS)
        one = command("logs", "harvester", run_dir=run_dir).stdout
        assert one.startswith("==> harvester <==\n")
        assert "==> etcd" not in one


class TestSideBySide:
    def test_two_labs_share_nothing(self, command, run_dir, split, labs):
        other = labs("mdev").begin()
        assert other.run.read()["server"] != RunDir(run_dir).read()["server"]
        assert other.gpu("gpu-a-000008000")["spec"]["enabled"] is False
        assert "Harvester 1.7" in command("status", run_dir=other.run.path).stdout
        assert "Harvester 1.8" in command("status", run_dir=run_dir).stdout


class TestEnd:
    def test_down_finds_everything_that_a_killed_starter_left(self, command, tmp_path):
        place = tmp_path / "run"
        less = ["--without", "kubevirt", "--without", "vsphere"]
        words = [sys.executable, "-m", "lab", "up", *less, "--run-dir", str(place)]
        starter = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run = RunDir(place)
        deadline = time.monotonic() + 60
        while not processes.is_running(run, "kube-apiserver"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        pids = [process.pid for process in processes.status(run)]
        assert pids

        assert command("down", run_dir=place).returncode == 0
        assert [pid for pid in pids if processes.identity(pid) is not None] == []
        assert command("status", run_dir=place).returncode == 1

        # The directory is a lab's, so the next one may have it.
        assert command("up", "--only", "vsphere", run_dir=place).returncode == 0
        assert command("down", run_dir=place).returncode == 0

        # Nothing answers any more, and everything says so in one line.
        for words in (("env",), ("reset",), ("advance", "1")):
            gone = command(*words, run_dir=place)
            assert gone.returncode == 1
            assert len(gone.stderr.splitlines()) == 1
