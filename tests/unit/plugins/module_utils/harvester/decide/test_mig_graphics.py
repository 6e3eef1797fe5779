"""Boards with graphics instances, GB200 by slices, and MIG mode that Harvester is still trying to enable."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import Availability
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import InstanceSize
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.devices import DeviceRequest, plan_devices
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.mig import MigPlan, plan_mig, request_from
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.mig_conditions import MigInstancesReady
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.mig_configuration import enabling
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.snapshot import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.findings import findings
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit

from lab.gpu.mig import GEOMETRIES
from tests.unit.plugins.module_utils.harvester.objects import gpu, snapshot, vgpu

GPU = "n1-000008000"
PRO, GB200 = "RTX Pro 6000 Blackwell DC", "GB200"
PCI = {PRO: "2bb5", GB200: "2941", "A100": "20f1"}
DC = f"NVIDIA {PRO}"
Json = dict[str, Any]


def configuration(
    board: str, instances: dict[str, int] | None = None, *, requested: dict[str, int] | None = None, odd: str = ""
) -> Json:
    """A MIG configuration as a host lists it; `odd` is one more entry, of which there is an instance."""
    has = instances or {}
    asked = has if requested is None else requested
    listed = {profile.name: profile.id for profile in GEOMETRIES[board].profiles}
    names = {f"MIG {name}": (number, asked.get(name, 0), has.get(name, 0)) for name, number in listed.items()}
    if odd:
        names[odd] = (99, 1, 1)
    spec = [{"name": name, "id": number, "requested": wanted} for name, (number, wanted, _has) in names.items()]
    status = [
        {"name": name, "id": number, "vGPUID": [str(one) for one in range(count)]}
        for name, (number, _wanted, count) in names.items()
    ]
    return {
        "metadata": {"name": GPU, "resourceVersion": "1"},
        "spec": {"enabled": bool(has or odd), "profileSpec": spec},
        "status": {"status": "synced" if has or odd else "", "profileStatus": status},
    }


def world(
    board: str,
    *configurations: Json,
    version: str = "1.8",
    vgpus: tuple[Json, ...] = (),
    skip: bool = False,
    enabled: bool = True,
) -> Snapshot:
    card = gpu(enabled=enabled, functions=4)
    if skip:
        card["metadata"]["annotations"] = {r.SKIP_MIG_ANNOTATION: "true"}
    device = {"metadata": {"name": GPU}, "status": {"deviceId": PCI[board]}}
    slots = list(vgpus) or [vgpu(number, offered=()) for number in range(4, 8)]
    return snapshot(
        version, gpus=[card], mig=list(configurations), pci_devices=[device], vgpus=slots if enabled else []
    )


def offering(*names: str, function: int = 4) -> Json:
    return vgpu(function, status={"availableTypes": {name: str(number) for number, name in enumerate(names)}})


def holding(name: str, function: int) -> Json:
    found = vgpu(function, asked=name, offered=())
    return found | {"status": {"vGPUStatus": r.CONFIGURED, "uuid": "1", "configureVGPUTypeName": name}}


def cut(taken: Snapshot, *instances: tuple[str, int], **options: Any) -> MigPlan:
    given = {"gpus": [GPU], "nodes": None, "state": "enabled", "mode": "mig", "relayout": False, "enable_sriov": False}
    given["instances"] = [{"profile": name, "count": count} for name, count in instances] or None
    return plan_mig(taken.fleet, taken, request_from({**given, **options}))


def refusal(taken: Snapshot, *instances: tuple[str, int], **options: Any) -> FleetError:
    with pytest.raises(FleetError) as caught:
        cut(taken, *instances, **options)
    return caught.value


ALL = [f"{DC}-1-{size}{series}" for size in (2, 3, 4, 6, 8, 12, 24) for series in "QAC" if series != "C" or size >= 8]


def test_graphics_instances_count_the_vgpus_that_they_serve() -> None:
    has = configuration(PRO, {"1g.24gb+gfx": 4})
    (card,) = world(PRO, has, vgpus=(offering(*ALL),)).fleet.gpus
    assert card.mode == "mig"
    assert {name: count for name, count in card.instances.items() if count} == {"1g.24gb+gfx": 4}
    assert card.max_instances[f"{DC}-1-2Q"] == 48
    assert card.max_instances[f"{DC}-1-3B"] == 32
    assert card.max_instances[f"{DC}-1-24C"] == 4
    assert not any(count for name, count in card.max_instances.items() if name.startswith(f"{DC}-2"))


@pytest.mark.parametrize("name", ["1g.24gb", "1g.24gb+me", "1g.24gb+me.all", "2g.48gb-me", "4g.96gb"])
@pytest.mark.parametrize("listed", [True, False])
def test_an_instance_that_serves_nothing_is_refused_by_name(name: str, listed: bool) -> None:
    taken = world(PRO, configuration(PRO)) if listed else world(PRO, enabled=False)
    error = refusal(taken, (name, 1), enable_sriov=True, relayout=True)
    assert error.code == "no_suitable_gpu"
    assert name in str(error)
    assert "1g.24gb+gfx" in str(error)


@pytest.mark.parametrize("asked", ["1g.24gb+gfx", "MIG 1g.24gb+gfx", f"{DC}-1-24Q", f"{DC}-1-2B"])
@pytest.mark.parametrize("relayout", [True, False])
def test_a_card_that_is_cut_well_stays(asked: str, relayout: bool) -> None:
    taken = world(PRO, configuration(PRO, {"1g.24gb+gfx": 4}), vgpus=(offering(*ALL), holding(f"{DC}-1-24Q", 5)))
    assert cut(taken, (asked, 4), relayout=relayout).steps == ()


def test_another_layout_needs_relayout_and_no_vgpus() -> None:
    has = configuration(PRO, {"1g.24gb+gfx": 4})
    wanted = [("2g.48gb+gfx", 1), ("1g.24gb+gfx", 2)]
    assert refusal(world(PRO, has), *wanted).code == "needs_relayout"
    assert refusal(world(PRO, has, vgpus=(holding(f"{DC}-1-24Q", 4),)), *wanted, relayout=True).code == "vgpus_enabled"
    (step,) = cut(world(PRO, has), *wanted, relayout=True).steps
    assert step.instances == (("2g.48gb+gfx", 1), ("1g.24gb+gfx", 2))
    assert step.before == "4 x 1g.24gb+gfx"


def test_the_patch_leaves_entries_that_cannot_be_read_as_they_are() -> None:
    body = enabling(configuration(PRO, odd="MIG whole"), {})
    assert [entry for entry in body["spec"]["profileSpec"] if entry["requested"]] == [
        {"name": "MIG whole", "id": 99, "requested": 1}
    ]
    error = refusal(world(PRO, configuration(PRO, odd="MIG whole")), ("1g.24gb+gfx", 1), relayout=True)
    assert error.code == "invalid_layout"
    assert "MIG whole" in str(error)


def test_instances_that_serve_nothing_are_a_finding_and_no_plan_removes_them() -> None:
    taken = world(PRO, configuration(PRO, {"1g.24gb": 4}))
    (finding,) = findings(taken, taken.fleet)
    assert finding.kind == "mig_serves_nothing"
    assert "1g.24gb+gfx" in finding.text
    policy = Policy(enable_mig=True, reprofile=True, exclusive=True)
    with pytest.raises(DoesNotFit, match=r"only removed by vgpu\.fleet\.harvester_mig"):
        plan(taken.fleet, [Demand(f"{DC}-1-24Q", 1)], policy)
    well = world(PRO, configuration(PRO, {"1g.24gb+gfx": 4}), vgpus=(offering(*ALL),))
    assert findings(well, well.fleet) == []


def test_availability_counts_vgpus_per_instance_and_not_instances() -> None:
    taken = world(
        PRO, configuration(PRO, {"1g.24gb+gfx": 1}), vgpus=tuple(offering(*ALL, function=n) for n in range(4, 8))
    )
    counts = Availability(taken.fleet, frozenset({"n1"})).by_node["n1"]
    # Four virtual functions are the limit here.
    assert counts[f"{DC}-1-2Q"].creatable == 4
    assert counts[f"{DC}-1-24C"].creatable == 4
    one = configuration(PRO, {"1g.24gb+gfx": 4})
    rest = tuple(offering(*ALL, function=number) for number in range(5, 8))
    taken = world(PRO, one, vgpus=(holding(f"{DC}-1-12Q", 4), *rest))
    counts = Availability(taken.fleet, frozenset({"n1"})).by_node["n1"]
    assert counts[f"{DC}-1-12C"].creatable == 3
    assert counts[f"{DC}-1-24C"].creatable == 3
    # With a vGPU there, nothing is cut anew.
    assert f"{DC}-2-48C" not in counts or not counts[f"{DC}-2-48C"].creatable


def test_an_instance_takes_one_size_and_named_devices_obey_that() -> None:
    has = configuration(PRO, {"1g.24gb+gfx": 1})
    same = tuple(offering(f"{DC}-1-12Q", f"{DC}-1-12C", function=number) for number in (5, 6))
    taken = world(PRO, has, vgpus=(holding(f"{DC}-1-12Q", 4), *same))

    def named(*wanted: tuple[int, str]) -> Any:
        requests = [DeviceRequest(f"n1-00000800{number}", profile) for number, profile in wanted]
        return plan_devices(taken.fleet, requests, Policy(enable_mig=True))

    (step,) = named((5, f"{DC}-1-12C")).steps
    assert step.after == f"{DC}-1-12C"
    with pytest.raises(FleetError, match="MIG instances change only while a GPU has no vGPUs"):
        named((5, f"{DC}-1-24C"))
    with pytest.raises(FleetError, match="MIG instances change only while a GPU has no vGPUs"):
        named((5, f"{DC}-1-12C"), (6, f"{DC}-1-12Q"))


def test_a_gb200_is_cut_under_its_own_names_and_read_by_its_slices() -> None:
    (step,) = plan(
        world(GB200, configuration(GB200)).fleet, [Demand("NVIDIA GB200-1-24C", 2)], Policy(enable_mig=True)
    ).steps[:1]
    assert step.instances == (("1g.23gb", 2),)
    taken = world(GB200, configuration(GB200, {"1g.23gb": 2}), vgpus=(offering("NVIDIA GB200-1-24C"),))
    (card,) = taken.fleet.gpus
    assert card.max_instances["NVIDIA GB200-1-24C"] == 2
    assert cut(taken, ("GB200-1-24C", 2)).steps == ()
    assert cut(taken, ("1g.23gb", 2)).steps == ()
    assert "has no 1g.24gb; it has" in str(refusal(taken, ("1g.24gb", 2)))
    (condition,) = cut(taken, ("1g.23gb", 2)).conditions
    assert condition.missing(taken) == ""


SLICED = "GRID A100-4C"


@pytest.mark.parametrize(
    ("version", "skip", "unstable"),
    [("1.6", False, False), ("1.7", False, True), ("1.8", True, True), ("1.9", False, True), ("1.9", True, False)],
)
def test_time_sliced_types_without_a_mig_configuration_are_unstable(version: str, skip: bool, unstable: bool) -> None:
    taken = world("A100", version=version, skip=skip, vgpus=(offering(SLICED),))
    (card,) = taken.fleet.gpus
    assert card.mode == "time_sliced"
    assert bool(card.unstable) is unstable
    found = findings(taken, taken.fleet)
    assert [one.kind for one in found] == (["mig_unstable"] if unstable else [])
    assert not found or (r.SKIP_MIG_ANNOTATION in found[0].text) is (version == "1.9")
    if not unstable:
        assert plan(taken.fleet, [Demand(SLICED, 1)]).steps
        return
    with pytest.raises(DoesNotFit, match="still trying to put it into MIG mode"):
        plan(taken.fleet, [Demand(SLICED, 1)])
    assert refusal(taken, ("1g.5gb", 1), relayout=True).code == "mig_unstable"
    if version == "1.9":
        steps = cut(taken, mode="time_sliced").steps
        assert [(step.action, step.after) for step in steps] == [("set_mode", "time_sliced")]
    else:
        assert refusal(taken, mode="time_sliced").code == "mig_unstable"


def test_a_vgpu_of_an_unstable_gpu_still_serves_the_demand_that_it_met() -> None:
    taken = world("A100", version="1.9", vgpus=(holding(SLICED, 4), offering(SLICED, function=5)))
    assert plan(taken.fleet, [Demand(SLICED, 1)]).steps == ()
    with pytest.raises(DoesNotFit):
        plan(taken.fleet, [Demand(SLICED, 2)])


@pytest.mark.parametrize(
    ("has", "offers", "count", "fits"),
    [
        ((), ("32Q", "16Q", "8Q"), 1, True),
        ((), ("32Q", "16Q", "8Q"), 2, False),
        ((), ("16Q", "8Q"), 2, True),
        (("8Q",), ("8Q",), 2, True),
        (("8Q",), ("8Q",), 3, False),
    ],
)
def test_a_board_that_the_table_lacks_is_limited_by_what_it_offers(
    has: tuple[str, ...], offers: tuple[str, ...], count: int, fits: bool
) -> None:
    name = "NVIDIA RTX Z4500"
    wanted = f"{name}-{offers[0] if count < 3 and not has else '8Q'}"
    if offers[0] == "16Q":
        wanted = f"{name}-8Q"
    filled = tuple(holding(f"{name}-{one}", 4 + number) for number, one in enumerate(has))
    names = tuple(f"{name}-{one}" for one in offers)
    free = tuple(offering(*names, function=number) for number in range(4 + len(has), 8))
    taken = snapshot("1.8", vgpus=[*filled, *free])
    if not fits:
        with pytest.raises(DoesNotFit):
            plan(taken.fleet, [Demand(wanted, count)])
        return
    found = plan(taken.fleet, [Demand(wanted, count)])
    assert len(found.steps) == count - len(has)
    # Nothing is claimed on the ground of an estimate.
    assert not found.optimal


def test_names_of_the_catalogue_are_written_under_those_of_the_gpu() -> None:
    wanted = {InstanceSize(1, 24): 2, InstanceSize(3, 95): 1}
    body = enabling(configuration(GB200), wanted)
    assert {one["name"]: one["requested"] for one in body["spec"]["profileSpec"] if one["requested"]} == {
        "MIG 3g.93gb": 1,
        "MIG 1g.23gb": 2,
    }
    taken = world(
        GB200,
        configuration(GB200, {"3g.93gb": 1, "1g.23gb": 2}),
        vgpus=(offering("NVIDIA GB200-1-24C", "NVIDIA GB200-3-95C"),),
    )
    assert MigInstancesReady(GPU, "n1", wanted).missing(taken) == ""
    assert "not 1 x 7g.186gb" in MigInstancesReady(GPU, "n1", {InstanceSize(7, 189): 1}).missing(taken)
