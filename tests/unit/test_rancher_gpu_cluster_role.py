"""The role rancher_gpu_cluster reads the GPUs of Harvester in a dry run only if the plan needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

ROLE = Path(__file__).parents[2] / "roles/rancher_gpu_cluster"
VGPUS = [{"profile": "A2-4Q", "count": 1}]


def plans_vgpus(wanted: list[dict[str, Any]], results: list[dict[str, Any]]) -> bool:
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    template = Environment(autoescape=False).from_string(variables["__rancher_gpu_cluster_plans_vgpus"])
    pools = {str(number): pool for number, pool in enumerate(wanted)}
    text = template.render(__rancher_gpu_cluster_wanted=pools, __rancher_gpu_cluster_planned={"results": results})
    return {"True": True, "False": False}[text]


@pytest.mark.parametrize(
    ("wanted", "results", "needed"),
    [
        ([{"quantity": 1}], [{"pool": {"vgpus": []}, "diff": {}}], False),
        ([{"quantity": 1, "vgpus": []}], [{"skipped": True}], False),
        ([{"quantity": 1}, {"vgpus": VGPUS}], [{"skipped": True}], True),
        ([{"quantity": 1}], [{"pool": {"vgpus": VGPUS}, "diff": {}}], True),
        ([{"state": "absent"}], [{"pool": {}, "diff": {"before": {"vgpus": VGPUS}, "after": {}}}], True),
        ([{"state": "absent"}], [{"pool": {}, "diff": {"before": {"vgpus": []}, "after": {}}}], False),
    ],
    ids=["no vGPUs", "new cluster without vGPUs", "new pool", "existing pool", "removed pool", "removed without vGPUs"],
)
def test_a_plan_concerns_vgpus_that_are_wanted_or_there(
    wanted: list[dict[str, Any]], results: list[dict[str, Any]], needed: bool
) -> None:
    assert plans_vgpus(wanted, results) is needed


def test_a_dry_run_reads_the_gpus_only_for_vgpus_or_for_a_page() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/present.yml").read_text())
    (plan,) = [task for task in tasks if task.get("ansible.builtin.include_tasks") == "plan.yml"]
    assert plan["when"] == [
        "ansible_check_mode",
        "__rancher_gpu_cluster_plans_vgpus | bool or rancher_gpu_cluster_plan_html | default('', true) | length > 0",
    ]
