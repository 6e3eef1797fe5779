# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it takes to give GPUs another layout that VMs use: which VMs have to be stopped, and what to put back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def reprofile_plan(
    rehearsals: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]],
    layout: Sequence[Mapping[str, Any]],
    vms: Iterable[Mapping[str, Any]] = (),
    vm_labels: Mapping[str, str] | None = None,
) -> Json:
    """The GPUs to change, in order, with what each step needs; why it must not be done; and lines for people.

    A rehearsal is a dry run of the layout on one GPU (`item`). It has steps, or an error while VMs hold the GPU.
    """
    slots = [slot for node in nodes for gpu in node["gpus"] for slot in gpu["slots"]]
    held = _held(slots)
    named = _named(slots, vms, vm_labels or {})
    work, refusals = [], []
    for rehearsal in rehearsals:
        error = rehearsal.get("error")
        if not error and not rehearsal["plan"]["steps"]:
            continue
        gpu = rehearsal["item"]
        users = sorted({_path(holder) for slot in gpu["slots"] for holder in slot["holders"]})
        foreign = [user for user in users if user not in named]
        if foreign:
            refusals.append(f"{gpu['name']} is used by {' and '.join(foreign)}, which may not be stopped.")
        elif error and not users:
            refusals.append(f"{gpu['name']}: {error['message']}")
        work.append(
            {
                "gpu": gpu["name"],
                "before": [
                    {"name": slot["name"], "profile": slot["profile"] or slot["wanted"]}
                    for slot in gpu["slots"]
                    if slot["wanted"]
                ],
                "vms": [_machine(user, held[user], named[user]) for user in users if user in named],
            }
        )
    return {"work": work, "refusals": refusals, "lines": [_line(one, layout) for one in work] or [NOTHING]}


NOTHING = "Nothing to do: every GPU has this layout."


def _held(slots: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """What each VM has, also on other GPUs: it is all taken out and put in again together."""
    held: dict[str, Counter[str]] = {}
    for slot in slots:
        for holder in slot["holders"]:
            held.setdefault(_path(holder), Counter())[slot["profile"] or slot["wanted"]] += 1
    return held


def _named(
    slots: Iterable[Mapping[str, Any]], vms: Iterable[Mapping[str, Any]], labels: Mapping[str, str]
) -> dict[str, list[Json] | None]:
    named: dict[str, list[Json] | None] = {}
    if labels:
        for slot in slots:
            for holder in slot["holders"]:
                found = holder.get("labels") or {}
                if all(found.get(key) == value for key, value in labels.items()):
                    named[_path(holder)] = None
    for vm in vms:
        named[f"{vm.get('namespace') or 'default'}/{vm['name']}"] = vm.get("vgpus")
    return named


def _machine(path: str, held: Counter[str], wanted: list[Json] | None) -> Json:
    namespace, name = path.split("/")
    before = [{"profile": profile, "count": count} for profile, count in sorted(held.items())]
    return {"name": name, "namespace": namespace, "before": before, "after": before if wanted is None else wanted}


def _path(holder: Mapping[str, Any]) -> str:
    return f"{holder['namespace']}/{holder['name']}"


def _line(one: Mapping[str, Any], layout: Sequence[Mapping[str, Any]]) -> str:
    before = Counter(slot["profile"] for slot in one["before"])
    had = ", ".join(f"{count} x {profile}" for profile, count in sorted(before.items())) or "nothing"
    gets = ", ".join(f"{entry['count']} x {entry['profile']}" for entry in layout)
    stops = ", ".join(f"{vm['namespace']}/{vm['name']}" for vm in one["vms"])
    return f"{one['gpu']}: {had} -> {gets}" + (f", stopping {stops}" if stops else "")
