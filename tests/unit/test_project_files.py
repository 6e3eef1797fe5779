"""Files that contributors and CI rely on agree with the rest of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())
WORKFLOWS = sorted((CHECKOUT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), flags=re.MULTILINE))
# Files that name the version of the collection, which a release changes.
VERSIONED = ("awx/execution-environment.yml", "docs/awx.md", "docs/playbook-awx-setup.md", "playbooks/awx_setup.yml")


def steps(workflow: Path) -> list[dict[str, str]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def make_targets(workflow: Path) -> set[str]:
    """Return the make targets that a workflow calls, with its matrix resolved."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    found = set()
    for job in jobs.values():
        matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
        for step in job["steps"]:
            for called in re.findall(r"^make (\S+|\$\{\{.*?\}\})", step.get("run", ""), flags=re.MULTILINE):
                found |= set(matrix) if called.startswith("${{") else {called}
    return found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(workflow: Path) -> None:
    called = make_targets(workflow)
    assert called
    assert called <= TARGETS


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_pin_the_actions_that_they_use(workflow: Path) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in used)


def test_pre_commit_runs_programs_of_the_lock_file() -> None:
    (repository,) = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text())["repos"]
    locked = (CHECKOUT / "requirements/dev.txt").read_text()
    for hook in repository["hooks"]:
        program, *arguments = hook["entry"].split()
        if program == "make":
            assert set(arguments) <= TARGETS
        else:
            assert re.search(rf"^{Path(program).name}==", locked, flags=re.MULTILINE), program


def test_contributing_names_targets_and_files_that_exist() -> None:
    for page in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "docs/releasing.md"):
        text = (CHECKOUT / page).read_text()
        assert set(re.findall(r"^ *make ([a-z-]+)", text, flags=re.MULTILINE)) <= TARGETS
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert "://" in link or (CHECKOUT / page).parent.joinpath(link).exists(), f"{page}: {link}"
        for path in re.findall(r"`((?:docs|tests|plugins|meta|changelogs|requirements)/[^`*]*)`", text):
            assert (CHECKOUT / path).exists(), f"{page}: {path}"


def test_every_page_is_in_the_table_of_contents_once() -> None:
    listed = re.findall(r"^(?:.*<)?([a-z][a-z/-]*)>?$", (CHECKOUT / "docs/index.md").read_text(), flags=re.MULTILINE)
    pages = {page.stem for page in (CHECKOUT / "docs").glob("*.md")} - {"index"}
    assert sorted(name for name in listed if "/" not in name) == sorted(pages)


@pytest.mark.parametrize("name", VERSIONED)
def test_files_that_name_the_version_name_that_of_galaxy(name: str) -> None:
    found = set(re.findall(r"vgpu-fleet(?:-ee:|-|:)(\d+\.\d+\.\d+)", (CHECKOUT / name).read_text()))
    assert found <= {GALAXY["version"]}


def test_galaxy_links_to_the_project() -> None:
    assert all(GALAXY[key].startswith(GALAXY["repository"]) for key in ("documentation", "homepage", "issues"))


def test_files_that_the_readme_links_to_exist() -> None:
    text = (CHECKOUT / "README.md").read_text()
    blob = f"{GALAXY['repository']}/blob/main/"
    links = [link.removeprefix(blob) for link in re.findall(r"\]\(([^)#]+)", text)]
    local = [link for link in links if "://" not in link]
    assert len(local) > 20
    assert [link for link in local if not (CHECKOUT / link).exists()] == []


def test_the_readme_begins_with_what_the_collection_is_for_and_says_what_was_never_run() -> None:
    text = (CHECKOUT / "README.md").read_text()
    assert "An Ansible collection that provisions NVIDIA vGPUs" in text[:1200]
    assert "has never been run on real GPUs" in text
