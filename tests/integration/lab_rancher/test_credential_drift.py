"""The drift check reports a cloud credential of the collection whose token expires (H8)."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.integration.lab_rancher.test_gpu_cluster_role import CREDENTIALS, PROVIDER, failures, no_machines, trying
from tests.integration.modules.playbooks import Playbooks
from tests.integration.ranchers import TOKENS, Rancher

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ansible_collections.kubernetes") is None, reason="kubernetes.core is not installed"
)


def tokens(rancher: Rancher) -> set[str]:
    return {token["metadata"]["name"] for token in rancher.local.items(TOKENS)}


def test_h8_drift_reports_a_credential_that_has_expired(rancher: Rancher, plays: Playbooks) -> None:
    before = tokens(rancher)
    made = plays.run_all(trying("rancher_gpu_cluster", no_machines(rancher)))
    assert not failures(made), made[-1]["output"]
    url, authority = rancher.env["RANCHER_URL"], rancher.env["LAB_RANCHER_CA_FILE"]
    harvester = {"host": f"{url}/k8s/clusters/{rancher.env['LAB_RANCHER_HARVESTER_ID']}"}
    drift = {"vgpu_drift_rancher_url": url, "vgpu_drift_rancher_ca_cert": authority}
    play = {
        "module_defaults": {"group/vgpu.fleet.harvester": harvester},
        "roles": [{"role": "vgpu.fleet.vgpu_drift", "vars": drift}],
    }
    fine = plays.play(play)
    assert not failures(fine), fine[-1]["output"]
    assert "credential_" not in json.dumps([one.get("ansible_facts") for one in fine])
    (token,) = tokens(rancher) - before
    rancher.local.write(f"{TOKENS}/{token}", {"expiresAt": "2026-01-01T00:00:00Z"})
    reported = plays.play(play)
    assert not failures(reported), reported[-1]["output"]
    assert "credential_expired" in json.dumps([one.get("ansible_facts") for one in reported])
    rancher.local.delete(f"{TOKENS}/{token}")
    for path in (f"{CREDENTIALS}/cc-demo", PROVIDER):
        rancher.local.delete(path)
