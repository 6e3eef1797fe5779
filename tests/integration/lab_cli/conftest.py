"""The lab's command as a user runs it, and one lab that was started by it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import hints
from lab.command import cli
from lab.rundir import RunDir

ROOT = Path(__file__).resolve().parents[3]
Answer = subprocess.CompletedProcess[str]
Command = Callable[..., Answer]


def run_lab(*words: str | Path, run_dir: Path | None = None, **environment: str) -> Answer:
    """In a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "lab", *_words(words, run_dir)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _words(words: tuple[str | Path, ...], run_dir: Path | None) -> list[str]:
    first, *others = map(str, words) if words else ("",)
    place = ["--run-dir", str(run_dir)] if run_dir else []
    return [word for word in (first, *place, *others) if word]


@pytest.fixture
def command() -> Command:
    return run_lab


@pytest.fixture
def quick_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same without a new process, for the many ways to be wrong."""
    monkeypatch.chdir(ROOT)

    def call(*words: str | Path, run_dir: Path | None = None) -> Answer:
        arguments = _words(words, run_dir)
        try:
            code = cli.main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a lab without KubeVirt whose clock is stopped; started and stopped by the command."""
    place = tmp_path_factory.mktemp("lab-cli") / "run"
    try:
        answer = run_lab("up", "--without", "kubevirt", "--without", "vsphere", "--speed", "0", run_dir=place)
        assert answer.returncode == 0, answer
        assert answer.stdout.startswith("The lab is up")
        assert answer.stdout.endswith(f'\nTo use it: eval "$({hints.call("env", RunDir(place))})"\n')
        yield place
    finally:
        run_lab("down", run_dir=place)
