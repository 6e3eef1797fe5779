"""Kubeconfigs of users who may not do everything."""

from __future__ import annotations

import pytest

from tests.integration.api import ADDONS, CLAIMS, NODES, SRIOV_GPUS, VGPUS, VMS

GPU = f"{SRIOV_GPUS}/gpu-a-000008000"


@pytest.mark.parametrize("path", [SRIOV_GPUS, VGPUS, CLAIMS, NODES, ADDONS, VMS])
def test_the_viewer_reads_what_the_collection_reads(lab, path):
    assert lab.api.as_user("viewer").get(path).status == 200


def test_the_viewer_may_not_enable_a_gpu(lab):
    answer = lab.api.as_user("viewer").patch(GPU, {"spec": {"enabled": True}})
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert 'User "lab:viewer" cannot patch resource "sriovgpudevices"' in answer.message
    assert not lab.gpu("gpu-a-000008000")["spec"]["enabled"]


def test_nobody_may_not_even_look(lab):
    answer = lab.api.as_user("nobody").get(SRIOV_GPUS)
    assert (answer.status, answer.reason) == (403, "Forbidden")


def test_an_expired_token_is_unauthorized(lab):
    answer = lab.api.as_user("expired").get(SRIOV_GPUS)
    assert (answer.status, answer.reason) == (401, "Unauthorized")


def test_the_audit_log_tells_who_tried_to_write_what(lab):
    lab.api.as_user("viewer").patch(GPU, {"spec": {"enabled": True}})
    lab.api.get(GPU)
    (event,) = lab.audit()
    assert event["user"]["username"] == "lab:viewer"
    assert (event["verb"], event["objectRef"]["name"]) == ("patch", "gpu-a-000008000")
    assert event["responseStatus"]["code"] == 403
    assert [one["verb"] for one in lab.audit(writes_only=False)] == ["patch", "get"]
