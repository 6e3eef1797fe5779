# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Conversion of module results into drift findings, with the repair for each finding. Pure.

A finding has a kind, the object concerned, a text, and the name of a repair. The repair is empty if the owner of a VM
has to decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..module_utils.errors import join_names
from ..module_utils.fleet.model import Fleet
from ..module_utils.harvester.decide.in_use import protect_running_vms

Json = dict[str, Any]

DRIVER = "nvidia-driver-toolkit"
# The settings that vsphere_vgpu_vm would change, as texts.
NEEDS = {
    "memory_reservation_locked": "its memory is not reserved",
    "hardware_version": "its hardware version is too old",
    "mmio_64bit": "64-bit MMIO is off",
    "mmio_size_gb": "its MMIO region is too small",
}


def harvester_drift(
    found: Mapping[str, Any],
    driver: Mapping[str, Any] | None = None,
    layout: Mapping[str, Any] | None = None,
    unused: bool = True,
    all_nodes: bool = True,
    mig: Iterable[Mapping[str, Any]] = (),
    shared_layout: Mapping[str, Any] | None = None,
    restart_controllers: bool = False,
) -> list[Json]:
    """Return the findings on Harvester. Compare only declarations for which there is a result.

    `shared_layout` is the comparison without `exclusive`, for an exclusive layout that other vGPUs prevent.
    `restart_controllers` permits to repair vGPUs that their node does not offer by a restart of its controller.
    """
    fleet = Fleet.from_dict(found)
    layout = layout or {}
    beyond: list[Json] = []
    if "error" in layout and "plan" in (shared_layout or {}):
        # vGPUs that stay, such as those of another owner, must not hide the drift of the declared vGPUs.
        text = f"The GPUs have vGPUs beyond the exclusive layout that are not removed. {layout['error']['message']}"
        beyond = [_finding("layout_differs", "", text)]
        layout = shared_layout or {}
    steps = (layout.get("plan") or {}).get("steps") or []
    return [
        *_driver(driver or {}, _running(fleet), all_nodes),
        *_devices(found["findings"], protect_running_vms(fleet), {step["slot"] for step in steps}, restart_controllers),
        *_mig(mig),
        *beyond,
        *_layout(layout, steps),
        *(_unused(fleet) if unused else ()),
    ]


def _finding(kind: str, device: str, text: str, repair: str = "", **more: Any) -> Json:
    return {"kind": kind, "device": device, "text": text, "repair": repair, **more}


def _running(fleet: Fleet) -> list[str]:
    """Return the running VMs that have vGPUs."""
    holders = [holder for _gpu, slot in fleet.slots() for holder in slot.holders]
    holders += [claim.holder for claim in fleet.claims]
    return sorted({holder.path for holder in holders if holder.running})


def _driver(result: Mapping[str, Any], running: list[str], all_nodes: bool) -> Iterator[Json]:
    """Return the findings from a result of harvester_addon in check mode.

    A repair restarts the driver pods on all nodes, which install the driver again. There is no repair while VMs use the
    driver.
    """
    if error := result.get("error"):
        yield _finding("driver_addon", DRIVER, error["message"])
        return
    diff = result.get("diff") or {}
    before, after = _flat(diff.get("before") or {}), _flat(diff.get("after") or {})
    differing = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    if not differing:
        return
    said = "; ".join(f"{key} is {before.get(key)} and should be {after.get(key)}" for key in differing)
    text = f"Addon {DRIVER} is not as declared: {said}."
    if running:
        yield _finding("driver_addon", DRIVER, f"{text} No repair while VMs have vGPUs: {join_names(running)}.")
    elif not all_nodes:
        yield _finding("driver_addon", DRIVER, f"{text} No repair if only some nodes are checked.")
    else:
        yield _finding("driver_addon", DRIVER, text, "driver")


def _flat(addon: Mapping[str, Any]) -> Json:
    """Return the values next to the other keys, so that a finding lists only differing values."""
    return {**{key: value for key, value in addon.items() if key != "values"}, **(addon.get("values") or {})}


def _devices(
    findings: Iterable[Mapping[str, Any]], fleet: Fleet, planned: set[str], restart_controllers: bool
) -> Iterator[Json]:
    places = {slot.name: (gpu, slot) for gpu, slot in fleet.slots()}
    for finding in findings:
        kind, device, text = finding["kind"], finding["device"], finding["text"]
        if kind in ("stale_annotation", "two_displays"):
            yield _finding(kind, device, text, "vm")
        elif kind in ("not_permitted", "permitted_twice"):
            yield _finding(kind, device, text, "permitted_devices")
        elif kind == "not_allocatable" and restart_controllers and device in places:
            yield _finding(kind, device, text, "controller", node=places[device][0].node)
        elif kind == "claim_left_behind" and not places[device][1].holders:
            yield _finding(kind, device, text, "claim")
        elif kind == "type_differs" and device in planned:
            # The declared layout takes precedence over the spec of the device.
            yield _finding(kind, device, text, "layout")
        elif kind == "type_differs" and places[device][1].in_use and places[device][1].correctable:
            gpu, slot = places[device]
            said = f"{text} The repair resets its spec to {slot.profile} and does not affect the VM that uses it."
            # This is a separate repair, so that another vGPU of the GPU that cannot be repaired does not prevent it.
            yield _finding(kind, device, said, "spec", gpu=gpu.name, wanted={"name": device, "profile": slot.profile})
        elif kind == "type_differs" and not places[device][1].holders:
            gpu, slot = places[device]
            yield _finding(kind, device, text, "device", gpu=gpu.name, wanted={"name": device, "profile": slot.wanted})
        else:
            yield _finding(kind, device, text)


def _mig(results: Iterable[Mapping[str, Any]]) -> Iterator[Json]:
    """Return the findings from results of harvester_mig in check mode, one result for each declared entry."""
    for result in results:
        if error := result.get("error"):
            yield _finding(
                "mig_layout_differs", "", f"The declared MIG instances cannot be created. {error['message']}"
            )
            continue
        for gpu, changes in _by_gpu(result.get("steps") or []).items():
            said = ", ".join(str(step["action"]) for step in changes)
            yield _finding(
                "mig_layout_differs", gpu, f"The MIG instances of GPU {gpu} are not as declared (needs {said}).", "mig"
            )


def _layout(result: Mapping[str, Any], steps: Iterable[Mapping[str, Any]]) -> Iterator[Json]:
    """Return the findings from a result of harvester_vgpu in check mode."""
    if error := result.get("error"):
        yield _finding("layout_differs", "", f"The declared layout is not possible. {error['message']}")
        return
    for gpu, changes in _by_gpu(steps).items():
        said = ", ".join(f"{step['slot'] or 'SR-IOV'}: {_change(step)}" for step in changes)
        yield _finding("layout_differs", gpu, f"The layout of GPU {gpu} is not as declared ({said}).", "layout")


def _by_gpu(steps: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    by_gpu: dict[str, list[Mapping[str, Any]]] = {}
    for step in steps:
        by_gpu.setdefault(step["gpu"], []).append(step)
    return by_gpu


def _change(step: Mapping[str, Any]) -> str:
    return "on" if step["action"] == "enable_sriov" else f"{step['before'] or 'empty'} -> {step['after'] or 'empty'}"


def _unused(fleet: Fleet) -> Iterator[Json]:
    """Return findings for vGPUs that no VM has or requests. Requests by profile count, whichever vGPU they will get."""
    idle = Counter(slot.profile for _gpu, slot in fleet.slots() if slot.profile and not slot.holders)
    for claim in fleet.counted_claims:
        idle[claim.profile] -= claim.count
    for profile, count in sorted(idle.items()):
        if count > 0:
            yield _finding("unused", profile, f"{count} x {profile}: no VM uses these vGPUs.")


def vsphere_drift(
    fleet: Mapping[str, Any], vms: Iterable[Mapping[str, Any]] = (), evacuation: bool = False
) -> list[Json]:
    """Return the findings on vSphere. `vms` are results of vsphere_vgpu_vm in check mode, one per VM.

    With `evacuation`, hosts that cannot be emptied for maintenance are findings.
    """
    found = [_finding(finding["kind"], finding["device"], finding["text"]) for finding in fleet["findings"]]
    for host in fleet["nodes"] if evacuation else ():
        answer = host.get("evacuation")
        if answer and answer["vms"] and not answer["possible"]:
            text = f"Host {host['name']} cannot be emptied. {' '.join(answer['reasons'])}"
            found.append(_finding("cannot_be_emptied", host["name"], text))
    for result in vms:
        found += _vm(result["item"], result)
    return found


def _vm(holder: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Json]:
    name = holder["name"]
    if error := result.get("error"):
        kind = "not_prepared" if error["code"] in ("power_cycle_required", "vm_suspended") else "vm"
        yield _finding(kind, name, error["message"])
        return
    lacking = (result.get("diff") or {}).get("after") or {}
    if not lacking:
        return
    text = f"VM {name} lacks settings that its vGPUs require: {'; '.join(NEEDS.get(key, key) for key in lacking)}."
    if result["vm"]["power"] == "off":
        yield _finding("not_prepared", name, text, "vm", moid=holder["labels"]["moid"])
    else:
        yield _finding("not_prepared", name, f"{text} No repair because the VM is not powered off.")
