"""Start, reset and stop the management cluster of a lab."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path

from lab.capv import definitions
from lab.capv.resources import VERSIONS, Resources
from lab.errors import LabError
from lab.kubernetes import controlplane
from lab.kubernetes.client import ApiError, Client
from lab.kubernetes.custom_resources import DEFINITIONS
from lab.programs import processes
from lab.rundir import RunDir

NAME = "capv"
START_TIMEOUT = 120.0
POLL_SECONDS = 0.05
ADDRESS = "10.52.1.1"


def folder(run: RunDir) -> RunDir:
    """Return the run directory of the management cluster, which is inside that of the lab."""
    return RunDir(run.path / "capv")


def start(
    run: RunDir,
    programs: dict[str, Path],
    *,
    speed: float,
    version: str = VERSIONS[0],
    guests: bool = True,
) -> None:
    """Start the API server of the management cluster and its controllers. It needs no scheduler."""
    own = folder(run)
    controlplane.start_api(own, programs)
    own.update(settings={"nodes": 0})
    run.update(capv={"version": version, "speed": speed, "guests": guests})
    _spawn(run)


def _spawn(run: RunDir) -> None:
    own, recorded = folder(run), run.read()["capv"]
    run.update(capv=recorded | {"served": recorded["version"]})
    ready = own.path / "ready"
    ready.unlink(missing_ok=True)
    processes.spawn(
        run,
        NAME,
        [
            sys.executable,
            "-m",
            "lab.capv.daemon",
            f"--run-dir={run.path}",
            f"--speed={recorded['speed']}",
            f"--version={recorded['version']}",
            *(["--guests"] if recorded["guests"] else []),
        ],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    deadline = time.monotonic() + START_TIMEOUT
    while not ready.exists():
        if not processes.is_running(run, NAME) or time.monotonic() > deadline:
            raise LabError("The simulated Cluster API did not start.", hint=f"See {run.log(NAME)}.")
        time.sleep(POLL_SECONDS)


def restart(run: RunDir, *, version: str | None = None, guests: bool | None = None) -> None:
    """Begin anew with an empty management cluster, possibly in another API version."""
    recorded = run.read()["capv"]
    stop(run)
    asyncio.run(_wipe(run, recorded["served"]))
    recorded |= {key: value for key, value in (("version", version), ("guests", guests)) if value is not None}
    run.update(capv=recorded)
    _spawn(run)


def stop(run: RunDir) -> None:
    processes.stop(run, NAME)
    for one in sorted((run.path / "guests").glob("*")):
        guest = RunDir(one)
        if guest.exists():
            processes.stop_all(guest)
        shutil.rmtree(one, ignore_errors=True)


async def _wipe(run: RunDir, version: str) -> None:
    """Delete all objects and definitions. Their finalizers go first, since no controller runs."""
    async with Client.from_kubeconfig(folder(run).kubeconfig("harvester")) as client:
        for resource in Resources(version).watched:
            for one in (await client.get(resource.collection))["items"]:
                path = resource.path(one["metadata"]["name"], one["metadata"]["namespace"])
                if one["metadata"].get("finalizers"):
                    await client.patch(path, {"metadata": {"finalizers": None}})
                await _delete(client, path)
        names = definitions.names()
        for name in names:
            await _delete(client, f"{DEFINITIONS}/{name}")
        while [name for name in names if await client.get_or_none(f"{DEFINITIONS}/{name}")]:
            await asyncio.sleep(POLL_SECONDS)


async def _delete(client: Client, path: str) -> None:
    try:
        await client.delete(path)
    except ApiError as error:
        if error.status != 404:
            raise


def environment(run: RunDir) -> dict[str, str]:
    """Return the environment variables for users of the lab."""
    recorded = run.read().get("capv")
    if not recorded:
        return {}
    own = folder(run)
    return {
        "LAB_CAPV_KUBECONFIG": str(own.kubeconfig("admin")),
        "LAB_CAPV_AUDIT_LOG": str(own.audit_log),
        "LAB_CAPV_VERSION": recorded["version"],
        "LAB_CAPV_ENDPOINT": ADDRESS,
    }
