"""Faults at the API server, as people's clients meet them; the lab's own parts never do."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager

import pytest

from tests.integration.api import NODES, SRIOV_GPUS, VGPUS
from tests.integration.lab_harvester.beginnings import GPU_A
from tests.integration.lab_harvester.faults.test_silent_failures import DRIVER_NEEDED

CARD = f"{SRIOV_GPUS}/{GPU_A}"
CUT = (ConnectionError, http.client.HTTPException)


@contextmanager
def fault(lab, name, **options):
    lab.control.fault(name, **options)
    try:
        yield
    finally:
        lab.control.fault(name, on=False)


def patched(lab, count):
    """Statuses of so many patches, each on its own; none of them changes anything."""
    body = {"metadata": {"labels": {"nodename": "gpu-a"}}}
    return [lab.api.once("PATCH", CARD, body)[0].status for _ in range(count)]


def assert_controllers_act(lab):
    """A label of the node that the next scan puts back."""
    lab.write(f"{NODES}/gpu-a", {"metadata": {"labels": {DRIVER_NEEDED: None}}})
    lab.until(lambda: DRIVER_NEEDED in lab.read(f"{NODES}/gpu-a")["metadata"]["labels"], within=40)


@pytest.mark.parametrize(("name", "code"), [("api-conflict", 409), ("api-throttled", 429), ("api-unavailable", 503)])
def test_a_share_of_the_writes_is_refused_and_always_the_same(lab_vfio, name, code):
    with fault(lab_vfio, name, every=2):
        assert patched(lab_vfio, 5) == [code, 200, code, 200, code]
        assert lab_vfio.api.get(CARD).status == 200
    assert patched(lab_vfio, 2) == [200, 200]


def test_refusals_read_as_the_servers_own(lab_vfio):
    with fault(lab_vfio, "api-conflict"):
        answer = lab_vfio.api.patch(CARD, {"spec": {"enabled": True}})
        assert answer.reason == "Conflict"
        assert f'sriovgpudevices.devices.harvesterhci.io "{GPU_A}": the object has been modified' in answer.message
    with fault(lab_vfio, "api-throttled"):
        response, _ = lab_vfio.api.once("PATCH", CARD, {"spec": {"enabled": True}})
        assert response.headers["Retry-After"] == "1"
    assert not lab_vfio.gpu(GPU_A)["spec"]["enabled"]


def test_a_write_whose_answer_is_lost_was_done(lab_vfio):
    with fault(lab_vfio, "api-answer-lost"):
        with pytest.raises(CUT):
            lab_vfio.api.once("PATCH", CARD, {"metadata": {"labels": {"lost": "yes"}}})
        assert lab_vfio.gpu(GPU_A)["metadata"]["labels"]["lost"] == "yes"
    lab_vfio.write(CARD, {"metadata": {"labels": {"lost": None}}})


def test_users_are_who_they_were_and_the_audit_log_knows_them(lab_vfio):
    with fault(lab_vfio, "api-unavailable", every=100):
        assert [lab_vfio.api.as_user(name).get(NODES).status for name in ("viewer", "nobody", "expired")] == [
            200,
            403,
            401,
        ]
        patched(lab_vfio, 2)
        assert lab_vfio.api.as_user("viewer").patch(CARD, {"spec": {"enabled": True}}).status == 403
    assert [(one["user"]["username"], one["verb"]) for one in lab_vfio.audit()] == [
        ("lab:admin", "patch"),
        ("lab:viewer", "patch"),
    ]


def test_a_watch_in_progress_is_cut(lab_vfio):
    revision = lab_vfio.read(VGPUS)["metadata"]["resourceVersion"]
    watch = lab_vfio.api.watch(VGPUS, revision)
    assert watch.status == 200
    lab_vfio.control.fault("api-disconnect")
    with pytest.raises(CUT):
        watch.read()
    assert lab_vfio.api.get(NODES).status == 200


def test_a_watch_ends_when_the_api_server_is_restarted_and_the_controllers_go_on(lab_vfio):
    revision = lab_vfio.read(VGPUS)["metadata"]["resourceVersion"]
    watch = lab_vfio.api.watch(VGPUS, revision)
    lab_vfio.control.fault("apiserver-restart")
    with pytest.raises(CUT):
        watch.read()
    assert_controllers_act(lab_vfio)


def test_a_watch_from_before_has_expired_and_one_from_a_new_list_has_not(lab_vfio):
    old = lab_vfio.read(VGPUS)["metadata"]["resourceVersion"]
    with fault(lab_vfio, "watch-expired"):
        (line,) = lab_vfio.api.lines(VGPUS, watch=1, resourceVersion=old, timeoutSeconds=5)
        event = json.loads(line)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        new = lab_vfio.read(VGPUS)["metadata"]["resourceVersion"]
        assert lab_vfio.api.lines(VGPUS, watch=1, resourceVersion=new, timeoutSeconds=1) == []


def test_expired_tokens_are_refused_everywhere(lab_vfio):
    with fault(lab_vfio, "token-expired"):
        answer = lab_vfio.api.get(NODES)
        assert (answer.status, answer.reason) == (401, "Unauthorized")
        assert lab_vfio.api.as_user("viewer").get(NODES).status == 401
    assert lab_vfio.api.get(NODES).status == 200


def test_the_labs_own_parts_are_not_disturbed(lab_vfio):
    lab = lab_vfio
    lab.write(f"{NODES}/gpu-a", {"metadata": {"labels": {DRIVER_NEEDED: None}}})
    with fault(lab, "token-expired"), fault(lab, "api-unavailable", every=1):
        lab.advance(40)
    assert DRIVER_NEEDED in lab.read(f"{NODES}/gpu-a")["metadata"]["labels"]
