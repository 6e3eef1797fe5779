"""Find recorded objects in the lab's history of these objects.

The recorder read one object after the other while things went on, so a snapshot is no single moment. Each object
must have looked as recorded now, or shortly before, or must come to look so before anything else is done; and never
in an order other than the recorded one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lab.replay.compare.bindings import Bindings
from lab.replay.compare.difference import Difference, differences, object_differences
from lab.replay.compare.field import claim_summary
from lab.replay.observe.history import PLURAL, Key, Snapshot
from lab.replay.play.environment import Environment
from lab.replay.read.condition import CONFIGURED, field_of, types_of

Json = dict[str, Any]

# Seconds of simulated time by which we may be ahead of the recorded moment, and behind it.
AHEAD = 10.0
BEHIND = 15.0
PACE = 0.2
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
KIND = {plural: kind for kind, plural in PLURAL.items()}


@dataclass(frozen=True)
class ObservedObject:
    """An object as recorded. `compare` returns how a version of it differs."""

    key: Key
    compare: Callable[[Json | None, Bindings], list[Difference]]
    # The types that a configured vGPU was seen to list.
    stale_offers: frozenset[str] | None = None


@dataclass(frozen=True)
class ObservedMachine:
    """A virtual machine, which is not watched."""

    name: str
    recorded: Json


@dataclass(frozen=True)
class ObservedCount:
    plural: str
    node: str
    recorded: int


def observed_object(shown: Json, key: Key | None = None, place: str = "") -> ObservedObject:
    if key is None:
        key = (PLURAL.get(str(shown.get("kind")), ""), shown["metadata"]["name"])
    place = place or f"{KIND.get(key[0], key[0])}/{key[1]}"
    return ObservedObject(
        key,
        lambda live, bindings: object_differences(shown, live, bindings, place),
        offers_of_configured(shown.get("status")),
    )


def offers_of_configured(status: Any) -> frozenset[str] | None:
    if isinstance(status, dict) and status.get("vGPUStatus") == CONFIGURED:
        return frozenset(status.get("availableTypes") or ())
    return None


def observed_after(after: Json, environment: Environment) -> tuple[list[Any], list[str]]:
    """Return the objects that a step shows after its request, and notes on what is not compared."""
    observations: list[Any] = []
    notes: list[str] = []
    for key, value in after.items():
        kind, _, name = key.partition("/")
        group = re.fullmatch(r"(\w+) of (\S+)", key)
        if key == "seconds":
            continue
        if name and kind == "VirtualMachine":
            observations.append(ObservedMachine(name.rpartition("/")[2], value))
        elif name and kind in PLURAL:
            observations.append(observed_object(value, (PLURAL[kind], name), key))
        elif group and group[1] == "VGPUDevices":
            observations += _vgpu_groups(value or [], group[2], environment)
        elif group and group[1] == "PCIDeviceClaims":
            observations += _claims(value or [], group[2], environment)
        elif group and group[1] == "counts":
            observations += [
                ObservedCount(plural, group[2], number) for plural, number in value.items() if plural in KIND
            ]
        else:
            notes.append(f"{key} is not compared")
    return observations, notes


def _vgpu_groups(groups: list[Json], node: str, environment: Environment) -> Iterable[ObservedObject]:
    recorded = {device: group for group in groups for device in group["devices"]}
    for name in sorted({*recorded, *environment.snapshot.of_node("vgpudevices", node)}):
        group = recorded.get(name)
        summary = {key: value for key, value in group.items() if key != "devices"} if group else None
        compare = _compare_summary(f"VGPUDevice/{name}", summary, vgpu_summary)
        yield ObservedObject(("vgpudevices", name), compare, offers_of_configured(summary))


def _claims(claims: list[Json], node: str, environment: Environment) -> Iterable[ObservedObject]:
    recorded = {claim["name"]: claim for claim in claims}
    for name in sorted({*recorded, *environment.snapshot.of_node("pcideviceclaims", node)}):
        yield ObservedObject(
            ("pcideviceclaims", name), _compare_summary(f"PCIDeviceClaim/{name}", recorded.get(name), claim_summary)
        )


def _compare_summary(
    place: str, recorded: Json | None, summary_of: Callable[[Json], Json]
) -> Callable[[Json | None, Bindings], list[Difference]]:
    def compare(live: Json | None, bindings: Bindings) -> list[Difference]:
        if recorded is None or live is None:
            state = ["not found" if version is None else "exists" for version in (recorded, live)]
            return [] if recorded is live is None else [Difference(place, *state)]
        ours = summary_of(live)
        # A group may show less than the whole summary; `deleting` is shown only when it is so.
        ours = {key: ours[key] for key in ours if key in recorded or key == "deleting"}
        return differences(recorded, ours, bindings, place)

    return compare


def vgpu_summary(vgpu: Json) -> Json:
    spec, status = vgpu.get("spec") or {}, vgpu.get("status") or {}
    return {
        "enabled": spec.get("enabled"),
        "vGPUTypeName": spec.get("vGPUTypeName") or "",
        "vGPUStatus": status.get("vGPUStatus") or "",
        "configureVGPUTypeName": status.get("configureVGPUTypeName") or "",
        "uuid": status.get("uuid") or "",
        "availableTypes": sorted(types_of(vgpu)),
    }


class ObservationTracker:
    """Track for each object which version of the lab's history the recording has reached."""

    def __init__(self, environment: Environment, bindings: Bindings) -> None:
        self.environment = environment
        self.bindings = bindings
        self.seen: dict[Key, int] = {}
        # The history's revision before our last intervention, from which an observation looks back.
        self.marked = 0

    def begin(self) -> None:
        self.seen.clear()
        self.mark()

    def mark(self) -> None:
        self.environment.refresh()
        self.marked = self.environment.history.revision

    def pin(self, key: Key, test: Callable[[Json | None], bool]) -> None:
        """Continue from the first version that met a condition."""
        first = self.environment.history.first(key, test, revision=self.seen.get(key, 0))
        if first:
            self.seen[key] = max(self.seen.get(key, 0), first.revision)

    def wrote(self, key: Key, live: Json) -> None:
        """Continue from the version that the player has written."""
        self.environment.history.record(key[0], "MODIFIED", live)
        self.seen[key] = int(live["metadata"]["resourceVersion"])

    def matches_history(self, observed: ObservedObject) -> bool:
        """Return whether the object is as recorded, or was a short while ago."""
        adopted: list[Bindings] = []
        since = self.environment.now - AHEAD
        offers = self._recent_offers(observed.key, since) if observed.stale_offers is not None else {}

        def matches(live: Json | None) -> bool:
            trial = self.bindings.trial()
            if observed.stale_offers in offers and live and field_of(live, "status.vGPUStatus") == CONFIGURED:
                live = {**live, "status": {**live["status"], "availableTypes": offers[observed.stale_offers]}}
                if not observed.stale_offers:
                    del live["status"]["availableTypes"]
            if observed.compare(live, trial):
                return False
            adopted.append(trial)
            return True

        version = self.environment.history.find(
            observed.key, matches, since=since, revision=self.seen.get(observed.key, 0)
        )
        if version is None:
            return False
        self.bindings.adopt(adopted[-1])
        self.seen[observed.key] = version.revision
        return True

    def _recent_offers(self, key: Key, since: float) -> dict[frozenset[str], Any]:
        """Return the lists of types that the device showed recently, and the empty list.

        What a configured VF lists is an assumption of the recorded driver, and it is brought up to date only by the
        next scan or by chance: which of its former lists still shows is the outcome of a race.
        """
        offers: dict[frozenset[str], Any] = {frozenset(): {}}
        until = float("inf")
        for version in reversed(self.environment.history.versions(key)):
            if until < since:
                break
            offers.setdefault(frozenset(types_of(version.object)), types_of(version.object))
            until = version.at
        return offers

    def find_all(self, tracker: Iterable[Any]) -> list[Difference]:
        """Advance the time until all objects are as recorded. Return the remaining differences."""
        missing = [observed for observed in tracker if not self._found(observed)]
        if missing:
            self.environment.refresh(from_api=True)
        began = self.environment.now
        while missing := [observed for observed in missing if not self._found(observed)]:
            if self.environment.now - began >= BEHIND:
                return [difference for observed in missing for difference in self._differences(observed)]
            self.environment.advance(self.environment.stride(PACE))
        return []

    def _found(self, observed: Any) -> bool:
        if isinstance(observed, ObservedCount):
            return self._counted(observed)
        return (
            not self._differences(observed) if isinstance(observed, ObservedMachine) else self.matches_history(observed)
        )

    def _counted(self, count: ObservedCount) -> bool:
        now = self.environment.now
        number: int | None = None
        for at, _, snapshot in self.environment.history.moments(0):
            if number == count.recorded and at >= now - AHEAD:
                return True
            number = _number(snapshot, count)
        return number == count.recorded

    def _differences(self, observed: Any) -> list[Difference]:
        if isinstance(observed, ObservedCount):
            place = f"number of {observed.plural} of {observed.node}"
            return [Difference(place, observed.recorded, _number(self.environment.snapshot, observed))]
        if isinstance(observed, ObservedMachine):
            live = self.environment.api.get(f"{MACHINES}/{observed.name}")
            return object_differences(observed.recorded, live, self.bindings, f"VirtualMachine/{observed.name}")
        return observed.compare(self.environment.snapshot.get(*observed.key), self.bindings.trial())


def _number(snapshot: Snapshot, count: ObservedCount) -> int:
    return len(snapshot.of_node(count.plural, count.node))
