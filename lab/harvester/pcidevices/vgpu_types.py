"""How a VGPUDevice names its type, in both eras. Pure."""

from __future__ import annotations

from lab.kubernetes.client import Json

CONFIGURED = "vGPUConfigured"


def chosen_type(thing: Json) -> str:
    """The driver's value for the wanted type; one that is not offered leaves a line in the log and no other trace."""
    wanted = thing["spec"].get("vGPUTypeName", "")
    offered: dict[str, str] = (thing.get("status") or {}).get("availableTypes") or {}
    if wanted not in offered:
        raise LookupError(f"VGPUType specified {wanted} is not available for vGPU {thing['spec']['address']}")
    return offered[wanted]
