"""MIG configurations: the request that is sent, what is waited for, and what is undone when a cut fails."""

from __future__ import annotations

import time

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import InstanceSize
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import runner as module
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.runner import (
    MigOutOfSync,
    StepRunner,
    TimedOut,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.devices import DeviceRequest, plan_devices
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.mig import plan_mig, request_from
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.mig_conditions import (
    MigInstancesReady,
    MigInstancesRemoved,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.mig_configuration import enabling
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.findings import findings
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Policy

from tests.unit.plugins.module_utils.harvester.objects import gpu, snapshot, vgpu

GPU = "n1-000008000"
PROFILES = {"1g.5gb": 19, "2g.10gb": 14, "3g.20gb": 9, "4g.20gb": 5, "7g.40gb": 0}
A100 = {"metadata": {"name": GPU}, "status": {"deviceId": "20f1"}}


def configuration(enabled=False, requested=None, instances=None, status="", message="", revision=1, counted=True):
    entries = [{"name": f"MIG {name}", "id": number} for name, number in PROFILES.items()]
    spec = [{**entry, "requested": (requested or {}).get(entry["name"][4:], 0)} for entry in entries]
    counts = [
        {**entry, "vGPUID": [str(one) for one in range((instances or {}).get(entry["name"][4:], 0))]}
        for entry in entries
    ]
    found = {"status": status, "message": message, "profileStatus": counts if counted else []}
    return {
        "metadata": {"name": GPU, "resourceVersion": str(revision)},
        "spec": {"enabled": enabled, "profileSpec": spec},
        "status": found,
    }


def world(*configurations, version="1.9", sharing=True, skip=False, vgpus=()):
    card = gpu(enabled=sharing, functions=2)
    if skip:
        card["metadata"]["annotations"] = {r.SKIP_MIG_ANNOTATION: "true"}
    slots = list(vgpus) or ([vgpu(4, offered=()), vgpu(5, offered=())] if sharing else [])
    return snapshot(version, gpus=[card], mig=list(configurations), pci_devices=[A100], vgpus=slots)


def plan(taken, *instances, **options):
    given = {"gpus": [GPU], "nodes": None, "state": "enabled", "mode": "mig", "relayout": False, "enable_sriov": False}
    given["instances"] = [{"profile": name, "count": count} for name, count in instances] or None
    return plan_mig(taken.fleet, taken, request_from({**given, **options}))


def actions(planned):
    return [step.action for step in planned.steps]


def code(taken, *instances, **options):
    with pytest.raises(FleetError) as caught:
        plan(taken, *instances, **options)
    return caught.value.code


class Controller:
    """Answers a patch as the API does, then does what Harvester does; `fails` makes it stop half-way."""

    fail_fast = False
    now = 0.0

    def __init__(self, *, fails="", made=None):
        self.patches = []
        self.events = []
        self.fails = fails
        self.made = made
        self.revision = 10

    def patch(self, path, body, *, dry_run=False):
        self.patches.append(body["spec"])
        requested = {one["name"][4:]: one["requested"] for one in body["spec"].get("profileSpec", [])}
        answer = self._next(enabled=body["spec"]["enabled"], requested=requested, status="disabled")
        if not body["spec"]["enabled"]:
            answer["status"] = configuration(status="out-of-sync")["status"]
            self._tell(enabled=False, requested=requested, status="disabled")
        elif self.fails:
            self._tell(enabled=True, requested=requested, status="out-of-sync", message=self.fails)
        else:
            self._tell(enabled=True, requested=requested, instances=requested, status="synced")
        return answer

    def _next(self, **more):
        self.revision += 1
        return configuration(**more, revision=self.revision)

    def _tell(self, **more):
        self.events.append((r.MIG_CONFIGURATIONS, "MODIFIED", self._next(**more)))

    def watch(self, path, revision, seconds, *, opened=lambda: None):
        opened()
        while seconds > 0:
            for event in [one for one in self.events if one[0] == path]:
                self.events.remove(event)
                yield {"type": event[1], "object": event[2]}
            time.sleep(0.01)
            seconds -= 0.01

    def together(self, calls):
        return [call() for call in calls]

    def get(self, path, **_query):
        return {"items": []}


def test_the_largest_instances_are_asked_for_first_and_all_others_are_set_to_none():
    body = enabling(configuration(requested={"1g.5gb": 3}), {InstanceSize(2, 10): 2, InstanceSize(3, 20): 1})
    assert body["spec"]["enabled"]
    assert [(one["name"], one["id"], one["requested"]) for one in body["spec"]["profileSpec"]] == [
        ("MIG 7g.40gb", 0, 0),
        ("MIG 4g.20gb", 5, 0),
        ("MIG 3g.20gb", 9, 1),
        ("MIG 2g.10gb", 14, 2),
        ("MIG 1g.5gb", 19, 0),
    ]


def test_a_cut_that_fails_half_way_is_rolled_back_and_told_in_harvesters_words():
    taken = world(configuration(status="disabled"))
    controller = Controller(fails="failed creation for MIG 3g.20gb")
    planned = plan(taken, ("3g.20gb", 1))
    with pytest.raises(MigOutOfSync, match=r"failed creation for MIG 3g\.20gb") as caught:
        StepRunner(controller, taken, wait=True, seconds=5).run(planned.steps, planned.conditions)
    assert [spec["enabled"] for spec in controller.patches] == [True, False]
    assert caught.value.changed
    assert "It has no instances now" in caught.value.hint


def test_instances_are_removed_before_others_are_asked_for():
    taken = world(configuration(True, {"1g.5gb": 2}, {"1g.5gb": 2}, "synced"))
    controller = Controller()
    planned = plan(taken, ("3g.20gb", 1), relayout=True)
    StepRunner(controller, taken, wait=False, seconds=5).run(planned.steps, [])
    assert [spec["enabled"] for spec in controller.patches] == [False, True]


def test_types_that_never_come_are_a_timeout_that_names_the_instance(monkeypatch):
    monkeypatch.setattr(module.Diagnosis, "causes", lambda *_args: [])
    taken = world(configuration(status="disabled"))
    planned = plan(taken, ("3g.20gb", 1))
    with pytest.raises(TimedOut, match=f"GPU {GPU} on node n1: none of its vGPU devices offers what 3g.20gb serves"):
        StepRunner(Controller(), taken, wait=True, seconds=0.3).run(planned.steps, planned.conditions)


def test_a_configuration_that_was_disabled_before_it_had_instances_is_told_to_be_stuck():
    assert "switching SR-IOV off and on resets it" in MigInstancesRemoved(GPU, "n1").missing(
        world(configuration(status="out-of-sync"))
    )


def test_what_is_served_is_told_by_what_devices_offer_or_have():
    goal = MigInstancesReady(GPU, "n1", {InstanceSize(1, 5): 2})
    offers = vgpu(4, status={"availableTypes": {"GRID A100-1-5C": "474"}})
    has = vgpu(4, status={"vGPUStatus": r.CONFIGURED, "configureVGPUTypeName": "GRID A100-1-5C"})
    done = configuration(True, {"1g.5gb": 2}, {"1g.5gb": 2}, "synced")
    assert not goal.missing(world(done, vgpus=[offers]))
    assert not goal.missing(world(done, vgpus=[has]))
    assert "has 2 x 1g.5gb and not 1 x 1g.5gb" in MigInstancesReady(GPU, "n1", {InstanceSize(1, 5): 1}).missing(
        world(done)
    )


def test_the_mode_of_a_card_follows_its_version_and_its_mark():
    def mode(**more):
        (only,) = world(**more).fleet.gpus
        return only.mode

    assert mode(version="1.7", sharing=False) == "mig"
    assert mode(version="1.8", sharing=False, skip=True) == "mig"
    assert mode(version="1.9", sharing=False, skip=True) == "time_sliced"
    assert mode(version="1.9", sharing=False) == "mig"
    assert mode(version="1.4", sharing=False) == "time_sliced"
    offers = vgpu(4, status={"availableTypes": {"GRID A100-10C": "471"}})
    assert mode(version="1.9", vgpus=[offers]) == "time_sliced"


def test_steps_by_what_a_card_is_and_has():
    cut = ("3g.20gb", 1)
    synced = configuration(True, {"3g.20gb": 1}, {"3g.20gb": 1}, "synced")
    assert actions(plan(world(configuration()), cut)) == ["create_mig_instances"]
    assert actions(plan(world(synced), cut)) == []
    assert actions(plan(world(configuration(True, {"3g.20gb": 1})), cut)) == []
    assert actions(plan(world(sharing=False), cut, enable_sriov=True)) == ["enable_sriov", "create_mig_instances"]
    assert actions(plan(world(sharing=False, skip=True), cut, enable_sriov=True)) == [
        "set_mode",
        "enable_sriov",
        "create_mig_instances",
    ]
    assert actions(plan(world(synced), state="disabled")) == ["remove_mig_instances"]
    assert actions(plan(world(configuration(status="disabled")), state="disabled")) == []
    assert actions(plan(world(sharing=False), mode="time_sliced")) == ["set_mode"]
    assert actions(plan(world(sharing=False), mode="time_sliced", enable_sriov=True)) == ["set_mode", "enable_sriov"]
    assert actions(plan(world(sharing=False, skip=True), mode="time_sliced")) == []
    assert actions(plan(world(synced), mode="time_sliced", relayout=True)) == [
        "remove_mig_instances",
        "disable_sriov",
        "set_mode",
        "enable_sriov",
    ]
    assert actions(plan(world(version="1.4", sharing=False), mode="time_sliced")) == []
    assert code(world(version="1.4"), cut) == "mig_not_possible"
    assert code(world(synced), mode="time_sliced") == "needs_relayout"
    assert code(world(version="1.8", sharing=False), mode="time_sliced") == "mig_ignored"


@pytest.mark.parametrize(
    ("instances", "options", "told"),
    [
        ([("3g.20gb", -1)], {}, "invalid_layout"),
        ([], {}, "invalid_layout"),
        ([("3g.20gb", 0)], {}, "invalid_layout"),
        ([("3g.20gb", 1)], {"state": "disabled"}, "invalid_layout"),
        ([("3g.20gb", 1)], {"mode": "time_sliced"}, "invalid_layout"),
        ([("A30-1-6C", 1)], {}, "no_suitable_gpu"),
        ([("3g.20gb", 1)], {"gpus": ["nothing"]}, "nothing_selected"),
        ([("4g.20gb", 2)], {}, "mig_geometry"),
    ],
)
def test_what_makes_no_sense_is_refused(instances, options, told):
    assert code(world(configuration()), *instances, **options) == told


def test_a_claimed_card_is_not_switched_on():
    claim = {"metadata": {"name": GPU}, "spec": {}}
    taken = snapshot("1.9", gpus=[gpu(enabled=False)], pci_devices=[A100], claims=[claim])
    assert code(taken, ("3g.20gb", 1), enable_sriov=True) == "gpu_blocked"


def test_a_card_that_only_a_pattern_selects_may_be_of_another_board():
    other = gpu("n2", enabled=False)
    a2 = {"metadata": {"name": other["metadata"]["name"]}, "status": {"deviceId": "25b6"}}
    taken = snapshot(
        "1.9",
        gpus=[gpu(enabled=False), other],
        pci_devices=[A100, a2],
        nodes=[{"metadata": {"name": name}, "status": {}} for name in ("n1", "n2")],
    )
    planned = plan(taken, ("3g.20gb", 1), gpus=["n*"], enable_sriov=True)
    assert {step.gpu for step in planned.steps} == {GPU}
    assert code(taken, ("3g.20gb", 1), gpus=[GPU, a2["metadata"]["name"]], enable_sriov=True) == "no_suitable_gpu"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (configuration(True, {"3g.20gb": 1}, {}, "out-of-sync", "why"), "mig_out_of_sync"),
        (configuration(True, {}, {"3g.20gb": 1}, "synced"), "mig_differs"),
        (configuration(True, {"3g.20gb": 1}, {"3g.20gb": 1}, "synced"), None),
        (configuration(), None),
    ],
)
def test_findings_tell_of_instances_that_are_not_those_asked_for(found, kind):
    taken = world(found)
    kinds = [one.kind for one in findings(taken, taken.fleet) if one.kind.startswith("mig")]
    assert kinds == ([kind] if kind else [])


def on_device(taken, *profiles, **policy):
    requests = [DeviceRequest(f"n1-00000800{number}", name) for number, name in enumerate(profiles, 4)]
    return [str(step) for step in plan_devices(taken.fleet, requests, Policy(**policy)).steps]


def test_a_named_device_gets_its_instance_beside_those_there_are():
    has = world(configuration(True, {"3g.20gb": 1}, {"3g.20gb": 1}, "synced"))
    assert on_device(has, "A100-1-5C", "A100-3-20C", enable_mig=True)[0] == (
        f"cut GPU {GPU} into 1 x 3g.20gb, 1 x 1g.5gb"
    )
    with pytest.raises(FleetError, match=r"relayout: true and instances: 1 x 3g\.20gb, 1 x 1g\.5gb") as caught:
        on_device(has, "A100-1-5C")
    assert caught.value.code == "does_not_fit"
    with pytest.raises(FleetError, match="with reprofile: true unused ones may be removed"):
        on_device(has, "A100-7-40C", enable_mig=True)
    assert on_device(has, "A100-7-40C", enable_mig=True, reprofile=True)[0] == f"cut GPU {GPU} into 1 x 7g.40gb"
    with pytest.raises(FleetError, match="is in MIG mode"):
        on_device(has, "A100-10C", enable_mig=True)


def test_a_named_device_that_is_served_already_needs_no_cut():
    has = configuration(True, {"3g.20gb": 2}, {"3g.20gb": 2}, "synced")
    offers = [vgpu(number, status={"availableTypes": {"GRID A100-3-20C": "476"}}) for number in (4, 5)]
    assert on_device(world(has, vgpus=offers), "A100-3-20C", enable_mig=True) == [
        f"enable GRID A100-3-20C on n1-000008004 of GPU {GPU}"
    ]


def test_what_a_device_of_a_card_out_of_sync_offers_is_taken_for_granted():
    stale = configuration(True, {"3g.20gb": 1}, {}, "out-of-sync")
    offers = vgpu(4, status={"availableTypes": {"GRID A100-3-20C": "476"}})
    assert on_device(world(stale, vgpus=[offers]), "A100-3-20C") == [
        f"enable GRID A100-3-20C on n1-000008004 of GPU {GPU}"
    ]
