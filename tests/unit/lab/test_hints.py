"""What the lab tells people to type can be typed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from lab import hints
from lab.rundir import RunDir

CHECKOUT = Path(__file__).resolve().parents[3]


def words_that_reach_the_lab(told: str) -> list[str]:
    """By the way of a shell and make, which is to show what it would run."""
    command = told.replace("make -s", "make -s --dry-run --old-file=build/venv/.packages", 1)
    answer = subprocess.run(
        ["sh", "-c", command],
        cwd=CHECKOUT,
        env={**os.environ, "MAKEFLAGS": ""},
        check=True,
        capture_output=True,
        text=True,
    )
    return shlex.split(answer.stdout)


@pytest.mark.parametrize("place", ["/srv/second", "/srv/with a space", "/srv/it's"])
def test_a_command_names_its_run_directory(place: str) -> None:
    told = hints.call("advance 5", RunDir(place))
    assert words_that_reach_the_lab(told) == ["python", "-m", "lab", "advance", "5", "--run-dir", place]


@pytest.mark.parametrize(("variable", "place"), [("", "build/lab"), ("/srv/mine", "/srv/mine")])
def test_a_command_is_short_where_it_can_be(monkeypatch: pytest.MonkeyPatch, variable: str, place: str) -> None:
    monkeypatch.setenv("LAB_RUN_DIR", variable)
    assert hints.call("up", RunDir(place)) == "make -s lab ARGS=up"
    assert hints.start(RunDir("/srv/other")) == "Start a lab: make -s lab ARGS='up --run-dir /srv/other'"


def test_no_message_speaks_of_a_command_that_is_not_there() -> None:
    old = re.compile(r"hint=.*\blab (up|down|env|logs|fault)\b|\$\(lab ")
    assert [path for path in (CHECKOUT / "lab").rglob("*.py") if old.search(path.read_text())] == []
