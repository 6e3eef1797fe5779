# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running a module of this collection in a fork of ansible-playbook instead of a new Python interpreter.

Ansible packs a module with everything it imports into a zip file, and a new interpreter unpacks and compiles it for
each task. If the module runs on the controller anyway, with the interpreter that runs Ansible, a fork of the worker
process gives the same result: the code is already imported. Ansible's own code still builds the arguments and parses
the output; only the command in between is replaced.

The fork is a separate process. All changes of the module to its environment, memory or standard streams end with the
fork, so no connection and no secret stays behind.
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
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import IO, Any, NoReturn

from ansible import constants
from ansible.module_utils import basic
from ansible.module_utils.common import warnings as module_warnings
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible.utils.display import Display

from ..module_utils.progress import open_stream

try:
    from ansible.executor.module_common import _BuiltModule
except ImportError:
    # ansible-core before 2.19
    _BuiltModule = None

PROGRESS_VARIABLE = "vgpu_fleet_progress"
PROGRESS_ENVIRONMENT_VARIABLE = "VGPU_FLEET_PROGRESS"
VARIABLE = "vgpu_fleet_in_process"
ENVIRONMENT_VARIABLE = "VGPU_FLEET_IN_PROCESS"
PROFILE = "legacy"
# The longest result that -v prints: about a screen.
MOST_CHARACTERS = 4000
# Prefixes of variables that an interpreter or its libraries read only when they start.
READ_AT_START = ("PYTHON", "LD_", "DYLD_", "LC_", "LANG", "MALLOC_", "OPENSSL_")


def preload(*libraries: str) -> None:
    """Import libraries that a module needs once, instead of in each of its tasks.

    Missing libraries are ignored here: the module has a better error message.
    """
    for library in libraries:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)


class InProcessAction(NormalAction):  # type: ignore[misc]
    """An action that runs a module in a fork of the worker process if that does not affect the result.

    Strategies load an action before they fork workers. The imports of the action's file therefore happen once for the
    whole playbook, and only if the playbook has such a task.
    """

    module: ModuleType

    _in_process = False
    _environment: Mapping[str, str] = {}
    _progress: Callable[[str], None] | None = None

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        if Display().verbosity == 1 and not result.get("failed") and not self._task.no_log:
            size = len(json.dumps(result, default=str))
            if size > MOST_CHARACTERS:
                # The result stays complete for `register` and for job events. Only its printed form is left out.
                result["_ansible_verbose_override"] = True
                host = str((task_vars or {}).get("inventory_hostname") or "")
                show_progress(host, f"The result has {size // 1000 + 1} kB. Use -vv to print it.")
        return result

    def _execute_module(self, *args: Any, **kwargs: Any) -> Any:
        task_vars = kwargs.get("task_vars") or {}
        self._environment = self._task_environment()
        self._in_process = not kwargs.get("wrap_async") and self._makes_no_difference(task_vars)
        self._progress = None
        if self._in_process and self._shows_progress(task_vars):
            self._progress = partial(show_progress, str(task_vars.get("inventory_hostname") or ""))
        return super()._execute_module(*args, **kwargs)

    def _makes_no_difference(self, task_vars: Mapping[str, Any]) -> bool:
        return (
            hasattr(os, "fork")
            and self._connection.transport == "local"
            and not self._task.become
            and not self._connection.become
            and not self._task.async_val
            and not constants.DEFAULT_KEEP_REMOTE_FILES
            and not any(name.upper().startswith(READ_AT_START) for name in self._environment)
            and self._is_switched_on(task_vars)
            and is_own_interpreter(self._interpreter(task_vars))
        )

    def _task_environment(self) -> dict[str, str]:
        found: dict[str, Any] = {}
        self._compute_environment_string(found)
        return {str(name): str(value) for name, value in found.items()}

    def _is_switched_on(self, task_vars: Mapping[str, Any]) -> bool:
        return self._switch(task_vars, VARIABLE, ENVIRONMENT_VARIABLE)

    def _shows_progress(self, task_vars: Mapping[str, Any]) -> bool:
        return not self._task.no_log and self._switch(task_vars, PROGRESS_VARIABLE, PROGRESS_ENVIRONMENT_VARIABLE)

    def _switch(self, task_vars: Mapping[str, Any], variable: str, environment_variable: str) -> bool:
        asked = task_vars.get(variable, os.environ.get(environment_variable, "true"))
        return bool(boolean(self._templar.template(asked), strict=False))

    def _interpreter(self, task_vars: Mapping[str, Any]) -> str:
        delegated = task_vars.get("ansible_delegated_vars") or {}
        host_vars = delegated.get(self._task.delegate_to) if self._task.delegate_to else task_vars
        configured = constants.config.get_config_value("INTERPRETER_PYTHON", variables=host_vars or {})
        return str(self._templar.template(configured)).strip()

    # The overridden parts of a module's run. Everything else is Ansible's own code.

    def _is_pipelining_enabled(self, *args: Any, **kwargs: Any) -> bool:
        return self._in_process or super()._is_pipelining_enabled(*args, **kwargs)

    def _configure_module(self, module_name: str, module_args: Mapping[str, Any], task_vars: Any) -> Any:
        if not self._in_process:
            return super()._configure_module(module_name, module_args, task_vars)
        shebang, path = f"#!{sys.executable}", str(self.module.__file__)
        data = encoded_arguments(module_args)
        if _BuiltModule is None:
            return "new", shebang, data, path
        built = _BuiltModule(b_module_data=data, module_style="new", shebang=shebang, serialization_profile=PROFILE)
        return built, path

    def _low_level_execute_command(self, *args: Any, **kwargs: Any) -> Any:
        data = kwargs.get("in_data")
        if not self._in_process or not data:
            return super()._low_level_execute_command(*args, **kwargs)
        # Ansible runs the commands of a local connection in the folder of the playbook.
        folder = self._loader.get_basedir()
        code, out, err = in_fork(
            lambda: run_module(self.module, data), self._environment, folder, progress=self._progress
        )
        return {
            "rc": code,
            "stdout": out,
            "stdout_lines": out.splitlines(),
            "stderr": err,
            "stderr_lines": err.splitlines(),
        }


def is_own_interpreter(path: str) -> bool:
    """Return whether a path is the interpreter that runs Ansible.

    A path in another folder does not match even if it links to the same file, because the Python of a virtual
    environment is a link to an interpreter with other packages.
    """
    if path == sys.executable:
        return True
    same_folder = os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(sys.executable))
    return same_folder and os.path.exists(path) and os.path.samefile(path, sys.executable)


def encoded_arguments(module_args: Mapping[str, Any]) -> bytes:
    arguments = {"ANSIBLE_MODULE_ARGS": module_args}
    codecs = importlib.import_module("ansible.module_utils.common.json")
    if _BuiltModule is None:
        return json.dumps(arguments, cls=codecs.AnsibleJSONEncoder, vault_to_text=True).encode()
    return json.dumps(arguments, cls=codecs.get_module_encoder(PROFILE, codecs.Direction.CONTROLLER_TO_MODULE)).encode()


def run_module(module: ModuleType, arguments: bytes) -> NoReturn:
    """Run a module's main() as the wrapper of packed modules does. Call this only in a process of its own."""
    basic._ANSIBLE_ARGS = arguments
    if hasattr(basic, "_ANSIBLE_PROFILE"):
        basic._ANSIBLE_PROFILE = PROFILE
    _leave_controller()
    try:
        module.main()
        if _BuiltModule is not None:
            raise RuntimeError("New-style module did not handle its own exit.")
        print('{"msg": "New-style module did not handle its own exit", "failed": true}')
        sys.exit(1)
    except Exception as error:  # noqa: BLE001
        _report(error)
        sys.exit(1)


def _leave_controller() -> None:
    """Reset the state of the controller: the controller shows warnings, while a module returns them with its result."""
    with contextlib.suppress(ImportError):
        internal = importlib.import_module("ansible.module_utils._internal")
        vars(internal)["is_controller"] = False
    for name in ("_global_warnings", "_global_deprecations"):
        recorded = getattr(module_warnings, name, None)
        if recorded is not None:
            recorded.clear()


def _report(error: Exception) -> None:
    """Report an unexpected exception of the module, as the wrapper of packed modules does."""
    try:
        loader = importlib.import_module("ansible.module_utils._internal._ansiballz._loader")
    except ImportError:
        traceback.print_exception(error)
    else:
        loader._handle_exception(error, PROFILE)


def show_progress(host: str, line: str) -> None:
    """Show a line that a running module reported, below its task."""
    Display().display(f"  [{host}] {line}" if host else f"  {line}")


def in_fork(
    act: Callable[[], NoReturn],
    environment: Mapping[str, str],
    folder: str,
    *,
    progress: Callable[[str], None] | None = None,
) -> tuple[int, str, str]:
    """Run a function in a fork of this process. Return its exit code, standard output and standard error.

    `progress` receives each line that the fork reports while it runs.
    """
    with _scratch() as out, _scratch() as err, _Lines(progress) as lines:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            lines.write_from_here()
            _become(act, environment, folder, (out, err))
        try:
            lines.pass_on()
            _pid, status = os.waitpid(child, 0)
        except BaseException:
            # After a timeout of the task or Ctrl-C, the result of the module is not needed.
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            raise
        return os.waitstatus_to_exitcode(status), _text(out), _text(err)


class _Lines:
    """A pipe from the fork, for lines to show while the fork runs."""

    def __init__(self, show: Callable[[str], None] | None) -> None:
        self._show = show
        self._ends = os.pipe() if show else None

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_error: object) -> None:
        for end in self._ends or ():
            with contextlib.suppress(OSError):
                os.close(end)

    def write_from_here(self) -> None:
        """Open the stream that modules report to. Call this in the fork."""
        if self._ends:
            os.close(self._ends[0])
            open_stream(os.fdopen(self._ends[1], "w", encoding="utf-8", errors="replace"))

    def pass_on(self) -> None:
        """Forward lines until the fork ends or closes its end of the pipe."""
        if not self._ends or not self._show:
            return
        (source, target), self._ends = self._ends, None
        os.close(target)
        with open(source, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._show(line.rstrip("\n"))


def _scratch() -> IO[bytes]:
    """Open an unnamed temporary file, in memory if the system supports it, because results may contain secrets."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("vgpu.fleet"), "w+b")
    return tempfile.TemporaryFile()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="surrogateescape")


def _become(
    act: Callable[[], NoReturn], environment: Mapping[str, str], folder: str, output: Iterable[IO[bytes]]
) -> NoReturn:
    code = 1
    try:
        _reset_signals((signal.SIGALRM, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Exit handlers of the worker must not run in the fork.
        atexit._clear()
        with open(os.devnull, "rb") as nothing:
            for number, file in enumerate((nothing, *output)):
                os.dup2(file.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = (_stream(number, mode) for number, mode in enumerate("rww"))
        os.environ.update(environment)
        os.chdir(folder)
        act()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _stream(number: int, mode: str) -> IO[str]:
    return open(number, mode, encoding="utf-8", errors="surrogateescape", closefd=False)


def _reset_signals(signals: Iterable[signal.Signals]) -> None:
    signal.alarm(0)
    for number in signals:
        signal.signal(number, signal.SIG_DFL)
