# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is not as declared or about to go wrong, from what modules said, and what may be done about it. Pure.

A finding has a kind, what it is about, a sentence, and the way in which it can be repaired, which is empty where a
machine's owner has to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]


def harvester_drift(
    fleet: Mapping[str, Any],
    driver: Mapping[str, Any] | None = None,
    layout: Mapping[str, Any] | None = None,
    unused: bool = True,
) -> list[Json]:
    found = [*_driver(driver or {}), *_devices(fleet), *_layout(layout or {})]
    return found + list(_unused(fleet) if unused else ())


def _finding(kind: str, device: str, text: str, repair: str = "", **more: Any) -> Json:
    return {"kind": kind, "device": device, "text": text, "repair": repair, **more}


def _driver(result: Mapping[str, Any]) -> Iterator[Json]:
    """From harvester_addon in check mode, with the location that was declared, if one was."""
    name = "nvidia-driver-toolkit"
    if error := result.get("error"):
        yield _finding("driver_addon", name, error["message"])
        return
    diff = result.get("diff") or {}
    before, after = diff.get("before") or {}, diff.get("after") or {}
    differing = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    if differing:
        said = "; ".join(f"{key} is {before.get(key)} and should be {after.get(key)}" for key in differing)
        yield _finding("driver_addon", name, f"Addon {name} is not as declared: {said}.", "driver")


def _devices(fleet: Mapping[str, Any]) -> Iterator[Json]:
    slots = {slot["name"]: slot for node in fleet["nodes"] for gpu in node["gpus"] for slot in gpu["slots"]}
    for finding in fleet["findings"]:
        kind, device = finding["kind"], finding["device"]
        slot = slots.get(device)
        if kind in ("stale_note", "two_displays"):
            yield _finding(kind, device, finding["text"], "vm")
        elif kind == "type_differs" and slot and not slot["holders"]:
            wanted = {"name": device, "profile": slot["wanted"]}
            yield _finding(kind, device, finding["text"], "device", wanted=wanted)
        else:
            yield _finding(kind, device, finding["text"])


def _layout(result: Mapping[str, Any]) -> Iterator[Json]:
    """From harvester_vgpu in check mode, with the layout that was declared."""
    if error := result.get("error"):
        yield _finding("layout_differs", "", f"The declared layout cannot be had. {error['message']}")
        return
    for gpu, steps in _by_gpu((result.get("plan") or {}).get("steps") or []).items():
        said = ", ".join(f"{step['slot'] or 'SR-IOV'}: {_change(step)}" for step in steps)
        yield _finding("layout_differs", gpu, f"GPU {gpu} is not laid out as declared ({said}).", "layout")


def _by_gpu(steps: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    by_gpu: dict[str, list[Mapping[str, Any]]] = {}
    for step in steps:
        by_gpu.setdefault(step["gpu"], []).append(step)
    return by_gpu


def _change(step: Mapping[str, Any]) -> str:
    return "on" if step["action"] == "share" else f"{step['before'] or 'empty'} -> {step['after'] or 'empty'}"


def _unused(fleet: Mapping[str, Any]) -> Iterator[Json]:
    """vGPUs that no VM has or asks for; VMs that ask for a profile count, whatever device they will get."""
    idle = Counter(vgpu["profile"] for vgpu in fleet["vgpus"] if vgpu["profile"] and not vgpu["holders"])
    for claim in fleet["claims"]:
        idle[claim["profile"]] -= claim["count"]
    for profile, count in sorted(idle.items()):
        if count > 0:
            yield _finding("unused", profile, f"{count} x {profile} are there and no VM asks for them.")


def _differs(result: Mapping[str, Any]) -> bool:
    diff = result.get("diff") or {}
    return diff.get("before") != diff.get("after")


def vsphere_drift(fleet: Mapping[str, Any], vms: Iterable[Mapping[str, Any]] = ()) -> list[Json]:
    """From vsphere_gpu_info, and from vsphere_vgpu_vm in check mode, which was asked to prepare each VM with vGPUs."""
    found = [_finding(one["kind"], one["device"], one["text"]) for one in fleet["findings"]]
    for result in vms:
        holder = result["item"]
        name, moid = holder["name"], holder["labels"]["moid"]
        error = result.get("error")
        if error and error["code"] == "power_cycle_required":
            text = f"VM {name} lacks what its vGPUs need, and has to be stopped to get it. {error['message']}"
            found.append(_finding("not_prepared", name, text))
        elif error:
            found.append(_finding("vm", name, error["message"]))
        elif _differs(result):
            text = f"VM {name} lacks what its vGPUs need to start, such as reserved memory."
            found.append(_finding("not_prepared", name, text, "vm", moid=moid))
    return found
