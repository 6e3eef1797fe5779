"""A lab with Harvester on which cells are run: its beginnings, its gate, its looks, and when it has recovered."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

from lab.errors import LabError
from lab.kubernetes.gate_orders import order
from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules.moments import driver_pods
from tests.resilience.jobs import Call, Job, World
from tests.resilience.modules import Ended, Running, run

Json = dict[str, Any]

AGENT = "vgpu.fleet"
JOURNAL, OWNER = "vgpu.fleet/journal", "vgpu.fleet/owner"
# Real seconds. Those of the run under a fault are short: most faults are waited for until they end.
SHORT_SECONDS, LONG_SECONDS = 5, 60
RECOVERY_SECONDS = 90.0
POLL_SECONDS = 0.05
STEADY = ("AddonDeploySuccessful", "AddonDisabled", "", None)


class NotRecovered(Exception):
    """The lab does not get back to a state in which a cell can go on."""


class Stage:
    """One lab, the world that it is in, and the gate in front of its API server."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.world: World | None = None
        self.beginning: Json = {}
        self.driver_location = ""
        self.resets = 0

    @property
    def environment(self) -> dict[str, str]:
        return self.lab.env

    # Beginnings
    def enter(self, world: World) -> None:
        """Bring the lab to the beginning of a world, unless it is there."""
        if self.world == world and self.state() == self.beginning:
            return
        self.begin(world)

    def begin(self, world: World) -> None:
        self.resets += 1
        self.world = None
        self.lab.control.interfered = True
        order(self.lab.run, "clear")
        self.lab.begin(scenario=world.scenario, version=world.version, arranged=world.arranged)
        self.recovered()
        self.world, self.beginning = world, self.state()
        self.driver_location = _driver_location(self.lab)

    # Tasks
    def options(self, call: Call, seconds: int) -> Json:
        options = {
            key: self.driver_location if value == "@driver_location" else value for key, value in call[1].items()
        }
        return {**options, "wait_timeout": seconds}

    def run(self, call: Call, seconds: int = LONG_SECONDS) -> Ended:
        return run(call[0], self.options(call, seconds), self.environment)

    def start(self, call: Call, seconds: int = LONG_SECONDS) -> Running:
        return Running(call[0], self.options(call, seconds), self.environment)

    def prepare(self, job: Job) -> None:
        self.enter(job.world)
        for call in job.prepare:
            done = self.run(call)
            if done.failed:
                raise NotRecovered(f"{job.name} cannot be prepared: {done.message}")
        job.spoil(self.lab)

    # The gate
    def hold(self, after: int, *, writes: bool) -> None:
        order(self.lab.run, "hold_after", after=after, writes=writes, agent=AGENT)

    def held(self) -> bool:
        return bool(order(self.lab.run, "counted")["held"])

    def release(self) -> None:
        order(self.lab.run, "release")

    def stop_counting(self) -> list[str]:
        """Let all clients pass again, and return the requests that were counted."""
        seen = list(order(self.lab.run, "counted")["seen"])
        order(self.lab.run, "stop_counting")
        return seen

    def until_held(self, running: Running) -> bool:
        """Wait until the client is held, and return whether that happened before it ended."""
        while not self.held():
            if running.over():
                return self.held()
            time.sleep(POLL_SECONDS / 5)
        return True

    # Looks
    def state(self) -> Json:
        """Return what tasks decide about, and what users see of it, without versions and times."""
        return state(self.lab)

    def recovered(self) -> None:
        """Wait until nodes, controllers and addons work again."""
        problem = ""

        def works() -> bool:
            nonlocal problem
            problem = _problem(self.lab)
            return not problem

        _until(works, RECOVERY_SECONDS, lambda: f"the lab does not recover: {problem}")

    def settled(self, final: Json) -> Json:
        """Wait until the lab looks like the end of an undisturbed run, and return what it looks like in the end."""
        deadline = time.monotonic() + 5
        while (found := self.state()) != final and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return found


def state(lab: Lab) -> Json:
    gpus = {_name(one): {"enabled": one["spec"].get("enabled"), **_marks(one)} for one in lab.items(paths.SRIOV_GPUS)}
    vgpus = {_name(one): _vgpu(one) for one in lab.items(paths.VGPUS)}
    claims = {_name(one): True for one in lab.items(paths.CLAIMS)}
    vms = {_name(one): _vm(one) for one in lab.items(paths.VMS)}
    addons = {_name(one): _addon(one) for one in lab.items(paths.ADDONS)}
    return {
        "gpus": gpus,
        "vgpus": vgpus,
        "claims": claims,
        "vms": vms,
        "addons": addons,
        # What users miss: types of configured vGPUs. Types that are not used any more stay in the list.
        "permitted": dict.fromkeys(_offered(lab) - _permitted(lab), False),
        "mig": {_name(one): _mig(one) for one in _items_or_none(lab, paths.MIG_CONFIGURATIONS)},
    }


def _items_or_none(lab: Lab, path: str) -> list[Json]:
    return list((lab.find(path) or {}).get("items") or [])


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])


def _marks(item: Json) -> Json:
    marks = item["metadata"].get("annotations") or {}
    return {key: value for key, value in marks.items() if key.startswith("vgpu.fleet/")}


def _vgpu(item: Json) -> Json:
    status = item.get("status") or {}
    return {
        "enabled": item["spec"].get("enabled"),
        "type": item["spec"].get("vGPUTypeName") or "",
        "status": status.get("vGPUStatus") or "",
        "configured": status.get("configureVGPUTypeName") or "",
        **_marks(item),
    }


def _vm(item: Json) -> Json:
    devices = item["spec"]["template"]["spec"]["domain"]["devices"]
    return {
        "run": item["spec"].get("runStrategy"),
        "devices": {key: devices.get(key) or [] for key in ("gpus", "hostDevices")},
        "status": (item.get("status") or {}).get("printableStatus"),
        **_marks(item),
    }


def _addon(item: Json) -> Json:
    spec = item["spec"]
    return {
        "enabled": spec.get("enabled"),
        "values": spec.get("valuesContent"),
        "status": (item.get("status") or {}).get("status"),
    }


def _mig(item: Json) -> Json:
    wanted = {one.get("name"): one.get("requested") for one in item["spec"].get("profileSpec") or []}
    return {
        "enabled": item["spec"].get("enabled"),
        "wanted": wanted,
        "status": (item.get("status") or {}).get("status"),
    }


def _permitted(lab: Lab) -> set[str]:
    configuration = lab.read(paths.KUBEVIRT)["spec"].get("configuration") or {}
    found = configuration.get("permittedHostDevices") or {}
    return {one["resourceName"] for entries in found.values() for one in entries or []}


def _offered(lab: Lab) -> set[str]:
    found = {(one.get("status") or {}).get("configureVGPUTypeName") for one in lab.items(paths.VGPUS)}
    return {f"nvidia.com/{name.replace(' ', '_')}" for name in found if name}


def _driver_location(lab: Lab) -> str:
    import yaml

    addon = lab.read(f"{paths.ADDONS}/nvidia-driver-toolkit")
    return str(yaml.safe_load(addon["spec"]["valuesContent"])["driverLocation"])


def _problem(lab: Lab) -> str:
    """Return what does not work, or nothing."""
    status = lab.control.status()
    down = [node for node, runs in status["processes"].items() if not runs]
    if down or status.get("faults"):
        return f"processes of {down} are down, faults {status.get('faults')}"
    for node in lab.items(paths.NODES):
        conditions = {one["type"]: one["status"] for one in node["status"].get("conditions") or []}
        if conditions.get("Ready") != "True" or node["metadata"].get("deletionTimestamp"):
            return f"node {_name(node)}: {conditions.get('Ready')}"
    pods = {node: trouble for node, trouble in driver_pods(lab).items() if trouble}
    if pods:
        return f"driver pods: {pods}"
    states = {_name(one): (one.get("status") or {}).get("status") for one in lab.items(paths.ADDONS)}
    under_way = {name: state for name, state in states.items() if state not in STEADY}
    return f"addons: {under_way}" if under_way else ""


def _until(condition: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except (LabError, OSError, AssertionError):
            # The API server or the gate may be on the way up.
            pass
        if time.monotonic() > deadline:
            raise NotRecovered(what())
        time.sleep(POLL_SECONDS)


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """Return the names of the objects in which two looks at a lab differ, as kind/name."""
    found = set()
    for kind in {*one, *other}:
        left, right = one.get(kind), other.get(kind)
        if isinstance(left, dict) and isinstance(right, dict):
            found |= {f"{kind}/{name}" for name in {*left, *right} if left.get(name) != right.get(name)}
        elif left != right:
            found.add(f"{kind}/{kind}")
    return found


def kept(before: Json, now: Json, *, apart_from: str = "") -> list[str]:
    """Return what running VMs have lost: a device entry, the VM itself, or the vGPU behind it."""
    lost = []
    for name, vm in before["vms"].items():
        if name == apart_from or vm["status"] != "Running":
            continue
        left = now["vms"].get(name)
        if left is None:
            lost.append(f"VM {name} is gone")
        elif left["devices"] != vm["devices"]:
            lost.append(f"VM {name} has other devices")
        elif left["run"] != vm["run"]:
            lost.append(f"VM {name} has the run strategy {left['run']}")
    held = copy.deepcopy({name: one for name, one in before["vgpus"].items() if one["enabled"]})
    for name, vgpu in held.items():
        left = now["vgpus"].get(name)
        if left is None or (left["enabled"], left["type"]) != (vgpu["enabled"], vgpu["type"]):
            lost.append(f"vGPU {name} is {left and (left['enabled'], left['type'])}")
    return lost
