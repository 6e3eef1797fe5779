"""Commands of Ansible without their start-up: each run is a fork of a process that has imported Ansible already.

It is the same program with the same arguments, environment, folder and files. Ansible reads its settings while it is
imported, so there is one such process for each set of them. A command that is asked for in vain, such as by a test
that ends early, is interrupted as by Ctrl-C.

    with started() as environment:    # a PATH whose ansible-playbook is the quick one
        subprocess.run(["ansible-playbook", ...], env={**os.environ, **environment})
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from tests.integration import warm_python

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
COMMANDS = {
    "ansible": "ansible.cli.adhoc",
    "ansible-config": "ansible.cli.config",
    "ansible-galaxy": "ansible.cli.galaxy",
    "ansible-inventory": "ansible.cli.inventory",
    "ansible-playbook": "ansible.cli.playbook",
}
# What runs load by themselves otherwise, and find there if it has been imported.
PLUGINS = (
    "ansible.executor.playbook_executor",
    "ansible.plugins.action.assert",
    "ansible.plugins.action.include_vars",
    "ansible.plugins.action.normal",
    "ansible.plugins.action.set_fact",
    "ansible.plugins.action.validate_argument_spec",
    "ansible.plugins.callback.default",
    "ansible.plugins.connection.local",
    "ansible.plugins.filter.core",
    "ansible.plugins.filter.mathstuff",
    "ansible.plugins.filter.urls",
    "ansible.plugins.filter.urlsplit",
    "ansible.plugins.inventory.host_list",
    "ansible.plugins.inventory.yaml",
    "ansible.plugins.shell.sh",
    "ansible.plugins.strategy.linear",
    "ansible.plugins.test.core",
    "ansible.plugins.test.files",
    "ansible.plugins.test.mathstuff",
    "ansible.plugins.test.uri",
    "ansible.plugins.vars.host_group_vars",
)
# What Ansible and the modules of this collection import from elsewhere, which knows nothing of Ansible's settings.
LIBRARIES = (
    "cryptography.hazmat.primitives.ciphers",
    "jinja2.nativetypes",
    "multiprocessing.queues",
    "packaging.version",
    "pyVim.connect",
    "urllib3",
    "yaml",
)
# What else Ansible and Python may look at while they are imported, besides ANSIBLE_CONFIG.
READ_EARLY = ("ANSIBLE_", "PYTHON", "LC_", "LANG", "HOME", "TERM", "NO_COLOR", "TMPDIR")
# Settings that are read in a run, not while Ansible is imported.
READ_LATE = {"ANSIBLE_CACHE_PLUGIN_CONNECTION"}
MOST_KINDS = 4
START_SECONDS = 300
GRACE_SECONDS = 10.0
SCRIPT = """\
#!{python} -IS
import sys

sys.path.insert(0, {folder!r})
import warm_python

sys.exit(warm_python.request({address!r}, [{command!r}, *sys.argv[1:]]))
"""


@contextlib.contextmanager
def started() -> Iterator[dict[str, str]]:
    """What to add to the environment of whoever starts a command of Ansible."""
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        folder = Path(name)
        address = folder / "socket"
        for command in COMMANDS:
            script = folder / "bin" / command
            script.parent.mkdir(exist_ok=True)
            script.write_text(
                SCRIPT.format(python=sys.executable, folder=str(HERE), address=str(address), command=command)
            )
            script.chmod(0o700)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.warm_ansible", str(address)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            # Ctrl-C in a terminal is for those who ask for runs.
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not address.exists():
                assert server.poll() is None, f"no warm Ansible: exit status {server.returncode}"
                assert time.monotonic() < deadline, "no warm Ansible in time"
                time.sleep(0.02)
            yield {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        finally:
            # It ends with its input, and takes what it has started along.
            assert server.stdin is not None
            server.stdin.close()
            server.wait()


class Kind:
    """A process that has imported Ansible with certain settings."""

    def __init__(self, run: dict[str, Any], files: list[int], not_theirs: Iterable[socket.socket]) -> None:
        self.ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            for one in (self.ours, *not_theirs):
                one.close()
            with contextlib.suppress(KeyboardInterrupt):
                _become_kind(theirs, run, files)
            os._exit(0)
        theirs.close()

    def start(self, connection: socket.socket, message: bytes, files: list[int]) -> None:
        warm_python.send(self.ours, message, [connection.fileno(), *files])

    def end(self) -> None:
        self.ours.close()
        os.waitpid(self.pid, 0)


def serve(address: str) -> None:
    """Pass each run on to a process with its settings, until the standard input ends."""
    _import(LIBRARIES)
    kinds: dict[str, Kind] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                break
            connection, _peer = listener.accept()
            with connection:
                message, files = warm_python.receive(connection, len(warm_python.STANDARD))
                if not message:
                    continue
                run = json.loads(message)
                key = _settings(run, files)
                # The one that was used last is the last to go.
                kinds[key] = (
                    kinds.pop(key)
                    if key in kinds
                    else Kind(run, files, (listener, connection, *(kind.ours for kind in kinds.values())))
                )
                if len(kinds) > MOST_KINDS:
                    kinds.pop(next(iter(kinds))).end()
                kinds[key].start(connection, message, files)
                for file in files:
                    os.close(file)
    for kind in kinds.values():
        kind.end()


def _import(names: Iterable[str]) -> None:
    """Import what there is of these: another release of Ansible may lack some."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _settings(run: dict[str, Any], files: list[int]) -> str:
    """Everything that Ansible may look at while it is imported."""
    environment = {
        name: value for name, value in run["env"].items() if name.startswith(READ_EARLY) and name not in READ_LATE
    }
    found: list[Any] = [run["argv"][0], run["cwd"], sorted(environment.items()), [os.isatty(file) for file in files]]
    for place in (environment.get("ANSIBLE_CONFIG"), Path(run["cwd"]) / "ansible.cfg"):
        with contextlib.suppress(OSError):
            found.append(Path(place).read_text() if place else None)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _become_kind(runs: socket.socket, first: dict[str, Any], files: list[int]) -> None:
    import gc

    _take_over(first, files)
    program = importlib.import_module(COMMANDS[first["argv"][0]])
    _import(PLUGINS)
    # These streams belong to the first run.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in warm_python.STANDARD:
        os.dup2(nothing, number)
    for file in files:
        os.close(file)
    # What is there now stays; copies need not look through it again.
    gc.freeze()
    while True:
        message, found = warm_python.receive(runs, 1 + len(warm_python.STANDARD))
        if not message:
            break
        connection, *passed = found
        if not os.fork():
            runs.close()
            _supervise(program, socket.socket(fileno=connection), json.loads(message), passed)
        for file in (connection, *passed):
            os.close(file)
        # Their CPU time counts for this process from here on.
        warm_python.reap()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _supervise(program: Any, connection: socket.socket, run: dict[str, Any], files: list[int]) -> NoReturn:
    """In a copy: run the command in a copy of the copy, and report how it ended."""
    child = os.fork()
    if not child:
        connection.close()
        _become_run(program, run, files)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([connection, ended], [], [])
    if ended not in ready:
        # Whoever asked for it has gone.
        os.kill(child, signal.SIGINT)
        if not select.select([ended], [], [], GRACE_SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
    _pid, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        connection.sendall(warm_python.STATUS.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _become_run(program: Any, run: dict[str, Any], files: list[int]) -> NoReturn:
    import atexit

    # What is to be cleaned up at the end belongs to the process that has imported Ansible.
    atexit._clear()
    _take_over(run, files)
    warm_python.end_with(lambda: program.main(sys.argv))


def _take_over(run: dict[str, Any], files: list[int]) -> None:
    for number, file in zip(warm_python.STANDARD, files, strict=True):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(run["env"])
    os.chdir(run["cwd"])
    sys.argv = run["argv"]
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering=1 if number == 2 or os.isatty(number) else -1, closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )


if __name__ == "__main__":
    # The checkout, where Python looks first for a module that it is told to run.
    del sys.path[0]
    serve(sys.argv[1])
