"""Writes each task's result, and how long it took, as a line of JSON into the file named by RESULTS_FILE."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: results
type: notification
short_description: Results for tests
description: Writes the result of each task as a line of JSON.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "results"

    def __init__(self) -> None:
        super().__init__()
        self._started = self._began = 0.0

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._started, self._began = time.monotonic(), time.time()

    def v2_runner_on_ok(self, result: Any) -> None:
        self._write(result, failed=False)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._write(result, failed=True)

    def _write(self, result: Any, *, failed: bool) -> None:
        seconds = time.monotonic() - self._started
        times = {"task_seconds": seconds, "began": self._began, "ended": time.time()}
        line = {"failed": failed, **json.loads(json.dumps(result._result, default=str)), **times}
        with open(os.environ["RESULTS_FILE"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
