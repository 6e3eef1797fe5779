"""The run directory of a lab: everything that it writes, and what is needed to find and stop it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.errors import LabError

# sun_path holds 108 bytes on Linux and 104 on macOS, with the closing zero.
LONGEST_SOCKET_PATH = 100


class RunDir:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().absolute()
        self.logs = self.path / "logs"
        self.pki = self.path / "pki"
        self.kubeconfigs = self.path / "kubeconfig"
        self.etcd = self.path / "etcd"
        self.state_file = self.path / "state.json"
        self.audit_log = self.path / "audit.log"

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    @property
    def control_socket(self) -> Path:
        return self._socket("control")

    @property
    def gate_socket(self) -> Path:
        return self._socket("gate")

    def _socket(self, name: str) -> Path:
        """Return the path of a socket, in the run directory unless that path is too long."""
        inside = self.path / f"{name}.sock"
        if len(os.fsencode(inside)) <= LONGEST_SOCKET_PATH:
            return inside
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"vgpu-fleet-{os.getuid()}-{digest}-{name}.sock"

    def kubeconfig(self, name: str = "admin") -> Path:
        return self.kubeconfigs / f"{name}.yaml"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def create(self) -> RunDir:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in (self.logs, self.pki, self.kubeconfigs, self.etcd):
            directory.mkdir(exist_ok=True, mode=0o700)
        return self

    def exists(self) -> bool:
        return self.state_file.exists()

    def read(self) -> dict[str, Any]:
        """Return the recorded state, empty for a directory without a lab."""
        try:
            state = json.loads(self.state_file.read_text())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise LabError(
                f"{self.state_file} is not valid JSON: {error}.",
                hint="It belongs to another program or was edited. Use another --run-dir.",
            ) from error
        if not isinstance(state, dict):
            raise LabError(f"{self.state_file} does not contain the state of a lab.", hint="Use another --run-dir.")
        return state

    @contextmanager
    def editing(self) -> Iterator[dict[str, Any]]:
        """Read, change and write the state as one step, also against other processes."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.path / "state.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.read()
            yield state
            write_atomically(self.state_file, json.dumps(state, indent=2) + "\n")

    def update(self, **changes: Any) -> dict[str, Any]:
        with self.editing() as state:
            state.update(changes)
        return state


def write_atomically(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file so that readers see either the old or the new text."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
