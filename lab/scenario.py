"""Scenario files: which nodes, cards and addons the lab starts with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab import boards
from lab.errors import LabError

SCENARIOS = Path(__file__).parent / "scenarios"
PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
PCIDEVICES = "pcidevices-controller"
DRIVER_TOOLKIT = "nvidia-driver-toolkit"


@dataclass(frozen=True)
class GpuSpec:
    address: str
    board: boards.Board
    sriov: bool = False


@dataclass(frozen=True)
class NodeSpec:
    name: str
    gpus: tuple[GpuSpec, ...] = ()
    cpus: int = 64
    memory_gib: int = 512


@dataclass(frozen=True)
class Scenario:
    name: str
    nodes: tuple[NodeSpec, ...]
    addons: dict[str, bool]
    driver_location: str
    kubelet_sync: float = 5.0
    restarts_processes: bool = True
    vsphere: dict[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    return sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def find(name_or_file: str) -> Path:
    shipped = SCENARIOS / f"{name_or_file}.yaml"
    if shipped.is_file():
        return shipped
    if Path(name_or_file).is_file():
        return Path(name_or_file)
    raise LabError(
        f"There is no scenario {name_or_file!r}, neither shipped nor as a file.", hint=f"Shipped: {', '.join(names())}."
    )


def load(name_or_file: str) -> Scenario:
    path = find(name_or_file)
    try:
        return parse(path.stem, yaml.safe_load(path.read_text()) or {})
    except yaml.YAMLError as error:
        raise LabError(f"Scenario {path} is not valid YAML: {error}") from error


def parse(name: str, content: dict[str, Any]) -> Scenario:
    unknown = set(content) - {"nodes", "addons", "driver", "kubelet_sync", "restarts_processes", "vsphere"}
    if unknown:
        raise LabError(f"Scenario {name} has the unknown keys {', '.join(sorted(unknown))}.")
    driver = content.get("driver", {})
    ai_enterprise = driver.get("package", "vgpu-kvm") == "aie"
    nodes = tuple(_node(entry, ai_enterprise) for entry in content.get("nodes", []))
    if len({node.name for node in nodes}) != len(nodes):
        raise LabError(f"Scenario {name} names a node twice.")
    return Scenario(
        name=name,
        nodes=nodes,
        addons={PCIDEVICES: True, DRIVER_TOOLKIT: True} | content.get("addons", {}),
        driver_location=driver.get("location", "http://files.example/NVIDIA-Linux-x86_64-vgpu-kvm.run"),
        kubelet_sync=float(content.get("kubelet_sync", 5.0)),
        restarts_processes=content.get("restarts_processes", True),
        vsphere=content.get("vsphere", {}),
    )


def _node(entry: dict[str, Any], ai_enterprise: bool) -> NodeSpec:
    gpus = tuple(
        GpuSpec(
            _address(gpu["address"]), boards.named(gpu["board"], ai_enterprise=ai_enterprise), gpu.get("sriov", False)
        )
        for gpu in entry.get("gpus", [])
    )
    return NodeSpec(entry["name"], gpus, entry.get("cpus", 64), entry.get("memory_gib", 512))


def _address(text: str) -> str:
    if not PCI_ADDRESS.fullmatch(text):
        raise LabError(f"{text!r} is no PCI address.", hint="Write it as 0000:08:00.0.")
    return text
