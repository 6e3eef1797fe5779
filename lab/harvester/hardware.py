"""Hardware of GPU hosts: PCI functions, vGPU types of the NVIDIA driver, effects of a reboot. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from lab.gpu.boards import CLASS_ID, VENDOR_ID, Board, VgpuType
from lab.gpu.mig import GEOMETRIES, MigCard
from lab.scenarios.scenario import NodeSpec

FIRST_VF_FUNCTION = 4
PF_IOMMU_GROUP = 38
VF_IOMMU_GROUP = 90
GROUPS_PER_GPU = 64


@dataclass
class Vf:
    address: str
    iommu_group: str
    type: VgpuType | None = None
    uuid: str = ""
    # The GPU instance that the vGPU is on, in MIG mode.
    instance: int | None = None


@dataclass
class Gpu:
    address: str
    board: Board
    index: int
    vfs: list[Vf] = field(default_factory=list)
    mig: MigCard | None = None
    mig_mode: bool = False
    # Behavior of the recordings' fake driver, which a real driver does not have.
    takes_any_type: bool = False
    keeps_types: bool = False
    _kept: list[Vf] = field(default_factory=list)

    @property
    def iommu_group(self) -> str:
        return str(PF_IOMMU_GROUP + self.index)

    @property
    def sriov_capable(self) -> bool:
        return self.board.vfs > 0

    def vf_addresses(self) -> list[str]:
        """Return the virtual functions in the controllers' order: virtfn0, virtfn1, virtfn10, ..."""
        domain_bus = self.address.rsplit(":", 1)[0]
        addresses = []
        for number in range(self.board.vfs):
            device, function = divmod(FIRST_VF_FUNCTION + number, 8)
            addresses.append(f"{domain_bus}:{device:02x}.{function}")
        return [addresses[int(text)] for text in sorted(map(str, range(self.board.vfs)))]

    def create_vfs(self) -> None:
        numbers = sorted(map(str, range(self.board.vfs)))
        self.vfs = [
            Vf(address, str(VF_IOMMU_GROUP + GROUPS_PER_GPU * self.index + int(number)))
            for number, address in zip(numbers, self.vf_addresses(), strict=True)
        ]
        for kept in self._kept:
            vf = self.vf(kept.address)
            if vf is not None:
                vf.type, vf.uuid = kept.type, kept.uuid

    def remove_vfs(self) -> None:
        self._kept = [vf for vf in self.vfs if vf.type is not None] if self.keeps_types else []
        self.vfs = []

    def forget(self) -> None:
        self.vfs, self._kept = [], []

    def vf(self, address: str) -> Vf | None:
        return next((vf for vf in self.vfs if vf.address == address), None)

    def offered(self, vf: Vf) -> list[VgpuType]:
        """Return the available types of this function: one size per GPU, a maximum per type (harvester.md 7.1)."""
        if vf.type is not None:
            return []
        if self.mig_mode and self.mig is not None and not self.mig.keeps_time_sliced_types:
            return self._offered_by_instances(self.mig)
        taken = [other.type for other in self.vfs if other.type is not None]
        # A driver that accepts any type allows several sizes; the first size decides.
        sizes = {other.framebuffer_gib for other in (taken[:1] if self.takes_any_type else taken)}
        return [kind for kind in self.board.types if len(taken) < kind.instances and sizes <= {kind.framebuffer_gib}]

    def _offered_by_instances(self, card: MigCard) -> list[VgpuType]:
        """Return the types in MIG mode: each type once, if an instance takes one more vGPU of it."""
        return [kind for kind in self.board.mig_types if self._instance_for(card, kind) is not None]

    def _instance_for(self, card: MigCard, kind: VgpuType) -> int | None:
        """Return the instance that takes the next vGPU: the first one that fits (harvester.md 8.5).

        An empty instance takes every type that it serves. After that it is full, or on a board with graphics instances
        takes more vGPUs of the same size up to a maximum.
        """
        graphics = card.geometry.graphics
        suffix = kind.name.removeprefix(self.board.type_prefix)
        for instance in sorted(card.instances, key=lambda one: one.id):
            if not instance.profile.serves(suffix, graphics=graphics):
                continue
            present = [vf.type for vf in self.vfs if vf.type is not None and vf.instance == instance.id]
            most = kind.instances // card.geometry.available(instance.profile, []) if graphics else 1
            alike = all(other.framebuffer_gib == kind.framebuffer_gib for other in present)
            if alike and len(present) < most:
                return instance.id
        return None

    def configure(self, vf: Vf, type_id: str) -> None:
        possible = self.board.types if self.takes_any_type else self.offered(vf)
        kind = next((kind for kind in possible if kind.id == type_id), None)
        if kind is None:
            raise LookupError(f"error writing {type_id} to {vf.address}: the driver refuses it")
        if self.mig_mode and self.mig is not None and kind in self.board.mig_types:
            vf.instance = self._instance_for(self.mig, kind)
        vf.type = kind
        vf.uuid = str(uuid.uuid4())

    def release(self, vf: Vf) -> None:
        vf.type = None
        vf.uuid = ""
        vf.instance = None


@dataclass(frozen=True)
class PciFunction:
    address: str
    board: Board
    iommu_group: str
    parent: str | None

    def status(self, node: str) -> dict[str, str]:
        return {
            "address": self.address,
            "classId": CLASS_ID,
            "description": self.board.description,
            "deviceId": self.board.device_id,
            "iommuGroup": self.iommu_group,
            "nodeName": node,
            "resourceName": self.board.resource_name,
            "vendorId": VENDOR_ID,
        }


class Host:
    def __init__(self, spec: NodeSpec, *, takes_any_type: bool = False, keeps_types: bool = False) -> None:
        self.spec = spec
        self.name = spec.name
        # Addresses of functions whose types cannot be read.
        self.unreadable: set[str] = set()
        # Whether nvidia-smi fails to enable MIG mode.
        self.mig_setup_fails = False
        self.gpus = [
            Gpu(
                gpu.address,
                gpu.board,
                index,
                mig=_mig_card(gpu.board),
                takes_any_type=takes_any_type,
                keeps_types=keeps_types,
            )
            for index, gpu in enumerate(spec.gpus)
        ]
        for gpu, start in zip(self.gpus, spec.gpus, strict=True):
            if start.sriov:
                gpu.create_vfs()

    def gpu(self, address: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.address == address), None)

    def find_vf(self, address: str) -> tuple[Gpu, Vf] | None:
        for gpu in self.gpus:
            vf = gpu.vf(address)
            if vf is not None:
                return gpu, vf
        return None

    def check_readable(self, *addresses: str) -> None:
        for address in addresses:
            if address in self.unreadable:
                raise LookupError(f"error reading the vGPU types of {address}: no such file")

    def pci_functions(self) -> Iterator[PciFunction]:
        for gpu in self.gpus:
            yield PciFunction(gpu.address, gpu.board, gpu.iommu_group, None)
            for vf in sorted(gpu.vfs, key=lambda vf: vf.address):
                yield PciFunction(vf.address, gpu.board, vf.iommu_group, gpu.address)

    def reboot(self) -> None:
        """Clear SR-IOV, vGPU types and MIG instances, which exist only in the driver and do not survive a reboot."""
        for gpu in self.gpus:
            gpu.forget()
            if gpu.mig is not None:
                gpu.mig.instances.clear()


def _mig_card(board: Board) -> MigCard | None:
    return MigCard(GEOMETRIES[board.name]) if board.name in GEOMETRIES else None
