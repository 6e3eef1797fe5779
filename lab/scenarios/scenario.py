"""Scenario files: the nodes, GPUs and addons with which a lab starts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from lab.gpu import boards

SCENARIOS = Path(__file__).parent
PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
PCIDEVICES = "pcidevices-controller"
DRIVER_TOOLKIT = "nvidia-driver-toolkit"
SCENARIO_KEYS = ("nodes", "addons", "driver", "kubelet_sync", "restarts_processes", "fake_driver", "vsphere")


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
    # Its driver is the fake one of the recordings, with the limits that it had.
    fake_driver: bool = False
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
        f"There is no scenario or file {name_or_file!r}.", hint=f"Available scenarios: {', '.join(names())}."
    )


def load(name_or_file: str, nodes: int | None = None) -> Scenario:
    """Load a scenario. `nodes` replaces the count of the entry that has one."""
    path = find(name_or_file)
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        place = f": line {where.line + 1}, column {where.column + 1}" if where else ""
        raise LabError(f"Scenario {path} is not valid YAML{place}.") from error
    return parse(path.stem, content or {}, nodes)


def parse(name: str, content: Any, wanted_nodes: int | None = None) -> Scenario:
    _check(f"Scenario {name}", content, SCENARIO_KEYS)
    driver = _check(f"driver of scenario {name}", content.get("driver", {}), ("package", "location"))
    addons = _check(f"addons of scenario {name}", content.get("addons", {}), (PCIDEVICES, DRIVER_TOOLKIT))
    entries = content.get("nodes", [])
    if not isinstance(entries, list):
        raise LabError(f"nodes of scenario {name} is not a list.")
    ai_enterprise = driver.get("package", "vgpu-kvm") == "aie"
    if wanted_nodes is not None:
        entries = _recounted(name, entries, wanted_nodes)
    nodes = tuple(
        node
        for number, entry in enumerate(entries, 1)
        for node in _nodes(f"Node {number} of scenario {name}", entry, ai_enterprise)
    )
    if len({node.name for node in nodes}) != len(nodes):
        raise LabError(f"Scenario {name} names a node twice.")
    return Scenario(
        name=name,
        nodes=nodes,
        addons={PCIDEVICES: True, DRIVER_TOOLKIT: True} | addons,
        driver_location=driver.get("location", "http://files.example/NVIDIA-Linux-x86_64-vgpu-kvm.run"),
        kubelet_sync=float(content.get("kubelet_sync", 5.0)),
        restarts_processes=content.get("restarts_processes", True),
        fake_driver=content.get("fake_driver", False),
        vsphere=content.get("vsphere", {}),
    )


def _check(what: str, entry: Any, keys: tuple[str, ...], required: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise LabError(f"{what} is not a mapping.")
    unknown, missing = set(entry) - set(keys), set(required) - set(entry)
    if unknown:
        raise LabError(
            f"{what} has the unknown key {', '.join(sorted(map(str, unknown)))}.", hint=f"Known: {', '.join(keys)}."
        )
    if missing:
        raise LabError(f"{what} has no {', '.join(sorted(missing))}.")
    return entry


def _recounted(name: str, entries: list[Any], count: int) -> list[Any]:
    counted = [entry for entry in entries if isinstance(entry, dict) and "count" in entry]
    if len(counted) != 1:
        raise LabError(
            f"Scenario {name} has {len(counted)} nodes with a count, so --nodes is ambiguous.",
            hint="Use --nodes with scenarios that have one, such as fleet.",
        )
    return [entry | {"count": count} if entry is counted[0] else entry for entry in entries]


def _nodes(what: str, entry: Any, ai_enterprise: bool) -> list[NodeSpec]:
    """`{name: "gpu-{n}", count: 3}` stands for gpu-1, gpu-2 and gpu-3."""
    _check(what, entry, ("name", "count", "gpus", "cpus", "memory_gib"), ("name",))
    gpus = []
    for gpu in entry.get("gpus") or []:
        _check(f"A GPU of node {entry['name']}", gpu, ("address", "board", "sriov"), ("address", "board"))
        board = boards.named(gpu["board"], ai_enterprise=ai_enterprise)
        gpus.append(GpuSpec(_address(gpu["address"]), board, gpu.get("sriov", False)))
    return [
        NodeSpec(name, tuple(gpus), entry.get("cpus", 64), entry.get("memory_gib", 512)) for name in _names(what, entry)
    ]


def _names(what: str, entry: dict[str, Any]) -> list[str]:
    name = str(entry["name"])
    if "count" not in entry:
        return [name]
    count = entry["count"]
    if not isinstance(count, int) or count < 1:
        raise LabError(f"{what} has the count {count}, which is not a number of at least 1.")
    if "{n}" not in name:
        raise LabError(
            f"The name {name!r} of {count} nodes needs a placeholder for the number.", hint="For example: gpu-{n}."
        )
    return [name.replace("{n}", str(number)) for number in range(1, count + 1)]


def _address(text: Any) -> str:
    if not PCI_ADDRESS.fullmatch(str(text)):
        raise LabError(f"{text!r} is not a PCI address.", hint="For example: 0000:08:00.0.")
    return str(text)
