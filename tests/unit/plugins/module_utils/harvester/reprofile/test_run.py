"""Another layout carried out on a cluster in memory: cut off after every single write, and met by others."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import cluster as harvester, paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import journal
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.apply import apply_steps
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read import snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.reprofile.records import Batch, GpuRecord
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.reprofile.run import (
    Reprofile,
    ReprofileFailed,
    ReprofileRefused,
    ReprofileRequest,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.time_limit import TimeLimit
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vm.apply import VmChange, VmRequest as VmWish
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import AdmissionDenied
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import DISABLE, Step

from tests.unit.plugins.module_utils.harvester.objects import Q4, Q8
from tests.unit.plugins.module_utils.harvester.vm_cluster import Cluster, Killed

FOUR, EIGHT = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-8Q"
GPU = "n1-000008000"
RENDER = {"name": "render-gpu", "tag": "gpu0", "deviceName": FOUR}
EIGHT_Q = [{"profile": "A2-8Q", "count": 1}]
REQUEST = ReprofileRequest(
    layout=(("A2-8Q", 2),),
    nodes=("n1",),
    vms=({"name": "trainer", "vgpus": EIGHT_Q}, {"name": "older", "vgpus": EIGHT_Q}),
)
OTHER_REQUEST = ReprofileRequest(layout=(("A2-4C", 4),), nodes=("n1",), vms=({"name": "trainer"}, {"name": "older"}))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "DEAD_SECONDS", 0.0)
    monkeypatch.setattr(journal, "POLL_SECONDS", 0.01)
    # Signs of life are for runs that last.
    monkeypatch.setattr(journal, "BEAT_SECONDS", 60.0)


def in_use() -> Cluster:
    """Four A2-4Q on the first node, of which two VMs have one each. One owner has enabled all of them."""
    cluster = Cluster("n1", "n2")
    for function in "4567":
        cluster.enable(f"n1-00000800{function}", Q4, "blue")
    cluster.add_vm("trainer", RENDER, runStrategy="RerunOnFailure")
    cluster.add_vm("older", {"name": "vgpu-0", "deviceName": FOUR}, running=True)
    return cluster


def run(cluster: Cluster, request: ReprofileRequest = REQUEST, *, check: bool = False, **options: Any) -> Any:
    reprofile = Reprofile(cluster, None, request, limit=TimeLimit(3), **options)  # type: ignore[arg-type]
    outcome = reprofile.run(check_mode=check)
    return outcome, reprofile


def test_it_is_done_and_says_so_once() -> None:
    cluster = in_use()
    before = cluster.state()
    assert run(cluster, check=True)[0].changed
    assert cluster.state() == before
    assert run(cluster)[0].changed
    state = cluster.state()
    assert sorted(state["layout"].values()) == [Q8, Q8]
    assert state["vms"]["trainer"] == {
        "entries": [{**RENDER, "deviceName": EIGHT}],
        "run": {"runStrategy": "RerunOnFailure"},
        "runs": True,
    }
    assert state["vms"]["older"]["run"] == {"running": True}
    assert state["journal"] == []
    assert list(state["owners"].values()) == ["blue", "blue"]
    count = len(cluster.writes)
    assert not run(cluster)[0].changed
    assert len(cluster.writes) == count


def finished() -> dict[str, Any]:
    cluster = in_use()
    run(cluster)
    return cluster.state()


def _counted(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "layout": sorted(state["layout"].values()), "owners": sorted(state["owners"].values())}


def writes_of_a_run() -> int:
    cluster = in_use()
    run(cluster)
    return len(cluster.writes)


def killed(after: int, request: ReprofileRequest = REQUEST) -> Cluster:
    cluster = in_use()
    cluster.killed_after = after
    with pytest.raises(Killed):
        run(cluster, request)
    cluster.killed_after = None
    return cluster


def test_r1_a_run_that_was_killed_after_any_write_is_finished_by_the_next() -> None:
    wanted = finished()
    total = writes_of_a_run()
    assert total > 10
    for after in range(1, total):
        cluster = killed(after)
        run(cluster)
        assert cluster.state() == wanted, f"killed after write {after} of {total}"


def test_r1_a_run_that_was_killed_after_any_write_is_undone_by_another_that_takes_over() -> None:
    beginning = in_use().state()
    impossible = ReprofileRequest(layout=(("A2-8Q", 3),), nodes=("n1",))
    for after in range(1, writes_of_a_run()):
        cluster = killed(after)
        left = cluster.state()["journal"]
        if left:
            with pytest.raises(journal.Held, match=r"belongs? to run"):
                run(cluster, impossible)
        # It undoes the other one before it finds that its own layout cannot be had.
        with pytest.raises(ReprofileRefused, match="may not be stopped"):
            run(cluster, impossible, take_over=True)
        # What was done up to the removal of the journal stays.
        done = not left or "done" in {json.loads(one[journal.JOURNAL])["phase"] for one in left}
        assert cluster.state() == (finished() if done else beginning), f"killed after write {after}"


def refusing(cluster: Cluster, unwanted: Any) -> None:
    def check(path: str, body: Any) -> None:
        if unwanted(path, body):
            raise AdmissionDenied("The cluster refused to patch it: refused by a test", status=500)

    cluster.before_write = check


def enables_8q(path: str, body: Any) -> bool:
    return path.startswith(r.VGPUS) and body["spec"].get("vGPUTypeName") == Q8


def test_r3_everything_is_as_before_also_the_names_and_tags_of_device_entries() -> None:
    cluster = in_use()
    before = cluster.state()
    refusing(cluster, enables_8q)
    with pytest.raises(ReprofileFailed, match="Everything is as it was before") as failed:
        run(cluster)
    assert "Change the profiles" in str(failed.value)
    assert cluster.state() == before


def test_r3_sriov_is_disabled_again_on_a_gpu_that_had_mig_instances_before() -> None:
    """SR-IOV had shown them, and no step of the run had made them."""
    cluster = Cluster("n1")
    profile = "MIG 1g.5gb"
    configuration = {
        "metadata": {"name": GPU},
        "spec": {"enabled": True, "profileSpec": [{"name": profile, "requested": 1}]},
        "status": {"status": "synced", "profileStatus": [{"name": profile, "available": 6, "vGPUID": ["7"]}]},
    }
    cluster.things[r.MIG_CONFIGURATIONS] = {}
    cluster._put(r.MIG_CONFIGURATIONS, configuration)
    for vgpu in cluster.things[r.VGPUS].values():
        vgpu["status"] = {}

    def disable(path: str, body: Any) -> None:
        if path.startswith(r.GPUS) and body["spec"] == {"enabled": False}:
            cluster.things[r.GPUS][GPU]["status"] = {}
            cluster._remove(r.MIG_CONFIGURATIONS, GPU)
            for name in list(cluster.things[r.VGPUS]):
                cluster._remove(r.VGPUS, name)

    cluster.before_write = disable
    reprofile = Reprofile(cluster, None, REQUEST, limit=TimeLimit(3))  # type: ignore[arg-type]
    reprofile._put_back_layout(Batch((GpuRecord(GPU, (), sriov=False),), ()))
    assert [path for path, _body in cluster.writes] == [f"{r.GPUS}/{GPU}"]
    assert cluster.things[r.GPUS][GPU]["spec"]["enabled"] is False


def test_r3_an_undo_that_was_killed_is_taken_up_by_the_next_run() -> None:
    cluster = in_use()
    refusing(cluster, enables_8q)
    with pytest.raises(ReprofileFailed):
        run(cluster)
    total = len(cluster.writes)
    for after in range(1, total):
        cluster = in_use()
        refusing(cluster, enables_8q)
        cluster.killed_after = after
        with pytest.raises(Killed):
            run(cluster)
        cluster.killed_after = cluster.before_write = None
        run(cluster)
        # Which functions the vGPUs are on may differ.
        assert _counted(cluster.state()) == _counted(finished()), after


IMPOSSIBLE = ReprofileRequest(layout=(("A2-8Q", 3),), nodes=("n1",))


def remark(cluster: Cluster, device: str, owner: str | None) -> None:
    """Set or remove the owner mark of a vGPU, as somebody else."""
    annotations = cluster.things[r.VGPUS][device]["metadata"].setdefault("annotations", {})
    annotations.pop(r.OWNER_ANNOTATION, None)
    if owner is not None:
        annotations[r.OWNER_ANNOTATION] = owner


def test_r3_a_missing_owner_mark_is_restored_and_stops_no_vm() -> None:
    cluster = in_use()
    beginning = cluster.state()
    # The journal is complete and nothing else has been written.
    cluster.before_write = lambda path, body: _end_at(path, body, "virtualmachines")
    with pytest.raises(Killed):
        run(cluster)
    cluster.before_write = None
    count = len(cluster.writes)
    remark(cluster, "n1-000008006", None)
    with pytest.raises(ReprofileRefused, match="may not be stopped"):
        run(cluster, IMPOSSIBLE, take_over=True)
    assert cluster.state() == beginning
    assert not [body for _path, body in cluster.writes[count:] if "runStrategy" in str(body.get("spec"))]


def test_an_owner_mark_that_somebody_sets_between_read_and_write_is_not_overwritten() -> None:
    cluster = in_use()
    cluster.before_write = lambda path, body: _end_at(path, body, "virtualmachines")
    with pytest.raises(Killed):
        run(cluster)
    remark(cluster, "n1-000008006", None)

    def somebody(_path: str, body: dict[str, Any]) -> None:
        if body.get("metadata", {}).get("annotations", {}).get(r.OWNER_ANNOTATION):
            cluster.before_write = None
            remark(cluster, "n1-000008006", "green")
            cluster.revision += 1
            cluster.things[r.VGPUS]["n1-000008006"]["metadata"]["resourceVersion"] = str(cluster.revision)

    cluster.before_write = somebody
    reprofile = Reprofile(cluster, None, IMPOSSIBLE, limit=TimeLimit(3), take_over=True)  # type: ignore[arg-type]
    with pytest.raises(ReprofileRefused):
        reprofile.run(check_mode=False)
    assert cluster.things[r.VGPUS]["n1-000008006"]["metadata"]["annotations"][r.OWNER_ANNOTATION] == "green"
    assert [warning for warning in reprofile.warnings if "marked for owner green meanwhile" in warning]


def test_r3_an_owner_mark_that_cannot_be_restored_does_not_keep_an_undo_from_ending() -> None:
    for owner in (None, "green"):
        cluster = in_use()
        beginning = cluster.state()
        cluster.before_write = lambda path, body: _end_at(path, body, "virtualmachines")
        with pytest.raises(Killed):
            run(cluster)
        remark(cluster, "n1-000008006", owner)
        refusing(cluster, lambda _path, body: r.OWNER_ANNOTATION in str(body))
        reprofile = Reprofile(cluster, None, IMPOSSIBLE, limit=TimeLimit(3), take_over=True)  # type: ignore[arg-type]
        with pytest.raises(ReprofileRefused):
            reprofile.run(check_mode=False)
        said = "marked for owner green meanwhile" if owner else "on vGPU n1-000008006 could not be restored"
        assert [warning for warning in reprofile.warnings if said in warning]
        state = cluster.state()
        assert state["journal"] == []
        assert (state["layout"], state["vms"]) == (beginning["layout"], beginning["vms"])


def _end_at(path: str, body: Any, kind: str) -> None:
    """End a run before its first write that is not about the journal."""
    if kind in path and body.get("spec"):
        raise Killed


def test_r3_it_is_not_said_that_everything_is_as_before_if_it_is_not() -> None:
    cluster = in_use()

    refusing(cluster, enables_8q)
    original = cluster._run_vm

    def renamed(key: str) -> None:
        """Somebody edits the other VM as soon as it is put back."""
        original(key)
        undoing = any("undoing" in one[journal.JOURNAL] for one in cluster.annotations())
        if key == "default/older" and undoing and cluster.runs("older"):
            devices = cluster.vm("older")["spec"]["template"]["spec"]["domain"]["devices"]
            devices["hostDevices"] = [{**devices["hostDevices"][0], "name": "theirs"}]

    cluster._run_vm = renamed  # type: ignore[method-assign]
    with pytest.raises(ReprofileFailed, match=r"Not put back: default/older: its device entries") as failed:
        run(cluster)
    assert "Everything is as it was before" not in str(failed.value)
    assert cluster.annotations() != []


def test_r2_a_vm_that_goes_away_is_left_out_and_the_others_are_done() -> None:
    cluster = in_use()

    def vanish(path: str, body: Any) -> bool:
        if enables_8q(path, body) and "default/older" in cluster.things[r.VMS]:
            cluster.delete_vm("older")
        return False

    refusing(cluster, vanish)
    _outcome, reprofile = run(cluster)
    assert [warning for warning in reprofile.warnings if "default/older is gone" in warning]
    assert cluster.runs("trainer")
    assert cluster.entries("trainer") == [{**RENDER, "deviceName": EIGHT}]
    assert cluster.annotations() == []


def test_r2_a_vm_that_cannot_be_brought_back_does_not_keep_the_others_stopped() -> None:
    cluster = in_use()
    before = cluster.state()["vms"]["trainer"]

    def unwanted(path: str, body: Any) -> bool:
        devices = str(body.get("spec") or "")
        return enables_8q(path, body) or (path.endswith("/older") and FOUR in devices)

    refusing(cluster, unwanted)
    with pytest.raises(ReprofileFailed, match=r"Not put back: default/older: .*refused by a test"):
        run(cluster)
    assert cluster.state()["vms"]["trainer"] == before
    # What is left is in the journal, and undone or done once it can be.
    cluster.before_write = None
    run(cluster)
    assert cluster.state() == finished()


def test_r4_somebody_elses_journal_is_refused_and_named() -> None:
    cluster = killed(8)
    for check in (True, False):
        state = cluster.state()
        with pytest.raises(journal.Held) as refused:
            run(cluster, OTHER_REQUEST, check=check)
        text = str(refused.value)
        assert GPU in text
        assert "default/older, default/trainer" in text
        assert "phase changing" in text
        assert " ago) by " in text
        assert cluster.state() == state


def test_r4_other_modules_leave_a_gpu_and_a_vm_with_a_journal_alone() -> None:
    cluster = killed(3)
    writes = len(cluster.writes)
    opened = harvester.Cluster(cluster, snapshot.read(cluster))
    step = Step(DISABLE, "n1", "n1-000008000", "n1-000008004", before=Q4)
    with pytest.raises(journal.Held, match=r"belong to run .* by .*harvester_reprofile"):
        apply_steps(opened, [step], [], opened.snapshot.fleet, check_mode=False, wait=True, seconds=1)
    request = VmWish("trainer", "default", [{"profile": Q8, "count": 1}])
    with pytest.raises(journal.Held, match="trainer"):
        VmChange(opened, request, wait=False, seconds=1).run(check_mode=True)
    assert len(cluster.writes) == writes
    # What is in place needs no change, and nobody is refused for that.
    apply_steps(opened, [], [], opened.snapshot.fleet, check_mode=False, wait=True, seconds=1)


def test_r4_a_run_elsewhere_is_not_in_the_way() -> None:
    cluster = killed(8)
    run(cluster, ReprofileRequest(layout=(("A2-8Q", 1),), nodes=("n2",)))
    assert cluster.layout()["n2-000008004"] == Q8


def race(cluster: Cluster, path: str, text: str, where: str, _body: Any) -> None:
    if where == path:
        cluster.before_write = None
        cluster.patch(path, {"metadata": {"annotations": {journal.JOURNAL: text}}})


def test_r4_of_two_that_start_together_only_one_gets_the_gpu() -> None:
    """The other one takes the journal after this one has looked and before it writes."""
    for path in (journal.gpu_path(GPU), journal.vm_path("default/trainer")):
        cluster = in_use()
        entry = journal.Entry("theirs", "theirs", journal.now(), "somebody@elsewhere")

        def race(
            where: str, _body: Any, path: str = path, cluster: Cluster = cluster, text: str = entry.text()
        ) -> None:
            if where == path:
                cluster.before_write = None
                cluster.patch(path, {"metadata": {"annotations": {journal.JOURNAL: text}}})

        cluster.before_write = race
        with pytest.raises(journal.Held, match="theirs"):
            run(cluster)
        assert cluster.state()["vms"] == in_use().state()["vms"]
        assert [one[journal.JOURNAL] for one in cluster.annotations()] == [entry.text()]


def test_r4_a_run_that_lives_is_neither_taken_over_nor_finished_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = killed(8)
    monkeypatch.setattr(journal, "DEAD_SECONDS", 0.2)
    alive = journal.Keeper(cluster, next(iter(journal.by_run(entries(cluster)))))  # type: ignore[arg-type]
    alive.held = dict(entries(cluster))
    beats = iter(range(1000))
    read = cluster.get

    def get(path: str, **query: str) -> Any:
        if path == r.GPUS and not query:
            next(beats)
            alive.beat()
        return read(path, **query)

    cluster.get = get  # type: ignore[method-assign]
    with pytest.raises(journal.Held, match="at work"):
        run(cluster, OTHER_REQUEST, take_over=True)
    with pytest.raises(journal.Held, match="The same is being done by run"):
        run(cluster)


def test_r4_a_run_whose_journal_was_taken_over_stops_where_it_is() -> None:
    cluster = in_use()
    done = copy.deepcopy(cluster.state())

    def taken(path: str, body: Any) -> None:
        if path.endswith("/trainer") and (body.get("spec") or {}).get("runStrategy") == "Halted":
            cluster.before_write = None
            entry = journal.Entry("theirs", "theirs", journal.now(), "somebody@elsewhere", phase="changing")
            text = {"metadata": {"annotations": {journal.JOURNAL: entry.text()}}}
            cluster.patch(journal.vm_path("default/trainer"), text)

    cluster.before_write = taken
    with pytest.raises(journal.Lost, match="taken over by run theirs"):
        run(cluster)
    assert cluster.state()["layout"] == done["layout"]


def entries(cluster: Cluster) -> dict[str, journal.Entry]:
    return journal.entries(cluster.things[r.GPUS].values(), cluster.things[r.VMS].values())


def test_check_mode_names_a_run_that_was_cut_off() -> None:
    cluster = killed(8)
    state = cluster.state()
    outcome, _run = run(cluster, check=True)
    (found,) = outcome.journals
    assert (found["phase"], found["gpus"], found["vms"]) == ("changing", [GPU], ["default/older", "default/trainer"])
    assert outcome.plan["lines"][0].startswith(f"Finish run {found['run']}, started ")
    assert outcome.changed
    assert cluster.state() == state


def test_a_journal_that_cannot_be_read_is_somebody_elses() -> None:
    cluster = in_use()
    cluster.vm("trainer")["metadata"]["annotations"][journal.JOURNAL] = "{"
    for options in ({}, {"take_over": True}):
        with pytest.raises(journal.Held, match="default/trainer"):
            run(cluster, **options)


def test_r1_done_means_that_the_vms_have_what_was_asked_for() -> None:
    """The layout is there, and a VM lacks its vGPU: by its spec, or because it runs without it."""
    for pending in (False, True):
        cluster = in_use()
        run(cluster)
        cluster.killed_after = None
        devices = cluster.vm("trainer")["spec"]["template"]["spec"]["domain"]["devices"]
        if pending:
            cluster.things[r.INSTANCES]["default/trainer"]["spec"] = {"domain": {"devices": {}}}
        else:
            devices["hostDevices"] = []
        outcome, _run = run(cluster)
        assert outcome.changed
        assert outcome.plan["lines"][0].startswith("default/trainer: ")
        assert [one["deviceName"] for one in cluster.entries("trainer")] == [EIGHT]
        assert cluster.runs("trainer")
        assert not run(cluster)[0].changed


def test_a_vm_alone_is_finished_too_after_any_write() -> None:
    def lacking() -> Cluster:
        cluster = in_use()
        run(cluster)
        cluster.vm("trainer")["spec"]["template"]["spec"]["domain"]["devices"]["hostDevices"] = []
        cluster.writes.clear()
        return cluster

    cluster = lacking()
    run(cluster)
    wanted, total = cluster.state(), len(cluster.writes)
    for after in range(1, total):
        cluster = lacking()
        cluster.killed_after = after
        with pytest.raises(Killed):
            run(cluster)
        cluster.killed_after = None
        run(cluster)
        assert cluster.state() == wanted, after


@pytest.mark.parametrize("serial", [1, 2])
def test_one_gpu_after_the_other_or_both_at_a_time(serial: int) -> None:
    both = ReprofileRequest(layout=(("A2-8Q", 2),), nodes=("n1", "n2"), vms=REQUEST.vms, serial=serial)
    cluster = in_use()
    run(cluster, both)
    wanted, total = cluster.state(), len(cluster.writes)
    assert len(wanted["layout"]) == 4
    for after in range(1, total):
        cluster = killed(after, both)
        run(cluster, both)
        assert cluster.state() == wanted, after


def test_requests_are_the_same_whatever_their_order_and_spelling() -> None:
    vms = tuple(reversed(REQUEST.vms))
    same = ReprofileRequest(layout=(("a2-8q", 2),), nodes=("n1",), vms=vms, serial=3)
    assert same.digest == REQUEST.digest
    assert OTHER_REQUEST.digest != REQUEST.digest
