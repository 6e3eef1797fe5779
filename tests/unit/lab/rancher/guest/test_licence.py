"""Licenses of the lab's guests."""

from __future__ import annotations

import base64

import pytest

from lab.rancher.guest import licence

DRIVER = {"version": "570.172.08", "licensingConfig": {"secretName": "a", "configMapName": "b"}}


@pytest.mark.parametrize(
    ("chart", "kept"),
    [
        ("v25.10.0", {"secretName": "a", "configMapName": "b"}),
        ("v25.3.4", {"configMapName": "b"}),
        ("", DRIVER["licensingConfig"]),
    ],
)
def test_charts_before_25_10_know_no_secrets(chart: str, kept: dict[str, str]) -> None:
    assert licence.pruned({"driver": DRIVER}, chart)["licensingConfig"] == kept


@pytest.mark.parametrize(
    ("files", "accepted"),
    [
        ({licence.TOKEN: "token", licence.CONF: "FeatureType=1\n"}, True),
        ({licence.TOKEN: "token", licence.CONF: "FeatureType=0\n"}, False),
        ({licence.TOKEN: "expired", licence.CONF: "FeatureType=1\n"}, False),
        ({licence.CONF: "FeatureType=1\n"}, False),
    ],
)
def test_a_license_needs_a_token_that_is_accepted_and_a_feature(files: dict[str, str], accepted: bool) -> None:
    assert licence.accepted(files) is accepted
    secret = {
        "kind": "Secret",
        "type": "Opaque",
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in files.items()},
    }
    assert licence.content(secret) == licence.content({"kind": "ConfigMap", "data": files}) == files
