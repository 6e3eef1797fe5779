"""The API server's own manners with these objects (harvester.md 10.9). All of it as dry run."""

from __future__ import annotations

import pytest

from tests.integration.api import APPLY_PATCH, JSON_PATCH, STRATEGIC_MERGE_PATCH, VGPUS

NAME = "gpu-a-000008004"
VGPU = f"{VGPUS}/{NAME}"


def tried(lab, method, body, **options):
    return getattr(lab.api, method)(VGPU, body, dryRun="All", **options)


class TestStatus:
    def test_fact_12_4_a_write_to_the_object_leaves_its_status_alone(self, sriov_lab):
        before = sriov_lab.vgpu(NAME)
        answer = tried(sriov_lab, "patch", {"status": {"uuid": "mine", "vGPUStatus": "vGPUConfigured"}})
        assert answer.status == 200
        assert answer.body["status"] == before["status"]

    def test_fact_12_4_a_write_to_the_status_leaves_the_spec_alone(self, sriov_lab):
        answer = sriov_lab.api.patch(f"{VGPU}/status", {"spec": {"enabled": True}}, dryRun="All")
        assert (answer.status, answer.body["spec"]["enabled"]) == (200, False)

    def test_fact_12_4_the_generation_counts_changes_of_the_spec_only(self, sriov_lab):
        before = sriov_lab.vgpu(NAME)["metadata"]["generation"]
        spec = tried(sriov_lab, "patch", {"spec": {"vGPUTypeName": "NVIDIA A2-4Q"}})
        label = tried(sriov_lab, "patch", {"metadata": {"labels": {"mine": "yes"}}})
        status = sriov_lab.api.patch(f"{VGPU}/status", {"status": {"uuid": "mine"}}, dryRun="All")
        generations = [answer.body["metadata"]["generation"] for answer in (spec, label, status)]
        assert generations == [before + 1, before, before]


class TestConflicts:
    def test_fact_12_4_a_put_of_an_old_version_is_a_conflict(self, sriov_lab):
        body = sriov_lab.vgpu(NAME)
        body["metadata"]["resourceVersion"] = "1"
        answer = tried(sriov_lab, "put", body)
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert "the object has been modified" in answer.message

    def test_fact_4_4_12_a_put_without_a_version_is_invalid(self, sriov_lab):
        body = sriov_lab.vgpu(NAME)
        del body["metadata"]["resourceVersion"]
        answer = tried(sriov_lab, "put", body)
        assert (answer.status, answer.reason) == (422, "Invalid")
        assert "metadata.resourceVersion" in answer.message

    def test_fact_4_4_12_server_side_apply_conflicts_with_the_controllers_fields(self, sriov_lab):
        body = {
            "apiVersion": "devices.harvesterhci.io/v1beta1",
            "kind": "VGPUDevice",
            "metadata": {"name": NAME},
            "spec": {"enabled": True, "vGPUTypeName": "NVIDIA A2-4Q"},
        }
        answer = tried(sriov_lab, "patch", body, content_type=APPLY_PATCH, fieldManager="me")
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert 'Apply failed with 2 conflicts: conflicts with "pcidevices"' in answer.message


class TestPatches:
    def test_fact_4_4_12_a_strategic_merge_patch_is_not_supported(self, sriov_lab):
        answer = tried(sriov_lab, "patch", {"spec": {"enabled": True}}, content_type=STRATEGIC_MERGE_PATCH)
        assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")

    def test_fact_4_4_12_a_json_patch_is_applied(self, sriov_lab):
        patch = [{"op": "replace", "path": "/spec/vGPUTypeName", "value": "NVIDIA A2-4Q"}]
        answer = tried(sriov_lab, "patch", patch, content_type=JSON_PATCH)
        assert (answer.status, answer.body["spec"]["vGPUTypeName"]) == (200, "NVIDIA A2-4Q")

    def test_fact_4_4_12_a_json_patch_whose_test_fails_is_invalid(self, sriov_lab):
        patch = [{"op": "test", "path": "/spec/enabled", "value": True}]
        assert tried(sriov_lab, "patch", patch, content_type=JSON_PATCH).status == 422

    def test_fact_4_4_12_null_drops_the_field(self, sriov_lab):
        answer = tried(sriov_lab, "patch", {"spec": {"enabled": None}})
        assert answer.status == 200
        assert "enabled" not in answer.body["spec"]

    @pytest.mark.parametrize("value", ["true", 1])
    def test_fact_4_a_value_of_the_wrong_kind_is_invalid(self, sriov_lab, value):
        answer = tried(sriov_lab, "patch", {"spec": {"enabled": value}})
        assert (answer.status, answer.reason) == (422, "Invalid")
        assert "spec.enabled in body must be of type boolean" in answer.message


class TestUnknownFields:
    def test_fact_4_4_12_an_unknown_field_is_dropped_with_a_warning(self, sriov_lab):
        answer = tried(sriov_lab, "patch", {"spec": {"colour": "blue"}})
        assert answer.status == 200
        assert "colour" not in answer.body["spec"]
        assert any("unknown field" in warning and "spec.colour" in warning for warning in answer.warnings)

    def test_fact_4_4_12_a_strict_request_with_an_unknown_field_is_invalid(self, sriov_lab):
        answer = tried(sriov_lab, "patch", {"spec": {"colour": "blue"}}, fieldValidation="Strict")
        assert (answer.status, answer.reason) == (422, "Invalid")


class TestDryRun:
    def test_fact_4_4_11_a_dry_run_asks_the_webhook_and_changes_nothing(self, sriov_lab):
        before = sriov_lab.vgpu(NAME)
        good = tried(sriov_lab, "patch", {"spec": {"enabled": True, "vGPUTypeName": "NVIDIA A2-4Q"}})
        bad = tried(sriov_lab, "patch", {"spec": {"enabled": True, "vGPUTypeName": "NVIDIA A2-99Q"}})
        sriov_lab.advance(5)
        assert (good.status, bad.status) == (200, 500)
        assert sriov_lab.vgpu(NAME) == before

    def test_a_dry_run_with_another_value_is_invalid(self, sriov_lab):
        answer = sriov_lab.api.patch(VGPU, {"spec": {"enabled": False}}, dryRun="true")
        assert (answer.status, answer.reason) == (422, "Invalid")
