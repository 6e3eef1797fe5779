# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the token in a cloud credential expires, and whether it is renewed (H8)."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.credential import credentials, findings

Json = dict[str, Any]
NOW = datetime(2026, 11, 18, 8, 0, tzinfo=UTC)
OURS = {"app.kubernetes.io/managed-by": "vgpu.fleet", "vgpu.fleet/owner": "team-a"}
NAME = "kubeconfig-user-abcde"


def secret(token: str = f"{NAME}:secret", labels: Json = OURS, content: str | None = None) -> Json:
    kubeconfig = yaml.safe_dump({"users": [{"name": "x", "user": {"token": token}}]}) if content is None else content
    data = {"harvestercredentialConfig-kubeconfigContent": base64.b64encode(kubeconfig.encode()).decode()}
    return {"metadata": {"namespace": "cattle-global-data", "name": "cc-demo", "labels": labels}, "data": data}


def token(expires: str = "2026-12-18T08:00:00Z", ttl: int = 2_592_000_000) -> Json:
    return {"metadata": {"name": NAME}, "expiresAt": expires, "ttl": ttl}


def read(*tokens: Json, given: Json | None = None, known: bool = True, **options: Any) -> Json:
    (record,) = credentials([given or secret()], now=NOW, tokens=tokens if known else None, owner="team-a", **options)
    return record


@pytest.mark.parametrize(
    ("expires", "days", "state", "renew"),
    [
        ("2026-12-18T08:00:00Z", 10, "valid", False),
        ("2026-11-28T08:00:01Z", 10, "valid", False),
        ("2026-11-28T08:00:00Z", 10, "expiring", True),
        ("2026-11-28T08:00:00Z", 9, "valid", False),
        ("2026-11-18T08:00:01Z", 10, "expiring", True),
        ("2026-11-18T08:00:00Z", 10, "expired", True),
    ],
)
def test_h8_a_token_is_renewed_before_it_expires(expires: str, days: int, state: str, renew: bool) -> None:
    found = read(token(expires), days=days)
    assert (found["state"], found["renew"], found["expires"], found["token"]) == (state, renew, expires, NAME)
    assert [one["kind"] for one in findings([found])] == ([f"credential_{state}"] if renew else [])


def test_h8_from_rancher_2_12_on_a_token_has_no_time_to_live_and_its_expiry_counts_for_nothing() -> None:
    found = read(token("2026-11-01T00:00:00Z", ttl=0))
    assert (found["state"], found["renew"]) == ("endless", False)
    assert read(token("", ttl=5))["state"] == "endless"


def test_h8_a_token_that_rancher_has_deleted_was_expired() -> None:
    found = read()
    assert (found["state"], found["renew"], found["expires"]) == ("expired", True, None)
    assert "has deleted it" in found["text"]


@pytest.mark.parametrize(
    ("given", "known", "why"),
    [
        (secret(), False, "cannot be read"),
        (secret("token-abcde:secret"), True, "holds no kubeconfig token"),
        (secret(content="no: [yaml"), True, "holds no kubeconfig token"),
        (secret(content="[]"), True, "holds no kubeconfig token"),
        (secret(content=""), True, "holds no kubeconfig token"),
    ],
)
def test_h8_what_is_unknown_is_left_alone_and_said(given: Json, known: bool, why: str) -> None:
    found = read(token(), given=given, known=known)
    assert (found["state"], found["renew"]) == ("unknown", False)
    assert why in found["text"]
    assert findings([found]) == []


def test_h8_a_credential_of_somebody_else_is_reported_and_not_renewed() -> None:
    found = read(given=secret(labels={}))
    assert (found["state"], found["renew"]) == ("expired", False)
    assert findings([found])[0]["device"] == "cattle-global-data/cc-demo"


def test_secrets_of_other_clouds_are_left_out() -> None:
    other = {"metadata": {"namespace": "cattle-global-data", "name": "cc-aws"}, "data": {"amazonec2-accessKey": "eA=="}}
    assert credentials([other], now=NOW) == []


@pytest.mark.parametrize("unreadable", [None, ""])
def test_h8_tokens_that_cannot_be_read_are_unknown_on_every_ansible_core(unreadable: str | None) -> None:
    (record,) = credentials([secret()], now=NOW, tokens=unreadable, owner="team-a")
    assert (record["state"], record["renew"]) == ("unknown", False)


def test_h8_a_token_that_lives_for_a_few_days_is_not_renewed_by_every_run() -> None:
    week = 7 * 24 * 3600 * 1000
    assert read(token("2026-11-25T08:00:00Z", ttl=week))["state"] == "valid"
    assert read(token("2026-11-20T08:00:00Z", ttl=week))["state"] == "expiring"
