"""The examples in a module's documentation, as tasks to run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

MODULES = Path(__file__).parents[3] / "plugins/modules"


def examples(module: str) -> list[dict[str, Any]]:
    tree = ast.parse((MODULES / f"{module}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == "EXAMPLES" for one in node.targets):
            tasks: list[dict[str, Any]] = yaml.safe_load(ast.literal_eval(node.value))
            return tasks
    raise AssertionError(f"{module} has no examples")
