"""The lab as a data centre: how long a fleet takes to be there, and what it costs to have it.

Run by `make bench`. Numbers are printed, and the promises are asserted. BENCH_FLEETS=16 leaves the large one out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.kubernetes import controlplane
from lab.lifecycle import up
from lab.rundir import RunDir
from tests.bench.footprint import cores, memory_mib
from tests.integration import api as paths
from tests.integration.api import Api

VGPUS_PER_NODE = 64
# Nodes, and the seconds from a control plane that answers to vGPUs that are all ready.
FLEETS = {16: 30.0, 157: 300.0}
MOST_MIB = 4096.0
IDLE_SECONDS = 60.0
MOST_CORES = 0.1
CHOSEN = [int(nodes) for nodes in os.environ.get("BENCH_FLEETS", "16,157").split(",")]


@dataclass
class Start:
    run: RunDir
    whole: float
    after_control_plane: float


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., Start]:
    answered: list[float] = []
    wait = controlplane.wait_api_ready

    def noting(run: RunDir, timeout: float = controlplane.START_TIMEOUT) -> None:
        wait(run, timeout)
        answered.append(time.monotonic())

    monkeypatch.setattr(controlplane, "wait_api_ready", noting)

    def start(**options: object) -> Start:
        began = time.monotonic()
        request.addfinalizer(lambda: up.stop(tmp_path / "lab"))
        run = up.start(tmp_path / "lab", **options)  # type: ignore[arg-type]
        ended = time.monotonic()
        return Start(run, ended - began, ended - answered[0])

    return start


def told(amounts: dict[str, float], unit: str, digits: int = 0) -> str:
    parts = ", ".join(f"{name} {amount:.{digits}f}" for name, amount in amounts.items())
    return f"{sum(amounts.values()):.{digits}f} {unit} ({parts})"


@pytest.mark.parametrize("nodes", CHOSEN)
def test_a_fleet(started: Callable[..., Start], nodes: int) -> None:
    start = started(scenario="fleet", nodes=nodes)
    ready = [
        vgpu
        for vgpu in Api(start.run.kubeconfig("admin")).get(paths.VGPUS).items
        if (vgpu.get("status") or {}).get("availableTypes")
    ]
    memory, busy = memory_mib(start.run), cores(start.run, IDLE_SECONDS)
    print(
        f"\n{nodes} nodes, {len(ready)} vGPUs: ready {start.after_control_plane:.0f} s after the control plane, "
        f"{start.whole:.0f} s in all\n  memory {told(memory, 'MiB')}\n  idle {told(busy, 'cores', 3)}"
    )
    assert len(ready) == nodes * VGPUS_PER_NODE
    assert start.after_control_plane < FLEETS.get(nodes, FLEETS[157])
    assert sum(memory.values()) < MOST_MIB
    if nodes <= 16:
        assert sum(busy.values()) < MOST_CORES


@pytest.mark.parametrize(("without", "most"), [((), 20.0), (("kubevirt",), 10.0)], ids=["whole", "without-kubevirt"])
def test_the_default_scenario(started: Callable[..., Start], without: tuple[str, ...], most: float) -> None:
    start = started(without=without)
    busy = cores(start.run, IDLE_SECONDS)
    memory = told(memory_mib(start.run), "MiB")
    print(f"\ndefault: {start.whole:.1f} s\n  memory {memory}\n  idle {told(busy, 'cores', 3)}")
    assert start.whole < most
    assert sum(busy.values()) < MOST_CORES
