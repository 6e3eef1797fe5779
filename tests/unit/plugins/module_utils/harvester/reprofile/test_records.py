"""Device entries of VMs whose vGPUs change, and what a journal tells of a run that was cut off."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile_resolver import ProfileResolver
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import version as versions
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import journal
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.journal import CHANGING, DONE, PLANNED, Entry
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.reprofile.records import (
    VmRecord,
    batches_of,
    given,
    put_into,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.model import VmState

from tests.unit.plugins.module_utils.harvester.objects import C4, Q4, Q8, TYPES, instance, vm

Json = dict[str, Any]
FOUR, EIGHT, FOUR_C = (f"nvidia.com/NVIDIA_A2-{name}" for name in ("4Q", "8Q", "4C"))
DISK = {"name": "disk", "deviceName": "example.com/disk"}


def entry(name: str, resource: str = FOUR, **more: Any) -> Json:
    return {"name": name, "deviceName": resource, **more}


def machine(*entries: Json, version: str = "1.8", started: bool = False, **spec: Any) -> VmState:
    field = "gpus" if version == "1.7" else "hostDevices"
    found = vm("web", field=field)
    found["spec"] |= spec
    found["spec"]["template"]["spec"]["domain"]["devices"] = {field: list(entries)}
    found["status"] = {"printableStatus": "Running" if started else "Stopped"}
    return VmState(
        found, instance("web") if started else None, versions.from_option(version), ProfileResolver(sorted(TYPES))
    )


@pytest.mark.parametrize(
    ("had", "gets", "has"),
    [
        # The same number: names, tags and options stay.
        ([entry("render", tag="gpu0")], {Q8: 1}, [entry("render", EIGHT, tag="gpu0")]),
        (
            [entry("one"), DISK, entry("two", tag="t")],
            {C4: 2},
            [entry("one", FOUR_C), DISK, entry("two", FOUR_C, tag="t")],
        ),
        ([entry("one"), entry("two")], {Q4: 1, C4: 1}, [entry("one"), entry("two", FOUR_C)]),
        # Fewer and more.
        ([entry("one"), entry("two")], {Q8: 1}, [entry("one", EIGHT)]),
        ([entry("one", tag="t")], {C4: 2}, [entry("one", FOUR_C, tag="t"), entry("vgpu-0", FOUR_C)]),
        ([entry("one"), DISK], {}, [DISK]),
        ([], {Q8: 1}, [entry("vgpu-0", EIGHT)]),
        # Harvester has named it after the device that the VM had.
        ([entry("n1-000008004", tag="t")], {Q8: 1}, [entry("vgpu-0", EIGHT, tag="t")]),
    ],
)
def test_r3_entries_keep_their_names_and_tags(had: list[Json], gets: dict[str, int], has: list[Json]) -> None:
    assert given(machine(*had), gets, ["n1-000008004"])["hostDevices"] == has


def test_r3_entries_are_exactly_the_same_if_the_vgpus_are() -> None:
    odd = [entry("n1-000008004"), entry("x", virtualGPUOptions={"display": {"enabled": False}})]
    for version in ("1.7", "1.8"):
        same = machine(*odd, version=version)
        assert given(same, {Q4: 2}, ["n1-000008004"]) == same.devices


def test_r3_options_of_the_older_field_stay() -> None:
    options = {"virtualGPUOptions": {"display": {"enabled": True, "ramFB": {"enabled": True}}}}
    found = given(machine(entry("render", tag="t", **options), version="1.7"), {C4: 1}, [])
    assert found["gpus"] == [entry("render", FOUR_C, tag="t", **options)]


def test_what_is_no_vgpu_is_left_as_somebody_has_changed_it_meanwhile() -> None:
    now = machine({**DISK, "name": "new-disk"})
    assert put_into(now, {"hostDevices": [DISK, entry("render")]})["hostDevices"] == [
        {**DISK, "name": "new-disk"},
        entry("render"),
    ]
    assert put_into(machine(DISK), {"hostDevices": [entry("render"), DISK]})["hostDevices"] == [entry("render"), DISK]


@pytest.mark.parametrize(
    ("started", "spec", "ran"),
    [
        (True, {"runStrategy": "Manual"}, True),
        (True, {"runStrategy": "RerunOnFailure"}, True),
        (False, {"runStrategy": "Always"}, True),
        (False, {"running": True}, True),
        # Its guest has shut it down: it stays so.
        (False, {"runStrategy": "RerunOnFailure"}, False),
        (False, {"runStrategy": "Manual"}, False),
        (False, {"running": False}, False),
        (False, {"runStrategy": "Halted"}, False),
    ],
)
def test_whether_a_vm_is_to_be_started_again(started: bool, spec: Json, ran: bool) -> None:
    record = VmRecord.of(machine(entry("x"), started=started, **spec), {Q8: 1})
    assert (record.run, record.ran, record.ready) == (spec, ran, started)


def journaled(phases: dict[str, str]) -> dict[str, Entry]:
    """Two GPUs that change together with a VM, and a VM alone."""
    base = {"run": "1", "request": "r", "started": journal.now(), "by": "me@here"}
    both = {"gpus": ("a", "b"), "vms": ("default/web",)}
    of_vm = VmRecord.of(machine(entry("x")), {Q8: 1})
    record = {"before": of_vm.before(), "after": {"vgpus": {Q8: 1}}}
    gpu = {"before": {"vgpus": [["a-4", Q4]], "sriov": True}}
    found = {journal.gpu_path(name): Entry(**base, **both, **gpu, phase=phase) for name, phase in phases.items()}
    found[journal.vm_path("default/web")] = Entry(**base, **both, **record)
    found[journal.vm_path("default/alone")] = Entry(**base, **record, phase=CHANGING)
    return found


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ({"a": CHANGING, "b": CHANGING}, [(("a", "b"), ["default/web"]), ((), ["default/alone"])]),
        ({"a": CHANGING, "b": PLANNED}, [((), ["default/alone"])]),
        ({"b": CHANGING}, [(("b",), ["default/web"]), ((), ["default/alone"])]),
        ({"a": PLANNED, "b": PLANNED}, [((), ["default/alone"])]),
        ({"a": DONE, "b": CHANGING}, [((), ["default/alone"])]),
        ({"b": DONE}, [((), ["default/alone"])]),
        # The objects of the GPUs were deleted, and with them their journal.
        ({}, [((), ["default/alone"]), ((), ["default/web"])]),
    ],
)
def test_what_a_run_had_begun(phases: dict[str, str], expected: list[Any]) -> None:
    found = {
        path: Entry.of({"metadata": {"annotations": {journal.JOURNAL: entry.text()}}})
        for path, entry in journaled(phases).items()
    }
    begun = batches_of({path: entry for path, entry in found.items() if entry})
    assert [(batch.gpu_names, [one.path for one in batch.vms]) for batch in begun] == expected
