"""No role or playbook passes credentials to kubernetes.core as arguments: S1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).parents[2]
ROLES = sorted(path.name for path in (CHECKOUT / "roles").iterdir())
FILES = sorted(
    path
    for pattern in ("roles/*/tasks/*.yml", "roles/*/handlers/*.yml", "playbooks/*.yml", "playbooks/tasks/*.yml")
    for path in CHECKOUT.glob(pattern)
)
CONNECTION = ("kubeconfig", "context", "host", "api_key", "username", "password", "proxy_headers")
# What kubernetes.core may be told about its connection: options without secrets.
SAFE = ("_session.options }}", "{{ __gpu_operator_helm_connection }}")


def mappings(content: Any) -> Iterator[dict[str, Any]]:
    """All mappings of a file, wherever they are."""
    if isinstance(content, dict):
        yield content
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from mappings(inner)


def used(path: Path) -> list[tuple[str, Any]]:
    """Tasks of kubernetes.core with their arguments, and its defaults."""
    content = yaml.safe_load(path.read_text())
    return [(key, value) for one in mappings(content) for key, value in one.items() if "kubernetes.core." in str(key)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_kubernetes_core_gets_no_credentials(path: Path) -> None:
    for key, value in used(path):
        if key.startswith("group/"):
            assert str(value).endswith(SAFE), f"{key}: {value}"
        else:
            assert [option for option in CONNECTION if option in (value or {})] == [], key
    variables = {name for one in mappings(yaml.safe_load(path.read_text())) for name in one.get("environment") or ()}
    assert [name for name in variables if name.startswith("K8S_AUTH_")] == [], "printed with -vvv"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_with_kubernetes_core_connects_first_and_removes_what_it_wrote(role: str) -> None:
    tasks = CHECKOUT / "roles" / role / "tasks"
    if not any(used(path) for path in tasks.glob("*.yml")):
        return
    main = yaml.safe_load((tasks / "main.yml").read_text())
    (block,) = [one for one in main if "always" in one and "vgpu.fleet.kubernetes_session" in one["block"][0]]
    assert block["block"][0]["register"] == f"__{role}_session"
    (removal,) = block["always"]
    assert removal["vgpu.fleet.kubernetes_session"]["state"] == "absent"
    (rest,) = block["block"][1:]
    assert rest["module_defaults"]["group/kubernetes.core.k8s"] == f"{{{{ __{role}_session.options }}}}"
    outside = [one for one in main if one is not block]
    assert not [key for one in mappings(outside) for key in one if key.startswith("kubernetes.core.")]
