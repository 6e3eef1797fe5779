"""A control plane without HelmChart objects, a real helm, and a repository with a chart in the operator's place."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lab.kubernetes import controlplane
from lab.programs import binaries, processes
from lab.rundir import RunDir
from tests.integration.api import Api
from tests.integration.modules.playbooks import Playbooks

CHART = Path(__file__).parents[1] / "data/gpu-operator-chart"


@pytest.fixture(scope="session")
def helm() -> Path:
    """Compiled once, in about three minutes of CPU time."""
    return binaries.ensure_helm()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDir]:
    run = RunDir(tmp_path_factory.mktemp("controlplane"))
    try:
        controlplane.start(run, binaries.ensure(controlplane.BINARIES))
        yield run
    finally:
        processes.stop_all(run)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where helm keeps its caches."""
    return tmp_path_factory.mktemp("helm")


@pytest.fixture(scope="session")
def environment(cluster: RunDir, helm: Path, home: Path) -> dict[str, str]:
    return {
        "K8S_AUTH_KUBECONFIG": str(cluster.kubeconfig("admin")),
        "KUBECONFIG": str(cluster.kubeconfig("admin")),
        "PATH": f"{helm.parent}:{os.environ['PATH']}",
        **{f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")},
    }


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture(scope="session")
def repository(helm: Path, home: Path, environment: dict[str, str]) -> Iterator[str]:
    """The URL of a chart repository."""
    folder = home / "repository"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    url = f"http://127.0.0.1:{server.server_port}"
    for command in (
        ["package", str(CHART), "--destination", str(folder)],
        ["repo", "index", str(folder), "--url", url],
    ):
        subprocess.run([str(helm), *command], env={**os.environ, **environment}, check=True, stdout=subprocess.DEVNULL)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield url
    server.shutdown()
    server.server_close()


@pytest.fixture
def api(cluster: RunDir) -> Api:
    return Api(cluster.kubeconfig("admin"))


@pytest.fixture
def playbooks(tmp_path: Path, environment: dict[str, str]) -> Playbooks:
    return Playbooks(tmp_path, environment)
