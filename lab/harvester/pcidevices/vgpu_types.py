"""Type names of VGPUDevices, for mediated devices and for vendor VFIO. Pure."""

from __future__ import annotations

from lab.kubernetes.client import Json

CONFIGURED = "vGPUConfigured"


def chosen_type(obj: Json) -> str:
    """Return the driver's id of the requested type. Only the log of the process reports an unavailable type."""
    wanted = obj["spec"].get("vGPUTypeName", "")
    offered: dict[str, str] = (obj.get("status") or {}).get("availableTypes") or {}
    if wanted not in offered:
        raise LookupError(f"VGPUType specified {wanted} is not available for vGPU {obj['spec']['address']}")
    return offered[wanted]
