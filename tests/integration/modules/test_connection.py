"""Who may do what, and what a user is told who may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import kubeconfig
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import GPU_A, patched, writes
from tests.integration.modules.playbooks import Playbooks

PERMISSIONS = Path(__file__).parents[3] / "docs/permissions.md"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = "automation"


def documented() -> list[dict[str, Any]]:
    """The manifests in the documentation."""
    blocks = PERMISSIONS.read_text().split("```yaml\n")[1:]
    return [manifest for block in blocks for manifest in yaml.safe_load_all(block.split("```")[0])]


def grant(lab: Lab, manifests: list[dict[str, Any]]) -> None:
    for manifest in manifests:
        lab.make(_collection(manifest), manifest)


def _collection(manifest: dict[str, Any]) -> str:
    namespace = manifest["metadata"].get("namespace")
    plural = f"{manifest['kind'].lower()}s"
    return f"{RBAC}/namespaces/{namespace}/{plural}" if namespace else f"{RBAC}/{plural}"


@pytest.fixture
def automation(lab_vfio: Lab) -> Iterator[Path]:
    """A user without any permission; what a test grants is taken back."""
    yield kubeconfig.issue(lab_vfio.run, USER, USER)
    for manifest in documented():
        lab_vfio.api.delete(f"{_collection(manifest)}/{manifest['metadata']['name']}")


def test_the_documented_role_is_enough_and_each_of_its_rules_is_needed(
    lab_vfio: Lab, playbooks: Playbooks, automation: Path
) -> None:
    role, *_more, binding = documented()
    grant(lab_vfio, [role, binding])
    lab_vfio.mark()
    info, on, vgpus, off = playbooks.tasks(
        ("harvester_gpu_info", {}),
        ("harvester_sriov_gpu", {"nodes": ["gpu-a"]}),
        ("harvester_vgpu", {"profile": "A2-8Q", "count": 2}),
        ("harvester_sriov_gpu", {"nodes": ["gpu-a"], "state": "disabled", "disable_vgpus": True}),
        kubeconfig=automation,
    )
    for result in (info, on, vgpus, off):
        assert not result.failed, result.message
    used = {
        (event["verb"], event["objectRef"]["resource"])
        for event in lab_vfio.audit(writes_only=False)
        if event["user"]["username"] == USER and event["responseStatus"]["code"] < 300
    }
    granted = {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    # MIG configurations are listed where a GPU is on and shows no types, and when a watch of them has to start over.
    assert used == granted - {("list", "migconfigurations")}


def test_a_timeout_with_little_permission_says_that_it_could_not_look(
    lab_vfio: Lab, playbooks: Playbooks, automation: Path
) -> None:
    role, version, diagnosis, binding = documented()
    grant(lab_vfio, [role, binding])
    lab_vfio.control.fault("driver-missing", on=True, node="gpu-a")
    lab_vfio.until(lambda: True)
    blind = playbooks.task("harvester_sriov_gpu", nodes=["gpu-a"], wait_timeout=3, kubeconfig=automation)
    assert blind.code == "timeout"
    assert "pods in harvester-system could not be read" in blind.message
    subject = binding["subjects"]
    kind = {"apiVersion": binding["apiVersion"], "subjects": subject}
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    more = [
        version,
        diagnosis,
        {**kind, "kind": "ClusterRoleBinding", "metadata": {"name": "version"},
         "roleRef": {**group, "kind": "ClusterRole", "name": version["metadata"]["name"]}},
        {**kind, "kind": "RoleBinding", "metadata": {"name": "diagnosis", "namespace": "harvester-system"},
         "roleRef": {**group, "kind": "Role", "name": diagnosis["metadata"]["name"]}},
    ]  # fmt: skip
    grant(lab_vfio, more)
    seeing = playbooks.task("harvester_sriov_gpu", nodes=["gpu-a"], wait_timeout=3, kubeconfig=automation)
    assert "driver pod" in seeing.message


def test_who_may_not_is_told_what_is_missing_and_nothing_is_changed(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    known = {name: str(lab.run.kubeconfig(name)) for name in ("expired", "nobody", "admin")}
    ask = {"gpus": [GPU_A]}
    expired, nobody, missing, context, host, key, here = playbooks.tasks(
        ("harvester_sriov_gpu", {**ask, "kubeconfig": known["expired"]}),
        ("harvester_sriov_gpu", {**ask, "kubeconfig": known["nobody"]}),
        ("harvester_sriov_gpu", {**ask, "kubeconfig": "/nowhere/kubeconfig"}),
        ("harvester_sriov_gpu", {**ask, "kubeconfig": known["admin"], "context": "other"}),
        ("harvester_sriov_gpu", {**ask, "host": "https://127.0.0.1:1", "api_key": "x"}),
        ("harvester_sriov_gpu", {**ask, "host": lab.env["LAB_API_SERVER"], "api_key": "x"}),
        (
            "harvester_gpu_info",
            {
                "host": lab.env["LAB_API_SERVER"],
                "ca_cert": lab.env["LAB_CA_FILE"],
                "client_cert": lab.env["LAB_CLIENT_CERT"],
                "client_key": lab.env["LAB_CLIENT_KEY"],
                "harvester_version": "1.8",
            },
        ),
    )
    assert expired.code == "unauthorized"
    assert "expired" in expired.message
    assert nobody.code == "forbidden"
    assert "cannot list resource" in nobody.message
    assert "lab:nobody" in nobody.message
    assert missing.code == context.code == host.code == key.code == "bad_connection"
    assert "/nowhere/kubeconfig" in missing.message
    assert "It has: lab" in context.message
    assert "cannot be reached" in host.message
    assert "certificate" in key.message
    assert not here.failed
    assert writes(lab) == patched(lab) == []
