"""A thousand vGPUs on Harvester: what a task costs that finds them in place, and what it costs to make them.

Run by `make bench`. Numbers are printed; the promises are asserted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.lifecycle import up
from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules.playbooks import Playbooks, Result

BENCH_COLLECTIONS = Path(__file__).parents[2] / "build/bench"
BARE = Path(__file__).with_name("bare_patches.py")
NODES = int(os.environ.get("BENCH_NODES", "16"))
GPUS_PER_NODE, VGPUS_PER_GPU = 2, 32
TOTAL = NODES * GPUS_PER_NODE * VGPUS_PER_GPU
PROFILE, RESOURCE = "NVIDIA L40S-1Q", "nvidia.com/NVIDIA_L40S-1Q"
ASKED = {"profile": PROFILE, "count": VGPUS_PER_GPU, "per": "gpu"}
ROUNDS = 3
# A scan of every function each 30 seconds keeps the lab busy; faster, it does nothing else.
SPEED = 5.0
MOST_REQUESTS = 8
MOST_PINGS = 5.0
LEAST_GAIN = 10.0
MOST_OVERHEAD = 1.3


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("bench")
    run = up.start(folder / "lab", scenario="fleet", nodes=NODES, speed=SPEED, without=["kubevirt", "vsphere"])
    lab = Lab(run)
    wait_for_functions(lab)
    yield lab
    up.stop(run)


def wait_for_functions(lab: Lab) -> None:
    deadline = time.monotonic() + 600
    while sum(1 for one in lab.items(paths.VGPUS) if (one.get("status") or {}).get("availableTypes")) < TOTAL:
        assert time.monotonic() < deadline
        time.sleep(1)


@pytest.fixture(scope="module")
def playbooks(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Playbooks:
    return Playbooks(tmp_path_factory.mktemp("plays"), lab.env, collections=[BENCH_COLLECTIONS])


@pytest.fixture(scope="module")
def made(lab: Lab, playbooks: Playbooks) -> Result:
    """The run in which all of them change."""
    lab.mark()
    result = playbooks.task("harvester_vgpu", **ASKED, wait_timeout=1800)
    assert not result.failed, result.message
    verbs = [event["verb"] for event in lab.audit(writes_only=False)]
    result["reads"] = sum(verb in ("get", "list", "watch") for verb in verbs)
    result["patches"] = verbs.count("patch")
    return result


def report(text: str) -> None:
    print(f"\n  {text}")


def test_all_in_place_costs_a_constant_number_of_requests_and_a_few_pings(
    lab: Lab, playbooks: Playbooks, made: Result
) -> None:
    assert made.changed
    lab.mark()
    call = ("harvester_vgpu", ASKED)
    results = playbooks.tasks(*[("ansible.builtin.ping", {}), call] * ROUNDS)
    pings, ours = results[::2], results[1::2]
    assert not any(result.changed or result.failed for result in ours)
    requests = len(lab.audit(writes_only=False)) / ROUNDS
    ping, our = (min(result["task_seconds"] for result in some) for some in (pings, ours))
    report(f"{TOTAL} vGPUs in place: {requests:g} requests, {our:.2f} s, {our / ping:.1f} times ping ({ping:.2f} s)")
    assert requests <= MOST_REQUESTS
    assert our <= MOST_PINGS * ping


def documents(made: Result) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "devices.harvesterhci.io/v1beta1",
            "kind": "VGPUDevice",
            "metadata": {"name": vgpu["name"]},
            "spec": {"enabled": True, "vGPUTypeName": PROFILE},
        }
        for vgpu in made["vgpus"]
    ]


@pytest.mark.skipif(not BENCH_COLLECTIONS.is_dir(), reason="kubernetes.core is not there to compare with")
def test_kubernetes_core_takes_ten_times_as_long_to_find_all_in_place(
    lab: Lab, playbooks: Playbooks, made: Result, tmp_path: Path
) -> None:
    manifest = tmp_path / "vgpus.yaml"
    manifest.write_text(yaml.safe_dump_all(documents(made)))
    lab.mark()
    *ours, theirs = playbooks.tasks(
        *[("harvester_vgpu", ASKED)] * ROUNDS, ("kubernetes.core.k8s", {"src": str(manifest), "state": "patched"})
    )
    assert not theirs.failed, theirs.message
    assert not theirs.changed
    our = min(result["task_seconds"] for result in ours)
    gain = theirs["task_seconds"] / our
    report(f"kubernetes.core.k8s: {theirs['task_seconds']:.1f} s, ours {our:.2f} s: {gain:.0f} times")
    assert gain >= LEAST_GAIN


def test_making_them_all_costs_hardly_more_than_the_bare_requests(
    lab: Lab, playbooks: Playbooks, made: Result, tmp_path: Path
) -> None:
    report(f"{TOTAL} vGPUs made: {made['patches']} PATCHes, {made['reads']} reads, {made['task_seconds']:.1f} s")
    assert made["patches"] == TOTAL
    chains = [
        [(f"{paths.VGPUS}/{step['slot']}", {"spec": {"enabled": True, "vGPUTypeName": PROFILE}}) for step in steps]
        for _gpu, steps in groupby(made.steps, key=lambda step: step["gpu"])
    ]
    patches = tmp_path / "patches.json"
    patches.write_text(json.dumps(chains))
    up.reset(lab.run)
    wait_for_functions(lab)
    started = time.monotonic()
    kubeconfig = lab.env["KUBECONFIG"]
    subprocess.run([sys.executable, str(BARE), kubeconfig, str(patches), RESOURCE, str(TOTAL)], check=True)
    bare = time.monotonic() - started
    ratio = made["task_seconds"] / bare
    report(f"bare requests: {bare:.1f} s, ours {made['task_seconds']:.1f} s: {ratio:.2f} times")
    assert ratio <= MOST_OVERHEAD


COUNTED = (
    "nodes.resources | map(attribute='status') | map(attribute='allocatable') | map('dict2items') | flatten"
    f" | selectattr('key', 'eq', '{RESOURCE}') | map(attribute='value') | map('int') | sum >= {TOTAL}"
)


@pytest.mark.skipif(not BENCH_COLLECTIONS.is_dir(), reason="kubernetes.core is not there to compare with")
def test_kubernetes_core_to_the_same_end_is_reported(
    lab: Lab, playbooks: Playbooks, made: Result, tmp_path: Path
) -> None:
    manifest = tmp_path / "vgpus.yaml"
    manifest.write_text(yaml.safe_dump_all(documents(made)))
    up.reset(lab.run)
    wait_for_functions(lab)
    patched, counted = playbooks.run(
        [
            {"kubernetes.core.k8s": {"src": str(manifest), "state": "patched"}},
            {
                "kubernetes.core.k8s_info": {"kind": "Node"},
                "register": "nodes",
                "until": COUNTED,
                "retries": 1800,
                "delay": 1,
            },
        ]
    )
    assert not patched.failed, patched.message
    assert not counted.failed
    theirs, ours = patched["task_seconds"] + counted["task_seconds"], made["task_seconds"]
    report(
        f"kubernetes.core to the same end: {theirs:.1f} s, of which {patched['task_seconds']:.1f} s to patch;"
        f" ours {ours:.1f} s: {theirs / ours:.1f} times"
    )
