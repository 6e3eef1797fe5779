"""harvester_vgpu_vm against a lab with a real KubeVirt, in both eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.api import PCI_DEVICES, VGPUS, VM_ACTIONS, VMIS, VMS, Json
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import A4, A5, GPU_A, GPU_B, NOTE, dry_runs, requests, writes
from tests.integration.modules.examples import examples
from tests.integration.modules.permissions import Automation
from tests.integration.modules.playbooks import Playbooks, predicting

MODULE = "harvester_vgpu_vm"
PAGE = Path(__file__).parents[3] / "docs/harvester-vgpus.md"
VERSIONS = {"mdev": "1.7", "vfio": "1.8"}
B4, B5 = "gpu-b-000008004", "gpu-b-000008005"
FOUR_Q, FOUR_A = "NVIDIA A2-4Q", "NVIDIA A2-4A"
RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
SILENT_CARDS = {("list", "pcidevices"), ("list", "migconfigurations")}
ONE, TWO = [{"profile": "A2-4Q"}], [{"profile": "A2-4Q", "count": 2}]


def four_vgpus(lab: Lab) -> None:
    """Two 4Q on the first node, one 4Q and one 4A on the second."""
    lab.enable_gpus(GPU_A, GPU_B)
    lab.enable_vgpus({A4: FOUR_Q, A5: FOUR_Q, B4: FOUR_Q, B5: FOUR_A})


@pytest.fixture
def vms(vm_lab: Lab, era: str) -> Lab:
    """A lab that runs VMs, with four vGPUs."""
    return vm_lab.begin(version=VERSIONS[era], arranged=four_vgpus)


@pytest.fixture
def vms_vfio(vm_lab: Lab) -> Lab:
    """The same, for what does not depend on the era."""
    return vm_lab.begin(version="1.8", arranged=four_vgpus)


@pytest.fixture
def plays(vm_lab: Lab, tmp_path: Path) -> Playbooks:
    return Playbooks(tmp_path, vm_lab.env)


def make(lab: Lab, name: str, *names: str, run: bool = False, **devices: list[Json]) -> None:
    """A VM with 4Q under these names, and other devices by field."""
    if names:
        devices[field(lab)] = [{"name": one, "deviceName": RESOURCE} for one in names]
    domain = {
        "devices": devices,
        "memory": {"guest": "2Gi"},
        "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    }
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": "Always" if run else "Halted", "template": {"spec": {"domain": domain}}},
    }
    lab.make(VMS, body)
    if run:
        lab.until(lambda: runs(lab, name) and (not names or note(lab, name)))
    lab.mark()


def field(lab: Lab) -> str:
    return "hostDevices" if lab.vfio else "gpus"


def vm(lab: Lab, name: str) -> Json:
    return lab.read(f"{VMS}/{name}")


def devices(lab: Lab, name: str) -> Json:
    found: Json = vm(lab, name)["spec"]["template"]["spec"]["domain"]["devices"]
    return {key: found[key] for key in ("gpus", "hostDevices") if found.get(key)}


def note(lab: Lab, name: str) -> dict[str, list[str]]:
    text = (vm(lab, name)["metadata"].get("annotations") or {}).get(NOTE)
    details = json.loads(text) if text else {}
    found: dict[str, list[str]] = details.get("hostdevices" if lab.vfio else "gpus") or {}
    return found


def runs(lab: Lab, name: str) -> bool:
    instance = lab.find(f"{VMIS}/{name}")
    return instance is not None and instance["status"].get("phase") == "Running"


def start(lab: Lab, name: str) -> None:
    assert lab.api.action(f"{VM_ACTIONS}/{name}/start").status == 202
    lab.until(lambda: runs(lab, name) and note(lab, name))


def stop(lab: Lab, name: str) -> None:
    assert lab.api.action(f"{VM_ACTIONS}/{name}/stop").status == 202
    lab.until(lambda: lab.find(f"{VMIS}/{name}") is None)


def got(result: Json) -> list[str | None]:
    return [vgpu["device"] for vgpu in result["vgpus"]]


def test_the_page_on_harvester_runs_as_it_is_written(vm_lab: Lab, plays: Playbooks) -> None:
    """From a fresh installation to a VM with a vGPU, and then the question what still fits."""
    lab = vm_lab.begin(version="1.8", scenario="bare")
    make(lab, "trainer", run=True)
    blocks = [yaml.safe_load(block.split("```")[0]) for block in PAGE.read_text().split("```yaml\n")[1:]]
    # The second block is about boards that the scenario lacks.
    ((play,), _graphics_boards, question) = blocks
    defaults = {"group/vgpu.fleet.harvester": {"kubeconfig": str(lab.run.kubeconfig("admin"))}}
    *_addons, vgpus, vm_, fits = plays.run(play["tasks"] + question, module_defaults=defaults)
    assert {vgpu["state"] for vgpu in vgpus["vgpus"]} == {"allocatable"}
    assert len(vgpus["vgpus"]) == 4
    assert vm_["vgpus"][0]["device"]
    # Three are free, and the fourth machine of the surge has no place.
    assert fits.code == "demand_does_not_fit"


def test_the_examples_take_a_running_vm_through_all_of_it(vms: Lab, plays: Playbooks) -> None:
    lab = vms
    make(lab, "trainer", run=True)
    one, two, shown, none = plays.run(examples(MODULE))
    assert one.changed
    assert (one["restart_required"], one["restarted"]) == (True, False)
    assert got(one) == [None]
    assert two.changed
    assert (two["restart_required"], two["restarted"]) == (False, True)
    # Only the first node has two; which they are is read from what Harvester wrote down.
    assert two["vm"] == {"name": "trainer", "namespace": "default", "running": True, "node": "gpu-a"}
    assert got(two) == [A4, A5]
    assert two["vgpus"][0]["spellings"]["resource"] == RESOURCE
    assert shown.message == f"{A4}, {A5} on gpu-a"
    assert none.changed
    assert none["restarted"]
    assert none["vgpus"] == []
    assert devices(lab, "trainer") == {}
    assert note(lab, "trainer") == {}
    # The devices can be disabled again.
    lab.disable_vgpus([A4, A5])


def test_a_stopped_vm_gets_its_vgpus_in_the_field_of_the_era(vms: Lab, plays: Playbooks) -> None:
    lab = vms
    make(lab, "web")
    predicted = plays.task(MODULE, name="web", vgpus=TWO, check=True)
    assert writes(lab) == []
    assert len(dry_runs(lab)) == 1
    done = plays.task(MODULE, name="web", vgpus=TWO)
    for key in ("changed", "vm", "vgpus", "restarted", "restart_required", "diff"):
        assert predicted[key] == done[key], key
    assert done.changed
    assert not done["restart_required"]
    first, second = devices(lab, "web")[field(lab)]
    for entry, name, shown in ((first, "vgpu-0", True), (second, "vgpu-1", False)):
        options = {"virtualGPUOptions": {"display": {"enabled": True, "ramFB": {"enabled": shown}}}}
        assert entry == {"name": name, "deviceName": RESOURCE, **({} if lab.vfio else options)}
    lab.mark()
    # Harvester rewrites names and memory; neither is a difference.
    start(lab, "web")
    running = plays.task(MODULE, name="web", vgpus=TWO)
    assert not running.changed
    assert got(running) == [A4, A5]
    stop(lab, "web")
    assert {device["name"] for device in devices(lab, "web")[field(lab)]} == {A4, A5}
    assert vm(lab, "web")["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["memory"] == "2Gi"
    lab.mark()
    again = plays.task(MODULE, name="web", vgpus=TWO, restart="if_needed")
    assert not again.changed
    assert writes(lab) == dry_runs(lab) == []
    assert len(lab.audit(writes_only=False)) <= 8


def test_detaching_from_a_stopped_vm_sets_its_devices_free(vms: Lab, plays: Playbooks) -> None:
    """Up to 1.8 the note outlives the devices in the spec, and keeps them from being disabled."""
    lab = vms
    make(lab, "web", "vgpu-0", "vgpu-1", run=True)
    stop(lab, "web")
    held = note(lab, "web")[RESOURCE]
    assert lab.api.patch(f"{VGPUS}/{held[0]}", {"spec": {"enabled": False}}).status == 500
    one = plays.task(MODULE, name="web", vgpus=ONE)
    assert one.changed
    (kept,) = note(lab, "web")[RESOURCE]
    lab.disable_vgpus([device for device in held if device != kept])
    assert plays.task(MODULE, name="web", state="absent").changed
    assert NOTE not in (vm(lab, "web")["metadata"].get("annotations") or {})
    lab.disable_vgpus([kept])
    lab.mark()
    assert not plays.task(MODULE, name="web", state="absent").changed
    assert writes(lab) == []


def test_a_change_waits_for_the_restart_that_is_asked_for_later(vms: Lab, plays: Playbooks) -> None:
    lab = vms
    make(lab, "web", "vgpu-0", run=True)
    before, node = note(lab, "web")[RESOURCE], lab.read(f"{VMIS}/web")["status"]["nodeName"]
    never = plays.task(MODULE, name="web", vgpus=TWO)
    assert never.changed
    assert never["restart_required"]
    assert got(never) == [*before, None]
    assert never["vm"]["node"] == node
    lab.mark()
    again = plays.task(MODULE, name="web", vgpus=TWO)
    assert not again.changed
    assert again["restart_required"]
    predicted = plays.task(MODULE, name="web", vgpus=TWO, restart="if_needed", check=True)
    assert writes(lab) == []
    assert predicted.changed
    assert predicted["restarted"]
    assert got(predicted) == [None, None]
    done = plays.task(MODULE, name="web", vgpus=TWO, restart="if_needed")
    assert done.changed
    assert got(done) == [A4, A5] == sorted(note(lab, "web")[RESOURCE])
    lab.mark()
    assert not plays.task(MODULE, name="web", vgpus=TWO, restart="if_needed").changed
    assert writes(lab) == []


def test_a_restart_that_nobody_waits_for_is_only_asked_for(vms_vfio: Lab, plays: Playbooks) -> None:
    lab = vms_vfio
    make(lab, "web", run=True)
    old = lab.read(f"{VMIS}/web")["metadata"]["uid"]
    lab.run_clock(0)
    asked = plays.task(MODULE, name="web", vgpus=ONE, restart="if_needed", wait=False)
    assert not asked.failed, asked.message
    assert asked["restarted"]
    # Its guest could not even have ended yet.
    assert lab.read(f"{VMIS}/web")["metadata"]["uid"] == old
    lab.run_clock(50)
    lab.until(lambda: runs(lab, "web") and note(lab, "web"))


def test_a_vm_that_could_not_start_again_is_not_restarted(vms: Lab, plays: Playbooks) -> None:
    lab = vms
    make(lab, "other", "vgpu-0", "vgpu-1", run=True)
    make(lab, "web", "vgpu-0", run=True)
    refused = plays.task(MODULE, name="web", vgpus=TWO, restart="if_needed")
    assert refused.code == "no_room"
    assert "default/other" in refused.message
    assert writes(lab) == []
    assert runs(lab, "web")
    warned = plays.task(MODULE, name="web", vgpus=TWO)
    assert warned.changed
    assert "cannot start with its vGPUs now" in warned["warnings"][0]
    available = plays.task("vgpu_availability")
    four_q = next(one for one in available["profiles"] if one["profile"] == FOUR_Q)
    assert (four_q["in_use"], four_q["claimed"], four_q["free"]) == (3, 1, 0)
    assert {one["name"]: one["holders"] for one in available["devices"]}[B4] == ["default/web"]


def test_a_vm_that_is_starting_loses_no_vgpu_and_one_that_runs_keeps_its_driver(
    vms_vfio: Lab, plays: Playbooks
) -> None:
    """H3 and H9: its note is that of an earlier run, and Harvester's webhook reads the same note."""
    lab = vms_vfio
    make(lab, "trainer", "vgpu-0")
    earlier = {NOTE: json.dumps({"hostdevices": {RESOURCE: [A4]}})}
    here = {"nodeSelector": {"kubernetes.io/hostname": "gpu-a"}}
    lab.write(f"{VMS}/trainer", {"metadata": {"annotations": earlier}, "spec": {"template": {"spec": here}}})
    lab.run_clock(1)
    assert lab.api.action(f"{VM_ACTIONS}/trainer/start").status == 202
    lab.until(lambda: (lab.find(f"{VMIS}/trainer") or {}).get("status", {}).get("phase") == "Scheduled")
    lab.run_clock(0)
    lab.mark()
    by_name, by_number = plays.tasks(
        # The lab's clock stands still, so a task that is not refused would wait in vain.
        ("harvester_vgpu", {"name": A5, "state": "disabled", "wait": False}),
        ("harvester_vgpu", {"gpus": [GPU_A], "profile": FOUR_Q, "count": 1, "exclusive": True, "wait": False}),
    )
    for refused in (by_name, by_number):
        assert "default/trainer" in refused.message
    assert writes(lab) == []
    lab.run_clock(50)
    lab.until(lambda: runs(lab, "trainer") and note(lab, "trainer") == {RESOURCE: [A5]})
    lab.mark()
    other = {"name": "nvidia-driver-toolkit", "driver_location": "http://files.example/other.run"}
    replaced, predicted, allowed = plays.tasks(
        ("harvester_addon", other),
        predicting("harvester_addon", other),
        predicting("harvester_addon", {**other, "disrupt": True}),
    )
    for refused in (replaced, predicted):
        assert refused.code == "addon_in_use"
        assert "default/trainer" in refused.message
    assert allowed.changed
    assert writes(lab) == []


def test_h4_m2_what_an_edited_vm_runs_with_and_what_a_stopped_one_asks_for_is_kept(
    vms_vfio: Lab, plays: Playbooks
) -> None:
    """H4: without a note, only the running instance tells what the VM has. M2: `vgpu-0` is no device."""
    lab = vms_vfio
    make(lab, "trainer", "vgpu-0", "vgpu-1", run=True)
    make(lab, "idle", "vgpu-0")
    detached = plays.task(MODULE, name="trainer", state="absent")
    assert detached["restart_required"]
    lab.run_clock(0)
    lab.write(f"{VMS}/trainer", {"metadata": {"annotations": {NOTE: None}}})
    lab.mark()
    # What is not refused is not waited for either, since the clock stands.
    off = {"state": "disabled", "wait": False}
    none = {"profile": FOUR_Q, "count": 0, "wait": False}
    refused = plays.tasks(
        ("harvester_vgpu", {"name": A4, **off}),
        ("harvester_vgpu", {"gpus": [GPU_A], **none}),
        ("harvester_sriov_gpu", {"gpus": [GPU_A], "disable_vgpus": True, **off}),
        ("harvester_vgpu", {"name": B4, **off}),
        ("harvester_vgpu", {"gpus": [GPU_B], **none}),
        ("harvester_sriov_gpu", {"gpus": [GPU_B], "disable_vgpus": True, **off}),
    )
    assert [result.failed for result in refused] == [True] * 6
    for result in refused[:3]:
        assert "default/trainer" in result.message
    for result in refused[3:]:
        assert "default/idle" in result.message
    assert writes(lab) == []
    lab.run_clock(50)


def test_passed_through_devices_stay(vms: Lab, plays: Playbooks) -> None:
    lab = vms
    names = {one["status"]["resourceName"] for one in lab.items(PCI_DEVICES) if one["metadata"]["name"] == GPU_A}
    whole = {"name": "card", "deviceName": names.pop()}
    make(lab, "web", hostDevices=[whole])
    added, removed = plays.tasks(
        (MODULE, {"name": "web", "vgpus": ONE}),
        (MODULE, {"name": "web", "state": "absent"}),
    )
    assert len(added["vgpus"]) == 1
    assert removed.changed
    assert devices(lab, "web") == {"hostDevices": [whole]}


def test_others_stay_where_the_list_is_not_exclusive(vms: Lab, plays: Playbooks) -> None:
    lab = vms
    make(lab, "web", "vgpu-0")
    other = [{"profile": FOUR_A}]
    more, less, mixed, gone = plays.tasks(
        (MODULE, {"name": "web", "vgpus": TWO, "exclusive": False}),
        (MODULE, {"name": "web", "vgpus": ONE, "exclusive": False}),
        (MODULE, {"name": "web", "vgpus": other, "exclusive": False}),
        (MODULE, {"name": "web", "vgpus": other, "state": "absent"}),
    )
    assert more.changed
    assert not less.changed
    assert mixed.code == "cannot_boot"
    assert not gone.changed
    assert len(devices(lab, "web")[field(lab)]) == 2


def test_what_cannot_boot_or_does_not_exist_is_refused_and_nothing_is_written(vms_vfio: Lab, plays: Playbooks) -> None:
    lab = vms_vfio
    make(lab, "web")

    def call(*vgpus: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
        return MODULE, {"name": "web", "vgpus": list(vgpus), **more}

    results = plays.tasks(
        call({"profile": "A2-4Q"}, {"profile": "L40S-4Q"}),
        call({"profile": "A2-4Q"}, {"profile": "A2-4A"}),
        call({"profile": "A2-4A", "count": 2}),
        call({"profile": "A2-4Q", "count": 3}),
        call({"profile": "A2-8Q"}),
        call({"profile": "A2-5Q"}),
        call({"profile": "A2-4Q", "count": 0}),
        call({"profile": "A2-4Q"}, name="wob"),
        call({"profile": "A2-4Q"}, namespace="nowhere"),
    )
    assert [result.code for result in results] == [
        "cannot_boot",
        "cannot_boot",
        "cannot_boot",
        "no_room",
        "profile_not_offered",
        "unknown_profile",
        "invalid_request",
        "vm_not_found",
        "vm_not_found",
    ]
    assert "gpu-a: 2 x NVIDIA A2-4Q; gpu-b: 1 x NVIDIA A2-4Q" in results[3].message
    assert "Did you mean web?" in results[7].message
    assert "no namespace nowhere" in results[8].message
    assert writes(lab) == dry_runs(lab) == []
    viewer = plays.task(MODULE, name="web", vgpus=ONE, kubeconfig=lab.run.kubeconfig("viewer"))
    assert viewer.code == "forbidden"
    assert "patch" in viewer.message
    assert "virtualmachines" in viewer.message
    doubtful = plays.task(MODULE, name="web", vgpus=[{"profile": "A2-4A"}], compute=True)
    assert doubtful.changed
    assert "CUDA needs series Q or C" in doubtful["warnings"][0]


def test_the_documented_roles_are_enough_and_each_right_is_needed(vms_vfio: Lab, plays: Playbooks) -> None:
    lab = vms_vfio
    make(lab, "web", run=True)
    automation = Automation(lab)
    try:
        automation.grant("vgpu-fleet-reader", "vgpu-fleet-vms")
        automation.grant("vgpu-fleet-vm-editor", namespace="default")
        lab.mark()
        done = plays.task(MODULE, name="web", vgpus=ONE, restart="if_needed", kubeconfig=automation.kubeconfig)
        assert not done.failed, done.message
        # Read again only when someone else writes at the same time, and where a card shows no types.
        rare = {("get", "virtualmachines"), ("get", "virtualmachineinstances"), *SILENT_CARDS}
        assert automation.used() == automation.granted - rare
    finally:
        automation.withdraw()


def test_what_got_in_while_the_webhook_was_down_and_keeps_a_vm_from_being_changed_is_put_into_words(
    vms: Lab, plays: Playbooks
) -> None:
    """Every update of such a VM is refused, whatever it is about."""
    lab = vms
    lab.control.fault("webhook-down")
    make(lab, "web", hostDevices=[{"name": "card", "deviceName": "example.com/NOTHING"}])
    apart = [{"name": name, "deviceName": RESOURCE} for name in (A4, B4)]
    make(lab, "torn", hostDevices=apart)
    lab.control.fault("webhook-down", on=False)
    lab.mark()
    predicted, refused, torn, mended = plays.tasks(
        predicting(MODULE, {"name": "web", "vgpus": ONE}),
        (MODULE, {"name": "web", "vgpus": ONE}),
        (MODULE, {"name": "torn", "vgpus": [{"profile": "A2-4Q", "count": 3}]}),
        (MODULE, {"name": "torn", "vgpus": ONE}),
    )
    assert predicted.code == refused.code == "profile_not_offered"
    assert "example.com/NOTHING" in refused.message
    assert field(lab) not in devices(lab, "web") or len(devices(lab, "web")[field(lab)]) == 1
    assert [event["responseStatus"]["code"] for event in requests(lab, refused) if event["verb"] == "patch"] == [500]
    # Up to 1.7 they move to `gpus`, where nobody looks at names.
    assert torn.code == ("cannot_boot" if lab.vfio else "no_room")
    assert writes(lab, torn) == dry_runs(lab, torn) == []
    assert not mended.failed, mended.message
