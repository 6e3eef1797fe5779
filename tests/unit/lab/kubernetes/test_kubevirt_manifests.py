"""What KubeVirt's operator would install, which the lab keeps as a file."""

from __future__ import annotations

import json

import pytest

from lab.errors import LabError
from lab.kubernetes import kubevirt
from tools import kubevirt_manifests


def crd(kind: str) -> dict:
    schema = {"openAPIV3Schema": {"description": "Long.", "properties": {"description": {"type": "string"}}}}
    versions = [{"name": name, "storage": name == "v1", "schema": schema} for name in ("v1", "v1alpha3")]
    return {
        "metadata": {"name": kind, "creationTimestamp": None},
        "spec": {"names": {"kind": kind}, "versions": versions},
    }


def test_the_file_is_that_of_the_pinned_version():
    """If this fails the pinned version has changed: make kubevirt-manifests."""
    found = kubevirt.manifests()
    assert found["version"] == kubevirt.VERSION
    kinds = {definition["spec"]["names"]["kind"] for definition in found["crds"]}
    assert kinds >= kubevirt.STORED_KINDS | kubevirt.UNCHECKED_KINDS


def test_the_file_of_another_version_is_refused(tmp_path, monkeypatch):
    other = tmp_path / "kubevirt_manifests.json"
    other.write_text(kubevirt.MANIFESTS.read_text().replace(f'"version": "{kubevirt.VERSION}"', '"version": "v0.9"'))
    monkeypatch.setattr(kubevirt, "MANIFESTS", other)
    with pytest.raises(LabError, match=r"for KubeVirt v0\.9, but the lab runs v1.*make kubevirt-manifests"):
        kubevirt.manifests()


def test_webhooks_and_api_services_are_those_of_the_labs_namespace():
    found = kubevirt.manifests()
    services = [api_service["spec"]["service"] for api_service in found["apiServices"]]
    for key in ("mutatingWebhookConfiguration", "validatingWebhookConfiguration"):
        services += [hook["clientConfig"]["service"] for hook in found[key]["webhooks"]]
    assert {service["namespace"] for service in services} == {kubevirt.NAMESPACE}


def test_only_schemas_that_a_lab_uses_are_kept_and_their_texts_are_not():
    printed = {"crds": [crd("VirtualMachine"), crd("VirtualMachinePool")], "apiServices": [{"a": 1}]}
    written = json.loads(kubevirt_manifests.document(printed))
    machine, pool = written["crds"]
    stored, older = machine["spec"]["versions"]
    assert stored["schema"] == {"openAPIV3Schema": {"properties": {"description": {"type": "string"}}}}
    assert older["schema"] == kubevirt.UNCHECKED
    assert [version["schema"] for version in pool["spec"]["versions"]] == [kubevirt.UNCHECKED] * 2
    assert machine["metadata"] == {"name": "VirtualMachine"}
    assert written["apiServices"] == [{"a": 1}]


def test_each_object_is_a_line_of_the_file():
    text = kubevirt_manifests.document({"crds": [crd("VirtualMachine"), crd("VirtualMachinePool")]})
    assert len([line for line in text.splitlines() if '"kind":"VirtualMachine' in line]) == 2


def test_the_committed_file_is_written_in_that_form():
    found = kubevirt.manifests()
    del found["version"]
    assert kubevirt_manifests.document(found) == kubevirt.MANIFESTS.read_text()
