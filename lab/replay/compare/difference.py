"""Compare recorded values with those of the lab, and return the differences with their places."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from lab.replay.compare.bindings import Bindings
from lab.replay.observe.normalized import normalized

Json = dict[str, Any]

ABSENT = "(absent)"
NODE_LABELS = "sriovgpu.harvesterhci.io/"
IN_USE = re.compile(r"(?P<before>.*\bin use with (?:VM|vm) )(?P<vm>\S+)(?P<after> in namespace \S+.*)", re.DOTALL)
NAMES = re.compile(r"\[([a-z0-9.-]+(?:, [a-z0-9.-]+)+)\]")


@dataclass(frozen=True)
class Difference:
    place: str
    recorded: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.place}: recorded {brief(self.recorded)}, ours {brief(self.ours)}"


def brief(value: Any, limit: int = 300) -> str:
    if value is ABSENT:
        return ABSENT
    if isinstance(value, dict | list) and len(value) > 5 and all(str(item).startswith("NVIDIA ") for item in value):
        names = [str(item) for item in value]
        return f"{len(names)} types: {names[0]} ... {names[-1]}"
    text = value if isinstance(value, str) and "\n" not in value else json.dumps(value, default=str)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def differences(recorded: Any, ours: Any, bindings: Bindings, place: str = "") -> list[Difference]:
    if isinstance(recorded, dict) and isinstance(ours, dict):
        different = []
        for key in sorted({*recorded, *ours}, key=str):
            inner = f"{place}.{key}" if place else str(key)
            different += differences(recorded.get(key, ABSENT), ours.get(key, ABSENT), bindings, inner)
        return different
    if isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        return [
            difference
            for index, (expected, actual) in enumerate(zip(recorded, ours, strict=True))
            for difference in differences(expected, actual, bindings, f"{place}[{index}]")
        ]
    return [] if same(recorded, ours, bindings) else [Difference(place, recorded, ours)]


def same(recorded: Any, ours: Any, bindings: Bindings) -> bool:
    if isinstance(recorded, str) and isinstance(ours, str):
        return bindings.same_text(recorded, ours)
    return type(recorded) is type(ours) and recorded == ours


def object_differences(recorded: Json, live: Json | None, bindings: Bindings, place: str = "") -> list[Difference]:
    """`recorded` may show a part of the object, or an error in place of one that did not exist."""
    if recorded.get("code") == 404 or recorded.get("reason") == "NotFound":
        return [] if live is None else [Difference(place, "not found", "exists")]
    if live is None:
        return [Difference(place, "exists", "not found")]
    ours = normalized(live)
    expected = dict(recorded)
    if "kind" not in expected:
        if "capacity" in expected or "allocatable" in expected:
            expected = {"status": expected}
            ours = {"status": {key: ours["status"][key] for key in expected["status"]}}
        else:
            ours = {key: ours[key] for key in expected if key in ours}
    uid = (live.get("metadata") or {}).get("uid", "")
    different = [*_metadata_differences(expected, ours, uid, bindings, place)]
    if live.get("kind") == "Node" and "capacity" in (expected.get("status") or {}):
        node = (live.get("metadata") or {}).get("name", "")
        different += _resource_differences(expected.pop("status"), ours.pop("status"), bindings, node, place)
    if live.get("kind") == "KubeVirt":
        expected["spec"], ours["spec"] = permitted(expected.get("spec")), permitted(ours.get("spec"))
    if "kind" in expected or "status" in expected:
        # An object that never had a status and one whose status is empty look the same to a client.
        expected["status"], ours["status"] = expected.get("status") or {}, ours.get("status") or {}
    return different + differences(expected, ours, bindings, place)


def _metadata_differences(expected: Json, ours: Json, uid: str, bindings: Bindings, place: str) -> Iterator[Difference]:
    if "metadata" not in expected:
        ours.pop("metadata", None)
        return
    expected["metadata"] = their_metadata = dict(expected["metadata"])
    our_metadata = dict(ours.get("metadata") or {})
    ours["metadata"] = our_metadata
    their_generation = their_metadata.pop("generation", None)
    our_generation = our_metadata.pop("generation", None)
    if ours.get("kind") == "KubeVirt":
        return
    if ours.get("kind") == "Node" and "capacity" in (ours.get("status") or {}):
        labels = their_metadata.get("labels") or {}
        our_metadata["labels"] = {
            key: value
            for key, value in (our_metadata.get("labels") or {}).items()
            if key in labels or key.startswith(NODE_LABELS)
        }
        finalizers = their_metadata.get("finalizers") or []
        our_metadata["finalizers"] = [
            finalizer for finalizer in our_metadata.get("finalizers") or [] if finalizer in finalizers
        ]
        for key in ("labels", "finalizers"):
            if not our_metadata[key]:
                del our_metadata[key]
        return
    what = f"{expected.get('kind') or ours.get('kind')}/{their_metadata.get('name')}"
    if not isinstance(their_generation, int) or not isinstance(our_generation, int):
        return
    if not bindings.same_generation(what, uid, their_generation, our_generation):
        distance = bindings.generations[(what, uid)]
        yield Difference(f"{place}.metadata.generation", their_generation, our_generation - distance)


def _resource_differences(expected: Json, ours: Json, bindings: Bindings, node: str, place: str) -> list[Difference]:
    different = []
    inherited = bindings.inherited.get(node, {})
    for name in sorted({name for amounts in (expected, ours) for key in amounts for name in amounts[key] or {}}):
        if name in inherited and inherited[name] == tuple(
            (expected.get(key) or {}).get(name) for key in ("capacity", "allocatable")
        ):
            continue
        for key in expected:
            recorded = (expected.get(key) or {}).get(name, ABSENT)
            actual = (ours.get(key) or {}).get(name, ABSENT)
            if recorded != actual and not (key == "capacity" and _plugin_ended(name, expected, ours)):
                different.append(Difference(f"{place}.{key}.{name}", recorded, actual))
    return different


def _plugin_ended(name: str, expected: Json, ours: Json) -> bool:
    """Return whether the device plugin has ended: nothing allocatable, and a capacity of 0 or the last one.

    A plugin that ends sends an empty list and closes the connection at once: whether the kubelet still reads the list
    is a race, and the recordings show both.
    """
    amounts = [[(side.get(key) or {}).get(name) for side in (expected, ours)] for key in ("allocatable", "capacity")]
    return amounts[0] == ["0", "0"] and "0" in amounts[1] and None not in amounts[1]


def permitted(spec: Json | None) -> dict[str, list[str]]:
    """KubeVirt's list as a set: its order and its duplicates come from a race of the controllers (harvester.md 9.5)."""
    lists = ((spec or {}).get("configuration") or {}).get("permittedHostDevices") or {}
    return {kind: sorted({json.dumps(entry, sort_keys=True) for entry in lists[kind]}) for kind in lists if lists[kind]}


def same_message(recorded: str, ours: str, bindings: Bindings, users: Callable[[], Collection[str]]) -> bool:
    """The controller names one of several users of a device, and lists names, in the order of a Go map."""
    if bindings.same_text(_sorted_names(recorded), _sorted_names(ours)):
        return True
    expected, actual = IN_USE.fullmatch(recorded), IN_USE.fullmatch(ours)
    if not expected or not actual or expected["before"] != actual["before"] or expected["after"] != actual["after"]:
        return False
    return {expected["vm"], actual["vm"]} <= set(users())


def _sorted_names(message: str) -> str:
    return NAMES.sub(lambda found: f"[{', '.join(sorted(found.group(1).split(', ')))}]", message)
