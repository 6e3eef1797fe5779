"""Run a module of the collection in a fork, so that it can be watched, held and killed, and nothing starts twice.

The test `in_process` shows that a module in a fork gives the result of a packed one. A fork of a process that has
imported everything starts in milliseconds, and its process id is known before it sends its first request.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

Json = dict[str, Any]

PACKAGE = "ansible_collections.vgpu.fleet.plugins"
# Progress and pauses are this many times as fast as in a real run, so that a long silence is a short one.
SCALE = 5.0
TICK = b"\0\n"
# Between these the run is held from outside, and its silence does not count.
HELD, GOES_ON = b"\1\n", b"\2\n"
POLL_SECONDS = 0.02
# A run that has not ended by then hangs.
HANGS_SECONDS = 150.0


@dataclass
class Ended:
    """The end of a run: its result, or nothing if it was killed."""

    result: Json
    # Beats of the run's own clock between two signs of life, at most. Each is one look of a progress report.
    silence: int = 0
    lines: list[str] = field(default_factory=list)
    killed: bool = False
    output: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.result.get("failed")) or not self.result

    @property
    def changed(self) -> bool:
        return bool(self.result.get("changed"))

    @property
    def message(self) -> str:
        return str(self.result.get("msg") or self.output[-2000:])

    @property
    def told(self) -> str:
        """Return everything that users read: the message and the warnings."""
        warnings = [str(one) for one in self.result.get("warnings") or []]
        return " ".join([self.message if self.failed else "", *warnings])

    @property
    def code(self) -> str:
        return str((self.result.get("error") or {}).get("code", ""))


class Running:
    """A module in a fork of this process."""

    def __init__(self, module: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        program = importlib.import_module(f"{PACKAGE}.modules.{module}")
        self._out = tempfile.TemporaryFile()  # noqa: SIM115
        self._source, target = os.pipe()
        os.set_blocking(self._source, False)
        self._told = b""
        self.pid = os.fork()
        if not self.pid:
            _become(program, options, environment, self._out.fileno(), target)
        os.close(target)
        self._status: int | None = None

    def over(self) -> bool:
        """Return whether the module has ended."""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._source, 65536):
                self._told += part
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def is_held(self) -> None:
        """Note that the run is held from outside from now on."""
        self.over()
        self._told += HELD

    def goes_on(self) -> None:
        """Note that the run is not held any more."""
        self.over()
        self._told += GOES_ON

    def stop(self) -> None:
        """Stop the process until `go`."""
        os.kill(self.pid, signal.SIGSTOP)

    def go(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        deadline = time.monotonic() + HANGS_SECONDS
        while not self.over():
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(POLL_SECONDS)
        self.over()
        os.close(self._source)
        self._out.seek(0)
        output = self._out.read().decode(errors="replace")
        self._out.close()
        silence, lines = _signs(self._told)
        killed = os.WIFSIGNALED(self._status or 0)
        return Ended(_parsed(output), silence, lines, killed, output)


def run(module: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> Ended:
    return Running(module, options, environment).wait()


def _signs(told: bytes) -> tuple[int, list[str]]:
    silence, longest, lines, held = 0, 0, [], False
    for line in told.split(b"\n"):
        if line + b"\n" in (HELD, GOES_ON):
            held = line + b"\n" == HELD
            silence = 0
        elif line + b"\n" == TICK:
            silence += not held
            longest = max(longest, silence)
        elif line:
            lines.append(line.decode(errors="replace"))
            silence = 0
    return longest, lines


def _parsed(output: str) -> Json:
    for line in output.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                return dict(json.loads(line))
    return {}


def _become(program: Any, options: Mapping[str, Any], environment: Mapping[str, str], out: int, told: int) -> NoReturn:
    code = 1
    try:
        atexit._clear()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        # A test runner may have replaced them.
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))  # noqa: SIM115
        os.environ.update(environment)
        _hurry()
        _beat(told)
        action = importlib.import_module(f"{PACKAGE}.plugin_utils.in_process")
        action.run_module(program, action.encoded_arguments(_arguments(options)))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001
        os.write(2, repr(error).encode())
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def _arguments(options: Mapping[str, Any]) -> Json:
    """Return the options with those that Ansible adds to each task."""
    return {"_ansible_check_mode": False, "_ansible_diff": False, "_ansible_no_log": False, **options}


def _hurry() -> None:
    """Shorten the intervals of progress reports and the pauses before a request is sent again."""
    progress = importlib.import_module(f"{PACKAGE}.module_utils.progress")
    for name in ("FIRST_SECONDS", "CHANGE_SECONDS", "SILENCE_SECONDS", "LOOK_SECONDS"):
        setattr(progress, name, getattr(progress, name) / SCALE)
    watcher = importlib.import_module(f"{PACKAGE}.module_utils.kube.watcher")
    watcher.PAUSE /= SCALE  # type: ignore[attr-defined]
    client = importlib.import_module(f"{PACKAGE}.module_utils.kube.client")
    client.time = _Hurried()  # type: ignore[attr-defined]


class _Hurried:
    """The module `time` with short sleeps."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(time, name)
        return found

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(seconds / SCALE)


def _beat(told: int) -> None:
    """Tell at each look of a progress report that it has passed.

    On a busy machine both are late. So the number of beats does not depend on the speed of the machine.
    """
    progress = importlib.import_module(f"{PACKAGE}.module_utils.progress")
    progress.open_stream(os.fdopen(os.dup(told), "w", encoding="utf-8"))

    def beat() -> None:
        while True:
            time.sleep(progress.LOOK_SECONDS)
            os.write(told, TICK)

    threading.Thread(target=beat, daemon=True).start()


def longest_silence() -> int:
    """Return how many beats a run may be silent for: the progress interval, and the looks before and after it."""
    progress = importlib.import_module(f"{PACKAGE}.module_utils.progress")
    return int(progress.SILENCE_SECONDS / progress.LOOK_SECONDS) + 3
