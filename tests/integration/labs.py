"""A running lab as the tests see it: requests, simulated time, who wrote what, and a known beginning for each test.

Starting over takes seconds, so a lab starts over only if something has changed since its beginning was arranged.
Refused and dry-run requests change nothing, and neither does what a test made and deleted again; VMs that it left are
deleted for it. After anything else the lab may still look as it did, because the controllers have mended it or the test
has put it back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from lab.lifecycle import up
from lab.lifecycle.control import Control
from lab.rundir import RunDir
from tests.integration import api as paths, history
from tests.integration.api import Api, Json

T = TypeVar("T")
# What brings a lab to a test's beginning; what it returns is `lab.story` then.
Arrangement = Callable[["Lab"], Any]

# What a lab looks like: everything that people and controllers change.
LOOKS = (
    paths.SRIOV_GPUS,
    paths.VGPUS,
    paths.PCI_DEVICES,
    paths.CLAIMS,
    paths.MIG_CONFIGURATIONS,
    paths.NODES,
    paths.ADDONS,
    paths.KUBEVIRT,
    paths.VMS,
    paths.VMIS,
    paths.DAEMON_SETS,
)
MENDING_SECONDS = 40.0
ARRANGING_SPEED = 500.0
UNDOING_SECONDS = 5.0
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
STEP_SECONDS = 2.0
POLL_SECONDS = 0.05
# For what runs in real time whatever the lab's clock does: KubeVirt, the scheduler, the garbage collector.
PATIENCE_SECONDS = 120.0


class _NotingControl(Control):
    """Remembers whether something was done to the lab that no request shows."""

    interfered = False
    webhook_down = False

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        if path == "/fault" and body and body["name"] == "webhook-down":
            self.webhook_down = body["on"]
        else:
            self.interfered |= path in ("/reboot", "/process", "/fault", "/speed")
        return super()._call(method, path, body)


class Lab:
    def __init__(self, run: RunDir) -> None:
        settings = run.read()["settings"]
        self.run = run
        self.control = _NotingControl(run)
        self.api = Api(run.kubeconfig("admin"))
        self.stepped = not settings["speed"]
        self.story: Any = None
        self._speed = settings["speed"]
        self._with_kubevirt = "kubevirt" not in settings["without"]
        self._built_for = settings["harvester_version"]
        self._beginning: tuple[str, str, Arrangement | None] = ("default", self._built_for, None)
        self._beginning_at = self._audit_end()
        self._look = self._looks()
        self._mark = self._beginning_at

    @property
    def env(self) -> dict[str, str]:
        """What a user of this lab exports."""
        return up.environment(self.run)

    @property
    def version(self) -> str:
        return self._beginning[1]

    @property
    def vfio(self) -> bool:
        """Vendor VFIO (from Harvester 1.8 on) rather than mediated devices."""
        return self.version in ("1.8", "1.9")

    # Beginnings
    def begin(
        self, *, scenario: str = "default", version: str | None = None, arranged: Arrangement | None = None
    ) -> Lab:
        """Bring the lab to the beginning of a scenario, with what `arranged` does to it."""
        version = version or self._built_for
        if not self._may_stay(scenario, version, arranged):
            self._start_over(scenario, version)
        if arranged and self._beginning[2] is not arranged:
            self._remember(scenario, version, arranged, self._arrange(arranged))
        self.mark()
        return self

    def _arrange(self, arranged: Arrangement) -> Any:
        """Nobody looks yet, so a clock that runs may run fast, unless KubeVirt, which has its own pace, takes part."""
        if self.stepped or self._with_kubevirt:
            return arranged(self)
        self.control.speed(ARRANGING_SPEED)
        story = arranged(self)
        self.control.speed(self._speed)
        return story

    def _may_stay(self, scenario: str, version: str, arranged: Arrangement | None) -> bool:
        if self._beginning not in ((scenario, version, arranged), (scenario, version, None)):
            return False
        return not self._changed() or self._mended()

    def _mended(self) -> bool:
        """Whether everything looks as at the beginning again, one scan later."""
        if not self.stepped or self.control.webhook_down or not all(self.control.status()["processes"].values()):
            return False
        self.advance(MENDING_SECONDS)
        mended = self._looks() == self._look
        if mended:
            self._beginning_at = self._audit_end()
            self.control.interfered = False
        return mended

    def _looks(self) -> dict[str, Any]:
        return {path: [_look(thing) for thing in _things(self.api.get(path).body)] for path in LOOKS}

    def _start_over(self, scenario: str, version: str) -> None:
        with self.run.editing() as state:
            state["settings"] |= {"scenario": scenario, "harvester_version": version}
        up.reset(self.run)
        self.stepped = not self._speed
        self.control.webhook_down = False
        self._remember(scenario, version, None)

    def _remember(self, scenario: str, version: str, arranged: Arrangement | None, story: Any = None) -> None:
        self._beginning = (scenario, version, arranged)
        self._beginning_at = self._audit_end()
        self._look = self._looks()
        self.story = story
        self.control.interfered = False

    def _changed(self) -> bool:
        """Whether anything was done since the beginning that cannot be undone by deleting what was made."""
        if self.control.interfered or self.control.webhook_down:
            return True
        made: dict[str, str] = {}
        for event in self._events(self._beginning_at, writes_only=True):
            if event["responseStatus"]["code"] >= 300 or "dryRun" in event["requestURI"]:
                continue
            which = "/".join(event["objectRef"].get(key, "") for key in ("resource", "namespace", "name"))
            if event["verb"] == "create" and "subresource" not in event["objectRef"]:
                made[which] = f"{event['requestURI'].partition('?')[0]}/{event['objectRef'].get('name', '')}"
            elif which not in made:
                return True
            elif event["verb"] == "delete":
                del made[which]
        return bool(made) and not self._undone(list(made.values()))

    def _undone(self, made: list[str]) -> bool:
        """Whether everything looks as at the beginning once these are deleted. Only VMs leave nothing behind."""
        if self.stepped or not all("/kubevirt.io/" in path for path in made):
            return False
        for path in made:
            self.api.delete(path)
        deadline = time.monotonic() + UNDOING_SECONDS
        while not all(self.control.status()["processes"].values()) or self._looks() != self._look:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        self._beginning_at = self._audit_end()
        return True

    # The audit log
    def mark(self) -> None:
        """From here on counts for `audit`; each test begins with a mark."""
        self._mark = self._audit_end()

    def audit(self, *, writes_only: bool = True) -> list[Json]:
        """Requests of people, not of the lab's own components, since the last mark."""
        return list(self._events(self._mark, writes_only=writes_only))

    def _audit_end(self) -> int:
        return self.run.audit_log.stat().st_size

    def _events(self, offset: int, *, writes_only: bool) -> Iterator[Json]:
        with self.run.audit_log.open("rb") as log:
            log.seek(offset)
            for line in log:
                if not line.endswith(b"\n"):
                    # Another component's, being written right now.
                    break
                event = json.loads(line)
                if writes_only and event["verb"] not in WRITES:
                    continue
                if _is_person(event["user"].get("username", "")):
                    yield event

    # What happened
    def point(self) -> str:
        """A point in time, for `changes`."""
        return history.now(self.api)

    def changes(self, since: str, *collections: str) -> list[history.Change]:
        """All changes of objects since then, whoever made them, in the order in which they happened."""
        return history.changes(self.api, since, collections)

    # Time
    def advance(self, seconds: float) -> float:
        return self.control.advance(seconds)

    def run_clock(self, speed: float) -> None:
        """Let the clock of a stepped lab run, until it starts over."""
        self.control.speed(speed)
        self.stepped = not speed

    def until(self, condition: Callable[[], T], *, within: float = 300.0, real: bool = False) -> T:
        """Let simulated time pass until the condition holds, and return what it found.

        With `real` a real component takes part, such as the scheduler: it gets real time on the way.
        """
        start, patience = self.control.now(), time.monotonic() + PATIENCE_SECONDS
        self.control.settle()
        while not (found := condition()):
            late = self.control.now() - start > within
            if self.stepped and not late:
                self.advance(STEP_SECONDS)
            real_too = real or not self.stepped
            assert not late or (real_too and time.monotonic() < patience), f"not within {within:.0f} s"
            if real_too:
                time.sleep(POLL_SECONDS)
        return found

    # Objects
    def read(self, path: str, **query: Any) -> Json:
        answer = self.api.get(path, **query)
        assert answer.status == 200, answer
        return answer.body

    def find(self, path: str) -> Json | None:
        answer = self.api.get(path)
        assert answer.status in (200, 404), answer
        return answer.body if answer.status == 200 else None

    def items(self, path: str, **query: Any) -> list[Json]:
        return list(self.read(path, **query)["items"])

    def write(self, path: str, patch: Json) -> Json:
        answer = self.api.patch(path, patch)
        assert answer.status == 200, answer
        return answer.body

    def make(self, path: str, body: Json) -> Json:
        answer = self.api.post(path, body)
        assert answer.status == 201, answer
        return answer.body

    def gpu(self, name: str) -> Json:
        return self.read(f"{paths.SRIOV_GPUS}/{name}")

    def vgpu(self, name: str) -> Json:
        return self.read(f"{paths.VGPUS}/{name}")

    def vgpus(self, gpu: str) -> list[Json]:
        """In the order of their names."""
        return self.items(paths.VGPUS, labelSelector=f"harvesterhci.io/parentSRIOVGPUDevice={gpu}")

    def status(self, vgpu: str) -> Json:
        return dict(self.vgpu(vgpu).get("status") or {})

    def types(self, vgpu: str) -> set[str]:
        return set(self.status(vgpu).get("availableTypes") or {})

    def claim(self, vgpu: str) -> Json | None:
        return self.find(f"{paths.CLAIMS}/{vgpu}")

    def amounts(self, node: str, kind: str = "allocatable") -> dict[str, int]:
        """vGPU resources of a node."""
        listed = self.read(f"{paths.NODES}/{node}")["status"].get(kind, {})
        return {name: int(amount) for name, amount in listed.items() if name.startswith("nvidia.com/")}

    # What most tests begin with
    def enable_gpus(self, *names: str) -> None:
        """SR-IOV on, and every virtual function says which types it can have."""
        for name in names:
            self.write(f"{paths.SRIOV_GPUS}/{name}", {"spec": {"enabled": True}})
        self.until(lambda: all(self._functions_ready(name) for name in names))

    def _functions_ready(self, gpu: str) -> bool:
        expected = (self.gpu(gpu).get("status") or {}).get("vGPUDevices") or []
        offered = [vgpu for vgpu in self.vgpus(gpu) if (vgpu.get("status") or {}).get("availableTypes")]
        return bool(expected) and len(offered) == len(expected)

    def disable_gpus(self, *names: str) -> None:
        """SR-IOV off, and nothing of the virtual functions left."""
        for name in names:
            self.write(f"{paths.SRIOV_GPUS}/{name}", {"spec": {"enabled": False}})
        self.until(lambda: not any(self.vgpus(name) for name in names))

    def enable_vgpus(self, types: dict[str, str]) -> None:
        """Each vGPU gets its type, one after the other; the nodes advertise them all."""
        for name, type_name in types.items():
            self.until(lambda name=name, type_name=type_name: type_name in self.types(name))
            self.write(f"{paths.VGPUS}/{name}", {"spec": {"enabled": True, "vGPUTypeName": type_name}})
            self.until(lambda name=name: self.status(name).get("configureVGPUTypeName"))
        self.until(lambda: self._advertised() >= self._configured())

    def _configured(self) -> int:
        return sum((vgpu.get("status") or {}).get("vGPUStatus") == "vGPUConfigured" for vgpu in self.items(paths.VGPUS))

    def _advertised(self) -> int:
        return sum(sum(self.amounts(node["metadata"]["name"]).values()) for node in self.items(paths.NODES))

    def disable_vgpus(self, names: Iterable[str]) -> None:
        """Off, and nothing of them left: no claim, and the types are back."""
        for name in names:
            self.write(f"{paths.VGPUS}/{name}", {"spec": {"enabled": False}})
            self.until(lambda name=name: self.types(name) and not self.claim(name))


def _things(body: Json) -> list[Json]:
    return list(body.get("items", [body]))


def _look(thing: Json) -> Json:
    """Without what differs each time: versions, counters and times."""
    metadata, status = thing.get("metadata", {}), thing.get("status")
    kept = {key: metadata.get(key) for key in ("name", "labels", "annotations", "finalizers")}
    kept["annotations"] = {k: v for k, v in (kept["annotations"] or {}).items() if k != "kubevirt.io/heartbeat"}
    return {"metadata": kept, "spec": thing.get("spec"), "status": _without_times(status)}


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(one) for key, one in value.items() if not key.endswith("Time")}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


def _is_person(user: str) -> bool:
    return not user.startswith("system:")
