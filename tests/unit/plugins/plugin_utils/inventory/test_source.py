"""What all inventories of the collection do: files, cache keys, and what may be templated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import inventory_loader
from ansible_collections.vgpu.fleet.plugins.module_utils.kube import connection
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory import trust

TOKEN = "token-abc:verysecret"


def plugin(name: str) -> Any:
    return inventory_loader.get(f"vgpu.fleet.{name}")


def configured(name: str, folder: Path, **options: Any) -> Any:
    """A plugin that has read its file."""
    path = folder / f"x.{name}.yml"
    path.write_text(yaml.safe_dump({"plugin": f"vgpu.fleet.{name}", **options}))
    found = plugin(name)
    found.loader, found.inventory, found._vars = DataLoader(), InventoryData(), {}
    found._read_config_data(str(path))
    return found


@pytest.mark.parametrize(
    ("name", "file", "taken"),
    [
        ("gpu_vms", "gpu_vms.yml", True),
        ("gpu_vms", "berlin.gpu_vms.yaml", True),
        ("gpu_vms", "berlin.yml", False),
        ("gpu_vms", "berlin.gpu_vms.json", False),
        ("gpu_vms", "all.rancher_harvesters.yml", False),
        ("rancher_harvesters", "all.rancher_harvesters.yml", True),
    ],
)
def test_files_are_taken_by_their_ending(tmp_path: Path, name: str, file: str, taken: bool) -> None:
    (tmp_path / file).write_text("plugin: x")
    assert plugin(name).verify_file(str(tmp_path / file)) is taken


@pytest.mark.parametrize("kubeconfig", [None, "/some/file"])
def test_the_cache_key_differs_by_target_and_not_by_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubeconfig: str | None
) -> None:
    for variable in ("K8S_AUTH_HOST", "K8S_AUTH_API_KEY", "K8S_AUTH_KUBECONFIG", "KUBECONFIG"):
        monkeypatch.delenv(variable, raising=False)

    def key(**options: Any) -> str:
        found = configured("gpu_vms", tmp_path, kubeconfig=kubeconfig, **options)
        assert TOKEN not in json.dumps(found.target())
        return str(found._cache_key("x"))

    one = key(host="https://one:6443", api_key=TOKEN)
    assert key(host="https://one:6443", api_key="another") == one
    assert key(host="https://two:6443", api_key=TOKEN) != one
    assert key(host="https://one:6443", api_key=TOKEN, impersonate_user="viewer") != one


def test_the_cache_key_of_a_kubeconfig_has_nothing_but_its_servers(tmp_path: Path) -> None:
    def content(server: str, token: str) -> dict[str, Any]:
        return {
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {"token": token}}],
            "contexts": [],
            "current-context": "a",
        }

    keys = {
        configured("gpu_vms", tmp_path, kubeconfig=content(server, token))._cache_key("x")
        for server, token in (("https://one", TOKEN), ("https://one", "another"), ("https://two", TOKEN))
    }
    assert len(keys) == 2


def test_the_environment_of_the_platform_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMWARE_USER", "automation")
    monkeypatch.setenv("VMWARE_PASSWORD", "secret")
    monkeypatch.setenv("VMWARE_PORT", "8443")
    monkeypatch.setenv("VMWARE_VALIDATE_CERTS", "no")
    monkeypatch.setenv("K8S_AUTH_USERNAME", "other")
    found = configured("gpu_vms", tmp_path, platform="vsphere")._connection()
    assert (found["username"], found["password"]) == ("automation", "secret")
    assert (found["port"], found["validate_certs"]) == (8443, False)
    options = configured("gpu_vms", tmp_path)._connection()
    assert connection.completed(options, {}).get("validate_certs") is None
    assert connection.completed(options, {"K8S_AUTH_VERIFY_SSL": "false"})["validate_certs"] is False


def test_options_may_be_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", TOKEN)
    found = configured("gpu_vms", tmp_path, api_key="{{ lookup('ansible.builtin.env', 'SECRET') }}")._connection()
    assert found["api_key"] == TOKEN
    assert type(found["api_key"]) is str


def test_values_of_a_platform_lose_any_trust() -> None:
    template = pytest.importorskip("ansible.template")
    if not hasattr(template, "trust_as_template"):
        pytest.skip("before ansible-core 2.19 there is no trust")
    value = trust.untrusted({"a": [template.trust_as_template("{{ x }}")]})
    assert not template.is_trusted_as_template(value["a"][0])
    assert template.is_trusted_as_template(trust.as_template("{{ x }}"))


def test_before_trust_values_are_marked_as_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = []
    monkeypatch.setattr(trust, "trust_as_template", None)
    monkeypatch.setattr("ansible.utils.unsafe_proxy.wrap_var", lambda value: marked.append(value) or value)
    trust.untrusted({"a": ["{{ x }}"]})
    assert marked == [{"a": ["{{ x }}"]}]
    assert trust.as_template("{{ x }}") == "{{ x }}"
