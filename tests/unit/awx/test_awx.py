"""What awx/ holds is what AWX accepts, and fits the playbooks and roles that it is for."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.awx.rules import credential_type_mistakes, survey_mistakes

CHECKOUT = Path(__file__).parents[3]
TYPES = yaml.safe_load((CHECKOUT / "awx/credential_types.yml").read_text())["awx_credential_types"]
TEMPLATES = yaml.safe_load((CHECKOUT / "awx/job_templates.yml").read_text())["awx_job_templates"]
WORKFLOWS = yaml.safe_load((CHECKOUT / "awx/job_templates.yml").read_text())["awx_workflows"]
# What a question of a survey may be for a variable of a role.
ANSWERS = {"str": {"text", "textarea", "multiplechoice", "password"}, "int": {"integer"}, "bool": {"multiplechoice"}}

Json = dict[str, Any]


def survey(template: Json) -> Json:
    return {"name": template["name"], "description": template["description"], "spec": template["survey"]}


def role_variables() -> Json:
    found: Json = {}
    for specs in CHECKOUT.glob("roles/*/meta/argument_specs.yml"):
        found |= yaml.safe_load(specs.read_text())["argument_specs"]["main"]["options"]
    return found


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template["name"]))
def test_awx_accepts_the_survey(template: Json) -> None:
    assert list(survey_mistakes(survey(template))) == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template["name"]))
def test_each_question_is_for_a_variable_that_takes_its_answers(template: Json) -> None:
    variables = role_variables()
    text = (CHECKOUT / template["playbook"]).read_text()
    for question in template["survey"]:
        name = question["variable"]
        if name.startswith("vgpu_survey_"):
            assert f"{{{{ {name} | " in text, f"{template['playbook']} does not read {name}"
            continue
        option = variables[name]
        assert question["type"] in ANSWERS[option["type"]], name
        assert f"vgpu.fleet.{role_of(name)}" in text
        if choices := option.get("choices"):
            assert set(question["choices"].splitlines()) <= set(choices), name
        if option["type"] == "bool":
            assert set(question["choices"].splitlines()) == {"true", "false"}, name


def role_of(variable: str) -> str:
    return max((role.name for role in CHECKOUT.glob("roles/*") if variable.startswith(role.name)), key=len)


def test_every_variable_with_answers_as_text_is_documented_at_the_top() -> None:
    for template in TEMPLATES:
        head = (CHECKOUT / template["playbook"]).read_text().split("- name:")[0]
        for question in template["survey"]:
            name = question["variable"]
            assert name in head or re.sub(r"_[a-z]+$", "", name) in head or f"{role_of(name)}_*" in head, name


@pytest.mark.parametrize("given", TYPES, ids=lambda given: str(given["name"]))
def test_awx_accepts_the_type_of_credentials(given: Json) -> None:
    assert list(credential_type_mistakes(given)) == []


def test_workflows_lead_from_node_to_node_through_templates_that_exist() -> None:
    names = {template["name"] for template in TEMPLATES}
    for workflow in WORKFLOWS:
        identifiers = [node["identifier"] for node in workflow["nodes"]]
        assert len(set(identifiers)) == len(identifiers)
        reached = {identifiers[0]}
        for node in workflow["nodes"]:
            target = node["unified_job_template"]
            assert target["type"] == "workflow_approval" or target["name"] in names
            reached |= {one["identifier"] for one in node.get("related", {}).get("success_nodes", [])}
        assert reached == set(identifiers)


QUESTION = {"type": "text", "question_name": "Q", "variable": "v", "required": True}


@pytest.mark.parametrize(
    "change",
    [
        {"type": "boolean"},
        {"required": "yes"},
        {"variable": "no variable"},
        {"type": "integer", "default": "1"},
        {"type": "integer", "default": 9, "max": 8},
        {"type": "multiplechoice"},
        {"type": "multiplechoice", "choices": "a\nb", "default": "c"},
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
    ("path", "value"),
    [
        (("kind",), "ssh"),
        (("inputs", "required"), ["nothing"]),
        (("inputs", "fields", 0, "type"), "dict"),
        (("inputs", "fields", 0, "id"), "tower"),
        (("injectors", "env", "ANSIBLE_TOKEN"), "x"),
        (("injectors", "env", "K8S_AUTH_KUBECONFIG"), "{{ unknown }}"),
        (("injectors", "file", "template.second"), "x"),
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
