# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet record of a cluster's GPUs, the common source of the map, metrics and exports. Pure.

The record is built from the result of harvester_gpu_info, or from the results of vsphere_gpu_info and
vgpu_availability. It has the same keys on both platforms and can be serialized as JSON.

The counts have the same meaning everywhere: `total` counts vGPUs that VMs can have, used or not; `in_use` those of
running VMs; `claimed` those of VMs that are stopped or wait; `free` those that remain when these VMs have started too.
On vSphere a vGPU exists only while its VM runs, so `free` is the remaining capacity, counted for each profile alone
(`shares_room`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ...module_utils.availability.counts import Availability
from ...module_utils.errors import FleetError
from ...module_utils.fleet import catalog
from ...module_utils.fleet.mig import geometry_of, served_type, size_of
from ...module_utils.fleet.model import HARVESTER, MIG, VSPHERE, Fleet, Gpu, Node
from ...module_utils.fleet.profile import parse_or_none
from ...module_utils.fleet.shared_instances import known_use, shared_layouts
from ...module_utils.planning.capacity import AllowedChanges, classify_slots, max_additional

Record = dict[str, Any]
Result = Mapping[str, Any]

# Increase the version when keys change their meaning or are removed, not when keys are added.
RECORD_VERSION = 1

IN_USE = "in_use"
CLAIMED = "claimed"
FREE = "free"
DRIFTED = "drifted"
UNUSABLE = "unusable"
# States of a vGPU, in display order.
STATES = (IN_USE, CLAIMED, FREE, DRIFTED, UNUSABLE)

# Findings that a restart resolves, and the object to restart.
RESTARTS = {"restart_required": "vm", "graphics_pending": "host", "type_differs": "node", "mig_differs": "node"}

UNAVAILABLE = {HARVESTER: ("not ready", "cordoned"), VSPHERE: ("not connected", "in maintenance mode")}


class NotAFleet(FleetError):
    code = "not_a_fleet"


def fleet_record(info: Result, availability: Result | None = None, *, cluster: str = "") -> Record:
    """Return the record of one Harvester cluster or vCenter.

    `info` is a result of harvester_gpu_info or vsphere_gpu_info. `availability` is a result of vgpu_availability for
    the same system. It provides the remaining capacity on vSphere and is not needed on Harvester.
    """
    platform = platform_of(info)
    if platform == VSPHERE and not (availability and "profiles" in availability):
        raise NotAFleet(
            "The record of a vCenter needs the result of vgpu.fleet.vgpu_availability.",
            hint="Run it with platform: vsphere for the same hosts, and pass its result as availability.",
        )
    view: _View = _HarvesterView(info) if platform == HARVESTER else _VsphereView(info, availability or {})
    nodes = [_node(view, node) for node in info["nodes"]]
    placed = {finding["device"] for node in nodes for finding in findings_of(node)}
    return {
        "record_version": RECORD_VERSION,
        "cluster": cluster,
        "platform": platform,
        "version": str((info.get(platform) or {}).get("version") or ""),
        "shares_room": platform == VSPHERE,
        **_sums(nodes),
        "profiles": view.profiles(),
        "nodes": nodes,
        "requests": [_request(claim) for claim in view.claims()],
        "findings": [_finding(item) for item in info.get("findings") or () if item["device"] not in placed],
    }


def platform_of(info: Result) -> str:
    """Return the platform of a result."""
    if not isinstance(info, Mapping) or not isinstance(info.get("nodes"), Sequence):
        raise NotAFleet(
            "This is not a result of vgpu.fleet.harvester_gpu_info or vgpu.fleet.vsphere_gpu_info: it has no nodes.",
            hint="Register the module's result and pass all of it.",
        )
    for gpu in (gpu for node in info["nodes"] for gpu in node["gpus"]):
        if "slots" not in gpu:
            raise NotAFleet(
                f"The record of GPU {gpu['name']} counts its vGPUs instead of listing them.",
                hint="Read the GPUs with detail: full.",
            )
    for platform in (HARVESTER, VSPHERE):
        if platform in info:
            return platform
    platforms = {gpu.get("platform") for node in info["nodes"] for gpu in node["gpus"]}
    return VSPHERE if platforms == {VSPHERE} else HARVESTER


def gpus_of(record: Result) -> Iterator[tuple[Record, Record]]:
    """Yield each GPU of a record with its node."""
    for node in record["nodes"]:
        for gpu in node["gpus"]:
            yield node, gpu


def findings_of(node: Result) -> Iterator[Record]:
    """Yield the findings of a node, its GPUs and their vGPUs."""
    yield from node["findings"]
    for gpu in node["gpus"]:
        yield from gpu["findings"]
        for vgpu in gpu["vgpus"]:
            yield from vgpu["findings"]


def restarts_of(node: Result) -> list[Record]:
    """Return the findings on a node that wait for a restart, each finding once."""
    return list({finding["text"]: finding for finding in findings_of(node) if finding["restart"]}.values())


class _View:
    """The base of the platform-specific views."""

    platform: str

    def __init__(self, info: Result) -> None:
        self.info = info
        self.findings: dict[str, list[Record]] = {}
        for finding in info.get("findings") or ():
            self.findings.setdefault(finding["device"], []).append(_finding(finding))

    def profiles(self) -> list[Record]:
        raise NotImplementedError

    def claims(self) -> Iterable[Result]:
        """Yield the unbound requests of VMs."""
        raise NotImplementedError

    def gpu_profiles(self, node: Result, gpu: Result, vgpus: Iterable[Record]) -> list[Record]:
        raise NotImplementedError

    def available_profiles(self, node: Result, gpu: Result) -> list[Record]:
        """Return the profiles that the GPU can still take, each counted alone, the largest first."""
        raise NotImplementedError

    def geometry(self, gpu: Result, vgpus: Iterable[Record]) -> list[Record]:
        """Return the existing MIG instances, the largest first."""
        raise NotImplementedError


class _HarvesterView(_View):
    platform = HARVESTER

    def __init__(self, info: Result) -> None:
        super().__init__(info)
        self._room: dict[Any, list[Record]] = {}

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet.from_dict(self.info)

    @cached_property
    def gpus(self) -> dict[str, tuple[Node, Gpu]]:
        return {gpu.name: (node, gpu) for node in self.fleet.nodes for gpu in node.gpus}

    @cached_property
    def available(self) -> Availability:
        return Availability(self.fleet, frozenset(node.name for node in self.fleet.nodes))

    def profiles(self) -> list[Record]:
        found = self.available.profile_records(lambda name: {"short": short_name(name)})
        return _profiles(found, "creatable")

    def claims(self) -> Iterable[Result]:
        return [claim.as_dict() for claim in self.fleet.counted_claims]

    def gpu_profiles(self, node: Result, gpu: Result, vgpus: Iterable[Record]) -> list[Record]:
        found: dict[str, Counter[str]] = {}
        for vgpu in vgpus:
            if vgpu["profile"]:
                found.setdefault(vgpu["profile"], Counter())[vgpu["state"]] += 1
        return [
            {
                "profile": name,
                "short": short_name(name),
                "total": sum(states.values()),
                **{state: states[state] for state in (IN_USE, CLAIMED, FREE)},
            }
            for name, states in sorted(found.items())
        ]

    def available_profiles(self, node: Result, gpu: Result) -> list[Record]:
        owner, device = self.gpus[gpu["name"]]
        if not owner.usable:
            return []
        site = classify_slots(device, owner)
        # Most GPUs of a large fleet are alike and have the same capacity.
        if site.likeness not in self._room:
            names = {name for slot in site.empty for name in slot.offered or ()}
            # In MIG mode the driver lists only the types of existing instances, although more instances may be
            # possible.
            if device.mode == MIG or any(slot.offered is None for slot in site.empty):
                names |= {name for board in device.boards for name in catalog.type_names(board)}
            means = AllowedChanges(mig=True)
            counts = {
                name: max_additional(site, parsed.key, name, means) for name in names if (parsed := parse_or_none(name))
            }
            self._room[site.likeness] = _available(counts)
        return [dict(room) for room in self._room[site.likeness]]

    def geometry(self, gpu: Result, vgpus: Iterable[Record]) -> list[Record]:
        if gpu["mode"] != MIG:
            return []
        used = Counter(vgpu["profile"] for vgpu in vgpus if vgpu["profile"])
        return _shared_instances(gpu, used) or _instances(gpu["max_instances"], used)


class _VsphereView(_View):
    platform = VSPHERE

    def __init__(self, info: Result, availability: Result) -> None:
        super().__init__(info)
        self.availability = availability
        self.rooms: dict[str, list[Record]] = {}
        for profile in availability["profiles"]:
            for node in profile["nodes"]:
                for gpu in node.get("gpus") or ():
                    self.rooms.setdefault(gpu["gpu"], []).append({**gpu, "profile": profile["profile"]})

    def profiles(self) -> list[Record]:
        return _profiles(self.availability["profiles"], None)

    def claims(self) -> Iterable[Result]:
        return list(self.info.get("claims") or ())

    def gpu_profiles(self, node: Result, gpu: Result, vgpus: Iterable[Record]) -> list[Record]:
        return [
            {
                "profile": room["profile"],
                "short": short_name(room["profile"]),
                "total": room["in_use"] + room["free_now"],
                IN_USE: room["in_use"],
                CLAIMED: 0,
                FREE: room["free"],
            }
            for room in self.rooms.get(gpu["name"], ())
        ]

    def available_profiles(self, node: Result, gpu: Result) -> list[Record]:
        return _available({room["profile"]: room["free_now"] for room in self.rooms.get(gpu["name"], ())})

    def geometry(self, gpu: Result, vgpus: Iterable[Record]) -> list[Record]:
        """Return the MIG instances in use: vSphere creates and removes instances with the VMs."""
        if gpu["mode"] != MIG:
            return []
        used = Counter(vgpu["profile"] for vgpu in vgpus if vgpu["profile"])
        return _instances(used, used)


def _node(view: _View, node: Result) -> Record:
    usable = node["ready"] and node["schedulable"]
    labels = node.get("labels") or {}
    found = {
        "name": node["name"],
        "ready": node["ready"],
        "schedulable": node["schedulable"],
        "unavailable_reason": "" if usable else UNAVAILABLE[view.platform][bool(node["ready"])],
        "cluster": labels.get("cluster", "") if view.platform == VSPHERE else "",
        "datacenter": labels.get("datacenter", "") if view.platform == VSPHERE else "",
        "findings": view.findings.get(node["name"], []),
        "gpus": [_gpu(view, node, gpu) for gpu in node["gpus"]],
    }
    return {**found, **_sums([found])}


def _gpu(view: _View, node: Result, gpu: Result) -> Record:
    vgpus = [_vgpu(view, node, gpu, slot) for slot in gpu["slots"] if slot["profile"] or slot["requested"]]
    states = Counter(vgpu["state"] for vgpu in vgpus)
    used = sum(vgpu["framebuffer_mib"] or 0 for vgpu in vgpus if vgpu["profile"])
    geometry = view.geometry(gpu, vgpus)
    cut = sum((instance["framebuffer_mib"] or 0) * instance["count"] for instance in geometry)
    boards = gpu.get("possible_boards") or []
    return {
        "name": gpu["name"],
        "address": gpu["address"],
        "board": gpu["board"] or " or ".join(boards),
        "framebuffer_mib": _framebuffer(gpu, max(used, cut)),
        "framebuffer_used_mib": used,
        "mode": gpu["mode"],
        "slices": _slices(gpu, boards),
        "geometry": geometry,
        "vgpu_enabled": gpu["vgpu_enabled"],
        "graphics_type": gpu.get("graphics_type"),
        "unavailable_reason": gpu.get("unavailable_reason") or gpu.get("unstable_reason") or "",
        "restart_pending": bool(gpu.get("pending")),
        "exact": gpu.get("exact", True),
        "notes": list(gpu.get("notes") or ()),
        "total": len(vgpus),
        **{state: states[state] for state in STATES},
        "profiles": view.gpu_profiles(node, gpu, vgpus),
        "vgpus": vgpus,
        "available_profiles": view.available_profiles(node, gpu),
        "findings": view.findings.get(gpu["name"], []),
    }


def _vgpu(view: _View, node: Result, gpu: Result, slot: Result) -> Record:
    name = slot["profile"] or slot["requested"]
    about = [slot["name"], *(_path(holder) for holder in slot["holders"])]
    return {
        "name": slot["name"],
        "address": slot["address"],
        "profile": slot["profile"],
        "requested": slot["requested"],
        "short": short_name(name),
        "framebuffer_mib": framebuffer_of(name),
        "state": _state(node, gpu, slot),
        "drifted": slot["drifted"],
        "holders": [_holder(holder) for holder in slot["holders"]],
        "findings": [finding for device in dict.fromkeys(about) for finding in view.findings.get(device, ())],
    }


def _state(node: Result, gpu: Result, slot: Result) -> str:
    """Return the state of a vGPU. In use and claimed take precedence, because such a vGPU must not be lost."""
    if slot["profile"] and any(holder["running"] for holder in slot["holders"]):
        return IN_USE
    if slot["profile"] and slot["holders"]:
        return CLAIMED
    if slot["drifted"]:
        return DRIFTED
    if gpu.get("unavailable_reason") or slot["state"] != "allocatable" or not (node["ready"] and node["schedulable"]):
        return UNUSABLE
    return FREE


def _sums(nodes: Sequence[Result]) -> Record:
    gpus = [gpu for node in nodes for gpu in node["gpus"]]
    return {
        "gpu_count": len(gpus),
        "framebuffer_mib": sum(gpu["framebuffer_mib"] or 0 for gpu in gpus),
        "framebuffer_used_mib": sum(gpu["framebuffer_used_mib"] for gpu in gpus),
        **{key: sum(gpu[key] for gpu in gpus) for key in ("total", *STATES)},
    }


def _profiles(found: Iterable[Result], more: str | None) -> list[Record]:
    def counts(profile: Result) -> Record:
        return {
            "total": profile["allocatable"],
            "in_use": profile["in_use"],
            "claimed": profile["claimed"],
            "free": profile["free"],
            "available": profile[more] if more else profile["free"],
        }

    listed = [
        {
            "profile": profile["profile"],
            "short": short_name(profile["profile"]),
            "framebuffer_mib": framebuffer_of(profile["profile"]),
            **counts(profile),
            "nodes": [{"node": node["node"], **counts(node)} for node in profile["nodes"]],
        }
        for profile in found
    ]
    return sorted(listed, key=lambda item: _largest_first(item["profile"]))


def _available(counts: Mapping[str, int]) -> list[Record]:
    return [
        {"profile": name, "short": short_name(name), "count": counts[name], "framebuffer_mib": framebuffer_of(name)}
        for name in sorted(counts, key=_largest_first)
        if counts[name]
    ]


def _instances(counts: Mapping[str, int], used: Mapping[str, int]) -> list[Record]:
    found = []
    for name in sorted(counts, key=_largest_first):
        parsed = parse_or_none(name)
        size = size_of(parsed) if parsed else None
        if counts[name]:
            found.append(
                {
                    "instance": size.name if size else short_name(name),
                    "profile": name,
                    "short": short_name(name),
                    "framebuffer_mib": framebuffer_of(name),
                    "count": counts[name],
                    "empty": max(counts[name] - used.get(name, 0), 0),
                }
            )
    return found


def _shared_instances(gpu: Result, used: Mapping[str, int]) -> list[Record]:
    """Return the instances of a GPU whose instances serve several vGPUs each. An empty one has no vGPU for certain."""
    boards: Sequence[str] = gpu.get("possible_boards") or ()
    shared = shared_layouts(boards[0]) if len(boards) == 1 else None
    if shared is None:
        return []
    keys = Counter({parsed.key: count for name, count in used.items() if (parsed := parse_or_none(name))})
    taken = shared.instances(shared.needed(Counter({key: n for key, n in keys.items() if known_use(shared, key)})))
    found = []
    for size in shared.geometry.sizes:
        count = int((gpu.get("mig_instances") or {}).get(size.name, 0))
        serves = served_type(boards[0], size)
        if count and serves:
            found.append(
                {
                    "instance": size.name,
                    "profile": serves,
                    "short": short_name(serves),
                    "framebuffer_mib": size.gib * 1024,
                    "count": count,
                    "empty": max(count - taken[size], 0),
                }
            )
    return found


def _request(claim: Result) -> Record:
    in_use = claim["holder"]["running"] and not claim.get("pending", False)
    return {
        "holder": _holder(claim["holder"]),
        "profile": claim["profile"],
        "short": short_name(claim["profile"]),
        "count": claim["count"],
        "node": claim["node"],
        "state": IN_USE if in_use else CLAIMED,
        "restart_pending": bool(claim.get("pending")),
    }


def _holder(holder: Result) -> Record:
    return {"kind": holder["kind"], "path": _path(holder), "running": holder["running"]}


def _path(holder: Result) -> str:
    return f"{holder['namespace']}/{holder['name']}" if holder.get("namespace") else str(holder["name"])


def _finding(finding: Result) -> Record:
    return {
        "kind": finding["kind"],
        "device": finding["device"],
        "text": finding["text"],
        "restart": RESTARTS.get(finding["kind"], ""),
    }


def _framebuffer(gpu: Result, needed: int) -> int | None:
    """Return the GPU's framebuffer: from the platform, else the catalog, else the largest available profile."""
    told = gpu.get("framebuffer_mib")
    if told:
        return int(told)
    boards = [board for board in map(catalog.find_board, gpu.get("possible_boards") or ()) if board]
    if boards:
        return max(min(board.framebuffer_mib for board in boards), needed)
    offered = {name for slot in gpu["slots"] for name in (slot["available_profiles"] or ())}
    return max([needed, *(framebuffer_of(name) or 0 for name in offered)]) or None


def _slices(gpu: Result, boards: Sequence[str]) -> int | None:
    """Return the number of memory slices of the GPU in MIG mode."""
    geometry = geometry_of(boards[0]) if gpu["mode"] == MIG and len(boards) == 1 else None
    return geometry.memory if geometry else None


def framebuffer_of(profile: str | None) -> int | None:
    parsed = parse_or_none(profile)
    return parsed.mib if parsed else None


def short_name(profile: str) -> str:
    """Return a profile's name without the brand, spelled alike on all platforms."""
    listed = catalog.find_profile(profile)
    parsed = parse_or_none(profile)
    if listed:
        return listed.short
    return parsed.short if parsed else profile


def _largest_first(profile: str) -> tuple[Any, ...]:
    parsed = parse_or_none(profile)
    return (0, parsed.key[0], -parsed.mib, -parsed.slices, profile) if parsed else (1, "", 0, 0, profile)
