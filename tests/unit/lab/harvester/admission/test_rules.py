"""Rules 5 and 7 of the pcidevices webhook protect devices only while their node exists (harvester.md 10.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.harvester import resources as r, versions
from lab.harvester.admission.rules import denial
from lab.kubernetes.resource import Resource

Json = dict[str, Any]
VGPU, GPU = "gpu-a-000008004", "gpu-a-000008000"


class Cluster:
    """One VM that was given a vGPU of gpu-a, and the nodes that are there."""

    def __init__(self, version: str, *nodes: str) -> None:
        self.version = versions.named(version)
        self._nodes = nodes

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        return {"metadata": {"name": name}} if resource == r.NODE and name in self._nodes else None

    def all(self, resource: Resource) -> list[Json]:
        note = {"hostdevices" if self.version.vendor_vfio else "gpus": {"nvidia.com/NVIDIA_A2-4Q": [VGPU]}}
        annotations = {r.ALLOCATION_ANNOTATION: json.dumps(note)}
        # 1.3 writes no annotation, and looks at the names in specs.
        named = {"gpus": [{"name": VGPU}]} if not self.version.notes_allocations else {}
        spec = {"template": {"spec": {"domain": {"devices": named}}}}
        return [{"metadata": {"name": "user", "namespace": "default", "annotations": annotations}, "spec": spec}]

    def labelled(self, resource: Resource, label: str, value: str) -> list[Json]:
        return []

    def resource_of(self, type_name: str) -> str:
        return type_name


def deletion(resource: str, name: str) -> Json:
    thing = {"metadata": {"name": name}, "spec": {"enabled": True, "nodeName": "gpu-a"}}
    return {"resource": {"resource": resource}, "operation": "DELETE", "oldObject": thing}


@pytest.mark.parametrize("version", versions.VERSIONS)
@pytest.mark.parametrize(
    ("request_", "phrase"),
    [
        (deletion("vgpudevices", VGPU), f"device {VGPU} is in use with VM user in namespace default"),
        (deletion("sriovgpudevices", GPU), f"please disable gpuDevice {GPU} before deletion"),
    ],
    ids=["rule 5", "rule 7"],
)
def test_what_is_in_use_can_be_deleted_only_after_its_node_is_gone(version: str, request_: Json, phrase: str) -> None:
    assert denial(Cluster(version, "gpu-a", "gpu-b"), request_) == phrase
    assert denial(Cluster(version, "gpu-b"), request_) is None
