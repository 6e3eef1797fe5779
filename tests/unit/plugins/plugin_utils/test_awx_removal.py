"""Which objects of awx_setup stay in AWX. The playbook itself is tested with a stand-in for the API."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.awx_removal import kept

MARK = "Managed by vgpu.fleet."
LISTS = (
    "steps",
    "schedules",
    "job_templates",
    "workflows",
    "inventory_sources",
    "hosts",
    "projects",
    "organizations",
    "credentials",
)


def own(kind: str, number: int, *, ours: bool = True) -> dict[str, Any]:
    return {"type": kind, "label": f"{kind} {number}", "id": number, "ours": ours}


def users(**lists: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {name: lists.get(name, []) for name in LISTS}


def step(workflow: int, template: int, **fields: int) -> dict[str, Any]:
    return {
        "workflow_job_template": workflow,
        "unified_job_template": template,
        "summary_fields": {"workflow_job_template": {"name": f"flow {workflow}"}},
        **fields,
    }


EVERY = [
    own(kind, number)
    for number, kind in enumerate(
        ("job template", "workflow", "inventory", "project", "execution environment", "credential type"), start=1
    )
]


def test_nothing_stays_that_nobody_uses_and_the_playbook_created() -> None:
    assert kept(EVERY, users(), MARK) == {}


def test_objects_without_the_mark_stay() -> None:
    found = [own("project", 1, ours=False), own("inventory", 2)]
    assert list(kept(found, users(), MARK)) == ["project 1"]


@pytest.mark.parametrize(
    ("lists", "label", "user"),
    [
        ({"hosts": [{"name": "edge"}]}, "inventory 3", "its host edge"),
        ({"job_templates": [{"id": 9, "name": "x", "project": 4}]}, "project 4", "the job template x"),
        ({"job_templates": [{"id": 9, "name": "x", "inventory": 3}]}, "inventory 3", "the job template x"),
        (
            {"job_templates": [{"id": 9, "name": "x", "execution_environment": 5}]},
            "execution environment 5",
            "the job template x",
        ),
        ({"workflows": [{"id": 9, "name": "x", "inventory": 3}]}, "inventory 3", "the workflow x"),
        ({"steps": [step(9, 1)]}, "job template 1", "a step of the workflow flow 9"),
        ({"steps": [step(9, 8, inventory=3)]}, "inventory 3", "a step of the workflow flow 9"),
        ({"inventory_sources": [{"name": "x", "source_project": 4}]}, "project 4", "the inventory source x"),
        (
            {"projects": [{"type": "project", "name": "x", "default_environment": 5}]},
            "execution environment 5",
            "the project x",
        ),
        ({"credentials": [{"name": "x", "credential_type": 6}]}, "credential type 6", "the credential x"),
        ({"schedules": [{"name": "x", "unified_job_template": 2}]}, "workflow 2", "the schedule x"),
    ],
)
def test_an_object_that_somebody_else_uses_stays(lists: dict[str, Any], label: str, user: str) -> None:
    assert kept(EVERY, users(**lists), MARK) == {label: f"{user} uses it"}


def test_users_that_leave_as_well_keep_nothing() -> None:
    leaving = users(
        job_templates=[{"id": 1, "name": "own", "project": 4, "inventory": 3, "execution_environment": 5}],
        steps=[step(2, 1, inventory=3)],
        schedules=[
            {"name": "own", "unified_job_template": 1, "description": f"Nightly. {MARK}"},
            {"name": "old", "unified_job_template": 1},
        ],
    )
    assert kept(EVERY, leaving, MARK, ["schedule old"]) == {}


def test_a_chain_of_workflows_stays_down_to_the_project_of_its_last_step() -> None:
    found = [own("job template", 1), *(own("workflow", number) for number in (2, 3, 4)), own("project", 5)]
    # The order of the API is not the order of the chain.
    chain = users(
        steps=[step(2, 1), step(3, 2), step(4, 3), step(9, 4)], job_templates=[{"id": 1, "name": "own", "project": 5}]
    )
    assert list(kept(found, chain, MARK)) == ["workflow 4", "workflow 3", "workflow 2", "job template 1", "project 5"]


def test_several_users_are_named_once_each() -> None:
    source = {"name": "x", "inventory": 3}
    lists = users(hosts=[{"name": "edge"}], inventory_sources=[source, source])
    assert kept(EVERY, lists, MARK) == {"inventory 3": "its host edge, the inventory source x use it"}


def test_names_of_others_are_not_rendered() -> None:
    lists = users(credentials=[{"name": "{{ secret }}{% x %}{# y #}", "credential_type": 6}])
    assert kept(EVERY, lists, MARK)["credential type 6"] == "the credential ?? secret ???? x ???? y ?? uses it"


def test_a_notification_template_stays_because_its_users_cannot_be_listed() -> None:
    assert "other templates" in kept([own("notification template", 1)], users(), MARK)["notification template 1"]
