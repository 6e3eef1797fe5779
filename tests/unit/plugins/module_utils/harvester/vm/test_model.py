# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The vGPUs in a VM's spec, in both eras."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile_resolver import ProfileResolver
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.version import HarvesterVersion
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.model import VmState, plan
from hypothesis import given, strategies as st

NOTE = "harvesterhci.io/deviceAllocationDetails"
FOUR_Q, FOUR_A, EIGHT_Q = "NVIDIA A2-4Q", "NVIDIA A2-4A", "NVIDIA A2-8Q"
WHOLE = {"name": "nic", "deviceName": "intel.com/82599_ETHERNET_CONTROLLER"}
WHOLE_GPU = {"name": "card", "deviceName": "nvidia.com/GA107GL_A2__A16"}
MDEV, VFIO, LATER = HarvesterVersion((1, 7, 0)), HarvesterVersion((1, 8, 0)), HarvesterVersion((1, 9, 0))
eras = pytest.mark.parametrize("version", [MDEV, VFIO], ids=str)


def resource(profile):
    return "nvidia.com/" + profile.replace(" ", "_")


def vgpu(name, profile=FOUR_Q, **more):
    return {"name": name, "deviceName": resource(profile), **more}


def machine(version, *, gpus=None, host_devices=None, note=None, runs_with=None):
    devices = {}
    if gpus is not None:
        devices["gpus"] = gpus
    if host_devices is not None:
        devices["hostDevices"] = host_devices
    metadata = {"name": "vm", "namespace": "default", "resourceVersion": "3"}
    if note is not None:
        metadata["annotations"] = {NOTE: note if isinstance(note, str) else json.dumps(note)}
    vm = {"metadata": metadata, "spec": {"template": {"spec": {"domain": {"devices": devices}}}}}
    instance = None
    if runs_with is not None:
        instance = {
            "metadata": {"name": "vm", "uid": "1"},
            "spec": {"domain": {"devices": runs_with}},
            "status": {"phase": "Running", "nodeName": "gpu-a"},
        }
    return VmState(vm, instance, version, ProfileResolver([FOUR_Q, FOUR_A, EIGHT_Q]))


def in_field(version, devices):
    return {"host_devices": devices} if version.vendor_vfio else {"gpus": devices}


def written(planned):
    return planned.patch["spec"]["template"]["spec"]["domain"]["devices"]


def after(planned, **more):
    """The machine with the plan carried out."""
    return machine(
        planned.machine.version,
        gpus=planned.devices["gpus"],
        host_devices=planned.devices["hostDevices"],
        note=planned.note_text,
        **more,
    )


def test_from_1_8_on_vgpus_are_host_devices_with_names_of_their_own():
    planned = plan(machine(VFIO, host_devices=[WHOLE]), {FOUR_Q: 2}, restart=False)
    assert written(planned) == {"hostDevices": [WHOLE, vgpu("vgpu-0"), vgpu("vgpu-1")]}


OLD, OLDEST = HarvesterVersion((1, 4, 1)), HarvesterVersion((1, 3, 2))
SHOWN = {"virtualGPUOptions": {"display": {"enabled": True, "ramFB": {"enabled": True}}}}
HEADLESS = {"virtualGPUOptions": {"display": {"enabled": True, "ramFB": {"enabled": False}}}}
OFF = {"virtualGPUOptions": {"display": {"enabled": False}}}
# As the collection wrote it once: right up to KubeVirt 1.2; from 1.3 on it starts, without a boot display.
FORMER = {"virtualGPUOptions": {"display": {"ramFB": {"enabled": False}}}}
gpu_eras = pytest.mark.parametrize(
    "version", [OLDEST, OLD, HarvesterVersion((1, 4, 2)), MDEV], ids=lambda version: str(version.numbers)
)


@gpu_eras
def test_h6_of_several_gpus_the_first_has_the_boot_display_and_each_says_so(version):
    """Right in all versions of KubeVirt: from 1.3 on a vGPU that says nothing has no display if another does."""
    planned = plan(machine(version, host_devices=[WHOLE]), {FOUR_Q: 3}, restart=False)
    assert written(planned) == {
        "gpus": [vgpu("vgpu-0", **SHOWN), vgpu("vgpu-1", **HEADLESS), vgpu("vgpu-2", **HEADLESS)]
    }
    assert after(planned).displays == 1
    assert written(plan(machine(version), {FOUR_Q: 1}, restart=False)) == {"gpus": [vgpu("vgpu-0")]}


@gpu_eras
def test_h6_a_vm_that_starts_as_it_is_is_left_alone(version):
    pairs = [[vgpu("a", **SHOWN), vgpu("b", **HEADLESS)], [vgpu("a", **OFF), vgpu("b", **HEADLESS)]]
    pairs.append([vgpu("a"), vgpu("b", **FORMER)])
    if not version.display_for_each_vgpu:
        pairs += [[vgpu("a"), vgpu("b")], [vgpu("a"), vgpu("b", virtualGPUOptions={})]]
    for has in pairs:
        assert not plan(machine(version, gpus=has), {FOUR_Q: 2}, restart=False).changed


@gpu_eras
def test_h6_several_boot_displays_are_repaired_and_other_options_kept(version):
    second = vgpu("b", virtualGPUOptions={"display": {"enabled": True}}, tag="x")
    planned = plan(
        machine(version, gpus=[vgpu("a", virtualGPUOptions={"display": {}}), second]), {FOUR_Q: 2}, restart=False
    )
    assert written(planned)["gpus"] == [vgpu("a", **SHOWN), {**second, **HEADLESS}]
    assert after(planned).displays == 1


def test_h6_up_to_kubevirt_1_2_two_gpus_without_options_have_two_boot_displays():
    has = [vgpu("a"), vgpu("b")]
    counts = [machine(version, gpus=has).displays for version in (OLDEST, OLD, HarvesterVersion((1, 4, 2)), MDEV)]
    assert counts == [2, 2, 1, 1]
    planned = plan(machine(OLD, gpus=has), {FOUR_Q: 2}, restart=False)
    assert written(planned)["gpus"] == [vgpu("a", **SHOWN), vgpu("b", **HEADLESS)]


@gpu_eras
def test_the_vgpu_that_has_the_display_keeps_it_when_others_come(version):
    has = [vgpu("a", **OFF), vgpu("b", **SHOWN)]
    planned = plan(machine(version, gpus=has), {FOUR_Q: 3}, restart=False)
    assert written(planned)["gpus"] == [*has, vgpu("vgpu-0", **HEADLESS)]
    passed_on = plan(machine(version, gpus=[vgpu("a", **OFF), vgpu("b", FOUR_A, **SHOWN)]), {FOUR_Q: 1}, restart=False)
    assert written(passed_on)["gpus"] == [vgpu("a", **SHOWN)]


@gpu_eras
def test_the_display_passes_on_when_the_vgpu_that_had_it_goes(version):
    has = [vgpu("a", EIGHT_Q, **SHOWN), vgpu("b", FOUR_Q, **HEADLESS)]
    planned = plan(machine(version, gpus=has), {FOUR_Q: 1}, restart=False)
    assert written(planned)["gpus"] == [vgpu("b", **SHOWN)]


@gpu_eras
def test_a_vm_that_has_no_display_by_choice_keeps_it_so(version):
    headless = vgpu("a", **HEADLESS)
    assert not plan(machine(version, gpus=[headless]), {FOUR_Q: 1}, restart=False).changed
    more = plan(machine(version, gpus=[headless]), {FOUR_Q: 2}, restart=False)
    assert written(more)["gpus"] == [headless, vgpu("vgpu-0", **HEADLESS)]


@eras
def test_whole_devices_are_left_alone(version):
    has = machine(version, host_devices=[WHOLE, WHOLE_GPU])
    assert not plan(has, {}, restart=False).changed
    planned = plan(has, {FOUR_Q: 1}, restart=False)
    assert [device for device in planned.devices["hostDevices"] if not has.type_of(device)] == [WHOLE, WHOLE_GPU]


@eras
def test_names_that_harvester_has_rewritten_are_no_difference(version):
    first = plan(machine(version), {FOUR_Q: 2}, restart=False)
    renamed = {
        name: [{**device, "name": f"gpu-a-00000800{index}"} for index, device in enumerate(devices)]
        for name, devices in first.devices.items()
    }
    again = machine(version, gpus=renamed["gpus"], host_devices=renamed["hostDevices"])
    assert not plan(again, {FOUR_Q: 2}, restart=False).changed


@eras
def test_what_is_too_much_goes_from_the_end_and_lists_that_get_empty_vanish(version):
    has = machine(version, **in_field(version, [vgpu("a"), vgpu("b")]))
    field = "hostDevices" if version.vendor_vfio else "gpus"
    assert [device["name"] for device in written(plan(has, {FOUR_Q: 1}, restart=False))[field]] == ["a"]
    assert written(plan(has, {}, restart=False)) == {field: None}


@eras
def test_two_of_the_same_name_are_told_apart(version):
    planned = plan(
        machine(version, **in_field(version, [vgpu("provisioned"), vgpu("provisioned")])), {FOUR_Q: 2}, restart=False
    )
    names = [device["name"] for devices in planned.devices.values() for device in devices]
    assert names == ["provisioned", "vgpu-0"]


def test_vgpus_in_the_field_of_the_other_era_are_moved():
    """A VM of 1.7 with two gpus cannot be updated on 1.8 in any other way (harvester.md 10.5)."""
    planned = plan(machine(VFIO, gpus=[vgpu("a"), vgpu("b")]), {FOUR_Q: 2}, restart=False)
    assert written(planned) == {"gpus": None, "hostDevices": [vgpu("a"), vgpu("b")]}


def test_the_upper_cased_resource_of_old_versions_is_the_same_profile():
    known = ProfileResolver(["NVIDIA RTX5000-Ada-2Q"])
    devices = [{"name": "a", "deviceName": "nvidia.com/NVIDIA_RTX5000-ADA-2Q"}]
    old = VmState(machine(HarvesterVersion((1, 4, 0)), gpus=devices).vm, None, HarvesterVersion((1, 4, 0)), known)
    assert old.vgpus == Counter({"NVIDIA RTX5000-Ada-2Q": 1})
    assert plan(machine(HarvesterVersion((1, 4, 0))), {FOUR_Q: 1}, restart=False).devices["gpus"][0][
        "deviceName"
    ] == resource(FOUR_Q)


counts = st.dictionaries(st.sampled_from([FOUR_Q, FOUR_A, EIGHT_Q]), st.integers(1, 3), max_size=3)
devices = st.lists(
    st.builds(
        lambda name, profile, options: vgpu(name, profile, **options),
        st.sampled_from("abc"),
        st.sampled_from([FOUR_Q, FOUR_A]),
        st.sampled_from([{}, SHOWN, HEADLESS, OFF, FORMER, {"virtualGPUOptions": {}}]),
    )
    | st.just(WHOLE),
    max_size=4,
)


@given(st.sampled_from([OLD, MDEV, VFIO, LATER]), devices, devices, counts)
def test_any_vm_gets_exactly_what_is_asked_for_and_a_second_plan_changes_nothing(version, gpus, host_devices, target):
    before = machine(version, gpus=gpus, host_devices=host_devices)
    planned = plan(before, target, restart=False)
    assert planned.vgpus == Counter(target)
    wrong_field = "gpus" if version.vendor_vfio else "hostDevices"
    assert all(before.type_of(device) is None for device in planned.devices[wrong_field])
    whole = [device for name in ("gpus", "hostDevices") for device in before.devices[name] if device == WHOLE]
    assert [one for name in ("gpus", "hostDevices") for one in planned.devices[name] if one == WHOLE] == whole
    names = [one["name"] for some in planned.devices.values() for one in some if before.type_of(one)]
    assert len(set(names)) == len(names)
    assert after(planned).displays <= 1
    assert not plan(after(planned), target, restart=False).changed


# Restarts
@eras
def test_a_running_vm_needs_a_restart_only_for_other_profiles(version):
    field = "hostDevices" if version.vendor_vfio else "gpus"
    same = machine(version, **in_field(version, [vgpu("renamed")]), runs_with={field: [vgpu("vgpu-0")]})
    assert not same.restart_required
    assert not plan(same, {FOUR_Q: 1}, restart=True).changed
    more = plan(same, {FOUR_Q: 2}, restart=False)
    assert more.restart_required
    assert plan(same, {FOUR_Q: 2}, restart=True).restart


def test_a_change_that_an_earlier_task_made_is_restarted_for():
    waiting = machine(VFIO, host_devices=[vgpu("a"), vgpu("b")], runs_with={"hostDevices": [vgpu("a")]})
    planned = plan(waiting, {FOUR_Q: 2}, restart=True)
    assert not planned.writes
    assert planned.restart
    assert planned.changed
    assert not planned.restart_required


def test_the_note_tells_what_a_running_vm_got():
    note = {"hostdevices": {resource(FOUR_Q): ["gpu-a-000008005", "gpu-a-000008004"], "intel.com/X": ["n"]}}
    runs = machine(VFIO, host_devices=[vgpu("a"), vgpu("b")], note=note, runs_with={"hostDevices": []})
    assert runs.allocated() == {FOUR_Q: ["gpu-a-000008004", "gpu-a-000008005"]}
    assert runs.noted


# Notes of stopped VMs
@eras
def test_a_stopped_vm_without_vgpus_loses_its_note(version):
    part = "hostdevices" if version.vendor_vfio else "gpus"
    stale = machine(version, note={part: {resource(FOUR_Q): ["gpu-a-000008004"]}})
    planned = plan(stale, {}, restart=False)
    assert planned.patch["metadata"]["annotations"] == {NOTE: None}
    assert "spec" not in planned.patch
    assert not plan(after(planned), {}, restart=False).changed


def test_devices_that_stay_in_the_spec_stay_in_the_note():
    note = {"hostdevices": {resource(FOUR_Q): ["gpu-a-000008004", "gpu-a-000008005"], "intel.com/X": ["n"]}}
    has = [vgpu("gpu-a-000008005"), vgpu("gpu-a-000008004"), {"name": "n", "deviceName": "intel.com/X"}]
    planned = plan(machine(VFIO, host_devices=has, note=note), {FOUR_Q: 1}, restart=False)
    assert json.loads(planned.note_text) == {
        "hostdevices": {resource(FOUR_Q): ["gpu-a-000008005"], "intel.com/X": ["n"]}
    }
    assert not plan(after(planned), {FOUR_Q: 1}, restart=False).changed


def test_a_note_that_is_right_is_not_rewritten():
    note = '{"hostdevices": {"nvidia.com/NVIDIA_A2-4Q": ["gpu-a-000008004"]}, "gpus": {}}'
    assert not plan(machine(VFIO, host_devices=[vgpu("other")], note=note), {FOUR_Q: 1}, restart=False).changed


def test_the_note_of_a_running_vm_is_harvesters_business():
    note = {"hostdevices": {resource(FOUR_Q): ["gpu-a-000008004"]}}
    runs = machine(VFIO, host_devices=[vgpu("a")], note=note, runs_with={"hostDevices": [vgpu("a")]})
    assert "annotations" not in plan(runs, {}, restart=False).patch["metadata"]


def test_from_1_9_on_harvester_keeps_notes_up_to_date_itself():
    stale = machine(LATER, note={"hostdevices": {resource(FOUR_Q): ["gpu-a-000008004"]}})
    assert not plan(stale, {}, restart=False).changed


@pytest.mark.parametrize("note", ["{", "[1]", '{"gpus": 3}'])
def test_a_note_that_is_none_is_removed_from_a_stopped_vm(note):
    broken = machine(VFIO, note=note)
    assert broken.note is None
    assert plan(broken, {}, restart=False).note_text is None


def test_u17_a_diff_names_the_vm_and_shows_its_restart_but_no_annotation_that_stays() -> None:
    """Harvester keeps the annotation of a running VM until the VM stops."""
    note = json.dumps({"hostdevices": {resource(FOUR_Q): ["gpu-a-000008004"]}})
    has = [vgpu("a")]
    running = machine(VFIO, host_devices=has, note=note, runs_with={"hostDevices": has})
    removed = plan(running, {}, restart=True)
    assert removed.note_text == note
    assert removed.diff == {
        "before_header": "VM default/vm",
        "after_header": "VM default/vm",
        "before": {"hostDevices": has, "restarted": False},
        "after": {"restarted": True},
    }
    kept = plan(running, {}, restart=False).diff
    assert (kept["before"], kept["after"]) == ({"hostDevices": has}, {})
