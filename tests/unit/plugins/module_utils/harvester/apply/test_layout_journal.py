"""Changes of a layout that are cut off after every single write, met by others, and recovered, in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import TIME_SLICED
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import cluster as harvester, paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import journal
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.journaled_task import JournaledTask
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.layout_journal import GpuLayout, needs_journal
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide import layout as vgpu_layout
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read import snapshot as snapshots
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.reprofile.run import (
    Reprofile,
    ReprofileRequest as Relayout,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.time_limit import TimeLimit
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step

from tests.unit.plugins.module_utils.harvester.objects import C4, Q4, Q8
from tests.unit.plugins.module_utils.harvester.reprofile.test_run import refusing
from tests.unit.plugins.module_utils.harvester.vm_cluster import Cluster, Killed

GPU = "n1-000008000"
CHANGING = Policy(reprofile=True, exclusive=True)


def asking(profile: str, count: int, policy: Policy = CHANGING) -> vgpu_layout.VgpuRequest:
    return vgpu_layout.VgpuRequest(demands=(Demand(profile, count, nodes=("n1",)),), policy=policy)


EIGHTS, OTHERS = asking(Q8, 2), asking(C4, 4)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "DEAD_SECONDS", 0.0)
    monkeypatch.setattr(journal, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(journal, "BEAT_SECONDS", 60.0)


def full() -> Cluster:
    """Four unused A2-4Q on the first node, of two owners."""
    cluster = Cluster("n1", "n2")
    for function, owner in zip("4567", ("blue", "red", None, None), strict=True):
        cluster.enable(f"n1-00000800{function}", Q4, owner)
    return cluster


def run(
    cluster: Cluster, request: vgpu_layout.VgpuRequest = EIGHTS, *, check: bool = False, take_over: bool = False
) -> tuple[Any, JournaledTask]:
    """What the module harvester_vgpu does."""
    found = harvester.Cluster(cluster, snapshots.read(cluster, None))  # type: ignore[arg-type]
    asked = {"module": "harvester_vgpu", "request": str(request)}
    task = JournaledTask(
        found,
        check_mode=check,
        limit=TimeLimit(0.5),
        request=asked,
        description=f"harvester_vgpu {request}",
        take_over=take_over,
    )
    planned = task.recover_and_plan(request)
    task.apply(planned)
    return planned, task


def entries(cluster: Cluster) -> list[Any]:
    return [json.loads(one[journal.JOURNAL]) for one in cluster.annotations() if journal.JOURNAL in one]


def writes_of_a_run() -> int:
    cluster = full()
    run(cluster)
    return len(cluster.writes)


def killed(after: int, request: vgpu_layout.VgpuRequest = EIGHTS) -> Cluster:
    cluster = full()
    cluster.killed_after = after
    with pytest.raises(Killed):
        run(cluster, request)
    cluster.killed_after = None
    return cluster


def finished() -> Any:
    cluster = full()
    run(cluster)
    return cluster.state()


def test_the_journal_is_the_first_and_the_last_write_on_a_gpu() -> None:
    cluster = full()
    planned, task = run(cluster)
    assert planned.plan.steps
    assert not task.changed
    written = [body["metadata"]["annotations"] for path, body in cluster.writes if path == f"{r.GPUS}/{GPU}"]
    assert [list(one) for one in written] == [[journal.JOURNAL], [journal.JOURNAL, journal.ALIVE]]
    assert cluster.writes[0][0] == cluster.writes[-1][0] == f"{r.GPUS}/{GPU}"
    told = json.loads(written[0][journal.JOURNAL])
    assert told["before"] == {
        "vgpus": [[f"n1-00000800{function}", Q4] for function in "4567"],
        "sriov": True,
        "mode": TIME_SLICED,
        "instances": [],
        "owners": {"n1-000008004": "blue", "n1-000008005": "red"},
    }
    assert [profile for _device, profile in told["after"]["vgpus"]] == [Q8, Q8]
    assert told["task"] == f"harvester_vgpu 2 x {Q8}"
    assert cluster.annotations() == []
    count = len(cluster.writes)
    run(cluster)
    assert len(cluster.writes) == count


@pytest.mark.parametrize("request_", [asking(Q4, 2), asking(Q4, 0)])
def test_who_only_removes_writes_one_patch_for_each_device_and_no_journal(request_: vgpu_layout.VgpuRequest) -> None:
    cluster = full()
    planned, _task = run(cluster, request_)
    assert len(cluster.writes) == len(planned.plan.steps)
    assert {path.rpartition("/")[0] for path, _body in cluster.writes} == {r.VGPUS}


def test_who_only_adds_writes_no_journal() -> None:
    cluster = Cluster("n1")
    run(cluster)
    assert len(cluster.writes) == 2


def test_a_run_that_was_killed_after_any_write_is_finished_by_the_same_task() -> None:
    total = writes_of_a_run()
    assert total == 8
    for after in range(1, total):
        cluster = killed(after)
        assert len(entries(cluster)) == 1
        before = cluster.state()
        planned, task = run(cluster, check=True)
        assert cluster.state() == before
        assert task.finished == [entries(cluster)[0]["run"]]
        assert planned.warnings[0].startswith(f"Finish run {task.finished[0]}, started ")
        _planned, task = run(cluster)
        assert task.finished
        assert cluster.state() == finished(), f"killed after write {after} of {total}"


def test_a_task_that_finishes_another_gives_the_marks_that_were_planned() -> None:
    def owned() -> Cluster:
        cluster = Cluster("n1")
        for function in "4567":
            cluster.enable(f"n1-00000800{function}", Q4, "blue")
        return cluster

    for owner in ("blue", None):
        request = replace(EIGHTS, owner=owner)
        whole = owned()
        run(whole, request)
        assert list(whole.owners().values()) == [owner, owner]
        for after in range(1, len(whole.writes)):
            cluster = owned()
            cluster.killed_after = after
            with pytest.raises(Killed):
                run(cluster, request)
            cluster.killed_after = None
            run(cluster, request)
            assert cluster.state() == whole.state(), f"killed after write {after}"


def test_another_task_is_refused_and_names_the_run_and_what_it_does() -> None:
    for after in range(1, writes_of_a_run()):
        cluster = killed(after)
        before = cluster.state()
        for check in (True, False):
            with pytest.raises(journal.Held) as caught:
                run(cluster, OTHERS, check=check)
            assert f"run {entries(cluster)[0]['run']}, started " in str(caught.value)
            assert f"task harvester_vgpu 2 x {Q8}" in str(caught.value)
            assert "take_over" in caught.value.hint
        assert cluster.state() == before


def test_a_dead_run_is_undone_by_one_that_takes_over() -> None:
    beginning = full().state()
    nothing_more = asking(Q4, 4)
    for after in range(1, writes_of_a_run()):
        cluster = killed(after)
        _planned, predicted = run(cluster, nothing_more, check=True, take_over=True)
        assert len(predicted.undone) == 1
        planned, task = run(cluster, nothing_more, take_over=True)
        assert task.undone == predicted.undone
        assert not planned.plan.steps
        assert cluster.state() == beginning, f"killed after write {after}"


def test_one_that_takes_over_goes_on_with_its_own_layout() -> None:
    cluster = killed(4)
    run(cluster, OTHERS, take_over=True)
    assert sorted(cluster.layout().values()) == [C4] * 4
    assert entries(cluster) == []


def test_a_run_that_was_killed_while_it_took_over_is_recovered() -> None:
    count = len(killed(4).writes)
    cluster = killed(4)
    run(cluster, OTHERS, take_over=True)
    for after in range(count + 1, len(cluster.writes)):
        again = killed(4)
        again.killed_after = after
        with pytest.raises(Killed):
            run(again, OTHERS, take_over=True)
        again.killed_after = None
        run(again, OTHERS, take_over=True)
        assert again.layout() == cluster.layout(), f"killed after write {after}"
        assert entries(again) == []


def test_a_run_that_is_at_work_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = killed(3)
    monkeypatch.setattr(journal, "DEAD_SECONDS", 0.2)
    alive = iter(range(1000))
    read = cluster.get

    def beating(path: str, **query: str) -> Any:
        item = cluster.things[r.GPUS][GPU]
        item["metadata"]["annotations"][journal.ALIVE] = str(next(alive))
        return read(path, **query)

    monkeypatch.setattr(cluster, "get", beating)
    with pytest.raises(journal.Held, match="not taken over, since it is at work"):
        run(cluster, OTHERS, take_over=True)


def test_a_run_that_failed_says_so_and_is_finished_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = full()
    refusing(cluster, lambda path, body: (body.get("spec") or {}).get("vGPUTypeName") == Q8)
    with pytest.raises(FleetError):
        run(cluster)
    cluster.before_write = None
    assert [one["phase"] for one in entries(cluster)] == ["stopped"]
    monkeypatch.setattr(journal, "wait_for_end", lambda *_arguments: pytest.fail("It waited."))
    run(cluster)
    assert cluster.state() == finished()


def test_a_run_that_was_refused_before_it_changed_anything_leaves_no_journal() -> None:
    cluster = full()
    refusing(cluster, lambda path, _body: path.startswith(r.VGPUS))
    with pytest.raises(FleetError):
        run(cluster)
    assert cluster.state() == full().state()


def first_does(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, something: Any) -> None:
    """Right before a run writes its journal."""
    read, left = cluster.get, [something]

    def get(path: str, **query: str) -> Any:
        if "fieldSelector" in query and left:
            left.pop()()
        return read(path, **query)

    monkeypatch.setattr(cluster, "get", get)


def test_one_that_planned_before_another_was_done_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = full()
    first_does(cluster, monkeypatch, lambda: run(cluster, OTHERS))
    with pytest.raises(FleetError) as caught:
        run(cluster)
    assert caught.value.code == "changed_by_other"
    assert sorted(cluster.layout().values()) == [C4] * 4
    assert entries(cluster) == []


def test_of_two_that_read_the_same_only_one_gets_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = full()
    entry = journal.Entry("abc", "1", journal.now(), "me@here", phase="changing", gpus=(GPU,))
    annotation = {"metadata": {"annotations": {journal.JOURNAL: entry.text()}}}
    first_does(cluster, monkeypatch, lambda: cluster.patch(f"{r.GPUS}/{GPU}", annotation))
    with pytest.raises(journal.Held, match=f"GPU {GPU} belongs to run abc"):
        run(cluster)
    assert cluster.layout() == full().layout()
    assert [one["run"] for one in entries(cluster)] == ["abc"]


def test_reprofile_undoes_the_run_of_another_module() -> None:
    cluster = killed(4)
    request = Relayout(layout=((C4, 4),), nodes=("n1",))
    with pytest.raises(journal.Held, match="belongs to run"):
        Reprofile(cluster, None, request, limit=TimeLimit(0.5)).run(check_mode=False)  # type: ignore[arg-type]
    done = Reprofile(cluster, None, request, limit=TimeLimit(0.5), take_over=True).run(check_mode=False)  # type: ignore[arg-type]
    assert done.undone
    assert sorted(cluster.layout().values()) == [C4] * 4
    assert entries(cluster) == []


def test_a_run_that_stops_vms_is_not_taken_over_here() -> None:
    cluster = full()
    entry = journal.Entry("abc", "1", journal.now(), "me@here", phase="changing", gpus=(GPU,), vms=("default/a",))
    cluster.patch(f"{r.GPUS}/{GPU}", {"metadata": {"annotations": {journal.JOURNAL: entry.text()}}})
    with pytest.raises(journal.Held, match="which stops VMs") as caught:
        run(cluster, take_over=True)
    assert "harvester_reprofile" in caught.value.hint


@pytest.mark.parametrize(
    ("actions", "needed"),
    [
        (("enable", "enable"), False),
        (("disable", "disable"), False),
        (("disable", "remove_mig_instances", "disable_sriov"), False),
        (("enable_sriov", "create_mig_instances", "enable"), False),
        (("set_mode", "enable_sriov"), False),
        (("disable", "enable"), True),
        (("enable", "disable"), False),
        (("disable_sriov", "set_mode", "enable_sriov"), True),
        (("remove_mig_instances", "create_mig_instances"), True),
    ],
)
def test_only_what_takes_away_and_then_builds_needs_a_journal(actions: tuple[str, ...], needed: bool) -> None:
    assert needs_journal([Step(action, "n1", GPU) for action in actions]) is needed


def test_a_change_of_the_mode_leaves_no_vgpus() -> None:
    steps = [
        Step("remove_mig_instances", "n1", GPU, before="2 x 3g.20gb", after="none"),
        Step("disable_sriov", "n1", GPU),
        Step("set_mode", "n1", GPU, before="mig", after=TIME_SLICED),
        Step("enable_sriov", "n1", GPU),
    ]
    before = GpuLayout(GPU, mode="mig", instances=(("3g.20gb", 2),))
    assert before.after(snapshots.read(Cluster("n1"), None), steps) == GpuLayout(GPU)  # type: ignore[arg-type]


def test_a_cut_needs_a_journal_if_the_gpu_has_instances() -> None:
    assert not needs_journal([Step("create_mig_instances", "n1", GPU, after="2 x 3g.20gb")])
    assert needs_journal([Step("create_mig_instances", "n1", GPU, before="7 x 1g.5gb", after="2 x 3g.20gb")])
