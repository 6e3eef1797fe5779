"""Answers of the API server, as a recording tells them."""

from __future__ import annotations

from lab.replay.observe.api import Answer


def test_an_error_has_a_reason_and_a_message() -> None:
    answer = Answer(500, '{"kind": "Status", "reason": "InternalError", "message": "denied"}')
    assert (answer.accepted, answer.reason, answer.message) == (False, "InternalError", "denied")


def test_a_plain_text_is_its_own_message() -> None:
    answer = Answer(404, "404 page not found\n")
    assert (answer.object, answer.reason, answer.message) == (None, None, "404 page not found\n")
