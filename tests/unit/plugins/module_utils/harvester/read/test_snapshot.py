from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.in_use import protect_running_vms
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.findings import findings

from tests.unit.plugins.module_utils.harvester.objects import (
    C4,
    Q4,
    claim,
    gpu,
    instance,
    node,
    snapshot,
    started,
    vgpu,
    vm,
)

READY = {"asked": Q4, "configured": Q4}
HALF = {"vGPUStatus": "vGPUConfigured", "uuid": "746"}
COUNTS = node(q4=1)
RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
NOTE = '{"hostdevices": {"nvidia.com/NVIDIA_A2-4Q": ["n1-000008004"]}}'


def slots(taken):
    (only,) = taken.fleet.gpus
    return {slot.name[-1]: slot for slot in only.ordered_slots}


@pytest.mark.parametrize(
    ("version", "things", "state", "drifted"),
    [
        ("1.8", {"vgpus": [vgpu()]}, "empty", False),
        ("1.8", {"vgpus": [vgpu(asked=Q4)]}, "requested", False),
        ("1.8", {"vgpus": [vgpu(**READY)]}, "configured", False),
        ("1.8", {"vgpus": [vgpu(**READY)], "claims": [claim()], "nodes": [node(q4=1)]}, "allocatable", False),
        ("1.8", {"vgpus": [vgpu(**READY)], "claims": [claim()], "nodes": [node(q4=0)]}, "configured", False),
        ("1.8", {"vgpus": [vgpu(**READY)], "claims": [claim(bound=False)], "nodes": [node(q4=1)]}, "configured", False),
        ("1.8", {"vgpus": [vgpu(**READY)], "claims": [claim(going=True)], "nodes": [node(q4=1)]}, "configured", False),
        # The type's name got lost; the claim still has it.
        ("1.8", {"vgpus": [vgpu(asked=Q4, status=HALF)], "claims": [claim()], "nodes": [COUNTS]}, "allocatable", False),
        # Asked to be something else while enabled.
        (
            "1.8",
            {"vgpus": [vgpu(asked=C4, configured=Q4)], "claims": [claim()], "nodes": [node(q4=1)]},
            "allocatable",
            True,
        ),
        # The status says one type and the claim another.
        (
            "1.8",
            {"vgpus": [vgpu(asked=C4, configured=C4)], "claims": [claim()], "nodes": [node(q4=1)]},
            "configured",
            True,
        ),
        ("1.7", {"vgpus": [vgpu(**READY)], "nodes": [node(q4=1)]}, "allocatable", False),
        ("1.7", {"vgpus": [vgpu(**READY)], "nodes": [node()]}, "configured", False),
        # The status comes before the type's name.
        ("1.7", {"vgpus": [vgpu(asked=Q4, status=HALF)]}, "requested", False),
    ],
)
def test_the_state_of_a_slot(version, things, state, drifted):
    slot = slots(snapshot(version, **things))["4"]
    assert (slot.state, slot.drifted) == (state, drifted)


def test_a_node_that_counts_fewer_than_are_configured_leaves_the_last_out_but_never_one_in_use():
    taken = snapshot(
        vgpus=[vgpu(number, asked=Q4, configured=Q4) for number in (4, 5, 6)],
        claims=[claim(number) for number in (4, 5, 6)],
        nodes=[node(q4=2)],
        vms=[vm("v", devices=[("d", RESOURCE)], note=NOTE.replace("8004", "8006"))],
        instances=[instance("v", devices=[("d", RESOURCE)])],
    )
    assert {name: slot.state for name, slot in slots(taken).items()} == {
        "4": "allocatable",
        "5": "configured",
        "6": "allocatable",
    }


def test_a_claim_that_was_left_behind_leaves_only_its_own_type_on_offer():
    left = snapshot(vgpus=[vgpu()], claims=[claim()])
    assert slots(left)["4"].offered == (Q4,)
    assert [finding.kind for finding in findings(left, left.fleet)] == ["claim_left_behind"]


@pytest.mark.parametrize(
    ("machine", "running", "held"),
    [
        (vm("v", devices=[("n1-000008004", RESOURCE)]), False, True),
        (vm("v", devices=[("n1-000008004", RESOURCE)], field="gpus"), False, True),
        (vm("v", note=NOTE), False, True),
        (vm("v", note=NOTE.replace("hostdevices", "gpus")), True, True),
        (vm("v", devices=[("n1-000008004", RESOURCE)], note=NOTE.replace("8004", "8005")), True, False),
        (vm("v", devices=[("n1-000008004", RESOURCE)], note=NOTE.replace("8004", "8005")), False, True),
        (vm("v", devices=[("provisioned", RESOURCE)]), False, False),
        (vm("v", note="{not json"), False, False),
    ],
)
def test_who_holds_a_device(machine, running, held):
    devices = [vgpu(number, **READY) for number in (4, 5)]
    taken = snapshot(vgpus=devices, vms=[machine], instances=[started(machine)] if running else [])
    assert bool(slots(taken)["4"].holders) is held


def test_a_running_vm_without_a_note_may_have_any_device_of_its_type_on_its_node():
    taken = snapshot(
        vgpus=[vgpu(4, asked=Q4, configured=Q4), vgpu(5, asked=Q4, configured=Q4), vgpu(6)],
        vms=[vm("v", devices=[("provisioned", RESOURCE)])],
        instances=[instance("v", phase="Scheduled", devices=[("provisioned", RESOURCE)])],
    )
    (claimed,) = taken.fleet.claims
    assert (claimed.profile, claimed.count, claimed.node) == (Q4, 1, "n1")
    (only,) = protect_running_vms(taken.fleet).gpus
    assert [bool(slot.holders) for slot in only.ordered_slots] == [True, True, False]


def test_an_instance_without_a_vm_holds_too():
    bare = instance("v") | {"spec": {"domain": {"devices": {"gpus": [{"name": "g", "deviceName": RESOURCE}]}}}}
    taken = snapshot(vgpus=[vgpu(**READY)], instances=[bare])
    assert [claimed.holder.name for claimed in taken.fleet.claims] == ["v"]


def test_a_card_that_shows_no_type_is_told_by_its_pci_id():
    device = {"metadata": {"name": "n1-000008000"}, "status": {"deviceId": "25b6"}}
    off = snapshot(gpus=[gpu(enabled=False)], pci_devices=[device])
    (only,) = off.fleet.gpus
    assert sorted(only.boards) == ["A16", "A2"]
    (shown,) = snapshot(vgpus=[vgpu()]).fleet.gpus
    assert shown.board == "A2"


def test_a_gpu_with_a_mig_configuration_is_in_mig_mode_and_counts_its_instances():
    mig = {
        "metadata": {"name": "n1-000008000"},
        "status": {"profileStatus": [{"name": "MIG 1g.5gb", "vGPUID": ["1", "2"]}, {"name": "MIG 3g.20gb"}]},
    }
    offers = vgpu(status={"availableTypes": {"GRID A100-1-5C": "474", "GRID A100-3-20C": "476"}})
    (only,) = snapshot(vgpus=[offers], mig=[mig]).fleet.gpus
    assert only.mode == "mig"
    assert only.max_instances == {"GRID A100-1-5C": 2, "GRID A100-3-20C": 0}


def test_findings_name_what_disagrees():
    unlabelled = vgpu(7)
    del unlabelled["metadata"]["labels"]["nodename"]
    taken = snapshot(
        vgpus=[vgpu(4, asked=C4, configured=Q4), vgpu(5, asked=Q4), vgpu(6, configured=Q4), unlabelled],
        vms=[vm("v", note="oops")],
    )
    assert [(one.kind, one.device) for one in findings(taken, taken.fleet)] == [
        ("invalid_annotation", "default/v"),
        ("type_differs", "n1-000008004"),
        ("not_configured", "n1-000008005"),
        ("not_removed", "n1-000008006"),
        ("missing_label", "n1-000008007"),
    ]
