"""vGPUs of VMs in an inventory of a thousand: what tasks cost here, and with community.vmware on the same vCenter.

Run by `make bench`. Numbers are printed with `-s`, which make passes; the promises are asserted. A vCenter of the lab
answers at once; each call more costs a round trip on a real one.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.programs import binaries
from lab.vsphere import vcsim
from tests.integration.modules.playbooks import Playbooks, Result
from tests.integration.vsphere_modules.conftest import VCenter

BENCH_COLLECTIONS = Path(__file__).parents[2] / "build/bench"
OURS, LIST = "vsphere_vgpu_vm", "vsphere_gpu_info"
THEIRS, THEIR_LIST = "community.vmware.vmware_guest_vgpu", "community.vmware.vmware_guest_vgpu_info"
PROFILE = "nvidia_a40-4q"
HOLDERS = int(os.environ.get("BENCH_VMS", "100"))
ROUNDS = 3
SCENARIO = {
    "datacenter": "dc1",
    "clusters": [
        {
            "name": "gpu",
            "hosts": [{"name": "esx{n}", "count": 16, "memory_gib": 2048, "gpus": [{"board": "A40", "count": 2}]}],
        }
    ],
    "datastores": ["ds1"],
    "vms": [
        {"name": "off-{n}", "count": 900 - HOLDERS},
        {"name": "on-{n}", "count": 100, "power": "on"},
        {"name": "gpu-{n}", "count": HOLDERS, "power": "on", "memory_locked": True, "vgpus": [PROFILE]},
    ],
}


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VCenter]:
    run = tmp_path_factory.mktemp("vcenter")
    binary = binaries.ensure(["vgpu-vcsim"])["vgpu-vcsim"]
    vcenter = VCenter(vcsim.start(run, vcsim.inventory_from_scenario(SCENARIO), binary=binary), run)
    yield vcenter
    vcenter.stop()


@pytest.fixture(scope="module")
def playbooks(vcenter: VCenter, tmp_path_factory: pytest.TempPathFactory) -> Playbooks:
    return Playbooks(tmp_path_factory.mktemp("plays"), vcenter.env, collections=[BENCH_COLLECTIONS])


class Measured:
    """The same tasks several times: the median of their seconds, and the calls of one."""

    def __init__(self, vcenter: VCenter, playbooks: Playbooks, tasks: list[tuple[str, dict[str, object]]]) -> None:
        vcenter.mark()
        self.results = playbooks.tasks(*tasks)
        self.calls = sum(vcenter.calls.values()) / len(tasks)
        assert not any(result.failed for result in self.results), [result.message for result in self.results]
        self.seconds = statistics.median(float(result["task_seconds"]) for result in self.results)


def their_options(name: str) -> dict[str, object]:
    return {"datacenter": "dc1", "name": name, "folder": "/dc1/vm"}


def compare(what: str, ours: Measured, theirs: Measured) -> None:
    gain = theirs.seconds / ours.seconds
    print(
        f"\n  {what}: {ours.seconds:.2f} s and {ours.calls:.0f} calls,"
        f" community.vmware {theirs.seconds:.2f} s and {theirs.calls:.0f} calls: {gain:.1f} times"
    )


pytestmark = pytest.mark.skipif(not BENCH_COLLECTIONS.is_dir(), reason="community.vmware is not there to compare with")


def test_attaching_a_vgpu_and_finding_it_attached(vcenter: VCenter, playbooks: Playbooks) -> None:
    mine = [
        (OURS, {"name": f"off-{number}", "folder": "/dc1/vm", "vgpus": [{"profile": PROFILE}]})
        for number in range(1, ROUNDS + 1)
    ]
    others = [
        (THEIRS, {**their_options(f"off-{100 + number}"), "vgpu": PROFILE, "state": "present"})
        for number in range(1, ROUNDS + 1)
    ]
    first = Measured(vcenter, playbooks, mine), Measured(vcenter, playbooks, others)
    again = Measured(vcenter, playbooks, mine * 3), Measured(vcenter, playbooks, others * 3)
    assert all(result.changed for measured in first for result in measured.results)
    assert not any(result.changed for measured in again for result in measured.results)
    compare("a vGPU attached", *first)
    compare("a vGPU found attached", *again)
    # To start Python and load pyVmomi takes both as long; what tells on a real vCenter is the number of round trips.
    assert 2 * first[0].calls <= first[1].calls
    assert again[0].calls <= 6


def test_what_is_attached_to_a_hundred_vms(vcenter: VCenter, playbooks: Playbooks) -> None:
    ours = Measured(vcenter, playbooks, [(LIST, {})] * ROUNDS)
    held = {holder["name"] for vgpu in ours.results[0]["vgpus"] for holder in vgpu["holders"]}
    names = [f"gpu-{number}" for number in range(1, HOLDERS + 1)]
    assert held == set(names)
    vcenter.mark()
    loop = {THEIR_LIST: their_options("{{ item }}"), "loop": names}
    (theirs,) = playbooks.run([loop])
    assert not theirs.failed, theirs.message
    assert found(theirs) == held
    calls, seconds = sum(vcenter.calls.values()), float(theirs["task_seconds"])
    print(
        f"\n  what {HOLDERS} VMs have: {ours.seconds:.2f} s and {ours.calls:.0f} calls,"
        f" community.vmware {seconds:.1f} s and {calls} calls: {seconds / ours.seconds:.0f} times"
    )
    assert seconds / ours.seconds >= HOLDERS / 10
    assert ours.calls <= 6


def found(theirs: Result) -> set[str]:
    """The VMs of which community.vmware says that they have a vGPU, under another key than its documentation says."""
    return {str(one["item"]) for one in theirs["results"] if one["vgpu"]}
