"""One lab with a Rancher for all tests here: each begins without clusters, with four A2-4Q and two A2-8Q to give."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.lifecycle import up
from lab.rundir import RunDir
from tests.integration import warm_interpreter
from tests.integration.labs import Lab
from tests.integration.modules.playbooks import Playbooks
from tests.integration.ranchers import Rancher
from tests.integration.warm_interpreter import Warm

FOUR_4Q = dict.fromkeys((f"gpu-a-00000800{function}" for function in "4567"), "NVIDIA A2-4Q")
TWO_8Q = dict.fromkeys((f"gpu-b-00000800{function}" for function in "45"), "NVIDIA A2-8Q")


def vgpus_to_give(lab: Lab) -> None:
    lab.enable_gpus("gpu-a-000008000", "gpu-b-000008000")
    lab.enable_vgpus(FOUR_4Q | TWO_8Q)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of our own, or the one in RANCHER_LAB, which then starts over."""
    given = os.environ.get("RANCHER_LAB")
    run = RunDir(given) if given else None
    if run is None:
        run = up.start(tmp_path_factory.mktemp("lab-rancher"), speed=50.0, without=["vsphere"], extra=["rancher"])
    lab = Lab(run)
    lab.control.interfered = bool(given)
    yield lab
    if not given:
        up.stop(run)


def _fresh(lab: Lab, folder: Path, version: str) -> Iterator[Rancher]:
    rancher = Rancher(lab.begin(version=version, arranged=vgpus_to_give), folder)
    yield rancher
    rancher.clean()


@pytest.fixture
def rancher(running: Lab, tmp_path: Path) -> Iterator[Rancher]:
    """On Harvester 1.8."""
    yield from _fresh(running, tmp_path, "1.8")


@pytest.fixture
def rancher_mdev(running: Lab, tmp_path: Path) -> Iterator[Rancher]:
    """On Harvester 1.7."""
    yield from _fresh(running, tmp_path, "1.7")


@pytest.fixture
def rancher_on(running: Lab, tmp_path: Path) -> Iterator[Callable[[str], Rancher]]:
    """On the version of Harvester that the test names."""
    begun: list[Iterator[Rancher]] = []

    def begin(version: str) -> Rancher:
        begun.append(_fresh(running, tmp_path, version))
        return next(begun[-1])

    yield begin
    for one in begun:
        next(one, None)


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    with warm_interpreter.started("rancher") as found:
        yield found


@pytest.fixture
def plays(running: Lab, tmp_path: Path, warm: Warm) -> Playbooks:
    """Playbooks that reach everything through Rancher, with its token."""
    env = running.env
    reach = {
        "K8S_AUTH_HOST": f"{env['RANCHER_URL']}/k8s/clusters/local",
        "K8S_AUTH_API_KEY": env["RANCHER_TOKEN_KEY"],
        "K8S_AUTH_SSL_CA_CERT": env["LAB_RANCHER_CA_FILE"],
    }
    return Playbooks(tmp_path, {**env, **reach, "K8S_AUTH_KUBECONFIG": "", "KUBECONFIG": ""}, warm=warm)
