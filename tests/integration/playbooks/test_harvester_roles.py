"""What the Harvester roles refuse before they change anything, and VMs that are to run again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api import VMIS, VMS
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import writes
from tests.integration.playbooks.reprofiling import GPU, NAMES, OTHER_GPU, RESOURCE, machine, state, vm
from tests.integration.playbooks.runs import Run, Runs

Json = dict[str, Any]
SETTING = "/apis/harvesterhci.io/v1beta1/settings/server-version"
FOUR = {"harvester_gpu_node_profile": "A2-4Q", "harvester_gpu_node_count": 1}


def refused(runs: Runs, variables: Json, playbook: str = "harvester_gpu_cluster") -> str:
    run: Run = runs.playbook(playbook, variables, options="--tags node,vm")
    assert run.status == "failed", run.shown
    return run.failure


def test_what_cannot_work_is_refused_before_anything_is_changed(lab: Lab, runs: Runs) -> None:
    for wrong, told in (
        (
            {"harvester_gpu_node_driver_location": "http://HTTPENDPOINT/driver.run"},
            "harvester_gpu_node_driver_location is",
        ),
        (
            {"harvester_gpu_node_profile": ""},
            "Set harvester_gpu_node_profile and harvester_gpu_node_count together.",
        ),
        ({"harvester_gpu_node_gpus": ["gpu-z-*"]}, "gpu-z-*"),
    ):
        assert told in refused(runs, {**FOUR, **wrong})
    assert writes(lab) == []


def test_an_image_that_does_not_exist_is_one_sentence_and_nothing_is_created(lab: Lab, runs: Runs) -> None:
    disk = {"image": "default/none", "size_gib": 10}
    vms = {"harvester_gpu_vm_vms": [{"name": "trainer", "user_data": "#cloud-config", "disks": [disk]}]}
    lab.mark()
    told = refused(runs, vms)
    assert told.startswith("Image default/none of VM default/trainer does not exist. Did you mean default/ubuntu?")
    assert told.endswith("not the name that the UI displays. Nothing was changed.")
    assert writes(lab) == []


def test_a_node_that_is_not_ready_is_told(lab: Lab, runs: Runs) -> None:
    lab.control.fault("node-not-ready", node="gpu-b")
    lab.until(lambda: not ready(lab, "gpu-b"))
    lab.mark()
    assert "Not ready: gpu-b." in refused(runs, FOUR)
    assert writes(lab) == []
    lab.control.fault("node-not-ready", on=False, node="gpu-b")


def ready(lab: Lab, node: str) -> bool:
    conditions = lab.read(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_a_version_without_vgpus_is_told_even_if_nothing_else_is_there(bare: Lab, runs: Runs) -> None:
    version = bare.read(SETTING)["value"]
    bare.write(SETTING, {"value": "v1.2.2"})
    assert "Harvester 1.2 has no vGPUs." in refused(runs, FOUR)
    bare.write(SETTING, {"value": version})


def test_addons_stay_on_while_another_gpu_needs_them(lab: Lab, runs: Runs) -> None:
    lab.enable_gpus(GPU, OTHER_GPU)
    one = {"harvester_gpu_node_gpus": [GPU], "harvester_gpu_node_absent_addons": ["nvidia-driver-toolkit"]}
    told = refused(runs, {**one, "vgpu_teardown_confirm": True, "vgpu_teardown_scope": "everything"}, "teardown")
    assert f"SR-IOV is enabled on {OTHER_GPU}, so nvidia-driver-toolkit cannot be disabled." in told
    assert lab.gpu(OTHER_GPU)["spec"]["enabled"]


HOW: dict[str, Json] = {
    "shut-down": {"runStrategy": "RerunOnFailure"},
    "older": {"running": False},
    "older-on": {"running": True},
    "always": {"runStrategy": "Always"},
}


def test_vms_that_do_not_run_are_started_however_they_were_set_or_ended(lab: Lab, runs: Runs) -> None:
    for name, how in HOW.items():
        made = machine(name, **how)
        del made["spec"]["template"]["spec"]["domain"]["devices"]["hostDevices"]
        lab.make(VMS, made)
    for name in ("shut-down", "older-on", "always"):
        lab.until(lambda name=name: state(lab, name) == "Running", real=True)
    # The guest was shut down from inside.
    told = lab.api.as_user("virt-handler").patch(f"{VMIS}/shut-down", {"status": {"phase": "Succeeded"}})
    assert told.status == 200, told.message
    lab.until(lambda: state(lab, "shut-down") == "Stopped", real=True)
    wanted = {"harvester_gpu_vm_vms": [{"name": name, "adopt": True} for name in HOW]}
    rehearsal = runs.playbook("harvester_gpu_cluster", wanted, check=True, options="--tags vm")
    assert (rehearsal.status, state(lab, "shut-down")) == ("successful", "Stopped"), rehearsal.shown
    done = runs.playbook("harvester_gpu_cluster", wanted, options="--tags vm")
    assert done.status == "successful", done.shown
    assert {name: state(lab, name) for name in HOW} == dict.fromkeys(HOW, "Running")
    assert vm(lab, "older-on")["spec"]["running"] is True
    assert vm(lab, "always")["spec"]["runStrategy"] == "Always"
    again = runs.playbook("harvester_gpu_cluster", wanted, options="--tags vm")
    assert (again.status, again.changed) == ("successful", 0), again.tasks


OTHER_NAMESPACE = "team-b"
OTHER_VMS = VMS.replace("/default/", f"/{OTHER_NAMESPACE}/")


def made_by_the_ui(device_name: str) -> Json:
    """A running VM as Harvester's UI makes it: its label is on the template only, and a device names its entry."""
    body = machine("trainer", runStrategy="RerunOnFailure")
    body["metadata"].pop("labels")
    template = body["spec"]["template"]
    template["metadata"] = {"labels": {"harvesterhci.io/vmName": "trainer"}}
    template["spec"]["domain"]["devices"]["hostDevices"] = [{"name": device_name, "deviceName": RESOURCE}]
    return body


def test_m6_vms_that_the_ui_made_keep_their_vgpus_also_if_two_have_the_same_name(lab: Lab, runs: Runs) -> None:
    lab.enable_gpus(GPU)
    lab.enable_vgpus(dict.fromkeys(NAMES[:2], "NVIDIA A2-4Q"))
    if lab.find(f"/api/v1/namespaces/{OTHER_NAMESPACE}") is None:
        lab.make("/api/v1/namespaces", {"metadata": {"name": OTHER_NAMESPACE}})
    places = {VMS: NAMES[0], OTHER_VMS: NAMES[1]}
    for path, name in places.items():
        lab.make(path, made_by_the_ui(name))
    instances = [path.replace("virtualmachines", "virtualmachineinstances") + "/trainer" for path in places]

    def running(path: str) -> bool:
        return ((lab.find(path) or {}).get("status") or {}).get("phase") == "Running"

    lab.until(lambda: all(map(running, instances)), real=True)
    uids = [lab.read(path)["metadata"]["uid"] for path in instances]
    entries = [vm_devices(lab.read(f"{path}/trainer")) for path in places]
    four = [{"profile": "A2-4Q"}]
    both = [{"name": "trainer", "vgpus": four}, {"name": "trainer", "namespace": OTHER_NAMESPACE, "vgpus": four}]
    lab.mark()
    # They are somebody else's until they are adopted.
    told = refused(runs, {"harvester_gpu_vm_vms": both})
    assert "default/trainer" in told
    assert f"{OTHER_NAMESPACE}/trainer" in told
    assert writes(lab) == []

    adopted = {"harvester_gpu_vm_vms": [{**one, "adopt": True} for one in both]}
    # There is no third A2-4Q, and each of them needs none but its own.
    done = runs.playbook("harvester_gpu_cluster", adopted, options="--tags vm")
    assert done.status == "successful", done.shown
    assert [lab.read(path)["metadata"]["uid"] for path in instances] == uids
    assert [vm_devices(lab.read(f"{path}/trainer")) for path in places] == entries
    third = {"harvester_gpu_vm_vms": [*adopted["harvester_gpu_vm_vms"], {"name": "third", "vgpus": four}]}
    assert "0 of 1 more machines fit" in refused(runs, third)
    again = runs.playbook("harvester_gpu_cluster", adopted, options="--tags vm")
    assert (again.status, again.changed) == ("successful", 0), again.tasks
    for path in places:
        lab.api.delete(f"{path}/trainer")


def vm_devices(body: Json) -> Any:
    return body["spec"]["template"]["spec"]["domain"]["devices"].get("hostDevices")


@pytest.mark.parametrize(("version", "efi"), [("1.5", False), ("1.8", True)])
def test_new_vms_with_a_large_profile_for_computing_boot_with_efi_from_1_6_on(
    running: Lab, runs: Runs, version: str, efi: bool
) -> None:
    lab = running.begin(version=version)
    lab.enable_gpus(GPU)
    lab.enable_vgpus({NAMES[0]: "NVIDIA A2-16C"})
    large = {"vgpus": [{"profile": "A2-16C"}], "running": False}
    vms = {"harvester_gpu_vm_vms": [{"name": "automatic", **large}, {"name": "chosen", "efi": False, **large}]}
    done = runs.playbook("harvester_gpu_cluster", vms, options="--tags vm")
    assert done.status == "successful", done.shown
    domains = {name: vm(lab, name)["spec"]["template"]["spec"]["domain"] for name in ("automatic", "chosen")}
    firmware = {name: (domain.get("firmware") or {}).get("bootloader", {}) for name, domain in domains.items()}
    assert {name: "efi" in found for name, found in firmware.items()} == {"automatic": efi, "chosen": False}
    again = runs.playbook("harvester_gpu_cluster", vms, options="--tags vm")
    assert (again.status, again.changed) == ("successful", 0), again.tasks


def test_a_number_of_vms_needs_a_profile_and_a_prefix(lab: Lab, runs: Runs) -> None:
    """T1: there is no default name that two teams could share."""
    told = refused(runs, {"harvester_gpu_vm_count": 2})
    assert "harvester_gpu_vm_count is 2. Set harvester_gpu_vm_profile" in told
    told = refused(runs, {"harvester_gpu_vm_count": 2, "harvester_gpu_vm_profile": "A2-4Q"})
    assert "harvester_gpu_vm_count is 2. Set harvester_gpu_vm_prefix" in told
    assert lab.items(VMS) == []


def test_options_of_vms_that_the_role_does_not_know_are_refused(lab: Lab, runs: Runs) -> None:
    told = refused(runs, {"harvester_gpu_vm_vms": [{"name": "one"}], "harvester_gpu_vm_defaults": {"memory_gb": 64}})
    assert "does not know these options of harvester_gpu_vm_vms and harvester_gpu_vm_defaults: memory_gb." in told
    assert lab.items(VMS) == []
