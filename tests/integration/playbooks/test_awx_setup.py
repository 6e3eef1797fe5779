"""The playbook awx_setup with the modules of awx.awx: AWX gets what awx/ says, and gets it once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.playbooks.awx_api import PROMPTS, TOKEN, Awx, served
from tests.integration.playbooks.runs import Run, Runs
from tests.integration.warm_interpreter import Warm
from tests.unit.awx.data import TEMPLATES, TYPES, WORKFLOWS, load, survey

Json = dict[str, Any]

CAPACITY = "vGPU capacity on Harvester"
SCHEDULE = "DTSTART:20260101T020000Z RRULE:FREQ=DAILY;INTERVAL=1"
PASSWORD_OF_MAIL = "password-of-the-mail-server"
VARIABLES: Json = {
    "awx_setup_image": "registry.example/vgpu-fleet-ee:0.1.0",
    "awx_setup_credentials": {
        "harvester": ["edge-1", "rancher"],
        "kubernetes": ["guest"],
        CAPACITY: ["edge-1 read-only"],
    },
    "awx_setup_teams": {"launch": ["operators"], "approve": ["leads"], "read": ["auditors"]},
    "awx_setup_instance_groups": ["site-a"],
    "awx_setup_job_slice_count": 4,
    "awx_setup_schedules": [
        {
            "name": "Nightly drift",
            "template": "vGPU drift on Harvester",
            "rrule": SCHEDULE,
            "extra_data": {"vgpu_drift_fail": "true"},
        }
    ],
    "awx_setup_notification_templates": [
        {
            "name": "GPU mail",
            "notification_type": "email",
            "notification_configuration": {"host": "mail.example", "password": PASSWORD_OF_MAIL},
        }
    ],
    "awx_setup_notifications": {"error": ["GPU mail"], "approvals": ["GPU mail"]},
    "awx_setup_credential_lookups": [
        {"credential": "edge-1", "field": "kubeconfig", "source": "vault", "metadata": {"secret_path": "edge-1"}}
    ],
}


# The same with an approval and a step after it that have other names: what a later release may do.
RENAMED: list[Json] = yaml.safe_load(
    yaml.safe_dump(WORKFLOWS).replace(": approve\n", ": consent\n").replace(": provision\n", ": build\n")
)


# A part of awx/ is enough where a test is not about job templates and workflows.
FEW: Json = {
    "awx_job_templates": [one for one in TEMPLATES if one["name"] in (CAPACITY, "vGPU drift on Harvester")],
    "awx_workflows": [],
}


def filled() -> Awx:
    """An AWX with what administrators create before the playbook runs."""
    awx = Awx()
    for name in ("edge-1", "edge-1 read-only", "rancher", "guest", "vault"):
        awx.add("credentials", {"name": name})
    for name in ("operators", "leads", "auditors"):
        awx.add("teams", {"name": name, "organization": 1})
    awx.add("instance_groups", {"name": "site-a"})
    return awx


def runs_on(address: str, folder: Path, warm: Warm) -> Runs:
    environment = {"CONTROLLER_HOST": address, "CONTROLLER_OAUTH_TOKEN": TOKEN, "no_proxy": "127.0.0.1"}
    return Runs(folder, environment, warm)


def test_awx_is_set_up_once(tmp_path: Path, warm: Warm) -> None:
    """F1: at no moment would AWX start any other step first than the one that is declared to be the first."""
    awx = filled()
    with served(awx) as address:
        runs = runs_on(address, tmp_path, warm)
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
        assert _removed(told) == [*["approve"] * 4, "provision", "provision", "somebody-s"]
        second = runs.playbook("awx_setup", renamed)
        assert second.status == "successful", second.shown
        assert _removed(second) == _removed(told)
        _workflows_are_as_awx_says(awx, RENAMED, others=1)
        assert list(awx.nodes_of(own)) == ["theirs"]
        awx.writes.clear()
        again = runs.playbook("awx_setup", renamed)
        # F4: a dry run on a filled AWX, and one of an upgrade, which shows the changed templates.
        checked = runs.playbook("awx_setup", renamed, check=True)
    assert (again.status, again.changed) == ("successful", 0), again.shown
    assert (checked.status, checked.changed) == ("successful", 0), checked.shown
    # Nothing is written but the synchronization of the project, so AWX's activity stream stays empty.
    assert [re.sub(r"/\d+/", "/N/", write) for write in awx.writes] == ["POST /api/v2/projects/N/update/"]
    for secret in (TOKEN, PASSWORD_OF_MAIL):
        assert secret not in first.shown
    # AWX has no way to replace an edge by one of another kind at once, which is true of the one before the dry run.
    firsts = {(workflow["name"], workflow["steps"][0]["identifier"]) for workflow in WORKFLOWS}
    assert awx.started == {*firsts, ("Somebody's own", "theirs"), (WORKFLOWS[0]["name"], "dry_run")}

    _credential_types_are_as_awx_says(awx)
    _job_templates_are_as_awx_says(awx)
    _access_is_as_asked_for(awx)


def _access_is_as_asked_for(awx: Awx) -> None:
    """F9 and F11: an approver reads the jobs that he judges, and a job has credentials of its own."""
    granted = {
        (name, role.removesuffix("_role"), team["name"])
        for kind in ("job_templates", "workflow_job_templates")
        for name, template in awx.all(kind).items()
        for role, number in template["summary_fields"]["object_roles"].items()
        for team in awx.related(awx.get(number["id"]), "teams")
    }
    workflow, judged = WORKFLOWS[0]["name"], WORKFLOWS[0]["steps"][1]["template"]
    assert {(role, team) for name, role, team in granted if name == workflow} == {
        ("execute", "operators"),
        ("approval", "leads"),
        ("read", "auditors"),
    }
    assert ("read", "leads") in {(role, team) for name, role, team in granted if name == judged}
    assert "Somebody's own" not in {name for name, _, _ in granted}
    (schedule,) = awx.all("schedules").values()
    assert awx.get(schedule["unified_job_template"])["name"] == "vGPU drift on Harvester"
    mail = awx.related(awx.all("workflow_job_templates")[workflow], "notification_templates_approvals")
    assert [one["name"] for one in mail] == ["GPU mail"]
    (lookup,) = awx.everything("credential_input_sources")
    assert awx.get(lookup["source_credential"])["name"] == "vault"


def test_a_failed_synchronization_is_repeated_and_explained(tmp_path: Path, warm: Warm) -> None:
    """F3: of the project. An upgrade fetches the playbooks of the new revision."""
    awx = filled()
    variables = {**VARIABLES, **FEW}
    awx.failing_syncs = 3
    with served(awx) as address:
        runs = runs_on(address, tmp_path, warm)
        first = runs.playbook("awx_setup", variables)
        assert first.status == "failed"
        assert "fatal: repository not found" in first.failure
        assert awx.all("job_templates") == {}
        # One more fails, and is repeated.
        second = runs.playbook("awx_setup", variables, options="--tags templates")
        assert second.status == "successful", second.shown
        awx.revision = "2" * 40
        upgrade = {**variables, "awx_setup_image": "registry.example/vgpu-fleet-ee:0.2.0"}
        told = runs.playbook("awx_setup", upgrade, check=True, options="--tags templates")
        assert told.status == "successful", told.shown
        assert told.tasks == ["Create the execution environment"]
        third = runs.playbook("awx_setup", upgrade, options="--tags templates")
    assert third.tasks == ["Create the execution environment", "Create the project and fetch its playbooks"]
    assert awx.all("projects")["vgpu.fleet"]["scm_revision"] == awx.revision


def test_two_organizations_are_set_up_and_one_is_removed(tmp_path: Path, warm: Warm) -> None:
    """F7. A removal keeps what somebody else uses, and what belongs to another organization."""
    awx = filled()
    awx.add("organizations", {"name": "Research"})
    plain = {**FEW, "awx_setup_image": "registry.example/vgpu-fleet-ee:0.1.0"}
    research = {**plain, "awx_setup_organization": "Research"}
    with served(awx) as address:
        runs = runs_on(address, tmp_path, warm)
        for variables in (plain, research):
            done = runs.playbook("awx_setup", variables)
            assert done.status == "successful", done.shown
        again = runs.playbook("awx_setup", plain)
        assert (again.status, again.changed) == ("successful", 0), again.shown
        inventory = awx.all("inventories", "Research")["vgpu.fleet"]
        awx.add("hosts", {"name": "edge-1", "inventory": inventory["id"]})
        kubeconfig = awx.all("credential_types")["Harvester kubeconfig"]
        awx.add("credentials", {"name": "of somebody", "credential_type": kubeconfig["id"]})
        absent = {**research, "awx_setup_state": "absent"}
        told = runs.playbook("awx_setup", absent, check=True)
        assert told.status == "successful", told.shown
        assert awx.all("job_templates", "Research")
        removed = runs.playbook("awx_setup", absent)
        assert removed.status == "successful", removed.shown
        twice = runs.playbook("awx_setup", absent)
        assert (twice.status, twice.changed) == ("successful", 0), twice.shown
    assert "Inventory vgpu.fleet stays: its host edge-1 uses it." in removed.shown
    assert "Credential type Harvester kubeconfig stays: the credential of somebody uses it." in removed.shown
    for kind in ("job_templates", "workflow_job_templates", "projects"):
        assert awx.in_organization(kind, "Research") == []
    assert [one["name"] for one in awx.in_organization("inventories", "Research")] == ["vgpu.fleet"]
    assert set(awx.all("job_templates")) == {template["name"] for template in FEW["awx_job_templates"]}
    assert set(awx.all("execution_environments")) == {"vgpu.fleet"}
    assert set(awx.all("credential_types")) == {"Harvester kubeconfig"}


# The objects of FEW, as awx_setup_adopt and messages name them.
OBJECTS = [
    "credential type Harvester kubeconfig",
    "credential type Rancher token",
    "execution environment vgpu.fleet",
    "project vgpu.fleet",
    "inventory vgpu.fleet",
    f"job template {CAPACITY}",
    "job template vGPU drift on Harvester",
]


def test_objects_of_others_are_neither_changed_nor_removed(tmp_path: Path, warm: Warm) -> None:
    """An upgrade from a version without marks, and a removal, take over what awx_setup_adopt names, no more."""
    awx = filled()
    plain = {**FEW, "awx_setup_image": "registry.example/vgpu-fleet-ee:0.1.0"}
    absent = {**plain, "awx_setup_state": "absent"}
    with served(awx) as address:
        runs = runs_on(address, tmp_path, warm)
        runs.playbook("awx_setup", plain)
        for kind in ("credential_types", "execution_environments", "projects", "inventories", "job_templates"):
            for thing in awx.everything(kind):
                assert thing["description"].endswith("Managed by vgpu.fleet."), thing
                thing["description"] = "Somebody's own"
        awx.writes.clear()
        refused = runs.playbook("awx_setup", {**plain, "awx_setup_image": "registry.example/other:1"})
        assert refused.status == "failed"
        for name in OBJECTS:
            assert name in refused.failure
        kept = runs.playbook("awx_setup", absent)
        assert (kept.status, kept.changed) == ("successful", 0), kept.shown
        for name in OBJECTS:
            assert f"{name[0].upper()}{name[1:]} stays: this playbook did not create it." in kept.shown
        mistaken = runs.playbook("awx_setup", {**plain, "awx_setup_adopt": ["projects vgpu.fleet"]})
        assert mistaken.status == "failed"
        assert "awx_setup_adopt has unknown objects: projects vgpu.fleet." in mistaken.failure
        assert awx.writes == []

        adopted = runs.playbook("awx_setup", {**plain, "awx_setup_adopt": OBJECTS})
        assert adopted.status == "successful", adopted.shown
        again = runs.playbook("awx_setup", plain)
        assert (again.status, again.changed) == ("successful", 0), again.shown

        # A template that somebody took over, in which the objects stay that it uses.
        awx.all("job_templates")[CAPACITY]["description"] = "Somebody's own"
        removed = runs.playbook("awx_setup", absent)
        assert removed.status == "successful", removed.shown
    assert set(awx.all("job_templates")) == {CAPACITY}
    assert awx.all("job_templates")[CAPACITY]["project"]
    for name in OBJECTS[2:5]:
        assert f"{name[0].upper()}{name[1:]} stays: the job template {CAPACITY} uses it." in removed.shown


def test_what_others_use_is_not_removed(tmp_path: Path, warm: Warm) -> None:
    """A schedule, a workflow, an organization and an inventory source that somebody else made."""
    awx = filled()
    plain = {
        **FEW,
        "awx_setup_image": "registry.example/vgpu-fleet-ee:0.1.0",
        "awx_setup_schedules": VARIABLES["awx_setup_schedules"],
    }
    with served(awx) as address:
        runs = runs_on(address, tmp_path, warm)
        done = runs.playbook("awx_setup", plain)
        assert done.status == "successful", done.shown
        drift = awx.all("job_templates")["vGPU drift on Harvester"]
        capacity = awx.all("job_templates")[CAPACITY]
        schedule = {"name": "Weekly {{ 1 + 1 }}", "unified_job_template": drift["id"], "rrule": SCHEDULE}
        weekly = awx.add("schedules", schedule)
        own = awx.add("workflow_job_templates", {"name": "Somebody's own", "organization": 1})
        step = {"workflow_job_template": own["id"], "identifier": "first", "unified_job_template": capacity["id"]}
        awx.add("workflow_job_template_nodes", step)
        organization = awx.all("organizations")["Default"]
        organization["default_environment"] = awx.all("execution_environments")["vgpu.fleet"]["id"]
        project = awx.all("projects")["vgpu.fleet"]
        awx.add("inventory_sources", {"name": "clusters of somebody", "source_project": project["id"]})
        awx.writes.clear()
        removed = runs.playbook("awx_setup", {**plain, "awx_setup_state": "absent"})
        assert removed.status == "successful", removed.shown
        shown = removed.shown
        assert f"Job template {CAPACITY} stays: a step of the workflow Somebody's own uses it." in shown
        assert "Job template vGPU drift on Harvester stays: the schedule Weekly ?? 1 + 1 ?? uses it." in shown
        for kind in ("execution_environments", "projects", "inventories"):
            assert "vgpu.fleet" in awx.all(kind)
        del awx._objects["workflow_job_templates"][own["id"]], awx._objects["schedules"][weekly["id"]]
        awx._objects["workflow_job_template_nodes"].clear()
        removed = runs.playbook("awx_setup", {**plain, "awx_setup_state": "absent"})
    assert removed.status == "successful", removed.shown
    # The schedule of this playbook is deleted with its template.
    for kind in ("job_templates", "inventories", "schedules"):
        assert awx.everything(kind) == []
    assert "Project vgpu.fleet stays: the inventory source clusters of somebody uses it." in removed.shown
    assert "Execution environment vgpu.fleet stays: the organization Default uses it." in removed.shown


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "awx_setup_image is not set."),
        ({"awx_setup_credentials": {"harvster": ["edge-1"]}}, "awx_setup_credentials has unknown keys: harvster."),
        ({"awx_setup_schedule": []}, "awx_setup_schedule"),
        ({"awx_setup_teams": {"aprove": ["leads"]}}, "aprove"),
        ({"awx_setup_schedules": [{"name": "n", "template": "none", "rrule": "r"}]}, "unknown job templates: none."),
    ],
)
def test_a_mistake_is_named_before_anything_is_created(
    variables: Json, message: str, tmp_path: Path, warm: Warm
) -> None:
    """F11 and F12."""
    awx = filled()
    image = {"awx_setup_image": "registry.example/vgpu-fleet-ee:0.1.0"} if variables else {}
    with served(awx) as address:
        done = runs_on(address, tmp_path, warm).playbook("awx_setup", {**image, **variables})
    assert done.status == "failed"
    assert message in done.shown
    assert awx.writes == []


def test_the_objects_are_exported_for_infra_aap_configuration(tmp_path: Path, warm: Warm) -> None:
    exported = tmp_path / "controller.yml"
    runs = runs_on("http://127.0.0.1:9", tmp_path, warm)
    done = runs.playbook("awx_setup", {**VARIABLES, "awx_setup_export": str(exported)}, options="--tags export")
    assert done.status == "successful", done.shown
    text = exported.read_text()
    assert "K8S_AUTH_KUBECONFIG: !unsafe '{{ tower.filename }}'" in text
    assert PASSWORD_OF_MAIL not in text
    found = load(text)
    assert found["controller_credential_types"] == TYPES
    assert [one["survey_spec"] for one in found["controller_templates"]] == [survey(one) for one in TEMPLATES]
    for workflow, declared in zip(found["controller_workflows"], WORKFLOWS, strict=True):
        nodes = workflow["simplified_workflow_nodes"]
        steps = {step["identifier"]: step for step in declared["steps"]}
        assert [node["identifier"] for node in nodes] == list(steps)
        for node in nodes:
            step = steps[node["identifier"]]
            assert node["success_nodes"] == ([step["next"]] if "next" in step else [])
            assert node.get("unified_job_template") == step.get("template")
            assert node.get("approval_node") == step.get("approval")
            assert [node.get(key) for key in ("job_type", "diff_mode")] == [
                step.get(key) for key in ("job_type", "diff_mode")
            ]
    assert found["controller_schedules"][0]["rrule"] == SCHEDULE


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
        assert one["playbook"] == f"awx/project/{template['playbook']}"
        assert one["survey_enabled"]
        assert one["allow_simultaneous"]
        assert one["job_slice_count"] == 4
        assert one["ask_forks_on_launch"]
        assert [label["name"] for label in awx.related(one, "labels")] == ["vgpu.fleet"]
        assert [group["name"] for group in awx.related(one, "instance_groups")] == ["site-a"]
        assert awx.survey(one) == survey(template)
        names = sorted(credential["name"] for credential in awx.related(one, "credentials"))
        assert names == (["edge-1 read-only"] if template["name"] == CAPACITY else credentials[template["platform"]])
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
