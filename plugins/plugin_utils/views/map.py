# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleet records as one HTML page that needs no network: each GPU is a bar, divided to scale into its vGPUs. Pure.

A page of plans draws GPUs that change twice, before and after the change, and lists the steps in between.

All names come from clusters and are untrusted. They pass through `text` on their way into the page, which is
well-formed XML outside of its script. The page's content security policy runs only that script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .gpu_bar import PATTERNS, gpu_bar, holder_words, miniatures, scale, swatch, unsaid_fits
from .markup import (
    STATE_WORDS,
    TIMES,
    attribute_list,
    counted,
    fitting,
    gib,
    gib_of,
    none,
    notes,
    percent,
    plural,
    span,
    state_counts,
    text,
)
from .record import STATES, findings_of, gpus_of, restarts_of

Json = Mapping[str, Any]

COLOURS = 12
# Nodes are collapsed above this number of GPUs.
UNFOLDED = 48
TITLE = "GPU fleet"
PLAN_TITLE = "GPU plan"

STATE_MEANINGS = {
    "in_use": "in use by a running VM",
    "claimed": "claimed by a stopped VM",
    "free": "free",
    "drifted": "drifted from what was requested",
    "unusable": "unusable",
}
# Time-sliced is the default mode and needs no label.
MODES = {"time_sliced": "", "mixed_size": "mixed sizes", "mig": "MIG"}
PLAN_LISTS = {"stops": "VMs that are stopped", "waits": "What the run waits for", "notes": "Notes"}
PLATFORMS = {"harvester": "Harvester", "vsphere": "vSphere"}


def fleet_map(records: Sequence[Json], *, title: str = TITLE, generated: str = "") -> str:
    """Return the page of fleet records, one record for each cluster."""
    return _Page(records, (), title, generated).html()


def plan_map(plans: Sequence[Json], *, title: str = PLAN_TITLE, generated: str = "") -> str:
    """Return the page of plans, with the states before and after the changes."""
    return _Page([plan["before"] for plan in plans], plans, title, generated).html()


@lru_cache(maxsize=2)
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


class _Page:
    def __init__(self, records: Sequence[Json], plans: Sequence[Json], title: str, generated: str) -> None:
        self.records = records
        self.plans = plans
        self.title = title
        self.generated = generated
        self.after = [{gpu["name"]: gpu for _node, gpu in gpus_of(plan["after"])} for plan in plans]
        self.colours = {name: number % COLOURS for number, name in enumerate(self._drawn_profiles())}
        self.unfolded = sum(record["gpu_count"] for record in records) <= UNFOLDED
        self._ids = 0

    def _drawn_profiles(self) -> list[str]:
        """Return the profiles that have a color, in an order that does not depend on the order of clusters."""
        found = {
            vgpu["short"]
            for record in (*self.records, *(plan["after"] for plan in self.plans))
            for _node, gpu in gpus_of(record)
            for vgpu in (*gpu["vgpus"], *gpu["geometry"])
        }
        requested = {request["short"] for record in self.records for request in record["requests"]}
        return sorted(found) + sorted(requested - found)

    def _id(self) -> str:
        self._ids += 1
        return f"r{self._ids}"

    def name(self, record: Json) -> str:
        """Return the name of a cluster, with its platform if two clusters have the same name."""
        platform = PLATFORMS.get(record["platform"], str(record["platform"]))
        alike = [other for other in self.records if other["cluster"] == record["cluster"]]
        name = str(record["cluster"])
        return f"{name} ({platform})" if name and len(alike) > 1 else name or platform

    def colour(self, short: str) -> str:
        return f"p{self.colours[short]}" if short in self.colours else "p11"

    # The frame
    def html(self) -> str:
        script = _asset("map.js")
        digest = base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode()
        policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        return "".join(
            [
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>\n',
                '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n',
                '<link rel="icon" href="data:,"/>\n',
                f"<title>{text(self.title)}</title>\n<style>\n{_asset('map.css')}\n</style>\n</head>\n<body>\n",
                '<a class="skip" href="#fleet">Skip to the GPUs</a>\n<div class="page">\n',
                f'<header class="top"><h1>{text(self.title)}</h1>',
                f'<span class="when">As of {text(self.generated)}</span>' if self.generated else "",
                "</header>\n",
                PATTERNS,
                # The cards show the current state, while a plan shows what follows.
                "" if self.plans else self._cards(),
                *(self._plan(plan) for plan in self.plans),
                self._filters(),
                self._legend(),
                f'<main id="fleet" class="clusters {"several" if len(self.records) > 1 else "single"}">\n',
                *self._clusters(),
                "</main>\n",
                '<p id="nothing" class="none" hidden="hidden">No GPU matches these filters.</p>\n',
                "<footer>Created by vgpu.fleet. This page is a single file and loads nothing.</footer>\n</div>\n",
                f"<script>\n{script}\n</script>\n</body>\n</html>\n",
            ]
        )

    def _cards(self) -> str:
        records = self.records
        restarts = sum(len(restarts_of(node)) for record in records for node in record["nodes"])
        findings = sum(
            len(record["findings"])
            + sum(len({finding["text"] for finding in findings_of(node)}) for node in record["nodes"])
            for record in records
        )
        waiting = sum(request["count"] for record in records for request in record["requests"])
        numbers = [
            _card("cluster", len(records)),
            _card("node", sum(len(record["nodes"]) for record in records)),
            _card("GPU", sum(record["gpu_count"] for record in records)),
            *((f"vGPUs {STATE_WORDS[state]}", sum(record[state] for record in records), False) for state in STATES[:3]),
            *(
                (f"vGPUs {STATE_WORDS[state]}", number, True)
                for state in STATES[3:]
                if (number := sum(record[state] for record in records))
            ),
            *([("vGPUs requested", waiting, False)] if waiting else ()),
            *([_card("finding", findings, alert=True)] if findings else ()),
            *([(f"{plural('restart', restarts)} pending", restarts, True)] if restarts else ()),
        ]
        cards = "".join(
            f'<div class="card{" alert" if alert else ""}" data-count="{text(name)}"><b>{number}</b>'
            f"<span>{text(name)}</span></div>"
            for name, number, alert in numbers
        )
        return f'<section class="cards" aria-label="Totals">{self._memory()}{cards}</section>\n'

    def _memory(self) -> str:
        """Draw the framebuffer of all GPUs as one bar, by the state of the vGPUs that occupy it."""
        whole = sum(record["framebuffer_mib"] for record in self.records)
        if not whole:
            return ""
        used = sum(record["framebuffer_used_mib"] for record in self.records)
        by_state = dict.fromkeys(STATES, 0)
        for record in self.records:
            for _node, gpu in gpus_of(record):
                for vgpu in gpu["vgpus"]:
                    by_state[vgpu["state"]] += vgpu["framebuffer_mib"] or 0
        parts, at = [], 0
        for state, size in by_state.items():
            box = f'x="{percent(at / whole)}" width="{percent(size / whole)}" y="0" height="100%"'
            if size:
                parts.append(f'<g class="seg p11 {state}"><rect class="b" {box}/><rect class="o" {box}/></g>')
            at += size
        return (
            f'<div class="memory"><b>{text(gib_of(used, whole))}</b><span>GPU memory in vGPUs</span>'
            f'<svg class="meter" aria-hidden="true">{"".join(parts)}</svg></div>'
        )

    def _filters(self) -> str:
        def options(values: Iterable[str]) -> str:
            return "".join(f'<option value="{text(value)}">{text(value)}</option>' for value in values)

        gpus = [gpu for record in self.records for _node, gpu in gpus_of(record)]
        boards = sorted({gpu["board"] for gpu in gpus} - {""})
        profiles = sorted({vgpu["short"] for gpu in gpus for vgpu in (*gpu["vgpus"], *gpu["available_profiles"])})
        nodes = sorted({node["name"] for record in self.records for node in record["nodes"]})
        holders = sorted({path for gpu in gpus for path in _holders(gpu)})
        states = "".join(f'<option value="{state}">{text(STATE_WORDS[state])}</option>' for state in STATES)
        clusters = [self.name(record) for record in self.records]
        cluster = (
            f'<label>Cluster<select name="cluster"><option value="">all</option>{options(clusters)}</select></label>'
            if len(clusters) > 1
            else ""
        )
        # If no GPU is drawn twice, this filter would hide everything.
        twice = any(
            _differs(gpu, after.get(gpu["name"]))
            for record, after in zip(self.records, self.after, strict=False)
            for _node, gpu in gpus_of(record)
        )
        changed = (
            '<label class="check"><input type="checkbox" name="changed" checked="checked"/> only what changes</label>'
            if twice
            else ""
        )
        return (
            '<section class="tools" aria-label="Filters"><form id="filters" class="filters">'
            f"{cluster}"
            f'<label>Node<input name="node" list="nodes" placeholder="all" autocomplete="off"/></label>'
            f'<datalist id="nodes">{options(nodes)}</datalist>'
            f'<label>Board<select name="board"><option value="">all</option>{options(boards)}</select></label>'
            f'<label>Profile<select name="profile"><option value="">all</option>{options(profiles)}</select></label>'
            f'<label>State<select name="state"><option value="">all</option>{states}</select></label>'
            f'<label>VM<input name="holder" list="holders" placeholder="all" autocomplete="off"/></label>'
            f'<datalist id="holders">{options(holders)}</datalist>'
            f"{changed}"
            '<span class="buttons"><button type="reset">Clear</button>'
            '<button type="button" id="unfold">Unfold all</button>'
            '<button type="button" id="fold">Fold all</button></span>'
            '<output class="shown" id="shown" role="status" aria-live="polite"></output></form></section>\n'
        )

    def _legend(self) -> str:
        drawn = {vgpu["state"] for record in self.records for _node, gpu in gpus_of(record) for vgpu in gpu["vgpus"]}
        states = "".join(
            f"<li>{swatch(f'p11 {state}')}{text(STATE_MEANINGS[state])}</li>"
            for state in STATES
            if state in STATES[:3] or state in drawn
        )
        new = f"<li>{swatch('p11 in_use new')}new</li>" if self.plans else ""
        room = f"<li>{swatch('room')}in no vGPU</li>"
        drawn_profiles = "".join(
            f'<li><span class="swatch {self.colour(short)}"></span>{text(short)}</li>' for short in self.colours
        )
        profiles = f'<ul class="legend" aria-label="Colours of profiles">{drawn_profiles}</ul>\n'
        return (
            f'<div class="legends"><ul class="legend" aria-label="Patterns of states">{states}{new}{room}</ul>\n'
            f"{profiles if drawn_profiles else ''}</div>\n"
        )

    # Clusters and nodes
    def _clusters(self) -> Iterator[str]:
        for number, record in enumerate(self.records):
            yield self._cluster(record, self.after[number] if self.plans else None)

    def _cluster(self, record: Json, after: Mapping[str, Json] | None) -> str:
        version = f" {record['version']}" if record["version"] else ""
        read = f"as of {record['read_at'].replace('T', ' ').replace('Z', ' UTC')}" if record.get("read_at") else ""
        memory = f"{gib_of(record['framebuffer_used_mib'], record['framebuffer_mib'])} in vGPUs"
        nodes = "".join(self._node(record, node, after) for node in record["nodes"])
        parts = [nodes or none("This cluster has no nodes with GPUs.")]
        if after is None:
            # Readers look for GPUs first. If the nodes are collapsed, the sums are more useful.
            tables = f"{self._totals(record)}{self._requests(record)}"
            parts.insert(1 if self.unfolded else 0, tables)
        platform = f"{PLATFORMS.get(record['platform'], record['platform'])}{version}"
        numbers = [counted(len(record["nodes"]), "node"), counted(record["gpu_count"], "GPU"), memory, read]
        name = text(self.name(record))
        return (
            f'<section class="cluster" aria-label="Cluster {name}"><header><h2>{name}</h2>'
            f'<span class="badge platform">{text(platform)}</span>'
            f'<span class="numbers">{text(" · ".join(filter(None, numbers)))}</span></header>\n'
            f"{notes(record['findings'])}{''.join(parts)}</section>\n"
        )

    def _totals(self, record: Json) -> str:
        there = [profile for profile in record["profiles"] if _is_there(record, profile)]
        rest = [profile for profile in record["profiles"] if profile["available"] and profile not in there]
        if not there and not rest:
            return ""
        # On vSphere free vGPUs are the remaining capacity, so the creatable count would repeat the same number.
        names = ["Total", "In use", "Claimed", "Free", *(() if record["shares_room"] else ("Can be added",))]
        keys = ["total", "in_use", "claimed", "free", "available"][: len(names)]
        rows = "".join(
            f'<tr data-profile="{text(profile["short"])}"><th scope="row">'
            f'<span class="swatch {self.colour(profile["short"])}">'
            f"</span>{text(profile['short'])}</th>"
            + "".join(f'<td class="n{"" if profile[key] else " zero"}">{profile[key]}</td>' for key in keys)
            + "</tr>"
            for profile in there
        )
        head = '<th scope="col">Profile</th>' + "".join(f'<th scope="col" class="n">{name}</th>' for name in names)
        table = (
            '<div class="scroll"><table class="totals"><caption>vGPUs by profile</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
            if there
            else none("There are no vGPUs.")
        )
        fits = ", ".join(fitting(rest, "available"))
        others = (
            f'<p class="fits">{"Also fits" if there else "Fits"}, each profile on its own: {text(fits)}</p>'
            if fits
            else ""
        )
        return f'<div class="panel">{table}{others}</div>\n'

    def _requests(self, record: Json) -> str:
        if not record["requests"]:
            return ""
        rows = "".join(
            f'<tr><th scope="row">{text(request["holder"]["path"])}</th><td class="k">'
            f'<span class="swatch {self.colour(request["short"])}"></span>'
            f"{request['count']} {TIMES} {text(request['short'])}</td><td>{text(request['node'] or 'any node')}</td>"
            f"<td>{text(_request_words(request))}</td></tr>"
            for request in record["requests"]
        )
        return (
            '<div class="panel"><div class="scroll"><table class="requests">'
            "<caption>Requested, without a certain vGPU"
            '</caption><thead><tr><th scope="col">VM</th><th scope="col">vGPUs</th><th scope="col">Node</th>'
            f'<th scope="col">State</th></tr></thead><tbody>{rows}</tbody></table></div></div>\n'
        )

    def _node(self, record: Json, node: Json, after: Mapping[str, Json] | None) -> str:
        restarts, findings = restarts_of(node), {finding["text"] for finding in findings_of(node)}
        badges = "".join(
            f'<span class="badge warn">{text(words)}</span>'
            for words in (
                node["unavailable_reason"],
                counted(len(restarts), "restart") + " pending" if restarts else "",
                counted(len(findings), "finding") if findings else "",
            )
            if words
        )
        place = "/".join(filter(None, (node["datacenter"], node["cluster"])))
        memory = gib_of(node["framebuffer_used_mib"], node["framebuffer_mib"])
        numbers = " · ".join([counted(node["gpu_count"], "GPU"), *state_counts(node), memory])
        changes = after is not None and any(_differs(gpu, after.get(gpu["name"])) for gpu in node["gpus"])
        opened = ' open="open"' if self.unfolded or changes else ""
        gpus = "".join(self._gpu(record, node, gpu, after) for gpu in node["gpus"])
        return (
            f'<details class="node" data-name="{text(node["name"])}"{opened}><summary><h3>{text(node["name"])}</h3>'
            f"{span('place', place)}{badges}"
            f'<span class="strip">{miniatures(node["gpus"], self.colour)}</span>'
            f'<span class="numbers">{text(numbers)}</span></summary>\n'
            f'<div class="inside">{notes(node["findings"])}{gpus or none("No GPUs.")}</div></details>\n'
        )

    # GPUs
    def _gpu(self, record: Json, node: Json, gpu: Json, after: Mapping[str, Json] | None) -> str:
        later = after.get(gpu["name"]) if after is not None else None
        changed = later is not None and _differs(gpu, later)
        shown = later if later is not None and changed else gpu
        profiles = {vgpu["short"] for vgpu in (*gpu["vgpus"], *gpu["available_profiles"])}
        states = {vgpu["state"] for vgpu in gpu["vgpus"]}
        badges = span("badge", MODES.get(gpu["mode"], str(gpu["mode"] or "")))
        if gpu["restart_pending"]:
            badges += '<span class="badge warn">restart pending</span>'
        if not gpu["exact"]:
            badges += '<span class="badge warn">estimated</span>'
        bars = gpu_bar(node, gpu, self.colour, self._id())
        if shown is not gpu:
            then = gpu_bar(node, shown, self.colour, self._id(), before=gpu)
            bars = (
                f'<div class="stages"><p class="stage">Now</p><div>{bars}</div>'
                f'<p class="stage">After</p><div>{then}{scale(gpu)}</div></div>'
            )
        else:
            bars += scale(gpu)
        fits = span("fits", unsaid_fits(node, shown))
        table = self._table(shown)
        return (
            f'<article class="gpu" data-name="{text(gpu["name"])}" data-node="{text(node["name"])}" '
            f'data-cluster="{text(self.name(record))}" data-board="{text(gpu["board"])}" '
            f'data-profiles="{attribute_list(sorted(profiles))}" data-states="{attribute_list(sorted(states))}" '
            f'data-holders="{attribute_list(_holders(gpu))}" data-changed="{"yes" if changed else "no"}">'
            f"<header><h4>{text(gpu['board'] or 'Unknown GPU')}</h4>"
            f'<span class="address">{text(gpu["address"])}</span>{badges}'
            f'<span class="size">{text(_sizes(gpu, shown))}</span></header>{bars}{_gpu_notes(gpu)}'
            + (f'<div class="foot">{fits}{table}</div>' if fits or table else "")
            + "</article>\n"
        )

    def _table(self, gpu: Json) -> str:
        """Return the content of the bar as a table, for screen readers and text search."""
        if not gpu["vgpus"]:
            return ""
        rows = "".join(
            f'<tr data-name="{text(vgpu["name"] or "")}"><th scope="row">{text(vgpu["short"])}</th>'
            f"<td>{text(_state_words(vgpu))}</td><td>{text(', '.join(map(holder_words, vgpu['holders'])) or '-')}</td>"
            f"<td>{text(gib(vgpu['framebuffer_mib']))}</td><td>{text(vgpu['name'] or 'not created yet')}</td></tr>"
            for vgpu in gpu["vgpus"]
        )
        return (
            f'<details class="list"><summary>{counted(len(gpu["vgpus"]), "vGPU")} as a table</summary>'
            f'<div class="scroll"><table class="vgpus"><caption class="vh">vGPUs of {text(gpu["name"])}</caption>'
            '<thead><tr><th scope="col">Profile</th><th scope="col">State</th><th scope="col">VM</th>'
            '<th scope="col">Memory</th><th scope="col">Device</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div></details>"
        )

    # Plans
    def _plan(self, plan: Json) -> str:
        name = self.name(plan["before"])
        steps = "".join(f"<li>{text(step)}</li>" for step in plan["steps"])
        listed = f"<ol>{steps}</ol>" if steps else none("Nothing is left to change.")
        parts = [f'<div class="steps"><h3>Steps, in order</h3>{listed}</div>']
        for heading, key in (
            ("VMs that are stopped", "stops"),
            ("What the run waits for", "waits"),
            ("Notes", "notes"),
        ):
            if plan.get(key):
                items = "".join(f"<li>{text(line)}</li>" for line in plan[key])
                parts.append(f'<div class="{key}"><h3>{heading}</h3><ul>{items}</ul></div>')
            elif key == "stops":
                parts.append(f'<div class="stops"><h3>{heading}</h3>{none("None.")}</div>')
        return (
            f'<section class="panel plan" aria-label="Plan"><h2>Plan for {text(name)}: {text(plan["summary"])}</h2>'
            f"{''.join(parts)}</section>\n"
        )


def _sizes(gpu: Json, later: Json) -> str:
    """Return the allocated part of a GPU's framebuffer, before and after a change."""
    now = gib_of(gpu["framebuffer_used_mib"], gpu["framebuffer_mib"])
    if gpu["framebuffer_used_mib"] == later["framebuffer_used_mib"]:
        return now
    return f"{now}, then {gib(later['framebuffer_used_mib'])}"


def _differs(gpu: Json, later: Json | None) -> bool:
    if later is None:
        return False

    def shape(record: Json) -> Any:
        vgpus = [(vgpu["name"], vgpu["profile"], vgpu["requested"], _paths(vgpu)) for vgpu in record["vgpus"]]
        return vgpus, record["geometry"], record["mode"], record["vgpu_enabled"]

    return bool(shape(gpu) != shape(later))


def _paths(vgpu: Json) -> list[str]:
    return [holder["path"] for holder in vgpu["holders"]]


def _holders(gpu: Json) -> list[str]:
    return sorted({path for vgpu in gpu["vgpus"] for path in _paths(vgpu)})


def _is_there(record: Json, profile: Json) -> bool:
    return bool(profile["in_use"] or profile["claimed"] or (profile["total"] and not record["shares_room"]))


def _request_words(request: Json) -> str:
    if request["restart_pending"]:
        return "gets them at its next restart"
    return "has them" if request["state"] == "in_use" else "takes them when it starts"


def _state_words(vgpu: Json) -> str:
    words = STATE_WORDS[vgpu["state"]]
    return f"{words}, drifted" if vgpu["drifted"] and vgpu["state"] != "drifted" else words


def _gpu_notes(gpu: Json) -> str:
    found = {
        finding["text"]: finding
        for finding in (*gpu["findings"], *(finding for vgpu in gpu["vgpus"] for finding in vgpu["findings"]))
    }
    certainty = [{"text": note, "restart": ""} for note in gpu["notes"]]
    return notes([*found.values(), *certainty])


def _card(noun: str, number: int, *, alert: bool = False) -> tuple[str, int, bool]:
    return plural(noun, number), number, alert
