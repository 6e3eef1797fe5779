"""Which vGPUs are in use, and that nobody loses one: each path that takes something away, each source that tells."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.devices import DeviceRequest, plan_devices
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.in_use import protect_running_vms
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.sriov import plan_sriov
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read import snapshot as snapshots
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.vm_usage import (
    broken_notes,
    quantity,
    read_note,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.findings import findings
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import Forbidden
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.plugin_utils.drift import harvester_drift

from tests.unit.plugins.module_utils.harvester.decide.test_mig import configuration, world
from tests.unit.plugins.module_utils.harvester.objects import (
    C4,
    NOW,
    Q4,
    Q8,
    claim,
    gpu,
    instance,
    launcher,
    listing,
    node,
    since,
    snapshot,
    started,
    vgpu,
    vm,
)

RESOURCE, EIGHT = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-8Q"
D4, D5, D6 = (f"n1-00000800{number}" for number in (4, 5, 6))
PLACEHOLDER = [("vgpu-0", RESOURCE)]


def ready(*numbers: int, type_name: str = Q4):
    """Devices that are configured, and their claims."""
    return {
        "vgpus": [vgpu(number, asked=type_name, configured=type_name) for number in numbers],
        "claims": [claim(number, type_name) for number in numbers],
    }


def noted(*devices: str, part: str = "hostdevices", resource: str = RESOURCE) -> str:
    return json.dumps({part: {resource: list(devices)}})


def safe(taken):
    return protect_running_vms(taken.fleet)


def held(taken) -> dict[str, list[str]]:
    return {slot.name: [holder.name for holder in slot.holders] for _gpu, slot in safe(taken).slots() if slot.holders}


def disabled(taken, *names: str):
    return plan_devices(safe(taken), [DeviceRequest(name, enabled=False) for name in names], Policy())


def switched_off(taken, **options):
    return plan_sriov(safe(taken), nodes=["*"], gpus=None, enabled=False, disable_vgpus=True, **options)


def refusal(call, *arguments, **options) -> FleetError:
    with pytest.raises(FleetError) as caught:
        call(*arguments, **options)
    return caught.value


# The allocation annotation


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "Scheduled", "WaitingForSync", "Unknown"])
def test_the_note_of_an_earlier_run_frees_nothing_while_a_vm_is_starting(phase):
    """H3: until an instance is Running, the note tells what the VM had before."""
    trainer = vm("trainer", devices=PLACEHOLDER, note=noted(D5))
    other = vm("other", devices=PLACEHOLDER, note=noted(D5))
    taken = snapshot(
        **ready(4, 5),
        vms=[trainer, other],
        instances=[started(trainer, phase=phase), started(other)],
        nodes=[node(q4=2)],
    )
    assert held(taken) == {D4: ["trainer"], D5: ["other", "trainer"]}
    assert "default/trainer" in str(refusal(disabled, taken, D4))
    lower = refusal(plan, safe(taken), [Demand(Q4, 1)], Policy(exclusive=True))
    assert "default/trainer" in str(lower)
    assert "default/trainer" in str(refusal(switched_off, taken))


STARTED = "2026-01-01T10:59:00Z"
SOON_AFTER, BEFORE, LONG_BEFORE = "2026-01-01T10:59:01Z", "2026-01-01T10:58:59Z", "2026-01-01T10:00:00Z"
CONTROLLER = {"f:metadata": {"f:annotations": {".": {}, f"f:{r.ALLOCATION_NOTE}": {}}}}
LISTS = {"f:spec": {"f:template": {"f:spec": {"f:domain": {"f:devices": {"f:hostDevices": {}}}}}}}
SOMEBODY = {**CONTROLLER, "f:spec": {"f:runStrategy": {}}}


def entry(time: str, fields=None):
    return {"manager": "pcidevices", "operation": "Update", "time": time, "fieldsV1": fields or CONTROLLER}


@pytest.mark.parametrize(
    ("managed", "status", "trusted"),
    [
        pytest.param([entry(SOON_AFTER)], since(STARTED), True, id="written since"),
        pytest.param([entry(SOON_AFTER, {**CONTROLLER, **LISTS})], since(STARTED), True, id="names rewritten before"),
        pytest.param([entry(STARTED)], since(STARTED), True, id="written in the same second"),
        pytest.param([entry(BEFORE)], since(STARTED), False, id="of the last run"),
        pytest.param([entry(SOON_AFTER), entry(BEFORE)], since(STARTED), False, id="two have it"),
        pytest.param([entry(SOON_AFTER, SOMEBODY)], since(STARTED), False, id="the time may be of another write"),
        pytest.param([entry(SOON_AFTER, LISTS)], since(STARTED), False, id="nobody has the annotation"),
        pytest.param([entry("soon")], since(STARTED), False, id="a time that is none"),
        pytest.param([], since(STARTED), False, id="no managed fields"),
        pytest.param([entry(BEFORE)], since(LONG_BEFORE), True, id="the same devices as in the last run"),
        pytest.param([], since(LONG_BEFORE), True, id="no managed fields, Running for long"),
        pytest.param([entry(SOON_AFTER)], {"phaseTransitionTimestamps": None}, False, id="no times of phases"),
        pytest.param([entry(SOON_AFTER)], since(STARTED, "Scheduled"), False, id="no time of Running"),
        pytest.param(
            [entry(BEFORE)],
            {**since(LONG_BEFORE), "migrationState": {"completed": True, "endTimestamp": STARTED}},
            False,
            id="migrated since",
        ),
    ],
)
def test_a_note_that_agrees_is_trusted_only_if_it_is_of_this_run(managed, status, trusted):
    """H3: Harvester writes the note seconds after the instance is Running; until then it is that of the last run."""
    trainer = vm("trainer", devices=PLACEHOLDER, note=noted(D5))
    trainer["metadata"]["managedFields"] = managed
    taken = snapshot(**ready(4, 5), vms=[trainer], instances=[started(trainer, **status)], nodes=[node(q4=2)], now=NOW)
    assert held(taken) == ({D5: ["trainer"]} if trusted else {D4: ["trainer"], D5: ["trainer"]})
    if trusted:
        assert disabled(taken, D4).steps
    else:
        assert "default/trainer" in str(refusal(disabled, taken, D4))
    # It is one vGPU that the VM has, whichever it is.
    assert taken.fleet.counted_claims == ()


def test_a_note_is_not_trusted_by_a_time_that_may_be_that_of_an_edit():
    trainer = vm("trainer", devices=PLACEHOLDER, note=noted(D5))
    running = started(trainer, **since(STARTED))
    edited = vm("trainer", devices=[], note=noted(D5))
    edited["metadata"]["managedFields"] = [entry(SOON_AFTER, {**CONTROLLER, **LISTS})]
    taken = snapshot(**ready(4, 5), vms=[edited], instances=[running], nodes=[node(q4=2)])
    assert held(taken) == {D4: ["trainer"], D5: ["trainer"]}


def test_a_note_is_not_trusted_by_the_clock_of_a_node_that_is_behind():
    trainer = vm("trainer", devices=PLACEHOLDER, note=noted(D5))
    trainer["metadata"]["managedFields"] = [entry(BEFORE)]
    running = started(trainer, **since("2026-01-01T10:58:00Z"))
    running["metadata"]["creationTimestamp"] = STARTED
    taken = snapshot(**ready(4, 5), vms=[trainer], instances=[running], nodes=[node(q4=2)])
    assert held(taken) == {D4: ["trainer"], D5: ["trainer"]}


@pytest.mark.parametrize(
    ("note", "started_as", "status"),
    [
        pytest.param(noted(D5), PLACEHOLDER * 2, {}, id="fewer than the instance has"),
        pytest.param(noted(D5, D6), PLACEHOLDER, {}, id="more than the instance has"),
        pytest.param(noted(D5, resource=EIGHT), PLACEHOLDER, {}, id="of another type"),
        pytest.param(noted("n1-000008007"), PLACEHOLDER, {}, id="a device that is not configured"),
        pytest.param(noted("n1-000009004"), PLACEHOLDER, {}, id="a device that does not exist"),
        pytest.param(noted("n2-000008004"), PLACEHOLDER, {}, id="a device of another node"),
        pytest.param(noted(D5), PLACEHOLDER, {"activePods": {"a": "n1", "b": "n2"}}, id="with pods on two nodes"),
        pytest.param("{not json", PLACEHOLDER, {}, id="that cannot be read"),
        pytest.param(None, PLACEHOLDER, {}, id="that is missing"),
    ],
)
def test_a_note_that_does_not_agree_with_the_instance_frees_nothing(note, started_as, status):
    machine = vm("trainer", devices=started_as, note=note)
    devices = ready(4, 5, 6)
    other = {"node": "n2", "asked": Q4, "configured": Q4}
    devices["vgpus"] += [vgpu(7), vgpu(4, **other)]
    taken = snapshot(
        **devices,
        gpus=[gpu(), gpu("n2")],
        nodes=[node(), node("n2")],
        vms=[machine],
        instances=[started(machine, **status)],
    )
    assert {D4, D5, D6} <= held(taken).keys()
    assert "default/trainer" in str(refusal(disabled, taken, D4))


def test_two_running_vms_with_the_same_device_in_their_notes_free_nothing():
    both = [vm(name, devices=PLACEHOLDER, note=noted(D5)) for name in ("a", "b")]
    assert held(snapshot(**ready(4, 5), vms=both, instances=[started(one) for one in both])) == {
        D4: ["a", "b"],
        D5: ["a", "b"],
    }


def test_a_note_that_agrees_frees_the_other_devices():
    machine = vm("trainer", devices=[(D4, RESOURCE)], note=noted(D5))
    taken = snapshot(**ready(4, 5), vms=[machine], instances=[started(machine)])
    assert held(taken) == {D5: ["trainer"]}
    assert [step.slot for step in disabled(taken, D4).steps] == [D4]


@pytest.mark.parametrize("version", ["1.3.2", "1.7", "1.8", "1.9"])
@pytest.mark.parametrize("note", [None, "oops", noted(D4)])
def test_a_vm_that_was_edited_while_it_runs_keeps_what_it_has_and_gets_what_it_asks_for(version, note):
    """H4: on Harvester 1.3 there are no notes, later ones may be missing or broken."""
    edited = vm("trainer", devices=[(D6, EIGHT)], note=note)
    devices = ready(4)
    for key, found in ready(6, type_name=Q8).items():
        devices[key] += found
    taken = snapshot(version, **devices, vms=[edited], instances=[instance("trainer", devices=[(D4, RESOURCE)])])
    assert held(taken) == {D4: ["trainer"], D6: ["trainer"]}
    assert "default/trainer" in str(refusal(switched_off, taken))
    for device in (D4, D6):
        assert "default/trainer" in str(refusal(disabled, taken, device))


def test_a_vm_whose_devices_were_taken_out_of_its_spec_keeps_them_until_it_is_restarted():
    """H4: the hint of the first refusal leads here, so the second one says what is missing."""
    detached = vm("trainer")
    taken = snapshot("1.3.2", **ready(4), vms=[detached], instances=[instance("trainer", devices=[(D4, RESOURCE)])])
    error = refusal(switched_off, taken)
    assert "default/trainer" in error.message
    assert "until it is stopped or restarted" in error.hint


def test_a_vm_that_migrates_holds_devices_on_both_nodes():
    machine = vm("trainer", devices=PLACEHOLDER, note=noted(D4))
    moving = {"migrationState": {"sourceNode": "n1", "targetNode": "n2"}}
    taken = snapshot(
        vgpus=[vgpu(4, node=name, asked=Q4, configured=Q4) for name in ("n1", "n2")],
        claims=[claim(4, node=name) for name in ("n1", "n2")],
        gpus=[gpu(), gpu("n2")],
        nodes=[node(), node("n2")],
        vms=[machine],
        instances=[started(machine, **moving)],
    )
    assert held(taken) == {D4: ["trainer"], "n2-000008004": ["trainer"]}


def test_what_an_edited_vm_will_take_is_counted_beside_what_it_has():
    edited = vm("trainer", devices=[("vgpu-0", RESOURCE), ("vgpu-1", RESOURCE)], note=noted(D4))
    taken = snapshot(**ready(4, 5), vms=[edited], instances=[instance("trainer", devices=PLACEHOLDER)])
    (more,) = taken.fleet.claims
    assert (more.profile, more.count, more.pending) == (Q4, 1, True)
    assert "default/trainer asks for 1 x NVIDIA A2-4Q" in str(refusal(disabled, taken, D5))


def test_a_running_vm_whose_device_shows_no_type_keeps_every_device_that_could_be_it():
    machine = vm("trainer", devices=PLACEHOLDER)
    taken = snapshot(vgpus=[vgpu(4, status={}), vgpu(5, status={})], vms=[machine], instances=[started(machine)])
    assert "default/trainer" in str(refusal(switched_off, taken))


# Stopped VMs


@pytest.mark.parametrize("name", ["vgpu-0", "provisioned", ""])
def test_a_stopped_vm_that_names_no_device_keeps_as_many_as_it_asks_for(name):
    """M2: by name, by SR-IOV off and by number."""
    taken = snapshot(**ready(4, 5), vms=[vm("idle", devices=[(name, RESOURCE)])])
    assert [step.slot for step in disabled(taken, D4).steps] == [D4]
    for error in (
        refusal(disabled, taken, D4, D5),
        refusal(switched_off, taken),
        refusal(plan, safe(taken), [Demand(Q4, 0)], Policy(exclusive=True)),
        refusal(plan_devices, safe(taken), [DeviceRequest(D4, C4), DeviceRequest(D5, C4)], Policy(reprofile=True)),
    ):
        assert "VM default/idle (stopped)" in str(error)


def test_a_stopped_vm_finds_what_it_asks_for_on_another_gpu():
    devices = ready(4)
    devices["vgpus"].append(vgpu(4, node="n2", asked=Q4, configured=Q4))
    devices["claims"].append(claim(4, node="n2"))
    taken = snapshot(
        **devices, gpus=[gpu(), gpu("n2")], nodes=[node(), node("n2")], vms=[vm("idle", devices=PLACEHOLDER)]
    )
    one = plan_sriov(safe(taken), nodes=["n1"], gpus=None, enabled=False, disable_vgpus=True)
    assert [step.action for step in one.steps] == ["disable", "disable_sriov"]


def test_a_device_that_two_stopped_vms_had_is_kept_for_one_of_them():
    idle = vm("idle", devices=PLACEHOLDER, note=noted(D4))
    also = vm("also", devices=PLACEHOLDER, note=noted(D4))
    taken = snapshot(**ready(4, 5, 6), vms=[idle, also])
    # Only one of the two can get the device that both had.
    assert [step.slot for step in disabled(taken, D5).steps] == [D5]
    assert "asks for 1 x NVIDIA A2-4Q" in str(refusal(disabled, taken, D5, D6))


# Launcher pods and claims


def test_a_pod_that_outlives_its_instance_keeps_its_devices():
    machine = vm("trainer")
    ended = instance("trainer", phase="Failed", devices=PLACEHOLDER, activePods={"p": "n1"})
    alive = launcher("trainer", RESOURCE, owner="uid-trainer")
    common = {**ready(4), "vms": [machine], "instances": [ended]}
    assert held(snapshot(**common, pods=[alive])) == {D4: ["trainer"]}
    assert held(snapshot(**common, pods=[launcher("trainer", RESOURCE, phase="Succeeded")])) == {}
    # Whoever may not read pods cannot know, so nothing is taken away.
    assert held(snapshot(**common, pods=None)) == {D4: ["trainer"]}


def test_a_pod_on_a_node_that_lost_its_connection_keeps_its_devices_though_its_vm_runs_elsewhere():
    machine = vm("trainer", devices=PLACEHOLDER, note=noted("n2-000008004"))
    devices = ready(4)
    devices["vgpus"].append(vgpu(4, node="n2", asked=Q4, configured=Q4))
    common = {
        **devices,
        "gpus": [gpu(), gpu("n2")],
        "nodes": [node(ready=False), node("n2")],
        "vms": [machine],
        "instances": [started(machine, on="n2")],
    }
    assert held(snapshot(**common, pods=[launcher("trainer", RESOURCE)]))[D4] == ["trainer"]
    assert "unknown VM on node n1" in str(refusal(disabled, snapshot(**common, pods=None), D4))


def test_a_device_that_somebody_claimed_by_hand_is_in_use():
    by_hand = {"metadata": {"name": D4}, "spec": {"address": "0000:08:00.4", "nodeName": "n1", "userName": "kim"}}
    taken = snapshot(vgpus=[vgpu()], claims=[by_hand])
    assert f"PCIDeviceClaim {D4}" in str(refusal(switched_off, taken))


class Api:
    """Lists of a cluster; answers what it has, and remembers what it was asked."""

    now = NOW

    def __init__(self, taken, *, pods=()):
        self.lists = {path: getattr(taken, name) for path, name in snapshots.OBSERVABLE.items()}
        self.lists |= {r.VMS: taken.vms, r.INSTANCES: taken.instances, r.PCI_DEVICES: taken.pci_devices}
        self.lists[r.LAUNCHER_PODS] = pods if pods is None else listing(*pods)
        self.asked: list[str] = []

    def get(self, path, **query):
        self.asked.append(path)
        found = self.lists[path]
        if found is None:
            raise Forbidden("no", status=403)
        return {"items": list(found.items.values()), "metadata": {"resourceVersion": "1"}}

    def together(self, calls):
        return [call() for call in calls]


@pytest.mark.parametrize(
    ("status", "is_ready", "asks"),
    [
        ({"phase": "Running", "activePods": {"p": "n1"}}, True, False),
        ({"phase": "Succeeded"}, True, False),
        ({"phase": "Succeeded", "activePods": {"p": "n1"}}, True, True),
        ({"phase": "Running"}, False, True),
    ],
)
@pytest.mark.parametrize("forbidden", [True, False])
def test_pods_are_read_only_where_nothing_else_can_tell(status, is_ready, asks, forbidden):
    taken = snapshot(
        **ready(4), nodes=[node(ready=is_ready)], instances=[{**instance("v", devices=PLACEHOLDER), "status": status}]
    )
    api = Api(taken, pods=None if forbidden else ())
    again = snapshots.read(api, "1.8")
    assert (r.LAUNCHER_PODS in api.asked) is asks
    assert again.pods.readable is not (asks and forbidden)


# MIG and drift


def test_sriov_is_not_switched_off_over_mig_instances():
    """M9: Harvester deletes the MIG configuration and leaves the instances on the card."""
    taken = world(configuration(enabled=True, requested={"3g.20gb": 2}, instances={"3g.20gb": 2}, status="synced"))
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.mig_conditions import mig_layouts

    error = refusal(switched_off, taken, mig_layouts=mig_layouts(taken))
    assert error.code == "mig_instances"
    assert "2 x 3g.20gb" in error.message
    steps = switched_off(taken, mig_layouts=mig_layouts(taken), remove_mig=True).steps
    assert [step.action for step in steps] == ["remove_mig_instances", "disable_sriov"]
    without = world(configuration())
    assert [step.action for step in switched_off(without, mig_layouts=mig_layouts(without)).steps] == ["disable_sriov"]


def test_the_spec_of_a_device_in_use_may_be_set_back_to_what_the_device_is():
    """M11: Harvester ignores a type that is written into an enabled device, so nothing happens to it."""
    machine = vm("trainer", devices=[(D4, RESOURCE)], note=noted(D4))
    taken = snapshot(
        vgpus=[vgpu(asked=Q8, configured=Q4)], claims=[claim()], vms=[machine], instances=[started(machine)]
    )
    (step,) = plan_devices(safe(taken), [DeviceRequest(D4, Q4)], Policy()).steps
    assert (step.action, step.slot, step.before, step.after) == ("correct", D4, Q8, Q4)
    assert refusal(plan_devices, safe(taken), [DeviceRequest(D4, Q8)], Policy(reprofile=True)).code == "device_in_use"
    found = {**taken.fleet.as_dict(), "findings": [one.as_dict() for one in findings(taken, taken.fleet)]}
    (drift,) = harvester_drift(found, unused=False)
    assert (drift["repair"], drift["wanted"]) == ("spec", {"name": D4, "profile": Q4})
    # Here the device is something else than its claim says, and its VM was given it by the claim.
    wrong = snapshot(
        vgpus=[vgpu(asked=Q8, configured=Q8)], claims=[claim()], vms=[machine], instances=[started(machine)]
    )
    assert refusal(plan_devices, safe(wrong), [DeviceRequest(D4, Q4)], Policy(reprofile=True)).code == "device_in_use"


# Odd objects


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        (None, True),
        ("", True),
        ("{}", True),
        ("null", True),
        ('{"hostdevices": null}', True),
        ('{"hostdevices": {"nvidia.com/x": null}}', True),
        ('{"other": 5}', True),
        ("{", False),
        ("[]", False),
        ('"text"', False),
        ("5", False),
        ('{"hostdevices": ["n1-000008004"]}', False),
        ('{"gpus": "n1-000008004"}', False),
        ('{"gpus": {"nvidia.com/x": "n1-000008004"}}', False),
        ('{"gpus": {"nvidia.com/x": [1]}}', False),
        ('{"gpus": {"nvidia.com/x": {"a": 1}}}', False),
    ],
)
def test_notes_of_any_shape_are_read_or_told(text, readable):
    """M14: one VM with such a note made every module on the cluster fail."""
    machine = vm("odd", devices=[(D4, RESOURCE)], note=text)
    assert (read_note(text) is not None) is readable
    assert broken_notes({"default/odd": machine}) == ([] if readable else ["default/odd"])
    for running in (True, False):
        taken = snapshot(**ready(4), vms=[machine], instances=[started(machine)] if running else [])
        assert held(taken) == {D4: ["odd"]}
        kinds = [one.kind for one in findings(taken, taken.fleet)]
        assert ("invalid_annotation" in kinds) is not readable


def test_keys_of_a_note_are_read_as_the_controllers_read_them():
    assert read_note('{"HostDevices": {"r": ["a"]}, "GPUs": {"r": ["b"]}}') == {
        "hostdevices": {"r": ["a"]},
        "gpus": {"r": ["b"]},
    }


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", 4),
        (4, 4),
        ("1k", 1000),
        ("2Ki", 2048),
        ("1500m", 1),
        ("1e3", 1000),
        ("0", 0),
        ("", 0),
        ("many", 0),
        (None, 0),
    ],
)
def test_quantities_of_any_form_are_read(text, number):
    """M14: nodes may count in thousands."""
    assert quantity(text) == number
    counting = node()
    counting["status"]["allocatable"] = {RESOURCE: text}
    taken = snapshot(**ready(4), nodes=[counting])
    assert taken.fleet.nodes[0].advertised == {Q4: number}


@pytest.mark.parametrize("field", ["spec", "address", "nodeName", "parentGPUDeviceAddress"])
@pytest.mark.parametrize("absent", [True, False])
def test_devices_without_a_spec_or_an_address_are_read(field, absent):
    """M14: the definitions of Harvester allow both."""
    odd = copy.deepcopy(vgpu(5))
    owner = odd if field == "spec" else odd["spec"]
    if absent:
        del owner[field]
    else:
        owner[field] = None
    taken = snapshot(vgpus=[vgpu(4), odd], gpus=[gpu(), {"metadata": {"name": "bare"}}])
    assert {slot.name for _gpu, slot in taken.fleet.slots()} == {D4, D5}
    findings(taken, taken.fleet)


def test_devices_of_a_vm_may_be_null_or_nameless():
    odd = vm("odd")
    odd["spec"]["template"]["spec"]["domain"]["devices"] = {"gpus": [None, {"name": None}], "hostDevices": None}
    assert held(snapshot(**ready(4), vms=[odd, {"metadata": {"name": "x", "namespace": "y"}, "spec": None}])) == {}
