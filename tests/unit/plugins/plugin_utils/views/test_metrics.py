"""Metrics of the fleet, read back by the parser of Prometheus' own client."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import UnboundRequest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.metrics import (
    DRIFT_KINDS,
    FAMILIES,
    NotOurMetrics,
    capacity_samples,
    drift_samples,
    exposition,
)
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record
from hypothesis import given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.plugins.module_utils.fleets import fleet, gpu, vm
from tests.unit.plugins.module_utils.vsphere import facts
from tests.unit.plugins.plugin_utils.views.results import finding, harvester_info, vsphere_availability, vsphere_info

Json = dict[str, Any]
NOW = 1_800_000_000.25


def harvester_record(*gpus: Any, cluster: str = "lab", findings: tuple[Json, ...] = (), **more: Any) -> Json:
    return fleet_record(harvester_info(fleet(*gpus, **more), findings), cluster=cluster)


def written(record: Json, existing: str = "", at: float = NOW) -> str:
    samples = capacity_samples(record, at)
    return exposition(samples, existing, cluster=record["cluster"], platform=record["platform"])


def drift_written(*findings: Json, existing: str = "", cluster: str = "lab", platform: str = "harvester") -> str:
    samples = drift_samples(findings, NOW, cluster=cluster, platform=platform)
    return exposition(samples, existing, cluster=cluster, platform=platform)


def parsed(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """The samples of each metric by their labels, in the words of the parser."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    assert all(family.type == "gauge" and family.documentation for family in families)
    return {
        family.name: {frozenset(sample.labels.items()): sample.value for sample in family.samples}
        for family in families
    }


def value(text: str, name: str, **labels: str) -> float | None:
    """The one sample with these labels, or None."""
    found = [number for given, number in parsed(text).get(name, {}).items() if set(labels.items()) <= given]
    assert len(found) <= 1
    return found[0] if found else None


def test_vgpus_are_counted_by_cluster_node_gpu_and_profile() -> None:
    waiting = UnboundRequest("NVIDIA A2-4Q", 1, vm("waiting", running=False))
    text = written(harvester_record(gpu("n1:a", "4Q@web 4Q@batch- 4Q"), gpu("n2:a", "4Q"), claims=[waiting]))
    suffixes = ("", "_in_use", "_claimed", "_free")

    def counts(level: str, **labels: str) -> list[float | None]:
        return [value(text, f"vgpu_fleet_{level}{suffix}", profile="A2-4Q", **labels) for suffix in suffixes]

    # The VM that waits is bound to no node, so it is counted in the cluster alone.
    assert counts("vgpus", cluster="lab", platform="harvester") == [4, 1, 2, 1]
    assert counts("node_vgpus", node="n1") == [3, 1, 1, 1]
    assert counts("gpu_vgpus", node="n2", gpu="n2:a") == [1, 0, 0, 1]
    assert value(text, "vgpu_fleet_capacity_last_success_timestamp_seconds", cluster="lab") == NOW
    assert value(text, "vgpu_fleet_vgpus_available", profile="A2-4Q") == 4
    assert value(text, "vgpu_fleet_gpu_framebuffer_bytes", gpu="n1:a", board="A2") == 16 * 1024**3
    assert value(text, "vgpu_fleet_gpu_framebuffer_used_bytes", gpu="n1:a") == 12 * 1024**3
    assert value(text, "vgpu_fleet_info", version="1.8") == 1


def test_trouble_is_counted() -> None:
    found = (finding("type_differs", "n1:a-00"), finding("restart_required", "default/web"))
    record = harvester_record(gpu("n1:a", "4Q~8Q 4Q@web 4Q@web"), gpu("n2:a", "4Q"), findings=found, cordoned=["n2"])
    text = written(record)
    assert value(text, "vgpu_fleet_gpu_vgpus_drifted", gpu="n1:a") == 1
    assert value(text, "vgpu_fleet_gpu_vgpus_unusable", gpu="n2:a") == 1
    assert [value(text, "vgpu_fleet_node_usable", node=node) for node in ("n1", "n2")] == [1, 0]
    # The VM has two vGPUs and one finding.
    assert value(text, "vgpu_fleet_findings", kind="restart_required") == 1


def test_vsphere_has_the_same_metrics_with_details_of_what_vms_use() -> None:
    trainer = facts.vm("trainer", "nvidia_a40-8q")
    found = facts.snapshot(
        facts.host("esx1", facts.gpu(facts.FIRST, "trainer"), facts.gpu(facts.SECOND)), vms=(trainer,)
    )
    record = fleet_record(vsphere_info(found), vsphere_availability(found), cluster="vc")
    text = written(record)
    assert value(text, "vgpu_fleet_capacity_last_success_timestamp_seconds", platform="vsphere") == NOW
    assert value(text, "vgpu_fleet_vgpus_in_use", cluster="vc", profile="A40-8Q") == 1
    assert value(text, "vgpu_fleet_gpu_vgpus_free", gpu="esx1-00003d000", profile="A40-8Q") == 6
    assert value(text, "vgpu_fleet_node_vgpus_free", node="esx1", profile="A40-8Q") == 11
    # Room for what nobody uses is counted for the cluster alone: a GPU offers dozens of profiles.
    assert value(text, "vgpu_fleet_vgpus_free", profile="A40-48Q") == 1
    assert {dict(labels)["profile"] for labels in parsed(text)["vgpu_fleet_gpu_vgpus"]} == {"A40-8Q"}
    assert {dict(labels)["profile"] for labels in parsed(text)["vgpu_fleet_node_vgpus"]} == {"A40-8Q"}


def test_drift_findings_are_counted_and_zero_where_there_are_none() -> None:
    repairable = {"kind": "stale_annotation", "device": "default/web", "text": "", "repair": "vm"}
    other = {"kind": "not_allocatable", "device": "n1", "text": "", "repair": ""}
    text = drift_written(repairable, other, {**other, "device": "n2"}, {**other, "kind": "new"})
    assert value(text, "vgpu_fleet_drift_findings", kind="stale_annotation", repairable="true") == 1
    assert value(text, "vgpu_fleet_drift_findings", kind="not_allocatable", repairable="false") == 2
    assert value(text, "vgpu_fleet_drift_findings", kind="new") == 1
    assert value(text, "vgpu_fleet_drift_findings", kind="type_differs") == 0
    assert value(text, "vgpu_fleet_drift_last_success_timestamp_seconds") == NOW
    assert set(parsed(drift_written(platform="vsphere"))["vgpu_fleet_drift_findings"].values()) == {0}
    assert len(parsed(drift_written())["vgpu_fleet_drift_findings"]) == len(DRIFT_KINDS["harvester"])


def test_a_file_holds_several_clusters_and_what_drift_found() -> None:
    text = drift_written(existing=written(harvester_record(gpu("n1:a", "4Q"), cluster="one")), cluster="one")
    text = written(harvester_record(gpu("n1:a", "8Q 8Q"), cluster="two"), text)
    # The first cluster once more, with another profile: its old samples go away, all others stay.
    text = written(harvester_record(gpu("n1:a", "2Q"), cluster="one"), text, at=NOW + 60)
    assert {profile: value(text, "vgpu_fleet_vgpus", profile=profile) for profile in ("A2-4Q", "A2-8Q", "A2-2Q")} == {
        "A2-4Q": None,
        "A2-8Q": 2,
        "A2-2Q": 1,
    }
    name = "vgpu_fleet_capacity_last_success_timestamp_seconds"
    assert [value(text, name, cluster=one) for one in ("one", "two")] == [NOW + 60, NOW]
    assert value(text, "vgpu_fleet_drift_last_success_timestamp_seconds", cluster="one") == NOW


def test_clusters_whose_names_begin_alike_are_told_apart() -> None:
    first = written(harvester_record(gpu("n1:a", "4Q"), cluster="edge-1"))
    both = written(harvester_record(gpu("n1:a", "4Q"), cluster="edge"), first)
    assert value(both, "vgpu_fleet_info", cluster="edge-1") == 1
    assert value(both, "vgpu_fleet_info", cluster="edge") == 1


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_name_is_escaped(cluster: str, device: str) -> None:
    record = harvester_record(gpu("n1:a", "4Q"), cluster=cluster)
    record["nodes"][0]["gpus"][0]["name"] = device
    text = written(record)
    kept = "\n".join(device.splitlines())
    labels = [dict(found) for found in parsed(text)["vgpu_fleet_gpu_vgpus"]]
    assert [one["gpu"] for one in labels] == [kept]
    # Writing the same cluster again replaces it, whatever it is called.
    assert parsed(written(record, text)) == parsed(text)


def test_a_file_of_somebody_else_is_refused() -> None:
    with pytest.raises(NotOurMetrics, match=r"did not write.*another file"):
        written(harvester_record(gpu("n1:a", "4Q")), "# HELP my_metric Mine.\nmy_metric 1\n")
    assert written(harvester_record(gpu("n1:a", "4Q")), "\n")


def test_every_metric_is_written_by_some_fleet() -> None:
    record = harvester_record(gpu("n1:a", "4Q"), findings=(finding("not_allocatable", "n1"),))
    assert set(parsed(drift_written(existing=written(record)))) == set(FAMILIES)
