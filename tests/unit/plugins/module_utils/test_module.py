"""The frame of a module: errors, warnings and the end of a task."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.module import ReadResult, finish, reporting_errors


class Module:
    """Stands in for AnsibleModule: records how the task ends."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.no_log_values: set[str] = set()
        self.shown: list[str] = []
        self.ended: list[tuple[str, dict[str, Any]]] = []

    def warn(self, warning: str) -> None:
        self.shown.append(warning)

    def exit_json(self, **result: Any) -> None:
        self.ended.append(("exit", result))

    def fail_json(self, **result: Any) -> None:
        self.ended.append(("fail", result))


def test_a_task_that_reads_ends_unchanged_with_its_records() -> None:
    module = Module()
    finish(module, ReadResult({"gpus": []}))
    assert module.ended == [("exit", {"changed": False, "gpus": []})]


def test_each_warning_is_shown_once_and_in_order() -> None:
    module = Module()
    finish(module, ReadResult({}, ("second", "first", "second")))
    assert module.shown == ["second", "first"]


def test_an_error_fails_the_task_with_message_hint_and_code() -> None:
    module = Module()
    with reporting_errors(module):
        raise FleetError("GPU x is missing.", hint="Add it.")
    error = {"code": "fleet_error", "message": "GPU x is missing.", "hint": "Add it."}
    assert module.ended == [("fail", {"msg": "GPU x is missing. Add it.", "error": error, "changed": False})]


def test_a_bug_is_not_reported_as_an_error_of_the_user() -> None:
    module = Module()
    with pytest.raises(KeyError), reporting_errors(module):
        raise KeyError("bug")
    assert not module.ended
