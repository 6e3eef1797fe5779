from __future__ import annotations

import io
import threading

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils import progress
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import certain_causes
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.snapshot import parent_of
from ansible_collections.vgpu.fleet.plugins.module_utils.kube import watcher as module
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import ApiError, Forbidden
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.connection import BadConnection
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.watcher import ApiServerGone, Watcher

from tests.unit.plugins.module_utils.harvester.objects import Q4, listing, vgpu

NAME = "n1-000008004"


class Watched:
    """Plays a list of batches of events, one for each watch, then falls silent."""

    fail_fast = False

    def __init__(self, *batches, listed=None):
        self.batches = list(batches)
        self.listed = listed
        self.revisions = []

    def watch(self, path, revision, seconds, *, opened=lambda: None):
        opened()
        self.revisions.append(revision)
        if not self.batches:
            threading.Event().wait(seconds)
            return
        for event in self.batches.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event

    def get(self, path):
        return self.listed


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.01)


def modified(item):
    return {"type": "MODIFIED", "object": item}


def asked(seen):
    return lambda: (seen.get(r.VGPUS, NAME) or {"spec": {}})["spec"].get("enabled", False)


def test_nothing_is_watched_if_nothing_has_to_be_waited_for():
    api = Watched()
    with Watcher(api, {r.VGPUS: listing(vgpu(asked=Q4))}, seconds=1) as seen:
        assert seen.until(asked(seen), about=[NAME])
    assert api.revisions == []


def test_changes_since_the_list_are_seen_across_watches_that_end():
    api = Watched([], [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}], [
        modified(vgpu(asked=Q4, revision=9))
    ])  # fmt: skip
    with Watcher(api, {r.VGPUS: listing(vgpu())}, seconds=5) as seen:
        assert seen.until(asked(seen), about=[NAME])
    assert api.revisions[:3] == ["1", "1", "7"]


@pytest.mark.parametrize(
    "gone", [ApiError("too old", status=410), {"type": "ERROR", "object": {"code": 410, "message": "too old"}}]
)
def test_a_revision_that_is_too_old_is_read_again(gone):
    item = vgpu(asked=Q4, revision=20)
    api = Watched([gone], listed={"metadata": {"resourceVersion": "20"}, "items": [item]})
    with Watcher(api, {r.VGPUS: listing(vgpu())}, seconds=5) as seen:
        assert seen.until(asked(seen), about=[NAME])


def test_a_lost_permission_ends_the_wait():
    api = Watched([Forbidden("no", status=403)])
    with Watcher(api, {r.VGPUS: listing(vgpu())}, seconds=5) as seen, pytest.raises(Forbidden):
        seen.until(asked(seen), about=[NAME])


def test_the_time_of_all_waits_together():
    with Watcher(Watched(), {r.VGPUS: listing(vgpu())}, seconds=0.1) as seen:
        assert not seen.until(asked(seen), about=[NAME])
        assert not seen.until(asked(seen))
        assert seen.seconds_left == 0


def test_an_answer_that_is_older_than_what_was_seen_is_not_kept():
    with Watcher(Watched(), {r.VGPUS: listing(vgpu(asked=Q4, revision=9))}, seconds=1) as seen:
        seen.put(r.VGPUS, vgpu(revision=8))
        assert asked(seen)()
        seen.put(r.VGPUS, vgpu(revision=10))
        assert not asked(seen)()


def test_many_conditions_are_only_looked_at_when_their_object_changes():
    looked = []

    def condition(name, seen):
        looked.append(name)
        return (seen.get(r.VGPUS, name) or {"spec": {}})["spec"].get("enabled", False)

    items = [vgpu(4), vgpu(5)]
    api = Watched([modified(vgpu(4, asked=Q4, revision=2)), modified(vgpu(4, asked=Q4, revision=3))], [
        modified(vgpu(5, asked=Q4, revision=4))
    ])  # fmt: skip
    with Watcher(api, {r.VGPUS: listing(*items)}, seconds=5) as seen:
        names = [item["metadata"]["name"] for item in items]
        conditions = {name: lambda name=name: condition(name, seen) for name in names}
        assert seen.wait_for_all(conditions, {name: [name] for name in names}) == set()
    # Each at the beginning, and after that only for its own changes.
    assert looked.count(names[1]) == 2


def test_a_change_of_a_vgpu_is_a_change_of_its_gpu():
    api = Watched([modified(vgpu(asked=Q4, revision=2))])
    with Watcher(api, {r.VGPUS: listing(vgpu())}, seconds=5, related=parent_of) as seen:
        assert seen.until(asked(seen), about=["n1-000008000"])


def test_giving_up_wakes_everyone():
    with Watcher(Watched(), {r.VGPUS: listing(vgpu())}, seconds=5) as seen:
        threading.Timer(0.05, seen.abort, [ApiError("stop", status=500)]).start()
        with pytest.raises(ApiError, match="stop"):
            seen.until(asked(seen))


# Waits that have become pointless
class Gone(Watched):
    host = "https://harvester.example"
    fail_fast = True

    def watch(self, path, revision, seconds, *, opened=lambda: None):
        raise BadConnection("connection refused")
        yield


def test_u8_an_api_server_that_stops_answering_ends_the_wait_with_that_cause(monkeypatch):
    monkeypatch.setattr(module, "GONE_SECONDS", 0.05)
    with Watcher(Gone(), {r.VGPUS: listing(vgpu())}, seconds=1) as seen:
        with pytest.raises(ApiServerGone, match=r"has not answered since \d\d:\d\d:\d\d \(connection refused\)"):
            seen.until(asked(seen))
        assert seen.seconds_left > 0


def test_u8_an_api_server_and_a_node_have_a_minute_to_come_back():
    """The tests above and those of certain causes use shorter times or a clock of their own."""
    assert module.GONE_SECONDS == certain_causes.NOT_READY_SECONDS == 60


def test_without_fail_fast_the_wait_goes_on_and_still_knows_the_cause(monkeypatch):
    monkeypatch.setattr(module, "GONE_SECONDS", 0.01)
    api = Gone()
    api.fail_fast = False
    with Watcher(api, {r.VGPUS: listing(vgpu())}, seconds=0.2) as seen:
        assert not seen.until(asked(seen))
        assert isinstance(seen.unanswered, ApiServerGone)


def test_a_server_that_answers_again_is_not_gone():
    api = Watched([BadConnection("connection reset")], [modified(vgpu(asked=Q4, revision=2))])
    with Watcher(api, {r.VGPUS: listing(vgpu())}, seconds=5) as seen:
        assert seen.until(asked(seen))
        assert seen.unanswered is None


def test_a_cause_that_is_certain_ends_the_wait():
    api = Watched()
    api.fail_fast = True
    with Watcher(api, {r.VGPUS: listing(vgpu())}, seconds=2) as seen:
        seen.find_cause = lambda: ApiError("the driver cannot start", status=500)
        with pytest.raises(ApiError, match="the driver cannot start"):
            seen.until(asked(seen))
        assert seen.seconds_left > 0


def test_progress_is_reported_while_waiting(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0)
    progress.open_stream(stream)
    try:
        with Watcher(Watched(), {r.VGPUS: listing(vgpu())}, seconds=0.3) as seen:
            seen.describe = lambda: "node n1: 1 not ready yet"
            assert not seen.until(asked(seen))
    finally:
        progress.open_stream(None)
    assert stream.getvalue() == "node n1: 1 not ready yet (0:00 min left)\n"
