"""Boot displays of vGPUs as KubeVirt assigns them (a display with ramFB, of which libvirt accepts one). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lab.kubernetes.client import Json


def showing(gpus: Sequence[Json], *, each: bool) -> list[Json]:
    """Return the vGPUs with a boot display: each by its own options up to KubeVirt 1.2, else the first by default."""
    if each:
        return [gpu for gpu in gpus if gpu.get("virtualGPUOptions") is None or has_display(gpu)]
    if all(_display(gpu) is None for gpu in gpus):
        return list(gpus[:1])
    return [gpu for gpu in gpus if has_display(gpu)]


def has_display(gpu: Json) -> bool:
    """Return whether an entry requests a display. An empty object means yes."""
    display = _display(gpu)
    if display is None or display.get("enabled") is False:
        return False
    return (display.get("ramFB") or {}).get("enabled") is not False


def _display(gpu: Json) -> Json | None:
    display: Json | None = (gpu.get("virtualGPUOptions") or {}).get("display")
    return display
