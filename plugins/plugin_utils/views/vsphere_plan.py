# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The changes of a dry run on a vCenter, as steps. Pure.

The steps come from the results of vsphere_gpu_host and vsphere_vgpu_vm in check mode. vCenter chooses the host and GPU
of a VM when it starts, so the later state of the GPUs is unknown: the record is the same before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record, short_name

Json = dict[str, Any]
Result = Mapping[str, Any]


def vsphere_plan(results: Iterable[Result], info: Result, availability: Result | None, *, cluster: str) -> Json:
    """Return the steps of results in check mode, the VMs that they stop, and the conditions that they wait for."""
    before = fleet_record(info, availability, cluster=cluster)
    plan: Json = {"before": before, "after": before, "steps": [], "stops": [], "waits": [], "notes": []}
    for result in results:
        if "hosts" in result:
            _hosts(plan, result, info)
        elif "vm" in result:
            _vm(plan, result)
    return plan


def _hosts(plan: Json, result: Result, info: Result) -> None:
    now = {(node["name"], gpu["address"]): gpu.get("graphics_type") for node in info["nodes"] for gpu in node["gpus"]}
    for host in result["hosts"]:
        for device in host["devices"]:
            wanted = device["configured_graphics_type"]
            if result.get("changed") and now.get((host["name"], device["pci_id"])) != wanted:
                words = str(wanted).replace("_", " ")
                plan["steps"].append(
                    f"Set the graphics type of GPU {device['pci_id']} of host {host['name']} to {words}"
                )
        if host["reboot_required"]:
            plan["notes"].append(f"Host {host['name']} has to be rebooted before its GPUs serve vGPUs.")
    for name in result.get("restarted") or ():
        plan["steps"].append(f"Restart Xorg on host {name}")
        plan["waits"].append(f"host {name} to apply the graphics type")
    if result.get("changed") and not plan["steps"]:
        plan["steps"].append("Change the assignment policy or the vGPU mode of the hosts")


def _vm(plan: Json, result: Result) -> None:
    if not result.get("changed"):
        return
    name, vgpus = result["vm"]["name"], _listed(result.get("vgpus") or ())
    if result.get("created"):
        plan["steps"].append(f"Create VM {name} with {vgpus}")
    elif result.get("restarted"):
        plan["steps"].append(f"Stop VM {name}, give it {vgpus}, and start it")
        plan["stops"].append(f"VM {name}, while its vGPUs change")
    else:
        plan["steps"].append(f"Give VM {name} {vgpus}")
    if result["vm"]["running"]:
        plan["waits"].append(f"VM {name} to run")


def _listed(vgpus: Iterable[Result]) -> str:
    counts = Counter(short_name(one["profile"]) for one in vgpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "no vGPUs"
