# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide which objects of awx_setup stay in AWX when the playbook removes its objects.

AWX deletes the schedules of a template together with the template. When a template, project, inventory or execution
environment is deleted, AWX takes it away from its users without a warning. Therefore everything that somebody else uses
stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

AwxObject = Mapping[str, Any]

JOB_TEMPLATE, WORKFLOW, INVENTORY, PROJECT = "job template", "workflow", "inventory", "project"
ENVIRONMENT, CREDENTIAL_TYPE, NOTIFICATION_TEMPLATE = (
    "execution environment",
    "credential type",
    "notification template",
)
# The fields of other objects that refer to an object of each type, by the list in which the other objects are.
TEMPLATE_FIELDS = {PROJECT: "project", INVENTORY: "inventory", ENVIRONMENT: "execution_environment"}
SOURCE_FIELDS = {PROJECT: "source_project", INVENTORY: "inventory", ENVIRONMENT: "execution_environment"}
STEP_FIELDS = {INVENTORY: "inventory", ENVIRONMENT: "execution_environment"}
# Characters that could make Ansible render a name that a user of AWX chose.
RENDERED = re.compile("[{}%#]")


def kept(
    found: Sequence[AwxObject], users: Mapping[str, Sequence[AwxObject]], mark: str, adopted: Collection[str] = ()
) -> dict[str, str]:
    """Return the reason for each object that stays, by the label of the object.

    `found` are the objects with the names that the playbook declares, each with `type`, `label`, `id` and `ours`.
    `users` are lists of the API: steps (workflow nodes), schedules, job_templates, workflows, inventory_sources, hosts,
    projects, organizations and credentials.
    """
    reasons = {
        thing["label"]: "this playbook did not create it. To remove it, add it to awx_setup_adopt"
        for thing in found
        if not thing["ours"]
    }
    launched = [thing for thing in found if thing["type"] in (JOB_TEMPLATE, WORKFLOW)]
    _keep_scheduled(reasons, launched, users["schedules"], mark, adopted)
    _keep_steps(reasons, launched, users["steps"])
    leaving = {thing["id"] for thing in launched if thing["label"] not in reasons}
    for thing in found:
        if thing["label"] in reasons:
            continue
        names = list(dict.fromkeys(_users(thing, users, leaving)))
        if names:
            reasons[thing["label"]] = f"{', '.join(names)} {'use' if len(names) > 1 else 'uses'} it"
        elif thing["type"] == NOTIFICATION_TEMPLATE:
            reasons[thing["label"]] = "other templates can use it. Delete it in AWX if none does"
    return {label: RENDERED.sub("?", reason) for label, reason in reasons.items()}


def _keep_scheduled(
    reasons: dict[str, str],
    launched: Sequence[AwxObject],
    schedules: Sequence[AwxObject],
    mark: str,
    adopted: Collection[str],
) -> None:
    for schedule in schedules:
        if mark in (schedule.get("description") or "") or f"schedule {schedule['name']}" in adopted:
            continue
        for thing in launched:
            if thing["id"] == schedule["unified_job_template"]:
                reasons.setdefault(thing["label"], f"the schedule {schedule['name']} uses it")


def _keep_steps(reasons: dict[str, str], launched: Sequence[AwxObject], steps: Sequence[AwxObject]) -> None:
    """Keep the steps of workflows that stay, also of workflows that are steps of other workflows."""
    changed = True
    while changed:
        leaving = {thing["id"] for thing in launched if thing["label"] not in reasons}
        changed = False
        for step in steps:
            if step["workflow_job_template"] in leaving:
                continue
            for thing in launched:
                if thing["id"] == step["unified_job_template"] and thing["label"] not in reasons:
                    reasons[thing["label"]] = f"{_step_name(step)} uses it"
                    changed = True


def _users(thing: AwxObject, users: Mapping[str, Sequence[AwxObject]], leaving: Collection[int]) -> Iterator[str]:
    """Yield the objects that use an object of the playbook and stay themselves."""
    kind, number = thing["type"], thing["id"]

    def refers(user: AwxObject, fields: Mapping[str, str]) -> bool:
        return kind in fields and user.get(fields[kind]) == number

    if kind == INVENTORY:
        yield from (f"its host {host['name']}" for host in users["hosts"][:1])
    for template in users["job_templates"]:
        if template["id"] not in leaving and refers(template, TEMPLATE_FIELDS):
            yield f"the job template {template['name']}"
    for workflow in users["workflows"]:
        if workflow["id"] not in leaving and refers(workflow, {INVENTORY: "inventory"}):
            yield f"the workflow {workflow['name']}"
    for step in users["steps"]:
        if step["workflow_job_template"] not in leaving and refers(step, STEP_FIELDS):
            yield _step_name(step)
    for source in users["inventory_sources"]:
        if refers(source, SOURCE_FIELDS):
            yield f"the inventory source {source['name']}"
    for owner in (*users["projects"], *users["organizations"]):
        if refers(owner, {ENVIRONMENT: "default_environment"}):
            yield f"the {owner['type']} {owner['name']}"
    for credential in users["credentials"]:
        if refers(credential, {CREDENTIAL_TYPE: "credential_type"}):
            yield f"the credential {credential['name']}"


def _step_name(step: AwxObject) -> str:
    return f"a step of the workflow {step['summary_fields']['workflow_job_template']['name']}"
