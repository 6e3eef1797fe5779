"""harvester_addon against a lab."""

from __future__ import annotations

import yaml

from tests.integration.api import ADDONS, NODES, SRIOV_GPUS, Json
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, arranged, dry_runs, machine, writes
from tests.integration.modules.examples import examples
from tests.integration.modules.moments import driver_pods, standing_still
from tests.integration.modules.playbooks import Playbooks, predicting

MODULE = "harvester_addon"
DRIVER, CONTROLLER = "nvidia-driver-toolkit", "pcidevices-controller"
URL = "http://files.example/NVIDIA-Linux-x86_64-570.172.07-vgpu-kvm.run"


def addon(lab: Lab, name: str) -> Json:
    return lab.read(f"{ADDONS}/{name}")


def values(lab: Lab, name: str) -> Json:
    found: Json = yaml.safe_load(addon(lab, name)["spec"]["valuesContent"])
    return found


@arranged(scenario="bare")
def test_the_examples_take_a_fresh_cluster_to_a_driver_on_every_gpu_node(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    found, built, moved, off = playbooks.run(examples(MODULE))
    assert all(result.changed and not result.failed for result in (found, built, moved, off)), off["output"]
    assert lab.items(SRIOV_GPUS)
    assert found["addon"]["status"] == built["addon"]["status"] == "AddonDeploySuccessful"
    assert built["addon"]["values"]["driverLocation"] == URL
    assert moved["addon"]["values"]["image"]["tag"] == built["addon"]["values"]["image"]["tag"]
    assert off["addon"]["status"] == "AddonDisabled"


def test_done_means_that_the_driver_is_ready_on_every_labelled_node(lab: Lab, playbooks: Playbooks) -> None:
    assert playbooks.task(MODULE, name=DRIVER, state="disabled").changed
    assert not driver_pods(lab)
    done, again = playbooks.tasks((MODULE, {"name": DRIVER}), (MODULE, {"name": DRIVER}))
    assert done.changed
    assert driver_pods(lab) == {"gpu-a": None, "gpu-b": None}
    assert not again.changed
    assert writes(lab, again) == dry_runs(lab, again) == []


def test_check_mode_predicts_the_run_and_writes_nothing(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    wanted = {"name": DRIVER, "driver_location": URL, "values": {"image": {"repository": "other"}}}
    predicted, done, again = playbooks.tasks(predicting(MODULE, wanted), (MODULE, wanted), (MODULE, wanted))
    assert writes(lab, predicted) == []
    assert len(dry_runs(lab, predicted)) == 1
    assert predicted.changed
    assert {key: predicted[key] for key in ("changed", "addon", "diff")} == {
        key: done[key] for key in ("changed", "addon", "diff")
    }
    assert set(predicted) == set(done)
    assert not again.changed
    assert again["addon"] == done["addon"]
    assert writes(lab, again) == []


def test_values_are_merged_and_no_key_is_lost(lab_vfio: Lab, playbooks: Playbooks) -> None:
    before = values(lab_vfio, CONTROLLER)
    done = playbooks.task(MODULE, name=CONTROLLER, values={"image": {"pullPolicy": "Always"}})
    assert done.changed
    assert values(lab_vfio, CONTROLLER) == {**before, "image": {**before["image"], "pullPolicy": "Always"}}


def test_any_other_addon_is_switched_and_keeps_its_values(lab: Lab, playbooks: Playbooks) -> None:
    model = addon(lab, CONTROLLER)
    spec = {**model["spec"], "chart": "harvester-seeder", "enabled": False, "valuesContent": "a: 1\n"}
    kind = {key: model[key] for key in ("apiVersion", "kind")}
    lab.make(ADDONS, {**kind, "metadata": {"name": "harvester-seeder"}, "spec": spec})
    ask = {"name": "harvester-seeder", "values": {"b": 2}}
    on, again, off = playbooks.tasks((MODULE, ask), (MODULE, ask), (MODULE, {**ask, "state": "disabled"}))
    assert on["addon"]["status"] == "AddonDeploySuccessful"
    assert not again.changed
    assert off["addon"]["status"] == "AddonDisabled"
    assert values(lab, "harvester-seeder") == {"a": 1, "b": 2}


def test_an_operation_in_progress_is_waited_for(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    lab.run_clock(0)
    content = yaml.safe_dump({**values(lab, CONTROLLER), "theirs": 1})
    lab.write(f"{ADDONS}/{CONTROLLER}", {"spec": {"valuesContent": content}})
    lab.until(lambda: addon(lab, CONTROLLER)["status"]["status"] == "AddonUpdating")
    ask = {"name": CONTROLLER, "values": {"ours": 2}, "wait_timeout": 1}
    predicted, busy = playbooks.tasks(predicting(MODULE, ask), (MODULE, ask))
    assert predicted.changed
    assert busy.code == "timeout"
    assert "AddonUpdating" in busy.message
    assert "ours" not in values(lab, CONTROLLER)
    # The operation ends while the task waits.
    with standing_still(lab):
        done = playbooks.task(MODULE, name=CONTROLLER, values={"ours": 2})
    assert done.changed
    assert not done.failed
    assert {"theirs": 1, "ours": 2}.items() <= values(lab, CONTROLLER).items()


@arranged(scenario="bare", stays=True)
def test_the_placeholder_is_refused_before_anything_is_written(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    untouched, given, bad = playbooks.tasks(
        (MODULE, {"name": DRIVER}),
        (MODULE, {"name": DRIVER, "driver_location": "http://HTTPENDPOINT/driver.run"}),
        (MODULE, {"name": DRIVER, "driver_location": "driver.run"}),
    )
    assert {result.code for result in (untouched, given, bad)} == {"no_driver_location"}
    assert "HTTPENDPOINT" in untouched.message
    assert "HTTPENDPOINT" in given.message
    assert writes(lab) == dry_runs(lab) == []


@arranged(scenario="bare")
def test_an_addon_that_is_off_takes_values_and_stays_off(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    done = playbooks.task(MODULE, name=DRIVER, state="disabled", driver_location=URL)
    assert done.changed
    assert (done["addon"]["enabled"], done["addon"]["status"]) == (False, "")
    assert values(lab, DRIVER)["driverLocation"] == URL


@arranged(scenario="bare")
def test_a_driver_without_gpus_to_run_on_draws_a_warning(lab_vfio: Lab, playbooks: Playbooks) -> None:
    done = playbooks.task(MODULE, name=DRIVER, driver_location=URL)
    assert done.changed
    assert f"before the addon {CONTROLLER} is enabled" in done["warnings"][0]


def test_gpus_that_are_reserved_for_containers_are_named_on_1_9(running: Lab, playbooks: Playbooks) -> None:
    lab = running.begin(version="1.9")
    for node in ("gpu-a", "gpu-b"):
        lab.write(f"{NODES}/{node}", {"metadata": {"labels": {"harvesterhci.io/gpu-baremetal-workloads": "true"}}})
    lab.until(lambda: lab.items(SRIOV_GPUS) == [], within=120)
    on, info, sriov, vgpus = playbooks.tasks(
        (MODULE, {"name": DRIVER, "driver_location": URL}),
        ("harvester_gpu_info", {}),
        ("harvester_sriov_gpu", {"nodes": ["gpu-a"]}),
        ("harvester_vgpu", {"profile": "A2-4Q", "count": 1, "nodes": ["gpu-a"]}),
    )
    assert not on.failed, on.message
    assert "The GPUs of gpu-a, gpu-b are reserved for containers" in on["warnings"][0]
    assert {node["name"]: node["reserved_for_containers"] for node in info["nodes"]} == {"gpu-a": True, "gpu-b": True}
    for refused in (sriov, vgpus):
        assert refused.failed
        assert "reserved for containers" in refused.message


def test_a_failed_operation_says_what_to_do_and_that_helps(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    playbooks.task(MODULE, name=DRIVER, state="disabled")
    lab.control.fault("addon-fails")
    failed, again = playbooks.tasks((MODULE, {"name": DRIVER}), (MODULE, {"name": DRIVER}))
    assert failed.code == again.code == "addon_failed"
    assert "state disabled" in failed.message
    lab.control.fault("addon-fails", on=False)
    off, on = playbooks.tasks((MODULE, {"name": DRIVER, "state": "disabled"}), (MODULE, {"name": DRIVER}))
    assert off.changed
    assert on["addon"]["status"] == "AddonDeploySuccessful"


def test_a_driver_that_does_not_build_is_named_with_its_node(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    playbooks.task(MODULE, name=DRIVER, state="disabled")
    lab.control.fault("driver-missing", node="gpu-b")
    asked = playbooks.task(MODULE, name=DRIVER, wait=False)
    assert asked.changed
    lab.until(lambda: driver_pods(lab) == {"gpu-a": None, "gpu-b": "CrashLoopBackOff"}, real=True)
    late = playbooks.task(MODULE, name=DRIVER, wait_timeout=1)
    assert late.code == "timeout"
    assert "gpu-b: CrashLoopBackOff: the NVIDIA driver does not build for this kernel" in late.message
    assert "gpu-a" not in late.message


@arranged(beginnings.two_4q, stays=True)
def test_an_addon_that_vms_need_is_not_disabled_and_the_vms_are_named(lab: Lab, playbooks: Playbooks) -> None:
    machine(lab, "render", spec=["any-name"])
    lab.mark()
    driver, controller, predicted = playbooks.tasks(
        (MODULE, {"name": DRIVER, "state": "disabled"}),
        (MODULE, {"name": CONTROLLER, "state": "disabled"}),
        predicting(MODULE, {"name": DRIVER, "state": "disabled"}),
    )
    for refused in (driver, controller, predicted):
        assert refused.code == "addon_in_use"
        assert "default/render" in refused.message
    assert writes(lab) == []


@arranged(beginnings.two_4q)
def test_harvesters_own_way_to_skip_that_check_is_respected(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    machine(lab, "render", spec=[A4])
    skip = {"harvesterhci.io/skipNvidiaDriverToolkitAddonWebhookCheck": "true"}
    lab.write(f"{ADDONS}/{DRIVER}", {"metadata": {"annotations": skip}})
    assert playbooks.task(MODULE, name=DRIVER, state="disabled").changed


@arranged(stays=True)
def test_bad_input_is_refused_with_names_and_nothing_is_written(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    unknown, misplaced, elsewhere = playbooks.tasks(
        (MODULE, {"name": "nvidia-driver"}),
        (MODULE, {"name": CONTROLLER, "driver_location": URL}),
        (MODULE, {"name": DRIVER, "namespace": "nowhere"}),
    )
    assert unknown.code == elsewhere.code == "addon_not_found"
    assert "Did you mean nvidia-driver-toolkit?" in unknown.message
    assert "nowhere" in elsewhere.message
    assert misplaced.code == "invalid_values"
    keys = lab.run.kubeconfig("admin").parent
    expired = playbooks.task(MODULE, name=DRIVER, state="disabled", kubeconfig=keys / "expired.yaml")
    assert expired.code == "unauthorized"
    viewer = playbooks.task(MODULE, name=CONTROLLER, values={"a": 1}, kubeconfig=keys / "viewer.yaml")
    assert viewer.code == "forbidden"
    assert "patch" in viewer.message
    assert "addons" in viewer.message
    assert writes(lab) == [] or all("addons" in one for one in writes(lab))
    assert "a" not in values(lab, CONTROLLER)
