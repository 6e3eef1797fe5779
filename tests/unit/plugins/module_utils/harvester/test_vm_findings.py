"""What harvester_gpu_info says about VMs that have vGPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.findings import findings

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
    assert kinds(version, machine(version, noted=["n1-000008004"])) == ["stale_note"]
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
