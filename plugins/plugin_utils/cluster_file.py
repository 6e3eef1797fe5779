# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables that describe an existing fleet, so that a run of the cluster playbooks with them changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from ..module_utils.errors import join_names
from ..module_utils.fleet.model import OWNER as OWNER_KIND, VSPHERE
from ..module_utils.harvester.ownership import DEFAULT_OWNER, MANAGED_BY, OWNER
from .views.record import platform_of, short_name

Json = dict[str, Any]
WIDTH = 120


@dataclass(frozen=True)
class ClusterFile:
    """Variables, and notes about what they leave out."""

    variables: Json
    notes: tuple[str, ...] = ()
    # VMs that can be adopted, in the format of the variable that lists VMs.
    adoptable: Sequence[Json] = field(default_factory=list)

    def text(self) -> str:
        """Return the file: variables, with the notes and the VMs to adopt as comments."""
        lines = ["---", "# The state of the fleet when this file was written. A run with it changes nothing."]
        lines += [f"# {note}" for note in self.notes]
        dumped = yaml.safe_dump(self.variables, sort_keys=False, width=WIDTH, default_flow_style=None)
        lines += dumped.rstrip("\n").split("\n")
        if self.adoptable:
            lines += [
                "",
                "# These VMs were created by other means. To manage them, move them to the list above:",
            ]
            shown = yaml.safe_dump(list(self.adoptable), sort_keys=False, width=WIDTH, default_flow_style=None)
            lines += [f"#   {line}" for line in shown.rstrip("\n").split("\n")]
        return "\n".join(lines) + "\n"


def cluster_file(info: Mapping[str, Any], owner: str = "") -> ClusterFile:
    """Return the file for the full result of harvester_gpu_info or vsphere_gpu_info.

    Without `owner`, the owner of most marked vGPUs is taken, or the default.
    """
    return _vsphere(info) if platform_of(info) == VSPHERE else _harvester(info, owner)


def _harvester(info: Mapping[str, Any], owner: str) -> ClusterFile:
    vgpus = [(gpu, slot) for gpu, slot in _slots(info) if slot["requested"] or slot["profile"]]
    marks = Counter(slot["owner"] for _gpu, slot in vgpus if slot["owner"])
    chosen = owner or (marks.most_common(1)[0][0] if marks else DEFAULT_OWNER)
    mine = [(gpu, slot) for gpu, slot in vgpus if slot["owner"] in (None, chosen)]
    notes = []
    if others := sorted(set(marks) - {chosen}):
        notes.append(f"It leaves out the vGPUs of other owners: {join_names(others)}.")
    mig = [gpu["name"] for gpu in _gpus(info) if gpu["mode"] == "mig" and gpu["vgpu_enabled"]]
    if mig:
        notes.append(f"MIG instances without a vGPU are left out. GPUs in MIG mode: {join_names(mig)}.")
    variables: Json = {
        # Addons and driver stay as they are.
        "harvester_gpu_node_manage_addons": False,
        "harvester_gpu_node_owner": chosen,
        "harvester_gpu_node_layout": _layout(mine),
    }
    vms = list(_vms(info))
    owned = [vm for vm in vms if vm["labels"].get(OWNER) == chosen and vm["labels"].get(MANAGED_BY)]
    foreign = [vm for vm in vms if vm not in owned and OWNER not in vm["labels"]]
    if owned:
        variables["harvester_gpu_vm_owner"] = chosen
        variables["harvester_gpu_vm_vms"] = [_harvester_vm(vm) for vm in owned]
    return ClusterFile(variables, tuple(notes), [{**_harvester_vm(vm), "adopt": True} for vm in foreign])


def _harvester_vm(vm: Json) -> Json:
    return {"name": vm["name"], "namespace": vm["namespace"], "running": vm["running"], "vgpus": _vgpus(vm["profiles"])}


def _vsphere(info: Mapping[str, Any]) -> ClusterFile:
    serving = [
        node["name"] for node in info["nodes"] if node["gpus"] and all(gpu["vgpu_enabled"] for gpu in node["gpus"])
    ]
    partly = [
        node["name"]
        for node in info["nodes"]
        if node["name"] not in serving and any(gpu["vgpu_enabled"] for gpu in node["gpus"])
    ]
    notes = []
    if partly:
        notes.append(f"It leaves out hosts on which only some GPUs are shared direct: {join_names(partly)}.")
    variables: Json = {}
    if serving:
        variables["vsphere_gpu_host_hosts"] = serving
    vms = list(_vms(info))
    variables["vsphere_gpu_vm_vms"] = [
        {
            "name": vm["name"],
            "state": "powered_on" if vm["running"] else "present",
            "vgpus": _vgpus(vm["profiles"]),
        }
        for vm in vms
    ]
    return ClusterFile(variables, tuple(notes))


def _gpus(info: Mapping[str, Any]) -> Iterator[Json]:
    for node in info["nodes"]:
        yield from node["gpus"]


def _slots(info: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    for gpu in _gpus(info):
        for slot in gpu["slots"]:
            yield gpu["name"], slot


def _layout(vgpus: Iterable[tuple[str, Json]]) -> list[Json]:
    """Return a layout that names every GPU, so that no vGPU moves. GPUs with the same number share an entry."""
    counts = Counter((short_name(slot["requested"] or slot["profile"]), gpu) for gpu, slot in vgpus)
    entries: dict[tuple[str, int], list[str]] = {}
    for (profile, gpu), count in sorted(counts.items()):
        entries.setdefault((profile, count), []).append(gpu)
    return [
        {"profile": profile, "count": count, "per": "gpu", "gpus": gpus} for (profile, count), gpus in entries.items()
    ]


def _vms(info: Mapping[str, Any]) -> Iterator[Json]:
    """Yield the VMs that have or request vGPUs, with the profiles of all their vGPUs."""
    found: dict[tuple[str, str], Json] = {}

    def add(holder: Mapping[str, Any], profile: str, count: int) -> None:
        if holder["kind"] == OWNER_KIND:
            return
        vm = found.setdefault(
            (holder["namespace"], holder["name"]),
            {
                "name": holder["name"],
                "namespace": holder["namespace"],
                "running": holder["running"],
                "labels": dict(holder.get("labels") or {}),
                "profiles": Counter(),
            },
        )
        vm["profiles"][short_name(profile)] += count

    for _gpu, slot in _slots(info):
        for holder in slot["holders"]:
            add(holder, slot["profile"] or slot["requested"], 1)
    for claim in info["claims"]:
        if not claim["protective"]:
            add(claim["holder"], claim["profile"], claim["count"])
    yield from (vm for _path, vm in sorted(found.items()))


def _vgpus(profiles: Mapping[str, int]) -> list[Json]:
    return [{"profile": profile, "count": count} for profile, count in sorted(profiles.items())]
