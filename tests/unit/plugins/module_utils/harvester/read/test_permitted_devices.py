"""KubeVirt's list of permitted devices: no VM starts with a vGPU whose type is not in it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import Availability
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.availability import NodeCapacity
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.permitted_devices import (
    PermittedDevices,
    entries_of,
    restored,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.findings import findings
from hypothesis import given, strategies as st

from tests.unit.plugins.module_utils.harvester.objects import C4, Q4, claim, kubevirt, node, snapshot, vgpu

RESOURCE, OTHER = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4C"
ONE_4Q: dict[str, Any] = {
    "vgpus": [vgpu(asked=Q4, configured=Q4), vgpu(5, offered=(Q4, C4))],
    "claims": [claim()],
    "nodes": [node(q4=1)],
}


def kinds(*resources: str) -> list[tuple[str, str]]:
    found = snapshot(**ONE_4Q, kubevirts=[kubevirt(*resources)])
    return [(one.kind, one.device) for one in findings(found, found.fleet)]


def test_m3_a_type_that_the_list_lacks_and_an_entry_that_it_has_twice_are_findings() -> None:
    assert kinds(RESOURCE) == []
    # Up to 1.8 this is what a healthy cluster looks like.
    assert kinds(RESOURCE, OTHER, OTHER) == []
    assert kinds(OTHER, OTHER) == [("not_permitted", RESOURCE), ("permitted_twice", OTHER)]
    assert kinds() == [("not_permitted", RESOURCE)]


@pytest.mark.parametrize(
    ("kubevirts", "free", "permitted"),
    [
        ([kubevirt(RESOURCE)], 1, True),
        ([kubevirt(OTHER)], 0, False),
        # Without a list, KubeVirt permits every device. A list that cannot be read is unknown and permits as well.
        ([{"metadata": {"name": "kubevirt", "namespace": "harvester-system"}, "spec": {}}], 1, True),
        ([], 1, True),
        (None, 1, None),
    ],
)
def test_m3_what_kubevirt_does_not_permit_is_not_free(kubevirts: Any, free: int, permitted: bool | None) -> None:
    fleet = snapshot(**ONE_4Q, kubevirts=kubevirts).fleet
    counts = Availability(fleet, frozenset({"n1"}))
    (record,) = [one for one in counts.profile_records(lambda _profile: {}) if one["profile"] == Q4]
    assert (record["free"], record["permitted"], record["allocatable"]) == (free, permitted, 1)
    told = NodeCapacity(counts).describe(Q4)
    assert ("KubeVirt does not permit NVIDIA A2-4Q" in told) == (permitted is False)


def test_a_selection_shows_only_the_types_of_its_own_vgpus() -> None:
    found = snapshot(**ONE_4Q, kubevirts=[kubevirt(OTHER)])
    assert findings(found, type(found.fleet)()) == []


entries = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6)


@given(pci=entries, mediated=entries)
def test_both_lists_count_and_duplicates_are_those_of_one_list(pci: list[str], mediated: list[str]) -> None:
    permitted = kubevirt(*pci)["spec"]["configuration"]["permittedHostDevices"]
    permitted |= kubevirt(*mediated, key="mediatedDevices")["spec"]["configuration"]["permittedHostDevices"]
    found = PermittedDevices.of({"spec": {"configuration": {"permittedHostDevices": permitted}}})
    assert found is not None
    assert found.resources == {*pci, *mediated}
    assert set(found.duplicates) == {one for one in "abc" if pci.count(one) > 1 or mediated.count(one) > 1}


def test_m3_only_lost_types_are_added_and_every_other_entry_stays() -> None:
    found = snapshot(**ONE_4Q, kubevirts=[])
    pci = {slot.name: {"status": {"vendorId": "10de", "deviceId": "25b6"}} for _gpu, slot in found.fleet.slots()}
    listed = kubevirt(OTHER, OTHER)
    before = listed["spec"]["configuration"]["permittedHostDevices"]

    def patched(*lost: str) -> Any:
        return restored(listed, entries_of(found.fleet, found.version, pci), lost)

    (key,) = [key for key, entries in before.items() if entries]
    lists = patched(RESOURCE)["spec"]["configuration"]["permittedHostDevices"]
    assert lists[key][:-1] == before[key]
    assert lists[key][-1]["resourceName"] == RESOURCE
    # Nothing is written for a type that no vGPU has.
    assert patched("nvidia.com/NVIDIA_A2-8Q") == {}
    assert patched() == {}
