"""T1: whose an object is, as its labels show."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.ownership import mark, not_owned


def vm(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "gpu-1", "namespace": "default", "labels": labels}}


def test_an_object_with_the_mark_of_the_owner_is_ours() -> None:
    assert not_owned([vm(**mark("team-a"), team="ml")], "team-a") == []


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({}, "its labels: none"),
        ({"owner": "other-team"}, "does not carry the mark of owner team-a; its labels: owner=other-team."),
        (mark("team-b"), "VM default/gpu-1 belongs to owner team-b, not to team-a."),
        # Without the name of the collection the owner says nothing.
        ({"vgpu.fleet/owner": "team-a"}, "does not carry the mark"),
        ({**mark("team-a"), "app.kubernetes.io/managed-by": "Helm"}, "does not carry the mark"),
    ],
)
def test_any_other_object_is_named_with_what_its_labels_say(labels: dict[str, str], told: str) -> None:
    (found,) = not_owned([vm(**labels)], "team-a", "VM")
    assert told in found["text"]
    assert (found["name"], found["path"], found["labels"]) == ("gpu-1", "default/gpu-1", labels)


def test_an_object_without_labels_or_namespace_is_not_ours() -> None:
    (found,) = not_owned([{"metadata": {"name": "disk-0"}}])
    assert found["path"] == "disk-0"
