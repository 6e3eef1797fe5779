"""harvester_mig against a lab with an A100, an A30 and an H100, on Harvester 1.7 and 1.9."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import NOTE, VMS, arranged, begin, dry_runs, writes
from tests.integration.modules.examples import examples
from tests.integration.modules.permissions import Automation
from tests.integration.modules.playbooks import Playbooks, Result, predicting

MODULE = "harvester_mig"
A100, A30, H100 = "mig-a100-000004000", "mig-a30-000017000", "mig-h100-0000ca000"
MIXED = [{"profile": "A100-3-20C", "count": 1}, {"profile": "MIG 2g.10gb", "count": 2}]
FLEET = Path(__file__).with_name("mixed_fleet.yaml")
SMALL = [{"profile": "1g.5gb", "count": 7}]
pytestmark = arranged(scenario="mig")


@pytest.fixture(scope="session", params=["1.7", "1.9"])
def mig_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def mig_lab(running: Lab, mig_version: str, request: pytest.FixtureRequest) -> Lab:
    """Three nodes with a card that can do MIG each, unless the test is `arranged`; SR-IOV is off."""
    return begin(running, mig_version, request)


def configuration(lab: Lab, gpu: str) -> dict[str, Any]:
    return lab.read(f"{paths.MIG_CONFIGURATIONS}/{gpu}")


def instances(result: Result) -> dict[str, dict[str, int]]:
    return {gpu["name"]: {one["profile"]: one["count"] for one in gpu["instances"]} for gpu in result["gpus"]}


def actions(result: Result) -> list[str]:
    return [step["action"] for step in result.steps]


def test_a_card_is_cut_until_its_devices_offer_the_types_and_a_second_run_writes_nothing(
    mig_lab: Lab, playbooks: Playbooks
) -> None:
    task = {"nodes": ["*"], "instances": MIXED, "enable_sriov": True}
    predicted, done = playbooks.tasks((MODULE, task, {"check_mode": True}), (MODULE, task))
    assert writes(mig_lab, predicted) == []
    assert predicted.changed
    assert done.changed
    assert actions(done) == ["enable_sriov", "create_mig_instances"]
    assert (predicted["gpus"], predicted["steps"], predicted["diff"]) == (done["gpus"], done["steps"], done["diff"])
    # Only the A100 has such instances; two of 2g beside a 3g fit only if the large one is made first.
    assert instances(done) == {A100: {"3g.20gb": 1, "2g.10gb": 2}}
    assert done["gpus"][0]["status"] == "synced"
    assert {one["type"] for one in done["gpus"][0]["instances"]} == {"GRID A100-3-20C", "GRID A100-2-10C"}
    device = mig_lab.gpu(A100)["status"]["vGPUDevices"][0]
    assert mig_lab.types(device) == {"GRID A100-3-20C", "GRID A100-2-10C"}
    mig_lab.mark()
    again, check, differs = playbooks.tasks(
        (MODULE, task), (MODULE, {**task, "relayout": True}), (MODULE, {**task, "instances": SMALL})
    )
    assert not again.changed
    assert not check.changed
    assert again["gpus"] == done["gpus"]
    assert differs.code == "needs_relayout"
    assert "has 1 x 3g.20gb, 2 x 2g.10gb and should have 7 x 1g.5gb" in differs.message
    assert writes(mig_lab) == dry_runs(mig_lab) == []
    # Another layout, and none.
    recut, gone, still = playbooks.tasks(
        (MODULE, {"gpus": [A100], "instances": SMALL, "relayout": True}),
        (MODULE, {"gpus": [A100], "state": "disabled"}),
        (MODULE, {"gpus": [A100], "state": "disabled"}),
    )
    assert instances(recut) == {A100: {"1g.5gb": 7}}
    assert recut["diff"]["before"][A100]["instances"] == done["gpus"][0]["instances"]
    assert actions(gone) == ["remove_mig_instances"]
    assert instances(gone) == {A100: {}}
    assert gone["gpus"][0]["status"] == "disabled"
    assert not still.changed
    assert still["gpus"] == gone["gpus"]


@arranged(scenario="mig", stays=True)
def test_what_cannot_be_had_is_refused_before_anything_is_written(mig_lab: Lab, playbooks: Playbooks) -> None:
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"instances": [("4g.20gb", 2)]}, "mig_geometry", "7 compute slices, and these need 8"),
        ({"instances": [("3g.20gb", 2), ("1g.5gb", 1)]}, "mig_geometry", "8 memory slices, and these need 9"),
        ({"instances": [("1g.5gb", 8)]}, "mig_geometry", "at most 7 instances"),
        ({"instances": [("1g.5gb+me", 2)]}, "mig_geometry", "only one instance can have the media engines"),
        ({"instances": [("1g.6gb", 1)]}, "no_suitable_gpu", "has no 1g.6gb; it has"),
        ({"instances": [("A100-10C", 1)]}, "invalid_instance", "time-sliced profile"),
        ({"enable_sriov": False}, "sriov_off", "enable_sriov: true"),
    ]
    calls = []
    for options, _code, _said in wrong:
        asked = {"gpus": [A100], "instances": [("1g.5gb", 1)], "enable_sriov": True, **options}
        asked["instances"] = [{"profile": name, "count": count} for name, count in asked["instances"]]
        calls.append((MODULE, asked))
    for result, (options, code, said) in zip(playbooks.tasks(*calls), wrong, strict=True):
        assert (result.code, result.failed) == (code, True), (options, result.message)
        assert said in result.message, (options, result.message)
    assert writes(mig_lab) == dry_runs(mig_lab) == []


def test_instances_stay_while_a_vgpu_is_on_them_and_a_vm_is_named(mig_lab: Lab, playbooks: Playbooks) -> None:
    cut = {"gpus": [A30], "instances": [{"profile": "2g.12gb", "count": 2}]}
    vgpu = {"profile": "A30-2-12C", "count": 1}
    made, used = playbooks.tasks((MODULE, {**cut, "enable_sriov": True}), ("harvester_vgpu", vgpu))
    assert made.changed
    (device,) = [one["name"] for one in used["vgpus"]]
    other = {**cut, "instances": [{"profile": "1g.6gb", "count": 4}], "relayout": True}
    mig_lab.mark()
    enabled, off, same = playbooks.tasks((MODULE, other), (MODULE, {"gpus": [A30], "state": "disabled"}), (MODULE, cut))
    assert enabled.code == off.code == "vgpus_enabled"
    assert device in enabled.message
    assert not same.changed
    part = "hostdevices" if mig_lab.vfio else "gpus"
    note = f'{{"{part}": {{"nvidia.com/NVIDIA_A30-2-12C": ["{device}"]}}}}'
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "render", "namespace": "default", "annotations": {NOTE: note}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
    }
    mig_lab.make(VMS, body)
    mig_lab.mark()
    held, held_off = playbooks.tasks((MODULE, other), (MODULE, {"gpus": [A30], "state": "disabled"}))
    assert held.code == held_off.code == "device_in_use"
    assert "default/render" in held.message
    assert writes(mig_lab) == []


def test_a_card_that_is_out_of_sync_is_told_apart_and_repaired(mig_lab: Lab, playbooks: Playbooks) -> None:
    lab = mig_lab
    path = f"{paths.MIG_CONFIGURATIONS}/{A100}"
    lab.write(f"{paths.SRIOV_GPUS}/{A100}", {"spec": {"enabled": True}})
    lab.until(lambda: ((lab.find(path) or {}).get("status") or {}).get("profileStatus"))
    # By hand in the order of the spec: the small ones come first and leave no place for the large one.
    requested = {"MIG 2g.10gb": 2, "MIG 3g.20gb": 1}
    spec = configuration(lab, A100)["spec"]["profileSpec"]
    asked = [{**entry, "requested": requested.get(entry["name"], 0)} for entry in spec]
    lab.write(path, {"spec": {"enabled": True, "profileSpec": asked}})
    lab.until(lambda: configuration(lab, A100)["status"].get("status") == "out-of-sync")
    lab.mark()
    found, other, repaired = playbooks.tasks(
        ("harvester_gpu_info", {}),
        (MODULE, {"gpus": [A100], "instances": SMALL}),
        (MODULE, {"gpus": [A100], "instances": MIXED}),
    )
    assert [(one["kind"], one["device"]) for one in found["findings"]] == [("mig_out_of_sync", A100)]
    assert other.code == "needs_relayout"
    assert "is out of sync" in other.message
    assert ("failed creation for MIG 3g.20gb" in other.message) == (lab.version == "1.9")
    assert ("-cgi 9 -C: error during command execution: command terminated with" in other.message) == (
        lab.version == "1.9"
    )
    assert instances(repaired) == {A100: {"3g.20gb": 1, "2g.10gb": 2}}
    assert configuration(lab, A100)["status"]["status"] == "synced"


def test_instances_that_outlive_sriov_are_recognised_and_written_down_if_asked(
    mig_lab: Lab, playbooks: Playbooks
) -> None:
    """Off and on again, the card has its instances and the configuration does not ask for them.

    M9: our own module refuses that, or removes them first.
    """
    cut = {"gpus": [A30], "instances": [{"profile": "2g.12gb", "count": 1}], "enable_sriov": True}
    off = {"gpus": [A30], "state": "disabled"}
    _made, refused = playbooks.tasks((MODULE, cut), ("harvester_sriov_gpu", off))
    assert refused.code == "mig_instances"
    assert "1 x 2g.12gb" in refused.message
    mig_lab.write(f"{paths.SRIOV_GPUS}/{A30}", {"spec": {"enabled": False}})
    mig_lab.until(lambda: mig_lab.find(f"{paths.MIG_CONFIGURATIONS}/{A30}") is None)
    _on, found, written, again, predicted, gone, _on_again, empty = playbooks.tasks(
        ("harvester_sriov_gpu", {"gpus": [A30]}),
        (MODULE, cut),
        (MODULE, {**cut, "relayout": True}),
        (MODULE, cut),
        predicting("harvester_sriov_gpu", {**off, "remove_mig": True}),
        ("harvester_sriov_gpu", {**off, "remove_mig": True}),
        ("harvester_sriov_gpu", {"gpus": [A30]}),
        (MODULE, {"gpus": [A30], "state": "disabled"}),
    )
    assert actions(predicted) == actions(gone) == ["remove_mig_instances", "disable_sriov"]
    assert instances(empty) == {A30: {}}
    if mig_lab.version == "1.7":
        # There Harvester does not even count them.
        assert found.code == "needs_relayout"
        assert "is out of sync" in found.message
    else:
        assert not found.changed
        assert "lost at the next reboot" in found["warnings"][0]
    assert actions(written) == ["create_mig_instances"]
    assert instances(written) == {A30: {"2g.12gb": 1}}
    assert not again.changed
    assert "warnings" not in again


def test_a_card_stays_time_sliced_where_harvester_lets_it(mig_lab: Lab, playbooks: Playbooks) -> None:
    task = {"gpus": [H100], "mode": "time_sliced"}
    if mig_lab.version == "1.7":
        refused = playbooks.task(MODULE, **task)
        assert refused.code == "mig_ignored"
        assert "Harvester 1.7 puts every GPU that can do MIG into MIG mode" in refused.message
        assert writes(mig_lab) == []
        return
    on = {**task, "enable_sriov": True}
    back = {"gpus": [H100], "instances": [{"profile": "H100-7-80C", "count": 1}]}
    predicted, marked, again, shared, unchanged, vgpus, refused, in_use = playbooks.tasks(
        (MODULE, on, {"check_mode": True}),
        (MODULE, task),
        (MODULE, task),
        (MODULE, on),
        (MODULE, on),
        ("harvester_vgpu", {"profile": "H100-40C", "count": 2}),
        (MODULE, back),
        (MODULE, {**back, "relayout": True}),
    )
    assert actions(predicted) == ["set_mode", "enable_sriov"]
    assert actions(marked) == ["set_mode"]
    assert not again.changed
    assert actions(shared) == ["enable_sriov"]
    assert shared["gpus"] == predicted["gpus"]
    assert (shared["gpus"][0]["mode"], shared["gpus"][0]["vgpu_enabled"]) == ("time_sliced", True)
    assert not unchanged.changed
    assert [vgpu["state"] for vgpu in vgpus["vgpus"]] == ["allocatable", "allocatable"]
    assert refused.code == "needs_relayout"
    assert "is time-sliced and should have 1 x 7g.80gb" in refused.message
    assert in_use.code == "vgpus_enabled"
    _off, predicted, cut, sliced = playbooks.tasks(
        ("harvester_vgpu", {"profile": "H100-40C", "count": 0, "exclusive": True}),
        (MODULE, {**back, "relayout": True}, {"check_mode": True}),
        (MODULE, {**back, "relayout": True}),
        (MODULE, {**task, "relayout": True}),
    )
    assert actions(cut) == ["disable_sriov", "set_mode", "enable_sriov", "create_mig_instances"]
    assert instances(cut) == {H100: {"7g.80gb": 1}}
    assert (predicted["gpus"], predicted["diff"]) == (cut["gpus"], cut["diff"])
    assert actions(sliced) == ["remove_mig_instances", "disable_sriov", "set_mode", "enable_sriov"]
    assert "NVIDIA H100-40C" in mig_lab.types(mig_lab.gpu(H100)["status"]["vGPUDevices"][0])


def test_vgpus_of_mig_profiles_bring_their_instances_with_them_if_they_may(mig_lab: Lab, playbooks: Playbooks) -> None:
    demand = {"layout": [{"profile": "A100-3-20C", "count": 2}, {"profile": "A30-1-6C", "count": 3}]}
    may = {**demand, "enable_sriov": True, "enable_mig": True}
    refused, predicted, done, again = playbooks.tasks(
        ("harvester_vgpu", {**demand, "enable_sriov": True}),
        ("harvester_vgpu", may, {"check_mode": True}),
        ("harvester_vgpu", may),
        ("harvester_vgpu", demand),
    )
    assert refused.code == "does_not_fit"
    assert "enable_mig: true (or first vgpu.fleet.harvester_mig: instances 2 x 3g.20gb on GPU" in refused.message
    assert {task["gpus"][0]: task["instances"] for task in refused["error"]["suggestions"][0]["tasks"]} == {
        A100: [{"profile": "3g.20gb", "count": 2}],
        A30: [{"profile": "1g.6gb", "count": 3}],
    }
    assert writes(mig_lab, refused) == writes(mig_lab, predicted) == []
    assert actions(done) == [
        "enable_sriov",
        "create_mig_instances",
        "enable",
        "enable",
        "enable_sriov",
        "create_mig_instances",
        *["enable"] * 3,
    ]
    assert [(step["action"], step["after"]) for step in predicted.steps] == [
        (step["action"], step["after"]) for step in done.steps
    ]
    assert {vgpu["state"] for vgpu in done["vgpus"]} == {"allocatable"}
    assert mig_lab.amounts("mig-a100")["nvidia.com/GRID_A100-3-20C"] == 2
    assert mig_lab.amounts("mig-a30")["nvidia.com/NVIDIA_A30-1-6C"] == 3
    assert not again.changed
    assert writes(mig_lab, again) == []
    # A single device, beside instances in use and on a GPU that nobody has cut yet.
    device = mig_lab.gpu(A100)["status"]["vGPUDevices"][-1]
    h100 = {"name": "mig-h100-0000ca004", "profile": "H100-4-40C", "enable_sriov": True}
    taken, short, named, counted = playbooks.tasks(
        ("harvester_vgpu", {"name": device, "profile": "A100-1-5C", "enable_mig": True}),
        ("harvester_vgpu", h100),
        ("harvester_vgpu", {**h100, "enable_mig": True}),
        ("vgpu_availability", {}),
    )
    assert taken.code == short.code == "does_not_fit"
    assert "MIG instances change only while a GPU has no vGPUs" in taken.message
    assert f"vgpu.fleet.harvester_mig with gpus: [{H100}] and instances: 1 x 4g.40gb" in short.message
    assert actions(named) == ["enable_sriov", "create_mig_instances", "enable"]
    assert [vgpu["state"] for vgpu in named["vgpus"]] == ["allocatable"]
    assert {one["profile"]: (one["configured"], one["creatable"]) for one in counted["profiles"]} == {
        "GRID A100-3-20C": (2, 0),
        "NVIDIA A30-1-6C": (3, 0),
        "NVIDIA H100-4-40C": (1, 0),
    }


@arranged(scenario=str(FLEET))
def test_one_layout_provisions_a_fleet_of_time_sliced_and_mig_cards(mig_lab: Lab, playbooks: Playbooks) -> None:
    lab = mig_lab
    task = {
        "layout": [
            {"profile": "A2-4Q", "count": 4, "nodes": ["small"]},
            {"profile": "L40S-8Q", "count": 6},
            {"profile": "A100-2-10C", "count": 2},
            {"profile": "A100-3-20C", "count": 1},
            {"profile": "H100-1-10C", "count": 6},
            {"profile": "H100-1-10CME", "count": 1},
        ],
        "exclusive": True,
        "enable_sriov": True,
        "enable_mig": True,
    }
    predicted, done, again = playbooks.tasks(
        ("harvester_vgpu", task, {"check_mode": True}), ("harvester_vgpu", task), ("harvester_vgpu", task)
    )
    assert not done.failed, done.message
    assert writes(lab, predicted) == []
    assert len(predicted["vgpus"]) == len(done["vgpus"]) == 20
    assert {vgpu["state"] for vgpu in done["vgpus"]} == {"allocatable"}
    counted = {node: lab.amounts(node) for node in ("small", "render", "train", "infer")}
    assert {name: count for amounts in counted.values() for name, count in amounts.items() if count} == {
        "nvidia.com/NVIDIA_A2-4Q": 4,
        "nvidia.com/NVIDIA_L40S-8Q": 6,
        "nvidia.com/GRID_A100-2-10C": 2,
        "nvidia.com/GRID_A100-3-20C": 1,
        "nvidia.com/NVIDIA_H100-1-10C": 6,
        "nvidia.com/NVIDIA_H100-1-10CME": 1,
    }
    assert not again.changed
    # What a full card offers is looked at by the next scan only.
    assert [one | {"available_profiles": []} for one in again["vgpus"]] == [
        one | {"available_profiles": []} for one in done["vgpus"]
    ]
    assert writes(lab, again) == []


def test_every_example_runs_and_the_documented_roles_are_enough(running: Lab, playbooks: Playbooks) -> None:
    lab = running.begin(scenario="mig", version="1.9")
    user = Automation(lab)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-devices", "vgpu-fleet-mig", "vgpu-fleet-version")
    lab.mark()
    results = playbooks.run(examples(MODULE), kubeconfig=user.kubeconfig)
    assert not [result.message for result in results if result.failed]
    assert all(result.changed for result in results)
    assert user.used() >= {
        ("list", "migconfigurations"),
        ("watch", "migconfigurations"),
        ("patch", "migconfigurations"),
    }
    user.withdraw()
