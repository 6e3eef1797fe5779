"""Random clusters, each with a hidden truth of which device each guest has: no plan of any module touches one.

What the API shows of the truth is what Harvester and KubeVirt show at that moment: the phase of the instance, a note
that is right, of an earlier run, broken or missing, a spec that was edited since, pods that outlive their instances.

A note of an earlier run may agree with the running instance in number, type and node. Harvester replaces it seconds
after the instance has become Running, so such an instance has not been Running for long, unless its node is cut off.
What tells it then is when it was written, which the API may not show, or show for another write of the same manager.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import read_wanted
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r, version as versions
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.addon.apply import VmLists
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.devices import DeviceRequest, plan_devices
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.mig import MigRequest, plan_mig
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.sriov import plan_sriov
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.mig_conditions import mig_layouts
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.snapshot import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.reprofile.plan import POLICY, reprofile_plan
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.findings import findings
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step
from ansible_collections.vgpu.fleet.plugins.plugin_utils.drift import harvester_drift
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.unit.plugins.module_utils.harvester.decide.test_mig import configuration
from tests.unit.plugins.module_utils.harvester.objects import launcher, snapshot

Json = dict[str, Any]
VERSIONS = ("1.3.2", "1.4.1", "1.5.0", "1.6.0", "1.7.1", "1.8.0", "1.9.0")
NODES = ("n1", "n2")
FUNCTIONS = range(4, 8)
TIME_SLICED = ("NVIDIA A2-4Q", "NVIDIA A2-4C", "NVIDIA A2-8Q")
MIG = ("GRID A100-1-5C", "GRID A100-3-20C")
# By what a guest does, the phases that its instance may show. None is an instance that is gone.
ALIVE = {
    "starting": ("Scheduled", "", "Pending", "Scheduling", "Scheduled", "WaitingForSync"),
    "running": ("Running",),
    "migrating": ("Running",),
    "unreachable": ("Unknown", "Running"),
    "ending": ("Succeeded", "Failed"),
    "cut off": (None,),
}
NOTES = ("true", "alike", "missing", "broken", "earlier", "odd")
NOW = 1_800_000_000
SECONDS = (0, 1, 5, 60, 240)
DAY = 86_400
WRITERS = ("pcidevices", "pcidevices", "user", "nobody")
BROKEN = ("{", "[]", '{"hostdevices": ["n1-000008004"]}', '{"gpus": {"nvidia.com/NVIDIA_A2-4Q": "n1-000008004"}}')


@dataclass
class Guest:
    """A VM, what it really has, and what it shows of that."""

    name: str
    state: str
    node: str
    truth: list[str]
    phase: str | None
    knows_node: bool
    edit: str
    note: str
    noted: list[str]
    names: list[str]
    alone: bool
    broken: str
    # Seconds since the instance has become Running, and until or since the note was written.
    running_for: int
    written_after: int
    written_before: int
    # Whose entry in the managed fields has the note, and whether the instance shows when its phases began.
    writer: str
    stamped: bool

    @property
    def runs(self) -> bool:
        return self.state != "stopped"


@dataclass
class World:
    version: str
    mig: bool
    # By device: what the hardware has, and what the spec asks for.
    types: dict[str, str]
    asked: dict[str, str | None]
    guests: list[Guest]
    down: set[str] = field(default_factory=set)
    pods_forbidden: bool = False

    @property
    def truth(self) -> dict[str, str]:
        return {device: guest.name for guest in self.guests for device in guest.truth}

    @property
    def vendor_vfio(self) -> bool:
        return versions.from_option(self.version).vendor_vfio


def address(function: int) -> str:
    return f"0000:08:{function // 8:02x}.{function % 8}"


def device(node: str, function: int) -> str:
    return r.device_name(node, address(function))


def resource(type_name: str) -> str:
    return "nvidia.com/" + type_name.replace(" ", "_")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    version = draw(st.sampled_from(VERSIONS))
    mig = version >= "1.7" and draw(st.booleans())
    every = MIG if mig else TIME_SLICED
    types: dict[str, str] = {}
    asked: dict[str, str | None] = {}
    for node in NODES:
        # On a time-sliced GPU all vGPUs have the same size.
        fitting = every if mig else draw(st.sampled_from((TIME_SLICED[:2], TIME_SLICED[2:])))
        for function in FUNCTIONS:
            if draw(st.integers(0, 3)):
                name = device(node, function)
                types[name] = draw(st.sampled_from(fitting))
                asked[name] = draw(st.sampled_from((types[name], types[name], types[name], every[-1])))
    free = set(types)
    down = draw(st.sampled_from((set(), set(), set(), {"n1"})))
    guests = [_guest(draw, f"vm-{number}", types, free, down, version) for number in range(draw(st.integers(0, 4)))]
    world = World(version, mig, types, asked, guests, down, pods_forbidden=draw(st.booleans()))
    _replace_notes_in_time(world)
    return world


def _guest(draw: st.DrawFn, name: str, types: dict[str, str], free: set[str], down: set[str], version: str) -> Guest:
    node = draw(st.sampled_from(NODES))
    state = draw(st.sampled_from(("starting", "stopped", *ALIVE)))
    if state == "cut off" and node not in down:
        state = "running"
    here = sorted(one for one in free if one.startswith(node))
    truth: list[str] = []
    if state != "stopped" and here:
        truth = draw(st.lists(st.sampled_from(here), min_size=1, max_size=2, unique=True))
        free -= set(truth)
    devices = st.sampled_from(sorted(device(node, function) for node in NODES for function in FUNCTIONS))
    noted = st.lists(devices, max_size=2, unique=True)
    alike = sorted(one for one in types if truth and one.startswith(node) and types[one] == types[truth[0]])
    if alike:
        # What it had before is often of the same type, on the same node.
        noted |= st.lists(st.sampled_from(alike), min_size=1, max_size=len(truth), unique=True)
    note = "missing" if version < "1.4" else draw(st.sampled_from(NOTES))
    if note == "alike":
        note, noted = "earlier", st.just(_alike(truth, types))
    if state not in ("running", "migrating") and note in ("true", "odd"):
        note = "earlier"
    return Guest(
        name=name,
        state=state,
        node=node,
        truth=truth,
        phase=draw(st.sampled_from(ALIVE.get(state, ("Succeeded", None, None)))),
        knows_node=draw(st.booleans()),
        edit=draw(st.sampled_from(("", "", "emptied", "another", "more"))),
        note=note,
        noted=draw(noted),
        names=draw(st.lists(devices | st.sampled_from(("vgpu-0", "provisioned", "")), min_size=2, max_size=2)),
        alone=state != "stopped" and draw(st.integers(0, 5)) == 0,
        broken=draw(st.sampled_from(BROKEN)),
        running_for=draw(st.sampled_from((*SECONDS, DAY))),
        written_after=draw(st.sampled_from(SECONDS)),
        # An instance does not become Running in the second in which its predecessor has ended.
        written_before=draw(st.sampled_from((2, 60, DAY))),
        writer=draw(st.sampled_from(WRITERS)),
        stamped=draw(st.integers(0, 4)) > 0,
    )


def stopped_guest(*, names: list[str], edit: str = "") -> Guest:
    """A stopped VM without an allocation annotation."""
    return Guest(
        name="vm-0",
        state="stopped",
        node="n1",
        truth=[],
        phase=None,
        knows_node=False,
        edit=edit,
        note="missing",
        noted=[],
        names=names,
        alone=False,
        broken="",
        running_for=0,
        written_after=0,
        written_before=0,
        writer="nobody",
        stamped=True,
    )


def _alike(truth: list[str], types: dict[str, str]) -> list[str]:
    """Other devices than these, as many, of the same types and on the same node; the same ones if there are none."""
    found: list[str] = []
    for one in truth:
        node = one.partition("-")[0]
        same = [name for name in types if name.startswith(node) and types[name] == types[one]]
        left = [name for name in same if name not in found]
        found.append(next((name for name in left if name not in truth), left[0]))
    return found


def _replace_notes_in_time(world: World) -> None:
    """An instance with the note of an earlier run that looks like its own has become Running just now."""

    def looks_right(guest: Guest) -> bool:
        if guest.note != "earlier" or guest.phase != "Running":
            return False
        counts = Counter(world.types.get(one) for one in guest.noted)
        return counts == Counter(world.types[one] for one in guest.truth) and all(
            one.startswith(guest.node) for one in guest.noted
        )

    for guest in world.guests:
        if looks_right(guest):
            guest.running_for = min(guest.running_for, SECONDS[-1])


# What the API shows


def _entries(guest: Guest, types: list[str]) -> list[Json]:
    return [{"name": guest.names[number % 2], "deviceName": resource(name)} for number, name in enumerate(types)]


def _spec(world: World, entries: list[Json]) -> Json:
    return {"domain": {"devices": {"hostDevices" if world.vendor_vfio else "gpus": entries}}}


def _note(world: World, guest: Guest) -> str | None:
    if guest.note == "missing":
        return None
    if guest.note == "broken":
        return guest.broken
    if guest.note == "odd":
        return json.dumps({"hostdevices": {"nvidia.com/GA102GL_A10": ["n1-000041000"]}, "gpus": None})
    by_resource: dict[str, list[str]] = {}
    for one in guest.truth if guest.note == "true" else guest.noted:
        by_resource.setdefault(resource(world.types.get(one, TIME_SLICED[0])), []).append(one)
    return json.dumps({"hostdevices" if world.vendor_vfio else "gpus": by_resource})


def _stamp(seconds_ago: int) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _managed(guest: Guest) -> list[Json]:
    """The entry that has the note. A user's has more, so a later write to the VM may have moved its time."""
    if guest.writer == "nobody":
        return []
    if guest.note == "earlier":
        written = guest.running_for + guest.written_before
    else:
        written = max(0, guest.running_for - guest.written_after)
    fields: Json = {"f:metadata": {"f:annotations": {f"f:{r.ALLOCATION_NOTE}": {}}}}
    if guest.writer == "user":
        fields["f:spec"] = {"f:runStrategy": {}}
        written = min(written, guest.written_after)
    return [{"manager": guest.writer, "operation": "Update", "time": _stamp(written), "fieldsV1": fields}]


def _machine(world: World, guest: Guest) -> Json:
    every = MIG if world.mig else TIME_SLICED
    has = [world.types[one] for one in guest.truth] or ([every[0]] if guest.state == "stopped" else [])
    wants = {"": has, "emptied": [], "another": [every[-1]], "more": [*has, every[0]]}[guest.edit]
    note = _note(world, guest)
    return {
        "metadata": {
            "name": guest.name,
            "namespace": "default",
            "annotations": {} if note is None else {r.ALLOCATION_NOTE: note},
            "managedFields": [] if note is None else _managed(guest),
        },
        "spec": {"template": {"spec": _spec(world, _entries(guest, wants))}},
    }


def _instance(world: World, guest: Guest) -> Json:
    status: Json = {"phase": guest.phase}
    if guest.phase == "Running" and guest.stamped:
        began = _stamp(guest.running_for)
        status["phaseTransitionTimestamps"] = [{"phase": "Running", "phaseTransitionTimestamp": began}]
    started = guest.phase not in ("", "Pending", "Scheduling")
    if started:
        status["nodeName"] = guest.node
    if guest.truth and (guest.knows_node or guest.state == "ending"):
        status["activePods"] = {f"pod-{guest.name}": guest.node}
    if guest.state == "migrating":
        other = NODES[1 - NODES.index(guest.node)]
        status["migrationState"] = {"sourceNode": guest.node, "targetNode": other}
    has = [world.types[one] for one in guest.truth]
    return {
        "metadata": {"name": guest.name, "namespace": "default", "uid": f"uid-{guest.name}"},
        "spec": _spec(world, _entries(guest, has)),
        "status": status,
    }


def _pods(world: World) -> list[Json]:
    found = []
    for guest in world.guests:
        if guest.state in ("ending", "cut off") and guest.truth:
            counts = Counter(world.types[one] for one in guest.truth)
            pod = launcher(guest.name, "", on=guest.node, owner=f"uid-{guest.name}")
            limits = {resource(name): str(count) for name, count in counts.items()}
            pod["spec"]["containers"][0]["resources"]["limits"] = limits
            found.append(pod)
    return found


def _vgpu(world: World, node: str, function: int) -> Json:
    name = device(node, function)
    has, asked = world.types.get(name), world.asked.get(name)
    every = MIG if world.mig else TIME_SLICED
    status: Json = {"availableTypes": dict.fromkeys(every, "1")}
    if has:
        status = {"vGPUStatus": r.CONFIGURED, "uuid": "1", "configureVGPUTypeName": has}
    return {
        "metadata": {"name": name, "labels": {r.NODE_LABEL: node}},
        "spec": {
            "address": address(function),
            "nodeName": node,
            "parentGPUDeviceAddress": "0000:08:00.0",
            "enabled": bool(asked),
            "vGPUTypeName": asked or "",
        },
        "status": status,
    }


def _claim(world: World, name: str) -> Json:
    return {
        "metadata": {"name": name, "annotations": {r.OVERRIDE_ANNOTATION: resource(world.types[name])}},
        "spec": {"nodeName": name.partition("-")[0]},
        "status": {"passthroughEnabled": True},
    }


def _card(world: World, node: str) -> Json:
    return {
        "metadata": {"name": f"{node}-000008000"},
        "spec": {"address": "0000:08:00.0", "nodeName": node, "enabled": True},
        "status": {
            "vfAddresses": [address(function) for function in FUNCTIONS],
            "vGPUDevices": [device(node, function) for function in FUNCTIONS],
        },
    }


def _cut(world: World, node: str) -> Json:
    sizes = {"GRID A100-1-5C": "1g.5gb", "GRID A100-3-20C": "3g.20gb"}
    counts = Counter(sizes[has] for name, has in world.types.items() if name.startswith(node))
    found = configuration(enabled=True, requested=counts, instances=counts, status="synced")
    return {**found, "metadata": {"name": f"{node}-000008000"}}


def _node(world: World, name: str) -> Json:
    counts = Counter(resource(has) for one, has in world.types.items() if one.startswith(name))
    state = "False" if name in world.down else "True"
    return {
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "allocatable": {one: str(count) for one, count in counts.items()},
            "conditions": [{"type": "Ready", "status": state}],
        },
    }


def shown(world: World, *, vms: bool = True) -> Snapshot:
    guests = world.guests if vms else []
    instances = [_instance(world, guest) for guest in guests if guest.phase is not None]
    # As the modules read them: only where something cannot be told otherwise.
    needed = world.down or any(guest.state == "ending" and guest.truth for guest in guests)
    pods: list[Json] | None = _pods(world) if needed and vms else []
    if needed and vms and world.pods_forbidden:
        pods = None
    return snapshot(
        world.version,
        gpus=[_card(world, node) for node in NODES],
        nodes=[_node(world, node) for node in NODES],
        vgpus=[_vgpu(world, node, function) for node in NODES for function in FUNCTIONS],
        claims=[_claim(world, name) for name in world.types] if world.vendor_vfio else [],
        vms=[_machine(world, guest) for guest in guests if not guest.alone],
        instances=instances,
        mig=[_cut(world, node) for node in NODES] if world.mig else [],
        pods=pods,
        now=NOW,
    )


@dataclass(frozen=True)
class Seen:
    """What a module reads, and the fleet that it plans with."""

    taken: Snapshot

    @cached_property
    def fleet(self) -> Fleet:
        return Cluster(None, self.taken).fleet_for_planning  # type: ignore[arg-type]


# What modules are asked for


Steps = tuple[Step, ...]
Task = Callable[[Seen], Steps]
names = st.sampled_from([device(node, function) for node in NODES for function in FUNCTIONS])
chosen_gpus = st.sampled_from([("*",), ("n1-*",), ("n2-000008000",)])


def switching_off(*gpus: str) -> Task:
    options = {"nodes": [], "gpus": gpus, "enabled": False, "disable_vgpus": True, "remove_mig": True}
    return lambda seen: plan_sriov(seen.fleet, **options, mig_layouts=mig_layouts(seen.taken)).steps


def changing(policy: Policy, *requests: DeviceRequest) -> Task:
    return lambda seen: plan_devices(seen.fleet, requests, policy).steps


def counting(policy: Policy, demand: Demand) -> Task:
    return lambda seen: plan(seen.fleet, [demand], policy).steps


def cutting(**options: Any) -> Task:
    return lambda seen: plan_mig(seen.fleet, seen.taken, MigRequest(**options, relayout=True)).steps


def everything(world: World) -> Iterator[Task]:
    """All that could be taken away, piece by piece."""
    for node in NODES:
        yield switching_off(f"{node}-*")
    for name in world.types:
        yield changing(Policy(), DeviceRequest(name, None, enabled=False))
    for type_name in sorted(set(world.types.values())):
        yield counting(Policy(exclusive=True), Demand(type_name, 0))
    if world.mig:
        yield cutting(enabled=False, gpus=("n1-*",))


@st.composite
def tasks(draw: st.DrawFn, mig: bool) -> Task:
    types = st.sampled_from(MIG if mig else TIME_SLICED)
    policy = Policy(
        exclusive=draw(st.booleans()), reprofile=draw(st.booleans()), enable_sriov=True, enable_mig=draw(st.booleans())
    )
    kind = draw(st.sampled_from(("devices", "count", "mig") if mig else ("devices", "count")))
    gpus = draw(chosen_gpus)
    if kind == "devices":
        chosen = draw(st.lists(names, min_size=1, max_size=3, unique=True))
        requests = [
            DeviceRequest(name, None, enabled=False) if draw(st.booleans()) else DeviceRequest(name, draw(types))
            for name in chosen
        ]
        return changing(policy, *requests)
    if kind == "count":
        per = draw(st.sampled_from(("fleet", "gpu")))
        return counting(policy, Demand(draw(types), draw(st.integers(0, 5)), per, gpus=gpus))
    sliced = draw(st.booleans())
    instances = () if sliced else ((read_wanted("1g.5gb"), draw(st.integers(1, 7))),)
    return cutting(instances=instances, time_sliced=sliced, gpus=gpus)


def touched(world: World, steps: tuple[Step, ...]) -> set[str]:
    """The devices under a guest that a plan would change."""
    found: set[str] = set()
    for step in steps:
        if step.action in ("disable_sriov", "create_mig_instances", "remove_mig_instances"):
            found |= {name for name in world.truth if name.startswith(step.node)}
        elif step.action == "correct":
            # Writing down what the hardware has changes nothing.
            found |= {step.slot} if step.after != world.types.get(step.slot or "") else set()
        elif step.slot:
            found.add(step.slot)
    return found & world.truth.keys()


def after(world: World, steps: Steps) -> World:
    """The world once the steps are done."""
    types, asked = dict(world.types), dict(world.asked)
    for step in steps:
        if step.action in ("disable", "enable") and step.slot:
            types.pop(step.slot, None)
            asked.pop(step.slot, None)
        if step.action in ("enable", "correct") and step.slot and step.after:
            types[step.slot] = asked[step.slot] = step.after
    return replace(world, types=types, asked=asked)


def referred_to(world: World) -> set[str]:
    """Devices that stopped VMs name, in their specs."""
    idle = [guest for guest in world.guests if guest.state == "stopped"]
    return {entry["name"] for guest in idle for entry in _wanted(world, guest)} & world.types.keys()


def _wanted(world: World, guest: Guest) -> list[Json]:
    devices = _machine(world, guest)["spec"]["template"]["spec"]["domain"]["devices"]
    return [entry for entries in devices.values() for entry in entries]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), world=worlds())
def test_no_plan_touches_a_device_that_a_guest_has_and_every_refusal_names_a_vm(
    data: st.DataObject, world: World
) -> None:
    seen, without_vms = Seen(shown(world)), Seen(shown(world, vms=False))
    kept = referred_to(world)
    for task in (*everything(world), data.draw(tasks(world.mig))):
        try:
            steps = task(seen)
        except FleetError as error:
            _check_that_it_names_a_vm(world, task, without_vms, error)
            continue
        assert not touched(world, steps), f"{steps} touch {world.truth}"
        gone = {step.slot for step in steps if step.action == "disable"}
        assert not gone & kept, f"{steps} take away what a stopped VM names"
        _check_that_stopped_vms_find_theirs(world, steps)


def _check_that_it_names_a_vm(world: World, task: Task, without_vms: Seen, error: FleetError) -> None:
    try:
        task(without_vms)
    except FleetError:
        # It is refused for another reason as well.
        return
    if world.pods_forbidden and "unknown VM on node" in str(error):
        return
    assert any(f"default/{guest.name}" in str(error) for guest in world.guests), str(error)


def _check_that_stopped_vms_find_theirs(world: World, steps: tuple[Step, ...]) -> None:
    idle = [guest for guest in world.guests if guest.state == "stopped" and not guest.alone]
    # One that names a device that is there keeps that one.
    entries = [entry for guest in idle for entry in _wanted(world, guest) if entry["name"] not in world.types]
    wanted = Counter(entry["deviceName"] for entry in entries)
    # One that becomes something else at the next reboot is nothing to count on: whoever asks for that may have it.
    stable = {name: has for name, has in world.types.items() if world.asked[name] == has}
    gone = {step.slot for step in steps if step.action == "disable"} & stable.keys()
    lost = Counter(resource(stable[name]) for name in gone)
    made = Counter(resource(step.after) for step in steps if step.action in ("enable", "correct") and step.after)
    taken = world.truth.keys()
    left = Counter(resource(has) for name, has in stable.items() if name not in taken and name not in gone)
    for name, count in wanted.items():
        if lost[name] > made[name]:
            assert left[name] + made[name] >= count, f"too few {name} are left for {idle}"


def test_a_stopped_vm_that_names_one_of_its_two_vgpus_keeps_the_other_on_the_same_node() -> None:
    """A plan used to give it the second one on another node, where it could not start with both."""
    here = [device("n2", function) for function in (4, 5, 6)]
    types = dict.fromkeys(here, TIME_SLICED[0])
    asking = stopped_guest(names=[here[0], "vgpu-0"], edit="more")
    world = World("1.3.2", False, types, {**types}, [asking])
    layout = [{"profile": TIME_SLICED[0], "count": 1}]
    made = reprofile_plan(shown(world).fleet, [f"{node}-000008000" for node in NODES], layout)
    assert len(made["refusals"]) == 1
    assert "default/vm-0" in made["refusals"][0]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(world=worlds(), data=st.data())
def test_reprofile_drift_and_addons_leave_guests_alone(world: World, data: st.DataObject) -> None:
    taken = shown(world)
    fleet = Seen(taken).fleet
    found = {**taken.fleet.as_dict(), "findings": [one.as_dict() for one in findings(taken, taken.fleet)]}
    by_name = {guest.name: guest for guest in world.guests}
    # Reprofile changes a GPU only if every VM on it may be stopped.
    allowed = data.draw(st.lists(st.sampled_from(sorted(by_name)), unique=True)) if by_name else []
    every = MIG if world.mig else TIME_SLICED
    layout = [{"profile": data.draw(st.sampled_from(every)), "count": data.draw(st.integers(1, 4))}]
    gpus = [f"{node}-000008000" for node in NODES]
    made = reprofile_plan(taken.fleet, gpus, layout, [{"name": name, "namespace": "default"} for name in allowed])
    stopped: set[str] = set()
    left = world
    for change in made["work"] if not made["refusals"] else ():
        stopped |= {vm["name"] for vm in change["vms"]}
        assert stopped <= set(allowed)
        # Once these are stopped, the layout is made without touching what others have.
        left = replace(left, guests=[guest for guest in left.guests if guest.name not in stopped])
        profile, count = layout[0]["profile"], layout[0]["count"]
        demand = Demand(profile, count, "gpu", gpus=tuple(change["gpus"]))
        steps = plan(Seen(shown(left)).fleet, [demand], POLICY).steps
        assert not touched(left, steps), f"{steps} touch {left.truth}"
        _check_that_stopped_vms_find_theirs(left, steps)
        # The next GPUs are planned once these are done.
        left = after(left, steps)
    # Drift repairs devices only if that is harmless.
    drift = harvester_drift(
        found, driver={"diff": {"before": {"enabled": True}, "after": {"enabled": False}}}, unused=False
    )
    requests = [
        DeviceRequest(one["wanted"]["name"], one["wanted"]["profile"])
        for one in drift
        if one["repair"] in ("device", "spec")
    ]
    for request in requests:
        try:
            steps = plan_devices(fleet, [request], Policy(reprofile=True)).steps
        except FleetError:
            continue
        assert not touched(world, steps)
    using = {guest.name for guest in world.guests if guest.truth}
    told = " ".join(one["text"] for one in drift if one["kind"] == "driver_addon")
    if using and not world.pods_forbidden:
        assert not any(one["repair"] == "driver" for one in drift)
    # The driver is not replaced under them, and they are named. The addon does not look at pods.
    seen = {guest.name for guest in world.guests if guest.truth and guest.state not in ("ending", "cut off")}
    machines = VmLists(taken.vms, taken.instances, taken.vgpus)
    assert {f"default/{name}" for name in seen} <= set(machines.with_vgpus(running=True))
    assert not seen or "default/" in told
