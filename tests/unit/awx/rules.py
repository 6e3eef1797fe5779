"""The rules by which AWX accepts surveys and types of credentials, as its API applies them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

Json = dict[str, Any]

QUESTION_TYPES = {
    "text": str,
    "textarea": str,
    "password": str,
    "multiplechoice": str,
    "multiselect": str,
    "integer": int,
    "float": float,
}
CHOICES = ("multiplechoice", "multiselect")
QUESTION_KEYS = {
    "type",
    "question_name",
    "question_description",
    "variable",
    "required",
    "default",
    "min",
    "max",
    "choices",
    "new_question",
}
INPUT_KEYS = {
    "id",
    "label",
    "type",
    "format",
    "choices",
    "multiline",
    "secret",
    "ask_at_runtime",
    "help_text",
    "default",
}
# Variables that AWX sets for a job itself, and those that decide how programs are found.
FORBIDDEN_ENVIRONMENT = re.compile(
    r"ANSIBLE_.*|VIRTUAL_ENV|PATH|PYTHONPATH|JOB_ID|INVENTORY_ID|.*[^\w].*|\d.*", re.ASCII
)


def survey_mistakes(survey: Any) -> Iterator[str]:
    for key, kind in (("name", str), ("description", str), ("spec", list)):
        if not isinstance(survey.get(key), kind):
            yield f"{key} is missing or not a {kind.__name__}"
            return
    if not survey["spec"]:
        yield "there are no questions"
    variables: set[str] = set()
    for number, question in enumerate(survey["spec"]):
        for mistake in _question_mistakes(question, variables):
            yield f"question {number}: {mistake}"


def _question_mistakes(question: Json, variables: set[str]) -> Iterator[str]:
    for key in ("type", "question_name", "variable", "required"):
        if not isinstance(question.get(key), bool if key == "required" else str):
            yield f"{key} is missing or of the wrong type"
            return
    if unknown := set(question) - QUESTION_KEYS:
        yield f"unknown keys {sorted(unknown)}"
    if question["variable"] in variables:
        yield f"variable {question['variable']} is there twice"
    variables.add(question["variable"])
    if not re.fullmatch(r"[A-Za-z_]\w*", question["variable"], re.ASCII):
        yield f"{question['variable']} is no variable"
    kind = QUESTION_TYPES.get(question["type"])
    if kind is None:
        yield f"{question['type']} is no type"
        return
    default = question.get("default", "")
    if default != "" and (not isinstance(default, kind) or isinstance(default, bool)):
        yield f"the default is not a {kind.__name__}"
    for limit in ("min", "max"):
        if question.get(limit) is not None and type(question[limit]) is not int:
            yield f"{limit} is not an integer"
    if kind is int and default != "" and not question.get("min", default) <= default <= question.get("max", default):
        yield "the default is out of its limits"
    if question["type"] in CHOICES:
        yield from _choice_mistakes(question, str(default))


def _choice_mistakes(question: Json, default: str) -> Iterator[str]:
    choices = question.get("choices")
    if not choices:
        yield "there are no choices"
        return
    listed = choices.splitlines() if isinstance(choices, str) else choices
    defaults = default.splitlines()
    if question["type"] == "multiplechoice" and len(defaults) > 1:
        yield "there are several defaults"
    if not set(defaults) <= set(listed):
        yield "the default is not a choice"


def credential_type_mistakes(given: Json) -> Iterator[str]:
    """Of a type of one's own, which is of the kind cloud or net."""
    if given.get("kind") not in ("cloud", "net"):
        yield "kind is neither cloud nor net"
    fields = given["inputs"].get("fields", [])
    ids = [field["id"] for field in fields]
    if len(set(ids)) != len(ids):
        yield "a field is there twice"
    if "tower" in ids:
        yield "tower is a reserved name"
    if missing := set(given["inputs"].get("required", [])) - set(ids):
        yield f"required fields {sorted(missing)} do not exist"
    for field in fields:
        yield from _field_mistakes(field)
    yield from _injector_mistakes(given["injectors"], ids)


def _field_mistakes(field: Json) -> Iterator[str]:
    if unknown := set(field) - INPUT_KEYS:
        yield f"field {field['id']} has unknown keys {sorted(unknown)}"
    if not field.get("label"):
        yield f"field {field['id']} has no label"
    kind = field.get("type", "string")
    if kind not in ("string", "boolean"):
        yield f"field {field['id']} is neither string nor boolean"
    if kind == "boolean" and {"choices", "secret", "format", "multiline"} & set(field):
        yield f"field {field['id']} is boolean and has what only strings have"


def _injector_mistakes(injectors: Json, ids: list[str]) -> Iterator[str]:
    if unknown := set(injectors) - {"file", "env", "extra_vars"}:
        yield f"unknown injectors {sorted(unknown)}"
    files = injectors.get("file", {})
    single, several = "template" in files, [key for key in files if key.startswith("template.")]
    if single and several:
        yield "one file and several files are mixed"
    if set(files) - {"template", *several}:
        yield "files have to be called template or template.NAME"
    known: Json = dict.fromkeys(ids, "value")
    if files:
        named = {key.split(".")[1]: "/tmp/file" for key in several}
        known["tower"] = {"filename": "/tmp/file" if single else named}
    for name in injectors.get("env", {}):
        if FORBIDDEN_ENVIRONMENT.fullmatch(name):
            yield f"the environment variable {name} may not be set"
    # A file does not know its own name.
    without_name = {key: value for key, value in known.items() if key != "tower"}
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    for kind, templates in injectors.items():
        for name, template in templates.items():
            try:
                environment.from_string(template).render(without_name if kind == "file" else known)
            except TemplateError as error:
                yield f"{kind} {name}: {error}"
