"""State that only the hosts have: types of virtual functions, MIG instances, running processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """The hosts at one moment."""

    at: float
    hardware: Mapping[str, Json] = field(default_factory=dict)
    processes: Mapping[str, bool] = field(default_factory=dict)
    webhook_refuses: bool | None = None


def type_on(hardware: Mapping[str, Json], address: str, *, mdev: bool) -> str:
    """Return the type id of a virtual function as this Harvester version spells it, `0` for none."""
    for gpu in hardware.values():
        functions = gpu.get("vfs") or {}
        if address in functions:
            number = str(functions[address] or "").removeprefix("nvidia-")
            if not number:
                return "0"
            return f"nvidia-{number}" if mdev else number
    return "no VF"


def instances_of(hardware: Mapping[str, Json]) -> list[str]:
    """Return GPU instances as texts of id, profile id and profile name."""
    return [
        f"{instance['id']} {instance['profile_id']} {str(instance['profile']).removeprefix('MIG ')}"
        for gpu in hardware.values()
        for instance in (gpu.get("mig_instances") or [])
    ]
