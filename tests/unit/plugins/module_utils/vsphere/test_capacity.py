"""Hosts filled with VMs, and questions about more of them."""

from __future__ import annotations

from ansible_collections.vgpu.fleet.plugins.module_utils.availability.fit import FitCheck
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.request import MachineDemand
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Holder
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.availability import HostsCapacity
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.counts import VsphereAvailability

from tests.unit.plugins.module_utils.vsphere.facts import FIRST, SECOND, gpu, host, old_host, snapshot, vm


def room(found, name="esx1"):
    return VsphereAvailability(found).now[name]


def capacity(*hosts, vms=()):
    return HostsCapacity(VsphereAvailability(snapshot(*hosts, vms=tuple(vms))))


def fill(state, **vgpus):
    profiles = {f"nvidia_a40-{name}": count for name, count in vgpus.items()}
    return state.admit(profiles, Holder(f"vm-{id(vgpus)}", running=True))


def free(state, profile):
    return [one.count for one in state.rooms(f"nvidia_a40-{profile}")]


def demand(machines, name="pool", **vgpus):
    return MachineDemand(name, machines, {f"nvidia_a40-{profile}": count for profile, count in vgpus.items()})


def test_performance_spreads_and_consolidation_fills():
    spread, filled = room(snapshot(host())), room(snapshot(host(policy="consolidation")))
    for state in (spread, filled):
        assert fill(state, **{"8q": 1})
        assert fill(state, **{"8q": 1})
    assert free(spread, "8q") == [5, 5]
    assert free(filled, "8q") == [4, 6]
    assert not fill(spread, **{"16q": 1})
    assert fill(filled, **{"16q": 1})


def test_a_vm_steps_back_from_a_gpu_that_would_be_in_its_own_way():
    state = room(snapshot(host("esx1", gpu(FIRST, "a"), gpu(SECOND)), vms=(vm("a", "nvidia_a40-8q"),)))
    assert fill(state, **{"16q": 1, "8q": 1})
    assert free(state, "8q") == [4, 0]


def test_all_or_nothing():
    state = room(snapshot(host()))
    assert not fill(state, **{"48q": 3})
    assert free(state, "48q") == [1, 1]


def test_old_hosts_take_one_type_per_gpu():
    state = room(snapshot(old_host()))
    assert fill(state, **{"8q": 1})
    assert fill(state, **{"8c": 1})
    assert not fill(state, **{"16q": 1})
    assert "one profile at a time" in state.rooms("nvidia_a40-16q")[0].reason


def test_a_copy_is_filled_alone():
    state = room(snapshot(host()))
    twin = state.copy()
    assert fill(twin, **{"48q": 2})
    assert (free(state, "48q"), free(twin, "48q")) == ([1, 1], [0, 0])


def test_reasons_name_the_vms_of_their_own_gpu():
    found = snapshot(
        host("esx1", gpu(FIRST, "a"), gpu(SECOND, "b")), vms=(vm("a", "nvidia_a40-8q"), vm("b", "nvidia_a40-8q"))
    )
    first, second = room(found).rooms("nvidia_a40-16q")
    assert "VM a" in first.reason
    assert "VM b" in second.reason


def test_a_running_vm_that_no_gpu_lists_takes_its_room():
    available = VsphereAvailability(snapshot(host("esx1", gpu()), vms=(vm("lagging", "nvidia_a40-48q"),)))
    record = next(one for one in available.profile_records() if one["profile"] == "nvidia_a40-48q")
    assert (record["in_use"], record["free_now"], record["exact"]) == (1, 0, False)


def test_claims_are_placed_in_their_own_cluster():
    hosts = (host("esx1", gpu()), host("far1", gpu(), cluster="other"))
    off = vm("off", "nvidia_a40-48q", power="poweredOff")
    record = next(
        one
        for one in VsphereAvailability(snapshot(*hosts, vms=(off,))).profile_records()
        if one["profile"] == "nvidia_a40-48q"
    )
    assert [(one["cluster"], one["claimed"], one["free"]) for one in record["clusters"]] == [
        ("gpu", 1, 0),
        ("other", 0, 1),
    ]


def test_another_order_is_tried_before_it_is_said_not_to_fit():
    """The small ones first would be spread over both GPUs."""
    question = FitCheck(capacity(host()), [demand(2, "small", **{"8q": 1}), demand(1, "large", **{"48q": 1})])
    assert question.fits
    assert question.exhaustive


def test_that_a_demand_does_not_fit_alone_is_proof():
    available = capacity(host())
    alone = FitCheck(available, [demand(3, **{"48q": 1})])
    assert (alone.fits, alone.exhaustive) == (False, True)
    both = FitCheck(available, [demand(3, **{"48q": 1}), demand(1, "more", **{"8q": 1})])
    assert both.exhaustive
    tight = FitCheck(available, [demand(2, **{"48q": 1}), demand(1, "more", **{"8q": 1})])
    assert (tight.fits, tight.exhaustive) == (False, False)
    assert "It would fit without" in " ".join(reason for result in tight.results for reason in result.reasons)


def test_less_is_offered_as_help():
    question = FitCheck(capacity(host()), [demand(3, **{"48q": 1})])
    assert question.suggestions == ["Reduce the number of machines: 2 in pool."]
