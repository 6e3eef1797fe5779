"""The objects are valid by Cluster API's own definitions, which the lab stores, and by those of the provider."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.capv import manifests
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.versions import MARKERS, ApiVersions

from lab.capv import definitions
from tests.unit.plugins.module_utils.capv.clusters import MACHINE, request

Json = dict[str, Any]
TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def schemas(version: str) -> dict[str, Json]:
    return {
        one["spec"]["names"]["kind"]: one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for one in definitions.definitions(version)
    }


def problems(value: Any, schema: Json, path: str) -> Iterator[str]:
    """Yield what a strict API server refuses. Rules in CEL are left to the lab."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, (int, str)):
            yield f"{path}: neither a number nor a text"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield f"{path}: {type(value).__name__} instead of {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**9):
            yield f"{path}: length {len(value)}"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{path}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from problems(one, schema["items"], f"{path}[{index}]")
    if isinstance(value, dict):
        yield from object_problems(value, schema, path)


def object_problems(value: Json, schema: Json, path: str) -> Iterator[str]:
    yield from (f"{path}.{name} is missing" for name in schema.get("required", []) if name not in value)
    if len(value) < schema.get("minProperties", 0):
        yield f"{path}: empty"
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, one in value.items():
        if name in known:
            yield from problems(one, known[name], f"{path}.{name}")
        elif isinstance(others, dict):
            yield from problems(one, others, f"{path}.{name}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name} is unknown"


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_every_object_is_valid_in_its_version(version: str) -> None:
    group = {
        "machine": MACHINE | {"numCPUs": 4, "memoryMiB": 8192, "diskGiB": 40, "powerOffMode": "trySoft"},
        "vgpus": [{"profile": "nvidia_a40-8q"}],
        "pci_devices": [{"vendor_id": "10de", "device_id": "20b5", "custom_label": "a"}],
        "vmx_keys": {"pciPassthru.use64bitMMIO": "TRUE"},
        "labels": {"accelerator": "vgpu"},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
    }
    asked = request(
        control_plane=group,
        pools=[{"name": "gpu", **group}],
        pod_cidrs=["10.1.0.0/16"],
        service_cidrs=["10.2.0.0/16"],
        addons=[{"name": "cni", "manifest": "kind: DaemonSet"}],
    )
    known = schemas(version)
    found = [
        problem
        for body in manifests.objects(asked, ApiVersions(dict.fromkeys(MARKERS, version)))
        if body["kind"] != "Secret"
        for problem in problems(body["spec"], known[body["kind"]]["properties"]["spec"], body["kind"])
    ]
    assert found == []


def test_the_check_finds_fields_of_another_version() -> None:
    deployment = next(
        body
        for body in manifests.objects(request(), ApiVersions(dict.fromkeys(MARKERS, "v1beta2")))
        if body["kind"] == "MachineDeployment"
    )
    schema = schemas("v1beta1")["MachineDeployment"]["properties"]["spec"]
    assert "MachineDeployment.rollout is unknown" in list(problems(deployment["spec"], schema, "MachineDeployment"))
