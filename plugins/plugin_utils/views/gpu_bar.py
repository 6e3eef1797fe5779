# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One GPU as a bar, divided to scale into its vGPUs, and the GPUs of a collapsed node in miniature. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .markup import STATE_WORDS, fitting, gib, number, percent, state_counts, text

Json = Mapping[str, Any]
Colour = Callable[[str], str]

# Shares of a bar's width. Below these, a segment shows its VM without the namespace, the profile without the board, no
# VM, and no text.
MEDIUM, NARROW, SLIM, TINY = 0.24, 0.14, 0.08, 0.045
# Maximum number of profiles that the free part of a bar lists.
NAMED = 2
# Below this share of the width, the free part of a bar has no text.
ROOMY = 0.22

GRAPHICS = {
    "shared": "The graphics type of the GPU is shared, which serves no vGPUs.",
    "direct": "The GPU is assigned to a VM as a whole.",
    "basic": "The graphics type of the GPU is basic, which serves no vGPUs.",
}

# Patterns of states, referenced by all bars of a page.
PATTERNS = (
    '<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>'
    '<pattern id="claimed" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V8"/></pattern>'
    '<pattern id="drifted" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V9M0 0H9"/></pattern>'
    '<pattern id="unusable" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<circle cx="2" cy="2" r="1.1"/></pattern>'
    "</defs></svg>\n"
)


def gpu_bar(node: Json, gpu: Json, colour: Colour, identifier: str, before: Json | None = None) -> str:
    """Return the bar of a GPU. With `before`, mark vGPUs that do not exist yet as new."""
    whole = max(gpu["framebuffer_mib"] or 0, drawn_mib(gpu)) or 1
    there = {(old["name"], old["profile"]) for old in before["vgpus"]} if before else None
    segments, at = [], 0
    for vgpu in gpu["vgpus"]:
        if not vgpu["profile"] and not vgpu["framebuffer_mib"]:
            continue
        width = vgpu["framebuffer_mib"] or 0
        new = there is not None and (vgpu["name"], vgpu["profile"]) not in there
        segments.append(_vgpu(vgpu, at / whole, width / whole, colour, new=new))
        at += width
    for instance in gpu["geometry"]:
        for _number in range(instance["empty"]):
            width = instance["framebuffer_mib"] or 0
            segments.append(_empty_instance(instance, at / whole, width / whole, colour))
            at += width
    if at < whole and gpu["framebuffer_mib"]:
        segments.append(_room(node, gpu, whole - at, whole))
    slices = gpu["slices"] or 1
    at_slices = (percent(part / slices) for part in range(1, slices))
    lines = "".join(f'<line x1="{at}" x2="{at}" y1="0" y2="100%"/>' for at in at_slices)
    cuts = f'<g class="cuts" aria-hidden="true">{lines}</g>' if lines else ""
    return (
        f'<svg class="bar" role="img" tabindex="0" aria-label="{text(_sentence(gpu))}" aria-describedby="{identifier}">'
        f'{"".join(segments)}{cuts}</svg><p class="reading" id="{identifier}" aria-live="polite"></p>'
    )


def scale(gpu: Json) -> str:
    """Return the marks below a bar, in GiB."""
    whole = max(gpu["framebuffer_mib"] or 0, drawn_mib(gpu))
    if not whole:
        return ""
    marks = "".join(
        f'<line x1="{percent(part / 4)}" x2="{percent(part / 4)}" y1="1" y2="5"/>'
        f'<text x="{percent(part / 4)}" y="16" text-anchor="{("start", "middle", "middle", "middle", "end")[part]}">'
        f"{number(whole / 1024 * part / 4)}{' GiB' if part == 4 else ''}</text>"
        for part in range(5)
    )
    return f'<svg class="scale" aria-hidden="true">{marks}</svg>'


def miniatures(gpus: Iterable[Json], colour: Colour) -> str:
    """Return the bars of a node without text, for its collapsed heading."""
    return "".join(_miniature(gpu, colour) for gpu in gpus)


def _miniature(gpu: Json, colour: Colour) -> str:
    whole = max(gpu["framebuffer_mib"] or 0, drawn_mib(gpu)) or 1
    parts, at = [], 0
    for vgpu in gpu["vgpus"]:
        width = vgpu["framebuffer_mib"] or 0
        kind = f"{vgpu['state']} {colour(vgpu['short'])}"
        parts.append(f'<rect class="{kind}" x="{percent(at / whole)}" width="{percent(width / whole)}"/>')
        at += width
    kind = "mini" if gpu["vgpu_enabled"] and not gpu["unavailable_reason"] else "mini off"
    return f'<svg class="{kind}" aria-hidden="true">{"".join(parts)}</svg>'


def drawn_mib(gpu: Json) -> int:
    vgpus: int = sum(vgpu["framebuffer_mib"] or 0 for vgpu in gpu["vgpus"])
    empty: int = sum((instance["framebuffer_mib"] or 0) * instance["empty"] for instance in gpu["geometry"])
    return vgpus + empty


def swatch(kind: str) -> str:
    """Return a sample of a segment, for a legend."""
    box = 'x="1" y="1" width="22" height="14" rx="3"'
    return f'<svg aria-hidden="true"><g class="seg {kind}"><rect class="b" {box}/><rect class="o" {box}/></g></svg>'


def unsaid_fits(node: Json, gpu: Json) -> str:
    """Return the profiles that fit, or why none fits, unless the bar or the heading of the node shows it already."""
    fits = fitting(gpu["available_profiles"], "count")
    if not fits:
        return "" if node["unavailable_reason"] else _unavailable(node, gpu)
    room = 1 - drawn_mib(gpu) / (gpu["framebuffer_mib"] or 1)
    return f"Fits, one of: {', '.join(fits)}" if len(fits) > NAMED or room < ROOMY else ""


def holder_words(holder: Json) -> str:
    return str(holder["path"]) + ("" if holder["running"] else " (stopped)")


def _unavailable(node: Json, gpu: Json) -> str:
    if node["unavailable_reason"]:
        return f"The node is unavailable: {node['unavailable_reason']}."
    if gpu["unavailable_reason"]:
        return f"The GPU is unavailable: {gpu['unavailable_reason']}."
    if not gpu["vgpu_enabled"]:
        return GRAPHICS.get(gpu["graphics_type"] or "", "SR-IOV is disabled, so the GPU has no vGPUs.")
    return ""


def _sentence(gpu: Json) -> str:
    counts = ", ".join(state_counts(gpu)) or "no vGPUs"
    return f"{gpu['board'] or 'GPU'} {gpu['name']}: {counts}. Arrow keys go through the vGPUs."


def _vgpu(vgpu: Json, start: float, width: float, colour: Colour, *, new: bool) -> str:
    paths = [str(holder["path"]) for holder in vgpu["holders"]]
    named = paths if width > MEDIUM else [path.rpartition("/")[2] for path in paths]
    short = vgpu["short"] if width > NARROW else vgpu["short"].rpartition("-")[2]
    who = ", ".join(named) or STATE_WORDS[vgpu["state"]]
    words = (short if width > TINY else "", who if width > SLIM else "")
    kind = f"{vgpu['state']} {colour(vgpu['short'])}{' new' if new else ''}"
    data = {"profile": vgpu["short"], "state": vgpu["state"], "holder": ", ".join(paths), "name": vgpu["name"] or ""}
    marked = bool(vgpu["findings"] or vgpu["drifted"])
    return _segment(kind, start, width, _title(vgpu), words, marked=marked, **data)


def _empty_instance(instance: Json, start: float, width: float, colour: Colour) -> str:
    label = f"Empty MIG instance {instance['instance']}, which serves {instance['short']}"
    words = (instance["instance"] if width > SLIM else "", f"for {instance['short']}" if width > NARROW else "")
    return _segment(f"empty {colour(instance['short'])}", start, width, label, words, profile=instance["short"])


def _room(node: Json, gpu: Json, left: int, whole: int) -> str:
    fits = fitting(gpu["available_profiles"], "count")
    some = ", ".join(fits[:NAMED]) + (" …" if len(fits) > NAMED else "")
    why = _unavailable(node, gpu)
    label = f"{gib(left)} in no vGPU. " + (f"Fits: {some}" if fits else why or "Nothing more fits.")
    words = (f"{gib(left)} left", f"fits {some}" if fits else "out of service" if why else "nothing fits")
    kind = "room off" if why and not fits else "room"
    return _segment(kind, 1 - left / whole, left / whole, label, words if left / whole > TINY else ("", ""))


def _segment(
    kind: str, start: float, width: float, label: str, words: tuple[str, str], *, marked: bool = False, **data: str
) -> str:
    """Return one segment of a bar: its color, its pattern, and as much of its text as fits."""
    x, wide = percent(start), percent(width)
    attributes = "".join(f' data-{name}="{text(value)}"' for name, value in data.items())
    box = f'x="{x}" width="{wide}" y="0" height="100%" rx="4"'
    # HTML can shorten text with an ellipsis, SVG cannot.
    slim = " slim" if width <= NARROW else ""
    lines = "".join(f"<{tag}>{text(said)}</{tag}>" for tag, said in zip(("b", "span"), words, strict=True) if said)
    said = (
        f'<foreignObject x="{x}" width="{wide}" y="0" height="100%"><div class="words{slim}">{lines}</div>'
        "</foreignObject>"
        if lines
        else ""
    )
    mark = (
        f'<svg x="{x}" width="{wide}" height="100%"><circle class="tag" cx="100%" cy="0" r="8" '
        'transform="translate(-12 12)"/><text class="bang" x="100%" y="16" dx="-12">!</text></svg>'
        if marked
        else ""
    )
    return (
        f'<g class="seg {kind}"{attributes}><title>{text(label)}</title><rect class="b" {box}/><rect class="o" {box}/>'
        f"{said}{mark}</g>"
    )


def _title(vgpu: Json) -> str:
    parts = [f"{vgpu['short']}, {gib(vgpu['framebuffer_mib'])}, {STATE_WORDS[vgpu['state']]}"]
    if vgpu["holders"]:
        parts.append("VM " + ", ".join(map(holder_words, vgpu["holders"])))
    if vgpu["drifted"]:
        parts.append(f"requested as {vgpu['requested']}")
    if vgpu["name"]:
        parts.append(vgpu["name"])
    return " - ".join([*parts, *(finding["text"] for finding in vgpu["findings"])])
