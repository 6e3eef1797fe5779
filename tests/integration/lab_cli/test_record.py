"""A recording of a lab agrees with the lab, tells no secrets, and writes nothing unless it is told to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lab.replay.play.runner import Runner
from lab.replay.read.recording import load
from lab.rundir import RunDir
from tests.integration.api import SRIOV_GPUS, VGPUS, VMS
from tests.integration.lab_cli.conftest import ROOT
from tests.integration.labs import Lab

MERGE = "application/merge-patch+json"
GPU, VGPU = "gpu-a-000008000", "gpu-a-000008004"
PLANTED = {
    "password": "correct-horse-battery",
    "token": "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzb21lYm9keSJ9.c2lnbmVkLWJ5LXNvbWVib2R5",
    "address": "203.0.113.77",
    "machine": "vault.customer.example",
    "person": "jane.doe",
}


def patch(path: str, body: dict) -> dict:
    return {"request": {"method": "PATCH", "path": path, "contentType": MERGE, "body": body}}


def enable(name: str, profile: str) -> dict:
    return patch(f"{VGPUS}/{name}", {"spec": {"enabled": True, "vGPUTypeName": profile}})


def machine() -> dict:
    data = f"#cloud-config\npassword: {PLANTED['password']}\nca: {PLANTED['token']}\nntp: {PLANTED['address']}\n"
    device = {"name": VGPU, "deviceName": "nvidia.com/NVIDIA_A2-4Q"}
    volume = {"name": "init", "cloudInitNoCloud": {"userData": data}}
    domain = {
        "devices": {"hostDevices": [device], "disks": [{"name": "init", "disk": {"bus": "virtio"}}]},
        "resources": {"requests": {"memory": "1Gi"}},
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "u1", "namespace": "default", "annotations": {"owner": PLANTED["person"]}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain, "volumes": [volume]}}},
    }


STORY = [
    {"title": "SR-IOV on", **patch(f"{SRIOV_GPUS}/gpu-a-000008000", {"spec": {"enabled": True}})},
    {"title": "types listed", "wait": {"until": "16 with types"}, "after": ["VGPUDevices of gpu-a", "counts of gpu-a"]},
    {"title": "first on", **enable(VGPU, "NVIDIA A2-4Q")},
    {
        "title": "configured",
        "wait": {"until": f"{VGPU} status.vGPUStatus == vGPUConfigured"},
        "after": [f"VGPUDevice/{VGPU}", f"PCIDeviceClaim/{VGPU}", "PCIDeviceClaims of gpu-a", "Node/gpu-a"],
    },
    {"title": "advertised", "wait": {"until": "gpu-a allocatable nvidia.com/NVIDIA_A2-4Q == 1"}},
    {"title": "siblings shrank", "wait": {"until": "other 15 VFs list 3 types"}},
    {"title": "another size beside it", **enable("gpu-a-000008005", "NVIDIA A2-8Q")},
    {
        "title": "a wait that ends",
        "wait": {"until": "gpu-a-000008005 status.vGPUStatus == vGPUConfigured", "timeout": 1},
    },
    {
        "title": "a note on a device",
        **patch(
            f"{VGPUS}/gpu-a-000008006",
            {"metadata": {"annotations": {"note": f"ask {PLANTED['machine']} at {PLANTED['address']}"}}},
        ),
    },
    {
        "title": "a machine with secrets",
        "request": {"method": "POST", "path": VMS, "contentType": "application/json", "body": machine()},
    },
    {"title": "off", **patch(f"{VGPUS}/{VGPU}", {"spec": {"enabled": False}})},
    {"title": "what follows", "observe": {"seconds": 10}, "after": [f"PCIDeviceClaim/{VGPU}"]},
]


@pytest.fixture
def lab_of(command: Callable, run_dir: Path, labs: Callable[[str], Lab]) -> Callable[[str], RunDir]:
    """A lab of the era at its beginning, whose clock is stopped."""

    def get(plan: str) -> RunDir:
        if plan == "mdev":
            return labs("mdev").begin().run
        assert command("reset", run_dir=run_dir).returncode == 0
        return RunDir(run_dir)

    return get


SAME_IN_BOTH_ERAS = ("siblings shrank", "a machine with secrets", "a wait that ends")


def disagreements(run: RunDir, version: str, file: Path) -> dict[str, list[str]]:
    recording = load(file)
    with Runner(file.parent / "unused", {version: run}) as runner:
        step_results, _, _ = runner.play(recording)
    assert len(step_results) == len(recording.steps)
    return {
        f"{step_result.step.id} {step_result.step.title}": [str(difference) for difference in step_result.differences]
        for step_result in step_results
        if not step_result.agrees
    }


class TestPlaying:
    @pytest.mark.parametrize(("plan", "version"), [("vfio", "1.8"), ("mdev", "1.7")])
    def test_a_story_agrees_when_it_is_replayed_and_tells_no_secrets(
        self, command: Callable, lab_of: Callable[[str], RunDir], tmp_path: Path, plan: str, version: str
    ) -> None:
        run = lab_of(plan)
        story = STORY if plan == "vfio" else [step for step in STORY if step["title"] not in SAME_IN_BOTH_ERAS]
        steps, place = tmp_path / "story.yaml", tmp_path / "new"
        steps.write_text(yaml.safe_dump({"title": "a vGPU's life", "steps": story}))
        words = ("record", "--lab", "--name", "life", "--directory", place, "--steps", steps)
        answer = command(*words, run_dir=run.path)
        assert answer.returncode == 0, answer.stderr
        file = place / f"v{version}-life.yaml"
        assert answer.stdout.strip() == str(file)

        text = file.read_text()
        assert [what for what, planted in PLANTED.items() if planted in text] == []
        recorded = {step["title"]: step for step in yaml.safe_load(text)["steps"]}
        assert recorded["configured"]["wait"]["reached"] is True
        if plan == "vfio":
            assert recorded["a wait that ends"]["wait"]["reached"] is False
        assert "is not a valid profile" in recorded["another size beside it"]["response"]["message"]
        annotations = recorded["a note on a device"]["response"]["object"]["metadata"]["annotations"]
        assert annotations == {"note": "ask <host> at <address>"}
        assert len(recorded["what follows"]["observe"]["transitions"]) > 1
        assert yaml.safe_load(text)["host"]["gpus"]["gpu-a"][0]["board"] == "A2"

        again = command(*words, run_dir=run.path)
        assert (again.returncode, again.stdout) == (1, "")
        assert "already exists" in again.stderr
        assert disagreements(run, version, file) == {}


class TestWatching:
    def test_nothing_is_written_and_what_somebody_does_is_told_as_a_request(
        self, lab_of: Callable[[str], RunDir], tmp_path: Path
    ) -> None:
        run = lab_of("vfio")
        lab = Lab(run)
        lab.mark()
        words = ["record", "--lab", "--name", "seen", "--directory", tmp_path, "--seconds", "60", "--run-dir", run.path]
        recorder = subprocess.Popen(
            [sys.executable, "-m", "lab", *map(str, words)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert recorder.stderr is not None
        for line in recorder.stderr:
            if line.startswith("Watching"):
                break
        assert lab.api.patch(f"{SRIOV_GPUS}/{GPU}", {"spec": {"enabled": True}}).status == 200
        _, complaints = recorder.communicate()
        assert recorder.returncode == 0, complaints
        assert [event["verb"] for event in lab.audit()] == ["patch"]

        file = tmp_path / "v1.8-seen.yaml"
        (write,) = [step for step in load(file).steps if step.request and step.request.writes]
        assert write.request is not None
        assert (write.request.target.name, write.request.body) == (GPU, {"spec": {"enabled": True}})
        assert disagreements(run, "1.8", file) == {}

    def test_a_user_who_may_only_read_is_enough(
        self, command: Callable, lab_of: Callable[[str], RunDir], tmp_path: Path
    ) -> None:
        """In real time, as on any cluster."""
        run = lab_of("vfio")
        words = ("record", "--name", "seen", "--directory", tmp_path, "--seconds", "1")
        answer = command(*words, "--kubeconfig", run.kubeconfig("viewer"))
        assert answer.returncode == 0, answer.stderr
        text = (tmp_path / "v1.8-seen.yaml").read_text()
        token = yaml.safe_load(run.kubeconfig("viewer").read_text())["users"][0]["user"].get("token", "no token")
        assert token not in text
        assert [step.response["status"] for step in load(tmp_path / "v1.8-seen.yaml").steps if step.request] == [
            200
        ] * 12


class TestMistakes:
    def test_who_may_not_read_is_told_so(self, command: Callable, run_dir: Path, tmp_path: Path) -> None:
        kubeconfig = RunDir(run_dir).kubeconfig("nobody")
        answer = command("record", "--name", "seen", "--directory", tmp_path, "--kubeconfig", kubeconfig)
        assert answer.returncode == 1
        assert "Cannot list the GPUs of the cluster: 403" in answer.stderr
        assert list(tmp_path.iterdir()) == []

    def test_a_cluster_that_does_not_answer_is_told_in_one_line(self, quick_command: Callable, tmp_path: Path) -> None:
        file = tmp_path / "kubeconfig.yaml"
        entries = {
            "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
            "users": [{"name": "x", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        }
        file.write_text(yaml.safe_dump({"current-context": "x", **entries}))
        answer = quick_command("record", "--name", "mine", "--kubeconfig", file)
        assert answer.returncode == 1
        (line,) = answer.stderr.splitlines()
        assert "The cluster does not respond" in line

    @pytest.mark.parametrize(
        ("words", "phrase"),
        [
            (("--name", "Mine"), "not a valid name for a recording"),
            (("--name", "mine", "--steps", "nowhere.yaml"), "The file nowhere.yaml does not exist"),
            (("--name", "mine", "--kubeconfig", "nowhere.yaml"), "No kubeconfig was given"),
            (("--name", "mine", "--lab"), "Start a lab: make -s lab ARGS="),
        ],
    )
    def test_a_mistake_is_told_in_one_line(
        self, quick_command: Callable, tmp_path: Path, words: tuple[str, ...], phrase: str
    ) -> None:
        answer = quick_command("record", *words, run_dir=tmp_path / "nothing")
        assert answer.returncode == 1
        (line,) = answer.stderr.splitlines()
        assert phrase in line
