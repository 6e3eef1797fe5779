"""The faults a lab can be given, by name: what each one does and what may be said with it."""

from __future__ import annotations

from dataclasses import dataclass

EVERY = 3
SLOW_SECONDS = 3.0


@dataclass(frozen=True)
class Options:
    node: str | None = None
    every: int = EVERY
    seconds: float = SLOW_SECONDS


@dataclass(frozen=True)
class Description:
    name: str
    help: str
    takes: tuple[str, ...] = ()
    # It happens when it is switched on; there is nothing to switch off.
    once: bool = False

    @property
    def usage(self) -> str:
        return " ".join((self.name, *(f"[--{option} {option[0].upper()}]" for option in self.takes)))


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
        Description("node-gone", "the node is removed from the cluster; off brings it back", NODE),
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


def told() -> str:
    """All of them, for people."""
    width = max(len(fault.usage) for fault in FAULTS.values())
    lines = [f"  {fault.usage:{width}}  {fault.help}" for fault in FAULTS.values()]
    return "\n".join(lines)
