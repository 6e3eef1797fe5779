"""What awx/ holds, as the playbook awx_setup reads it and AWX gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

CHECKOUT = Path(__file__).parents[3]


class _Loader(yaml.SafeLoader):
    """Knows the tag of what Ansible does not fill in."""


_Loader.add_constructor("!unsafe", _Loader.construct_yaml_str)


def load(text: str) -> Json:
    return dict(yaml.load(text, Loader=_Loader))


def _read(name: str) -> Json:
    return load((CHECKOUT / "awx" / name).read_text())


QUESTIONS: Json = _read("questions.yml")["awx_questions"]
TYPES: list[Json] = _read("credential_types.yml")["awx_credential_types"]
TEMPLATES: list[Json] = _read("job_templates.yml")["awx_job_templates"]
WORKFLOWS: list[Json] = _read("job_templates.yml")["awx_workflows"]


def survey(template: Json) -> Json:
    """Of a job template or a workflow."""
    spec = [
        {**QUESTIONS[variable], "variable": variable, "required": variable in template["required"]}
        for variable in template["survey"]
        if variable not in template.get("extra_vars", {})
    ]
    return {"name": template["name"], "description": template["description"], "spec": spec}
