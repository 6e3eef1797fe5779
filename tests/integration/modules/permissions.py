"""The roles in the documentation, granted to a user who has nothing else, and what of them was used."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from lab.kubernetes import kubeconfig
from tests.integration.labs import Lab

DOCUMENTED = Path(__file__).parents[3] / "docs/permissions.md"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = "automation"

Manifest = dict[str, Any]
Right = tuple[str, str]


class Automation:
    """A user of a lab without any right but those that a test grants, which end with it."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.kubeconfig = kubeconfig.issue(lab.run, USER, USER)
        self.granted: set[Right] = set()
        self._made: list[str] = []

    def grant(self, *names: str, namespace: str = "", without: Iterable[str] = ()) -> None:
        """All roles of these names; ClusterRoles for the whole cluster, or for one namespace only."""
        for role in documented():
            name, where = role["metadata"]["name"], role["metadata"].get("namespace", namespace)
            if name in names and "rules" in role:
                for rule in role["rules"]:
                    rule["resources"] = [one for one in rule["resources"] if one not in without]
                self._make({**role, "rules": [rule for rule in role["rules"] if rule["resources"]]})
                self._make(binding(role["kind"], name, where))
                self.granted |= rights(role["rules"])

    def used(self) -> set[Right]:
        """Since the lab's last mark."""
        return {
            (
                event["verb"],
                "/".join(filter(None, (event["objectRef"]["resource"], event["objectRef"].get("subresource")))),
            )
            for event in self._lab.audit(writes_only=False)
            if event["user"]["username"] == USER and event["responseStatus"]["code"] < 300
        }

    def withdraw(self) -> None:
        for path in self._made:
            self._lab.api.delete(path)

    def _make(self, manifest: Manifest) -> None:
        self._lab.make(collection(manifest), manifest)
        self._made.append(f"{collection(manifest)}/{manifest['metadata']['name']}")


def documented() -> list[Manifest]:
    """The manifests in the documentation: roles, and examples of how they are bound."""
    blocks = DOCUMENTED.read_text().split("```yaml\n")[1:]
    return [manifest for block in blocks for manifest in yaml.safe_load_all(block.split("```")[0])]


def binding(kind: str, name: str, namespace: str) -> Manifest:
    """As in the documentation's examples, for any role."""
    wanted = "RoleBinding" if namespace else "ClusterRoleBinding"
    example = next(manifest for manifest in documented() if manifest["kind"] == wanted)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {**example, "metadata": metadata, "roleRef": {**example["roleRef"], "kind": kind, "name": name}}


def rights(rules: Iterable[Manifest]) -> set[Right]:
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def collection(manifest: Manifest) -> str:
    namespace = manifest["metadata"].get("namespace")
    plural = f"{manifest['kind'].lower()}s"
    return f"{RBAC}/namespaces/{namespace}/{plural}" if namespace else f"{RBAC}/{plural}"
