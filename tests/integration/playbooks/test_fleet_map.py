"""The map that capacity writes, and the page of a dry run, on running labs: both platforms on one page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record, gpus_of

from tests.integration.labs import Lab
from tests.integration.playbooks.runs import Run, Runs

Json = dict[str, Any]
LAYOUT = [{"profile": "A2-4Q", "count": 2, "nodes": ["gpu-a"]}]


def parsed(file: Path) -> ET.Element:
    page = file.read_text().removeprefix("<!DOCTYPE html>\n")
    return ET.fromstring(re.sub(r"<(style|script)(?: [^>]*)?>.*?</\1>", "", page, flags=re.DOTALL))


def by_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [one for one in root.iter() if name in one.get("class", "").split()]


def result(run: Run, module: str) -> Json:
    """What the first task of a module returned."""
    done = (event["event_data"] for event in run.results("runner_on_ok"))
    return next(one["res"] for one in done if one["task_action"] == f"vgpu.fleet.{module}")


def segments(card: ET.Element, number: int = 0) -> list[tuple[str | None, str | None]]:
    bar = by_class(card, "bar")[number]
    return [(one.get("data-profile"), one.get("data-state")) for one in by_class(bar, "seg") if one.get("data-state")]


def test_both_platforms_are_on_one_page_that_shows_what_the_modules_returned(
    lab: Lab, runs: Runs, tmp_path: Path
) -> None:
    made = runs.playbook("harvester_gpu_cluster", {"harvester_gpu_node_layout": LAYOUT}, options="--tags node")
    assert made.status == "successful", made.shown
    file = tmp_path / "fleet.html"
    asked = {"vgpu_capacity_html": str(file)}
    harvester = runs.playbook("capacity", {**asked, "vgpu_capacity_name": "edge"})
    vsphere = runs.playbook("capacity", {**asked, "vgpu_capacity_name": "vc", "vgpu_capacity_platform": "vsphere"})
    assert (harvester.status, harvester.changed, vsphere.status, vsphere.changed) == ("successful", 0, "successful", 0)

    records = [
        fleet_record(result(harvester, "harvester_gpu_info"), cluster="edge"),
        fleet_record(result(vsphere, "vsphere_gpu_info"), result(vsphere, "vgpu_availability"), cluster="vc"),
    ]
    page = parsed(file)
    assert [one.text for one in page.iter("h2")] == ["edge", "vc"]
    cards = {card.get("data-name"): card for card in by_class(page, "gpu")}
    assert set(cards) == {one["name"] for record in records for _node, one in gpus_of(record)}
    for record in records:
        for _node, one in gpus_of(record):
            assert segments(cards[one["name"]]) == [(vgpu["short"], vgpu["state"]) for vgpu in one["vgpus"]]
    assert [one["total"] for one in records[0]["nodes"]] == [2, 0]
    counted = {one["profile"]: one for one in result(harvester, "vgpu_availability")["profiles"]}
    for one in records[0]["profiles"]:
        there = counted[one["profile"]]
        assert (one["total"], one["free"], one["available"]) == (
            there["allocatable"],
            there["free"],
            there["creatable"],
        )


def test_a_dry_run_draws_both_states_and_leaves_the_plan_for_an_approval(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "plan.html"
    asked = {"harvester_gpu_node_layout": LAYOUT, "vgpu_plan_html": str(file)}
    dry = runs.playbook("harvester_gpu_cluster", asked, check=True, options="--tags node")
    assert dry.status == "successful", dry.shown
    plan = dry.artifacts["vgpu_plan"]["localhost"]
    assert plan["summary"] == "3 steps on 1 GPU, no VM is stopped"
    assert plan["lines"][0] == "1. Enable SR-IOV on GPU gpu-a-000008000"
    assert plan["page"] == str(file)
    changed = [card for card in by_class(parsed(file), "gpu") if card.get("data-changed") == "yes"]
    assert [card.get("data-name") for card in changed] == ["gpu-a-000008000"]
    assert segments(changed[0]) == []
    assert segments(changed[0], 1) == [("A2-4Q", "free"), ("A2-4Q", "free")]
    assert lab.amounts("gpu-a") == {}


def test_a_dry_run_of_another_layout_says_which_vms_are_stopped(used: Lab, runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "plan.html"
    asked = {
        "vgpu_reprofile_nodes": ["gpu-a"],
        "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 2}],
        "vgpu_reprofile_vms": [{"name": "trainer", "vgpus": [{"profile": "A2-8Q"}]}],
        "vgpu_plan_html": str(file),
    }
    dry = runs.playbook("reprofile", asked, check=True, options="--tags reprofile")
    assert dry.status == "successful", dry.shown
    stops = by_class(parsed(file), "stops")[0]
    assert [one.text for one in stops.iter("li")] == ["VM default/trainer, while GPU gpu-a-000008000 changes"]
    (card,) = [card for card in by_class(parsed(file), "gpu") if card.get("data-changed") == "yes"]
    assert sorted(segments(card, 1)) == [("A2-8Q", "free"), ("A2-8Q", "in_use")]
    assert "1 VM is stopped" in dry.artifacts["vgpu_plan"]["localhost"]["summary"]


def test_a_dry_run_on_vsphere_leaves_the_plan_for_an_approval(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "plan.html"
    asked = {
        "vsphere_gpu_host_cluster": "gpu",
        "vsphere_gpu_vm_defaults": {"template": "ubuntu-22.04-efi", "cluster": "gpu", "cpus": 4, "memory_mb": 8192},
        "vsphere_gpu_vm_vms": [{"name": "planned", "vgpus": [{"profile": "A40-8Q", "count": 2}]}],
        "vgpu_plan_html": str(file),
    }
    dry = runs.playbook("vsphere_gpu_cluster", asked, check=True)
    assert dry.status == "successful", dry.shown
    plan = dry.artifacts["vgpu_plan"]["localhost"]
    assert plan["lines"][-1].endswith("Create VM planned with 2 x A40-8Q"), plan
    assert plan["summary"].endswith("no VM is stopped")
    assert plan["page"] == str(file)
    page = parsed(file)
    assert [one.text for one in by_class(page, "steps")[0].iter("li")][-1] == "Create VM planned with 2 x A40-8Q"
    assert len(by_class(page, "bar")) == len(by_class(page, "gpu")) == 4
