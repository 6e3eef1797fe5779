"""The bill of materials of the execution environment is valid CycloneDX and lists all that the definition names."""

from __future__ import annotations

import copy
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import sbom

CHECKOUT = Path(__file__).parents[3]
DEFINITION = yaml.safe_load(sbom.DEFINITION.read_text())
SUM = "a" * 64
LOCKED = f"""\
ansible-core==2.19.14 \\
    --hash=sha256:{SUM} \\
    --hash=sha256:{"b" * 64}
kubernetes==37.0.2 ; python_version >= '3.10' \\
    --hash=sha256:{SUM}
PyYAML==6.0.3
"""


@pytest.fixture
def document() -> dict[str, Any]:
    serial = uuid.UUID("12345678-1234-4678-9234-567812345678")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return sbom.bill(DEFINITION, sbom.packages_in(LOCKED), version="0.1.0", now=now, serial=serial)


def test_a_lock_file_is_read_with_all_checksums() -> None:
    core, kubernetes, yaml_package = sbom.packages_in(LOCKED)
    assert core == sbom.Package("ansible-core", "2.19.14", (SUM, "b" * 64))
    assert kubernetes.version == "37.0.2"
    assert yaml_package == sbom.Package("PyYAML", "6.0.3")


def test_the_document_is_valid_and_lists_packages_collections_helm_and_the_base_image(document: dict[str, Any]) -> None:
    sbom.validate(document)
    versions = {component["name"]: component.get("version") for component in document["components"]}
    assert versions["ansible-core"] == "2.19.14"
    assert versions["vgpu.fleet"] == "0.1.0"
    assert re.fullmatch(r"v3\.\d+\.\d+", versions["helm"])
    assert {"kubernetes.core", "git-core", DEFINITION["images"]["base_image"]["name"]} <= set(versions)
    by_name = {component["name"]: component for component in document["components"]}
    assert by_name["PyYAML"]["purl"] == "pkg:pypi/pyyaml@6.0.3"
    sums = [one["hashes"][0]["content"] for one in by_name["ansible-core"]["externalReferences"]]
    assert sums == [SUM, "b" * 64]


@pytest.mark.parametrize("wrong", [{"version": "one"}, {"components": [{"name": "a"}]}, {"unknown": True}])
def test_a_document_that_is_not_cyclonedx_is_refused(document: dict[str, Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(sbom.Invalid):
        sbom.validate({**document, **wrong})


def test_a_component_that_is_listed_twice_is_refused(document: dict[str, Any]) -> None:
    made = copy.deepcopy(document)
    made["components"].append(made["components"][0])
    with pytest.raises(sbom.Invalid):
        sbom.validate(made)


def test_the_requirements_are_those_of_the_definition_and_of_the_collections() -> None:
    wanted = " ".join(sbom.requirements(DEFINITION))
    for package in ("ansible-core", "ansible-runner", "kubernetes", "pyvmomi", "jmespath", "urllib3", "jsonpatch"):
        assert package in wanted
