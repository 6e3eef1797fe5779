"""The definitions of a management cluster."""

from __future__ import annotations

import pytest

from lab.capv import definitions
from lab.capv.resources import Resources


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_every_resource_is_defined_in_exactly_one_version(version: str) -> None:
    found = {one["metadata"]["name"]: one["spec"] for one in definitions.definitions(version)}
    for resource in Resources(version).watched:
        if resource.kind == "Secret":
            continue
        group = resource.api_version.split("/")[0]
        spec = found[f"{resource.plural}.{group}"]
        assert spec["names"]["kind"] == resource.kind
        assert [(one["name"], one["served"], one["storage"]) for one in spec["versions"]] == [(version, True, True)]


def test_the_versions_differ_where_cluster_api_changed_them() -> None:
    def fields(version: str) -> set[str]:
        (deployment,) = [
            one for one in definitions.cluster_api(version) if one["spec"]["names"]["kind"] == "MachineDeployment"
        ]
        schema = deployment["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return set(schema["properties"]["spec"]["properties"])

    assert "strategy" in fields("v1beta1") - fields("v1beta2")
    assert "rollout" in fields("v1beta2") - fields("v1beta1")


def test_the_stored_definitions_have_no_descriptions() -> None:
    assert '"description":"' not in definitions.CLUSTER_API.read_text()
