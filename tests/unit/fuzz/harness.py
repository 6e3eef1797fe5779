"""Run a module in this process against a world in memory, and classify how it ended."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from ansible.module_utils.testing import patch_module_args
from ansible_collections.vgpu.fleet.plugins.module_utils.kube import watcher
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import ApiClient
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import session as vsphere_session

from tests.unit.fuzz.kubernetes_world import World
from tests.unit.fuzz.vcenter_world import VCenter

PACKAGE = "ansible_collections.vgpu.fleet.plugins.module_utils."
# How runs ended, by what was tried: printed at the end of `make fuzz`.
OUTCOMES: dict[str, Counter[str]] = {}
# Error codes that say that the platform refused a write.
DENIED = {"forbidden", "no_permission"}
SECONDS = 0.01
CONNECTION_VARIABLES = ("K8S_AUTH_", "VMWARE_", "KUBE")


class Clock:
    """Time that passes when somebody sleeps, and a little with each look at it."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        self._now += 0.01
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += max(seconds, 0.01)


@dataclass(frozen=True)
class Outcome:
    result: dict[str, Any]
    writes: list[str]
    dry_runs: list[str]

    @property
    def failed(self) -> bool:
        return bool(self.result.get("failed"))

    @property
    def code(self) -> str:
        """Return the code of our error, or an empty text if Ansible refused the arguments."""
        return str((self.result.get("error") or {}).get("code") or "")

    @property
    def kind(self) -> str:
        if not self.failed:
            return "succeeded"
        if self.result["msg"] == "Ansible's own traceback":
            return self.result["msg"]
        return "refused by the module" if self.code else "refused by Ansible"


class Broken(AssertionError):
    """A module ended with a traceback, or wrote although it refused its input."""


class _Current:
    """The worlds of the run that is going on."""

    world: World
    vcenter: VCenter


@cache
def _install(folder: str) -> None:
    """Connect all modules to the worlds, and let them use a clock that does not wait. Lasts as long as the process."""
    for path in (Path(__file__).parents[3] / "plugins/module_utils").rglob("*.py"):
        name = ".".join(path.relative_to(Path(__file__).parents[3] / "plugins/module_utils").with_suffix("").parts)
        importlib.import_module(PACKAGE + name)
    clock, real = Clock(), sys.modules["time"]
    fake = SimpleNamespace(**{name: getattr(real, name) for name in dir(real) if not name.startswith("_")})
    fake.monotonic, fake.sleep = clock.monotonic, clock.sleep
    stack = contextlib.ExitStack()
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGE) and getattr(module, "time", None) is real and module is not watcher:
            stack.enter_context(mock.patch.object(module, "time", fake))
    original = watcher.Watcher.__init__

    def brief(self: Any, api: Any, listings: Any, *, seconds: float, **more: Any) -> None:
        original(self, api, listings, seconds=min(seconds, SECONDS), **more)

    def send(_self: ApiClient, method: str, path: str, query: Any, body: Any, *_args: Any, **_options: Any) -> Any:
        # What cannot be sent as JSON would not reach a server either.
        json.dumps(body)
        return _Current.world.send(method, path, query, body)

    def connect(_params: Any) -> Any:
        return _Current.vcenter.session()

    stack.enter_context(mock.patch.object(ApiClient, "_send", send))
    stack.enter_context(mock.patch.object(vsphere_session, "_connect", connect))
    stack.enter_context(mock.patch.object(watcher.Watcher, "__init__", brief))
    stack.enter_context(mock.patch.object(watcher, "PAUSE", 0.001))
    stack.enter_context(mock.patch.object(tempfile, "tempdir", folder))
    _INSTALLED.append(stack)


_INSTALLED: list[contextlib.ExitStack] = []


@contextlib.contextmanager
def connected() -> Iterator[None]:
    """Connect all modules to the worlds while the tests of one file run."""
    with tempfile.TemporaryDirectory() as folder:
        _install(folder)
        # The locale stays: each module sets it anew, also for the tests that follow.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(CONNECTION_VARIABLES)}
        with mock.patch.dict(os.environ, {**kept, "HOME": folder, "TMPDIR": folder}, clear=True):
            try:
                yield
            finally:
                _INSTALLED.pop().close()
                _install.cache_clear()


def run(module: str, arguments: dict[str, Any], world: World, vcenter: VCenter, *, check_mode: bool = False) -> Outcome:
    """Run a module. Raise Broken with its traceback if it does not end as a module should."""
    code = importlib.import_module(f"ansible_collections.vgpu.fleet.plugins.modules.{module}")
    _Current.world, _Current.vcenter = world, vcenter
    shown = io.StringIO()
    given = {**arguments, **({"_ansible_check_mode": True} if check_mode else {})}
    with patch_module_args(given), contextlib.redirect_stdout(shown):
        try:
            code.main()
        except SystemExit:
            pass
        except Exception as error:
            if _is_of_ansible(error):
                return Outcome({"failed": True, "msg": "Ansible's own traceback"}, [], [])
            raise Broken(f"{module}: {arguments!r}\n{traceback.format_exc()}") from error
        else:
            raise Broken(f"{module} ended without a result: {arguments!r}")
    result = json.loads(shown.getvalue())
    outcome = Outcome(result, [*world.writes, *vcenter.writes], world.dry_runs)
    _check(module, arguments, outcome, world, check_mode=check_mode)
    for path in Path(tempfile.gettempdir()).iterdir():
        if path.is_file() and path.stat().st_mode & 0o077:
            raise Broken(f"{module} wrote a file that others may read: {path}")
        if path.is_file():
            path.unlink()
    return outcome


def _is_of_ansible(error: Exception) -> bool:
    """Return whether ansible-core itself broke while it validated the arguments, before the module had begun.

    Its check of suboptions expects a mapping (`control_plane: false` ends every module with suboptions in a traceback),
    and its check of integers breaks on some lists. No module can prevent that.
    """
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    begun = [number for number, file in enumerate(files) if file.endswith("ansible/module_utils/basic.py")]
    return bool(begun) and not any("vgpu/fleet" in file for file in files[begun[0] :])


def _check(module: str, arguments: dict[str, Any], outcome: Outcome, world: World, *, check_mode: bool) -> None:
    if "Traceback" in str(outcome.result.get("exception") or ""):
        raise Broken(f"{module}: {arguments!r}\n{outcome.result['exception']}")
    if outcome.failed and not str(outcome.result.get("msg") or "").strip():
        raise Broken(f"{module} failed without a message: {arguments!r}")
    if check_mode and outcome.writes:
        raise Broken(f"{module} wrote in check mode: {outcome.writes}, {arguments!r}")
    denied = outcome.code in DENIED or "orbidden" in str(outcome.result.get("msg"))
    if not world.writable and outcome.writes and outcome.failed and not denied:
        raise Broken(f"{module} wrote and then refused its input: {outcome.writes}, {outcome.result}, {arguments!r}")


def count(what: str, how: str) -> None:
    OUTCOMES.setdefault(what, Counter())[how] += 1


def report() -> list[str]:
    """Return a table of the runs so far."""
    kinds = list(dict.fromkeys(itertools.chain.from_iterable(OUTCOMES.values())))
    lines = [["tried", "sets", *kinds], ["---"] * (len(kinds) + 2)]
    for what, counted in sorted(OUTCOMES.items()):
        lines.append([what, f"{counted.total():,}", *(f"{counted[kind]:,}" for kind in kinds)])
    return [f"| {' | '.join(line)} |" for line in lines]
