# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detect GPUs whose devices are still changing, and whether the change makes progress.

Harvester has no marker for work in progress. But a device that differs from its spec, a claim that is being deleted,
and a vGPU device that offers other types than the vGPUs next to it allow, are states that do not last while the
controller of their node works. If such a state stays unchanged for longer than the controller is ever idle, or if its
last change is long ago, the controller does not work on it, and waiting does not help.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ...errors import join_names
from ...fleet import catalog
from ...fleet.mig import read_size, serves_nothing
from ...fleet.profile import parse_or_none
from ...kube.client import Json
from ...planning.capacity import Group, group_of
from .. import paths as r
from .mig_configuration import SYNCED, read_configuration
from .snapshot import Snapshot, skips_mig

# Refusals that depend on the state of devices. Waiting does not change what a VM uses or a user mistypes.
DEPENDS_ON_DEVICES = frozenset(
    {
        "demand_does_not_fit",
        "does_not_fit",
        "gpu_blocked",
        "needs_relayout",
        "needs_reprofile",
        "no_room",
        "no_suitable_gpu",
        "pool_does_not_fit",
        "profile_not_offered",
        "roll_would_hang",
        "sriov_off",
        "unknown_device",
        "unknown_profile",
        "vgpus_enabled",
    }
)
SETTLED, STUCK, LATE = "settled", "stuck", "late"


@dataclass(frozen=True)
class Pace:
    """The longest time without a change while a controller works, and the maximum age of the last change."""

    silence: float
    memory: float


# Recorded: a disable begins up to 5 s after its request, then the types of the sibling devices follow every 0.2 s.
WORK = Pace(silence=15, memory=60)
# A node's claims are deleted one by one, 5 s each: the claims of two boards with 32 vGPUs each take 320 s.
CLAIMS = Pace(silence=15, memory=600)
# New devices appear with the scan of their node every 30 s. A driver that is not ready is retried within 5 minutes.
SCAN = Pace(silence=60, memory=300)


@dataclass(frozen=True)
class Unsettled:
    """A GPU that has not settled. `age` is the time since its devices last changed, None if unknown."""

    gpu: str
    node: str
    reason: str
    pace: Pace
    age: float | None = None

    @property
    def moving(self) -> bool:
        return self.age is None or self.age <= self.pace.memory

    def as_dict(self) -> dict[str, Any]:
        return {"gpu": self.gpu, "node": self.node, "reason": self.reason, "moving": self.moving}


def unsettled(
    snapshot: Snapshot, gpus: Collection[str], now: float, *, until_counted: bool = False
) -> tuple[Unsettled, ...]:
    """Return the GPUs that are still changing.

    With `until_counted`, a vGPU counts as changing until it is allocatable.
    """
    found: list[Unsettled] = []
    for name in sorted(gpus):
        gpu = snapshot.gpus.items.get(name)
        reason = _reason(snapshot, name, gpu) if gpu else None
        if gpu and not reason and until_counted:
            reason = _uncounted(snapshot, name)
        if gpu and reason:
            last = max(_times(snapshot, name, gpu), default=None)
            age = None if last is None else max(0.0, now - last)
            found.append(Unsettled(name, gpu["spec"].get("nodeName", ""), *reason, age))
    return tuple(found)


def _reason(snapshot: Snapshot, name: str, gpu: Json) -> tuple[str, Pace] | None:
    status, children = gpu.get("status") or {}, snapshot.vgpus_by_gpu.get(name, [])
    claim = snapshot.claims.items.get(name)
    if claim and "deletionTimestamp" in claim["metadata"]:
        return "its claim for passthrough is being deleted", CLAIMS
    if not gpu["spec"].get("enabled"):
        return ("SR-IOV is being disabled", SCAN) if status.get("vfAddresses") or children else None
    functions = status.get("vGPUDevices") or []
    if not functions:
        return "SR-IOV is being enabled", SCAN
    missing = [function for function in functions if function not in snapshot.vgpus.items]
    if missing:
        return f"{len(missing)} of its {len(functions)} vGPU devices do not exist yet", SCAN
    return (
        _claims_going(snapshot, children)
        or _behind(snapshot, children)
        or _mig_under_way(snapshot, name, gpu)
        or _types_outdated(snapshot, name, children)
    )


def _claims_going(snapshot: Snapshot, children: list[Json]) -> tuple[str, Pace] | None:
    names = (vgpu["metadata"]["name"] for vgpu in children)
    claims = ((name, snapshot.claims.items.get(name)) for name in names)
    going = [name for name, claim in claims if claim and "deletionTimestamp" in claim["metadata"]]
    return (f"claims of disabled vGPUs are being deleted: {join_names(going, limit=3)}", CLAIMS) if going else None


def _behind(snapshot: Snapshot, children: list[Json]) -> tuple[str, Pace] | None:
    """Find devices whose status has not reached their spec. A device with another type stays so: that is drift."""
    enabling: list[str] = []
    disabling: list[str] = []
    for vgpu in children:
        status, name = vgpu.get("status") or {}, vgpu["metadata"]["name"]
        if vgpu["spec"].get("enabled"):
            # Up to 1.7, the name of the type follows after the rest of the status.
            half = not snapshot.version.vendor_vfio and not status.get("configureVGPUTypeName")
            if status.get("vGPUStatus") != r.CONFIGURED or half:
                enabling.append(name)
        elif status.get("vGPUStatus") or status.get("uuid"):
            disabling.append(name)
    said = [
        f"{what}: {join_names(names, limit=3)}"
        for what, names in (("vGPUs are being enabled", enabling), ("vGPUs are being disabled", disabling))
        if names
    ]
    return ("; ".join(said), WORK) if said else None


def _mig_under_way(snapshot: Snapshot, name: str, gpu: Json) -> tuple[str, Pace] | None:
    item = snapshot.mig.items.get(name)
    if item is None:
        children = snapshot.vgpus_by_gpu.get(name, [])
        shows = any(
            (child.get("status") or {}).get("availableTypes") or snapshot.configured_type(child) for child in children
        )
        names = next((record.boards for record in snapshot.fleet.gpus if record.name == name), ())
        boards = [catalog.find_board(device_name) for device_name in names]
        capable = bool(boards) and all(board and board.mig_capable for board in boards)
        skipped = snapshot.version.skips_mig and skips_mig(gpu)
        if capable and not shows and snapshot.version.has_mig and not skipped:
            return "its MIG configuration does not exist yet", SCAN
        return None
    found = read_configuration(item)
    if found.enabled and not found.settled:
        return "its MIG instances are being created", WORK
    if not found.enabled and found.instances:
        return "its MIG instances are being removed", WORK
    return None


def _types_outdated(snapshot: Snapshot, name: str, children: list[Json]) -> tuple[str, Pace] | None:
    """Return whether empty devices offer other types than the existing vGPUs of the GPU allow.

    The driver supports the same types on all empty functions of a GPU. The controller refreshes them one by one.
    """
    empty = [child for child in children if not child["spec"].get("enabled")]
    offers = {frozenset((device.get("status") or {}).get("availableTypes") or ()) for device in empty}
    if len(offers) > 1:
        return "its vGPU devices do not all offer the same types yet", WORK
    offered = next(iter(offers), frozenset())
    configured = [type_name for child in children if (type_name := snapshot.configured_type(child))]
    mig = snapshot.mig.items.get(name)
    if mig is not None:
        made = read_configuration(mig)
        listed = [size for size in map(read_size, made.profiles) if size]
        board = next((record.board for record in snapshot.fleet.gpus if record.name == name), None)
        serving = sum(count for size, count in made.instances.items() if not serves_nothing(board, size, listed))
        waiting = made.status == SYNCED and serving > len(configured)
        if empty and waiting and not offered:
            return "its vGPU devices do not offer the types of its MIG instances yet", WORK
        return None
    if not empty:
        return None
    told = "its vGPU devices do not offer yet what fits beside the vGPUs it has"
    if not configured:
        if not offered:
            return "its vGPU devices do not offer any types yet", WORK
        sizes = _sizes(offered)
        return (told, WORK) if len(sizes) == 1 and _has_more_sizes(sizes) else None
    present = _sizes(configured)
    if len(present) != 1:
        return None
    if _sizes(offered) - present:
        return told, WORK
    limits = [catalog.max_instances(type_name) for type_name in configured]
    counts = [limit.count for limit in limits if limit.exact and limit.count is not None]
    if len(counts) < len(limits):
        return None
    full = len(configured) >= max(counts)
    room = len(configured) < min(counts)
    return (told, WORK) if (full and offered) or (room and not offered) else None


def _sizes(type_names: Iterable[str]) -> set[Group]:
    return {group_of(parsed.key) for parsed in map(parse_or_none, type_names) if parsed}


def _has_more_sizes(sizes: set[Group]) -> bool:
    board, _size = next(iter(sizes))
    return len({group for group in _sizes(catalog.type_names(board)) if group[1] >= 0}) > 1


def _uncounted(snapshot: Snapshot, name: str) -> tuple[str, Pace] | None:
    slots = [slot for gpu in snapshot.fleet.gpus if gpu.name == name for slot in gpu.ordered_slots]
    late = [slot.name for slot in slots if slot.state == "configured" and not slot.drifted]
    return (f"its node does not count all of its vGPUs yet: {join_names(late, limit=3)}", WORK) if late else None


def _times(snapshot: Snapshot, name: str, gpu: Json) -> Iterator[float]:
    """Yield the times of writes to a GPU's objects, as far as the objects show them."""
    children = snapshot.vgpus_by_gpu.get(name, [])
    names = [name, *(vgpu["metadata"]["name"] for vgpu in children)]
    claims = [claim for device_name in names if (claim := snapshot.claims.items.get(device_name))]
    mig = snapshot.mig.items.get(name)
    for item in (gpu, *children, *claims, *([mig] if mig else [])):
        metadata = item["metadata"]
        for stamp in (
            metadata.get("creationTimestamp"),
            metadata.get("deletionTimestamp"),
            *(entry.get("time") for entry in metadata.get("managedFields") or []),
        ):
            if stamp:
                yield datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()


# Waiting


@dataclass(frozen=True)
class Settling:
    """The result of a wait."""

    verdict: str
    unsettled: tuple[Unsettled, ...] = ()
    seconds: float = 0.0


def wait_until_settled(
    look: Callable[[], Snapshot],
    find: Callable[[Snapshot], tuple[Unsettled, ...]],
    *,
    seconds: float,
    pause: float,
) -> Settling:
    """Check repeatedly until all GPUs have settled, nothing changes any more, or the time is up."""
    began = quiet_since = time.monotonic()
    marks: Any = None
    while True:
        snapshot = look()
        found = find(snapshot)
        now = time.monotonic()
        if not found:
            return Settling(SETTLED, seconds=now - began)
        seen = _marks(snapshot, {unsettled.node for unsettled in found})
        if seen != marks:
            marks, quiet_since = seen, now
        if now - quiet_since > max(unsettled.pace.silence for unsettled in found):
            return Settling(STUCK, found, now - began)
        if now - began >= seconds:
            return Settling(LATE, found, now - began)
        time.sleep(max(0.0, min(pause, seconds - (now - began))))


def _marks(snapshot: Snapshot, nodes: Collection[str]) -> frozenset[tuple[str, str]]:
    """Return the versions of all devices on the nodes. A node's controller works on one device after the other."""
    lists = (snapshot.gpus, snapshot.vgpus, snapshot.claims, snapshot.mig)
    return frozenset(
        (name, str(item["metadata"].get("resourceVersion")))
        for listing in lists
        for name, item in listing.items.items()
        if (item.get("spec") or {}).get("nodeName") in nodes
    )


# Warnings


def stuck(one: Unsettled) -> Unsettled:
    """Mark a GPU as stuck after a wait without changes."""
    return replace(one, age=float("inf"))


def notes(found: Iterable[Unsettled], *, check_mode: bool, seconds: float, refused: bool) -> list[str]:
    """Return the warnings for a result that depends on GPUs that have not settled."""
    moving = [unsettled for unsettled in found if unsettled.moving]
    halted = [unsettled for unsettled in found if not unsettled.moving]
    said: list[str] = []
    if moving and check_mode:
        said.append(
            f"{_told(moving)} still changing, so this answer is not final. Outside check mode the task waits for that."
        )
    elif moving:
        after = f" after {seconds:.0f} s" if seconds else ""
        said.append(f"{_told(moving)} still changing{after}, so this answer is not final.")
    # A plan that avoids a stuck GPU needs no warning about it, unless the task has waited for it in vain.
    if halted and (refused or seconds):
        said.append(
            f"{_told(halted)} stuck: nothing there has changed for a while. See the log of the {r.PCIDEVICES_DAEMONSET}"
            f" pod on node {join_names(unsettled.node for unsettled in halted)}."
        )
    return said


def _told(found: list[Unsettled]) -> str:
    gpus = "; ".join(f"{unsettled.gpu} ({unsettled.reason})" for unsettled in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"GPU {gpus}{more} {'is' if len(found) == 1 else 'are'}"
