"""The help is enough to work without the documentation."""

from __future__ import annotations

import pytest

from lab.faults import FAULTS
from lab.harvester import versions
from lab.scenarios import scenario

COMMANDS = ("up", "down", "status", "env", "reset", "fault", "reboot", "advance", "logs", "replay", "record")


def test_the_help_lists_every_command(quick_command):
    answer = quick_command("--help")
    assert answer.returncode == 0
    listed = {line.split()[0] for line in answer.stdout.splitlines() if line.startswith("    ") and line.strip()}
    assert set(COMMANDS) <= listed


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_takes_a_run_directory(quick_command, name):
    answer = quick_command(name, "--help")
    assert answer.returncode == 0
    assert "--run-dir" in answer.stdout
    assert len(answer.stdout.splitlines()) > 5


def test_the_help_of_up_names_scenarios_and_versions(quick_command):
    text = " ".join(quick_command("up", "--help").stdout.split())
    for name in (*scenario.names(), *versions.VERSIONS, "--speed", "--without", "--nodes"):
        assert name in text


def test_the_help_of_record_shows_a_file_of_steps(quick_command):
    text = quick_command("record", "--help").stdout
    for word in ("--steps", "--lab", "--kubeconfig", "contentType: application/merge-patch+json", "observe:", "wait:"):
        assert word in text


def test_the_help_of_fault_names_every_fault(quick_command):
    text = quick_command("fault", "--help").stdout
    for name in FAULTS:
        assert name in text


def test_no_command_is_an_error_that_shows_the_usage(quick_command):
    answer = quick_command()
    assert answer.returncode == 2
    assert answer.stderr.startswith("usage: lab")
