"""GPU boards: their vGPU types and PCI ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from lab.errors import LabError

VENDOR_ID = "10de"
CLASS_ID = "0302"


@dataclass(frozen=True)
class VgpuType:
    name: str
    framebuffer_gib: int
    instances: int
    id: str


@dataclass(frozen=True)
class Board:
    name: str
    memory_gib: int
    device_id: str
    product: str
    vfs: int
    types: tuple[VgpuType, ...]
    mig_types: tuple[VgpuType, ...] = ()
    prefix: str = ""

    @property
    def type_prefix(self) -> str:
        return f"{self.prefix}-"

    @property
    def description(self) -> str:
        return f"3D controller: NVIDIA Corporation {self.product}"

    @property
    def resource_name(self) -> str:
        """The generic name a PCIDevice gets from the PCI database (harvester.md 3.2)."""
        product = re.sub(r"[ /]", "_", self.product.replace("[", "").replace("]", "").replace("-", ""))
        return f"nvidia.com/{product.upper()}"


def _type(prefix: str, suffix: str, instances: int, identifier: int) -> VgpuType:
    size = re.search(r"(\d+)[ABCQ]", suffix)
    assert size is not None, suffix
    return VgpuType(f"{prefix}-{suffix}", int(size.group(1)), instances, str(identifier))


@cache
def load(*, ai_enterprise: bool = False) -> dict[str, Board]:
    table = yaml.safe_load((Path(__file__).parent / "boards.yaml").read_text())
    boards = {}
    for name, entry in table.items():
        listed = dict(entry.get("types", {}))
        if ai_enterprise:
            listed |= entry.get("aie_types", {})
        boards[name] = Board(
            name=name,
            memory_gib=entry["memory_gib"],
            device_id=entry["device_id"],
            product=entry["product"],
            vfs=entry["vfs"],
            prefix=entry["prefix"],
            types=tuple(_type(entry["prefix"], suffix, *numbers) for suffix, numbers in listed.items()),
            mig_types=tuple(
                _type(entry["prefix"], suffix, *numbers) for suffix, numbers in entry.get("mig_types", {}).items()
            ),
        )
    return boards


def named(name: str, *, ai_enterprise: bool = False) -> Board:
    boards = load(ai_enterprise=ai_enterprise)
    if name not in boards:
        raise LabError(f"There is no board {name!r} in the lab.", hint=f"Available boards: {', '.join(boards)}.")
    return boards[name]
