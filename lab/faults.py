"""Names, descriptions and options of the faults that a lab can produce."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from lab.errors import LabError

EVERY = 3
SLOW_SECONDS = 3.0
METAVARS = {"node": "NODE", "every": "N", "seconds": "S"}


@dataclass(frozen=True)
class Options:
    """Options of a fault."""

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
        Description("driver-fails", "the driver pod crashes after building for a minute", NODE),
        Description("httpendpoint", "the driver location is still the placeholder"),
        Description(
            "vf-without-types", "the types of one virtual function are unreadable: the node gets no vGPUs", NODE
        ),
        Description(
            "mig-setup", "MIG mode cannot be enabled: GPUs offer time-sliced types until an attempt succeeds", NODE
        ),
        Description("plugin-drift", "nodes report one allocatable vGPU too few (from 1.8 on) or too many", NODE),
        Description(
            "permitted-list", "KubeVirt's permitted devices keep the last entry, twice, and lose every new one"
        ),
        Description("kubelet-restart", "device plugins do not register again; --off restarts the process", NODE),
        Description("node-not-ready", "the kubelet and everything else on a node stop responding", NODE),
        Description("node-gone", "the node is removed from the cluster; --off adds it again", NODE, needs_node=True),
        Description("process-down", "the pcidevices process of a node, or of all nodes, is down", NODE),
        Description("webhook-down", "the pcidevices webhook does not respond, so no rule applies"),
        Description("webhook-slow", "the pcidevices webhook responds slowly", SECONDS),
        Description("addon-fails", "the next deployment of nvidia-driver-toolkit fails"),
        Description("addon-in-progress", "an operation of nvidia-driver-toolkit never finishes"),
        Description("api-conflict", "every N-th update or patch fails with 409", EVERY_NTH),
        Description("api-throttled", "every N-th write fails with 429", EVERY_NTH),
        Description("api-unavailable", "every N-th write fails with 503", EVERY_NTH),
        Description(
            "api-answer-lost",
            "every N-th write is carried out, but its connection closes without a response",
            EVERY_NTH,
        ),
        Description("api-disconnect", "every open connection closes, including watches", once=True),
        Description("watch-expired", "earlier watches have expired: 410"),
        Description("token-expired", "every request fails with 401"),
        Description("apiserver-restart", "the API server restarts", once=True),
    )
}


def checked(name: str, on: bool, options: Options) -> Description:
    """Return the fault with this name, or raise if it is unknown or does not take these options."""
    known = FAULTS.get(name)
    if known is None:
        raise LabError(f"There is no fault {name!r}.", hint=f"Available faults: {', '.join(FAULTS)}.")
    if options.node is not None and "node" not in known.takes:
        raise LabError(f"The fault {name} does not take --node.", hint="It affects the whole cluster.")
    for option, value in asdict(options).items():
        if value is not None and option not in known.takes:
            raise LabError(f"The fault {name} does not take --{option}.", hint=f"Usage: {known.usage}")
    if known.needs_node and options.node is None:
        raise LabError(f"The fault {name} needs a node.", hint="Pass --node.")
    if known.once and not on:
        raise LabError(f"The fault {name} cannot be switched off.", hint="It happens once, when you switch it on.")
    if options.every is not None and options.every < 1:
        raise LabError(f"--every must be at least 1, not {options.every}.")
    if options.seconds is not None and not 0 < options.seconds < math.inf:
        raise LabError(f"--seconds must be greater than 0, not {options.seconds:g}.")
    return known


def describe_all() -> str:
    """Return the list of faults for the command's help."""
    width = max(len(fault.usage) for fault in FAULTS.values())
    lines = [f"  {fault.usage:{width}}  {fault.help}" for fault in FAULTS.values()]
    return "\n".join(lines)
