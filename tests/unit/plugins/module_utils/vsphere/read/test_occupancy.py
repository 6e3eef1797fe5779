"""Which vGPU is on which GPU, as far as a host tells."""

from __future__ import annotations

from collections import Counter

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.occupancy import occupancy, splits

from tests.unit.plugins.module_utils.vsphere.facts import FIRST, SECOND, gpu, vm

THIRD = "0000:3f:00.0"
NOT_MIXING = dict.fromkeys((FIRST, SECOND, THIRD), False)


def on(found, address):
    return {name: dict(profiles) for name, profiles in found.by_gpu.get(address, {}).items()}


def test_all_vgpus_of_a_vm_on_one_gpu_are_certain():
    found = occupancy([gpu(FIRST, "a"), gpu(SECOND)], [vm("a", "x-8q", "x-8q")], NOT_MIXING, by_type=False)
    assert on(found, FIRST) == {"a": {"x-8q": 2}}
    assert not found.ambiguous


def test_as_many_gpus_as_vgpus_are_certain():
    found = occupancy([gpu(FIRST, "a"), gpu(SECOND, "a")], [vm("a", "x-8q", "x-8q")], NOT_MIXING, by_type=False)
    assert (on(found, FIRST), on(found, SECOND)) == ({"a": {"x-8q": 1}}, {"a": {"x-8q": 1}})
    assert not found.ambiguous


def test_three_on_two_may_be_either_way():
    found = occupancy([gpu(FIRST, "a"), gpu(SECOND, "a")], [vm("a", *["x-8q"] * 3)], NOT_MIXING, by_type=False)
    assert found.ambiguous == {"a"}
    assert sum(sum(on(found, address)["a"].values()) for address in (FIRST, SECOND)) == 3


@pytest.mark.parametrize(("mixing", "ambiguous"), [(False, set()), (True, {"b"})])
def test_the_size_that_is_there_already_decides_unless_sizes_mix(mixing, ambiguous):
    gpus = [gpu(FIRST, "a", "b"), gpu(SECOND, "b")]
    vms = [vm("a", "x-8q"), vm("b", "x-8q", "x-16q")]
    found = occupancy(gpus, vms, dict.fromkeys((FIRST, SECOND), mixing), by_type=False)
    assert found.ambiguous == ambiguous
    if not mixing:
        assert on(found, FIRST)["b"] == {"x-8q": 1}
        assert on(found, SECOND)["b"] == {"x-16q": 1}


def test_equal_sizes_may_share_a_gpu_but_not_where_types_pin():
    gpus = [gpu(FIRST, "a", "b"), gpu(SECOND, "b")]
    vms = [vm("a", "x-8q"), vm("b", "x-8q", "x-8c")]
    assert occupancy(gpus, vms, NOT_MIXING, by_type=False).ambiguous == {"b"}
    found = occupancy(gpus, vms, NOT_MIXING, by_type=True)
    assert not found.ambiguous
    assert on(found, SECOND) == {"b": {"x-8c": 1}}


def test_bindings_of_9_1_leave_nothing_open():
    machine = vm("a", "x-8q", "x-8q", "x-8q", bindings={13000: FIRST, 13001: SECOND, 13002: SECOND})
    found = occupancy([gpu(FIRST, "a"), gpu(SECOND, "a")], [machine], NOT_MIXING, by_type=False)
    assert (on(found, FIRST), on(found, SECOND)) == ({"a": {"x-8q": 1}}, {"a": {"x-8q": 2}})
    assert not found.ambiguous


def test_a_vm_on_no_gpu_is_unlisted():
    assert occupancy([gpu(FIRST)], [vm("a", "x-8q")], NOT_MIXING, by_type=False).unlisted == {"a"}


def test_contradictions_do_not_lose_vgpus():
    """Two sizes and one GPU each that is pinned to a third: something is wrong, and still all are counted."""
    gpus = [gpu(FIRST, "a", "b"), gpu(SECOND, "c", "b")]
    vms = [vm("a", "x-4q"), vm("c", "x-4q"), vm("b", "x-8q", "x-16q")]
    found = occupancy(gpus, vms, NOT_MIXING, by_type=False)
    assert "b" in found.ambiguous
    assert sum(sum(on(found, address).get("b", {}).values()) for address in (FIRST, SECOND)) == 2


def test_splits_are_all_ways_without_an_empty_part():
    assert set(map(_frozen, splits(Counter({"a": 2}), 2))) == {((("a", 1),), (("a", 1),))}
    assert len(list(splits(Counter({"a": 3}), 2))) == 2
    assert len(list(splits(Counter({"a": 1, "b": 1}), 2))) == 2
    assert not list(splits(Counter({"a": 1}), 2))


def _frozen(split):
    return tuple(tuple(sorted(part.items())) for part in split)


def test_sixteen_vgpus_on_eight_gpus_are_answered_soon():
    gpus = [gpu(f"0000:{number:02x}:00.0", "a") for number in range(8)]
    mixing = {one.address: False for one in gpus}
    found = occupancy(gpus, [vm("a", *["x-8q"] * 10, *["x-8c"] * 6)], mixing, by_type=False)
    assert found.ambiguous == {"a"}
    assert sum(sum(on(found, one.address)["a"].values()) for one in gpus) == 16
