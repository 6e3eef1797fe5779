# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan single vGPU devices that are requested by name, or explain why they are not possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...errors import FleetError, InvalidDemand, did_you_mean, join_names
from ...fleet import catalog
from ...fleet.mig import InstanceSize, format_instances, geometry_of, size_of
from ...fleet.model import MIG, Fleet, Gpu, Slot, could_be
from ...fleet.profile import Key, parse, parse_or_none
from ...fleet.shared_instances import shared_layouts
from ...planning.capacity import foreign_instances, framebuffer_of, group_of, instances_of
from ...planning.plan import Plan, known_profiles
from ...planning.request import Policy
from ...planning.steps import CORRECT, DISABLE, ENABLE, ENABLE_SRIOV, Step, partitioning
from .in_use import DeviceInUse, check_claims


class UnknownDevice(FleetError):
    code = "unknown_device"


class NeedsReprofile(FleetError):
    code = "needs_reprofile"


class NotPossible(FleetError):
    code = "does_not_fit"


class SriovOff(FleetError):
    code = "sriov_off"


@dataclass(frozen=True)
class DeviceRequest:
    """The target of one device. An enabled device without a profile keeps the one it has."""

    name: str
    profile: str | None = None
    enabled: bool = True


@dataclass
class _Work:
    """The changes to one GPU."""

    gpu: Gpu
    share: bool = False
    cut: Step | None = None
    correct: list[Slot] = field(default_factory=list)
    disable: list[Slot] = field(default_factory=list)
    enable: list[tuple[str, str]] = field(default_factory=list)

    def steps(self) -> Iterable[Step]:
        gpu = self.gpu
        if self.share:
            yield Step(ENABLE_SRIOV, gpu.node, gpu.name)
        for slot in sorted(self.correct, key=lambda slot: (slot.address, slot.name)):
            yield Step(CORRECT, gpu.node, gpu.name, slot.name, before=slot.wanted, after=slot.profile)
        for slot in sorted(self.disable, key=lambda slot: (slot.address, slot.name)):
            yield Step(DISABLE, gpu.node, gpu.name, slot.name, before=slot.profile or slot.wanted)
        if self.cut:
            yield self.cut
        for name, type_name in sorted(self.enable):
            yield Step(ENABLE, gpu.node, gpu.name, name, after=type_name)


def plan_devices(fleet: Fleet, requests: Sequence[DeviceRequest], policy: Policy) -> Plan:
    """Plan all devices together. `policy.exclusive` applies to the GPUs of the named devices."""
    _check_names(requests)
    known = known_profiles(fleet)
    resolved = {request.name: known.resolve(request.profile) if request.profile else None for request in requests}
    places = {slot.name: (gpu, slot) for gpu, slot in fleet.slots()}
    work: dict[str, _Work] = {}
    waiting: list[str] = []
    drifted: list[str] = []
    held: list[Slot] = []
    for request in requests:
        gpu, slot = places.get(request.name, (None, None))
        if gpu is None or slot is None:
            gpu = _gpu_to_be(fleet, request.name)
            if request.enabled:
                job = work.setdefault(gpu.name, _Work(gpu))
                job.share = _allowed_to_share(gpu, request, policy)
                job.enable.append((request.name, _type_for(request, resolved[request.name])))
            continue
        job = work.setdefault(gpu.name, _Work(gpu))
        wanted = resolved[request.name] or (slot.wanted if request.enabled else None)
        if request.enabled:
            wanted = _type_for(request, wanted)
        if _in_place(slot, wanted):
            if slot.state not in ("allocatable", "empty"):
                waiting.append(slot.name)
            continue
        if slot.correctable and slot.profile == wanted:
            job.correct.append(slot)
            continue
        if not slot.empty:
            if slot.holders:
                held.append(slot)
            elif wanted and not policy.reprofile:
                drifted.append(slot.name)
                raise _needs_reprofile(slot, wanted)
            if slot.wanted:
                job.disable.append(slot)
        if wanted:
            job.enable.append((slot.name, wanted))
    if policy.exclusive:
        _add_unasked(work, {request.name for request in requests}, held)
    if held:
        raise DeviceInUse(held, "change vGPUs")
    for job in work.values():
        _check(job, policy)
    by_gpu = {gpu.name: number for number, gpu in enumerate(fleet.gpus)}
    steps = [step for name in sorted(work, key=by_gpu.__getitem__) for step in work[name].steps()]
    plan = Plan(tuple(steps), waiting=tuple(waiting), drifted=tuple(drifted), fleet=fleet)
    check_claims(fleet, plan.after, "change vGPUs")
    return plan


def _check_names(requests: Sequence[DeviceRequest]) -> None:
    twice = [name for name, count in Counter(request.name for request in requests).items() if count > 1]
    if twice:
        raise InvalidDemand(f"Device {join_names(twice)} is listed more than once.", hint="Name each device once.")


def _type_for(request: DeviceRequest, type_name: str | None) -> str:
    if not type_name:
        raise InvalidDemand(
            f"vGPU {request.name} cannot be enabled without a profile.", hint="Name one, such as NVIDIA A2-4Q."
        )
    return type_name


def _in_place(slot: Slot, wanted: str | None) -> bool:
    """Return whether the slot needs no write. The task may still have to wait."""
    if wanted is None:
        return slot.wanted is None
    return slot.wanted == wanted and slot.profile in (None, wanted)


def _needs_reprofile(slot: Slot, wanted: str) -> NeedsReprofile:
    if slot.profile == wanted:
        return NeedsReprofile(
            f"vGPU {slot.name} is handed out as {wanted}, and is {slot.hardware or slot.wanted or 'being disabled'}.",
            hint="Set reprofile: true to disable it and enable it again.",
        )
    was = f"is {slot.profile}" if slot.profile else f"requests {slot.wanted} but was never configured"
    if slot.wanted == wanted and slot.profile:
        return NeedsReprofile(
            f"vGPU {slot.name} requests {wanted}, but its node offers it as {slot.profile}.",
            hint="Set reprofile: true to disable it and enable it again.",
        )
    return NeedsReprofile(
        f"vGPU {slot.name} {was}, and should be {wanted}.",
        hint="Set reprofile: true to have it disabled and enabled with the new profile.",
    )


def _gpu_to_be(fleet: Fleet, name: str) -> Gpu:
    """Return the GPU that a device will belong to once SR-IOV is enabled: the GPU on the same bus of the same node."""
    found = [gpu for gpu in fleet.gpus if not gpu.sharing and _same_bus(gpu.name, name)]
    if len(found) == 1:
        return found[0]
    names = [slot.name for _gpu, slot in fleet.slots()]
    alike = did_you_mean(name, names)
    off = join_names(gpu.name for gpu in fleet.gpus if not gpu.sharing)
    raise UnknownDevice(
        f"There is no vGPU device {name}.",
        hint=f"Did you mean {' or '.join(alike[:2])}?"
        if alike
        else f"SR-IOV is off on GPU {off}: its devices only exist once it is on.",
    )


def belongs(device: str, gpu: Gpu) -> bool:
    """Return whether a vGPU device belongs to the GPU, or will once it exists."""
    return any(slot.name == device for slot in gpu.slots) or _same_bus(gpu.name, device)


def _same_bus(gpu: str, device: str) -> bool:
    # Both names end in domain, bus, slot and function: 4, 2, 2 and 1 hexadecimal digits.
    return gpu[:-3] == device[:-3] and gpu != device


def _allowed_to_share(gpu: Gpu, request: DeviceRequest, policy: Policy) -> bool:
    if gpu.blocked:
        raise SriovOff(f"SR-IOV is off on GPU {gpu.name} of vGPU {request.name}, and it is {gpu.blocked}.")
    if not policy.enable_sriov:
        raise SriovOff(
            f"vGPU {request.name} does not exist: SR-IOV is off on GPU {gpu.name}.",
            hint="Set enable_sriov: true, or switch it on with vgpu.fleet.harvester_sriov_gpu.",
        )
    return True


def _add_unasked(work: dict[str, _Work], named: set[str], held: list[Slot]) -> None:
    for job in work.values():
        for slot in job.gpu.ordered_slots:
            if slot.wanted and slot.name not in named:
                (held if slot.holders else job.disable).append(slot)


def _check(job: _Work, policy: Policy) -> None:
    """Check that the vGPUs to enable fit on the GPU, including rules that the webhook does not check."""
    if not job.enable:
        return
    gpu = job.gpu
    going = {slot.name for slot in job.disable}
    taking = {name for name, _type in job.enable}
    staying = [
        (slot.name, slot.profile or slot.wanted or "")
        for slot in gpu.ordered_slots
        if not slot.empty and slot.name not in going and slot.name not in taking
    ]
    _check_boards(gpu, job.enable)
    if gpu.unstable:
        raise NotPossible(
            f"vGPUs cannot be enabled on GPU {gpu.name}: {gpu.unstable}.",
            hint="vgpu.fleet.harvester_gpu_info reports it as mig_unstable, with the remedy.",
        )
    if gpu.mode == MIG:
        _cut_if_needed(job, staying, policy)
    else:
        _check_sizes(gpu, staying, job.enable)
        _check_counts(gpu, staying, job.enable)
    if not job.cut and not going and not job.share:
        _check_offers(gpu, staying, job.enable)


def _check_boards(gpu: Gpu, enable: list[tuple[str, str]]) -> None:
    for name, type_name in enable:
        if not could_be(gpu, parse(type_name)):
            raise NotPossible(
                f"vGPU {name} cannot be {type_name}: GPU {gpu.name} is of board {join_names(gpu.boards)}.",
                hint="Choose a profile of that board.",
            )


def _cut_if_needed(job: _Work, staying: list[tuple[str, str]], policy: Policy) -> None:
    """Plan the instances that MIG profiles need: existing ones, or new ones on a GPU that keeps no vGPUs."""
    gpu = job.gpu
    has = instances_of(gpu)
    needed: Counter[InstanceSize] = Counter()
    shared = shared_layouts(gpu.boards[0]) if len(gpu.boards) == 1 else None
    on_shared: Counter[Key] = Counter()
    offered = {slot.name: slot.offered or () for slot in gpu.slots}
    for name, type_name in (*staying, *job.enable):
        parsed = parse_or_none(type_name)
        size = size_of(parsed) if parsed else None
        if parsed is None or size is None:
            raise NotPossible(f"vGPU {name} cannot be {type_name}: GPU {gpu.name} is in MIG mode.")
        if shared:
            on_shared[parsed.key] += 1
            continue
        # An offered type has an instance even if it is not counted: the count of a GPU that is out of sync is outdated.
        if size in has or type_name not in offered.get(name, ()):
            needed[size] += 1
    if shared:
        needed = shared.instances(shared.needed(on_shared))
    geometry = geometry_of(gpu.boards[0]) if len(gpu.boards) == 1 else None
    if needed <= has or (geometry is None and gpu.sharing):
        return
    if staying:
        named = join_names(f"{name} ({type_name})" for name, type_name in staying)
        raise NotPossible(
            f"GPU {gpu.name} has {format_instances(has)} and needs {format_instances(needed)}."
            f" MIG instances change only while a GPU has no vGPUs, and it has {named}.",
            hint="Name these vGPUs with state disabled, or choose another GPU.",
        )
    foreign = foreign_instances(gpu)
    if foreign:
        raise NotPossible(
            f"GPU {gpu.name} has {format_instances(foreign)}, which serve no vGPU and are kept.",
            hint="Replace them with vgpu.fleet.harvester_mig and relayout: true.",
        )
    cut = has | needed
    if geometry and not geometry.fits(cut) and policy.reprofile:
        cut = needed
    if geometry is None or not geometry.fits(cut):
        why = geometry.why_not(cut) if geometry else "its board is not known"
        raise NotPossible(
            f"GPU {gpu.name} cannot be cut into {format_instances(cut)}: {why}.", hint=_reprofile_hint(has)
        )
    if not policy.enable_mig:
        relayout = ", relayout: true" if has else ""
        raise NotPossible(
            f"GPU {gpu.name} has {format_instances(has)} and needs {format_instances(needed)}.",
            hint=f"Set enable_mig: true, or first use vgpu.fleet.harvester_mig with gpus: [{gpu.name}]{relayout} and"
            f" instances: {format_instances(cut)}.",
        )
    job.cut = partitioning(gpu, {size: cut[size] for size in geometry.sizes})


def _reprofile_hint(has: Counter[InstanceSize]) -> str:
    return f"It has {format_instances(has)}; with reprofile: true unused ones may be removed." if has else ""


def _check_sizes(gpu: Gpu, staying: list[tuple[str, str]], enable: list[tuple[str, str]]) -> None:
    sizes: dict[object, tuple[str, str]] = {}
    for name, type_name in (*staying, *enable):
        parsed = parse_or_none(type_name)
        if parsed:
            sizes.setdefault(group_of(parsed.key), (name, type_name))
    if len(sizes) > 1:
        said = " and ".join(f"{name} {type_name}" for name, type_name in list(sizes.values())[:2])
        raise NotPossible(
            f"GPU {gpu.name} cannot have vGPUs of different sizes: {said}.",
            hint="All vGPUs of a GPU have the same framebuffer, whatever their series.",
        )


def _check_counts(gpu: Gpu, staying: list[tuple[str, str]], enable: list[tuple[str, str]]) -> None:
    total = len(staying) + len(enable)
    for type_name in sorted({type_name for _name, type_name in enable}):
        found = catalog.max_instances(type_name, live=gpu.max_instances, framebuffer_mib=framebuffer_of(gpu))
        # A GPU with vGPUs offers their size only, so that its framebuffer cannot be estimated. Its offers decide.
        limit = None if found.source == "estimated" and staying else found.count
        if limit is not None and total > limit:
            has = f", and has {len(staying)}: {join_names(name for name, _type in staying)}" if staying else ""
            raise NotPossible(
                f"GPU {gpu.name} takes {limit} vGPUs of the size of {type_name}{has}; {len(enable)} more do not fit.",
                hint="Disable others, or choose a smaller profile.",
            )


def _check_offers(gpu: Gpu, staying: list[tuple[str, str]], enable: list[tuple[str, str]]) -> None:
    slots = {slot.name: slot for slot in gpu.slots}
    for name, type_name in enable:
        offered = slots[name].offered or ()
        if type_name in offered or slots[name].profile:
            continue
        has = join_names(f"{other} {its}" for other, its in staying)
        raise NotPossible(
            f"vGPU {name} does not offer {type_name}; it offers {join_names(offered, limit=20)}.",
            hint=f"GPU {gpu.name} has {has}." if staying else _why_nothing(gpu),
        )


def _why_nothing(gpu: Gpu) -> str:
    return f"GPU {gpu.name} is in MIG mode and has no instances for it." if gpu.mode == MIG else ""
