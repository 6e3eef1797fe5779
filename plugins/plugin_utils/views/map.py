# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draw fleet records as one HTML page that needs no network: each GPU a bar, cut to scale into its vGPUs. Pure.

A page of plans draws GPUs that change twice, as they are and as they will be, and says the steps in between.

All names come from somebody's cluster and are untrusted. They pass through `text` on their way into the page, which is
well-formed XML outside of its script. The page's policy runs that script and no other.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import STATES, findings_of, gpus_of, restarts_of

Json = Mapping[str, Any]

COLOURS = 12
# Above this number of GPUs nodes are folded.
UNFOLDED = 48
TITLE = "GPU fleet"
PLAN_TITLE = "GPU plan"
# Parts of a bar's width.
NARROW, TINY = 0.14, 0.04

STATE_WORDS = {
    "in_use": "in use",
    "claimed": "claimed",
    "free": "free",
    "drifted": "drifted",
    "unusable": "unusable",
}
STATE_MEANINGS = {
    "in_use": "a running VM has it",
    "claimed": "belongs to a stopped VM",
    "free": "a VM can have it",
    "drifted": "is not what was requested",
    "unusable": "no VM can have it",
}
MODES = {"time_sliced": "time-sliced", "mixed_size": "mixed sizes", "mig": "MIG"}
PLATFORMS = {"harvester": "Harvester", "vsphere": "vSphere"}
RESTARTS = {
    "vm": "Restart of the VM pending",
    "node": "Reboot of the node pending",
    "host": "Restart of the host pending",
}
GRAPHICS = {
    "shared": "The graphics type of the GPU is shared, which serves no vGPUs.",
    "direct": "The GPU is given to a VM whole.",
    "basic": "The graphics type of the GPU is basic, which serves no vGPUs.",
}
# Characters that no document may have, and those that turn the direction of text around.
_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_SERIES = re.compile(r"(?P<size>.*\d)(?P<series>[A-Z]+)$")


def text(value: object) -> str:
    """Return anything as text that is safe between tags and in attributes."""
    return html.escape(_UNFIT.sub("\ufffd", str(value)), quote=True)


def fleet_map(records: Sequence[Json], *, title: str = TITLE, generated: str = "") -> str:
    """Return the page of some fleet records, one for each cluster."""
    return _Page(records, (), title, generated).html()


def plan_map(plans: Sequence[Json], *, title: str = PLAN_TITLE, generated: str = "") -> str:
    """Return the page of some plans, with both states of what they change."""
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
        """What has a colour, in an order that does not depend on the order of clusters."""
        found = {
            one["short"]
            for record in (*self.records, *(plan["after"] for plan in self.plans))
            for _node, gpu in gpus_of(record)
            for one in (*gpu["vgpus"], *gpu["geometry"])
        }
        asked = {one["short"] for record in self.records for one in record["requests"]}
        return sorted(found) + sorted(asked - found)

    def _id(self) -> str:
        self._ids += 1
        return f"r{self._ids}"

    def name(self, record: Json) -> str:
        """The name of a cluster, with its platform where two have the same name."""
        platform = PLATFORMS.get(record["platform"], str(record["platform"]))
        alike = [one for one in self.records if one["cluster"] == record["cluster"]]
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
                _PATTERNS,
                # The numbers are those of the present, and a plan is about what follows.
                "" if self.plans else self._cards(),
                *(self._plan(plan) for plan in self.plans),
                self._filters(),
                self._legend(),
                f'<main id="fleet" class="clusters {"several" if len(self.records) > 1 else "single"}">\n',
                *self._clusters(),
                "</main>\n",
                '<p id="nothing" class="none" hidden="hidden">No GPU matches these filters.</p>\n',
                "<footer>Made by vgpu.fleet. Everything is in this one file; it loads nothing.</footer>\n</div>\n",
                f"<script>\n{script}\n</script>\n</body>\n</html>\n",
            ]
        )

    def _cards(self) -> str:
        records = self.records
        restarts = sum(len(restarts_of(node)) for record in records for node in record["nodes"])
        findings = sum(
            len(record["findings"]) + sum(len({one["text"] for one in findings_of(node)}) for node in record["nodes"])
            for record in records
        )
        waiting = sum(one["count"] for record in records for one in record["requests"])
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
            *([(f"{_plural('restart', restarts)} pending", restarts, True)] if restarts else ()),
        ]
        cards = "".join(
            f'<div class="card{" alert" if alert else ""}" data-count="{text(name)}"><b>{number}</b>'
            f"<span>{text(name)}</span></div>"
            for name, number, alert in numbers
        )
        return f'<section class="cards" aria-label="In numbers">{cards}</section>\n'

    def _filters(self) -> str:
        def options(values: Iterable[str]) -> str:
            return "".join(f'<option value="{text(value)}">{text(value)}</option>' for value in values)

        gpus = [gpu for record in self.records for _node, gpu in gpus_of(record)]
        boards = sorted({gpu["board"] for gpu in gpus} - {""})
        profiles = sorted({one["short"] for gpu in gpus for one in (*gpu["vgpus"], *gpu["available_profiles"])})
        nodes = sorted({node["name"] for record in self.records for node in record["nodes"]})
        holders = sorted({path for gpu in gpus for path in _holders(gpu)})
        states = "".join(f'<option value="{state}">{text(STATE_WORDS[state])}</option>' for state in STATES)
        clusters = [self.name(record) for record in self.records]
        cluster = (
            f'<label>Cluster<select name="cluster"><option value="">all</option>{options(clusters)}</select></label>'
            if len(clusters) > 1
            else ""
        )
        changed = (
            '<label class="check"><input type="checkbox" name="changed" checked="checked"/> only what changes</label>'
            if self.plans
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
            '<button type="reset">Clear</button><button type="button" id="unfold">Unfold all</button>'
            '<button type="button" id="fold">Fold all</button></form>'
            '<p class="shown" id="shown" role="status" aria-live="polite"></p></section>\n'
        )

    def _legend(self) -> str:
        states = "".join(
            f'<li><svg aria-hidden="true"><g class="seg p0 {state}"><rect class="b" x="1" y="1" width="28" height="16" '
            f'rx="3"/><rect class="o" x="1" y="1" width="28" height="16" rx="3"/></g></svg>'
            f"{text(STATE_WORDS[state])}: {text(STATE_MEANINGS[state])}</li>"
            for state in STATES
        )
        room = (
            '<li><svg aria-hidden="true"><rect x="1" y="1" width="28" height="16" rx="3" fill="var(--well)" '
            'stroke="var(--line)"/></svg>memory of no vGPU</li>'
        )
        drawn = "".join(
            f'<li><span class="swatch {self.colour(short)}"></span>{text(short)}</li>' for short in self.colours
        )
        profiles = f'<ul class="legend" aria-label="Colours of profiles">{drawn}</ul>\n' if drawn else ""
        return f'<ul class="legend" aria-label="Patterns of states">{states}{room}</ul>\n{profiles}'

    # Clusters and nodes
    def _clusters(self) -> Iterator[str]:
        for number, record in enumerate(self.records):
            yield self._cluster(record, self.after[number] if self.plans else None)

    def _cluster(self, record: Json, after: Mapping[str, Json] | None) -> str:
        version = f" {record['version']}" if record["version"] else ""
        read = f"as of {record['read_at'].replace('T', ' ').replace('Z', ' UTC')}" if record.get("read_at") else ""
        memory = f"{_gib(record['framebuffer_used_mib'])} of {_gib(record['framebuffer_mib'])} in vGPUs"
        nodes = "".join(self._node(record, node, after) for node in record["nodes"])
        parts = [nodes or _none("There are no GPU nodes.")]
        if after is None:
            # The GPUs are what people look for. Where they are folded, the sums tell more.
            tables = f"{self._totals(record)}{self._requests(record)}"
            parts.insert(1 if self.unfolded else 0, tables)
        platform = f"{PLATFORMS.get(record['platform'], record['platform'])}{version}"
        numbers = [_counted(len(record["nodes"]), "node"), _counted(record["gpu_count"], "GPU"), memory, read]
        name = text(self.name(record))
        return (
            f'<section class="cluster" aria-label="Cluster {name}"><header><h2>{name}</h2>'
            f'<span class="badge platform">{text(platform)}</span>'
            f'<span class="numbers">{text(", ".join(filter(None, numbers)))}</span></header>\n'
            f"{_notes(record['findings'])}{''.join(parts)}</section>\n"
        )

    def _totals(self, record: Json) -> str:
        there = [one for one in record["profiles"] if _is_there(record, one)]
        rest = [one for one in record["profiles"] if one["available"] and one not in there]
        if not there and not rest:
            return ""
        more = "Fits, each alone" if record["shares_room"] else "Can be added"
        rows = "".join(
            f'<tr data-profile="{text(one["short"])}"><th scope="row"><span class="swatch {self.colour(one["short"])}">'
            f"</span>{text(one['short'])}</th>"
            + "".join(f'<td class="n">{number}</td>' for number in _row(record, one))
            + "</tr>"
            for one in there
        )
        head = "".join(
            f'<th scope="col"{extra}>{name}</th>'
            for name, extra in (
                ("Profile", ""),
                *((name, ' class="n"') for name in ("Total", "In use", "Claimed", "Free", more)),
            )
        )
        table = (
            '<div class="scroll"><table class="totals"><caption>vGPUs by profile</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
            if there
            else _none("There are no vGPUs.")
        )
        said = _fits_text(rest, "available")
        others = (
            f'<p class="fits">{"Also fits" if there else "Fits"}, each profile for itself: {text(said)}</p>'
            if said
            else ""
        )
        return f'<div class="panel">{table}{others}</div>\n'

    def _requests(self, record: Json) -> str:
        if not record["requests"]:
            return ""
        rows = "".join(
            f'<tr><th scope="row">{text(one["holder"]["path"])}</th><td>'
            f'<span class="swatch {self.colour(one["short"])}"></span>'
            f"{one['count']} x {text(one['short'])}</td><td>{text(one['node'] or 'any node')}</td>"
            f"<td>{text(_request_words(one))}</td></tr>"
            for one in record["requests"]
        )
        return (
            '<div class="panel"><div class="scroll"><table class="requests"><caption>Requested, on no certain vGPU'
            '</caption><thead><tr><th scope="col">VM</th><th scope="col">vGPUs</th><th scope="col">Node</th>'
            f'<th scope="col">State</th></tr></thead><tbody>{rows}</tbody></table></div></div>\n'
        )

    def _node(self, record: Json, node: Json, after: Mapping[str, Json] | None) -> str:
        restarts, findings = restarts_of(node), {one["text"] for one in findings_of(node)}
        badges = "".join(
            f'<span class="badge warn">{text(words)}</span>'
            for words in (
                node["unavailable_reason"],
                _counted(len(restarts), "restart") + " pending" if restarts else "",
                _counted(len(findings), "finding") if findings else "",
            )
            if words
        )
        place = "/".join(filter(None, (node["datacenter"], node["cluster"])))
        numbers = " · ".join(
            [_counted(node["gpu_count"], "GPU")]
            + [f"{node[state]} {STATE_WORDS[state]}" for state in STATES if node[state]]
            + [f"{_gib(node['framebuffer_used_mib'])} of {_gib(node['framebuffer_mib'])}"]
        )
        changes = after is not None and any(_differs(gpu, after.get(gpu["name"])) for gpu in node["gpus"])
        opened = ' open="open"' if self.unfolded or changes else ""
        gpus = "".join(self._gpu(record, node, gpu, after) for gpu in node["gpus"])
        return (
            f'<details class="node" data-name="{text(node["name"])}"{opened}><summary><h3>{text(node["name"])}</h3>'
            f"{_span('place', place)}{badges}"
            f'<span class="numbers">{text(numbers)}</span></summary>\n'
            f'<div class="inside">{_notes(node["findings"])}{gpus or _none("No GPUs.")}</div></details>\n'
        )

    # GPUs
    def _gpu(self, record: Json, node: Json, gpu: Json, after: Mapping[str, Json] | None) -> str:
        later = after.get(gpu["name"]) if after is not None else None
        changed = after is not None and _differs(gpu, later)
        profiles = {one["short"] for one in (*gpu["vgpus"], *gpu["available_profiles"])}
        states = {one["state"] for one in gpu["vgpus"]}
        badges = f'<span class="badge">{text(MODES.get(gpu["mode"], gpu["mode"]))}</span>'
        if gpu["restart_pending"]:
            badges += '<span class="badge warn">restart pending</span>'
        if not gpu["exact"]:
            badges += '<span class="badge warn">estimated</span>'
        if changed and later is not None:
            now, then = self._bar(node, gpu), self._bar(node, later, before=gpu)
            bars = f'<p class="stage">Now</p>{now}<p class="stage">After</p>{then}{_scale(gpu)}'
        else:
            bars = self._bar(node, gpu) + _scale(gpu)
        shown = later if changed and later is not None else gpu
        size = f"{_gib(gpu['framebuffer_used_mib'])} of {_gib(gpu['framebuffer_mib'])}"
        return (
            f'<article class="gpu" data-name="{text(gpu["name"])}" data-node="{text(node["name"])}" '
            f'data-cluster="{text(self.name(record))}" data-board="{text(gpu["board"])}" '
            f'data-profiles="{_lines(sorted(profiles))}" data-states="{_lines(sorted(states))}" '
            f'data-holders="{_lines(_holders(gpu))}" data-changed="{"yes" if changed else "no"}">'
            f"<header><h4>{text(gpu['board'] or 'Unknown GPU')}</h4>"
            f'<span class="address">{text(gpu["address"])}</span>{badges}'
            f'<span class="size">{text(size)}</span></header>{bars}{self._fits(node, shown)}{_gpu_notes(gpu)}'
            f"{self._table(shown)}</article>\n"
        )

    def _bar(self, node: Json, gpu: Json, before: Json | None = None) -> str:
        whole = max(gpu["framebuffer_mib"] or 0, _drawn_mib(gpu)) or 1
        there = {(one["name"], one["profile"]) for one in before["vgpus"]} if before else None
        segments, at = [], 0
        for vgpu in gpu["vgpus"]:
            if not vgpu["profile"] and not vgpu["framebuffer_mib"]:
                continue
            width = vgpu["framebuffer_mib"] or 0
            new = there is not None and (vgpu["name"], vgpu["profile"]) not in there
            segments.append(self._segment(vgpu, at / whole, width / whole, new=new))
            at += width
        for one in gpu["geometry"]:
            for _number in range(one["empty"]):
                label = f"Empty MIG instance {one['instance']}, which serves {one['short']}"
                width = one["framebuffer_mib"] or 0
                words = (one["instance"], f"for {one['short']}")
                kind = f"empty {self.colour(one['short'])}"
                segments.append(_drawn(kind, at / whole, width / whole, label, words, profile=one["short"]))
                at += width
        if at < whole and gpu["framebuffer_mib"]:
            left = whole - at
            fits = _fits_text(gpu["available_profiles"], "count", limit=2)
            why = _why_nothing_fits(node, gpu)
            label = f"{_gib(left)} in no vGPU. " + (f"Fits: {fits}" if fits else why)
            words = (f"{_gib(left)} left", f"fits {fits}" if fits else "nothing fits")
            segments.append(_drawn("room", at / whole, left / whole, label, words))
        slices = gpu["slices"] or 1
        at_slices = (_percent(number / slices) for number in range(1, slices))
        lines = "".join(f'<line x1="{at}" x2="{at}" y1="0" y2="100%"/>' for at in at_slices)
        cuts = f'<g class="cuts" aria-hidden="true">{lines}</g>' if lines else ""
        reading = self._id()
        return (
            f'<svg class="bar" role="img" tabindex="0" aria-label="{text(_summary(gpu))}" aria-describedby="{reading}">'
            f'{"".join(segments)}{cuts}</svg><p class="reading" id="{reading}" aria-live="polite"></p>'
        )

    def _segment(self, vgpu: Json, start: float, width: float, *, new: bool) -> str:
        who = ", ".join(holder["path"] for holder in vgpu["holders"])
        # A narrow one has room for the size alone, a very narrow one for nothing.
        short = vgpu["short"] if width > NARROW else vgpu["short"].rpartition("-")[2]
        words = (short, who or STATE_WORDS[vgpu["state"]]) if width > TINY else ("", "")
        kind = f"{vgpu['state']} {self.colour(vgpu['short'])}{' new' if new else ''}"
        more = {"profile": vgpu["short"], "state": vgpu["state"], "holder": who, "name": vgpu["name"] or ""}
        marked = bool(vgpu["findings"] or vgpu["drifted"])
        return _drawn(kind, start, width, _title(vgpu), words, marked=marked, **more)

    def _fits(self, node: Json, gpu: Json) -> str:
        fits = _fits_text(gpu["available_profiles"], "count")
        if fits:
            return f'<p class="fits"><b>Still fits</b>, any one of: {text(fits)}</p>'
        return f'<p class="fits">{text(_why_nothing_fits(node, gpu))}</p>'

    def _table(self, gpu: Json) -> str:
        """The same as the bar for whoever does not see it, or looks for a name."""
        if not gpu["vgpus"]:
            return ""
        rows = "".join(
            f'<tr data-name="{text(one["name"] or "")}"><th scope="row">{text(one["short"])}</th>'
            f"<td>{text(_state_words(one))}</td><td>{text(', '.join(map(_holder_words, one['holders'])) or '-')}</td>"
            f"<td>{text(_gib(one['framebuffer_mib']))}</td><td>{text(one['name'] or 'not there yet')}</td></tr>"
            for one in gpu["vgpus"]
        )
        return (
            f'<details class="list"><summary>{_counted(len(gpu["vgpus"]), "vGPU")} as a table</summary>'
            f'<div class="scroll"><table class="vgpus"><caption class="vh">vGPUs of {text(gpu["name"])}</caption>'
            '<thead><tr><th scope="col">Profile</th><th scope="col">State</th><th scope="col">VM</th>'
            '<th scope="col">Memory</th><th scope="col">Device</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div></details>"
        )

    # Plans
    def _plan(self, plan: Json) -> str:
        name = self.name(plan["before"])
        steps = "".join(f"<li>{text(step)}</li>" for step in plan["steps"])
        listed = f"<ol>{steps}</ol>" if steps else _none("Nothing is left to change.")
        parts = [f'<div class="steps"><h3>Steps, in order</h3>{listed}</div>']
        for heading, key in (("VMs that are stopped", "stops"), ("What is waited for", "waits"), ("Notes", "notes")):
            if plan.get(key):
                items = "".join(f"<li>{text(one)}</li>" for one in plan[key])
                parts.append(f'<div class="{key}"><h3>{heading}</h3><ul>{items}</ul></div>')
            elif key == "stops":
                parts.append(f'<div class="stops"><h3>{heading}</h3>{_none("None.")}</div>')
        return (
            f'<section class="panel plan" aria-label="Plan"><h2>Plan for {text(name)}: {text(plan["summary"])}</h2>'
            f"{''.join(parts)}</section>\n"
        )


_PATTERNS = (
    '<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>'
    '<pattern id="claimed" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V9"/></pattern>'
    '<pattern id="drifted" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V9M0 0H9"/></pattern>'
    '<pattern id="unusable" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<circle cx="2" cy="2" r="1.1"/></pattern>'
    "</defs></svg>\n"
)


def _drawn(
    kind: str, start: float, width: float, label: str, words: tuple[str, str], *, marked: bool = False, **data: str
) -> str:
    """One part of a bar: its colour, its pattern, and as much of its words as there is room for."""
    x, wide = _percent(start), _percent(width)
    attributes = "".join(f' data-{name}="{text(value)}"' for name, value in data.items())
    box = f'x="{x}" width="{wide}" y="0" height="100%" rx="5"'
    mark = '<circle class="tag" cx="100%" cy="0" r="9" transform="translate(-13 13)"/>' if marked else ""
    bang = '<text class="bang" x="100%" y="17" dx="-13">!</text>' if marked else ""
    return (
        f'<g class="seg {kind}"{attributes}><title>{text(label)}</title><rect class="b" {box}/><rect class="o" {box}/>'
        f'<svg x="{x}" width="{wide}" height="100%"><text class="name" x="9" y="21">{text(words[0])}</text>'
        f'<text class="who" x="9" y="38">{text(words[1])}</text>{mark}{bang}</svg></g>'
    )


def _scale(gpu: Json) -> str:
    """Marks below a bar, in GiB."""
    whole = max(gpu["framebuffer_mib"] or 0, _drawn_mib(gpu))
    if not whole:
        return ""
    marks = "".join(
        f'<line x1="{_percent(part / 4)}" x2="{_percent(part / 4)}" y1="1" y2="5"/>'
        f'<text x="{_percent(part / 4)}" y="16" text-anchor="{("start", "middle", "middle", "middle", "end")[part]}">'
        f"{_number(whole / 1024 * part / 4)}{' GiB' if part == 4 else ''}</text>"
        for part in range(5)
    )
    return f'<svg class="scale" aria-hidden="true">{marks}</svg>'


def _drawn_mib(gpu: Json) -> int:
    vgpus: int = sum(one["framebuffer_mib"] or 0 for one in gpu["vgpus"])
    empty: int = sum((one["framebuffer_mib"] or 0) * one["empty"] for one in gpu["geometry"])
    return vgpus + empty


def _differs(gpu: Json, later: Json | None) -> bool:
    if later is None:
        return False

    def shape(one: Json) -> Any:
        vgpus = [(vgpu["name"], vgpu["profile"], vgpu["requested"], _paths(vgpu)) for vgpu in one["vgpus"]]
        return vgpus, one["geometry"], one["mode"], one["vgpu_enabled"]

    return bool(shape(gpu) != shape(later))


def _paths(vgpu: Json) -> list[str]:
    return [holder["path"] for holder in vgpu["holders"]]


def _holders(gpu: Json) -> list[str]:
    return sorted({path for vgpu in gpu["vgpus"] for path in _paths(vgpu)})


def _lines(values: Iterable[str]) -> str:
    """Several values in one attribute. A name with a line break is as good without."""
    return "&#10;".join(text(value.replace("\n", " ")) for value in values)


def _is_there(record: Json, one: Json) -> bool:
    return bool(one["in_use"] or one["claimed"] or (one["total"] and not record["shares_room"]))


def _row(record: Json, one: Json) -> tuple[Any, ...]:
    return (one["total"], one["in_use"], one["claimed"], one["free"], one["available"])


def _request_words(one: Json) -> str:
    if one["restart_pending"]:
        return "gets them when it is restarted"
    return "has them" if one["state"] == "in_use" else "takes them when it starts"


def _fits_text(available: Iterable[Json], key: str, limit: int | None = None) -> str:
    """Profiles of one size and number are told together: they differ in what they are licensed for."""
    together: dict[tuple[int, str], list[str]] = {}
    for one in available:
        found = _SERIES.fullmatch(one["short"])
        size, series = (found["size"], found["series"]) if found else (one["short"], "")
        if one[key]:
            together.setdefault((one[key], size), []).append(series)
    parts = [f"{count} x {size}{'/'.join(sorted(filter(None, series)))}" for (count, size), series in together.items()]
    if limit and len(parts) > limit:
        return ", ".join(parts[:limit]) + " …"
    return ", ".join(parts)


def _why_nothing_fits(node: Json, gpu: Json) -> str:
    if node["unavailable_reason"]:
        return f"The node cannot be used: {node['unavailable_reason']}."
    if gpu["unavailable_reason"]:
        return f"The GPU cannot be used: {gpu['unavailable_reason']}."
    if not gpu["vgpu_enabled"]:
        return GRAPHICS.get(gpu["graphics_type"] or "", "SR-IOV is off, so the GPU has no vGPUs.")
    return "Nothing more fits."


def _summary(gpu: Json) -> str:
    """The bar in one sentence."""
    counts = ", ".join(f"{gpu[state]} {STATE_WORDS[state]}" for state in STATES if gpu[state]) or "no vGPUs"
    return f"{gpu['board'] or 'GPU'} {gpu['name']}: {counts}. Arrow keys go through the vGPUs."


def _state_words(vgpu: Json) -> str:
    words = STATE_WORDS[vgpu["state"]]
    return f"{words}, drifted" if vgpu["drifted"] and vgpu["state"] != "drifted" else words


def _title(vgpu: Json) -> str:
    state = STATE_WORDS[vgpu["state"]]
    parts = [f"{vgpu['short']}, {_gib(vgpu['framebuffer_mib'])}, {state}"]
    if vgpu["holders"]:
        parts.append("VM " + ", ".join(map(_holder_words, vgpu["holders"])))
    if vgpu["drifted"]:
        parts.append(f"requested as {vgpu['requested']}")
    if vgpu["name"]:
        parts.append(vgpu["name"])
    return " - ".join([*parts, *(one["text"] for one in vgpu["findings"])])


def _holder_words(holder: Json) -> str:
    return str(holder["path"]) + ("" if holder["running"] else " (stopped)")


def _gpu_notes(gpu: Json) -> str:
    found = {
        one["text"]: one for one in (*gpu["findings"], *(one for vgpu in gpu["vgpus"] for one in vgpu["findings"]))
    }
    notes = [{"text": one, "restart": ""} for one in gpu["notes"]]
    return _notes([*found.values(), *notes])


def _notes(findings: Sequence[Json]) -> str:
    if not findings:
        return ""
    items = "".join(f"<li>{_restart(one['restart'])}{text(one['text'])}</li>" for one in findings)
    return f'<ul class="notes" aria-label="Findings">{items}</ul>'


def _restart(what: str) -> str:
    return f"<b>{RESTARTS[what]}.</b> " if what in RESTARTS else ""


def _none(words: str) -> str:
    return f'<p class="none">{words}</p>'


def _span(kind: str, words: str) -> str:
    return f'<span class="{kind}">{text(words)}</span>' if words else ""


def _card(noun: str, number: int, *, alert: bool = False) -> tuple[str, int, bool]:
    return _plural(noun, number), number, alert


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def _counted(number: int, noun: str) -> str:
    return f"{number} {_plural(noun, number)}"


def _gib(mib: int | None) -> str:
    return f"{_number(mib / 1024)} GiB" if mib is not None else "unknown size"


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _percent(part: float) -> str:
    return f"{part * 100:.4f}".rstrip("0").rstrip(".") + "%"
