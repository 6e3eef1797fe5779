"""The examples in a plugin's documentation, as tasks to run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

PLUGINS = Path(__file__).parents[3] / "plugins"


def examples(plugin: str, kind: str = "modules") -> list[dict[str, Any]]:
    tree = ast.parse((PLUGINS / kind / f"{plugin}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(one, "id", "") == "EXAMPLES" for one in node.targets):
            tasks: list[dict[str, Any]] = yaml.safe_load(ast.literal_eval(node.value))
            return tasks
    raise AssertionError(f"{plugin} has no examples")
