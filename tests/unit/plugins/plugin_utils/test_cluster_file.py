"""The file that describes a fleet asks for exactly what is there."""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.vgpu.fleet.plugins.filter.cluster_file import cluster_file
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, Holder, Node, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.layout import request_from
from hypothesis import given, settings, strategies as st

Q4, Q2 = "NVIDIA A2-4Q", "NVIDIA A2-2Q"
OFFERED = tuple(f"NVIDIA A2-{size}Q" for size in (1, 2, 4, 8, 16))
MARK = {"vgpu.fleet/owner": "vgpu.fleet", "app.kubernetes.io/managed-by": "vgpu.fleet"}


def fleet(counts: list[int], profile: str = Q4, owners: tuple[str | None, ...] = (None,), *vms: Holder) -> Fleet:
    """One node with a GPU for each count of vGPUs. The first vGPUs belong to the VMs."""
    holders = list(vms)
    gpus = []
    for number, count in enumerate(counts):
        name = f"gpu-a-00000{number}000"
        slots = [
            Slot(
                f"{name}-{slot}",
                f"0000:0{number}:00.{slot}",
                profile,
                profile,
                allocatable=True,
                holders=(holders.pop(0),) if holders else (),
                owner=owners[slot % len(owners)],
            )
            if slot < count
            else Slot(f"{name}-{slot}", f"0000:0{number}:00.{slot}", offered=OFFERED)
            for slot in range(16)
        ]
        gpus.append(Gpu(name, "gpu-a", address=f"0000:0{number}:00.0", boards=("A2",), slots=tuple(slots)))
    return Fleet((Node("gpu-a", gpus=tuple(gpus), advertised={profile: sum(counts)}),))


def described(found: Fleet, owner: str = "") -> tuple[dict[str, Any], str]:
    info = {**found.as_dict(), "vgpus": [], "findings": [], "harvester": {"version": "1.8"}}
    text = cluster_file(info, owner)
    return yaml.safe_load(text), text


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.sampled_from([Q4, Q2]),
    st.sampled_from([(None,), ("vgpu.fleet",), ("blue",), ("blue", None)]),
)
def test_the_layout_of_the_file_needs_no_step(counts: list[int], profile: str, owners: tuple[str | None, ...]) -> None:
    found = fleet(counts, profile, owners)
    variables, _text = described(found)
    layout = variables["harvester_gpu_node_layout"]
    assert sum(entry["count"] * len(entry["gpus"]) for entry in layout) == sum(counts)
    if layout:
        entries = [{"nodes": None, **entry} for entry in layout]
        options = {"layout": entries, "nodes": None, "gpus": None, "devices": None, "name": None, "state": None}
        policy = {"exclusive": False, "reprofile": False, "enable_sriov": True, "enable_mig": False}
        owner = variables["harvester_gpu_node_owner"]
        request = request_from({**options, **policy, "placement": "consolidate", "owner": owner})
        assert request.plan(found).steps == ()


def test_gpus_with_the_same_vgpus_share_an_entry() -> None:
    variables, _text = described(fleet([2, 2, 1]))
    assert [(entry["count"], len(entry["gpus"])) for entry in variables["harvester_gpu_node_layout"]] == [
        (2, 2),
        (1, 1),
    ]


def test_vms_of_the_owner_are_listed_and_others_can_be_adopted() -> None:
    ours = Holder("ours", "default", running=True, labels=MARK)
    theirs = Holder("theirs", "ai", running=False, labels={"team": "red"})
    reds = Holder("reds", "ai", running=False, labels={**MARK, "vgpu.fleet/owner": "red"})
    variables, text = described(fleet([4], Q4, (None,), ours, ours, theirs, reds))
    assert variables["harvester_gpu_vm_vms"] == [
        {"name": "ours", "namespace": "default", "running": True, "vgpus": [{"profile": "A2-4Q", "count": 2}]}
    ]
    comment = text.partition("created by other means")[2]
    assert "name: theirs" in comment
    assert "adopt: true" in comment
    assert "reds" not in text


def test_vgpus_of_other_owners_are_left_out_and_named() -> None:
    variables, text = described(fleet([4], Q4, ("blue", "blue", "red")))
    assert variables["harvester_gpu_node_owner"] == "blue"
    assert [entry["count"] for entry in variables["harvester_gpu_node_layout"]] == [3]
    assert "# It leaves out the vGPUs of other owners: red." in text
    chosen, _text = described(fleet([4], Q4, ("blue", "blue", "red")), "red")
    assert [entry["count"] for entry in chosen["harvester_gpu_node_layout"]] == [1]
