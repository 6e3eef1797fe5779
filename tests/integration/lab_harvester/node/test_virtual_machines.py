"""VMs that run: a real KubeVirt and scheduler, and what Harvester adds to them (harvester.md 12.3, 12.4 and 12.7).

KubeVirt works in real time. So this lab's clock runs too, fifty times as fast, and the tests wait for what they expect.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.api import PODS, VGPUS, VM_ACTIONS, VMIS, VMS
from tests.integration.lab_harvester.beginnings import FROM_1_8_ON, UP_TO_1_7, four_vgpus
from tests.integration.lab_harvester.machines import A2_4A, A2_4Q, ALLOCATION, device, devices_of, machine, note_for

Json = dict[str, Any]


def with_devices(lab, name, *devices, **options):
    """A VM with these devices, where its era keeps them."""
    return machine(name, **{"host_devices" if lab.vfio else "gpus": devices}, **options)


def device_field(lab):
    return "hostDevices" if lab.vfio else "gpus"


def launchers(lab, name):
    return lab.items(PODS, labelSelector=f"vm.kubevirt.io/name={name}")


def phase(lab, name):
    return ((lab.find(f"{VMIS}/{name}") or {}).get("status") or {}).get("phase")


def conditions(thing):
    return {condition["type"]: condition for condition in (thing.get("status") or {}).get("conditions") or []}


def note(vm):
    text = (vm["metadata"].get("annotations") or {}).get(ALLOCATION)
    return json.loads(text) if text else None


def runs(lab, name):
    return phase(lab, name) == "Running" and lab.read(f"{VMS}/{name}")["status"].get("printableStatus") == "Running"


def is_stopped(lab, name):
    return lab.find(f"{VMIS}/{name}") is None and not launchers(lab, name)


def remove(lab, name):
    lab.api.delete(f"{VMS}/{name}")
    lab.until(lambda: lab.find(f"{VMS}/{name}") is None and is_stopped(lab, name))


@contextmanager
def existing(lab, body):
    lab.make(VMS, body)
    try:
        yield
    finally:
        remove(lab, body["metadata"]["name"])


@dataclass(frozen=True)
class Life:
    """A VM with a 4Q that it calls `wish`: while it runs, stopped, and running again."""

    running: Json
    instance: Json
    launcher: Json
    allocatable: Json
    disabling: Any
    starting_twice: Any
    stopped: Json
    stopping_twice: Any
    started: Json
    restarted: Json


def a_vm_lives(lab):
    four_vgpus(lab)
    lab.make(VMS, with_devices(lab, "guest", device("wish"), run=True))
    lab.until(lambda: runs(lab, "guest") and note(lab.read(f"{VMS}/guest")))
    running, instance, launcher = lab.read(f"{VMS}/guest"), lab.read(f"{VMIS}/guest"), launchers(lab, "guest")[0]
    allocatable = {node: lab.amounts(node) for node in ("gpu-a", "gpu-b")}
    ((names,),) = (kind.values() for kind in note(running).values())
    disabling = lab.api.patch(f"{VGPUS}/{names[0]}", {"spec": {"enabled": False}}, dryRun="All")
    starting_twice = lab.api.action(f"{VM_ACTIONS}/guest/start")

    assert lab.api.action(f"{VM_ACTIONS}/guest/stop").status == 202
    lab.until(lambda: is_stopped(lab, "guest"))
    stopped, stopping_twice = lab.read(f"{VMS}/guest"), lab.api.action(f"{VM_ACTIONS}/guest/stop")

    assert lab.api.action(f"{VM_ACTIONS}/guest/start").status == 202
    lab.until(lambda: runs(lab, "guest"))
    started = lab.read(f"{VMIS}/guest")
    assert lab.api.action(f"{VM_ACTIONS}/guest/restart").status == 202
    lab.until(lambda: runs(lab, "guest") and lab.read(f"{VMIS}/guest")["metadata"]["uid"] != started["metadata"]["uid"])
    restarted = lab.read(f"{VMIS}/guest")
    remove(lab, "guest")
    return Life(
        running,
        instance,
        launcher,
        allocatable,
        disabling,
        starting_twice,
        stopped,
        stopping_twice,
        started,
        restarted,
    )


def version_of(era):
    return "1.8" if era == "vfio" else "1.7"


@pytest.fixture
def vm_life(labs, era):
    return labs("vm").begin(version=version_of(era), arranged=a_vm_lives)


@pytest.fixture
def vm_lab(labs, era):
    """Two 4Q on gpu-a, one 4Q and one 4A on gpu-b: that is also how the life of a VM ends."""
    return labs("vm").begin(version=version_of(era), arranged=a_vm_lives)


class TestRunning:
    def test_fact_12_12_its_launcher_asks_for_the_resource_and_was_bound_where_there_is_one(self, vm_life):
        life = vm_life.story
        (limits,) = [c["resources"]["limits"] for c in life.launcher["spec"]["containers"] if c["name"] == "compute"]
        assert limits[A2_4Q] == "1"
        assert life.launcher["spec"]["nodeName"] == life.instance["status"]["nodeName"]
        assert life.launcher["spec"]["nodeName"] in ("gpu-a", "gpu-b")

    def test_fact_6_4_harvester_notes_which_device_it_got_under_the_key_of_the_era(self, vm_life):
        found = note(vm_life.story.running)
        key = "hostdevices" if vm_life.vfio else "gpus"
        assert list(found) == [key]
        assert list(found[key]) == [A2_4Q]
        (name,) = found[key][A2_4Q]
        assert name.startswith(vm_life.story.launcher["spec"]["nodeName"])
        assert vm_life.vgpu(name)["status"]["configureVGPUTypeName"] == "NVIDIA A2-4Q"

    def test_fact_6_3_the_name_in_the_spec_is_only_a_wish(self, vm_life):
        (wished,) = devices_of(vm_life.story.running)[device_field(vm_life)]
        assert wished["name"] == "wish"
        assert "wish" not in json.dumps(note(vm_life.story.running))

    def test_fact_12_10_use_does_not_lower_what_is_allocatable(self, vm_life):
        assert vm_life.story.allocatable == {"gpu-a": {A2_4Q: 2}, "gpu-b": {A2_4Q: 1, A2_4A: 1}}

    def test_rule_1_its_device_cannot_be_disabled(self, vm_life):
        answer = vm_life.story.disabling
        assert answer.status == 500
        assert "is in use with VM guest in namespace default" in answer.message

    def test_fact_4_3_a_vm_with_a_device_cannot_migrate(self, vm_life):
        assert conditions(vm_life.story.instance)["LiveMigratable"]["status"] == "False"

    def test_fact_8_2a_3_a_running_guest_has_an_interface_with_an_address(self, vm_life):
        (interface,) = vm_life.story.instance["status"]["interfaces"]
        assert interface["ipAddress"]


class TestPower:
    def test_starting_what_runs_is_a_conflict(self, vm_life):
        answer = vm_life.story.starting_twice
        assert answer.status == 409
        assert "VM is already running" in str(answer.body)

    def test_fact_6_4_at_the_stop_the_wish_becomes_the_name_of_the_device(self, vm_life):
        life = vm_life.story
        ((names,),) = (kind.values() for kind in note(life.running).values())
        assert [one["name"] for one in devices_of(life.stopped)[device_field(vm_life)]] == names
        assert life.stopped["metadata"]["generation"] > life.running["metadata"]["generation"]

    def test_fact_4_2_up_to_1_8_the_note_outlives_the_stop(self, vm_life):
        assert note(vm_life.story.stopped) == note(vm_life.story.running)

    def test_stopping_what_is_stopped_is_a_conflict(self, vm_life):
        answer = vm_life.story.stopping_twice
        assert answer.status == 409
        assert "VM is not running" in str(answer.body)

    def test_start_and_restart_give_new_instances(self, vm_life):
        life = vm_life.story
        uids = {thing["metadata"]["uid"] for thing in (life.instance, life.started, life.restarted)}
        assert len(uids) == 3


class TestScheduling:
    def test_fact_12_12_nothing_free_is_told_by_the_scheduler_and_ends_when_something_is(self, vm_lab):
        lab = vm_lab
        second = with_devices(lab, "second", device("d", A2_4A), run=True)
        with existing(lab, with_devices(lab, "first", device("d", A2_4A), run=True)):
            lab.until(lambda: runs(lab, "first"))
            lab.make(VMS, second)
            lab.until(
                lambda: lab.read(f"{VMS}/second").get("status", {}).get("printableStatus") == "ErrorUnschedulable"
            )
            (pod,) = launchers(lab, "second")
            assert pod["status"]["phase"] == "Pending"
            assert f"Insufficient {A2_4A}" in conditions(pod)["PodScheduled"]["message"]
        lab.until(lambda: runs(lab, "second"))
        remove(lab, "second")

    def test_fact_6_5_two_devices_come_from_one_node_and_are_both_noted(self, vm_lab):
        lab = vm_lab
        with existing(lab, with_devices(lab, "pair", device("one"), device("two"), run=True)):
            vm = lab.until(lambda: runs(lab, "pair") and note(lab.read(f"{VMS}/pair")) and lab.read(f"{VMS}/pair"))
            assert lab.read(f"{VMIS}/pair")["status"]["nodeName"] == "gpu-a"
            expected = note_for("gpu-a-000008004", "gpu-a-000008005", vfio=lab.vfio)
            found = {key: {r: sorted(names) for r, names in kind.items()} for key, kind in note(vm).items()}
            assert found == expected

    def test_fact_6_4_a_vm_that_runs_without_devices_loses_its_note(self, vm_lab):
        lab = vm_lab
        stale = note_for("gpu-a-000008004", vfio=lab.vfio)
        with existing(lab, machine("plain", note=stale, run=True)):
            lab.until(lambda: runs(lab, "plain") and note(lab.read(f"{VMS}/plain")) is None)

    @UP_TO_1_7
    def test_h6_from_kubevirt_1_3_on_two_boot_displays_are_refused_and_two_vgpus_without_options_start(self, vm_lab):
        asked = {"virtualGPUOptions": {"display": {}}}
        pair = [device("one", **asked), device("two", **asked)]
        answer = vm_lab.api.post(VMS, machine("pair", gpus=pair), dryRun="All")
        assert answer.status == 422
        assert "configuring multiple displays with ramfb is not valid" in answer.message
        with existing(vm_lab, machine("pair", gpus=[device("one"), device("two")], run=True)):
            vm_lab.until(lambda: runs(vm_lab, "pair"))

    @FROM_1_8_ON
    def test_a_device_that_is_not_permitted_is_admitted_and_never_starts(self, vm_lab):
        """Harvester lets a whole GPU pass by its generic name (harvester.md 10.6); KubeVirt does not."""
        lab = vm_lab
        body = machine("whole", host_devices=[device("gpu-a-000008000", "nvidia.com/GA107GL_A2___A16")], run=True)
        with existing(lab, body):
            failed = lab.until(lambda: conditions(lab.find(f"{VMIS}/whole") or {}).get("Synchronized"))
            assert (failed["status"], failed["reason"]) == ("False", "FailedCreate")
            assert "is not permitted in permittedHostDevices configuration" in failed["message"]
            assert launchers(lab, "whole") == []


def test_h6_up_to_kubevirt_1_2_two_vgpus_without_options_keep_a_vm_from_starting(labs):
    """Each of them gets a boot display. With one that says so, as harvester_vgpu_vm writes it, the VM starts."""
    lab = labs("vm").begin(version="1.4.1", arranged=four_vgpus)
    with existing(lab, machine("pair", gpus=[device("one"), device("two")], run=True)):
        failed = lab.until(lambda: conditions(lab.find(f"{VMIS}/pair") or {}).get("Synchronized"))
        assert failed["status"] == "False"
        assert "Only one vgpu device can have 'ramfb' enabled" in failed["message"]
        assert phase(lab, "pair") == "Scheduled"
    first, second = ({"display": {"enabled": True, "ramFB": {"enabled": shown}}} for shown in (True, False))
    gpus = [device("one", virtualGPUOptions=first), device("two", virtualGPUOptions=second)]
    with existing(lab, machine("pair", gpus=gpus, run=True)):
        lab.until(lambda: runs(lab, "pair"))
