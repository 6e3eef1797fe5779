"""The inventory files and the output in docs/inventory.md, the plugins' examples, and the documented permissions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration import api as paths
from tests.integration.inventory.inventories import Inventories
from tests.integration.lab_harvester.machines import ALLOCATION, device, machine
from tests.integration.labs import Lab
from tests.integration.modules.permissions import Automation, binding, collection, documented
from tests.integration.ranchers import Rancher
from tests.integration.vsphere_modules.conftest import VCenter

CHECKOUT = Path(__file__).parents[3]
PAGE = (CHECKOUT / "docs/inventory.md").read_text()


def blocks(language: str) -> list[str]:
    return [block.split("```")[0] for block in PAGE.split(f"```{language}\n")[1:]]


# By the name in the first line.
FILES = {block.splitlines()[0].removeprefix("# "): block for block in blocks("yaml")}


@pytest.fixture
def everything(rancher: Rancher, start: Callable[..., VCenter], section: dict[str, Any], tmp_path: Path) -> Inventories:
    """A Harvester with a running machine, its Rancher, and a vCenter."""
    lab = rancher.lab
    lab.make(paths.VMS, machine("trainer", host_devices=[device("vgpu-0")], run=True))
    lab.until(lambda: ALLOCATION in (lab.read(f"{paths.VMS}/trainer")["metadata"].get("annotations") or {}))
    section["vms"].append({"name": "later", "host": "esx1", "vgpus": ["nvidia_a40-8q"]})
    environment = {**lab.env, **start(section).env, "K8S_AUTH_SSL_CA_CERT": lab.env["LAB_RANCHER_CA_FILE"]}
    token = lab.env["RANCHER_TOKEN_KEY"]
    return Inventories(
        tmp_path, {**environment, "EDGE_RANCHER_TOKEN": token, "VCENTER_PASSWORD": environment["VMWARE_PASSWORD"]}
    )


def test_the_files_of_the_page_are_inventories(everything: Inventories) -> None:
    found = {}
    for name, content in FILES.items():
        (everything.folder / name).write_text(content)
        # The lab's Harvester has an authority of its own.
        extra = {} if "rancher" in name else {"K8S_AUTH_SSL_CA_CERT": ""}
        found[name] = sorted(everything.hosts(everything.folder / name, **extra))
    assert found == {
        "berlin.gpu_vms.yml": ["trainer.default.berlin"],
        "munich.gpu_vms.yml": ["later.munich"],
        "all.rancher_harvesters.yml": ["harvester"],
        "edge.rancher_harvesters.yml": ["harvester"],
        "cached.gpu_vms.yml": ["trainer.default"],
    }
    shown = next(block for block in blocks("console") if "--graph" in block)
    graph = everything.graph(everything.folder / "berlin.gpu_vms.yml", K8S_AUTH_SSL_CA_CERT="")
    assert graph in shown


def uncommented(text: str) -> str:
    """Return examples without the comment signs of the documents that begin with `# ---`."""

    def plain(found: re.Match[str]) -> str:
        return re.sub("^# ?", "", found[0], flags=re.MULTILINE)

    return re.sub(r"^# ---\n(?:#.*\n)+", plain, text, flags=re.MULTILINE)


@pytest.mark.parametrize("plugin", ["gpu_vms", "rancher_harvesters"])
def test_the_examples_of_the_plugins_are_inventories(everything: Inventories, plugin: str) -> None:
    tree = ast.parse((CHECKOUT / f"plugins/inventory/{plugin}.py").read_text())
    (text,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXAMPLES"
    ]
    # Where things are differs here; everything else is as it is written.
    here = {
        "hostname": "127.0.0.1",
        "username": everything.variable("VMWARE_USER"),
        "url": everything.variable("RANCHER_URL"),
    }
    # Only the first one is not a comment: ansible-test of ansible-core 2.16 accepts a single document.
    for example in yaml.safe_load_all(uncommented(text)):
        if example is None:
            continue
        content = {key: here.get(key, value) for key, value in example.items()}
        if "cache_connection" in content:
            content["cache_connection"] = "cache"
        extra = {} if "rancher" in plugin else {"K8S_AUTH_SSL_CA_CERT": ""}
        everything.graph(everything.file("example", content, plugin), **extra)


def test_the_documented_roles_are_enough_and_all_of_them_are_needed(lab: Lab, inventories: Inventories) -> None:
    automation = Automation(lab)
    try:
        automation.grant("vgpu-fleet-reader")
        lab.mark()
        file = inventories.file("lab", {"kubeconfig": str(automation.kubeconfig), "harvester_version": "1.8"})
        assert inventories.hosts(file) == {}
        # The others are read where a GPU does not show what it is.
        rest = {("list", "pcidevices"), ("list", "migconfigurations")}
        assert automation.used() | rest == automation.granted
    finally:
        automation.withdraw()


def test_the_documented_role_in_rancher_is_enough(rancher: Rancher, inventories: Inventories) -> None:
    role = next(one for one in documented() if one["metadata"]["name"] == "vgpu-fleet-harvesters")
    bound = binding("ClusterRole", "vgpu-fleet-harvesters", "")
    user = bound["subjects"][0]["name"]
    made = [(collection(one), one) for one in (role, bound)]
    try:
        for path, body in made:
            rancher.local.make(path, body)
        file = inventories.file("all", {"ca_cert": rancher.env["LAB_RANCHER_CA_FILE"]}, "rancher_harvesters")
        assert list(inventories.hosts(file, RANCHER_TOKEN_KEY=rancher.key_of(user))) == ["harvester"]
    finally:
        for path, body in made:
            rancher.local.delete(f"{path}/{body['metadata']['name']}")
