"""How a VGPUDevice names its type, in both eras. Pure."""

from __future__ import annotations

from lab.kubernetes.client import Json

CONFIGURED = "vGPUConfigured"


def chosen_type(obj: Json) -> str:
    """The driver's value for the wanted type; one that is not offered leaves a line in the log and no other trace."""
    wanted = obj["spec"].get("vGPUTypeName", "")
    offered: dict[str, str] = (obj.get("status") or {}).get("availableTypes") or {}
    if wanted not in offered:
        raise LookupError(f"VGPUType specified {wanted} is not available for vGPU {obj['spec']['address']}")
    return offered[wanted]
