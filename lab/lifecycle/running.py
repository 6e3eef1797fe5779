"""Query and stop a running lab, without the packages that starting one needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from lab import hints
from lab.errors import LabError
from lab.programs import processes
from lab.rundir import RunDir
from lab.vsphere import vcsim

PARTS = ("kubevirt", "vsphere", "core-webhook")
EXTRAS = ("rancher", "capv")
HARVESTER = "harvester"


def stop(run_dir: RunDir | Path | str) -> None:
    run = run_dir if isinstance(run_dir, RunDir) else RunDir(run_dir)
    if run.exists():
        # The lab's own processes first: one of them starts further clusters.
        processes.stop_all(run)
        for cluster in further_clusters(run):
            processes.stop_all(cluster)


def further_clusters(run: RunDir) -> Iterator[RunDir]:
    """Yield the run directories of Rancher, the management cluster and the guest clusters inside that of the lab."""
    beside = [state for name in EXTRAS for state in run.path.glob(f"{name}/state.json")]
    for state in sorted([*beside, *run.path.glob("guests/*/state.json")]):
        yield RunDir(state.parent)


def all_processes(run: RunDir) -> list[processes.ProcessStatus]:
    """Return all processes in start order. The cluster's name is a prefix for those of other clusters."""
    statuses = processes.status(run)
    for cluster in further_clusters(run):
        statuses += [
            replace(process, name=f"{cluster.path.name}/{process.name}") for process in processes.status(cluster)
        ]
    return statuses


def environment(run: RunDir) -> dict[str, str]:
    """Return the environment variables for users of the lab."""
    if not any(process.running for process in all_processes(run)):
        raise LabError(f"No lab is running in {run.path}.", hint=hints.start(run))
    state = run.read()
    exports = {"LAB_RUN_DIR": str(run.path)}
    if "server" in state:
        exports |= {
            "KUBECONFIG": str(run.kubeconfig("admin")),
            "K8S_AUTH_KUBECONFIG": str(run.kubeconfig("admin")),
            "LAB_API_SERVER": state["server"],
            "LAB_CA_FILE": str(run.pki / "ca.crt"),
            "LAB_CLIENT_CERT": str(run.pki / "client-admin.crt"),
            "LAB_CLIENT_KEY": str(run.pki / "client-admin.key"),
            "LAB_AUDIT_LOG": str(run.audit_log),
        }
    exports |= _rancher(run) | _capv(run)
    vcenter = vcsim.info(run)
    if vcenter is not None:
        exports |= vcsim.env(vcenter)
    return exports


def _rancher(run: RunDir) -> dict[str, str]:
    if "rancher" not in run.read():
        return {}
    from lab.rancher.server import rancher

    return rancher.environment(run)


def _capv(run: RunDir) -> dict[str, str]:
    if "capv" not in run.read():
        return {}
    from lab.capv import management

    return management.environment(run)


def log_files(run: RunDir, names: Iterable[str]) -> list[Path]:
    files = {path.stem: path for path in sorted(run.logs.glob("*.log"))}
    for cluster in further_clusters(run):
        files |= {f"{cluster.path.name}/{path.stem}": path for path in sorted(cluster.logs.glob("*.log"))}
    if not files:
        raise LabError(f"No lab is running in {run.path}.", hint=hints.start(run))
    for name in names:
        if name not in files:
            raise LabError(f"The lab has no part {name}.", hint=f"Available parts: {', '.join(files)}.")
    chosen = set(names)
    return [path for name, path in files.items() if not chosen or name in chosen]
