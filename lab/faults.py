"""The faults a lab can be given, by name: what each one does and what may be said with it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from lab.errors import LabError

EVERY = 3
SLOW_SECONDS = 3.0
METAVARS = {"node": "NODE", "every": "N", "seconds": "S"}


@dataclass(frozen=True)
class Options:
    """What was said with a fault."""

    node: str | None = None
    every: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Description:
    name: str
    help: str
    takes: tuple[str, ...] = ()
    # It happens when it is switched on; there is nothing to switch off.
    once: bool = False
    needs_node: bool = False

    @property
    def usage(self) -> str:
        words = [f"--{option} {METAVARS[option]}" for option in self.takes]
        return " ".join((self.name, *(words if self.needs_node else map("[{}]".format, words))))


NODE, EVERY_NTH, SECONDS = ("node",), ("every",), ("seconds",)
FAULTS = {
    fault.name: fault
    for fault in (
        Description("driver-missing", "the driver pod crashes: enabled GPUs get no functions", NODE),
        Description("driver-fails", "the driver pod builds for a minute and crashes then", NODE),
        Description("httpendpoint", "the placeholder is still in the driver's location"),
        Description("vf-without-types", "one function's types cannot be read: no vGPUs on its node", NODE),
        Description("plugin-drift", "nodes advertise one vGPU too few (1.8 on), or count one too many", NODE),
        Description("permitted-list", "KubeVirt's permitted devices lose an entry and have another twice"),
        Description("kubelet-restart", "device plugins do not come back to it; off restarts the process", NODE),
        Description("node-not-ready", "the kubelet and all else on a node are silent", NODE),
        Description("node-gone", "the node is removed from the cluster; off brings it back", NODE, needs_node=True),
        Description("process-down", "the pcidevices process of a node, or of all, is gone", NODE),
        Description("webhook-down", "the pcidevices webhook does not answer, so no rule applies"),
        Description("webhook-slow", "the pcidevices webhook takes its time", SECONDS),
        Description("addon-fails", "the next deployment of nvidia-driver-toolkit fails"),
        Description("addon-in-progress", "an operation of nvidia-driver-toolkit does not end"),
        Description("api-conflict", "each N-th update or patch is answered 409", EVERY_NTH),
        Description("api-throttled", "each N-th write is answered 429", EVERY_NTH),
        Description("api-unavailable", "each N-th write is answered 503", EVERY_NTH),
        Description("api-answer-lost", "each N-th write is done, and its connection ends unanswered", EVERY_NTH),
        Description("api-disconnect", "every open connection ends, watches too", once=True),
        Description("watch-expired", "watches from before now have expired: 410"),
        Description("token-expired", "every request is answered 401"),
        Description("apiserver-restart", "the API server goes away and comes back", once=True),
    )
}


def checked(name: str, on: bool, options: Options) -> Description:
    """The fault of that name, if what was said with it means something."""
    known = FAULTS.get(name)
    if known is None:
        raise LabError(f"There is no fault {name!r}.", hint=f"There are {', '.join(FAULTS)}.")
    if options.node is not None and "node" not in known.takes:
        raise LabError(f"The fault {name} has no node.", hint="It is one of the whole cluster.")
    for option, value in asdict(options).items():
        if value is not None and option not in known.takes:
            raise LabError(f"The fault {name} has no --{option}.", hint=f"It is: {known.usage}")
    if known.needs_node and options.node is None:
        raise LabError("Which node?", hint="Name it: --node.")
    if known.once and not on:
        raise LabError(f"The fault {name} is over at once.", hint="There is nothing to switch off.")
    if options.every is not None and options.every < 1:
        raise LabError(f"Each {options.every}-th write is none.", hint="Give --every a number from 1 on.")
    if options.seconds is not None and not 0 < options.seconds < math.inf:
        raise LabError(f"{options.seconds:g} seconds are no delay.", hint="Give --seconds a number above 0.")
    return known


def describe_all() -> str:
    """All of them, for people."""
    width = max(len(fault.usage) for fault in FAULTS.values())
    lines = [f"  {fault.usage:{width}}  {fault.help}" for fault in FAULTS.values()]
    return "\n".join(lines)
