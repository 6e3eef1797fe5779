from __future__ import annotations

import threading

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import runner as module
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.runner import Refused, StepRunner, TimedOut
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.conditions import NodeAllocatable, SriovDisabled
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import AdmissionDenied
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import DISABLE, DISABLE_SRIOV, ENABLE, Step

from tests.unit.plugins.module_utils.harvester.objects import C4, Q4, claim, gpu, node, snapshot, vgpu

GPU, D4, D5 = "n1-000008000", "n1-000008004", "n1-000008005"


class Cluster:
    """Takes patches; a script says which events follow each of them."""

    fail_fast = False
    now = 0.0

    def __init__(self, reactions=None, refusing=()):
        self.patches = []
        self.dry = []
        self.reactions = reactions or {}
        self.refusing = refusing
        self.events = []

    def patch(self, path, body, *, dry_run=False):
        name = path.rsplit("/", 1)[-1]
        if name in self.refusing:
            raise AdmissionDenied(f"The cluster refused to patch {path}: device {name} is in use with VM v", status=500)
        (self.dry if dry_run else self.patches).append((name, body["spec"]))
        # The answer to a patch shows the status as it was before.
        before = None if body["spec"]["enabled"] else Q4
        asked = body["spec"].get("vGPUTypeName") or None
        answer = vgpu(int(name[-1]), asked=asked, configured=before, revision=len(self.patches) + 1)
        if not dry_run:
            self.events += self.reactions.get((name, body["spec"]["enabled"]), [])
        return answer

    def watch(self, path, revision, seconds, *, opened=lambda: None):
        opened()
        import time

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


def enable(slot, after=Q4):
    return Step(ENABLE, "n1", GPU, slot, after=after)


def disable(slot, before=Q4):
    return Step(DISABLE, "n1", GPU, slot, before=before)


def claimed(function, type_name=Q4, revision=50):
    found = claim(function, type_name)
    found["metadata"]["resourceVersion"] = str(revision)
    return found


def configured(function, type_name=Q4, revision=50):
    return [
        (r.VGPUS, "MODIFIED", vgpu(function, asked=type_name, configured=type_name, revision=revision)),
        (r.CLAIMS, "ADDED", claimed(function, type_name, revision)),
    ]


def counted(revision=60, **counts):
    found = node(**counts)
    found["metadata"]["resourceVersion"] = str(revision)
    return (r.NODES, "MODIFIED", found)


def run(cluster, steps, goals=(), *, wait=True, seconds=5, **things):
    return StepRunner(cluster, snapshot(**things), wait=wait, seconds=seconds).run(steps, goals)


def test_enabled_configured_and_counted():
    cluster = Cluster({(D4, True): [*configured(4), counted(q4=1)]})
    goals = [NodeAllocatable("n1", "nvidia.com/NVIDIA_A2-4Q", 1)]
    outcome = run(cluster, [enable(D4)], goals, vgpus=[vgpu()])
    assert cluster.patches == [(D4, {"enabled": True, "vGPUTypeName": Q4})]
    (only,) = outcome.snapshot.fleet.gpus
    assert [slot.state for slot in only.slots] == ["allocatable"]


def test_the_same_device_is_enabled_again_only_once_its_claim_is_gone_and_the_type_is_back():
    order = []
    cluster = Cluster()
    cluster.reactions = {
        (D4, False): [
            (r.VGPUS, "MODIFIED", vgpu(4, offered=(), revision=20)),
            (r.CLAIMS, "DELETED", claimed(4, revision=21)),
            (r.VGPUS, "MODIFIED", vgpu(4, revision=22)),
        ],
        (D4, True): configured(4, C4),
    }
    sent = cluster.patch

    def patch(path, body, **more):
        order.append((body["spec"]["enabled"], len(cluster.events)))
        return sent(path, body, **more)

    cluster.patch = patch
    steps = [disable(D4), enable(D4, C4)]
    run(cluster, steps, vgpus=[vgpu(asked=Q4, configured=Q4)], claims=[claim()])
    assert cluster.patches == [
        (D4, {"enabled": False, "vGPUTypeName": ""}),
        (D4, {"enabled": True, "vGPUTypeName": C4}),
    ]
    # Everything that followed the disable had been seen.
    assert order == [(False, 0), (True, 0)]


def test_a_disable_waits_for_the_name_of_a_type_that_is_half_configured():
    half = vgpu(asked=Q4, status={"vGPUStatus": "vGPUConfigured", "uuid": "a-b"})
    cluster = Cluster()
    cluster.events = [(r.VGPUS, "MODIFIED", vgpu(4, asked=Q4, configured=Q4, revision=5))]
    cluster.reactions = {(D4, False): [(r.VGPUS, "MODIFIED", vgpu(4, revision=20))]}
    taken = snapshot("1.7", vgpus=[half])
    StepRunner(cluster, taken, wait=True, seconds=5).run([disable(D4)], [])
    assert cluster.events == []
    assert len(cluster.patches) == 1


def test_a_denial_is_sent_once_and_stops_what_follows():
    cluster = Cluster(refusing=(D4,))
    with pytest.raises(Refused, match="in use with VM v") as caught:
        run(cluster, [disable(D4), enable(D5)], vgpus=[vgpu(asked=Q4, configured=Q4), vgpu(5)], claims=[claim()])
    assert cluster.patches == []
    assert not caught.value.changed
    assert "Detach" in caught.value.hint


def test_a_timeout_names_the_device_what_is_missing_and_that_something_was_changed(monkeypatch):
    monkeypatch.setattr(module.Diagnosis, "causes", lambda *_args: ["The moon is full"])
    with pytest.raises(TimedOut, match=f"vGPU {D4} on node n1: it is not configured as {Q4}") as caught:
        run(Cluster(), [enable(D4)], seconds=0.1, vgpus=[vgpu()])
    assert caught.value.changed
    assert caught.value.hint == (
        "Likely causes: The moon is full. Still changing: GPU n1-000008000 (3 of its 4 vGPU devices do not exist yet)."
        " Run the task again, or set a longer wait_timeout."
    )
    assert caught.value.as_dict()["waiting"][0]["device"] == D4


def test_a_count_that_stays_short_of_the_capacity_is_a_warning_after_a_while():
    things = {
        "vgpus": [vgpu(number, asked=Q4, configured=Q4) for number in (4, 5)],
        "claims": [claim(4), claim(5)],
        "nodes": [node(q4=1, capacity={"q4": 2})],
    }
    goals = [NodeAllocatable("n1", "nvidia.com/NVIDIA_A2-4Q", 2)]
    outcome = run(Cluster(), [], goals, seconds=1, **things)
    assert "lost count" in outcome.warnings[0]


def test_without_waiting_independent_steps_are_only_sent():
    cluster = Cluster()
    outcome = run(cluster, [enable(D4), enable(D5)], wait=False, vgpus=[vgpu(4), vgpu(5)])
    assert [name for name, _spec in cluster.patches] == [D4, D5]
    assert outcome.steps([enable(D4), enable(D5)]) == [enable(D4), enable(D5)]


def test_gpus_are_worked_on_side_by_side():
    both = threading.Barrier(2)
    cluster = Cluster()
    sent = cluster.patch

    def patch(path, body, **more):
        both.wait(timeout=120)
        return sent(path, body, **more)

    cluster.patch = patch
    elsewhere = Step(ENABLE, "n1", "n1-000009000", D5, after=Q4)
    run(cluster, [enable(D4), elsewhere], wait=False, vgpus=[vgpu(4), vgpu(5)])
    assert sorted(name for name, _spec in cluster.patches) == [D4, D5]


def test_a_rehearsal_tries_what_does_not_depend_on_other_steps():
    cluster = Cluster()
    taken = snapshot(vgpus=[vgpu(asked=Q4, configured=Q4), vgpu(5)], gpus=[gpu()])
    module.dry_run(cluster, taken, [disable(D4), enable(D5)])
    assert [name for name, _spec in cluster.dry] == [D4]
    module.dry_run(cluster, taken, [enable(D5)])
    assert [name for name, _spec in cluster.dry] == [D4, D5]
    assert cluster.patches == []


def test_a_gpu_that_was_switched_off_is_still_known_by_its_board():
    cluster = Cluster()
    off = gpu(enabled=False)
    off["metadata"]["resourceVersion"] = "9"
    gone = vgpu(4, revision=10)

    def patch(path, body, **_more):
        cluster.events = [(r.GPUS, "MODIFIED", off), (r.VGPUS, "DELETED", gone)]
        return {**gpu(enabled=False), "spec": {**gpu()["spec"], **body["spec"]}}

    cluster.patch = patch
    goals = [SriovDisabled(GPU, "n1", frozenset({D4}))]
    outcome = run(cluster, [Step(DISABLE_SRIOV, "n1", GPU)], goals, gpus=[gpu(functions=1)], vgpus=[vgpu(4)])
    (only,) = outcome.snapshot.fleet.gpus
    assert (only.boards, only.sharing, only.slots) == (("A2",), False, ())
