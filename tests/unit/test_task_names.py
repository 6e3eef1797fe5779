"""Task and play names are imperatives, as an operator reads them in a job log, and tasks include files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).parents[2]
FOLDERS = ("roles/*/tasks", "roles/*/handlers", "playbooks", "playbooks/tasks", "extensions/molecule/*")

# A new verb belongs here if it says what a task does, not what is true afterwards.
# fmt: off
VERBS = {
    "Add", "Apply", "Approve", "Ask", "Attach", "Bootstrap", "Bring", "Build", "Change", "Check", "Choose", "Clean",
    "Compare", "Configure", "Connect", "Convert", "Create", "Delete", "Describe", "Detach", "Detect", "Determine",
    "Disable", "Download", "Drain", "Draw", "Enable", "Ensure", "Evaluate", "Fail", "Fetch", "Find", "Gather",
    "Generate", "Give", "Halt", "Include", "Initialize", "Install", "Keep", "List", "Load", "Look", "Manage", "Mark",
    "Migrate", "Plan", "Prepare", "Print", "Provision", "Read", "Reattach", "Reboot", "Recheck", "Reconcile", "Record",
    "Refuse", "Register", "Release", "Remove", "Render", "Renew", "Repair", "Report", "Request", "Require", "Reset",
    "Resolve", "Restart", "Restore", "Resume", "Revert", "Roll", "Run", "Save", "Scale", "Select", "Set", "Show",
    "Start", "Stop", "Store", "Test", "Uninstall", "Update", "Upgrade", "Upload", "Use", "Validate", "Verify", "Wait",
    "Write",
}
# fmt: on
BLOCKS = ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers")


def files() -> list[Path]:
    return sorted(file for folder in FOLDERS for file in CHECKOUT.glob(f"{folder}/*.yml"))


def named(items: Any) -> Iterator[dict[str, Any]]:
    """Yield the plays, tasks and blocks of a file, with those inside of them."""
    for item in items if isinstance(items, list) else []:
        yield item
        for key in BLOCKS:
            yield from named(item.get(key))


def names_in(file: Path) -> list[str]:
    return [item.get("name", "") for item in named(yaml.safe_load(file.read_text()))]


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(CHECKOUT)))
def test_every_name_starts_with_an_imperative_verb(file: Path) -> None:
    wrong = [name for name in names_in(file) if name.partition(" ")[0] not in VERBS]
    assert not wrong, f"Start these names with a verb that says what the task does (known verbs: VERBS): {wrong}"


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(CHECKOUT)))
def test_every_included_file_exists(file: Path) -> None:
    for item in named(yaml.safe_load(file.read_text())):
        included = item.get("ansible.builtin.include_tasks") or item.get("ansible.builtin.import_tasks")
        name = included.get("file") if isinstance(included, dict) else included
        assert not name or "{{" in name or (file.parent / name).is_file(), f"{item['name']}: {name}"


def test_the_files_of_all_roles_and_playbooks_are_checked() -> None:
    checked = {file.relative_to(CHECKOUT).parts[0] for file in files() if names_in(file)}
    assert checked == {"roles", "playbooks", "extensions"}
    assert sum(len(names_in(file)) for file in files()) > 300


@pytest.mark.parametrize("role", sorted((CHECKOUT / "roles").iterdir()), ids=lambda role: role.name)
def test_every_private_variable_of_a_role_is_defined(role: Path) -> None:
    text = "\n".join(file.read_text() for file in role.rglob("*.yml"))
    defined = re.findall(r"(?m)^\s*(__[a-z_]+):", text) + re.findall(r"(?:register|loop_var): (__[a-z_]+)", text)
    assert set(re.findall(r"\b__[a-z_]+", text)) == set(defined)
