"""C1: what somebody else writes to the devices of a task ends it at once. P2: watches come before writes."""

from __future__ import annotations

import time

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import runner as module
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.foreign_writes import ChangedByOther
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.runner import StepRunner
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import Conflict, ConnectionBroken, Forbidden
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import ENABLE, Step

from tests.unit.plugins.module_utils.harvester.apply.test_runner import Cluster, configured, disable, enable
from tests.unit.plugins.module_utils.harvester.objects import C4, Q4, Q8, gpu, snapshot, vgpu

GPU, D4, D5 = "n1-000008000", "n1-000008004", "n1-000008005"
WHEN = "2026-01-02T03:04:05Z"


def by(manager, item, *, subresource=""):
    """The object, with the name of the field manager that decided its spec."""
    fields = {"f:status": {}} if subresource else {"f:spec": {"f:enabled": {}, "f:vGPUTypeName": {}}}
    entry = {"manager": manager, "operation": "Update", "time": WHEN, "fieldsV1": fields, "subresource": subresource}
    item["metadata"]["managedFields"] = [*item["metadata"].get("managedFields", []), entry]
    return item


def run(cluster, steps, *, seconds=30, **things):
    began = time.monotonic()
    try:
        return StepRunner(cluster, snapshot(**things), wait=True, seconds=seconds).run(steps, [])
    finally:
        assert time.monotonic() - began < seconds / 2


@pytest.mark.parametrize(("other", "value"), [(Q8, f"enabled ({Q8})"), (None, "disabled")])
def test_c1_a_vgpu_that_somebody_else_sets_while_the_task_waits_ends_the_wait_and_names_who_and_when(other, value):
    foreign = by("harvester-ui", vgpu(4, asked=other, revision=30))
    by("pcidevices", foreign, subresource="status")
    cluster = Cluster({(D4, True): [(r.VGPUS, "MODIFIED", foreign)]})
    with pytest.raises(ChangedByOther) as caught:
        run(cluster, [enable(D4)], vgpus=[vgpu()])
    error = caught.value
    assert f"vGPU {D4} was set to {value} by harvester-ui at {WHEN}" in error.message
    assert f"needs it to be enabled ({Q4})" in error.message
    assert error.changed
    assert error.as_dict()["code"] == "changed_by_other"
    assert error.as_dict()["manager"] == "harvester-ui"


def test_c1_status_writes_of_the_controller_do_not_count():
    busy = [(r.VGPUS, "MODIFIED", vgpu(4, asked=Q4, offered=(), revision=number)) for number in range(20, 25)]
    cluster = Cluster({(D4, True): [*busy, *configured(4)]})
    assert run(cluster, [enable(D4)], vgpus=[vgpu()]).done == [enable(D4)]


def test_c1_a_gpu_that_somebody_switches_off_meanwhile_is_named():
    off = gpu(enabled=False)
    off["metadata"]["resourceVersion"] = "30"
    cluster = Cluster({(D4, True): [(r.GPUS, "MODIFIED", off)]})
    with pytest.raises(ChangedByOther, match=f"GPU {GPU} was set to disabled by somebody else"):
        run(cluster, [enable(D4)], vgpus=[vgpu()])


def test_c1_a_vgpu_of_another_size_on_the_same_gpu_ends_the_task_and_one_of_the_same_size_does_not():
    beside = {size: vgpu(5, asked=size, revision=30) for size in (C4, Q8)}
    cluster = Cluster({(D4, True): [(r.VGPUS, "MODIFIED", beside[C4]), *configured(4)]})
    assert run(cluster, [enable(D4)], vgpus=[vgpu(4), vgpu(5)]).done == [enable(D4)]
    cluster = Cluster({(D4, True): [(r.VGPUS, "MODIFIED", beside[Q8])]})
    with pytest.raises(ChangedByOther, match=f"vGPU {D5} was set to enabled \\({Q8}\\)"):
        run(cluster, [enable(D4)], vgpus=[vgpu(4), vgpu(5)])


class Contested(Cluster):
    """Answers the first writes with a conflict, and shows what it has to whoever reads again."""

    def __init__(self, conflicts, now, reactions=None):
        super().__init__(reactions)
        self.conflicts = conflicts
        self.now = now
        self.revisions = []
        self.after_conflict = []

    def patch(self, path, body, *, dry_run=False):
        self.revisions.append(body["metadata"]["resourceVersion"])
        if self.conflicts:
            self.conflicts -= 1
            self.events += self.after_conflict
            raise Conflict("Could not patch: the object has been modified (HTTP 409).", status=409)
        return super().patch(path, body, dry_run=dry_run)

    def get(self, path, **query):
        assert query == {"fieldSelector": f"metadata.name={D4}"}
        return {"items": [self.now]}


def test_c1_a_conflict_with_a_status_write_is_read_again_and_sent_again():
    cluster = Contested(2, vgpu(4, revision=7), {(D4, True): configured(4)})
    run(cluster, [enable(D4)], vgpus=[vgpu(4, revision=3)])
    assert cluster.revisions == ["3", "7", "7"]
    assert len(cluster.patches) == 1


def test_c1_a_conflict_with_somebody_elses_decision_is_not_overwritten():
    cluster = Contested(1, by("vgpu.fleet", vgpu(4, asked=Q8, revision=7)))
    with pytest.raises(ChangedByOther, match="another task of this collection") as caught:
        run(cluster, [enable(D4)], vgpus=[vgpu(4, revision=3)])
    assert cluster.patches == []
    assert not caught.value.changed


def test_c1_a_write_whose_answer_got_lost_is_found_done():
    cluster = Contested(1, vgpu(4, asked=Q4, revision=7))
    cluster.after_conflict = configured(4)
    assert run(cluster, [enable(D4)], vgpus=[vgpu(4, revision=3)]).done == [enable(D4)]
    assert cluster.patches == []


class Unanswering(Contested):
    """Ends the connection instead of an answer, each time."""

    def patch(self, path, body, *, dry_run=False):
        self.events += self.after_conflict
        raise ConnectionBroken("The API server cannot be reached: the connection ended.")


def test_a_write_that_never_gets_an_answer_is_looked_up():
    cluster = Unanswering(0, vgpu(4, asked=Q4, revision=7))
    cluster.after_conflict = configured(4)
    assert run(cluster, [enable(D4)], vgpus=[vgpu(4, revision=3)]).done == [enable(D4)]
    not_done = Unanswering(0, vgpu(4, revision=3))
    with pytest.raises(ConnectionBroken):
        run(not_done, [enable(D4)], vgpus=[vgpu(4, revision=3)])


def test_c1_somebody_who_wants_the_same_is_no_obstacle():
    cluster = Cluster()
    cluster.events = configured(4)
    cluster.reactions = {(D5, True): configured(5)}
    outcome = run(cluster, [enable(D5), enable(D4)], vgpus=[vgpu(4), vgpu(5)])
    assert [slot.profile for slot in outcome.snapshot.fleet.gpus[0].slots] == [Q4, Q4]
    assert outcome.done[0] == enable(D5)


def test_c1_endless_conflicts_are_an_error_of_our_own(monkeypatch):
    monkeypatch.setattr(module, "CONFLICT_PAUSE", 0)
    with pytest.raises(Conflict, match="changes faster than it can be written"):
        run(Contested(99, vgpu(4, revision=7)), [enable(D4)], vgpus=[vgpu(4, revision=3)])


def test_c1_what_changed_between_the_plan_and_the_write_is_not_overwritten():
    cluster = Cluster()
    cluster.events = [(r.VGPUS, "MODIFIED", vgpu(4, revision=9))]
    said = f"vGPU {D4} was set to disabled by somebody else, after this task had been planned with it enabled"
    with pytest.raises(ChangedByOther, match=said):
        run(cluster, [disable(D5), Step(ENABLE, "n1", GPU, D4, after=Q8)],
            vgpus=[vgpu(4, asked=Q4, configured=Q4), vgpu(5, asked=Q4, configured=Q4)])  # fmt: skip


@pytest.mark.parametrize("path", [r.VGPUS, r.NODES, r.CLAIMS, r.GPUS])
def test_p2_nothing_is_written_if_a_watch_is_not_permitted(path):
    class Closed(Cluster):
        def watch(self, asked, revision, seconds, *, opened=lambda: None):
            if asked == path:
                raise Forbidden(f"Not allowed to watch {path}.", status=403)
            yield from super().watch(asked, revision, seconds, opened=opened)

    cluster = Closed({(D4, True): configured(4)})
    with pytest.raises(Forbidden, match="Not allowed to watch") as caught:
        run(cluster, [enable(D4)], vgpus=[vgpu()])
    assert cluster.patches == []
    assert not caught.value.changed
