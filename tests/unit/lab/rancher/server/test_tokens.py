"""Tokens of the lab's Rancher: which kubeconfigs hold one, and until when it is valid."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from lab.rancher.server import tokens

NOW = datetime(2026, 11, 18, 8, 0, tzinfo=UTC)


def test_a_token_lives_as_long_as_the_setting_says() -> None:
    made = tokens.body("kubeconfig-u-1", "u-lab-admin", 43200, NOW)
    assert made["expiresAt"] == "2026-12-18T08:00:00Z"
    assert not tokens.is_expired(made, NOW + timedelta(days=29))
    assert tokens.is_expired(made, NOW + timedelta(days=30))
    # Rancher 2.12 takes the time to live away, and leaves the expiry.
    assert not tokens.is_expired(made | {"ttl": 0}, NOW + timedelta(days=31))
    assert not tokens.is_expired(tokens.body("x", "u", 0, NOW), NOW + timedelta(days=3000))


@pytest.mark.parametrize(
    ("token", "name"), [("kubeconfig-u-1:secret", "kubeconfig-u-1"), ("token-lab:secret", ""), ("", "")]
)
def test_the_token_of_a_credential_is_found_by_its_name(token: str, name: str) -> None:
    content = base64.b64encode(yaml.safe_dump({"users": [{"user": {"token": token}}]}).encode()).decode()
    assert tokens.name_in({"data": {tokens.CREDENTIAL_KUBECONFIG: content}}) == name
    assert tokens.name_in({"data": {}}) == ""


@pytest.mark.parametrize(
    ("version", "endless"), [("v2.8.9", False), ("v2.11.3", False), ("v2.12.0", True), ("v2.13.1", True)]
)
def test_from_2_12_on_tokens_of_credentials_do_not_expire(version: str, endless: bool) -> None:
    assert tokens.never_expire(version) is endless
