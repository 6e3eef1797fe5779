"""Each wait of a module says what it waits for, so that no task is silent for longer than the progress interval."""

from __future__ import annotations

import ast
from pathlib import Path

MODULE_UTILS = Path(__file__).parents[5] / "plugins/module_utils"


def watchers(tree: ast.AST) -> list[ast.With]:
    """Return the blocks in which a Watcher is open."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.context_expr, ast.Call) and getattr(item.context_expr.func, "id", "") == "Watcher"
    ]


def describes(block: ast.With) -> bool:
    return any(
        isinstance(node, ast.Assign) and any(getattr(target, "attr", "") == "describe" for target in node.targets)
        for node in ast.walk(block)
    )


def test_each_watcher_describes_its_wait() -> None:
    found = {
        f"{path.relative_to(MODULE_UTILS)}:{block.lineno}": describes(block)
        for path in sorted(MODULE_UTILS.rglob("*.py"))
        for block in watchers(ast.parse(path.read_text()))
    }
    assert len(found) >= 7, found
    assert [place for place, described in found.items() if not described] == []
