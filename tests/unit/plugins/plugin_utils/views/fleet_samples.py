"""Two clusters that have a bit of everything, as records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off, vm
from tests.unit.plugins.module_utils.vsphere import facts
from tests.unit.plugins.plugin_utils.views.results import finding, harvester_info, vsphere_availability, vsphere_info

Json = dict[str, Any]

DIRECT = "sharedDirect"


def mig(name: str, contents: str, instances: dict[str, int]) -> Gpu:
    """An A100 in MIG mode with these instances."""

    def spelt(profile: str | None) -> str | None:
        return profile and profile.replace("NVIDIA", "GRID")

    card = gpu(name, contents, board="A100", mode="mig", max_instances=instances)
    slots = tuple(replace(slot, profile=spelt(slot.profile), wanted=spelt(slot.wanted)) for slot in card.slots)
    return replace(card, slots=slots)


def _addressed(one: Gpu) -> Gpu:
    """With the names that Harvester gives: `gpu-a:08` is gpu-a-000008000."""
    node, _colon, bus = one.name.partition(":")
    slots = tuple(
        replace(slot, name=f"{node}-0000{bus}00{number:x}", address=f"0000:{bus}:00.{number:x}")
        for number, slot in enumerate(one.slots, 4)
    )
    return replace(one, name=f"{node}-0000{bus}000", address=f"0000:{bus}:00.0", slots=slots)


def berlin_fleet() -> Fleet:
    cuts = {"GRID A100-3-20C": 1, "GRID A100-2-10C": 1, "GRID A100-1-5C": 2}
    gpus = (
        gpu("gpu-a:08", "4Q@trainer 4Q@trainer 4Q@renderer 4Q"),
        gpu("gpu-a:41", "8Q@cad-7 8Q@batch-"),
        gpu("gpu-b:08", "4Q@ml-gpu-x7k2p 4C 4Q~8Q"),
        gpu("gpu-b:41", ""),
        off("gpu-c:08"),
        gpu("gpu-c:41", "2Q 2Q@desktop-12 ?2Q"),
        mig("mig-a100:04", "3-20C@llm 1-5C@notebook-", cuts),
    )
    claims = (
        UnboundRequest("NVIDIA A2-4Q", 1, vm("nightly", running=False)),
        UnboundRequest("NVIDIA A2-8Q", 1, vm("cad-7"), node="gpu-a", pending=True),
    )
    return fleet(*map(_addressed, gpus), cordoned=["gpu-c"], claims=claims)


def berlin_info() -> Json:
    drifted = "vGPU gpu-b-000008006 is NVIDIA A2-4Q, but NVIDIA A2-8Q is requested. It changes at the next reboot."
    restart = (
        "VM default/cad-7 runs with 1 x NVIDIA A2-8Q, and its spec asks for 2 x NVIDIA A2-8Q, which it gets when it is"
    )
    return harvester_info(
        berlin_fleet(),
        [
            finding("type_differs", "gpu-b-000008006", drifted),
            finding("restart_required", "default/cad-7", f"{restart} restarted."),
            finding(
                "stale_annotation",
                "default/old",
                "VM default/old is stopped, and its allocation annotation names vGPUs that it does not request.",
            ),
        ],
    )


def berlin() -> Json:
    """A Harvester: time-sliced and MIG, in use, claimed, drifted, cordoned."""
    return fleet_record(berlin_info(), cluster="berlin")


def vcenter() -> Json:
    """A vCenter with two hosts, one of which waits for a restart."""
    waiting = facts.gpu(facts.SECOND, graphics_type="shared")
    found = facts.snapshot(
        facts.host(
            "esx1", facts.gpu(facts.FIRST, "worker-1"), facts.gpu(facts.SECOND, "worker-2"), default_type=DIRECT
        ),
        facts.host("esx2", facts.gpu(facts.FIRST, "desk"), waiting, default_type=DIRECT),
        vms=(
            facts.vm("worker-1", "nvidia_a40-16q"),
            facts.vm("worker-2", "nvidia_a40-8q", "nvidia_a40-8q"),
            facts.vm("desk", "nvidia_a40-4q", on="esx2"),
            facts.vm("resting", "nvidia_a40-16q", power="poweredOff"),
        ),
    )
    return fleet_record(vsphere_info(found), vsphere_availability(found), cluster="vcenter-1")
