"""A Python for modules that is already running: each module is a fork of one process that has imported what all need.

A module is what Ansible sends, a file that brings its own code along, and runs in a process of its own. Only what comes
from elsewhere, Ansible's side of modules and the packages, is there before: to import it takes longer than all the rest
of most tasks.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

IMPORTED = ("ansible.module_utils._internal._ansiballz._loader", "ansible.module_utils.basic", "urllib3", "yaml")
# What Ansible starts as its interpreter: it hands its own files, arguments and environment over, and waits for the end.
CLIENT = """#!{python} -IS
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
order = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(connection, [len(order).to_bytes(4, "big")], [0, 1, 2])
connection.sendall(order)
answer = connection.recv(1)
os._exit(answer[0] if answer else 1)
"""


class WarmPython:
    """`interpreter` is what to set as `ansible_python_interpreter`."""

    def __init__(self, folder: Path) -> None:
        address = folder / "modules.sock"
        self.interpreter = folder / "python"
        self.interpreter.write_text(CLIENT.format(python=sys.executable, address=str(address)))
        self.interpreter.chmod(0o700)
        self._process = subprocess.Popen([sys.executable, __file__, str(address)], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the process that runs modules has not started"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def _serve(address: str) -> None:
    for name in IMPORTED:
        # Older releases of Ansible have not all of them.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    print("ready", flush=True)
    # Nobody waits for the children: the client is told by the child itself.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _address = listening.accept()
        if not os.fork():
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(connection)
        connection.close()


def _become(connection: socket.socket) -> None:
    code = 1
    try:
        arguments = _take_over(connection)
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(bytes([code & 255]))
        os._exit(code & 255)


def _take_over(connection: socket.socket) -> list[str]:
    length, files, _flags, _sender = socket.recv_fds(connection, 4, 3)
    order = b""
    while len(order) < int.from_bytes(length, "big"):
        order += connection.recv(65536)
    arguments, environment, folder = json.loads(order)
    for target, source in enumerate(files):
        os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    found: list[str] = arguments
    return found


if __name__ == "__main__":
    _serve(sys.argv[1])
