"""The rules by which AWX accepts surveys and types of credentials, as its API applies them, and some of our own."""

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
# What a field of a type of credentials may say, and what it may be.
FIELD_KEYS = {
    "id": str,
    "label": str,
    "type": str,
    "format": str,
    "choices": list,
    "multiline": bool,
    "secret": bool,
    "ask_at_runtime": bool,
    "help_text": str,
    "default": (str, bool),
}
FIELD_TYPES = {"string": str, "boolean": bool}
FORMATS = ("ssh_private_key", "url")
ONLY_OF_STRINGS = {"choices", "secret", "format", "multiline"}
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
FILE = re.compile(r"template(\.[a-zA-Z_][a-zA-Z0-9_]*)?")
# Variables that AWX sets for a job itself, and those that decide how programs are found.
RESERVED_ENVIRONMENT = {
    "VIRTUAL_ENV",
    "PATH",
    "PYTHONPATH",
    "JOB_ID",
    "INVENTORY_ID",
    "INVENTORY_SOURCE_ID",
    "INVENTORY_UPDATE_ID",
    "AD_HOC_COMMAND_ID",
    "REST_API_URL",
    "REST_API_TOKEN",
    "MAX_EVENT_RES",
    "CALLBACK_QUEUE",
    "CALLBACK_CONNECTION",
    "CACHE",
    "JOB_CALLBACK_DEBUG",
    "INVENTORY_HOSTVARS",
    "AWX_HOST",
    "PROJECT_REVISION",
    "SUPERVISOR_CONFIG_PATH",
    "SUPERVISOR_WEB_CONFIG_PATH",
}


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
    if not NAME.fullmatch(question["variable"]):
        yield f"{question['variable']} is no variable"
    kind = QUESTION_TYPES.get(question["type"])
    if kind is None:
        yield f"{question['type']} is no type"
        return
    for limit in ("min", "max"):
        if question.get(limit) is not None and type(question[limit]) is not int:
            yield f"{limit} is not an integer"
            return
    if question["type"] in CHOICES:
        yield from _choice_mistakes(question)
    if question.get("default", "") != "":
        yield from _default_mistakes(question, question["default"], kind)


def _default_mistakes(question: Json, default: Any, kind: type) -> Iterator[str]:
    if not isinstance(default, kind) or isinstance(default, bool):
        yield f"the default is not a {kind.__name__}"
        return
    if isinstance(default, str) and default.startswith("$encrypted$"):
        yield "$encrypted$ stands for a default that AWX has already"
    # AWX takes a default out of its limits and does not use it.
    size = len(default) if isinstance(default, str) else default
    limits = [limit if (limit := question.get(key)) is not None else size for key in ("min", "max")]
    if question["type"] not in CHOICES and not limits[0] <= size <= limits[1]:
        yield "the default is out of its limits"


def _choice_mistakes(question: Json) -> Iterator[str]:
    choices = question.get("choices")
    listed = choices.splitlines() if isinstance(choices, str) else choices
    if not listed or not all(isinstance(choice, str) and choice.strip() for choice in listed):
        yield "choices are missing, or not all of them are text"
        return
    if len(set(listed)) != len(listed):
        yield "a choice is there twice"
    defaults = str(question.get("default", "")).splitlines()
    if question["type"] == "multiplechoice" and len(defaults) > 1:
        yield "there are several defaults"
    if not set(defaults) <= set(listed):
        yield "the default is not a choice"


def credential_type_mistakes(given: Json) -> Iterator[str]:
    """Of a type of one's own, which is of the kind cloud or net."""
    if given.get("kind") not in ("cloud", "net"):
        yield "kind is neither cloud nor net"
    inputs = given["inputs"]
    if unknown := set(inputs) - {"fields", "required"}:
        yield f"inputs have unknown keys {sorted(unknown)}"
    fields = inputs.get("fields", [])
    for field in fields:
        yield from _field_mistakes(field)
    ids = [field.get("id") for field in fields]
    if len(set(ids)) != len(ids):
        yield "a field is there twice"
    if "tower" in ids:
        yield "tower is a reserved name"
    if missing := set(inputs.get("required", [])) - set(ids):
        yield f"required fields {sorted(missing)} do not exist"
    yield from _injector_mistakes(given["injectors"], ids)


def _field_mistakes(field: Json) -> Iterator[str]:
    name = field.get("id")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield f"{name} is no name of a field"
    for key, value in field.items():
        if not isinstance(value, FIELD_KEYS.get(key, ())):
            yield f"field {name}: {key} is unknown or of the wrong type"
            return
    if not field.get("label"):
        yield f"field {name} has no label"
    kind = field.get("type", "string")
    if kind not in FIELD_TYPES:
        yield f"field {name} is neither string nor boolean"
        return
    if kind == "boolean" and ONLY_OF_STRINGS & set(field):
        yield f"field {name} is boolean and has what only strings have"
    if field.get("format", FORMATS[0]) not in FORMATS:
        yield f"field {name} has an unknown format"
    choices = field.get("choices", ["any"])
    if not choices or not all(isinstance(one, str) for one in choices) or len(set(choices)) != len(choices):
        yield f"field {name}: choices are texts, each once"
    if "default" in field and type(field["default"]) is not FIELD_TYPES[kind]:
        yield f"field {name}: its default is not a {kind}"


def _injector_mistakes(injectors: Json, ids: list[Any]) -> Iterator[str]:
    if unknown := set(injectors) - {"file", "env", "extra_vars"}:
        yield f"unknown injectors {sorted(unknown)}"
        return
    files = injectors.get("file", {})
    if wrong := [name for name in files if not FILE.fullmatch(name)]:
        yield f"files have to be called template or template.NAME, not {wrong}"
    if "template" in files and len(files) > 1:
        yield "one file and several files are mixed"
    for name, value in injectors.get("env", {}).items():
        if not NAME.fullmatch(name) or name.startswith("ANSIBLE_") or name in RESERVED_ENVIRONMENT:
            yield f"the environment variable {name} may not be set"
        if not str(value).isascii():
            yield f"the value of {name} is not ASCII"
    for name in injectors.get("extra_vars", {}):
        if not NAME.fullmatch(name):
            yield f"{name} is no variable"
    for kind, templates in injectors.items():
        # A file does not know its own name: AWX would accept it and leave it empty.
        known = _known(ids, {} if kind == "file" else files)
        for name, template in templates.items():
            yield from (f"{kind} {name}: {mistake}" for mistake in _template_mistakes(template, known))


def _known(ids: list[Any], files: Json) -> Json:
    """What templates may use: every field, and the names of files."""
    known: Json = dict.fromkeys(ids, "value")
    if files:
        several = {name.partition(".")[2]: "/tmp/file" for name in files}
        known["tower"] = {"filename": "/tmp/file" if "template" in files else several}
    return known


def _template_mistakes(template: Any, known: Json) -> Iterator[str]:
    if not isinstance(template, str):
        yield "is not a text"
        return
    try:
        ImmutableSandboxedEnvironment(undefined=StrictUndefined).from_string(template).render(known)
    except TemplateError as error:
        yield str(error)
