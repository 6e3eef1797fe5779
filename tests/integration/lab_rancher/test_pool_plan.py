"""The plan that a dry run of rancher_gpu_cluster writes: new pools, and pools whose machines Rancher would replace."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.browser.demo_fleet import data_of
from tests.integration.lab_rancher.test_gpu_cluster_role import cluster
from tests.integration.modules.playbooks import Json, Playbooks
from tests.integration.ranchers import CLUSTERS, FOUR_Q, Rancher

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ansible_collections.kubernetes") is None, reason="kubernetes.core is not installed"
)


def dry_run(rancher: Rancher, plays: Playbooks, page: Path | None, **changes: Any) -> Json:
    """Return the statistic of a dry run of the role."""
    variables = {**cluster(rancher, **changes), **({"vgpu_plan_html": str(page)} if page else {})}
    # Without it a role would say nothing about its own warnings.
    call = {"ansible.builtin.include_role": {"name": "vgpu.fleet.rancher_gpu_cluster"}}
    results = plays.play({"vars": variables, "tasks": [call]}, check=True)
    assert not [one.message for one in results if one.failed], results[-1]["output"]
    (described,) = [one for one in results if "waits" in one and "stops" in one]
    return described


def holders(record: Json) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in record["nodes"]:
        for gpu in node["gpus"]:
            for vgpu in gpu["vgpus"]:
                for holder in vgpu["holders"]:
                    found[holder["path"]] = found.get(holder["path"], 0) + 1
    return found


def test_a_dry_run_plans_the_pools_of_a_cluster_that_does_not_exist(
    rancher: Rancher, plays: Playbooks, tmp_path: Path
) -> None:
    page = tmp_path / "plan.html"
    described = dry_run(rancher, plays, page)
    assert described["steps"] == [
        "Pool control of cluster demo: 1 machine with no vGPUs each",
        "Pool gpu of cluster demo: 2 machines with 1 x A2-4Q each",
    ]
    assert described["summary"] == "2 steps, no VM is stopped"
    assert described["file"] == str(page)
    (plan,) = data_of(page)["plans"]
    assert holders(plan["before"]) == {}
    assert holders(plan["after"]) == {"default/demo-gpu-new-1": 1, "default/demo-gpu-new-2": 1}
    assert rancher.local.items(CLUSTERS) == []


def test_a_dry_run_names_the_machines_that_rancher_would_replace(
    rancher: Rancher, plays: Playbooks, tmp_path: Path
) -> None:
    rancher.make_config("nc-control")
    rancher.make_config("nc-gpu", FOUR_Q)
    rancher.make_cluster(
        "demo",
        rancher.pool("control", 1, "nc-control", controlPlaneRole=True, etcdRole=True),
        rancher.pool("gpu", 1, "nc-gpu"),
    )
    rancher.until(lambda: len(rancher.vms()) == 2)
    machine = rancher.machines("gpu")[0]["metadata"]["name"]
    page = tmp_path / "plan.html"
    rancher.mark()
    pools = [{"name": "gpu", "quantity": 1, "vgpus": [{"profile": "A2-8Q"}]}]
    described = dry_run(rancher, plays, page, pools=pools, adopt=True, owner="vgpu.fleet")
    assert f"Replace machine {machine} of pool gpu of cluster demo" in described["steps"]
    assert "Pool gpu of cluster demo: 1 machine with 1 x A2-8Q each" in described["steps"]
    (stopped,) = described["stops"]
    assert stopped.endswith("which Rancher replaces and deletes")
    assert described["waits"] == ["the machines of pool gpu to run"]
    (plan,) = data_of(page)["plans"]
    assert plan["stops"] == [stopped]
    after = holders(plan["after"])
    assert "default/demo-gpu-new-1" in after
    assert stopped.split()[1].rstrip(",") not in after
    assert rancher.writes() == []
    assert machine in json.dumps(rancher.machines("gpu"))


def test_without_a_page_a_dry_run_still_says_what_it_would_change(rancher: Rancher, plays: Playbooks) -> None:
    described = dry_run(rancher, plays, None)
    assert described["lines"][-1] == "2. Pool gpu of cluster demo: 2 machines with 1 x A2-4Q each"
    assert described["file"] in (None, "")
