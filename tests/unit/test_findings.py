"""Every finding in tests/findings.yml has tests, which exist and name it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

TESTS = Path(__file__).parents[1]
FINDINGS: list[dict[str, Any]] = yaml.safe_load((TESTS / "findings.yml").read_text())


def named_in(path: Path, finding: str) -> set[str]:
    """The tests of a file that name a finding in their source, or whose file does so in its docstring."""
    text = path.read_text()
    tree = ast.parse(text)
    name = re.compile(rf"\b{finding}\b|_{finding}_", re.IGNORECASE)
    everything = name.search(ast.get_docstring(tree) or "")
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {one.name for one in functions if everything or name.search(ast.get_source_segment(text, one) or "")}


def test_a_finding_is_listed_once_and_described() -> None:
    names = [one["finding"] for one in FINDINGS]
    assert len(set(names)) == len(names)
    assert all(one["behaviour"].endswith(".") for one in FINDINGS)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding["finding"])
def test_a_finding_has_tests_that_name_it(finding: dict[str, Any]) -> None:
    assert finding["tests"]
    for path, names in finding["tests"].items():
        assert set(names) <= named_in(TESTS / path, finding["finding"]), path
