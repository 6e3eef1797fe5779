"""Recorded against ours: the differences that matter, each with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from lab.replay.compare.bindings import Bindings
from lab.replay.observe.normalized import presented

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
        found = []
        for key in sorted({*recorded, *ours}, key=str):
            inner = f"{place}.{key}" if place else str(key)
            found += differences(recorded.get(key, ABSENT), ours.get(key, ABSENT), bindings, inner)
        return found
    if isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        return [
            difference
            for index, (theirs, mine) in enumerate(zip(recorded, ours, strict=True))
            for difference in differences(theirs, mine, bindings, f"{place}[{index}]")
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
    ours = presented(live)
    theirs = dict(recorded)
    if "kind" not in theirs:
        if "capacity" in theirs or "allocatable" in theirs:
            theirs = {"status": theirs}
            ours = {"status": {key: ours["status"][key] for key in theirs["status"]}}
        else:
            ours = {key: ours[key] for key in theirs if key in ours}
    uid = (live.get("metadata") or {}).get("uid", "")
    found = [*_metadata_differences(theirs, ours, uid, bindings, place)]
    if live.get("kind") == "Node" and "capacity" in (theirs.get("status") or {}):
        node = (live.get("metadata") or {}).get("name", "")
        found += _resource_differences(theirs.pop("status"), ours.pop("status"), bindings, node, place)
    if live.get("kind") == "KubeVirt":
        theirs["spec"], ours["spec"] = permitted(theirs.get("spec")), permitted(ours.get("spec"))
    if "kind" in theirs or "status" in theirs:
        # An object that never had a status and one whose status is empty look the same to a client.
        theirs["status"], ours["status"] = theirs.get("status") or {}, ours.get("status") or {}
    return found + differences(theirs, ours, bindings, place)


def _metadata_differences(theirs: Json, ours: Json, uid: str, bindings: Bindings, place: str) -> Iterator[Difference]:
    if "metadata" not in theirs:
        ours.pop("metadata", None)
        return
    theirs["metadata"] = their_metadata = dict(theirs["metadata"])
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
        our_metadata["finalizers"] = [one for one in our_metadata.get("finalizers") or [] if one in finalizers]
        for key in ("labels", "finalizers"):
            if not our_metadata[key]:
                del our_metadata[key]
        return
    what = f"{theirs.get('kind') or ours.get('kind')}/{their_metadata.get('name')}"
    if not isinstance(their_generation, int) or not isinstance(our_generation, int):
        return
    if not bindings.same_generation(what, uid, their_generation, our_generation):
        distance = bindings.generations[(what, uid)]
        yield Difference(f"{place}.metadata.generation", their_generation, our_generation - distance)


def _resource_differences(theirs: Json, ours: Json, bindings: Bindings, node: str, place: str) -> list[Difference]:
    found = []
    inherited = bindings.inherited.get(node, {})
    for name in sorted({name for amounts in (theirs, ours) for key in amounts for name in amounts[key] or {}}):
        if name in inherited and inherited[name] == tuple(
            (theirs.get(key) or {}).get(name) for key in ("capacity", "allocatable")
        ):
            continue
        for key in theirs:
            recorded = (theirs.get(key) or {}).get(name, ABSENT)
            mine = (ours.get(key) or {}).get(name, ABSENT)
            if recorded != mine and not (key == "capacity" and _plugin_ended(name, theirs, ours)):
                found.append(Difference(f"{place}.{key}.{name}", recorded, mine))
    return found


def _plugin_ended(name: str, theirs: Json, ours: Json) -> bool:
    """Nothing allocatable, and a capacity of nothing or of what was there last.

    A plugin that ends sends an empty list and closes the connection at once: whether the kubelet still reads the list
    is a race, and the recordings show both.
    """
    amounts = [[(side.get(key) or {}).get(name) for side in (theirs, ours)] for key in ("allocatable", "capacity")]
    return amounts[0] == ["0", "0"] and "0" in amounts[1] and None not in amounts[1]


def permitted(spec: Json | None) -> dict[str, list[str]]:
    """KubeVirt's list as a set: its order and its duplicates come from a race of the controllers (harvester.md 9.5)."""
    lists = ((spec or {}).get("configuration") or {}).get("permittedHostDevices") or {}
    return {kind: sorted({json.dumps(entry, sort_keys=True) for entry in lists[kind]}) for kind in lists if lists[kind]}


def same_message(recorded: str, ours: str, bindings: Bindings, users: Callable[[], Collection[str]]) -> bool:
    """The controller names one of several users of a device, and lists names, in the order of a Go map."""
    if bindings.same_text(_sorted_names(recorded), _sorted_names(ours)):
        return True
    theirs, mine = IN_USE.fullmatch(recorded), IN_USE.fullmatch(ours)
    if not theirs or not mine or theirs["before"] != mine["before"] or theirs["after"] != mine["after"]:
        return False
    return {theirs["vm"], mine["vm"]} <= set(users())


def _sorted_names(message: str) -> str:
    return NAMES.sub(lambda found: f"[{', '.join(sorted(found.group(1).split(', ')))}]", message)
