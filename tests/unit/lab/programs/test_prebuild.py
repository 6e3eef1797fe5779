"""Compiling in the background for another process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.programs import binaries, prebuild

LAB = Path(prebuild.__file__).parents[1]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def test_it_goes_on_while_the_process_runs_and_ends_with_it():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        tick = prebuild.ends_with(process.pid)
        tick()
    with pytest.raises(prebuild.NobodyWaits):
        tick()


def test_a_process_that_is_gone_already_is_worked_for_by_nobody():
    with subprocess.Popen(["true"]) as process:
        pass
    with pytest.raises(prebuild.NobodyWaits):
        prebuild.ends_with(process.pid)()


def test_nothing_begins_where_every_program_exists(monkeypatch, capsys):
    monkeypatch.setattr(binaries, "missing", list)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("began"))
    assert prebuild.main(["--begin-for", str(os.getpid())]) == 0
    assert capsys.readouterr().err == ""


def test_it_begins_in_the_background_and_says_so(monkeypatch, capsys):
    begun: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: begun.append(command))
    assert prebuild.main(["--begin-for", "4711"]) == 0
    assert begun[0][1:] == ["-m", "lab.programs.prebuild", "--build-for", "4711"]
    assert "in the background" in capsys.readouterr().err


def test_a_failure_is_left_to_whoever_needs_the_programs(monkeypatch, capsys):
    monkeypatch.setattr(os, "nice", lambda _: None)
    monkeypatch.setattr(binaries, "ensure", lambda *_, while_building: while_building())
    with subprocess.Popen(["true"]) as gone:
        pass
    assert prebuild.main(["--build-for", str(gone.pid)]) == 1
    assert "has ended" in capsys.readouterr().err


def test_status_says_nothing_while_nothing_is_compiled(monkeypatch, capsys):
    assert prebuild.main(["--status"]) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(binaries, "status", lambda: "Compiling Kubernetes: 3%")
    prebuild.main(["--status"])
    assert capsys.readouterr().out == "(Compiling Kubernetes: 3%)\n"


def test_it_needs_no_package_besides_python():
    """It runs before any is installed."""
    seen, waiting = set(), ["lab.programs.prebuild"]
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for node in ast.walk(ast.parse(source_of(name).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "lab":
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
                inner = [module if source_of(module).is_file() else str(node.module) for module in modules]
                waiting += [module for module in inner if module not in seen]
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert {str(imported).partition(".")[0] for imported in names} <= sys.stdlib_module_names
    assert "lab.programs.binaries" in seen


def source_of(module: str) -> Path:
    return LAB.parent / f"{module.replace('.', '/')}.py"
