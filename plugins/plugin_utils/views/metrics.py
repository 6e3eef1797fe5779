# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet record and drift findings as metrics in the text format of Prometheus. Pure.

Every sample begins with the labels `cluster` and `platform`. One file can hold the capacity and the drift of several
clusters: each writer replaces its own samples and keeps the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...module_utils.errors import FleetError
from ...module_utils.fleet.model import HARVESTER, VSPHERE
from .record import findings_of, gpus_of

Record = Mapping[str, Any]
Labels = Mapping[str, str]
Samples = dict[str, list[tuple[Labels, float]]]

MARK = "# Written by vgpu.fleet. Samples of other clusters are kept when a cluster is written again."
MIB = 1024 * 1024

COUNTS = {
    "": "that VMs can have, whether they are used or not",
    "_in_use": "that running VMs have",
    "_claimed": "that VMs take which are stopped or wait for a node",
    "_free": "that are left when VMs with a claim have got theirs",
}
KEYS = {"": "total", "_in_use": "in_use", "_claimed": "claimed", "_free": "free"}
LEVELS = {
    "vgpu_fleet_vgpus": "vGPUs of a profile in the cluster",
    "vgpu_fleet_node_vgpus": "vGPUs of a profile on a node",
    "vgpu_fleet_gpu_vgpus": "vGPUs of a profile on a GPU",
}
CAPACITY = {
    "vgpu_fleet_info": "The platform's version; always 1",
    **{f"{level}{suffix}": f"{where} {said}" for level, where in LEVELS.items() for suffix, said in COUNTS.items()},
    "vgpu_fleet_vgpus_available": "vGPUs of a profile that could still be created, each profile counted alone",
    "vgpu_fleet_gpu_vgpus_drifted": "vGPUs on a GPU that have another profile than was requested",
    "vgpu_fleet_gpu_vgpus_unusable": "vGPUs on a GPU that exist and cannot be given to VMs",
    "vgpu_fleet_gpu_framebuffer_bytes": "Memory of a GPU, where it is known",
    "vgpu_fleet_gpu_framebuffer_used_bytes": "Memory of a GPU that vGPUs have, whether VMs use them or not",
    "vgpu_fleet_node_usable": "1 if VMs can start on a node with GPUs, otherwise 0",
    "vgpu_fleet_findings": "Findings of a kind while the capacity was read",
    "vgpu_fleet_capacity_last_success_timestamp_seconds": "When the capacity was last read",
}
DRIFT = {
    "vgpu_fleet_drift_findings": "Findings of a kind that drift left, by whether they can be repaired",
    "vgpu_fleet_drift_last_success_timestamp_seconds": "When drift was last looked for",
}
FAMILIES = {**CAPACITY, **DRIFT}

# The kinds of drift that are reported as 0 if nothing was found, so that graphs have a line.
DRIFT_KINDS = {
    HARVESTER: (
        "claim_left_behind",
        "credential_expired",
        "credential_expiring",
        "driver_addon",
        "invalid_annotation",
        "layout_differs",
        "mig_differs",
        "mig_layout_differs",
        "mig_out_of_sync",
        "mig_serves_nothing",
        "mig_unstable",
        "missing_label",
        "no_functions",
        "not_allocatable",
        "not_configured",
        "not_removed",
        "restart_required",
        "stale_annotation",
        "two_displays",
        "type_differs",
        "unrequested",
        "unused",
    ),
    VSPHERE: (
        "cannot_be_emptied",
        "driver_missing",
        "graphics_pending",
        "not_on_a_gpu",
        "not_prepared",
        "profile_not_offered",
        "vm",
    ),
}


class NotOurMetrics(FleetError):
    code = "not_our_metrics"


def capacity_samples(record: Record, at: float) -> Samples:
    """Return the samples of a fleet record and the time of its reading."""
    found: Samples = {name: [] for name in CAPACITY}
    of_cluster = cluster_labels(record["cluster"], record["platform"])
    detailed = _detailed(record)

    def add(name: str, value: float, **labels: str) -> None:
        found[name].append(({**of_cluster, **labels}, value))

    def add_counts(level: str, counts: Record, **labels: str) -> None:
        for suffix, key in KEYS.items():
            add(f"{level}{suffix}", counts[key], **labels)

    add("vgpu_fleet_info", 1, version=record["version"])
    for profile in record["profiles"]:
        add_counts("vgpu_fleet_vgpus", profile, profile=profile["short"])
        add("vgpu_fleet_vgpus_available", profile["available"], profile=profile["short"])
        if profile["profile"] in detailed:
            for counts in _counting(profile["nodes"]):
                add_counts("vgpu_fleet_node_vgpus", counts, node=counts["node"], profile=profile["short"])
    for node in record["nodes"]:
        if node["gpus"]:
            add("vgpu_fleet_node_usable", int(not node["unavailable_reason"]), node=node["name"])
    for node, gpu in gpus_of(record):
        place = {"node": node["name"], "gpu": gpu["name"]}
        for counts in _counting(profile for profile in gpu["profiles"] if profile["profile"] in detailed):
            add_counts("vgpu_fleet_gpu_vgpus", counts, **place, profile=counts["short"])
        add("vgpu_fleet_gpu_vgpus_drifted", gpu["drifted"], **place)
        add("vgpu_fleet_gpu_vgpus_unusable", gpu["unusable"], **place)
        if gpu["framebuffer_mib"]:
            add("vgpu_fleet_gpu_framebuffer_bytes", gpu["framebuffer_mib"] * MIB, **place, board=gpu["board"])
        add("vgpu_fleet_gpu_framebuffer_used_bytes", gpu["framebuffer_used_mib"] * MIB, **place, board=gpu["board"])
    for kind, count in sorted(_findings(record).items()):
        add("vgpu_fleet_findings", count, kind=kind)
    add("vgpu_fleet_capacity_last_success_timestamp_seconds", at)
    return found


def drift_samples(findings: Iterable[Record], at: float, *, cluster: str, platform: str) -> Samples:
    """Return the samples of the findings of vgpu_drift and their time."""
    of_cluster = cluster_labels(cluster, platform)
    counts = Counter((finding["kind"], "true" if finding["repair"] else "false") for finding in findings)
    known = {kind for kind, _repairable in counts}
    counts.update({(kind, "false"): 0 for kind in DRIFT_KINDS[platform] if kind not in known})
    return {
        "vgpu_fleet_drift_findings": [
            ({**of_cluster, "kind": kind, "repairable": repairable}, count)
            for (kind, repairable), count in sorted(counts.items())
        ],
        "vgpu_fleet_drift_last_success_timestamp_seconds": [(of_cluster, at)],
    }


def cluster_labels(cluster: str, platform: str) -> Labels:
    return {"cluster": cluster, "platform": platform}


def exposition(samples: Samples, existing: str = "", *, cluster: str, platform: str) -> str:
    """Return the text of a metrics file: the samples, and the existing samples that they do not replace."""
    kept = _kept(existing)
    own = _labels(cluster_labels(cluster, platform)).removesuffix("}")
    lines = [MARK]
    for name, said in FAMILIES.items():
        others = kept.get(name, [])
        if name in samples:
            others = [line for line in others if not _starts_with(line, f"{name}{own}")]
        mine = [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples.get(name, ())]
        if others or mine:
            lines += [f"# HELP {name} {said}.", f"# TYPE {name} gauge", *others, *mine]
    return "\n".join(lines) + "\n"


def _kept(existing: str) -> dict[str, list[str]]:
    lines = existing.splitlines()
    if any(line.strip() for line in lines) and lines[0] != MARK:
        raise NotOurMetrics(
            "The file has content that vgpu.fleet did not write.",
            hint="Choose another file: the node exporter reads every file in its folder whose name ends in .prom.",
        )
    found: dict[str, list[str]] = {}
    for line in lines:
        if line and not line.startswith("#"):
            found.setdefault(line.partition("{")[0], []).append(line)
    return found


def _starts_with(line: str, own: str) -> bool:
    return line.startswith((f"{own},", f"{own}}}"))


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    # A line ends at any line break that str.splitlines recognizes, and only \n has an escape.
    plain = "\n".join(str(value).splitlines())
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _detailed(record: Record) -> set[str]:
    """Return the profiles that are counted by node and GPU.

    An empty GPU can take dozens of profiles, so only profiles that VMs of the cluster have are included.
    """
    return {
        profile["profile"]
        for profile in record["profiles"]
        if not record["shares_room"] or profile["in_use"] or profile["claimed"]
    }


def _counting(found: Iterable[Record]) -> Iterator[Record]:
    """Yield the records with any count, because most profiles are on a few nodes only."""
    for counts in found:
        if any(counts[key] for key in KEYS.values()):
            yield counts


def _findings(record: Record) -> Counter[str]:
    every = [*record["findings"], *(finding for node in record["nodes"] for finding in findings_of(node))]
    # A VM's finding is in the record once for each of its vGPUs.
    return Counter(
        kind for kind, _device, _text in {(finding["kind"], finding["device"], finding["text"]) for finding in every}
    )
