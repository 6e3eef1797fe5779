"""The matrix on vSphere: the lab's vCenter starts in a fraction of a second, so each cell gets a new one."""

from __future__ import annotations

import contextlib
import copy
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyVim.connect import Disconnect
from pyVmomi import vim

from lab.programs import binaries
from lab.scenarios import scenario
from lab.vsphere import vcsim
from tests.integration.vsphere_lab.conftest import VCenter
from tests.resilience.cells import AFTER, BEFORE, NAMED, OK, UNNAMED, Kill, Record
from tests.resilience.jobs import Call
from tests.resilience.modules import Ended, Running, longest_silence, run

Json = dict[str, Any]

BINARY = "vgpu-vcsim"
POLL_SECONDS = 0.02
SHORT_SECONDS, LONG_SECONDS = 6, 60
HOLDER = {"name": "holder", "host": "esx1", "vgpus": ["nvidia_a40-8q"], "memory_locked": True, "power": "on"}
IDLE = {"name": "idle", "host": "esx2"}
WORKER = {"name": "worker", "host": "esx2", "vgpus": ["nvidia_a40-4q"], "memory_locked": True, "power": "on"}


def section(*, shared: bool = False) -> Json:
    """Return the default scenario with a VM that holds a vGPU, one that runs with another, and one that is off."""
    found: Json = copy.deepcopy(dict(scenario.load("default").vsphere))
    found["vms"] = [HOLDER, IDLE, WORKER]
    if shared:
        # esx2 has to be prepared for vGPUs.
        found["clusters"][0]["hosts"][1]["graphics_type"] = "shared"
        found["vms"] = [HOLDER, IDLE]
    return found


@dataclass(frozen=True)
class Job:
    name: str
    call: Call
    prepare: tuple[Call, ...] = ()
    shared: bool = False

    @property
    def module(self) -> str:
        return self.call[0]


VM, HOST = "vsphere_vgpu_vm", "vsphere_gpu_host"
NEW = {"name": "trainer", "template": "ubuntu-22.04-efi", "cluster": "gpu", "vgpus": [{"profile": "A40-8Q"}]}
JOBS = (
    Job("vsphere-create", (VM, {**NEW, "state": "powered_on"})),
    Job("vsphere-attach", (VM, {"name": "idle", "vgpus": [{"profile": "A40-4Q"}], "state": "powered_on"})),
    Job("vsphere-replace", (VM, {"name": "worker", "vgpus": [{"profile": "A40-8Q"}], "power_cycle": "hard"})),
    Job(
        "vsphere-delete",
        (VM, {"name": "trainer", "cluster": "gpu", "state": "absent", "power_cycle": "hard"}),
        prepare=((VM, {**NEW, "state": "powered_on"}),),
    ),
    Job(
        "vsphere-host",
        (HOST, {"esxi_hosts": ["esx2"], "graphics_type": "shared_direct", "assignment_policy": "consolidation"}),
        shared=True,
    ),
)
BY_NAME = {job.name: job for job in JOBS}
# Every task of these jobs.
TASKS = ("CloneVM_Task", "ReconfigVM_Task", "PowerOnVM_Task", "PowerOffVM_Task", "Destroy_Task", "UpgradeVM_Task")
HOST_CALLS = ("UpdateGraphicsConfig", "RestartService")

Switch = Callable[[VCenter], Any]


@dataclass(frozen=True)
class Fault:
    name: str
    causes: str
    on: Switch
    off: Switch = field(default=lambda _vcenter: None)
    # Calls with which the fault is on from the start of a run, if the switch itself would come too early.
    before: Switch | None = None

    def named_by(self, told: str) -> bool:
        return bool(re.search(self.causes, told, re.IGNORECASE | re.DOTALL))


def rules(*rules: Json) -> Switch:
    return lambda vcenter: vcenter.control("PUT", "/faults", list(rules))


def failing(fault: str, message: str, *methods: str, **more: Any) -> tuple[Json, ...]:
    return tuple({"method": one, "fault": fault, "message": message, "as": "task", **more} for one in methods)


def no_rules(vcenter: VCenter) -> None:
    vcenter.control("PUT", "/faults", [])


def sessions(after: int) -> Switch:
    if not after:
        return lambda vcenter: vcenter.control("DELETE", "/sessions")
    return lambda vcenter: vcenter.control("PUT", "/sessions", {"expire_after_calls": after})


def pace(milliseconds: int) -> Switch:
    return lambda vcenter: vcenter.control("PUT", "/tasks", {"queued_ms": milliseconds, "running_ms": milliseconds})


def hosts(action: str, *names: str) -> Switch:
    """Disconnect hosts, enter maintenance, or undo it. VMs stay where they are."""

    def act(vcenter: VCenter) -> None:
        # The sessions of a lab that ended them all are gone.
        vcenter.instance = vcenter.login()
        vcenter.content = vcenter.instance.RetrieveContent()
        for name in names:
            host = vcenter.host(name)
            if action == "maintain":
                vcenter.wait(host.EnterMaintenanceMode_Task(timeout=5, evacuatePoweredOffVms=False))
            elif action == "resume":
                vcenter.wait(host.ExitMaintenanceMode_Task(timeout=5))
            elif action == "disconnect":
                vcenter.wait(host.DisconnectHost_Task())
            else:
                vcenter.wait(host.ReconnectHost_Task())

    return act


def lose(number: int) -> Switch:
    return lambda vcenter: vcenter.control("PUT", "/hold", {"after": number, "writes": True, "lose": True})


def free_space(size: int) -> Switch:
    return lambda vcenter: vcenter.control("PUT", "/datastores", {"ds1": size})


CONFLICT = "ConcurrentAccess"
GONE = r"not (available|connected)|disconnected|not responding|maintenance|no host|no GPU|does not offer|offers no"
FAULTS = (
    Fault("session-expired", r"session", sessions(0), before=sessions(6)),
    Fault("tasks-slow", r"did not manage within|goes on there", pace(1200), pace(0)),
    Fault(
        "tasks-fail",
        r"refused|Something went wrong",
        rules(
            *failing("GenericVmConfigFault", "Something went wrong.", *TASKS),
            *failing("HostConfigFault", "Something went wrong.", *HOST_CALLS),
        ),
        no_rules,
    ),
    Fault("host-disconnected", GONE, hosts("disconnect", "esx2"), hosts("reconnect", "esx2")),
    Fault("hosts-disconnected", GONE, hosts("disconnect", "esx1", "esx2"), hosts("reconnect", "esx1", "esx2")),
    Fault(
        "drs-refuses",
        r"no host|cannot|refused",
        rules(*failing("NoCompatibleHost", "No host is compatible with the virtual machine.", "PowerOnVM_Task")),
        no_rules,
    ),
    Fault(
        "change-conflict",
        r"changed by another task|meanwhile",
        rules(*failing(CONFLICT, "The object was changed meanwhile.", *TASKS, count=1)),
        no_rules,
    ),
    Fault(
        "change-conflict-storm",
        r"changed by another task|meanwhile",
        rules(*failing(CONFLICT, "The object was changed meanwhile.", *TASKS)),
        no_rules,
    ),
    Fault("datastore-full", r"disk space|datastore", free_space(0), free_space(4 << 40)),
    Fault("answer-lost", r"connection|not known", lose(1)),
)
FAULTS_BY_NAME = {fault.name: fault for fault in FAULTS}


@contextlib.contextmanager
def vcenter_for(job: Job) -> Iterator[VCenter]:
    binary = binaries.ensure([BINARY])[BINARY]
    with tempfile.TemporaryDirectory(prefix="vcenter-") as name:
        folder = Path(name)
        info = vcsim.start(folder, vcsim.inventory_from_scenario(section(shared=job.shared)), binary=binary)
        vcenter = VCenter(info)
        try:
            for call in job.prepare:
                done = task(vcenter, call)
                if done.failed:
                    raise RuntimeError(f"{job.name} cannot be prepared: {done.message}")
            vcenter.control("DELETE", "/rpc")
            yield vcenter
        finally:
            with contextlib.suppress(Exception):
                Disconnect(vcenter.instance)
            vcsim.stop(folder)


def environment(vcenter: VCenter) -> dict[str, str]:
    return vcsim.env(vcenter.info)


def task(vcenter: VCenter, call: Call, seconds: int = LONG_SECONDS) -> Ended:
    return run(call[0], options(call, seconds), vcsim.env(vcenter.info))


def options(call: Call, seconds: int) -> Json:
    return {**call[1], "wait_timeout": seconds}


def state(vcenter: VCenter) -> Json:
    """Return the VMs, the hosts and what is on the GPUs, without identifiers and times."""
    vcenter.instance = vcenter.login()
    vcenter.content = vcenter.instance.RetrieveContent()
    machines = {}
    for vm in vcenter.all(vim.VirtualMachine):
        config = vm.config
        devices = [
            device.backing.vgpu
            for device in config.hardware.device
            if isinstance(device, vim.vm.device.VirtualPCIPassthrough) and hasattr(device.backing, "vgpu")
        ]
        extra = {one.key: one.value for one in config.extraConfig if "vgpu" in one.key.lower()}
        machines[vm.name] = {
            "power": str(vm.runtime.powerState),
            "vgpus": sorted(devices),
            "locked": config.memoryReservationLockedToMax,
            "hardware": config.version,
            "options": {key: value for key, value in extra.items() if not re.search(r"run|token|since|time", key)},
        }
    graphics = {}
    for host in vcenter.all(vim.HostSystem):
        found = host.config.graphicsConfig if host.config else None
        graphics[host.name] = found and {
            "default": found.hostDefaultGraphicsType,
            "policy": found.sharedPassthruAssignmentPolicy,
            "devices": [(one.deviceId, one.graphicsType) for one in found.deviceType],
        }
    slots = {
        host: sorted((slot["vm"], slot["profile"]) for gpu in gpus for slot in gpu["slots"])
        for host, gpus in vcenter.control("GET", "/gpus").items()
    }
    # A VM that was created again has another id.
    names = {vm._moId: vm.name for vm in vcenter.all(vim.VirtualMachine)}
    held = sorted((names.get(vm, vm), profile) for found in slots.values() for vm, profile in found)
    return {"machines": machines, "graphics": graphics, "held": {f"{vm} {profile}": True for vm, profile in held}}


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(
        f"{kind}/{name}: {one[kind].get(name)} is not {other[kind].get(name)}"
        for kind in one
        for name in {*one[kind], *other[kind]}
        if one[kind].get(name) != other[kind].get(name)
    )


@dataclass(frozen=True)
class Undisturbed:
    calls: tuple[str, ...]
    writes: int
    final: Json


def measure(job: Job) -> Undisturbed:
    with vcenter_for(job) as vcenter:
        vcenter.control("PUT", "/hold", {"after": 0, "writes": False})
        done = task(vcenter, job.call)
        calls = vcenter.control("DELETE", "/hold")["seen"]
        if done.failed:
            raise RuntimeError(f"{job.name} fails without a fault: {done.message}")
        writes = vcenter.control("DELETE", "/rpc")["writes"]
        final = state(vcenter)
        vcenter.control("DELETE", "/rpc")
        again = task(vcenter, job.call)
        left = vcenter.control("GET", "/rpc")["writes"]
        if again.failed or again.changed or left:
            raise RuntimeError(f"{job.name} is not idempotent: {again.message} {left}")
        return Undisturbed(tuple(calls), writes, final)


def run_cell(fault: Fault, job: Job, moment: str, plain: Undisturbed) -> Record:
    record = Record(fault.name, job.name, job.module, moment)
    with vcenter_for(job) as vcenter:
        before = state(vcenter)
        first = _first(vcenter, fault, job, moment, plain)
        record.first = OK if not first.failed else NAMED if fault.named_by(first.told) else UNNAMED
        record.message, record.silence, record.lines = first.told, first.silence, first.lines
        if first.silence > longest_silence():
            record.silent.append(f"{first.silence} looks without a line")
        if "Traceback" in first.output or not first.result:
            record.error = f"no result: {first.output[-300:]}"
        vcenter.control("DELETE", "/hold")
        fault.off(vcenter)
        _quiet(vcenter)
        between = state(vcenter)
        if before["machines"]["holder"] != between["machines"]["holder"]:
            record.lost.append(f"VM holder is {between['machines']['holder']}")
        vcenter.control("DELETE", "/rpc")
        second = task(vcenter, job.call)
        wrote = vcenter.control("DELETE", "/rpc")["writes"]
        if second.failed:
            record.diverged.append(f"second run: {second.message}")
        if wrote and not differing(between, plain.final):
            record.surplus.append(f"{wrote} writes although nothing was missing")
        record.diverged += differing(state(vcenter), plain.final)
        vcenter.control("DELETE", "/rpc")
        third = task(vcenter, job.call)
        wrote = vcenter.control("GET", "/rpc")["writes"]
        if third.failed or third.changed or wrote:
            record.diverged.append(f"third run: changed {third.changed}, {wrote} writes, {third.message}")
    return record


def _first(vcenter: VCenter, fault: Fault, job: Job, moment: str, plain: Undisturbed) -> Ended:
    if moment == BEFORE:
        (fault.before or fault.on)(vcenter)
        return task(vcenter, job.call, SHORT_SECONDS)
    after = plain.writes if moment == AFTER else max(1, plain.writes // 2)
    if fault.name == "answer-lost":
        lose(after)(vcenter)
        return task(vcenter, job.call, SHORT_SECONDS)
    vcenter.control("PUT", "/hold", {"after": after, "writes": True})
    running = Running(job.call[0], options(job.call, SHORT_SECONDS), vcsim.env(vcenter.info))
    if until_held(vcenter, running):
        # While a client is held, so is everybody else.
        running.is_held()
        running.stop()
        vcenter.control("POST", "/hold")
        fault.on(vcenter)
        running.go()
        running.goes_on()
    return running.wait()


def until_held(vcenter: VCenter, running: Running) -> bool:
    while not vcenter.control("GET", "/hold")["held"]:
        if running.over():
            return False
        time.sleep(POLL_SECONDS)
    return True


def _quiet(vcenter: VCenter) -> None:
    """Wait until no task of an ended run goes on."""
    vcenter.instance = vcenter.login()
    vcenter.content = vcenter.instance.RetrieveContent()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        states = [_state_of(one) for one in vcenter.content.taskManager.recentTask]
        if not any(one in ("queued", "running") for one in states):
            return
        time.sleep(POLL_SECONDS * 5)


def _state_of(one: Any) -> str:
    try:
        return str(one.info.state)
    except TypeError:
        # pyVmomi knows no tasks of the manager of virtual disks.
        return "success"


def run_kill(job: Job, after: int, plain: Undisturbed) -> Kill:
    kill = Kill(job.name, job.module, after, len(plain.calls), plain.calls[after - 1])
    with vcenter_for(job) as vcenter:
        before = state(vcenter)
        vcenter.control("PUT", "/hold", {"after": after, "writes": False})
        running = Running(job.call[0], options(job.call, LONG_SECONDS), vcsim.env(vcenter.info))
        until_held(vcenter, running)
        running.kill()
        running.wait()
        vcenter.control("DELETE", "/hold")
        _quiet(vcenter)
        if before["machines"]["holder"] != state(vcenter)["machines"]["holder"]:
            kill.lost.append("VM holder has changed")
        second = task(vcenter, job.call)
        if second.failed:
            kill.diverged.append(f"second run: {second.message}")
        kill.diverged += differing(state(vcenter), plain.final)
    return kill
