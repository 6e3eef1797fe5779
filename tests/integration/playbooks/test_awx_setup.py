"""The playbook awx_setup with the modules of awx.awx: AWX gets what awx/ says, and gets it once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.integration.playbooks.awx_api import PROMPTS, TOKEN, Awx, served
from tests.integration.playbooks.runs import Run, Runs
from tests.integration.warm_interpreter import Warm
from tests.unit.awx.data import TEMPLATES, TYPES, WORKFLOWS, survey

Json = dict[str, Any]

VARIABLES = {
    "awx_setup_image": "registry.example/vgpu-fleet-ee:0.1.0",
    "awx_setup_credentials": {"harvester": ["edge-1", "rancher"], "kubernetes": ["guest"]},
}


# The same with an approval and a step after it that have other names: what a later release may do.
RENAMED: list[Json] = yaml.safe_load(
    yaml.safe_dump(WORKFLOWS).replace(": approve\n", ": consent\n").replace(": provision\n", ": build\n")
)


def test_awx_is_set_up_once(tmp_path: Path, warm: Warm) -> None:
    """F1: at no moment would AWX start any other step first than the one that is declared to be the first."""
    awx = Awx()
    for name in ("edge-1", "rancher", "guest"):
        awx.add("credentials", {"name": name})
    with served(awx) as address:
        environment = {"CONTROLLER_HOST": address, "CONTROLLER_OAUTH_TOKEN": TOKEN, "no_proxy": "127.0.0.1"}
        runs = Runs(tmp_path, environment, warm)
        rehearsal = runs.playbook("awx_setup", VARIABLES, check=True)
        assert rehearsal.status == "successful", rehearsal.shown
        assert awx.writes == []
        first = runs.playbook("awx_setup", VARIABLES)
        assert first.status == "successful", first.shown
        _workflows_are_as_awx_says(awx, WORKFLOWS)
        own = _somebody_edits_workflows(awx)

        awx.writes.clear()
        renamed = {**VARIABLES, "awx_workflows": RENAMED}
        told = runs.playbook("awx_setup", renamed, check=True, options="--tags workflows")
        assert told.status == "successful", told.shown
        assert awx.writes == []
        assert _removed(told) == ["approve", "approve", "provision", "provision", "somebody-s"]
        second = runs.playbook("awx_setup", renamed)
        assert second.status == "successful", second.shown
        assert _removed(second) == _removed(told)
        _workflows_are_as_awx_says(awx, RENAMED, others=1)
        assert list(awx.nodes_of(own)) == ["theirs"]
        awx.writes.clear()
        again = runs.playbook("awx_setup", renamed)
    assert (again.status, again.changed) == ("successful", 0), again.shown
    # The modules write some fields anew without a change, but make nothing.
    assert [write for write in awx.writes if not write.startswith("PATCH ")] == []
    assert TOKEN not in first.shown
    # AWX has no way to replace an edge by one of another kind at once, which is true of that before the dry run.
    assert awx.started == {"capacity", "theirs", "dry_run"}

    _credential_types_are_as_awx_says(awx)
    _job_templates_are_as_awx_says(awx)


def _somebody_edits_workflows(awx: Awx) -> Json:
    """A step and an edge more in a workflow of ours, which go, and a workflow of somebody's own, which stays."""
    nodes = awx.nodes_of(awx.all("workflow_job_templates")[WORKFLOWS[1]["name"]])
    template = nodes["smoke"]["unified_job_template"]
    body = {"workflow_job_template": nodes["smoke"]["workflow_job_template"], "unified_job_template": template}
    added = awx.add("workflow_job_template_nodes", {**body, "identifier": "somebody-s"})
    awx.answer("POST", f"{nodes['smoke']['url']}success_nodes/", {"id": added["id"]})
    awx.answer("POST", f"{nodes['capacity']['url']}always_nodes/", {"id": nodes["provision"]["id"]})
    # Whatever capacity says: an edge of another kind between two steps.
    other = awx.nodes_of(awx.all("workflow_job_templates")[WORKFLOWS[0]["name"]])
    for kind, extra in (("success_nodes", {"disassociate": True}), ("always_nodes", {})):
        awx.answer("POST", f"{other['capacity']['url']}{kind}/", {"id": other["dry_run"]["id"], **extra})
    own = awx.add("workflow_job_templates", {"name": "Somebody's own"})
    awx.add("workflow_job_template_nodes", {**body, "workflow_job_template": own["id"], "identifier": "theirs"})
    return own


def _removed(run: Run) -> list[str]:
    items = [event["event_data"]["res"] for event in run.results("runner_item_on_ok")]
    events = [event["event_data"]["task"] for event in run.results("runner_item_on_ok")]
    gone = [
        result["item"]["identifier"]
        for task, result in zip(events, items, strict=True)
        if task == "Remove undeclared steps" and result["changed"]
    ]
    return sorted(gone)


def _credential_types_are_as_awx_says(awx: Awx) -> None:
    found = awx.all("credential_types")
    assert {name: (one["inputs"], one["injectors"]) for name, one in found.items()} == {
        given["name"]: (given["inputs"], given["injectors"]) for given in TYPES
    }
    assert found["Harvester kubeconfig"]["injectors"]["env"] == {"K8S_AUTH_KUBECONFIG": "{{ tower.filename }}"}


def _job_templates_are_as_awx_says(awx: Awx) -> None:
    found = awx.all("job_templates")
    assert list(found) == [template["name"] for template in TEMPLATES]
    credentials = {"harvester": ["edge-1", "rancher"], "vsphere": [], "kubernetes": ["guest"]}
    for template in TEMPLATES:
        one = found[template["name"]]
        assert one["playbook"] == template["playbook"]
        assert one["survey_enabled"]
        assert one["ask_forks_on_launch"]
        assert awx.survey(one) == survey(template)
        names = sorted(credential["name"] for credential in awx.related(one, "credentials"))
        assert names == credentials[template["platform"]]
    image = awx.all("execution_environments")["vgpu.fleet"]
    assert image["image"] == VARIABLES["awx_setup_image"]
    assert {one["execution_environment"] for one in found.values()} == {image["id"]}
    assert {one["project"] for one in found.values()} == {awx.all("projects")["vgpu.fleet"]["id"]}
    assert {one["inventory"] for one in found.values()} == {awx.all("inventories")["vgpu.fleet"]["id"]}


def _workflows_are_as_awx_says(awx: Awx, workflows: list[Json], *, others: int = 0) -> None:
    found = awx.all("workflow_job_templates")
    assert list(found)[: len(found) - others] == [workflow["name"] for workflow in workflows]
    for workflow in workflows:
        one = found[workflow["name"]]
        assert one["survey_enabled"]
        assert awx.survey(one) == survey(workflow)
        nodes = awx.nodes_of(one)
        assert set(nodes) == {step["identifier"] for step in workflow["steps"]}
        for step in workflow["steps"]:
            node = nodes[step["identifier"]]
            kind, name = (
                ("workflow_approval_templates", step["approval"]["name"])
                if "approval" in step
                else ("job_templates", step["template"])
            )
            assert awx.get(node["unified_job_template"])["url"].startswith(f"/api/v2/{kind}/")
            assert awx.get(node["unified_job_template"])["name"] == name
            assert [node.get(key) for key in PROMPTS] == [step.get(key) for key in PROMPTS]
            followers = [follower["identifier"] for follower in awx.related(node, "success_nodes")]
            assert followers == ([step["next"]] if "next" in step else [])
            assert awx.related(node, "failure_nodes") + awx.related(node, "always_nodes") == []
        assert awx.roots(one) == [workflow["steps"][0]["identifier"]]
    approvals = awx.all("workflow_approval_templates")
    assert {one["timeout"] for one in approvals.values()} == {86400}
