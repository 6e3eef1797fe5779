"""The role gpu_operator with method helm: a real helm installs, changes and removes a chart."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api import Api
from tests.integration.modules.playbooks import Playbooks, Result

NAMESPACE = "gpu-operator"
POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
TOKEN = "a-token-of-the-license-server"

Json = dict[str, Any]


class Operator:
    """The role with its variables, and what helm and the cluster say afterwards."""

    def __init__(
        self, playbooks: Playbooks, api: Api, repository: str, helm: Path, environment: dict[str, str]
    ) -> None:
        self._playbooks = playbooks
        self._api = api
        self._repository = repository
        self._helm = helm
        self._environment = environment

    def run(self, *, check: bool = False, **changes: Any) -> list[Result]:
        """The results of the tasks that changed something. No task may fail, and none may show the token."""
        given: Json = {
            "connection": {"kubeconfig": self._environment["K8S_AUTH_KUBECONFIG"]},
            "method": "auto",
            "chart": "gpu-operator",
            "chart_repo": self._repository,
            "driver_repository": "registry.example/nvidia",
            "driver_version": "570.172.08",
            "licence_token": TOKEN,
            "wait": False,
            **changes,
        }
        variables = {f"gpu_operator_{name}": value for name, value in given.items()}
        role = {"ansible.builtin.include_role": {"name": "vgpu.fleet.gpu_operator"}, "vars": variables}
        results = self._playbooks.play({"tasks": [role]}, check=check)
        assert not [one.message for one in results if one.failed], results[-1]["output"]
        assert TOKEN not in results[-1]["output"]
        return [one for one in results if one.changed]

    def releases(self) -> dict[str, int]:
        """The revision of each release, as helm itself lists them."""
        listed = subprocess.run(
            [str(self._helm), "list", "--all-namespaces", "--output", "json"],
            env={**os.environ, **self._environment},
            check=True,
            capture_output=True,
        )
        return {f"{one['namespace']}/{one['name']}": int(one["revision"]) for one in json.loads(listed.stdout)}

    def driver(self) -> Json | None:
        """The driver of the policy that the chart has created."""
        answer = self._api.get(POLICIES)
        policies = answer.body["items"] if answer.status == 200 else []
        return policies[0]["spec"]["driver"] if policies else None

    def licences(self) -> list[str]:
        found = self._api.get(SECRETS, labelSelector="vgpu.fleet/licence=gpu-operator").body
        return [one["metadata"]["name"] for one in found.get("items") or []]


def by_helm(results: list[Result]) -> list[Result]:
    """The results of the module helm among those of others."""
    return [one for one in results if "command" in one and "helm" in str(one["command"])]


@pytest.fixture
def operator(playbooks: Playbooks, api: Api, repository: str, helm: Path, environment: dict[str, str]) -> Operator:
    return Operator(playbooks, api, repository, helm, environment)


def test_a_chart_is_installed_changed_and_removed_by_helm(operator: Operator) -> None:
    release = f"{NAMESPACE}/gpu-operator"
    assert by_helm(operator.run(check=True))
    assert (operator.releases(), operator.driver()) == ({}, None)

    assert len(by_helm(operator.run())) == 1
    assert operator.releases() == {release: 1}
    (licence,) = operator.licences()
    driver = operator.driver()
    assert driver is not None
    assert (driver["repository"], driver["version"]) == ("registry.example/nvidia", "570.172.08")
    assert driver["licensingConfig"] == {"secretName": licence}

    # Nothing is to be done.
    for check in (True, False):
        assert operator.run(check=check) == []
    assert operator.releases() == {release: 1}

    newer = {"driver_version": "580.65.06", "values": {"toolkit": {"enabled": False}}}
    assert len(by_helm(operator.run(check=True, **newer))) == 1
    assert (operator.releases(), operator.driver()) == ({release: 1}, driver)
    changed = operator.run(**newer)
    assert changed == by_helm(changed)
    assert operator.releases() == {release: 2}
    assert operator.driver() == {**driver, "version": "580.65.06"}
    assert operator.run(**newer) == []

    assert operator.run(check=True, state="absent")
    assert operator.releases() == {release: 2}
    assert operator.run(state="absent")
    assert (operator.releases(), operator.driver(), operator.licences()) == ({}, None, [])
    assert operator.run(state="absent") == []


def test_a_chart_that_the_repository_lacks_is_named_and_nothing_is_installed(
    operator: Operator, playbooks: Playbooks, repository: str, environment: dict[str, str]
) -> None:
    variables = {
        "gpu_operator_connection": {"kubeconfig": environment["K8S_AUTH_KUBECONFIG"]},
        "gpu_operator_chart": "gpu-operator",
        "gpu_operator_chart_repo": repository,
        "gpu_operator_chart_version": "v99.1.0",
        "gpu_operator_driver_in_image": True,
        "gpu_operator_wait": False,
    }
    role = {"ansible.builtin.include_role": {"name": "vgpu.fleet.gpu_operator"}, "vars": variables}
    results = playbooks.play({"tasks": [role]})
    (failed,) = [one for one in results if one.failed]
    assert "v99.1.0" in f"{failed.message} {failed.get('stderr')}"
    assert operator.releases() == {}
