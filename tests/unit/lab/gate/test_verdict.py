"""Which requests fail at the gate, and how: always the same ones."""

from __future__ import annotations

import json

import pytest

from lab.gate.verdict import PASS, Judge

VGPU = "/apis/devices.harvesterhci.io/v1beta1/vgpudevices/gpu-a-000008004"
NODES = "/api/v1/nodes"


def codes(judge: Judge, method: str, path: str, count: int) -> list[int]:
    verdicts = [judge.verdict(method, path, {}) for _ in range(count)]
    return [verdict.refusal.status if verdict.refusal else 200 for verdict in verdicts]


def switched(name: str, every: int = 3) -> Judge:
    judge = Judge()
    judge.switch(name, on=True, every=every)
    return judge


def test_nothing_is_refused_while_nothing_is_on():
    assert Judge().idle
    assert Judge().verdict("PATCH", VGPU, {}) == PASS


@pytest.mark.parametrize(
    ("name", "code"), [("api-conflict", 409), ("api-throttled", 429), ("api-unavailable", 503)], ids=str
)
def test_the_first_write_is_hit_and_then_each_at_its_distance(name, code):
    judge = switched(name)
    assert codes(judge, "PATCH", VGPU, 7) == [code, 200, 200, code, 200, 200, code]
    assert codes(judge, "GET", VGPU, 3) == [200, 200, 200]


def test_a_distance_of_one_hits_all():
    assert codes(switched("api-unavailable", every=1), "DELETE", VGPU, 3) == [503, 503, 503]


def test_reads_do_not_count():
    judge = switched("api-throttled", every=2)
    assert codes(judge, "PUT", VGPU, 1) == [429]
    codes(judge, "GET", VGPU, 5)
    assert codes(judge, "PUT", VGPU, 2) == [200, 429]


def test_only_what_changes_an_object_can_conflict():
    judge = switched("api-conflict", every=1)
    assert codes(judge, "POST", NODES, 2) == [200, 200]
    assert codes(judge, "DELETE", VGPU, 1) == [200]


def test_a_conflict_names_the_object_as_the_server_does():
    refusal = switched("api-conflict").verdict("PATCH", VGPU, {}).refusal
    assert json.loads(refusal.body)["message"] == (
        'Operation cannot be fulfilled on vgpudevices.devices.harvesterhci.io "gpu-a-000008004": the object has been'
        " modified; please apply your changes to the latest version and try again"
    )


def test_a_throttled_client_is_told_to_wait_in_plain_text():
    refusal = switched("api-throttled").verdict("POST", NODES, {}).refusal
    assert refusal.headers["Retry-After"] == "1"
    assert not refusal.body.startswith(b"{")


def test_questions_asked_by_post_are_no_writes():
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert codes(switched("api-unavailable", every=1), "POST", review, 1) == [200]


def test_a_lost_answer_is_no_refusal():
    assert switched("api-answer-lost").verdict("PATCH", VGPU, {}).lost


def test_with_expired_tokens_reads_are_refused_too():
    assert codes(switched("token-expired"), "GET", NODES, 2) == [401, 401]


def test_switched_on_again_it_counts_from_the_beginning():
    judge = switched("api-unavailable", every=2)
    assert codes(judge, "PATCH", VGPU, 1) == [503]
    judge.switch("api-unavailable", on=False)
    assert judge.idle
    judge.switch("api-unavailable", on=True, every=2)
    assert codes(judge, "PATCH", VGPU, 2) == [503, 200]


@pytest.mark.parametrize(
    ("query", "expired"),
    [
        ({"watch": "1", "resourceVersion": "99"}, True),
        ({"watch": "true", "resourceVersion": "99"}, True),
        ({"watch": "1", "resourceVersion": "100"}, False),
        ({"watch": "1", "resourceVersion": "0"}, False),
        ({"watch": "1"}, False),
        ({"resourceVersion": "99"}, False),
    ],
)
def test_a_watch_from_before_the_compaction_has_expired(query, expired):
    judge = Judge(compacted=100)
    verdict = judge.verdict("GET", NODES, query)
    assert (verdict.expired is not None) is expired
    if expired:
        event = json.loads(verdict.expired)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
