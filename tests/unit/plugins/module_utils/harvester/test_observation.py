from __future__ import annotations

import threading

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import observation as module, resources as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.api import ApiError, Forbidden
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.observation import Observation

from tests.unit.plugins.module_utils.harvester.objects import Q4, listing, vgpu

NAME = "n1-000008004"


class Watched:
    """Plays a list of batches of events, one for each watch, then falls silent."""

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
    with Observation(api, {r.VGPUS: listing(vgpu(asked=Q4))}, seconds=1) as seen:
        assert seen.until(asked(seen), about=[NAME])
    assert api.revisions == []


def test_changes_since_the_list_are_seen_across_watches_that_end():
    api = Watched([], [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}], [
        modified(vgpu(asked=Q4, revision=9))
    ])  # fmt: skip
    with Observation(api, {r.VGPUS: listing(vgpu())}, seconds=5) as seen:
        assert seen.until(asked(seen), about=[NAME])
    assert api.revisions[:3] == ["1", "1", "7"]


@pytest.mark.parametrize(
    "gone", [ApiError("too old", status=410), {"type": "ERROR", "object": {"code": 410, "message": "too old"}}]
)
def test_a_revision_that_is_too_old_is_read_again(gone):
    item = vgpu(asked=Q4, revision=20)
    api = Watched([gone], listed={"metadata": {"resourceVersion": "20"}, "items": [item]})
    with Observation(api, {r.VGPUS: listing(vgpu())}, seconds=5) as seen:
        assert seen.until(asked(seen), about=[NAME])


def test_a_lost_permission_ends_the_wait():
    api = Watched([Forbidden("no", status=403)])
    with Observation(api, {r.VGPUS: listing(vgpu())}, seconds=5) as seen, pytest.raises(Forbidden):
        seen.until(asked(seen), about=[NAME])


def test_the_time_of_all_waits_together():
    with Observation(Watched(), {r.VGPUS: listing(vgpu())}, seconds=0.1) as seen:
        assert not seen.until(asked(seen), about=[NAME])
        assert not seen.until(asked(seen))
        assert seen.seconds_left == 0


def test_an_answer_that_is_older_than_what_was_seen_is_not_kept():
    with Observation(Watched(), {r.VGPUS: listing(vgpu(asked=Q4, revision=9))}, seconds=1) as seen:
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
    with Observation(api, {r.VGPUS: listing(*items)}, seconds=5) as seen:
        names = [item["metadata"]["name"] for item in items]
        conditions = {name: lambda name=name: condition(name, seen) for name in names}
        assert seen.until_all(conditions, {name: [name] for name in names}) == set()
    # Each at the beginning, and after that only for its own changes.
    assert looked.count(names[1]) == 2


def test_a_change_of_a_vgpu_is_a_change_of_its_gpu():
    api = Watched([modified(vgpu(asked=Q4, revision=2))])
    with Observation(api, {r.VGPUS: listing(vgpu())}, seconds=5) as seen:
        assert seen.until(asked(seen), about=["n1-000008000"])


def test_giving_up_wakes_everyone():
    with Observation(Watched(), {r.VGPUS: listing(vgpu())}, seconds=5) as seen:
        threading.Timer(0.05, seen.give_up, [ApiError("stop", status=500)]).start()
        with pytest.raises(ApiError, match="stop"):
            seen.until(asked(seen))
