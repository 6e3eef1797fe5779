"""Compute the states of an observation: devices and nodes that changed in a span of history. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from lab.replay.compare.field import device_text
from lab.replay.compare.node_state import OF_A_NODE
from lab.replay.observe.history import History, Snapshot

Json = dict[str, Any]
Moment = tuple[float, Json]


def transitions(
    history: History, nodes: Collection[str], *, since: int, until: int | None = None, about: Collection[str] = ()
) -> list[Json]:
    """Return the states between two revisions, with their times relative to the first.

    What stayed the same is included only for the devices and nodes in `about`.
    """
    moments = list(_moments(history, nodes, since, until))
    if not moments:
        return []
    # Of one that is not there a replay reads the same, and the number of devices tells that it is not.
    nothing = {name: device_text(Snapshot({}), name) for _, state in moments for name in state if " of " not in name}
    moments = [(at, nothing | state) for at, state in moments]
    changed = {
        key for _, state in moments for key in {*state, *moments[0][1]} if state.get(key) != moments[0][1].get(key)
    }
    transitions_so_far: list[Json] = []
    for at, state in moments:
        kept = {key: state[key] for key in sorted(state) if key in changed or _is_about(key, about)}
        if not transitions_so_far or transitions_so_far[-1]["state"] != kept:
            transitions_so_far.append({"at": at, "state": kept})
    return transitions_so_far


def _is_about(key: str, about: Collection[str]) -> bool:
    return key in about or key.rpartition(" of ")[2] in about


def _moments(history: History, nodes: Iterable[str], since: int, until: int | None) -> Iterable[Moment]:
    for at, revision, snapshot in history.moments(since):
        if until is not None and revision > until:
            return
        yield at, _state(snapshot, nodes)


def _state(snapshot: Snapshot, nodes: Iterable[str]) -> Json:
    state: Json = {name: device_text(snapshot, name) for name in snapshot.all("vgpudevices")}
    for node in nodes:
        state |= {f"{what} of {node}": read(snapshot, node) for what, read in OF_A_NODE.items()}
    return state
