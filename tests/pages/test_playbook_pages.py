"""README and the pages of the playbooks run as written: files as printed, then all commands in order.

`make pages` runs them. They take minutes, so `make test` runs only the page for new users.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.integration.labs import Lab
from tests.integration.playbooks.pages import BLOCK, Page, Reader
from tests.integration.playbooks.runs import CHECKOUT

# What a page expects and does not print itself. The inventory is the one of docs/playbooks.md.
REPROFILED = """
harvester_gpu_node_driver_location: http://files.example/NVIDIA-Linux-x86_64-570.172.07-vgpu-kvm.run
harvester_gpu_node_layout: [{profile: A2-4Q, count: 2, nodes: [gpu-a]}]
harvester_gpu_vm_vms: [{name: trainer, vgpus: [{profile: A2-4Q, count: 1}]}]
"""


def inventory(lab: Lab) -> str:
    return yaml.safe_dump({"harvesters": {"hosts": {"edge-1": {"harvester_kubeconfig": lab.env["KUBECONFIG"]}}}})


def test_the_pages_of_the_harvester_playbooks(bare: Lab, tmp_path: Path) -> None:
    reader = Reader(tmp_path, bare.env)
    reader.write({"clusters.yml": inventory(bare)})
    for name in ("harvester-gpu-cluster", "capacity", "drift"):
        reader.follow(Page.read(f"docs/playbook-{name}.md"))
    assert (tmp_path / "fleet.html").exists()
    export = Page.read("docs/playbook-export.md")
    (tmp_path / "cluster.yml").rename(tmp_path / "declared.yml")
    reader.follow(export)
    assert "trainer" in (tmp_path / "cluster.yml").read_text()
    (tmp_path / "declared.yml").rename(tmp_path / "cluster.yml")
    rehearsed, gone, *_rest = reader.follow(Page.read("docs/playbook-teardown.md"))
    assert "failed=0" in rehearsed
    assert "failed=0" in gone


def test_the_page_of_reprofile(bare: Lab, tmp_path: Path) -> None:
    reader = Reader(tmp_path, bare.env)
    reader.write({"clusters.yml": inventory(bare), "before.yml": REPROFILED})
    reader.follow(Page({}, ["ansible-playbook vgpu.fleet.harvester_gpu_cluster -e @before.yml"], []))
    reader.follow(Page.read("docs/playbook-reprofile.md"))
    assert (tmp_path / "plan.html").exists()


def test_the_page_of_the_vsphere_playbook(bare: Lab, tmp_path: Path) -> None:
    reader = Reader(tmp_path, bare.env)
    reader.follow(Page.read("docs/playbook-vsphere-gpu-cluster.md"))
    assert "worker-1" in (tmp_path / "machines.yml").read_text()


@pytest.mark.parametrize("number", [0, 1], ids=["harvester", "vsphere"])
def test_the_playbooks_of_the_readme(number: int, bare: Lab, tmp_path: Path) -> None:
    plays = [text for language, text in BLOCK.findall((CHECKOUT / "README.md").read_text()) if language == "yaml"]
    reader = Reader(tmp_path, bare.env)
    reader.write({"play.yml": plays[number]})
    rehearsed, done, again = reader.follow(
        Page({}, ["ansible-playbook play.yml --check --diff", *["ansible-playbook play.yml"] * 2], [])
    )
    assert "failed=0" in rehearsed
    assert re.search(r"changed=[1-9]", done)
    assert "changed=0" in again


@pytest.mark.parametrize("name", ["smoke-test", "awx-setup"])
def test_commands_that_need_another_system_are_parsed(name: str, bare: Lab, tmp_path: Path) -> None:
    page = Page.read(f"docs/playbook-{name}.md")
    reader = Reader(tmp_path, bare.env)
    reader.write({"guests.yml": "guests: {hosts: {one: {}}}\n"})
    reader.follow(Page({}, [f"{command} --syntax-check" for command in page.commands], []))
