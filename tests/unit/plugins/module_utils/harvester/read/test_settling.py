"""Which GPUs are still changing, and when a task waits for them (issue 14, section 4)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import cluster as clusters, settled_plan
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.in_use import DeviceInUse
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.layout import VgpuRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read import settling
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.settling import unsettled, wait_until_settled
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.settled_plan import plan_when_settled
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit

from tests.unit.plugins.module_utils.harvester.objects import C4, Q4, Q8, claim, gpu, snapshot, vgpu

GPU = "n1-000008000"
NOON = 1767268800.0  # 2026-01-01T12:00:00Z
# By which a GPU is known while none of its devices shows a type.
A2 = {"pci_devices": [{"metadata": {"name": GPU}, "status": {"deviceId": "25b6"}}]}
EMPTY = [vgpu(number) for number in (4, 5, 6, 7)]
BESIDE_4Q = (Q4, C4)


def reason(version="1.8", now=NOON, **things):
    found = unsettled(snapshot(version, **things), [GPU], now)
    return found[0].reason if found else ""


def stamped(item, seconds_ago):
    minutes, seconds = divmod(int(43200 - seconds_ago), 60)
    hours, minutes = divmod(minutes, 60)
    stamp = f"2026-01-01T{hours:02}:{minutes:02}:{seconds:02}Z"
    return {**item, "metadata": {**item["metadata"], "managedFields": [{"manager": "pcidevices", "time": stamp}]}}


def full(type_name, others=()):
    """Four 4Q or two 8Q, and two devices beside them."""
    count = {Q4: 4, Q8: 2}[type_name]
    taken = [vgpu(4 + number, asked=type_name, configured=type_name) for number in range(count)]
    return [*taken, *(vgpu(4 + count + number, offered=others) for number in range(2))]


SETTLED = {
    "nothing enabled": {"vgpus": EMPTY},
    "one 4Q": {"vgpus": [vgpu(4, asked=Q4, configured=Q4), *(vgpu(n, offered=BESIDE_4Q) for n in (5, 6, 7))]},
    "full": {"vgpus": full(Q4), "gpus": [gpu(functions=6)]},
    "drifted": {"vgpus": [vgpu(4, asked=C4, configured=Q4), *(vgpu(n, offered=BESIDE_4Q) for n in (5, 6, 7))]},
    "off": {"gpus": [gpu(enabled=False)]},
}
CHANGING = {
    "refreshed one by one": ([vgpu(4), vgpu(5), vgpu(6, offered=()), vgpu(7, offered=())], "do not all offer the same"),
    "not refreshed at all": ([vgpu(n, offered=()) for n in (4, 5, 6, 7)], "do not offer any types"),
    "types of what is gone": ([vgpu(n, offered=BESIDE_4Q) for n in (4, 5, 6, 7)], "what fits beside"),
    "one of two is gone": (
        [vgpu(4, asked=Q4, configured=Q4), *(vgpu(n, offered=()) for n in (5, 6, 7))],
        "what fits beside",
    ),
    "full and still offering": (full(Q4, BESIDE_4Q), "what fits beside"),
    "other sizes beside a new one": (
        [vgpu(4, asked=Q4, configured=Q4), *(vgpu(n) for n in (5, 6, 7))],
        "what fits beside",
    ),
    "being enabled": ([vgpu(4, asked=Q4), *EMPTY[1:]], "being enabled: n1-000008004"),
    "being disabled": ([vgpu(4, configured=Q4), *EMPTY[1:]], "being disabled: n1-000008004"),
    "devices missing": (EMPTY[:1], "vGPU devices do not exist yet"),
}


@pytest.mark.parametrize("name", SETTLED)
def test_a_gpu_at_rest_is_settled(name):
    assert reason(**SETTLED[name]) == ""


@pytest.mark.parametrize("name", CHANGING)
def test_a_gpu_whose_devices_contradict_each_other_is_not(name):
    vgpus, said = CHANGING[name]
    functions = max(4, len(vgpus))
    assert said in reason(vgpus=vgpus, gpus=[gpu(functions=functions)])


def test_claims_on_their_way_out_and_sriov_on_its_way_up_or_down():
    assert "claims of disabled vGPUs" in reason(vgpus=EMPTY, claims=[claim(5, going=True)])
    starting = gpu()
    starting["status"] = {}
    assert reason(gpus=[starting]) == "SR-IOV is being enabled"
    assert reason(gpus=[gpu(enabled=False)], vgpus=EMPTY) == "SR-IOV is being disabled"


def test_up_to_1_7_a_status_without_the_name_of_the_type_is_half_filled():
    half = vgpu(4, asked=Q4, status={"vGPUStatus": "vGPUConfigured", "uuid": "a-b"})
    rest = [vgpu(n, offered=BESIDE_4Q) for n in (5, 6, 7)]
    assert "being enabled" in reason("1.7", vgpus=[half, *rest])
    assert reason("1.8", vgpus=[half, *rest], claims=[claim(4)]) == ""


@pytest.mark.parametrize(("seconds_ago", "moving"), [(3, True), (59, True), (3600, False)])
def test_what_last_changed_long_ago_is_stuck_and_not_on_its_way(seconds_ago, moving):
    things = [stamped(item, seconds_ago) for item in CHANGING["refreshed one by one"][0]]
    (found,) = unsettled(snapshot(vgpus=things), [GPU], NOON)
    assert found.moving is moving


# Waiting


class Course:
    """A cluster that looks different each time it is looked at, with a clock that only moves on sleep."""

    def __init__(self, monkeypatch, *snapshots):
        self.snapshots = list(snapshots)
        self.looks = 0
        self.clock = 0.0
        monkeypatch.setattr(settling, "time", SimpleNamespace(monotonic=lambda: self.clock, sleep=self._sleep))

    def _sleep(self, seconds):
        self.clock += seconds

    def __call__(self):
        self.looks += 1
        return self.snapshots[min(self.looks, len(self.snapshots)) - 1]


def revised(things, revision):
    return [{**item, "metadata": {**item["metadata"], "resourceVersion": str(revision)}} for item in things]


def wait(course, seconds=300):
    return wait_until_settled(course, lambda found: unsettled(found, [GPU], NOON), seconds=seconds, pause=1)


def test_a_wait_goes_on_as_long_as_something_moves(monkeypatch):
    going = (snapshot(vgpus=revised([vgpu(4), vgpu(5, offered=())], number)) for number in range(40))
    course = Course(monkeypatch, *(replace(one, gpus=snapshot(gpus=[gpu(functions=2)]).gpus) for one in going),
                    snapshot(vgpus=[vgpu(4), vgpu(5)], gpus=[gpu(functions=2)]))  # fmt: skip
    result = wait(course)
    assert (result.verdict, result.seconds) == (settling.SETTLED, 40)


def test_a_wait_ends_when_nothing_moves_any_more(monkeypatch):
    course = Course(monkeypatch, snapshot(vgpus=CHANGING["being enabled"][0]))
    result = wait(course)
    assert result.verdict == settling.STUCK
    assert settling.WORK.silence < result.seconds < settling.WORK.silence + 3


def test_a_wait_ends_with_the_time(monkeypatch):
    lists = [snapshot(vgpus=revised(CHANGING["being enabled"][0], number)) for number in range(99)]
    assert wait(Course(monkeypatch, *lists), seconds=9).verdict == settling.LATE


# Planning


class Planning:
    """A cluster of which each reading is the next snapshot."""

    def __init__(self, monkeypatch, *snapshots):
        self.readings = itertools.chain(snapshots, itertools.repeat(snapshots[-1]))
        self.read = 0
        self.waits = []
        monkeypatch.setattr(clusters.snapshots, "read", lambda *_args: self.next())
        monkeypatch.setattr(settled_plan, "_settle", self.settle)
        self.verdict = settling.SETTLED

    def next(self):
        self.read += 1
        return next(self.readings)

    def settle(self, _cluster, moving, **_more):
        self.waits.append([one.gpu for one in moving])
        return settling.Settling(self.verdict, tuple(moving), 12.0)

    def plan(self, count=2, profile=Q4, *, check_mode=False, seconds=300):
        request = VgpuRequest(demands=(Demand(profile, count),))
        cluster = Cluster(SimpleNamespace(now=NOON), self.next())
        return plan_when_settled(
            cluster,
            lambda one: request.plan(one.fleet_for_planning),
            concerned=lambda one: request.selected(one.snapshot.fleet),
            touched=lambda plan: plan.touched,
            check_mode=check_mode,
            seconds=seconds,
        )


FRESH = snapshot(vgpus=[stamped(one, 2) for one in CHANGING["not refreshed at all"][0]], **A2)
READY = snapshot(vgpus=EMPTY)


def test_a_refusal_on_a_gpu_that_has_just_been_cleared_is_not_given_before_it_has_settled(monkeypatch):
    planning = Planning(monkeypatch, FRESH, READY)
    planned = planning.plan()
    assert len(planned.plan.steps) == 2
    assert planning.waits == [[GPU]]
    assert planned.seconds == 288
    assert planned.unsettled == ()


def test_a_settled_fleet_is_read_once_whether_it_fits_or_not(monkeypatch):
    planning = Planning(monkeypatch, READY)
    assert planning.plan().seconds == 300
    with pytest.raises(DoesNotFit) as caught:
        planning.plan(count=9)
    assert caught.value.exhaustive
    assert (planning.waits, planning.read) == ([], 2)


def test_a_task_that_has_what_it_asks_for_waits_for_nobody(monkeypatch):
    there = [vgpu(4, asked=Q4), vgpu(5, asked=Q4, configured=Q4), *(vgpu(n, offered=()) for n in (6, 7))]
    planning = Planning(monkeypatch, snapshot(vgpus=there))
    assert planning.plan().plan.steps == ()
    assert planning.waits == []


def test_in_check_mode_the_answer_says_that_it_is_not_final(monkeypatch):
    planning = Planning(monkeypatch, FRESH)
    with pytest.raises(DoesNotFit) as caught:
        planning.plan(check_mode=True)
    error = caught.value
    assert f"GPU {GPU} (its vGPU devices do not offer any types yet) is still changing" in error.hint
    assert "not final" in error.hint
    assert "No single change" not in str(error)
    assert not error.exhaustive
    assert error.as_dict()["unsettled"][0]["gpu"] == GPU
    assert planning.waits == []
    halfway = snapshot(vgpus=[stamped(one, 2) for one in CHANGING["refreshed one by one"][0]])
    planned = Planning(monkeypatch, halfway).plan(count=1, check_mode=True)
    assert "not final" in planned.warnings[0]
    assert planned.unsettled[0].moving


def test_a_gpu_that_is_stuck_is_waited_for_once_and_named_as_such(monkeypatch):
    planning = Planning(monkeypatch, FRESH)
    planning.verdict = settling.STUCK
    with pytest.raises(DoesNotFit) as caught:
        planning.plan()
    assert planning.waits == [[GPU]]
    assert "is stuck: nothing there has changed for a while" in caught.value.hint
    assert "No single change would make it fit." in caught.value.hint
    assert not caught.value.as_dict()["unsettled"][0]["moving"]


def test_a_gpu_that_has_been_stuck_for_long_is_not_waited_for(monkeypatch):
    old = snapshot(vgpus=[stamped(one, 7200) for one in CHANGING["not refreshed at all"][0]], **A2)
    planning = Planning(monkeypatch, old)
    with pytest.raises(DoesNotFit, match="is stuck"):
        planning.plan()
    assert planning.waits == []


def test_a_gpu_that_never_settles_takes_no_longer_than_the_time(monkeypatch):
    planning = Planning(monkeypatch, FRESH)
    planning.verdict = settling.LATE
    with pytest.raises(DoesNotFit, match="still changing after 30 s"):
        planning.plan(seconds=30)
    assert len(planning.waits) == 3


def test_a_refusal_that_has_nothing_to_do_with_it_is_given_at_once(monkeypatch):
    planning = Planning(monkeypatch, FRESH)

    def refuse(_cluster):
        raise DeviceInUse([], "change vGPUs")

    with pytest.raises(FleetError):
        plan_when_settled(
            Cluster(SimpleNamespace(now=NOON), FRESH),
            refuse,
            concerned=lambda _one: [GPU],
            check_mode=False,
            seconds=300,
        )
    assert planning.waits == []


@pytest.mark.parametrize("name", CHANGING)
def test_no_refusal_ends_in_the_middle_of_a_sentence(monkeypatch, name):
    """Once it said of an empty GPU: all its virtual functions are taken, by)."""
    vgpus, _said = CHANGING[name]
    planning = Planning(monkeypatch, snapshot(vgpus=vgpus, gpus=[gpu(functions=max(4, len(vgpus)))], **A2))
    for profile in (Q4, Q8):
        with pytest.raises(DoesNotFit) as caught:
            planning.plan(count=16, profile=profile, check_mode=True)
        for shortfall in caught.value.shortfalls:
            for one in shortfall.reasons:
                assert not one.detail.endswith((" by", " has", ",", " with"))
                assert "taken" not in one.detail or " x " in one.detail
