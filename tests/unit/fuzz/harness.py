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
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from ansible.module_utils.testing import patch_module_args
from ansible_collections.vgpu.fleet.plugins.module_utils.kube import watcher
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import ApiClient
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import session as vsphere_session

from tests.unit.fuzz.kubernetes_world import World, sender
from tests.unit.fuzz.vcenter_world import VCenter

PACKAGE = "ansible_collections.vgpu.fleet.plugins.module_utils."
# How runs ended, by what was tried: printed at the end of `make fuzz`.
OUTCOMES: dict[str, Counter[str]] = {}
# Error codes that say that the platform refused a write.
DENIED = {"forbidden", "no_permission"}
SECONDS = 0.01


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


@contextlib.contextmanager
def _patched_time() -> Iterator[None]:
    """Let all modules of the collection but the watcher use a clock that does not wait."""
    clock = Clock()
    real = sys.modules["time"]
    fake = SimpleNamespace(**{name: getattr(real, name) for name in dir(real) if not name.startswith("_")})
    fake.monotonic, fake.sleep = clock.monotonic, clock.sleep
    places = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(PACKAGE) and getattr(module, "time", None) is real and module is not watcher
    ]
    with contextlib.ExitStack() as stack:
        for place in places:
            stack.enter_context(mock.patch.object(place, "time", fake))
        yield


def run(module: str, arguments: dict[str, Any], world: World, vcenter: VCenter, *, check_mode: bool = False) -> Outcome:
    """Run a module. Raise Broken with its traceback if it does not end as a module should."""
    code = importlib.import_module(f"ansible_collections.vgpu.fleet.plugins.modules.{module}")
    original = watcher.Watcher.__init__

    def brief(self: Any, api: Any, listings: Any, *, seconds: float, **more: Any) -> None:
        original(self, api, listings, seconds=min(seconds, SECONDS), **more)

    shown = io.StringIO()
    given = {**arguments, **({"_ansible_check_mode": True} if check_mode else {})}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"HOME": folder, "TMPDIR": folder, "PATH": os.environ["PATH"]}, clear=True),
        mock.patch.object(tempfile, "tempdir", folder),
        mock.patch.object(ApiClient, "_send", sender(world)),
        mock.patch.object(vsphere_session, "_connect", side_effect=lambda _params: vcenter.session()),
        mock.patch.object(watcher.Watcher, "__init__", brief),
        mock.patch.object(watcher, "PAUSE", 0.001),
        _patched_time(),
        patch_module_args(given),
        contextlib.redirect_stdout(shown),
    ):
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
        left = [str(path) for path in Path(folder).rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    result = json.loads(shown.getvalue())
    outcome = Outcome(result, [*world.writes, *vcenter.writes], world.dry_runs)
    _check(module, arguments, outcome, world, check_mode=check_mode)
    if left:
        raise Broken(f"{module} wrote files that others may read: {left}")
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
