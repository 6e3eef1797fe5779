# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Progress of a long wait, reported while the task is running.

If a module runs in a fork of ansible-playbook, the action plugin opens a stream and shows every line that arrives on
it. A packed module has no such stream, and reporting has no effect. Progress never becomes part of a result.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

# Shorter waits report nothing.
FIRST_SECONDS = 3.0
# Minimum interval between lines while the state changes, and maximum interval while it does not.
CHANGE_SECONDS = 3.0
SILENCE_SECONDS = 15.0
LOOK_SECONDS = 1.0


class _Stream:
    """The destination of progress lines. Without a stream of an action plugin, lines are discarded."""

    file: TextIO | None = None


def open_stream(file: TextIO | None) -> None:
    _Stream.file = file


def is_shown() -> bool:
    return _Stream.file is not None


class Reporter:
    """A filter that decides when a description of the current state is worth a line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_text = ""
        self._last_time = clock() - CHANGE_SECONDS + FIRST_SECONDS

    def update(self, text: str, seconds_left: float) -> None:
        silence = self._clock() - self._last_time
        if not text or silence < (SILENCE_SECONDS if text == self._last_text else CHANGE_SECONDS):
            return
        self._last_text, self._last_time = text, self._clock()
        _write(f"{text} ({_minutes(seconds_left)} left)")


@contextlib.contextmanager
def reporting(describe: Callable[[], str], seconds_left: Callable[[], float]) -> Iterator[None]:
    """Report progress from a separate thread while the caller blocks."""
    if not is_shown():
        yield
        return
    over = threading.Event()

    def attend() -> None:
        reporter = Reporter()
        while not over.wait(LOOK_SECONDS):
            reporter.update(describe(), seconds_left())

    thread = threading.Thread(target=attend, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _write(line: str) -> None:
    file = _Stream.file
    if file is None:
        return
    try:
        file.write(" ".join(line.split()) + "\n")
        file.flush()
    except (OSError, ValueError):
        # The reader is gone. The task itself continues.
        open_stream(None)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"
