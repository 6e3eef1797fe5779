"""One cell of the matrix: a fault during a task, the end of the fault, and the task again. And kills of a task."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from lab.errors import LabError
from tests.resilience.faults import Fault
from tests.resilience.jobs import Job
from tests.resilience.modules import Ended, longest_silence
from tests.resilience.stage import LONG_SECONDS, SHORT_SECONDS, NotRecovered, Stage, difference, kept

Json = dict[str, Any]

BEFORE, MIDDLE, AFTER = "before", "middle", "after"
MOMENTS = (BEFORE, MIDDLE, AFTER)
OK, NAMED, UNNAMED = "ok", "named", "unnamed"
KINDS = {
    "sriovgpudevices": "gpus",
    "vgpudevices": "vgpus",
    "pcideviceclaims": "claims",
    "virtualmachines": "vms",
    "addons": "addons",
    "kubevirts": "permitted",
    "migconfigurations": "mig",
}


@dataclass(frozen=True)
class Undisturbed:
    """A job without a fault: its requests, its writes and its end."""

    requests: int
    writes: int
    final: Json
    written: tuple[str, ...] = ()


@dataclass
class Record:
    """What came of a cell. A list says what is wrong, and is empty otherwise."""

    fault: str
    job: str
    module: str
    moment: str
    first: str = ""
    message: str = ""
    silence: int = 0
    lines: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def good(self) -> bool:
        return self.first != UNNAMED and not (self.silent or self.lost or self.diverged or self.surplus or self.error)

    def as_dict(self) -> Json:
        return {**asdict(self), "good": self.good}


def measure(stage: Stage, job: Job) -> Undisturbed:
    """Run a job without a fault, twice: the second run must change nothing."""
    stage.prepare(job)
    stage.hold(0, writes=False)
    done = stage.run(job.call)
    requests = stage.stop_counting()
    if done.failed:
        raise NotRecovered(f"{job.name} fails without a fault: {done.message}")
    stage.lab.mark()
    again = stage.run(job.call)
    if again.failed or again.changed or _written(stage):
        raise NotRecovered(f"{job.name} is not idempotent: {again.message} {_written(stage)}")
    writes = [one for one in requests if not one.startswith("GET")]
    result = Undisturbed(len(requests), len(writes), stage.state(), tuple(requests))
    undo(stage, job)
    return result


def undo(stage: Stage, job: Job) -> None:
    """Take a job back. If that fails, the next job starts from a new beginning."""
    for call in job.undo:
        if stage.run(call).failed:
            stage.world = None
            return
    if stage.settled(stage.beginning) != stage.beginning:
        stage.world = None


def run_cell(stage: Stage, fault: Fault, job: Job, moment: str, plain: Undisturbed) -> Record:
    record = Record(fault.name, job.name, job.module, moment)
    try:
        _run_cell(stage, fault, job, moment, plain, record)
    except (NotRecovered, LabError, OSError, AssertionError) as error:
        # Also a failure of the lab itself: the cell is not measured.
        record.error = f"{type(error).__name__}: {error}"
        stage.world = None
    return record


def _run_cell(stage: Stage, fault: Fault, job: Job, moment: str, plain: Undisturbed, record: Record) -> None:
    stage.prepare(job)
    before = stage.state()
    first = _first(stage, fault, job, moment, plain)
    record.first = OK if not first.failed else NAMED if fault.named_by(first.told) else UNNAMED
    record.message = first.told
    record.silence, record.lines = first.silence, first.lines
    if first.silence > longest_silence():
        record.silent.append(f"{first.silence} looks without a line")
    if "Traceback" in first.output or not first.result:
        record.error = f"no result: {first.output[-300:]}"
    fault.off(stage.lab)
    stage.recovered()
    between = stage.state()
    if job.name != "reprofile":
        # A reprofile run stops VMs because it was asked to.
        record.lost = [text for text in kept(before, between) if not _meant(text, job, before, plain)]
    stage.lab.mark()
    second = stage.run(job.call, LONG_SECONDS)
    if second.failed:
        record.diverged.append(f"second run: {second.message}")
    allowed = difference(between, plain.final)
    if any(one.startswith("permitted/") for one in allowed):
        allowed.add("permitted/kubevirt")
    record.surplus = [one for one in _written(stage) if one not in allowed and not _carries(one, allowed, between)]
    end = stage.settled(plain.final)
    record.diverged += sorted(difference(end, plain.final))
    stage.lab.mark()
    third = stage.run(job.call, LONG_SECONDS)
    if third.failed or third.changed or _written(stage):
        record.diverged.append(f"third run: changed {third.changed}, {_written(stage)}, {third.message}")
    undo(stage, job)


def _first(stage: Stage, fault: Fault, job: Job, moment: str, plain: Undisturbed) -> Ended:
    if moment == BEFORE:
        fault.on(stage.lab)
        return stage.run(job.call, SHORT_SECONDS)
    after = plain.writes if moment == AFTER else max(1, plain.writes // 2)
    stage.hold(after, writes=True)
    running = stage.start(job.call, SHORT_SECONDS)
    try:
        if stage.until_held(running):
            running.is_held()
            fault.on(stage.lab)
            running.goes_on()
            stage.release()
        return running.wait()
    finally:
        stage.stop_counting()


def _meant(text: str, job: Job, before: Json, plain: Undisturbed) -> bool:
    """Return whether the job itself takes this away: it is different at the end of an undisturbed run, too."""
    return text in kept(before, plain.final)


def _written(stage: Stage) -> list[str]:
    """Return the objects that tasks have written since the last mark, as kind/name."""
    found = []
    for event in stage.lab.audit():
        if "dryRun" in event["requestURI"] or event["responseStatus"]["code"] >= 400:
            continue
        ref = event["objectRef"]
        if ref["resource"] in ("selfsubjectaccessreviews", "selfsubjectrulesreviews"):
            continue
        kind = KINDS.get(ref["resource"], ref["resource"])
        found.append(f"{kind}/{ref.get('name', '')}")
    return list(dict.fromkeys(found))


def _carries(written: str, allowed: set[str], between: Json) -> bool:
    """Return whether an object is written only for the journal of a run that changes something else."""
    kind = written.partition("/")[0]
    if kind == "vms":
        return bool(allowed)
    return kind == "gpus" and any(one.startswith(("vgpus/", "gpus/", "mig/", "vms/")) for one in allowed)


@dataclass
class Kill:
    """What came of a task that was killed after a request, and of the same task afterwards."""

    job: str
    module: str
    after: int
    of: int
    request: str = ""
    diverged: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def good(self) -> bool:
        return not (self.diverged or self.lost or self.error)

    def as_dict(self) -> Json:
        return {**asdict(self), "good": self.good}


def run_kill(stage: Stage, job: Job, after: int, plain: Undisturbed) -> Kill:
    kill = Kill(job.name, job.module, after, plain.requests)
    try:
        _run_kill(stage, job, after, plain, kill)
    except (NotRecovered, LabError, OSError, AssertionError) as error:
        kill.error = f"{type(error).__name__}: {error}"
        stage.world = None
    return kill


def _run_kill(stage: Stage, job: Job, after: int, plain: Undisturbed, kill: Kill) -> None:
    stage.prepare(job)
    before = stage.state()
    stage.hold(after, writes=False)
    running = stage.start(job.call)
    stage.until_held(running)
    running.kill()
    running.wait()
    seen = stage.stop_counting()
    kill.request = seen[after - 1] if len(seen) >= after else "the run ended before"
    stage.recovered()
    if job.name != "reprofile":
        kill.lost = [text for text in kept(before, stage.state()) if text not in kept(before, plain.final)]
    second = stage.run(job.call)
    if second.failed:
        kill.diverged.append(f"second run: {second.message}")
    kill.diverged += sorted(difference(stage.settled(plain.final), plain.final))
    undo(stage, job)
