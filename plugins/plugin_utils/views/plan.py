# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The changes of a dry run, as two fleet records with the steps between them. Pure.

The plan comes from the current fleet (harvester_gpu_info) and the results of modules in check mode: harvester_vgpu,
harvester_mig, harvester_sriov_gpu, harvester_reprofile and rancher_gpu_pool, in the order in which they ran. The module
vsphere_plan covers changes on a vCenter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...module_utils.fleet.model import HARVESTER, Fleet, Gpu, Holder, Slot, UnboundRequest
from ...module_utils.fleet.profile import parse_or_none
from ...module_utils.planning.steps import Step, after_steps
from .record import fleet_record, platform_of, short_name
from .vsphere_plan import vsphere_plan

Json = dict[str, Any]
Result = Mapping[str, Any]

_INSTANCES = re.compile(r"(\d+) x (\S+)")


def fleet_plan(
    results: Any,
    info: Result,
    *,
    layout: Sequence[Result] = (),
    cluster: str = "",
    availability: Result | None = None,
) -> Json:
    """Return the changes that results of modules in check mode announce.

    `info` is the preceding result of harvester_gpu_info or vsphere_gpu_info. `layout` is the layout that
    harvester_reprofile was given. `availability` is the result of vgpu_availability, which a vCenter needs.
    """
    if platform_of(info) != HARVESTER:
        changes = vsphere_plan(_flat(results), info, availability, cluster=cluster)
        summary = _summary(changes["steps"], len(changes["stops"]))
        return {**changes, "summary": summary, "lines": plan_lines(changes)}
    before = fleet_record(info, cluster=cluster)
    work = _Work(Fleet.from_dict(info), layout)
    for result in _flat(results):
        work.add(result)
    after = fleet_record({**info, **work.fleet.as_dict()}, cluster=cluster)
    plan = {
        "before": before,
        "after": after,
        "steps": work.steps,
        "stops": work.stops,
        "waits": list(dict.fromkeys(work.waits)),
        "notes": work.notes,
    }
    return {**plan, "summary": _summary(work.steps, work.stopped, work.gpus), "lines": plan_lines(plan)}


def plan_lines(plan: Result) -> list[str]:
    """Summarize a plan in a few lines, for a log or an approval."""
    lines = [f"{number}. {step}" for number, step in enumerate(plan["steps"], 1)] or ["Nothing is left to change."]
    lines += [f"Stopped: {stop}" for stop in plan["stops"]]
    return lines + [f"Note: {note}" for note in plan["notes"]]


def _flat(results: Any) -> Iterator[Result]:
    """Yield the results of single tasks: a loop has several results, and a skipped task has none."""
    if isinstance(results, Mapping):
        if isinstance(results.get("results"), Sequence):
            yield from _flat(results["results"])
        elif not results.get("skipped"):
            yield results
    elif isinstance(results, Iterable) and not isinstance(results, str):
        for result in results:
            yield from _flat(result)


@dataclass
class _Work:
    fleet: Fleet
    layout: Sequence[Result]
    steps: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gpus: set[str] = field(default_factory=set)
    # VMs that are stopped without being named, beside the first one of each entry of `stops`.
    _more_stopped: int = 0
    _unnamed: int = 0

    @property
    def stopped(self) -> int:
        return len(self.stops) + self._more_stopped

    def add(self, result: Result) -> None:
        plan = result.get("plan") or {}
        if "work" in plan:
            self._reprofile(plan)
        elif "pool" in result:
            self._pool(result)
        else:
            self._steps(plan.get("steps") or result.get("steps") or ())
            self.waits += [
                f"vGPU {name}, which was requested before, to be ready" for name in plan.get("waiting") or ()
            ]
            self.notes += [
                f"vGPU {name} is not what was requested and stays as it is." for name in plan.get("drifted") or ()
            ]
        self.notes += [
            f"GPU {gpu['gpu']} is still changing ({gpu['reason']}), so the plan may change with it."
            for gpu in result.get("unsettled") or ()
        ]

    def _steps(self, steps: Sequence[Result]) -> None:
        offered: Counter[tuple[str, str]] = Counter()
        for step in steps:
            self.gpus.add(step["gpu"])
            self.steps.append(_step_words(step))
            self.fleet = _after(self.fleet, self._named(step))
            if step["action"] == "enable":
                offered[step["node"], step["after"]] += 1
            elif step["action"] in _WAITS:
                self.waits.append(_WAITS[step["action"]].format(**step))
        self.waits += [
            f"node {node} to offer {count} more x {short_name(name)}" for (node, name), count in offered.items()
        ]

    def _named(self, step: Result) -> Result:
        """Return the step with a name for its vGPU, because virtual functions that do not exist yet have no name."""
        if step["action"] != "enable" or step.get("slot"):
            return step
        self._unnamed += 1
        return {**step, "slot": f"{step['gpu']} new {self._unnamed}"}

    def _reprofile(self, plan: Result) -> None:
        for work in plan["work"]:
            vms = [f"{vm['namespace']}/{vm['name']}" for vm in work["vms"]]
            holders = {holder.path: holder for holder in _holders(self.fleet)}
            names = ", ".join(work["gpus"])
            wanted = _listed(self.layout)
            for path in vms:
                self.steps.append(f"Stop VM {path}")
                self.stops.append(f"VM {path}" + (f", while GPU {names} changes" if names else ""))
            fleet = _without(self.fleet, vms)
            if work["gpus"]:
                self.gpus.update(work["gpus"])
                self.steps.append(
                    f"Give GPU {names} the layout {wanted}" if wanted else f"Change the layout of GPU {names}"
                )
                self.waits.append(f"GPU {names} to offer its new vGPUs")
                fleet = _laid_out(fleet, work["gpus"], self.layout)
            claims = []
            for vm, path in zip(work["vms"], vms, strict=True):
                holder = holders.get(path, Holder(vm["name"], vm["namespace"]))
                claims += [
                    UnboundRequest(vgpu["profile"], vgpu["count"], holder) for vgpu in _resolved(fleet, vm["after"])
                ]
                if holder.running:
                    self.steps.append(f"Start VM {path} with {_listed(vm['after']) or 'no vGPUs'}")
                    self.waits.append(f"VM {path} to run again")
                else:
                    self.steps.append(f"Give VM {path} {_listed(vm['after']) or 'no vGPUs'}; it stays off")
            self.fleet = _holding(fleet, claims)
        if not plan["work"]:
            self.notes += plan["lines"]

    def _pool(self, result: Result) -> None:
        """Add the changes of a pool: Rancher deletes VMs one by one, and new VMs take the vGPUs of replaced ones."""
        pool = result["pool"] or {}
        if not result.get("changed"):
            return
        vms = {machine["name"]: machine.get("vm") or machine["name"] for machine in pool.get("machines") or ()}
        gone: list[str] = []
        for entry in result.get("machines_replaced") or ():
            for machine in entry["machines"]:
                path = f"{pool.get('vm_namespace') or 'default'}/{vms.get(machine, machine)}"
                gone.append(path)
                self.steps.append(f"Replace machine {machine} of pool {entry['pool']} of cluster {entry['cluster']}")
                self.stops.append(f"VM {path}, which Rancher replaces and deletes")
        quantity, name = pool.get("quantity") or 0, pool.get("name")
        diff = result.get("diff") or {}
        before, after = diff.get("before") or {}, diff.get("after") or {}
        if not gone:
            self._fewer_machines(str(name), max((before.get("quantity") or 0) - quantity, 0))
        if before and not after:
            self.steps.append(f"Delete pool {name} of cluster {pool.get('cluster')}")
            return
        each = _listed(pool.get("vgpus") or ()) or "no vGPUs"
        machines = f"{quantity} machine{'' if quantity == 1 else 's'}"
        self.steps.append(f"Pool {name} of cluster {pool.get('cluster')}: {machines} with {each} each")
        self.waits.append(f"the machines of pool {name} to run")
        fleet = _without(self.fleet, gone)
        new = max(quantity - (len(vms) - len(gone)), 0)
        holders = [
            Holder(f"{pool.get('cluster')}-{name}-new-{number + 1}", str(pool.get("vm_namespace") or ""))
            for number in range(new)
        ]
        claims = [
            UnboundRequest(vgpu["profile"], vgpu["count"], holder)
            for holder in holders
            for vgpu in _resolved(fleet, pool.get("vgpus") or ())
        ]
        self.fleet = _holding(fleet, claims)

    def _fewer_machines(self, pool: str, count: int) -> None:
        """Add the machines that a removed or smaller pool loses. Rancher chooses them, so they have no names here."""
        if not count:
            return
        self.stops.append(f"{count} machine{'' if count == 1 else 's'} of pool {pool}, which Rancher deletes")
        self._more_stopped += count - 1
        self.notes.append(f"The GPUs are shown with the vGPUs of the machines that Rancher deletes from pool {pool}.")


_WAITS = {
    "enable_sriov": "GPU {gpu} to have its virtual functions",
    "disable_sriov": "GPU {gpu} to be without virtual functions",
    "create_mig_instances": "GPU {gpu} to have the MIG instances {after}",
    "remove_mig_instances": "GPU {gpu} to be without MIG instances",
    "disable": "vGPU {slot} to be disabled",
}


def _step_words(step: Result) -> str:
    gpu = step["gpu"]
    where = f"{step['slot']} of GPU {gpu}" if step.get("slot") else f"a new vGPU of GPU {gpu}"
    words = {
        "enable_sriov": f"Enable SR-IOV on GPU {gpu}",
        "disable_sriov": f"Disable SR-IOV on GPU {gpu}",
        "create_mig_instances": f"Cut GPU {gpu} into {step['after']}",
        "remove_mig_instances": f"Remove the MIG instances of GPU {gpu}",
        "set_mode": f"Set the mode of GPU {gpu} to {step['after']}",
        "disable": f"Disable {short_name(step['before'] or 'the vGPU')} on {where}",
        "enable": f"Enable {short_name(step['after'] or '')} on {where}",
        "correct": f"Write {step['after']} into the specification of {where}, which changes nothing about the vGPU",
    }
    return words.get(step["action"], f"{step['action']} on GPU {gpu}")


def _after(fleet: Fleet, step: Result) -> Fleet:
    action = step["action"]
    if action in ("enable_sriov", "disable", "enable", "correct", "create_mig_instances"):
        found = _INSTANCES.findall(step["after"] or "") if action == "create_mig_instances" else ()
        instances = tuple((name.rstrip(","), int(count)) for count, name in found)
        known: Json = {key: step.get(key) for key in ("action", "node", "gpu", "slot", "before", "after")}
        return after_steps(fleet, [Step(**known, instances=instances)])
    changes: dict[str, dict[str, Any]] = {
        "disable_sriov": {"sharing": False, "slots": (), "vf_capacity": None},
        "remove_mig_instances": {"max_instances": {}, "instances": {}},
        "set_mode": {"mode": step["after"]},
    }
    changed = partial(replace, **changes.get(action, {}))
    return _with_gpus(fleet, [step["gpu"]], changed)


def _with_gpus(fleet: Fleet, names: Iterable[str], change: Any) -> Fleet:
    chosen = set(names)
    nodes = tuple(
        replace(node, gpus=tuple(change(gpu) if gpu.name in chosen else gpu for gpu in node.gpus))
        for node in fleet.nodes
    )
    return replace(fleet, nodes=nodes)


def _without(fleet: Fleet, vms: Iterable[str]) -> Fleet:
    gone = set(vms)

    def released(gpu: Gpu) -> Gpu:
        slots = tuple(
            replace(slot, holders=tuple(holder for holder in slot.holders if holder.path not in gone))
            for slot in gpu.slots
        )
        return replace(gpu, slots=slots)

    fleet = _with_gpus(fleet, (gpu.name for gpu in fleet.gpus), released)
    return replace(fleet, claims=tuple(claim for claim in fleet.claims if claim.holder.path not in gone))


def _laid_out(fleet: Fleet, names: Iterable[str], layout: Sequence[Result]) -> Fleet:
    """Return the fleet in which each GPU has exactly these vGPUs. Matching vGPUs stay in their slots."""
    wanted = [(vgpu["profile"], int(vgpu["count"])) for vgpu in _resolved(fleet, layout)]

    def change(gpu: Gpu) -> Gpu:
        left = Counter(dict(wanted))
        kept: list[Slot] = []
        for slot in gpu.ordered_slots:
            if slot.profile and left[slot.profile] > 0 and not slot.drifted:
                left[slot.profile] -= 1
                kept.append(slot)
            elif slot.holders and slot.profile:
                kept.append(slot)
            else:
                kept.append(Slot(slot.name, slot.address))
        new = [name for name, count in wanted for _number in range(max(left[name], 0))]
        slots = []
        for slot in kept:
            name = new.pop(0) if slot.empty and new else None
            slots.append(replace(slot, profile=name, wanted=name, allocatable=True) if name else slot)
        slots += [
            Slot(f"{gpu.name} new {number}", profile=name, wanted=name, allocatable=True)
            for number, name in enumerate(new)
        ]
        return replace(gpu, sharing=True, slots=tuple(slots))

    return _with_gpus(fleet, names, change)


def _holding(fleet: Fleet, claims: Sequence[UnboundRequest]) -> Fleet:
    """Return the fleet with these requests bound to vGPUs without a holder. Requests without a match stay unbound."""
    bound = replace(fleet, claims=tuple(claims)).assign_unbound()
    return replace(bound, claims=(*fleet.claims, *bound.claims))


def _resolved(fleet: Fleet, vgpus: Iterable[Result]) -> list[Json]:
    """Return the vGPUs with the profile names of the cluster, whatever their spelling."""
    known = {parsed.key: name for name in fleet.type_names() if (parsed := parse_or_none(name))}
    found = []
    for vgpu in vgpus:
        parsed = parse_or_none(vgpu["profile"])
        name = known.get(parsed.key, vgpu["profile"]) if parsed else vgpu["profile"]
        found.append({"profile": name, "count": int(vgpu.get("count", 1))})
    return found


def _holders(fleet: Fleet) -> Iterator[Holder]:
    for _gpu, slot in fleet.slots():
        yield from slot.holders
    for claim in fleet.claims:
        yield claim.holder


def _listed(vgpus: Iterable[Result]) -> str:
    return ", ".join(f"{vgpu.get('count', 1)} x {short_name(vgpu['profile'])}" for vgpu in vgpus)


def _summary(steps: Sequence[str], stops: int, gpus: Collection[str] = ()) -> str:
    if not steps:
        return "nothing changes"
    counted = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    where = f" on {len(gpus)} GPU{'' if len(gpus) == 1 else 's'}" if gpus else ""
    stopped = f"{stops} VM{' is' if stops == 1 else 's are'} stopped" if stops else "no VM is stopped"
    return f"{counted}{where}, {stopped}"
