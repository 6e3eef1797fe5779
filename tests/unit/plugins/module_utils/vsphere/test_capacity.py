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


def mixed(*vgpus):
    """A host with one mixed-size A40 that runs VMs with these vGPUs."""
    vms = tuple(vm(f"vm-{number}", f"nvidia_a40-{size}q") for number, size in enumerate(vgpus))
    only = gpu(FIRST, *(one.name for one in vms), vgpu_mode="mixedSize")
    profiles = tuple(f"nvidia_a40-{size}q" for size in (1, 2, 4, 8, 12, 16, 24, 48))
    return snapshot(host("esx1", only, profiles=profiles), vms=vms)


def test_b_mixed_sizes_are_counted_by_the_places_of_the_driver():
    for present, profile, expected in (
        ((16, 16), "8q", (2, 2, True)),
        ((24, 16), "8q", (1, 1, True)),
        ((16,), "8q", (3, 3, True)),
        ((12, 16), "8q", (2, 2, True)),
        ((8, 8), "16q", (0, 2, False)),
        ((), "16q", (2, 2, True)),
    ):
        (found,) = room(mixed(*present)).rooms(f"nvidia_a40-{profile}")
        assert (found.count, found.at_most, found.exact) == expected, present


def test_b_a_zero_that_is_not_certain_says_so():
    (found,) = room(mixed(8, 8)).rooms("nvidia_a40-16q")
    assert found.reason == (
        "it has room for 0 to 2, depending on the places of its vGPUs, with 2 x nvidia_a40-8q, held by VM vm-0, VM vm-1"
    )
    (certain,) = room(mixed(48)).rooms("nvidia_a40-1q")
    assert certain.reason == "its framebuffer is taken, by 1 x nvidia_a40-48q, held by VM vm-0"


def test_b_records_have_the_certain_and_the_largest_number():
    record = next(
        record for record in VsphereAvailability(mixed(8, 8)).profile_records() if record["profile"] == "nvidia_a40-16q"
    )
    assert (record["free_now"], record["free_now_at_most"], record["exact"]) == (0, 2, False)
    assert record["nodes"][0]["gpus"][0]["free_now_at_most"] == 2
    assert record["clusters"][0]["free_now_at_most"] == 2


def reporting(told, *vgpus):
    return VsphereAvailability(mixed(*vgpus), reported={"esx1": {"nvidia_a40-16q": told}})


def record_of(counts, profile="nvidia_a40-16q"):
    return next(record for record in counts.profile_records() if record["profile"] == profile)


def test_the_capacity_that_vcenter_reports_takes_precedence():
    """By the own count, 0 to 2 fit: vCenter knows that it is 1."""
    counts = reporting(1, 8, 8)
    record = record_of(counts)
    assert (record["free_now"], record["free_now_at_most"], record["free"], record["exact"]) == (1, 1, 1, True)
    assert counts.differences() == []
    assert FitCheck(HostsCapacity(counts), [demand(1, **{"16q": 1})]).as_result()["fits"]
    assert not FitCheck(HostsCapacity(counts), [demand(2, **{"16q": 1})]).as_result()["fits"]


def test_a_report_that_the_vms_do_not_explain_is_a_warning_and_still_the_truth():
    for told, own in ((0, 2), (5, 2)):
        counts = reporting(told)
        (warning,) = counts.differences()
        assert f"nvidia_a40-16q {told} instead of {own}" in warning
        assert record_of(counts)["free_now"] == told
    assert not FitCheck(HostsCapacity(reporting(0)), [demand(1, **{"16q": 1})]).as_result()["fits"]
    assert FitCheck(HostsCapacity(reporting(5)), [demand(5, **{"16q": 1})]).as_result()["fits"]
    assert not FitCheck(HostsCapacity(reporting(5)), [demand(6, **{"16q": 1})]).as_result()["fits"]
