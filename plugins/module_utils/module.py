# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The frame of every module: error reporting, warnings and the result of the task."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .errors import FleetError
from .redaction import secrets

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule


class TaskResult(Protocol):
    """The result of a task, as `finish` takes it."""

    @property
    def warnings(self) -> Iterable[str]:
        """Return the warnings to show to the user."""

    def as_result(self) -> dict[str, Any]:
        """Return every key that the module documents, including `changed`."""


@dataclass(frozen=True)
class ReadResult:
    """The result of a task that only reads: `changed` is always false."""

    records: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    def as_result(self) -> dict[str, Any]:
        """Return the records with `changed`."""
        return {"changed": False, **self.records}


@contextmanager
def reporting_errors(module: AnsibleModule) -> Iterator[None]:
    """Fail the task with message, hint and code on every FleetError. Other exceptions are bugs and show a traceback."""
    # Ansible hides options as a whole, but a kubeconfig given as a mapping is only partly secret.
    module.no_log_values.update(secrets(module.params, os.environ))
    try:
        yield
    except FleetError as error:
        for warning in dict.fromkeys(error.warnings):
            module.warn(warning)
        module.fail_json(msg=str(error), error=error.as_dict(), changed=error.changed)


def finish(module: AnsibleModule, result: TaskResult) -> None:
    """End the task: emit each of `result.warnings` once, in order, then call exit_json with `result.as_result()`.

    This is the last line of every `main()`, inside `reporting_errors(module)`. Modules that only read pass a
    `ReadResult`. Results of modules that write have `warnings` and `as_result()` themselves.
    """
    for warning in dict.fromkeys(result.warnings):
        module.warn(warning)
    module.exit_json(**result.as_result())
