"""A plugin's documentation: its examples, as tasks to run, and what it says that it returns."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

PLUGINS = Path(__file__).parents[3] / "plugins"


def examples(plugin: str, kind: str = "modules") -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = _documented(plugin, kind, "EXAMPLES")
    return tasks


def returned(module: str) -> dict[str, Any]:
    values: dict[str, Any] = _documented(module, "modules", "RETURN")
    return values


def _documented(plugin: str, kind: str, variable: str) -> Any:
    tree = ast.parse((PLUGINS / kind / f"{plugin}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == variable for one in node.targets):
            return yaml.safe_load(ast.literal_eval(node.value))
    raise AssertionError(f"{plugin} has no {variable}")
