# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting until properties of objects are what is hoped for: told by vCenter, never asked in a loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Subject
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Properties, Session

PATIENCE = 30


def until(
    session: Session,
    subject: Subject,
    reference: Any,
    paths: Sequence[str],
    holds: Callable[[Properties], bool],
    *,
    seconds: float,
) -> Properties | None:
    """The properties once they are as hoped for, or None if they are not in time."""
    collector = session.content.propertyCollector
    query = session.vmodl.query.PropertyCollector
    watch = session.call(subject, collector.CreateFilter, session.objects_filter([reference], paths), False)
    deadline = time.monotonic() + seconds
    seen: Properties = {}
    version = ""
    try:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            options = query.WaitOptions(maxWaitSeconds=max(1, int(min(left, PATIENCE))))
            update = session.call(subject, collector.WaitForUpdatesEx, version, options)
            if update is None:
                continue
            version = update.version
            for entry in (entry for changed in update.filterSet for entry in changed.objectSet):
                seen.update({change.name: change.val for change in entry.changeSet})
            if holds(seen):
                return seen
    finally:
        with suppress(Exception):
            watch.Destroy()
