"""Start and stop the unchanged simulator of govmomi: a second vCenter, or an ESXi host, for the tests."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.programs import processes
from lab.rundir import RunDir

NAME = "stock-vcsim"
USER = "administrator@vsphere.local"
READY_SECONDS = 60.0
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class StockServer:
    host: str
    port: int
    user: str
    password: str

    @property
    def env(self) -> dict[str, str]:
        """Return the variables for our modules. Verification of the self-signed certificate is off."""
        return {
            "VMWARE_HOST": self.host,
            "VMWARE_PORT": str(self.port),
            "VMWARE_USER": self.user,
            "VMWARE_PASSWORD": self.password,
            "VMWARE_VALIDATE_CERTS": "false",
        }


def start(
    run_dir: Path,
    *,
    binary: Path,
    esx: bool = False,
    load: Path | None = None,
    datacenters: int = 1,
    folders: int = 0,
) -> StockServer:
    """Start a server on a loopback port: govmomi's default inventory, or the saved model in the directory `load`."""
    run = RunDir(run_dir)
    directory = run.path / "stock"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ready = directory / "ready.json"
    ready.unlink(missing_ok=True)
    password = secrets.token_urlsafe(16)
    options: list[str | Path] = ["-ready-file", ready, "-datacenters", str(datacenters), "-folders", str(folders)]
    options += ["-esx"] if esx else []
    options += ["-load", load] if load else []
    # The simulator keeps the files of its datastores in the directory for temporary files.
    env = {"STOCK_VCSIM_USER": USER, "STOCK_VCSIM_PASSWORD": password, "TMPDIR": str(directory)}
    processes.spawn(run, NAME, [binary, *options], env, grace=2.0)
    deadline = time.monotonic() + READY_SECONDS
    while not ready.exists():
        if not processes.is_running(run, NAME):
            raise LabError(f"The stock simulator did not start: {run.log(NAME).read_text().strip()}")
        if time.monotonic() > deadline:
            stop(run_dir)
            raise LabError(f"The stock simulator did not respond within {READY_SECONDS:.0f} s.")
        time.sleep(POLL_SECONDS)
    answer = json.loads(ready.read_text())
    return StockServer(answer["host"], int(answer["port"]), USER, password)


def stop(run_dir: Path) -> None:
    processes.stop(RunDir(run_dir), NAME)
