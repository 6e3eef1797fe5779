"""Fields of a state that describe one node, such as `claims of gpu-a`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lab.gpu.boards import VENDOR_ID
from lab.replay.observe.history import Snapshot
from lab.replay.observe.normalized import gpu_resources

KEY = re.compile(r"(?P<what>\w+) of (?P<node>\S+)")


def reader(key: str) -> Callable[[Snapshot], Any] | None:
    """Return the function that reads the value of such a key, or None."""
    match = KEY.fullmatch(key)
    if not match or match["what"] not in OF_A_NODE:
        return None
    read, node = OF_A_NODE[match["what"]], match["node"]
    return lambda snapshot: read(snapshot, node)


def _amounts(of: str) -> Callable[[Snapshot, str], Any]:
    def read(snapshot: Snapshot, node: str) -> list[str]:
        amounts = gpu_resources(snapshot.get("nodes", node) or {}, of)
        return sorted(f"{name} {amount}" for name, amount in amounts.items() if amount != "0")

    return read


def _claims(snapshot: Snapshot, node: str) -> list[str]:
    return sorted(
        name + (" deleting" if claim["metadata"].get("deletionTimestamp") else "")
        for name, claim in snapshot.of_node("pcideviceclaims", node).items()
    )


def _functions(snapshot: Snapshot, node: str) -> int:
    gpus = snapshot.of_node("sriovgpudevices", node).values()
    return sum(len((gpu.get("status") or {}).get("vfAddresses") or []) for gpu in gpus)


def _gpu_functions(snapshot: Snapshot, node: str) -> int:
    """A host has other devices as well, and each cluster has other ones."""
    devices = snapshot.of_node("pcidevices", node).values()
    return sum(1 for device in devices if (device.get("status") or {}).get("vendorId") == VENDOR_ID)


def _mig(snapshot: Snapshot, node: str) -> list[str]:
    lines = []
    for name, configuration in snapshot.of_node("migconfigurations", node).items():
        status = configuration.get("status") or {}
        lines.append(f"{name} {status.get('status', '')} {status.get('message', '')}".strip())
        lines += [
            f"{profile['name']} {profile.get('available', 0)}/{profile.get('total', 0)}"
            for profile in status.get("profileStatus") or []
        ]
    return lines


OF_A_NODE: dict[str, Callable[[Snapshot, str], Any]] = {
    "allocatable": _amounts("allocatable"),
    "capacity": _amounts("capacity"),
    "claims": _claims,
    "pfVFs": _functions,
    "vgpudevices": lambda snapshot, node: len(snapshot.of_node("vgpudevices", node)),
    "pcidevices": _gpu_functions,
    "mig": _mig,
}
