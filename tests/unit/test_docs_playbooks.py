"""Each playbook has a page, which says what the playbook and its roles say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import playbook_pages as pages

FILES = sorted(pages.PLAYBOOKS.glob("*.yml"))
# What a playbook reads from outside.
OURS = re.compile(r"\b(?:vgpu|harvester|vcenter|vsphere|capv|awx_setup|gpu_operator|gpu_smoke_test|rancher)_[a-z0-9_]+")
MADE_BY_ROLES = re.compile(r".*_(?:pending|result)")


@pytest.mark.parametrize("playbook", FILES, ids=lambda playbook: playbook.stem)
def test_the_page_says_what_the_playbook_and_its_roles_say(playbook: Path) -> None:
    page = pages.page_of(playbook)
    assert page.read_text() == pages.with_reference(playbook), "python -m tools.playbook_pages writes it anew"
    assert f"({page.name})" in (pages.CHECKOUT / "docs/playbooks.md").read_text()


@pytest.mark.parametrize("playbook", FILES, ids=lambda playbook: playbook.stem)
def test_every_variable_that_a_playbook_reads_is_documented_at_its_top(playbook: Path) -> None:
    documented = {name for entry in pages.entries(playbook) for name in entry.names}
    whole = tuple(name.removesuffix("*") for name in documented if name.endswith("*"))
    body = "\n".join(playbook.read_text().splitlines()[1 + len(pages.head(playbook)) :])
    read = set(OURS.findall(" ".join(re.findall(r"\{\{(.*?)\}\}", body) + re.findall(r"(?:when|that): (.*)", body))))
    unknown = {
        name
        for name in read - documented
        if not name.startswith(whole or ("\0",)) and not MADE_BY_ROLES.fullmatch(name)
    }
    assert unknown == set()


def test_variables_that_belong_together_are_all_found() -> None:
    found = pages.entries(pages.PLAYBOOKS / "capacity.yml")
    first = next(entry for entry in found if "harvester_kubeconfig" in entry.names)
    assert first.names == [f"harvester_{name}" for name in ("kubeconfig", "context", "host", "api_key", "ca_cert")]
    assert first.text.startswith("Connection to Harvester. Defaults to the environment")
