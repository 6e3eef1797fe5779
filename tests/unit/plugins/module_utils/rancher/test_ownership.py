# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What goes with a cluster and what stays (RC1), and which Secrets a new cluster may use (RC2)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.ownership import marks, removal, reuse_problem

Json = dict[str, Any]
NAMESPACE, CREDENTIALS = "fleet-default", "cattle-global-data"
CREDENTIAL, PROVIDER = f"{CREDENTIALS}:cc-demo", "secret://fleet-default:harvesterconfig-demo"
OURS, OTHERS, NOBODYS = marks("team-a"), marks("team-b"), {"owner": "somebody"}


def cluster(name: str, *configs: str, credential: str = "", provider: str = "", namespace: str = NAMESPACE) -> Json:
    pools = [{"name": f"p{n}", "machineConfigRef": {"name": config}} for n, config in enumerate(configs)]
    selected = [{"config": {"cloud-provider-config": provider}}] if provider else []
    spec = {
        "cloudCredentialSecretName": credential,
        "rkeConfig": {"machinePools": pools, "machineSelectorConfig": selected},
    }
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def config(name: str, labels: Json | None = None, made_for: str = "demo", owner: str = "") -> Json:
    owners = [{"kind": "Cluster", "name": owner}] if owner else []
    notes = {"vgpu.fleet/cluster": made_for}
    labels = OURS if labels is None else labels
    return {"metadata": {"name": name, "labels": labels, "annotations": notes, "ownerReferences": owners}}


def secret(name: str, namespace: str, labels: Json | None = None, harvester: str = "", note: str = "") -> Json:
    data = {"harvestercredentialConfig-clusterId": base64.b64encode(harvester.encode()).decode()} if harvester else {}
    labels = OURS if labels is None else labels
    notes = {"vgpu.fleet/harvester": note} if note else {}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": notes}, "data": data}


def removed(
    *clusters: Json, configs: tuple[Json, ...] = (), secrets: tuple[Json, ...] = (), **more: Any
) -> tuple[list[str], list[str], str]:
    found = removal(
        "demo",
        namespace=NAMESPACE,
        owner="team-a",
        clusters=clusters,
        configs=configs,
        secrets=secrets,
        **more,
    )
    return found.configs, [one["name"] for one in found.secrets], " ".join(found.kept)


def test_rc1_what_the_cluster_alone_uses_and_we_made_goes() -> None:
    demo = cluster("demo", "nc-1", credential=CREDENTIAL, provider=PROVIDER)
    secrets = (secret("cc-demo", CREDENTIALS), secret("harvesterconfig-demo", NAMESPACE))
    configs = (config("nc-1"), config("nc-left"), config("nc-other", made_for="other"))
    assert removed(demo, configs=configs, secrets=secrets) == (
        ["nc-1", "nc-left"],
        ["cc-demo", "harvesterconfig-demo"],
        "",
    )
    # The cluster may be gone already, after a run that did not wait.
    assert removed(configs=configs, secrets=secrets)[0] == ["nc-1", "nc-left"]


@pytest.mark.parametrize(
    ("kept", "others", "reason"),
    [
        (config("nc-1"), [cluster("two", "nc-1")], "two/p0 uses it"),
        (config("nc-1", owner="two"), [], "two uses it"),
        (config("nc-1", labels=NOBODYS), [], "did not make it"),
        (config("nc-1", labels=OTHERS), [], "its owner is team-b"),
    ],
)
def test_rc1_configs_of_others_stay_and_are_named(kept: Json, others: list[Json], reason: str) -> None:
    configs, _secrets, said = removed(cluster("demo", "nc-1"), *others, configs=(kept,))
    assert configs == []
    assert f"HarvesterConfig fleet-default/nc-1: {reason}" in said.replace("this collection ", "")


@pytest.mark.parametrize(
    ("labels", "more", "others", "reason"),
    [
        (OURS, {}, [cluster("two", credential=CREDENTIAL, namespace="elsewhere")], "two uses it"),
        (OURS, {"named": CREDENTIAL}, [], "rancher_gpu_cluster_credential names it"),
        (OURS, {"gone": False}, [], "until the machines are gone"),
        (NOBODYS, {}, [], "did not make it"),
        (OTHERS, {}, [], "its owner is team-b"),
    ],
)
def test_rc1_credentials_of_others_stay_and_are_named(
    labels: Json, more: Json, others: list[Json], reason: str
) -> None:
    kept = secret("cc-demo", CREDENTIALS, labels)
    _configs, secrets, said = removed(cluster("demo", credential=CREDENTIAL), *others, secrets=(kept,), **more)
    assert secrets == []
    assert "Secret cattle-global-data/cc-demo: " in said
    assert reason in said


def test_rc1_a_kubeconfig_that_another_cluster_uses_stays() -> None:
    _configs, secrets, said = removed(
        cluster("two", provider=PROVIDER), secrets=(secret("harvesterconfig-demo", NAMESPACE),)
    )
    assert (secrets, "two uses it" in said) == ([], True)


def problem(found: Json | None, used_by: Json | None = None, *, adopt: bool = False) -> str:
    secrets = [found] if found else []
    return reuse_problem(secrets, owner="team-a", harvester="c-m-1", cluster=used_by, adopt=adopt)


def test_rc2_a_secret_of_another_harvester_is_refused_by_its_name_whatever_else_is_true() -> None:
    uses = cluster("demo", credential=CREDENTIAL, provider=PROVIDER)
    for found in (
        secret("cc-demo", CREDENTIALS, harvester="c-m-2"),
        secret("cc-demo", CREDENTIALS, NOBODYS, harvester="c-m-2"),
        secret("harvesterconfig-demo", NAMESPACE, note="c-m-2"),
    ):
        for adopt in (False, True):
            said = problem(found, uses, adopt=adopt)
            assert found["metadata"]["name"] in said
            assert "is for Harvester c-m-2, not for c-m-1" in said


def test_rc2_a_secret_is_used_if_it_is_ours_in_use_already_or_adopted() -> None:
    assert problem(None) == ""
    assert problem(secret("cc-demo", CREDENTIALS, harvester="c-m-1")) == ""
    foreign = secret("cc-demo", CREDENTIALS, NOBODYS, harvester="c-m-1")
    assert "was not made by this collection" in problem(foreign)
    assert "belongs to team-b" in problem(secret("cc-demo", CREDENTIALS, OTHERS, harvester="c-m-1"))
    assert problem(foreign, cluster("demo", credential="cc-demo")) == ""
    assert problem(foreign, adopt=True) == ""
