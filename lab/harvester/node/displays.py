"""Which vGPUs of a VM get a boot display from KubeVirt (a display with ramFB, of which libvirt takes one). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lab.kubernetes.client import Json


def showing(gpus: Sequence[Json], *, each: bool) -> list[Json]:
    """`each`: up to KubeVirt 1.2 every entry decides for itself. From 1.3 on the first gets it if none says a word."""
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
