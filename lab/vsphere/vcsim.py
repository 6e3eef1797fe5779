"""Start and stop the simulated vCenter, and return the environment to reach it."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.programs import processes
from lab.rundir import RunDir, write_atomically
from lab.vsphere.inventory import API_VERSIONS, inventory_from_scenario

__all__ = ["API_VERSIONS", "VsphereInfo", "env", "info", "inventory_from_scenario", "start", "stop"]

NAME = "vcsim"
USER = "administrator@vsphere.local"
READY_SECONDS = 120.0
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class VsphereInfo:
    host: str
    port: int
    user: str
    password: str
    pid: int
    control_url: str
    certificate: str


def start(
    run_dir: RunDir | Path,
    inventory: dict[str, Any],
    *,
    api_version: str = API_VERSIONS[0],
    binary: Path,
    port: int = 0,
    timeout: float = READY_SECONDS,
) -> VsphereInfo:
    """Start a vCenter with this inventory on a loopback port, and return when it responds."""
    run = _run(run_dir)
    directory = _directory(run)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ready = directory / "ready.json"
    ready.unlink(missing_ok=True)
    write_atomically(directory / "inventory.json", json.dumps(inventory))
    login = {"user": USER, "password": secrets.token_urlsafe(16)}
    write_atomically(directory / "credentials.json", json.dumps(login))
    log = run.log(NAME)
    log.unlink(missing_ok=True)
    pid = processes.spawn(
        run,
        NAME,
        [
            binary,
            *("-inventory", directory / "inventory.json"),
            *("-credentials", directory / "credentials.json"),
            *("-state-dir", directory),
            *("-ready-file", ready),
            *("-api-version", api_version),
            *("-port", str(port)),
        ],
        grace=2.0,
    )
    deadline = time.monotonic() + timeout
    while not ready.exists():
        if not processes.is_running(run, NAME):
            raise LabError(f"The vCenter did not start: {_last_words(log)}")
        if time.monotonic() > deadline:
            stop(run)
            raise LabError(f"The vCenter did not respond within {timeout:.0f} s.", hint=f"See {log}.")
        time.sleep(POLL_SECONDS)
    answer = json.loads(ready.read_text())
    vcenter = VsphereInfo(
        host=answer["host"],
        port=answer["port"],
        user=login["user"],
        password=login["password"],
        pid=pid,
        control_url=answer["control_url"],
        certificate=answer["certificate"],
    )
    run.update(vsphere=asdict(vcenter) | {"password": None})
    return vcenter


def info(run_dir: RunDir | Path) -> VsphereInfo | None:
    """Return the running vCenter of a lab, or None."""
    run = _run(run_dir)
    recorded = run.read().get("vsphere")
    if not recorded or not processes.is_running(run, NAME):
        return None
    login = json.loads((_directory(run) / "credentials.json").read_text())
    return VsphereInfo(**(recorded | {"password": login["password"]}))


def stop(run_dir: RunDir | Path) -> None:
    processes.stop(_run(run_dir), NAME)


def env(vcenter: VsphereInfo) -> dict[str, str]:
    """Return the variables for vmware.vmware and our modules. Verification of the self-signed certificate is off."""
    return {
        "VMWARE_HOST": vcenter.host,
        "VMWARE_PORT": str(vcenter.port),
        "VMWARE_USER": vcenter.user,
        "VMWARE_PASSWORD": vcenter.password,
        "VMWARE_VALIDATE_CERTS": "false",
    }


def _run(run_dir: RunDir | Path) -> RunDir:
    return run_dir if isinstance(run_dir, RunDir) else RunDir(run_dir)


def _directory(run: RunDir) -> Path:
    return run.path / "vsphere"


def _last_words(log: Path) -> str:
    lines = log.read_text().splitlines() if log.exists() else []
    return lines[-1].removeprefix("vgpu-vcsim: ") if lines else "it wrote no message."
