"""What harvester_gpu_info says about VMs that have vGPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.findings import findings

from tests.unit.plugins.module_utils.harvester.objects import Q4, gpu, instance, node, snapshot, vgpu, vm

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
NO_DISPLAY = {"virtualGPUOptions": {"display": {"ramFB": {"enabled": False}}}}
OFF = {"virtualGPUOptions": {"display": {"enabled": False}}}


def machine(version: str, *devices: dict[str, Any], noted: list[str] | None = None) -> dict[str, Any]:
    made = vm("trainer")
    field, part = ("hostDevices", "hostdevices") if version == "1.8" else ("gpus", "gpus")
    made["spec"] = {"template": {"spec": {"domain": {"devices": {field: list(devices)}}}}}
    if noted:
        note = json.dumps({part: {RESOURCE: noted}})
        made["metadata"].setdefault("annotations", {})["harvesterhci.io/deviceAllocationDetails"] = note
    return made


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "deviceName": RESOURCE, **more}


def kinds(version: str, trainer: dict[str, Any], *, running: bool = False) -> list[str]:
    seen = snapshot(
        version,
        gpus=[gpu()],
        vgpus=[vgpu(4, asked=Q4, configured=Q4), vgpu(5, asked=Q4, configured=Q4)],
        nodes=[node()],
        vms=[trainer],
        instances=[instance("trainer")] if running else [],
    )
    about = [finding for finding in findings(seen, seen.fleet) if finding.device == "default/trainer"]
    assert all("default/trainer" in finding.text for finding in about)
    return [finding.kind for finding in about]


@pytest.mark.parametrize("version", ["1.7", "1.8"])
def test_a_note_that_outlived_the_devices_of_a_stopped_vm_is_found(version: str) -> None:
    assert kinds(version, machine(version, noted=["n1-000008004"])) == ["stale_annotation"]
    assert kinds(version, machine(version, device("n1-000008004"), noted=["n1-000008004"])) == []
    assert kinds(version, machine(version, noted=["n1-000008004"]), running=True) == []


@pytest.mark.parametrize("version", ["1.3.2", "1.4.1"])
def test_h6_two_boot_displays_are_found_up_to_kubevirt_1_2(version: str) -> None:
    assert kinds(version, machine(version, device("a"), device("b"))) == ["two_displays"]
    assert kinds(version, machine(version, device("a"), device("b", **NO_DISPLAY))) == []
    assert kinds(version, machine(version, device("a", **NO_DISPLAY), device("b"))) == []
    assert kinds(version, machine(version, device("a"), device("b", **OFF))) == []


@pytest.mark.parametrize("version", ["1.4.2", "1.5", "1.7", "1.8"])
def test_h6_from_kubevirt_1_3_on_a_pair_without_options_is_healthy(version: str) -> None:
    for options in ({}, NO_DISPLAY, OFF):
        assert kinds(version, machine(version, device("a"), device("b", **options))) == []
    both = {"virtualGPUOptions": {"display": {}}}
    asked = kinds(version, machine(version, device("a", **both), device("b", **both)))
    # Both ask for it, as after an upgrade: KubeVirt refuses to start such a VM.
    assert asked == ([] if version == "1.8" else ["two_displays"])


@pytest.mark.parametrize("version", ["1.7", "1.8"])
def test_u1_a_vm_that_runs_without_the_vgpus_of_its_spec_is_found_and_claims_them(version: str) -> None:
    field = "hostDevices" if version == "1.8" else "gpus"

    def seen(*started: dict[str, Any]) -> Any:
        running = instance("trainer")
        running["spec"] = {"domain": {"devices": {field: list(started)}}}
        return snapshot(
            version,
            gpus=[gpu()],
            vgpus=[vgpu(4, asked=Q4, configured=Q4), vgpu(5, asked=Q4, configured=Q4)],
            nodes=[node()],
            vms=[machine(version, device("a"), device("b"))],
            instances=[running],
        )

    late = seen()
    (finding,) = [one for one in findings(late, late.fleet) if one.kind == "restart_required"]
    assert "VM default/trainer runs with no vGPUs, but its spec requests 2 x NVIDIA A2-4Q" in finding.text
    assert [(one.count, one.node, one.pending) for one in late.fleet.claims] == [(2, None, True)]
    # With one of them it stays where it is, and the other one is late.
    some = seen(device("a"))
    assert [(one.count, one.node, one.pending) for one in some.fleet.claims] == [
        (1, "n1", False),
        (1, "n1", True),
    ]
    both = seen(device("a"), device("b"))
    assert [(one.count, one.pending) for one in both.fleet.claims] == [(2, False)]
    assert not [one for one in findings(both, both.fleet) if one.kind == "restart_required"]
