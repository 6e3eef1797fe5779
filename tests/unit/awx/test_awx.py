"""What awx/ holds is what AWX accepts, and fits the playbooks and roles that it is for."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

from tests.unit.awx.data import CHECKOUT, QUESTIONS, TEMPLATES, TYPES, WORKFLOWS, Json, survey
from tests.unit.awx.rules import credential_type_mistakes, survey_mistakes
from tools import playbook_pages as pages

# What a question of a survey may be for a variable of a role.
ANSWERS = {"str": {"text", "textarea", "multiplechoice", "password"}, "int": {"integer"}, "bool": {"multiplechoice"}}
BY_NAME: dict[str, Json] = {template["name"]: template for template in TEMPLATES}


def named(thing: Json) -> str:
    return str(thing["name"])


def role_variables() -> Json:
    found: Json = {}
    for specs in CHECKOUT.glob("roles/*/meta/argument_specs.yml"):
        found |= yaml.safe_load(specs.read_text())["argument_specs"]["main"]["options"]
    return found


def role_of(variable: str) -> str:
    return max((role.name for role in CHECKOUT.glob("roles/*") if variable.startswith(role.name)), key=len)


@pytest.mark.parametrize("template", [*TEMPLATES, *WORKFLOWS], ids=named)
def test_awx_accepts_the_survey(template: Json) -> None:
    assert list(survey_mistakes(survey(template))) == []
    assert set(template["required"]) <= set(template["survey"])


@pytest.mark.parametrize("template", TEMPLATES, ids=named)
def test_each_question_is_for_a_variable_that_takes_its_answers(template: Json) -> None:
    variables = role_variables()
    playbook = CHECKOUT / "playbooks" / template["playbook"]
    text = playbook.read_text()
    documented = {name for entry in pages.entries(playbook) for name in entry.names}
    for name in template["survey"]:
        question = QUESTIONS[name]
        if name not in variables:
            assert name in documented, f"{template['playbook']} does not know {name}"
            assert re.search(rf"\b{name}\b", text.partition("- name:")[2]), (
                f"{template['playbook']} does not read {name}"
            )
            continue
        option = variables[name]
        assert f"{role_of(name)}_*" in documented
        assert f"vgpu.fleet.{role_of(name)}" in text or "tasks/guest.yml" in text
        assert question["type"] in ANSWERS[option["type"]], name
        if choices := option.get("choices"):
            assert set(question["choices"]) <= set(choices), name
        if option["type"] == "bool":
            assert set(question["choices"]) == {"true", "false"}, name


def test_every_question_is_asked() -> None:
    assert {name for template in TEMPLATES for name in template["survey"]} == set(QUESTIONS)


@pytest.mark.parametrize("template", [*TEMPLATES, *WORKFLOWS], ids=named)
def test_what_is_not_answered_is_left_to_the_inventory(template: Json) -> None:
    """AWX hands a default on as an answer, also an empty one, and answers win over the inventory.

    F12: AWX does not fill in the default of a required question for API calls and schedules.
    """
    of_a_launch = {"vgpu_fleet_hosts", "vgpu_drift_fail", "vgpu_teardown_confirm"}
    for question in survey(template)["spec"]:
        assert "default" not in question or question["variable"] in of_a_launch, question["variable"]
        assert not (question["required"] and "default" in question), question["variable"]
        assert question.get("default") != "", question["variable"]


@pytest.mark.parametrize("name", [name for name, question in QUESTIONS.items() if question["type"] == "textarea"])
def test_the_example_of_what_is_asked_for_as_yaml_is_yaml(name: str) -> None:
    text = QUESTIONS[name]["question_description"].partition("such as ")[2].partition(", with ")[0]
    example = yaml.safe_load(text)
    things = example if isinstance(example, list) else [example]
    assert things
    assert all(isinstance(one, dict) and all(value is not None for value in one.values()) for one in things), text


def test_every_playbook_has_a_job_template_on_each_of_its_platforms() -> None:
    found = {(template["playbook"], template["platform"]) for template in TEMPLATES}
    both = {
        (f"{name}.yml", platform) for name in ("capacity", "drift", "teardown") for platform in ("harvester", "vsphere")
    }
    assert found == both | {
        ("harvester_gpu_cluster.yml", "harvester"),
        ("vsphere_gpu_cluster.yml", "vsphere"),
        ("reprofile.yml", "harvester"),
        ("smoke_test.yml", "kubernetes"),
    }
    for template in TEMPLATES:
        assert "vgpu_fleet_hosts" in template["survey"]
        for variable, value in template.get("extra_vars", {}).items():
            assert (variable.endswith("_platform"), value) == (True, template["platform"])


@pytest.mark.parametrize("given", TYPES, ids=named)
def test_awx_accepts_the_type_of_credentials(given: Json) -> None:
    assert list(credential_type_mistakes(given)) == []


def test_the_project_of_awx_imports_the_playbooks_of_the_image() -> None:
    """F3: so that playbooks and roles have the same version, whatever revision of the project AWX has."""
    files = {path.name: yaml.safe_load(path.read_text()) for path in (CHECKOUT / "awx/project").iterdir()}
    assert set(files) == {template["playbook"] for template in TEMPLATES}
    for name, plays in files.items():
        (play,) = plays
        assert play["ansible.builtin.import_playbook"] == f"vgpu.fleet.{name.removesuffix('.yml')}"
        assert (CHECKOUT / "playbooks" / name).is_file()


@pytest.mark.parametrize("workflow", [one for one in WORKFLOWS if "teardown" in one["name"]], ids=named)
def test_a_teardown_waits_for_an_approval_after_its_dry_run(workflow: Json) -> None:
    dry_run, approve, remove = workflow["steps"]
    assert (dry_run["template"], dry_run["job_type"], dry_run["diff_mode"]) == (remove["template"], "check", True)
    assert [dry_run["next"], approve["next"], remove.get("next")] == ["approve", "remove", None]
    assert approve["approval"]["timeout"] > 0
    assert "job_type" not in remove
    assert workflow["extra_vars"] == {"vgpu_teardown_confirm": "true"}
    assert "vgpu_teardown_confirm" not in {question["variable"] for question in survey(workflow)["spec"]}


@pytest.mark.parametrize("workflow", [one for one in WORKFLOWS if "cluster" in one["name"]], ids=named)
def test_a_workflow_leads_from_the_capacity_over_an_approval_to_the_smoke_test(workflow: Json) -> None:
    steps = {step["identifier"]: step for step in workflow["steps"]}
    assert len(steps) == len(workflow["steps"])
    # AWX ends a workflow at what fails, is denied or times out, since nothing is said to follow that.
    order = ["capacity"]
    while following := steps[order[-1]].get("next"):
        assert following not in order
        order.append(following)
    assert order == ["capacity", "dry_run", "approve", "provision", "smoke"]
    assert set(order) == set(steps)
    assert all(("approval" in step) != ("template" in step) for step in steps.values())

    assert 0 < steps["approve"]["approval"]["timeout"] <= 7 * 86400
    dry_run, provision = steps["dry_run"], steps["provision"]
    assert dry_run["template"] == provision["template"]
    assert (dry_run.get("job_type"), provision.get("job_type")) == ("check", None)
    assert dry_run["diff_mode"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=named)
def test_the_survey_of_a_workflow_answers_what_its_jobs_need(workflow: Json) -> None:
    """AWX hands the answers to all jobs, and shows no survey of theirs."""
    jobs = [BY_NAME[step["template"]] for step in workflow["steps"] if "template" in step]
    for job in jobs:
        assert set(job["required"]) <= set(workflow["required"]), job["name"]
    assert set(workflow["survey"]) <= {variable for job in jobs for variable in job["survey"]}


def test_the_workflow_on_harvester_tests_the_cluster_that_it_made() -> None:
    (workflow,) = (one for one in WORKFLOWS if one["name"].startswith("GPU cluster on Harvester"))
    steps = {step["identifier"]: step for step in workflow["steps"]}
    assert steps["smoke"]["template"] == steps["provision"]["template"]
    assert steps["smoke"]["job_tags"] == "cluster,smoke"
    tags = (CHECKOUT / "playbooks/harvester_gpu_cluster.yml").read_text().partition("# Tags:")[2].partition("\n")[0]
    used = {tag for step in steps.values() for key in ("job_tags", "skip_tags") for tag in step.get(key, "").split(",")}
    assert all(tag in tags for tag in used)
    assert {"rancher_gpu_cluster_name", "vgpu_survey_pools"} <= set(workflow["required"])


QUESTION = {"type": "text", "question_name": "Q", "variable": "v", "required": True}
CHOICE = {"type": "multiplechoice", "choices": ["a", "b"]}


@pytest.mark.parametrize(
    "change",
    [
        {"type": "boolean"},
        {"required": "yes"},
        {"variable": "no variable"},
        {"type": "integer", "default": "1"},
        {"type": "integer", "default": 9, "max": 8},
        {"type": "float", "default": 1},
        {"default": "$encrypted$"},
        {"type": "password", "default": "$encrypted$"},
        {"default": "short", "min": 6},
        {"type": "multiplechoice"},
        {**CHOICE, "choices": ""},
        {**CHOICE, "choices": ["a", "a"]},
        {**CHOICE, "choices": [True, False]},
        {**CHOICE, "default": "c"},
        {**CHOICE, "default": "a\nb"},
        {"min": "1"},
        {"question": "Q"},
    ],
)
def test_the_rules_find_a_mistake_in_a_survey(change: Json) -> None:
    good = {"name": "s", "description": "", "spec": [QUESTION]}
    assert list(survey_mistakes(good)) == []
    assert list(survey_mistakes({**good, "spec": [{**QUESTION, **change}]}))
    assert list(survey_mistakes({**good, "spec": [QUESTION, QUESTION]}))


@pytest.mark.parametrize(
    "change",
    [
        {"type": "integer", "default": 8, "min": 0, "max": 8},
        {"type": "float", "default": 1.5, "min": 1},
        {**CHOICE, "default": "b"},
        {**CHOICE, "choices": "a\nb", "default": "a"},
        {"type": "multiselect", "choices": ["a", "b"], "default": "a\nb"},
        {"default": ""},
        {"min": None},
    ],
)
def test_the_rules_accept_a_good_survey(change: Json) -> None:
    assert list(survey_mistakes({"name": "s", "description": "", "spec": [{**QUESTION, **change}]})) == []


FIELD = ("inputs", "fields", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kind",), "ssh"),
        (("inputs", "required"), ["nothing"]),
        (("inputs", "dependencies"), {}),
        ((*FIELD, "type"), "dict"),
        ((*FIELD, "id"), "tower"),
        ((*FIELD, "id"), "kube-config"),
        ((*FIELD, "label"), 1),
        ((*FIELD, "secret"), "yes"),
        ((*FIELD, "format"), "email"),
        ((*FIELD, "choices"), []),
        ((*FIELD, "choices"), ["a", "a"]),
        ((*FIELD, "default"), True),
        ((*FIELD, "hint"), "x"),
        (("injectors", "env", "ANSIBLE_TOKEN"), "x"),
        (("injectors", "env", "REST_API_TOKEN"), "x"),
        (("injectors", "env", "INVENTORY_SOURCE_ID"), "x"),
        (("injectors", "env", "AWX_HOST"), "x"),
        (("injectors", "env", "2ND"), "x"),
        (("injectors", "env", "K8S_AUTH_HOST"), "é"),
        (("injectors", "env", "K8S_AUTH_HOST"), 1),
        (("injectors", "env", "K8S_AUTH_KUBECONFIG"), "{{ unknown }}"),
        (("injectors", "env", "K8S_AUTH_KUBECONFIG"), "{{ tower.filename"),
        (("injectors", "extra_vars"), {"not-a-name": "x"}),
        (("injectors", "file", "template.second"), "x"),
        (("injectors", "file"), {"template.2nd": "x"}),
        (("injectors", "file"), {"kubeconfig": "x"}),
        (("injectors", "file", "template"), "{{ tower.filename }}"),
        (("injectors", "variables"), {"a": "b"}),
    ],
)
def test_the_rules_find_a_mistake_in_a_type_of_credentials(path: tuple[Any, ...], value: Any) -> None:
    given = copy.deepcopy(TYPES[0])
    place: Any = given
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert list(credential_type_mistakes(given))
