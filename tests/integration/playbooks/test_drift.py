"""What has drifted is found, and what is safe is repaired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pyVim.connect import Disconnect

from lab.vsphere import vcsim
from tests.integration.api import ADDONS, KUBEVIRT, MIG_CONFIGURATIONS, SRIOV_GPUS, VGPUS, VMIS, VMS
from tests.integration.lab_harvester.machines import A2_4Q, ALLOCATION, device, devices_of, machine, note_for
from tests.integration.labs import Lab
from tests.integration.playbooks.runs import CHECKOUT, Run, Runs
from tests.integration.vsphere_lab.conftest import VCenter

Json = dict[str, Any]

GPU_A, GPU_B, A100 = "gpu-a-000008000", "gpu-b-000008000", "mig-a100-000004000"
A4, A5, A6 = (f"gpu-a-00000800{function}" for function in "456")
B4 = "gpu-b-000008004"
Q4, C4, Q8 = "NVIDIA A2-4Q", "NVIDIA A2-4C", "NVIDIA A2-8Q"
OWNER = "vgpu.fleet/owner"
DRIVER = "nvidia-driver-toolkit"
LOCATION = "http://files.example/NVIDIA-Linux-x86_64-vgpu-kvm.run"
PLACEHOLDER = "HTTPENDPOINT/driver.run"
DECLARED: Json = {
    "harvester_gpu_node_layout": [{"profile": Q4, "count": 4, "nodes": ["gpu-a"]}],
    "harvester_gpu_node_driver_location": LOCATION,
}
REPAIR, FAIL = {"vgpu_drift_repair": "true"}, {"vgpu_drift_fail": "true"}
VSPHERE = {"vgpu_drift_platform": "vsphere"}
MIG_AND_VSPHERE = str(CHECKOUT / "tests/data/drift_lab.yaml")


def findings(run: Run) -> list[Json]:
    return list(run.artifacts["vgpu_drift"]["localhost"])


def found(run: Run) -> dict[tuple[str, str], str]:
    """How each finding can be repaired, by its kind and what it is about."""
    return {(one["kind"], one["device"]): one["repair"] for one in findings(run)}


def left(run: Run) -> set[tuple[str, str]]:
    return {(kind, about) for kind, about in found(run) if kind != "unused"}


def written(lab: Lab) -> set[str]:
    """The names of what people have changed."""
    return {event["objectRef"]["name"] for event in lab.audit() if "dryRun=All" not in event["requestURI"]}


def driver_location(lab: Lab) -> str:
    return str(yaml.safe_load(lab.read(f"{ADDONS}/{DRIVER}")["spec"]["valuesContent"])["driverLocation"])


def set_driver_location(lab: Lab, location: str, *, enabled: bool = True) -> None:
    values = yaml.safe_load(lab.read(f"{ADDONS}/{DRIVER}")["spec"]["valuesContent"])
    content = yaml.safe_dump({**values, "driverLocation": location})
    lab.write(f"{ADDONS}/{DRIVER}", {"spec": {"enabled": enabled, "valuesContent": content}})


def drifted(lab: Lab) -> None:
    """Another type in the spec, too few vGPUs, one that its node does not count, a stale note, a reset driver."""
    lab.enable_gpus(GPU_A, GPU_B)
    lab.enable_vgpus({A4: Q4, A5: Q4, B4: Q4})
    lab.write(f"{VGPUS}/{A5}", {"spec": {"vGPUTypeName": C4}})
    lab.control.fault("plugin-drift", node="gpu-b")
    lab.until(lambda: lab.amounts("gpu-b") == {A2_4Q: 0})
    lab.make(VMS, machine("old", note=note_for(A6, vfio=True)))
    set_driver_location(lab, PLACEHOLDER)


def unready(lab: Lab) -> None:
    """A claim that outlived its vGPU, and a list of permitted devices that has lost its entries."""
    lab.enable_gpus(GPU_A, GPU_B)
    lab.enable_vgpus({A4: Q4, B4: C4})
    lab.disable_gpus(GPU_B)
    lab.enable_gpus(GPU_B)
    lab.control.fault("permitted-list")


def test_m3_m4_what_a_vm_needs_to_start_is_repaired_on_request(lab: Lab, runs: Runs) -> None:
    lab.begin(arranged=unready)
    resources = {name: f"nvidia.com/{name.replace(' ', '_')}" for name in (Q4, C4)}
    told = runs.playbook("drift", {})
    expected = {
        ("not_permitted", resources[Q4]): "permitted_devices",
        ("permitted_twice", resources[C4]): "permitted_devices",
        ("claim_left_behind", B4): "claim",
    }
    assert {key: how for key, how in found(told).items() if key[0] != "unused"} == expected
    assert written(lab) == set()

    mended = runs.playbook("drift", REPAIR)
    assert (mended.status, left(mended)) == ("successful", set())
    assert lab.claim(B4) is None
    permitted = lab.read(KUBEVIRT)["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"]
    assert [entry["resourceName"] for entry in permitted] == [resources[C4], resources[Q4]]
    lab.mark()
    again = runs.playbook("drift", REPAIR)
    assert (again.status, again.changed, written(lab)) == ("successful", 0, set())


def test_drift_is_told_then_repaired_and_then_only_that_is_left_which_nobody_can_repair(lab: Lab, runs: Runs) -> None:
    lab.begin(arranged=drifted)
    rehearsal = runs.playbook("drift", {**DECLARED, **REPAIR, **FAIL}, check=True)
    assert rehearsal.status == "failed"
    assert "default/old" in rehearsal.failure
    assert found(rehearsal) == {
        ("type_differs", A5): "layout",
        ("layout_differs", GPU_A): "layout",
        ("stale_annotation", "default/old"): "vm",
        ("driver_addon", DRIVER): "driver",
        ("not_allocatable", B4): "",
        ("unused", Q4): "",
    }
    assert f"driverLocation is {PLACEHOLDER} and should be {LOCATION}" in rehearsal.failure
    assert written(lab) == set()

    mended = runs.playbook("drift", {**DECLARED, **REPAIR, **FAIL})
    assert mended.status == "failed"
    told = f"vGPU {B4} is configured as {Q4}, but node gpu-b does not offer it. If it stays so: kubectl"
    assert mended.failure.startswith(told)
    assert set(found(mended)) == {("not_allocatable", B4), ("unused", Q4)}
    assert lab.amounts("gpu-a") == {A2_4Q: 4}
    assert driver_location(lab) == LOCATION
    assert ALLOCATION not in (lab.read(f"{VMS}/old")["metadata"].get("annotations") or {})
    assert B4 not in written(lab)

    lab.mark()
    again = runs.playbook("drift", {**DECLARED, **REPAIR})
    assert (again.status, again.changed, left(again)) == ("successful", 0, {("not_allocatable", B4)})
    # D2: there are more than declared, and all of another profile are too many if the layout is all there should be.
    fewer, others = (
        [{"profile": profile, "count": count, "nodes": ["gpu-a"]}] for profile, count in ((Q4, 2), (C4, 0))
    )
    for declared, exclusive, count in ((fewer, False, 2), (others, False, 0), (others, True, 4)):
        variables = {"harvester_gpu_node_layout": declared, "harvester_gpu_node_exclusive": exclusive}
        surplus = runs.playbook("drift", {**DECLARED, **variables})
        assert found(surplus).get(("layout_differs", GPU_A)) == ("layout" if count else None)
        (text,) = [one["text"] for one in findings(surplus) if one["kind"] == "layout_differs"] or [""]
        assert text.count(f": {Q4} -> empty") == count
    assert written(lab) == set()
    # A vGPU of another owner beyond an exclusive layout is reported and stays, and does not hide what is missing.
    lab.write(f"{VGPUS}/{A4}", {"metadata": {"annotations": {OWNER: "green"}}})
    lab.mark()
    eight = [{"profile": Q8, "count": 1, "nodes": ["gpu-b"]}, {"profile": C4, "count": 0, "nodes": ["gpu-a"]}]
    variables = {"harvester_gpu_node_layout": eight, "harvester_gpu_node_exclusive": True}
    owned = runs.playbook("drift", {**DECLARED, **variables})
    repairs = found(owned)
    assert (repairs["layout_differs", ""], repairs["layout_differs", GPU_B]) == ("", "layout"), owned.shown
    (beyond,) = [one["text"] for one in findings(owned) if (one["kind"], one["device"]) == ("layout_differs", "")]
    assert "beyond the exclusive layout" in beyond
    assert "owner green" in beyond
    assert written(lab) == set()
    # U15: only on request, the controller of the node is restarted.
    restarted = runs.playbook("drift", {**DECLARED, **REPAIR, "vgpu_drift_restart_controllers": True})
    assert (restarted.status, left(restarted)) == ("successful", set()), restarted.shown
    assert lab.amounts("gpu-b") == {A2_4Q: 1}


PAIR = [device("a"), device("b")]


def drifted_in_use(lab: Lab) -> Json:
    """On 1.7: other types in the specs of three vGPUs, of which a running VM has one; a VM with two is healthy."""
    lab.enable_gpus(GPU_A, GPU_B)
    lab.enable_vgpus({A4: Q4, A5: Q4})
    lab.make(VMS, machine("trainer", gpus=[device("wish")], run=True))

    def noted() -> str:
        return (lab.read(f"{VMS}/trainer")["metadata"].get("annotations") or {}).get(ALLOCATION, "")

    text = lab.until(noted, real=True)
    held, free = (A4, A5) if A4 in text else (A5, A4)
    # Two for the VM with a pair, which is stopped and has to find them.
    lab.enable_vgpus({B4: Q4, "gpu-b-000008005": Q4, "gpu-b-000008006": Q4})
    for name, other in ((held, C4), (free, Q8), (B4, C4)):
        lab.write(f"{VGPUS}/{name}", {"metadata": {"annotations": {OWNER: "blue"}}, "spec": {"vGPUTypeName": other}})
    lab.make(VMS, machine("two", gpus=PAIR))
    set_driver_location(lab, "http://files.example/other.run")
    return {"held": held, "free": free, "instance": lab.read(f"{VMIS}/trainer")["metadata"]["uid"]}


def test_what_a_running_vm_uses_is_left_alone_and_a_repair_that_fails_holds_up_no_other(
    running: Lab, runs: Runs
) -> None:
    lab = running.begin(version="1.7", arranged=drifted_in_use)
    held, free = lab.story["held"], lab.story["free"]
    # In the inventory, as for several clusters, the role's own variables come before those of harvester_gpu_cluster.
    declared = {"vgpu_drift_driver_location": LOCATION, "harvester_gpu_node_driver_location": "http://files.example/x"}
    local = {"ansible_connection": "local", "vgpu_drift_unused": False}
    inventory = {"all": {"hosts": {"localhost": {**local, **declared}}}}
    told = runs.playbook("drift", inventory=inventory)
    assert (told.status, told.changed, written(lab)) == ("successful", 0, set())
    assert found(told) == {
        ("type_differs", held): "spec",
        ("type_differs", free): "device",
        ("type_differs", B4): "device",
        ("driver_addon", DRIVER): "",
    }
    assert f"should be {LOCATION}. No repair while VMs have vGPUs: default/trainer." in told.shown

    mended = runs.playbook("drift", REPAIR, inventory=inventory)
    assert mended.status == "failed"
    assert mended.failure.startswith(f"Some repairs failed. GPU {GPU_A} cannot have vGPUs of different")
    assert left(mended) == {("type_differs", free), ("driver_addon", DRIVER)}
    # M11: what the spec says of a vGPU in use is set back, and its VM goes on with it.
    assert lab.read(f"{VGPUS}/{held}")["spec"]["vGPUTypeName"] == Q4
    # H6: from KubeVirt 1.3 on it starts as it is.
    assert devices_of(lab.read(f"{VMS}/two"))["gpus"] == PAIR
    assert lab.status(B4)["configureVGPUTypeName"] == C4
    # The GPU has a journal while its vGPU is disabled and enabled again.
    assert written(lab) == {B4, GPU_B, held}
    # Whoever repairs it, it stays whose it was.
    assert [lab.read(f"{VGPUS}/{name}")["metadata"]["annotations"][OWNER] for name in (B4, held)] == ["blue", "blue"]
    assert lab.read(f"{VMIS}/trainer")["metadata"]["uid"] == lab.story["instance"]


def mig_out_of_sync(lab: Lab) -> None:
    """Asked for by hand, in an order that leaves no place for the large instance; the driver's addon is off."""
    path = f"{MIG_CONFIGURATIONS}/{A100}"

    def status() -> Json:
        return dict((lab.find(path) or {}).get("status") or {})

    lab.write(f"{SRIOV_GPUS}/{A100}", {"spec": {"enabled": True}})
    lab.until(lambda: status().get("profileStatus"))
    requested = {"MIG 2g.10gb": 2, "MIG 3g.20gb": 1}
    spec = lab.read(path)["spec"]["profileSpec"]
    asked = [{**entry, "requested": requested.get(entry["name"], 0)} for entry in spec]
    lab.write(path, {"spec": {"enabled": True, "profileSpec": asked}})
    lab.until(lambda: status().get("status") == "out-of-sync")
    set_driver_location(lab, PLACEHOLDER, enabled=False)


def test_mig_that_is_out_of_sync_and_a_placeholder_that_nobody_replaced_are_told_and_left(
    running: Lab, runs: Runs
) -> None:
    lab = running.begin(scenario=MIG_AND_VSPHERE, arranged=mig_out_of_sync)
    # D1: nobody declared the addon, so it stays off.
    undeclared = runs.playbook("drift", REPAIR)
    assert (undeclared.status, found(undeclared)) == ("successful", {("mig_out_of_sync", A100): ""})
    on = {"harvester_gpu_node_manage_addons": True}
    told = runs.playbook("drift", {**on, **REPAIR, **FAIL}, options="--tags drift")
    assert (told.status, told.changed) == ("failed", 0)
    assert found(told) == {("mig_out_of_sync", A100): "", ("driver_addon", DRIVER): ""}
    assert A100 in told.failure
    assert PLACEHOLDER in told.failure
    assert written(lab) == set()


def cut_by_hand(lab: Lab) -> None:
    """Two small instances, which nobody uses."""
    path = f"{MIG_CONFIGURATIONS}/{A100}"
    lab.write(f"{SRIOV_GPUS}/{A100}", {"spec": {"enabled": True}})
    lab.until(lambda: ((lab.find(path) or {}).get("status") or {}).get("profileStatus"))
    spec = lab.read(path)["spec"]["profileSpec"]
    asked = [{**entry, "requested": 2 if entry["name"] == "MIG 1g.5gb" else 0} for entry in spec]
    lab.write(path, {"spec": {"enabled": True, "profileSpec": asked}})
    lab.until(lambda: lab.read(path)["status"].get("status") == "synced")


def cut(lab: Lab) -> dict[str, int]:
    """The instances that the A100 has."""
    status = lab.read(f"{MIG_CONFIGURATIONS}/{A100}")["status"]["profileStatus"]
    return {one["name"]: len(one["vGPUID"]) for one in status if one.get("vGPUID")}


def declared_cut(*instances: tuple[str, int]) -> Json:
    entry = {"gpus": [A100], "instances": [{"profile": name, "count": count} for name, count in instances]}
    return {
        "harvester_gpu_node_mig": [{**entry, "relayout": True}],
        "harvester_gpu_node_layout": [{"profile": "A100-3-20C", "count": 1}],
        "harvester_gpu_node_owner": "blue",
    }


def test_mig_instances_are_made_as_declared_unless_a_vm_uses_one(running: Lab, runs: Runs) -> None:
    lab = running.begin(scenario=MIG_AND_VSPHERE, arranged=cut_by_hand)
    before, declared = cut(lab), declared_cut(("3g.20gb", 1), ("2g.10gb", 2))
    for check in (False, True):
        told = runs.playbook("drift", declared | (REPAIR if check else {}), check=check)
        assert (told.status, found(told)) == ("successful", {("mig_layout_differs", A100): "mig"}), told.shown
    assert (written(lab), cut(lab)) == (set(), before)

    mended = runs.playbook("drift", {**declared, **REPAIR, **FAIL})
    # The layout needs the instances, so it is made after them.
    assert (mended.status, left(mended)) == ("successful", set()), mended.shown
    assert cut(lab) == {"MIG 3g.20gb": 1, "MIG 2g.10gb": 2}
    (vgpu,) = [one for one in lab.items(VGPUS) if one["spec"]["enabled"]]
    assert vgpu["metadata"]["annotations"][OWNER] == "blue"
    (resource,) = lab.amounts("mig-a100")

    lab.make(VMS, machine("trainer", host_devices=[device("wish", resource)], run=True))
    lab.until(lambda: ((lab.find(f"{VMIS}/trainer") or {}).get("status") or {}).get("phase") == "Running", real=True)
    instance, has = lab.read(f"{VMIS}/trainer")["metadata"]["uid"], cut(lab)
    lab.mark()
    again = runs.playbook("drift", {**declared, **REPAIR, **FAIL})
    assert (again.status, again.changed, written(lab)) == ("successful", 0, set()), again.shown
    refused = runs.playbook("drift", {**declared_cut(("1g.5gb", 7)), **REPAIR, **FAIL})
    assert (refused.status, found(refused)) == ("failed", {("mig_layout_differs", ""): ""}), refused.shown
    assert "The declared MIG instances cannot be created." in refused.failure
    assert "default/trainer" in refused.failure
    assert (written(lab), cut(lab)) == (set(), has)
    assert lab.read(f"{VMIS}/trainer")["metadata"]["uid"] == instance


@pytest.fixture
def vcenter(running: Lab) -> Iterator[VCenter]:
    """VMs with vGPUs that have lost their memory reservation: one is off, one runs."""
    lab = running.begin(scenario=MIG_AND_VSPHERE)
    info = vcsim.info(lab.run)
    assert info is not None
    client = VCenter(info)
    for name in ("stopped", "trainer"):
        client.wait(client.reconfigure(client.vm(name), memoryReservationLockedToMax=False))
    yield client
    Disconnect(client.instance)


def test_a_lost_memory_reservation_is_told_and_repaired_on_a_vm_that_is_off(vcenter: VCenter, runs: Runs) -> None:
    def writes() -> int:
        return int(vcenter.control("GET", "/rpc")["writes"])

    def reserved() -> list[str]:
        names = ("fine", "stopped", "trainer")
        return [name for name in names if vcenter.vm(name).config.memoryReservationLockedToMax]

    before = writes()
    rehearsal = runs.playbook("drift", {**VSPHERE, **REPAIR}, check=True)
    assert (rehearsal.status, writes()) == ("successful", before)
    assert found(rehearsal) == {("not_prepared", "stopped"): "vm", ("not_prepared", "trainer"): ""}
    assert "VM stopped lacks settings that its vGPUs require: its memory is not reserved." in rehearsal.shown
    assert reserved() == ["fine"]

    mended = runs.playbook("drift", {**VSPHERE, **REPAIR, **FAIL})
    assert mended.status == "failed"
    assert "VM trainer" in mended.failure
    assert left(mended) == {("not_prepared", "trainer")}
    assert reserved() == ["fine", "stopped"]
    assert vcenter.vm("trainer").runtime.powerState == "poweredOn"

    vcenter.wait(vcenter.reconfigure(vcenter.vm("trainer"), memoryReservationLockedToMax=True))
    before = writes()
    again = runs.playbook("drift", {**VSPHERE, **REPAIR, **FAIL})
    assert (again.status, again.changed, findings(again), writes()) == ("successful", 0, [], before)
