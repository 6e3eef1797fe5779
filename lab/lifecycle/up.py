"""Start, reset and stop a lab."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import hints
from lab.capv import management
from lab.errors import LabError
from lab.harvester import definitions, versions, wipe
from lab.kubernetes import controlplane, kubevirt
from lab.kubernetes.client import Json
from lab.kubernetes.gate_orders import order
from lab.lifecycle.control import Control
from lab.lifecycle.running import EXTRAS, HARVESTER, PARTS, all_processes, environment, stop
from lab.programs import binaries, processes
from lab.rancher.server import rancher
from lab.rundir import RunDir
from lab.scenarios import scenario as scenarios
from lab.vsphere import vcsim

__all__ = ["environment", "reset", "start", "stop"]

VCSIM = "vgpu-vcsim"
START_TIMEOUT = 300.0
START_TIMEOUT_PER_NODE = 5.0


def start(
    run_dir: Path | str,
    *,
    scenario: str = "default",
    nodes: int | None = None,
    harvester_version: str = versions.DEFAULT,
    vsphere_version: str = vcsim.API_VERSIONS[0],
    speed: float = 1.0,
    without: Collection[str] = (),
    extra: Collection[str] = (),
    only: str | None = None,
) -> RunDir:
    for chosen, known in ((without, PARTS), (extra, EXTRAS)):
        unknown = set(chosen) - set(known)
        if unknown:
            raise LabError(
                f"The lab has no part {', '.join(sorted(unknown))}.", hint=f"Available parts: {', '.join(known)}."
            )
    if not 0 <= speed < math.inf:
        raise LabError(
            f"--speed must be a finite number of at least 0, not {speed:g}.", hint="1 is real time; 0 stops the clock."
        )
    if "rancher" in extra and ("kubevirt" in without or only == "vsphere"):
        raise LabError(
            "Rancher needs Harvester and KubeVirt.", hint="Start the lab without --without kubevirt and --only vsphere."
        )
    wanted = scenarios.load(scenario, nodes)
    versions.named(harvester_version)
    run = RunDir(run_dir)
    if any(process.running for process in all_processes(run)):
        raise LabError(
            f"A lab is already running in {run.path}.",
            hint=f"Choose another --run-dir, or stop it: {hints.call('down', run)}",
        )
    clean(run)
    with_vsphere = _wants_vsphere(wanted, without, only)
    if "capv" in extra and not with_vsphere:
        raise LabError(
            "Cluster API's provider for vSphere needs vSphere.", hint="Start the lab with a scenario that has vsphere."
        )
    with_harvester = only != "vsphere"
    with_kubevirt = with_harvester and "kubevirt" not in without
    built = binaries.ensure(
        [
            *(controlplane.BINARIES if with_harvester or "capv" in extra else ()),
            *(kubevirt.BINARIES if with_kubevirt else ()),
            *((VCSIM,) if with_vsphere else ()),
        ]
    )
    run.create()
    run.update(
        settings={
            "scenario": str(scenarios.find(scenario).absolute()),
            "nodes": nodes,
            "harvester_version": harvester_version,
            "vsphere_version": vsphere_version,
            "speed": speed,
            "without": sorted(without),
            "with": sorted(extra),
            "vcsim": str(built[VCSIM]) if with_vsphere else None,
        }
    )
    try:
        if with_vsphere:
            _start_vsphere(run)
        if "capv" in extra:
            management.start(run, built, speed=speed)
        if with_harvester:
            _start_parts(run, built, with_kubevirt=with_kubevirt)
    except BaseException:
        stop(run)
        raise
    return run


def _wants_vsphere(wanted: scenarios.Scenario, without: Collection[str], only: str | None) -> bool:
    if only == "vsphere" and not wanted.vsphere:
        raise LabError(f"The scenario {wanted.name} has no vsphere section.")
    return bool(wanted.vsphere) and "vsphere" not in without and only in (None, "vsphere")


def _start_vsphere(run: RunDir) -> None:
    settings = run.read()["settings"]
    inventory = vcsim.inventory_from_scenario(scenarios.load(settings["scenario"], settings.get("nodes")).vsphere)
    vcsim.start(run, inventory, api_version=settings["vsphere_version"], binary=Path(settings["vcsim"]))


def _start_parts(run: RunDir, built: dict[str, Path], *, with_kubevirt: bool) -> None:
    with ThreadPoolExecutor() as pool:
        beside = [pool.submit(rancher.start_api, run, built)] if "rancher" in run.read()["settings"]["with"] else []

        def early() -> None:
            # These compute for seconds before they need the API server, and then wait for it.
            if with_kubevirt:
                kubevirt.start_early(run, built)
            for part in beside:
                part.result()
            _spawn_harvester(run)

        controlplane.start_api(run, built, meanwhile=early)
        kubevirt.install_crds(run, runs=with_kubevirt, others=_definitions(run))
        controlplane.start_controllers(run)
        parts = [
            pool.submit(_wait_for_harvester, run),
            pool.submit(controlplane.wait_ready, run),
            pool.submit(_start_kubevirt, run, built) if with_kubevirt else pool.submit(kubevirt.create_cr, run),
        ]
        for part in parts:
            part.result()


def _definitions(run: RunDir) -> list[Json]:
    """What the scenario's beginning has; what is defined later, the garbage collector finds within half a minute."""
    settings = run.read()["settings"]
    begin = scenarios.load(settings["scenario"], settings.get("nodes"))
    devices = definitions.device_definitions(versions.named(settings["harvester_version"]))
    return [*definitions.core_definitions(), *(devices if begin.addons[scenarios.PCIDEVICES] else [])]


def _start_kubevirt(run: RunDir, built: dict[str, Path]) -> None:
    kubevirt.create_cr(run)
    kubevirt.start(run, built)
    kubevirt.wait_ready(run)


def _spawn_harvester(run: RunDir) -> None:
    settings = run.read()["settings"]
    processes.spawn(
        run,
        HARVESTER,
        [
            sys.executable,
            "-m",
            "lab.simulation.daemon",
            f"--run-dir={run.path}",
            f"--scenario={settings['scenario']}",
            *([f"--nodes={settings['nodes']}"] if settings.get("nodes") else []),
            f"--harvester-version={settings['harvester_version']}",
            f"--speed={settings['speed']}",
            f"--without={','.join(settings['without'])}",
            f"--with={','.join(settings['with'])}",
        ],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )


def _restarted(run: RunDir) -> bool:
    """Restart the simulation in its own process, and return whether that succeeded."""
    settings = run.read()["settings"]
    try:
        generation = Control(run).restart(
            {
                **{name: settings[name] for name in ("scenario", "harvester_version", "speed")},
                "nodes": settings.get("nodes"),
                "without": ",".join(settings["without"]),
            }
        )
        _wait_for_harvester(run, generation)
    except LabError:
        return False
    return True


def _wait_for_harvester(run: RunDir, generation: int = 0) -> None:
    control = Control(run)
    patience = START_TIMEOUT + START_TIMEOUT_PER_NODE * (run.read()["settings"].get("nodes") or 0)
    deadline = time.monotonic() + patience
    while True:
        try:
            status = control.status()
        except LabError:
            status = {"failed": None, "ready": False}
            if not processes.is_running(run, HARVESTER):
                raise _not_started(run, "it ended") from None
        if status["failed"]:
            raise _not_started(run, status["failed"])
        if status["ready"] and status["generation"] == generation:
            return
        if time.monotonic() > deadline:
            raise _not_started(run, f"not ready after {patience:.0f} s")
        time.sleep(0.05)


def _not_started(run: RunDir, reason: str) -> LabError:
    return LabError(f"The simulated Harvester did not start: {reason}.", hint=f"See {run.log(HARVESTER)}.")


def reset(run_dir: RunDir | Path | str) -> None:
    """Reset the lab to the initial state of its scenario, without restarting the control plane."""
    run = run_dir if isinstance(run_dir, RunDir) else RunDir(run_dir)
    settings = run.read().get("settings")
    if settings is None or not any(process.running for process in processes.status(run)):
        raise LabError(f"No lab is running in {run.path}.", hint=hints.start(run))
    if settings["vcsim"]:
        vcsim.stop(run)
        _start_vsphere(run)
    if "capv" in settings["with"]:
        management.restart(run)
    if "server" not in run.read():
        return
    order(run, "clear")
    if not _restarted(run):
        processes.stop(run, HARVESTER)
        begin = scenarios.load(settings["scenario"], settings.get("nodes"))
        wipe.everything(run, definitions=not begin.addons[scenarios.PCIDEVICES])
        if "rancher" in settings["with"]:
            rancher.forget(run)
        _spawn_harvester(run)
        _wait_for_harvester(run)


def clean(run: RunDir) -> None:
    """Delete what an earlier lab left in the directory, including its logs."""
    if not run.exists():
        if run.path.exists() and any(run.path.iterdir()):
            raise LabError(f"{run.path} is not empty and does not belong to a lab.", hint="Choose another --run-dir.")
        return
    for entry in run.path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
