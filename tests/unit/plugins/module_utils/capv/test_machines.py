"""The state of machines, from the conditions of both versions."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.machines import ClusterObjects, MachineRecord, records

from tests.unit.plugins.module_utils.capv.clusters import Namespace, with_machine

Json = dict[str, Any]
WORKER = {"cluster.x-k8s.io/deployment-name": "ml-gpu"}
RUNNING = {"phase": "Running", "nodeRef": {"name": "n1"}}


def only(of_vm: list[Json] | None = None, *, labels: Json | None = None, **status: Any) -> MachineRecord:
    there = with_machine(Namespace(), "m1", "t1", labels=WORKER if labels is None else labels, **status)
    there.by_kind["VSphereVM"]["m1-vm"]["status"] = {"conditions": of_vm or [], "host": "esx1"}
    objects = there.machine_objects("ml")
    pools = {"ml-gpu": "gpu"}
    (found,) = records(ClusterObjects(objects.machines, objects.vsphere_machines, objects.vms, pools), "ml")
    return found


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_a_running_machine_with_a_node_is_ready_and_shows_its_devices() -> None:
    found = only([condition("VirtualMachineProvisioned", "True")], **RUNNING).as_dict()
    assert (found["state"], found["node"], found["vm"], found["host"]) == ("ready", "n1", "m1-vm", "esx1")
    assert found["devices"] == [{"profile": "nvidia_a40-8q", "vendor_id": "", "device_id": "", "custom_label": ""}]
    assert (found["pool"], found["template"], found["control_plane"]) == ("gpu", "t1", False)


@pytest.mark.parametrize("name", ["VirtualMachineProvisioned", "VMProvisioned"])
@pytest.mark.parametrize("reason", ["TaskFailed", "TaskFailure", "CloningFailed", "PoweringOnFailed"])
def test_a_failed_operation_on_the_vm_is_a_failure_with_its_text(name: str, reason: str) -> None:
    found = only([condition(name, "False", reason, "no host has room")], phase="Provisioning")
    assert (found.state, found.reason, found.message) == ("failed", reason, "no host has room")
    assert found.sentence == f"Machine m1 has failed ({reason}: no host has room)"


@pytest.mark.parametrize("reason", ["WaitingForClone", "PoweringOn", "WaitingForIPAllocation"])
def test_an_operation_under_way_is_not_a_failure(reason: str) -> None:
    found = only([condition("VirtualMachineProvisioned", "False", reason)], phase="Provisioning")
    assert (found.state, found.reason) == ("pending", reason)


def test_devices_that_are_missing_on_a_running_vm_are_a_failure() -> None:
    """The condition is absent while all devices are there, and never true."""
    found = only([condition("PCIDevicesDetached", "False", "NotFound")], **RUNNING)
    assert (found.state, found.reason) == ("failed", "NotFound")
    assert "removed" in found.message


def test_a_node_that_is_not_ready_keeps_the_machine_pending_with_the_reason() -> None:
    unready = [condition("NodeReady", "False", "NodeNotReady", "cni plugin not initialized")]
    found = only(**RUNNING, conditions=unready)
    assert (found.state, found.message) == ("pending", "cni plugin not initialized")


def test_machines_of_the_control_plane_and_of_other_clusters_are_told_apart() -> None:
    found = only(**RUNNING, labels={"cluster.x-k8s.io/control-plane": ""})
    assert (found.group, found.as_dict()["control_plane"]) == ("control-plane", True)
    there = with_machine(Namespace(), "m1", "t1", labels=WORKER, **RUNNING)
    assert records(there.machine_objects("other"), "other") == []


def test_passthrough_devices_are_shown_in_hexadecimal() -> None:
    there = with_machine(Namespace(), "m1", "t1", labels=WORKER, **RUNNING)
    there.by_kind["VSphereVM"]["m1-vm"]["spec"]["pciDevices"] = [
        {"vendorId": 0x10DE, "deviceId": 0x20B5, "customLabel": "a"}
    ]
    (found,) = records(there.machine_objects("ml"), "ml")
    assert found.devices == ({"profile": "", "vendor_id": "10de", "device_id": "20b5", "custom_label": "a"},)
