"""The JSON file of fleet records, and its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import UnboundRequest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.document import NotOurDocument, document
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record

from tests.unit.plugins.module_utils.fleets import fleet, gpu, vm
from tests.unit.plugins.module_utils.vsphere import facts
from tests.unit.plugins.plugin_utils.views.results import finding, harvester_info, vsphere_availability, vsphere_info

Json = dict[str, Any]
SCHEMA: Json = json.loads((Path(__file__).parents[5] / "docs/fleet.schema.json").read_text())
NOW = 1_800_000_000.25
MIG = {"GRID A100-3-20C": 1, "GRID A100-1-5C": 2}


def strict(schema: Any) -> Any:
    """The schema without room for keys that it does not describe."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema and schema.get("type") == "object" else {}
    return {name: strict(one) for name, one in schema.items()} | closed


def harvester(cluster: str = "lab", contents: str = "4Q@web 4Q~8Q") -> Json:
    waiting = UnboundRequest("NVIDIA A2-4Q", 1, vm("waiting", running=False))
    found = fleet(gpu("n1:a", contents), gpu("n2:a", board="A100", mode="mig", max_instances=MIG), claims=[waiting])
    findings = [finding(kind, device) for kind, device in (("missing_label", "n1"), ("driver_addon", "addon"))]
    return fleet_record(harvester_info(found, findings), cluster=cluster)


def vsphere(cluster: str = "vc") -> Json:
    found = facts.snapshot(facts.host("esx1", facts.gpu(facts.FIRST, "vm")), vms=(facts.vm("vm", "nvidia_a40-8q"),))
    return fleet_record(vsphere_info(found), vsphere_availability(found), cluster=cluster)


@pytest.mark.parametrize("record", [harvester(), vsphere()], ids=["harvester", "vsphere"])
def test_the_schema_describes_every_key(record: Json) -> None:
    validator = jsonschema.Draft202012Validator(strict(SCHEMA))
    validator.check_schema(SCHEMA)
    found = json.loads(document(record, NOW))
    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(found)] == []
    assert found["clusters"][0]["read_at"] == "2027-01-15T08:00:00Z"


def test_a_file_holds_several_clusters() -> None:
    text = document(harvester("two"), NOW)
    text = document(harvester("one"), NOW, text)
    text = document(vsphere("one"), NOW, text)
    text = document(harvester("one", "8Q"), NOW + 60, text)
    clusters = json.loads(text)["clusters"]
    assert [(one["cluster"], one["platform"], one["read_at"][-3:]) for one in clusters] == [
        ("one", "harvester", "00Z"),
        ("one", "vsphere", "00Z"),
        ("two", "harvester", "00Z"),
    ]
    assert [one["total"] for one in clusters[::2]] == [1, 2]


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}', "my own notes"])
def test_a_file_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(NotOurDocument):
        document(harvester(), NOW, text)
