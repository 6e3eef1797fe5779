"""Boards with graphics instances, boards whose instances have other names than their types, and MIG mode that Harvester
is still trying to enable, on Harvester 1.7 and 1.9."""

from __future__ import annotations

import pytest

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import arranged, begin, dry_runs, writes
from tests.integration.modules.playbooks import Playbooks, Result, predicting

MIG, VGPU = "harvester_mig", "harvester_vgpu"
PRO, PRO_B, GB200 = "mig-pro-000004000", "mig-pro-b-000017000", "mig-gb200-0000ca000"
DC = "NVIDIA RTX Pro 6000 Blackwell DC"
GRAPHICS = [{"profile": "1g.24gb+gfx", "count": 4}]
SKIP = "harvesterhci.io/skip-mig-configuration"
pytestmark = arranged(scenario="mig-graphics")


@pytest.fixture(scope="session", params=["1.7", "1.9"])
def mig_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def mig_lab(running: Lab, mig_version: str, request: pytest.FixtureRequest) -> Lab:
    return begin(running, mig_version, request)


def cut_by_hand(lab: Lab, gpu: str, **requested: int) -> None:
    """Cut a GPU as Harvester's UI does: cut_by_hand(lab, PRO, **{"1g.24gb+gfx": 4})."""
    path = f"{paths.MIG_CONFIGURATIONS}/{gpu}"
    lab.write(f"{paths.SRIOV_GPUS}/{gpu}", {"spec": {"enabled": True}})
    lab.until(lambda: len(lab.vgpus(gpu)) == 48)
    lab.until(lambda: ((lab.find(path) or {}).get("status") or {}).get("profileStatus"))
    spec = lab.read(path)["spec"]["profileSpec"]
    asked = [{**entry, "requested": requested.get(entry["name"].removeprefix("MIG "), 0)} for entry in spec]
    lab.write(path, {"spec": {"enabled": True, "profileSpec": asked}})
    lab.until(lambda: lab.read(path)["status"].get("status") == "synced")


def instances(result: Result) -> dict[str, dict[str, int]]:
    return {gpu["name"]: {one["profile"]: one["count"] for one in gpu["instances"]} for gpu in result["gpus"]}


def actions(result: Result) -> list[str]:
    return [step["action"] for step in result.steps]


def findings(result: Result) -> list[tuple[str, str]]:
    return [(one["kind"], one["device"]) for one in result["findings"]]


@arranged(scenario="mig-graphics", stays=True)
def test_instances_that_serve_no_vgpu_are_refused_by_name_before_anything_is_written(
    mig_lab: Lab, playbooks: Playbooks
) -> None:
    asked = ["1g.24gb", "2g.48gb-me", "1g.24gb+me", "2g.48gb+me.all", "4g.96gb"]
    calls = [
        (MIG, {"gpus": [PRO], "instances": [{"profile": name, "count": 1}], "enable_sriov": True}) for name in asked
    ]
    unknown = (MIG, {"gpus": [PRO], "instances": [{"profile": "1g.24gb+gfxx", "count": 1}], "enable_sriov": True})
    no_type = (VGPU, {"profile": "RTX Pro 6000 Blackwell DC-1-24QGFX", "count": 1})
    *refused, strange, named = playbooks.tasks(*calls, unknown, no_type)
    for name, result in zip(asked, refused, strict=True):
        assert result.code == "no_suitable_gpu"
        assert f"has no {name}" in result.message or f"no vGPU type for instances of {name}" in result.message
        assert "1g.24gb+gfx" in result.message
    assert strange.code == "no_suitable_gpu"
    assert named.code == "unknown_profile"
    assert writes(mig_lab) == dry_runs(mig_lab) == []


def test_a_card_with_instances_that_serve_nothing_is_told_and_cut_only_by_name(
    mig_lab: Lab, playbooks: Playbooks
) -> None:
    cut_by_hand(mig_lab, PRO, **{"1g.24gb": 4})
    device = mig_lab.gpu(PRO)["status"]["vGPUDevices"][0]
    mig_lab.advance(60)
    assert mig_lab.types(device) == set()
    mig_lab.mark()
    info, vgpus, same, other, recut = playbooks.tasks(
        ("harvester_gpu_info", {}),
        (VGPU, {"profile": f"{DC}-1-24Q", "count": 1, "gpus": [PRO], "enable_mig": True, "reprofile": True}),
        (MIG, {"gpus": [PRO], "instances": [{"profile": "1g.24gb", "count": 4}]}),
        (MIG, {"gpus": [PRO], "instances": GRAPHICS}),
        predicting(MIG, {"gpus": [PRO], "instances": GRAPHICS, "relayout": True}),
    )
    assert findings(info) == [("mig_serves_nothing", PRO)]
    assert "4 x 1g.24gb, which serve no vGPU" in info["findings"][0]["text"]
    assert vgpus.code == "does_not_fit"
    assert "4 x 1g.24gb, which serve no vGPU and are only removed by vgpu.fleet.harvester_mig" in vgpus.message
    assert same.code == "no_suitable_gpu"
    assert other.code == "needs_relayout"
    assert "has 4 x 1g.24gb and should have 4 x 1g.24gb+gfx" in other.message
    assert actions(recut) == ["create_mig_instances"]
    assert writes(mig_lab) == []


def test_a_card_that_the_ui_cut_stays_and_its_instances_serve_several_vgpus(mig_lab: Lab, playbooks: Playbooks) -> None:
    cut_by_hand(mig_lab, PRO, **{"1g.24gb+gfx": 4})
    devices = mig_lab.gpu(PRO)["status"]["vGPUDevices"]
    sizes = ("2", "3", "4", "6", "8", "12", "24")
    mig_lab.until(lambda: {name.split("-1-")[1][:-1] for name in mig_lab.types(devices[0])} == set(sizes))
    mig_lab.mark()
    on_pro = {"gpus": [PRO], "enable_mig": True}
    same, again, counted, predicted, done = playbooks.tasks(
        (MIG, {"gpus": [PRO], "instances": GRAPHICS}),
        (MIG, {"gpus": [PRO], "instances": [{"profile": f"{DC}-1-2Q", "count": 4}], "relayout": True}),
        ("vgpu_availability", {"nodes": ["mig-pro"]}),
        predicting(VGPU, {"layout": [{"profile": f"{DC}-1-8Q", "count": 4, "gpus": [PRO]}], "enable_mig": True}),
        (VGPU, {"layout": [{"profile": f"{DC}-1-8Q", "count": 4, "gpus": [PRO]}], "enable_mig": True}),
    )
    assert not same.changed
    assert not again.changed
    assert same["gpus"][0]["instances"][0]["types"][f"{DC}-1-2Q"] == 12
    creatable = {one["profile"]: one["creatable"] for one in counted["profiles"]}
    assert creatable[f"{DC}-1-2Q"] == 48
    assert creatable[f"{DC}-1-24C"] == 4
    # The others need other instances, which a card without vGPUs may still get beside or instead of these.
    assert actions(predicted) == actions(done) == ["enable"] * 4
    assert {vgpu["state"] for vgpu in done["vgpus"]} == {"allocatable"}
    assert mig_lab.amounts("mig-pro")[f"nvidia.com/{DC.replace(' ', '_')}-1-8Q"] == 4
    # Three share the first instance, the fourth is on the second one: two instances are left for other sizes.
    more, held, counted = playbooks.tasks(
        (VGPU, {"profile": f"{DC}-1-24C", "count": 2, **on_pro}),
        (VGPU, {"profile": f"{DC}-2-48C", "count": 1, **on_pro}),
        ("vgpu_availability", {"nodes": ["mig-pro"]}),
    )
    assert actions(more) == ["enable"] * 2
    assert held.code == "does_not_fit"
    assert "they change only while it has no vGPUs" in held.message
    creatable = {one["profile"]: one["creatable"] for one in counted["profiles"] if one["creatable"]}
    assert creatable == {f"{DC}-1-8A": 2, f"{DC}-1-8C": 2, f"{DC}-1-8Q": 2}
    configuration = mig_lab.read(f"{paths.MIG_CONFIGURATIONS}/{PRO}")
    requested = {entry["name"]: entry["requested"] for entry in configuration["spec"]["profileSpec"]}
    assert {name: count for name, count in requested.items() if count} == {"MIG 1g.24gb+gfx": 4}


def test_vgpus_bring_their_graphics_instances_and_a_gb200_is_cut_by_slices(mig_lab: Lab, playbooks: Playbooks) -> None:
    task = {
        "layout": [
            {"profile": f"{DC}-1-2Q", "count": 13, "gpus": [PRO]},
            {"profile": f"{DC}-2-48C", "count": 1, "gpus": [PRO]},
            {"profile": "GB200-1-24C", "count": 2},
            {"profile": "GB200-3-95C", "count": 1},
        ],
        "enable_sriov": True,
        "enable_mig": True,
    }
    predicted, done, again, info = playbooks.tasks(
        predicting(VGPU, task), (VGPU, task), (VGPU, task), ("harvester_gpu_info", {})
    )
    assert not done.failed, done.message
    cuts = {step["gpu"]: step["after"] for step in done.steps if step["action"] == "create_mig_instances"}
    # The names of a GPU are known only once SR-IOV is enabled.
    assert cuts == {PRO: "1 x 2g.48gb+gfx, 2 x 1g.24gb+gfx", GB200: "1 x 3g.95gb, 2 x 1g.24gb"}
    status = mig_lab.read(f"{paths.MIG_CONFIGURATIONS}/{GB200}")["status"]["profileStatus"]
    assert {one["name"] for one in status if one.get("vGPUID")} == {"MIG 3g.93gb", "MIG 1g.23gb"}
    assert [(one["action"], one["after"]) for one in predicted.steps] == [
        (one["action"], one["after"]) for one in done.steps
    ]
    assert {vgpu["state"] for vgpu in done["vgpus"]} == {"allocatable"}
    assert mig_lab.amounts("mig-pro")[f"nvidia.com/{DC.replace(' ', '_')}-1-2Q"] == 13
    assert mig_lab.amounts("mig-gb200")["nvidia.com/NVIDIA_GB200-1-24C"] == 2
    assert not again.changed
    assert writes(mig_lab, again) == []
    assert findings(info) == []


def test_mig_mode_that_harvester_is_still_trying_to_enable_is_not_built_on(mig_lab: Lab, playbooks: Playbooks) -> None:
    lab = mig_lab
    lab.control.fault("mig-setup", node="mig-pro")
    lab.write(f"{paths.SRIOV_GPUS}/{PRO}", {"spec": {"enabled": True}})
    lab.until(lambda: len(lab.vgpus(PRO)) == 48 and lab.types(lab.vgpus(PRO)[-1]["metadata"]["name"]))
    assert f"{DC}-24C" in lab.types(lab.vgpus(PRO)[0]["metadata"]["name"])
    lab.mark()
    info, counted, vgpu, cut = playbooks.tasks(
        ("harvester_gpu_info", {}),
        ("vgpu_availability", {"nodes": ["mig-pro"]}),
        (VGPU, {"profile": f"{DC}-24C", "count": 1}),
        (MIG, {"gpus": [PRO], "instances": GRAPHICS}),
    )
    assert findings(info) == [("mig_unstable", PRO)]
    assert not [one for one in counted["profiles"] if one["creatable"]]
    assert vgpu.code == "does_not_fit"
    assert "still trying to put it into MIG mode" in vgpu.message
    assert cut.code == "mig_unstable"
    assert writes(lab) == []
    if lab.version == "1.7":
        assert SKIP not in info["findings"][0]["text"]
        refused = playbooks.task(MIG, gpus=[PRO], mode="time_sliced")
        assert refused.code == "mig_unstable"
        assert writes(lab) == []
        # A later attempt succeeds and takes the types away.
        lab.control.fault("mig-setup", on=False, node="mig-pro")
        lab.until(lambda: lab.find(f"{paths.MIG_CONFIGURATIONS}/{PRO}"), within=900)
        (calm,) = playbooks.tasks(("harvester_gpu_info", {}))
        assert findings(calm) == []
        return
    assert SKIP in info["findings"][0]["text"]
    marked, calm, built = playbooks.tasks(
        (MIG, {"gpus": [PRO], "mode": "time_sliced"}),
        ("harvester_gpu_info", {}),
        (VGPU, {"profile": f"{DC}-24C", "count": 1}),
    )
    assert actions(marked) == ["set_mode"]
    assert findings(calm) == []
    assert [one["state"] for one in built["vgpus"]] == ["allocatable"]
    # The annotation ends the attempts.
    lab.control.fault("mig-setup", on=False, node="mig-pro")
    lab.advance(900)
    assert lab.find(f"{paths.MIG_CONFIGURATIONS}/{PRO}") is None
