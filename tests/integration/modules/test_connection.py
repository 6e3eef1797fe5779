"""Who may do what, and what a user is told who may not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.labs import Lab
from tests.integration.modules.beginnings import GPU_A, arranged, patched, writes
from tests.integration.modules.moments import break_driver
from tests.integration.modules.permissions import Automation
from tests.integration.modules.playbooks import Playbooks

# Rights that are used only when something goes wrong, or where a GPU is in MIG mode.
CONFLICT = {("get", "addons")}
TIMEOUT = {("list", "pods")}
MIG = {("list", "migconfigurations")}


@pytest.fixture
def automation(lab_vfio: Lab) -> Iterator[Automation]:
    user = Automation(lab_vfio)
    yield user
    user.withdraw()


def test_the_documented_roles_are_enough_for_gpus_and_vgpus_and_each_right_is_needed(
    lab_vfio: Lab, playbooks: Playbooks, automation: Automation
) -> None:
    automation.grant("vgpu-fleet-reader")
    lab_vfio.mark()
    reading = playbooks.tasks(("harvester_gpu_info", {}), ("vgpu_availability", {}), kubeconfig=automation.kubeconfig)
    assert not [result.message for result in reading if result.failed]
    assert automation.used() == automation.granted - MIG
    automation.grant("vgpu-fleet-devices")
    writing = playbooks.tasks(
        ("harvester_sriov_gpu", {"nodes": ["gpu-a"]}),
        ("harvester_vgpu", {"profile": "A2-8Q", "count": 2}),
        ("harvester_sriov_gpu", {"nodes": ["gpu-a"], "state": "disabled", "disable_vgpus": True}),
        kubeconfig=automation.kubeconfig,
    )
    assert not [result.message for result in writing if result.failed]
    # MIG configurations are listed where a GPU is on and shows no types, and when a watch of them has to start over.
    assert automation.used() == automation.granted - MIG


def test_the_documented_roles_are_enough_for_addons_and_each_right_is_needed(
    lab_vfio: Lab, playbooks: Playbooks, automation: Automation
) -> None:
    automation.grant("vgpu-fleet-addons")
    lab_vfio.mark()
    results = playbooks.tasks(
        ("harvester_addon", {"name": "nvidia-driver-toolkit", "state": "disabled"}),
        ("harvester_addon", {"name": "nvidia-driver-toolkit"}),
        kubeconfig=automation.kubeconfig,
    )
    assert not [result.message for result in results if result.failed]
    assert automation.used() == automation.granted - CONFLICT - TIMEOUT
    break_driver(lab_vfio, "gpu-a")
    late = playbooks.task(
        "harvester_addon", name="nvidia-driver-toolkit", wait_timeout=2, kubeconfig=automation.kubeconfig
    )
    assert "on node gpu-a cannot start: CrashLoopBackOff" in late.message
    assert automation.used() == automation.granted - CONFLICT


def test_a_timeout_with_little_permission_says_that_it_could_not_look(
    lab_vfio: Lab, playbooks: Playbooks, automation: Automation
) -> None:
    automation.grant("vgpu-fleet-reader", "vgpu-fleet-devices")
    break_driver(lab_vfio, "gpu-a")
    asked = {"nodes": ["gpu-a"], "wait_timeout": 2, "fail_fast": False}
    blind = playbooks.task("harvester_sriov_gpu", **asked, kubeconfig=automation.kubeconfig)
    assert blind.code == "timeout"
    assert "pods in harvester-system could not be read" in blind.message
    automation.grant("vgpu-fleet-version", "vgpu-fleet-diagnosis")
    lab_vfio.mark()
    seeing = playbooks.task("harvester_sriov_gpu", **asked, kubeconfig=automation.kubeconfig)
    assert "driver pod" in seeing.message
    assert automation.used() >= {("get", "settings"), ("list", "pods"), ("list", "addons")}


@arranged(stays=True)
def test_who_may_not_is_told_what_is_missing_and_nothing_is_changed(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    known = {name: str(lab.run.kubeconfig(name)) for name in ("expired", "nobody", "admin")}
    ask = {"gpus": [GPU_A]}
    expired, nobody, missing, context, host, key, here = playbooks.tasks(
        ("harvester_sriov_gpu", {**ask, "kubeconfig": known["expired"]}),
        ("harvester_sriov_gpu", {**ask, "kubeconfig": known["nobody"]}),
        ("harvester_sriov_gpu", {**ask, "kubeconfig": "/nowhere/kubeconfig"}),
        ("harvester_sriov_gpu", {**ask, "kubeconfig": known["admin"], "context": "other"}),
        ("harvester_sriov_gpu", {**ask, "host": "https://127.0.0.1:1", "api_key": "x"}),
        ("harvester_sriov_gpu", {**ask, "host": lab.env["LAB_API_SERVER"], "api_key": "x"}),
        (
            "harvester_gpu_info",
            {
                "host": lab.env["LAB_API_SERVER"],
                "ca_cert": lab.env["LAB_CA_FILE"],
                "client_cert": lab.env["LAB_CLIENT_CERT"],
                "client_key": lab.env["LAB_CLIENT_KEY"],
                "harvester_version": "1.8",
            },
        ),
    )
    assert expired.code == "unauthorized"
    assert "expired" in expired.message
    assert nobody.code == "forbidden"
    assert "cannot list resource" in nobody.message
    assert "lab:nobody" in nobody.message
    assert missing.code == context.code == host.code == key.code == "bad_connection"
    assert "/nowhere/kubeconfig" in missing.message
    assert "It has: lab" in context.message
    assert "cannot be reached" in host.message
    assert "certificate" in key.message
    assert not here.failed
    assert writes(lab) == patched(lab) == []
