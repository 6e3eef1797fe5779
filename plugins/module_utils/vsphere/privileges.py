# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check of the privileges of a user before a task that takes several steps, so that no step is left half-way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .faults import PERMISSION_HINT, Operation, VsphereError, moid_of
from .session import Session

Needs = Mapping[Any, Iterable[str]]


def require(session: Session, needs: Needs) -> None:
    """Raise an error that names every missing privilege and its object.

    `needs` are the privileges by object. If the server does not answer the question, for example because the session
    was renewed meanwhile, do nothing: the server refuses the call itself.
    """
    wanted = {entity: list(privileges) for entity, privileges in needs.items()}
    wanted = {entity: privileges for entity, privileges in wanted.items() if privileges}
    if not wanted:
        return
    user, held = _held(session, wanted)
    missing: dict[str, list[str]] = {}
    for entity, privileges in wanted.items():
        for privilege in privileges:
            if moid_of(entity) in held and privilege not in held[moid_of(entity)]:
                missing.setdefault(privilege, []).append(session.name_of(entity))
    if missing:
        parts = [f"the privilege {privilege} is missing on {', '.join(names)}" for privilege, names in missing.items()]
        raise VsphereError(
            f"User {user} cannot run this task: {'; '.join(parts)}. Nothing was changed.",
            hint=PERMISSION_HINT,
            fault="NoPermission",
            code="forbidden",
        )


def _held(session: Session, wanted: Mapping[Any, list[str]]) -> tuple[str, dict[str, set[str]]]:
    """Return the user, and the privileges that the user has by object, as far as the server tells."""
    subject = Operation("tell the privileges of the user")
    privileges = sorted({privilege for listed in wanted.values() for privilege in listed})
    manager = session.content.authorizationManager
    try:
        current = session.user_session
        if manager is None or current is None:
            return "", {}
        answer = session.call(subject, manager.HasPrivilegeOnEntities, list(wanted), current.key, privileges)
    except VsphereError:
        return "", {}
    return str(current.userName), {
        moid_of(entry.entity): {privilege.privId for privilege in entry.privAvailability or [] if privilege.isGranted}
        for entry in answer or []
    }
