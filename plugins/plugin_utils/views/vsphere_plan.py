# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The changes of a dry run on a vCenter, as steps. Pure.

The steps come from the results of vsphere_gpu_host and vsphere_vgpu_vm in check mode. vCenter chooses the host and GPU
of a VM when it starts, so the later state of the GPUs is unknown: the record is the same before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .record import fleet_record, short_name

Json = dict[str, Any]
Result = Mapping[str, Any]


def vsphere_plan(results: Iterable[Result], info: Result, availability: Result | None, *, cluster: str) -> Json:
    """Return the steps of results in check mode, the VMs that they stop, and the conditions that they wait for."""
    before = fleet_record(info, availability, cluster=cluster)
    plan: Json = {"before": before, "after": before, "steps": [], "stops": [], "waits": [], "notes": []}
    for result in results:
        if "hosts" in result:
            _hosts(plan, result)
        elif "vm" in result:
            _vm(plan, result)
    return plan


def _hosts(plan: Json, result: Result) -> None:
    before, after = _diff(result)
    for name in after if result.get("changed") else ():
        plan["steps"] += _host_steps(name, before.get(name) or {}, after[name])
    for host in result["hosts"]:
        if host["reboot_required"]:
            plan["notes"].append(f"Host {host['name']} has to be rebooted before its GPUs serve vGPUs.")
    for name in result.get("restarted") or ():
        plan["steps"].append(f"Restart Xorg on host {name}")
        plan["waits"].append(f"host {name} to apply the graphics type")


def _host_steps(host: str, before: Result, after: Result) -> Iterator[str]:
    for key, words in (("graphics_type", "default graphics type"), ("assignment_policy", "assignment policy")):
        if before.get(key) != after.get(key):
            yield f"Set the {words} of host {host} to {_spaced(after.get(key))}"
    known = before.get("devices") or {}
    for address, device in (after.get("devices") or {}).items():
        for key, words in (("configured_graphics_type", "graphics type"), ("configured_vgpu_mode", "vGPU mode")):
            if (known.get(address) or {}).get(key) != device.get(key):
                yield f"Set the {words} of GPU {address} of host {host} to {_spaced(device.get(key))}"


def _spaced(value: Any) -> str:
    return str(value).replace("_", " ")


def _diff(result: Result) -> tuple[Json, Json]:
    diff = result.get("diff") or {}
    return diff.get("before") or {}, diff.get("after") or {}


def _vm(plan: Json, result: Result) -> None:
    if not result.get("changed"):
        return
    name, vgpus = result["vm"]["name"], _listed(result.get("vgpus") or ())
    before, after = _diff(result)
    if before and not after:
        plan["steps"].append(f"Delete VM {name}")
        if before.get("power") != "off":
            plan["stops"].append(f"VM {name}, which is deleted")
    elif result.get("created"):
        plan["steps"].append(f"Create VM {name} with {vgpus}")
    elif result.get("restarted"):
        plan["steps"].append(f"Stop VM {name}, give it {vgpus}, and start it")
        plan["stops"].append(f"VM {name}, while its vGPUs change")
    else:
        power = after.get("power")
        if power == "off":
            plan["steps"].append(f"Power off VM {name}")
            plan["stops"].append(f"VM {name}, which is powered off")
        if set(after) != {"power"}:
            plan["steps"].append(f"Give VM {name} {vgpus}")
        if power == "on":
            plan["steps"].append(f"Start VM {name}")
    if result["vm"]["running"]:
        plan["waits"].append(f"VM {name} to run")


def _listed(vgpus: Iterable[Result]) -> str:
    counts = Counter(short_name(vgpu["profile"]) for vgpu in vgpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "no vGPUs"
