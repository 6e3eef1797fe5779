# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a new layout for GPUs that VMs use: the VMs to stop, and the vGPUs that they get. Pure.

The whole change is planned on the fleet first, in the order in which GPUs are changed, without the VMs that may be
stopped. A change that cannot work is refused before any VM is stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from ...availability.packing import MachineGroup, place
from ...errors import FleetError
from ...fleet.model import Fleet, Gpu, Holder, UnboundRequest
from ...fleet.profile_resolver import ProfileResolver
from ...planning import plan as planner
from ...planning.request import PER_GPU, Demand, Policy
from ...planning.steps import Step, after_steps
from ..decide.in_use import protect_running_vms

Json = dict[str, Any]
Layout = Sequence[tuple[str, int]]

NOTHING = "Nothing to do: every GPU has this layout, and every VM has its vGPUs."
POLICY = Policy(exclusive=True, reprofile=True, enable_sriov=True)


class InTheWay(FleetError):
    code = "device_in_use"


class NoRoomForVm(FleetError):
    code = "no_room_for_vm"


@dataclass(frozen=True)
class VmToStop:
    """A VM that may be stopped, with its vGPUs on all GPUs before and after the change."""

    holder: Holder
    before: Counter[str]
    after: Counter[str]
    # Whether the VM runs with other vGPUs than its spec requests.
    pending: bool = False

    @property
    def missing(self) -> bool:
        return self.after != self.before or self.pending

    def as_dict(self) -> Json:
        return {
            "name": self.holder.name,
            "namespace": self.holder.namespace,
            "before": _listed(self.before),
            "after": _listed(self.after),
        }


@dataclass(frozen=True)
class Having:
    """The vGPUs that the spec of a VM requests, and whether the VM runs with others."""

    holder: Holder
    vgpus: Counter[str]
    pending: bool = False


def reprofile_plan(
    read: Fleet,
    gpus: Iterable[str],
    layout: Sequence[Mapping[str, Any]],
    vms: Iterable[Mapping[str, Any]] = (),
    vm_labels: Mapping[str, str] | None = None,
    serial: int = 1,
    having: Iterable[Having] = (),
) -> Json:
    """Return the work in order, `serial` GPUs at a time, the reasons to refuse it, and a description in lines.

    `having` lists all VMs. VMs that are named with vGPUs and lack them are changed even if no GPU changes.
    """
    fleet = protect_running_vms(read)
    wanted = [(str(entry["profile"]), int(entry["count"])) for entry in layout]
    work: list[Json] = []
    refusals: list[str] = []
    try:
        machines = _machines(read, list(vms), vm_labels or {}, {vm.holder.path: vm for vm in having})
    except FleetError as error:
        return {"work": [], "refusals": [str(error)], "lines": [NOTHING]}
    freed = without(fleet, machines)
    differing = [name for name in gpus if not _has(freed, name, wanted)]
    for names in (differing[start : start + serial] for start in range(0, len(differing), serial)):
        try:
            change, fleet = _change(fleet, names, wanted, machines)
        except InTheWay as error:
            refusals.append(str(error))
        except FleetError as error:
            refusals.append(f"{', '.join(names)}: {error}")
        else:
            work.append(change)
    stopped = {f"{vm['namespace']}/{vm['name']}" for change in work for vm in change["vms"]}
    for path, machine in sorted(machines.items()):
        if machine.missing and path not in stopped and not refusals:
            try:
                fleet = _restarted(without(fleet, {path}), [machine])
            except FleetError as error:
                refusals.append(str(error))
            else:
                work.append({"gpus": [], "before": [], "empty": [], "off": [], "vms": [machine.as_dict()]})
    return {"work": work, "refusals": refusals, "lines": [_line(entry, layout) for entry in work] or [NOTHING]}


def _change(fleet: Fleet, names: Sequence[str], wanted: Layout, machines: Mapping[str, VmToStop]) -> tuple[Json, Fleet]:
    """Return the work on some GPUs and the fleet after it."""
    gpus = [gpu for gpu in fleet.gpus if gpu.name in names]
    users = {gpu.name: _users(fleet, gpu, machines) for gpu in gpus}
    stopped = [machines[path] for path in sorted({*chain(*users.values())} & machines.keys())]
    if not any(vm.missing for vm in stopped) and _possible(fleet, names, wanted):
        stopped = []
    freed = without(fleet, {vm.holder.path for vm in stopped})
    try:
        steps = _steps(freed, names, wanted)
    except FleetError as error:
        foreign = {name: [path for path in paths if path not in machines] for name, paths in users.items()}
        said = [
            f"{name} is used by {' and '.join(some)}, which may not be stopped."
            for name, some in foreign.items()
            if some
        ]
        if said:
            raise InTheWay(" ".join(said)) from error
        raise
    change = {
        "gpus": list(names),
        "before": [record for gpu in gpus for record in _before(gpu)],
        "empty": [gpu.name for gpu in gpus if not _before(gpu)],
        "off": [gpu.name for gpu in gpus if not gpu.sharing],
        "vms": [vm.as_dict() for vm in stopped],
    }
    return change, _restarted(after_steps(freed, steps), stopped)


def _machines(
    fleet: Fleet, vms: Sequence[Mapping[str, Any]], labels: Mapping[str, str], having: Mapping[str, Having]
) -> dict[str, VmToStop]:
    """Return the VMs that may be stopped, selected by name or by labels, that have, claim or will get vGPUs."""
    known = planner.known_profiles(fleet)
    gets = {path_of(vm): vm.get("vgpus") for vm in vms}
    held: dict[str, Counter[str]] = {}
    holders: dict[str, Holder] = {}
    for holder, profile, count in _holdings(fleet):
        holders[holder.path] = holder
        held.setdefault(holder.path, Counter())[profile] += count
    for path, one in having.items():
        if path in holders or gets.get(path) is not None:
            holders[path], held[path] = one.holder, one.vgpus
    found: dict[str, VmToStop] = {}
    for path, holder in holders.items():
        labelled = labels and all(holder.labels.get(key) == value for key, value in labels.items())
        if path in gets or labelled:
            wanted = gets.get(path)
            after = held[path] if wanted is None else _resolved(wanted, known)
            pending = wanted is not None and path in having and having[path].pending
            found[path] = VmToStop(holder, held[path], after, pending)
    return found


def path_of(vm: Mapping[str, Any]) -> str:
    return f"{vm.get('namespace') or 'default'}/{vm['name']}"


def _holdings(fleet: Fleet) -> Iterable[tuple[Holder, str, int]]:
    for _gpu, slot in fleet.slots():
        for holder in slot.holders:
            yield holder, slot.profile or slot.wanted or "", 1
    for claim in fleet.counted_claims:
        yield claim.holder, claim.profile, claim.count


def _resolved(vgpus: Iterable[Mapping[str, Any]], known: ProfileResolver) -> Counter[str]:
    counts: Counter[str] = Counter()
    for vgpu in vgpus:
        counts[known.resolve(str(vgpu["profile"]))] += int(vgpu.get("count") or 1)
    return counts


def _users(fleet: Fleet, gpu: Gpu, machines: Mapping[str, VmToStop]) -> list[str]:
    """Return the VMs that have a vGPU of the GPU, and stopped ones that claim its profiles and may be changed."""
    held = {holder.path for slot in gpu.slots for holder in slot.holders}
    here = {slot.profile for slot in gpu.slots}
    claiming = {claim.holder.path for claim in fleet.claims if claim.profile in here}
    return sorted(held | (claiming & machines.keys()))


def without(fleet: Fleet, paths: Collection[str]) -> Fleet:
    """Return the fleet with these VMs stopped and without vGPUs."""

    def left(gpu: Gpu) -> Gpu:
        slots = tuple(
            replace(slot, holders=tuple(holder for holder in slot.holders if holder.path not in paths))
            for slot in gpu.slots
        )
        return replace(gpu, slots=slots)

    nodes = tuple(replace(node, gpus=tuple(map(left, node.gpus))) for node in fleet.nodes)
    return replace(fleet, nodes=nodes, claims=tuple(claim for claim in fleet.claims if claim.holder.path not in paths))


def _steps(fleet: Fleet, gpus: Sequence[str], wanted: Layout) -> tuple[Step, ...]:
    demands = [Demand(profile, count, PER_GPU, gpus=tuple(gpus)) for profile, count in wanted]
    return planner.plan(fleet, demands, POLICY).steps


def _has(fleet: Fleet, gpu: str, wanted: Layout) -> bool:
    try:
        return not _steps(fleet, [gpu], wanted)
    except FleetError:
        return False


def _possible(fleet: Fleet, gpus: Sequence[str], wanted: Layout) -> bool:
    try:
        _steps(fleet, gpus, wanted)
    except FleetError:
        return False
    return True


def _restarted(fleet: Fleet, machines: Sequence[VmToStop]) -> Fleet:
    """Return the fleet with these VMs running again. Refuse if no node has the vGPUs for one of them."""
    free: dict[str, dict[str, int]] = {}
    for gpu, slot in fleet.assign_unbound().slots():
        if slot.profile and not slot.holders and fleet.node_by_name[gpu.node].usable:
            amounts = free.setdefault(gpu.node, {})
            amounts[slot.profile] = amounts.get(slot.profile, 0) + 1
    having = [machine for machine in machines if machine.after]
    placed = place(free, [MachineGroup(vm.after, 1) for vm in having])
    claims: list[UnboundRequest] = []
    for one, nodes in zip(having, placed.nodes, strict=True):
        if not nodes:
            gets = ", ".join(f"{count} x {profile}" for profile, count in sorted(one.after.items()))
            raise NoRoomForVm(
                f"{one.holder.path} would not find {gets} on one node afterwards.",
                hint="Give it other vGPUs in vgpu_reprofile_vms, or choose another layout.",
            )
        (node,) = nodes
        claims += [UnboundRequest(profile, count, one.holder, node) for profile, count in sorted(one.after.items())]
    return replace(fleet, claims=(*fleet.claims, *claims)).assign_unbound()


def _before(gpu: Gpu) -> list[Json]:
    return [{"name": slot.name, "profile": slot.profile or slot.wanted} for slot in gpu.ordered_slots if slot.wanted]


def _listed(counts: Counter[str]) -> list[Json]:
    return [{"profile": profile, "count": count} for profile, count in sorted(counts.items())]


def _line(one: Mapping[str, Any], layout: Sequence[Mapping[str, Any]]) -> str:
    if not one["gpus"]:
        (vm,) = one["vms"]
        return f"{path_of(vm)}: {_amounts(vm['before'])} -> {_amounts(vm['after'])}"
    before = Counter(slot["profile"] for slot in one["before"])
    had = ", ".join(f"{count} x {profile}" for profile, count in sorted(before.items())) or "nothing"
    gets = ", ".join(f"{entry['count']} x {entry['profile']}" for entry in layout)
    each = " each" if len(one["gpus"]) > 1 else ""
    stops = ", ".join(f"{vm['namespace']}/{vm['name']}" for vm in one["vms"])
    return f"{', '.join(one['gpus'])}: {had} -> {gets}{each}" + (f", stopping {stops}" if stops else "")


def _amounts(vgpus: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{vgpu['count']} x {vgpu['profile']}" for vgpu in vgpus) or "nothing"
