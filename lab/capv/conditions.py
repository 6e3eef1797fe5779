"""Conditions of Cluster API's objects, in the form of each version."""

from __future__ import annotations

from lab.harvester.node.kubelet import timestamp
from lab.kubernetes.client import Json


def set_condition(
    conditions: list[Json], kind: str, status: bool, reason: str = "", message: str = "", *, new: bool
) -> list[Json]:
    """Return the conditions with one of them set. Before v1beta2 a true condition has no reason."""
    before = next((one for one in conditions if one["type"] == kind), None)
    content: Json = {"type": kind, "status": str(status)}
    if reason or new:
        content["reason"] = reason or kind
    if message or new:
        content["message"] = message
    if not new and not status:
        content["severity"] = "Warning"
    unchanged = before is not None and {k: v for k, v in before.items() if k != "lastTransitionTime"} == content
    when = before["lastTransitionTime"] if unchanged and before is not None else timestamp()
    rest = [one for one in conditions if one["type"] != kind]
    return sorted([*rest, content | {"lastTransitionTime": when}], key=lambda one: str(one["type"]))


def drop(conditions: list[Json], kind: str) -> list[Json]:
    return [one for one in conditions if one["type"] != kind]
