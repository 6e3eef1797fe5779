"""Control a running lab: time, faults, reboots and hardware."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from lab import hints
from lab.errors import LabError
from lab.faults import Options, checked
from lab.rundir import RunDir


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Control:
    def __init__(self, run_dir: RunDir | Path | str) -> None:
        self._run = run_dir if isinstance(run_dir, RunDir) else RunDir(run_dir)
        self._connection: _UnixConnection | None = None
        # The simulated time of the next event that is known of, since the last advance or settle.
        self.next_due: float | None = None

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        for attempt in (1, 2):
            if self._connection is None:
                self._connection = _UnixConnection(self._run.control_socket, timeout=600)
            try:
                self._connection.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
                response = self._connection.getresponse()
                text = response.read()
                break
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                self._connection = None
                if attempt == 2:
                    raise LabError(
                        f"The lab in {self._run.path} does not respond.", hint=hints.start(self._run)
                    ) from error
        if response.status >= 500:
            raise LabError(
                f"The lab failed to handle {path}: {text.decode()[:500]}",
                hint=f"Read the logs: {hints.call('logs', self._run)}",
            )
        answer: dict[str, Any] = json.loads(text)
        if response.status >= 400:
            raise LabError(answer["error"])
        return answer

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/status")

    def hardware(self, node: str) -> dict[str, Any]:
        """Return the GPUs of a node by address, each function with its type id or None."""
        return self._call("GET", f"/hardware/{node}")

    def set_hardware(self, node: str, address: str, *, mig_capable: bool) -> None:
        """Make a GPU MIG-capable as on the host of the recordings, or not."""
        self._call("POST", f"/hardware/{node}", {"address": address, "mig_capable": mig_capable})

    def now(self) -> float:
        return float(self.status()["now"])

    def settle(self) -> None:
        """Wait until the simulation has reacted to all writes, as far as that takes no simulated time."""
        self.next_due = self._call("POST", "/settle")["next"]

    def advance(self, seconds: float) -> float:
        answer = self._call("POST", "/advance", {"seconds": seconds})
        self.next_due = answer["next"]
        return float(answer["now"])

    def speed(self, speed: float) -> None:
        self._call("POST", "/speed", {"speed": speed})

    def reboot(self, node: str) -> None:
        self._call("POST", "/reboot", {"node": node})

    def process(self, node: str, action: str) -> None:
        """Kill or start (`action`) the pcidevices process of a node, or of all nodes with `*`."""
        self._call("POST", "/process", {"node": node, "action": action})

    def restart(self, settings: dict[str, Any]) -> int:
        """Restart the simulation with other settings, and return the generation that `status` will report."""
        return int(self._call("POST", "/restart", settings)["generation"])

    def fault(
        self,
        name: str,
        on: bool = True,
        node: str | None = None,
        *,
        every: int | None = None,
        seconds: float | None = None,
    ) -> None:
        if name == "apiserver-restart" and on:
            from lab.kubernetes import controlplane

            checked(name, on, Options(node, every, seconds))
            controlplane.restart_apiserver(self._run)
            return
        body = {"name": name, "on": on, "node": node, "every": every, "seconds": seconds}
        self._call("POST", "/fault", body)
