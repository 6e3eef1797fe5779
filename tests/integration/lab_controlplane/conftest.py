"""Control planes for these tests: one for the session, and more where a test needs its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.kubernetes import controlplane
from lab.programs import binaries, processes
from lab.rundir import RunDir
from tests.integration.lab_controlplane.callers import Api, Json


@pytest.fixture(scope="session")
def built() -> dict[str, Path]:
    return binaries.ensure(controlplane.BINARIES)


@pytest.fixture(scope="session")
def api(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    run = RunDir(tmp_path_factory.mktemp("controlplane"))
    try:
        controlplane.start(run, built)
        yield Api(run)
    finally:
        processes.stop_all(run)


@pytest.fixture
def own_run(tmp_path: Path) -> Iterator[RunDir]:
    run = RunDir(tmp_path / "run")
    yield run
    processes.stop_all(run)


_namespaces = itertools.count()


@pytest.fixture
def namespace(api: Api) -> str:
    name = f"test-{next(_namespaces)}"
    api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def node(api: Api) -> Iterator[Callable[[Json], str]]:
    """Plays the kubelet: a Node that is ready and has the given resources."""
    made: list[str] = []

    def add(resources: Json) -> str:
        name = f"node-{next(_namespaces)}"
        api("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        made.append(name)
        amounts = {"cpu": "32", "memory": "128Gi", "pods": "110", **resources}
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        patch = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions}}
        api("PATCH", f"/api/v1/nodes/{name}/status", patch, content_type="application/merge-patch+json")
        api("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, content_type="application/merge-patch+json")
        return name

    yield add
    for name in made:
        api("DELETE", f"/api/v1/nodes/{name}")
