# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MIG layout that a GPU needs for the vGPUs of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..fleet import catalog
from ..fleet.mig import InstanceSize, MigGeometry, geometry_of, size_of
from ..fleet.profile import Key
from ..fleet.shared_instances import SharedLayouts
from .capacity import GpuState, instances_of, virtual_functions


@dataclass(frozen=True)
class MigLayout:
    """A new MIG layout of a GPU: its GPU instances, and the vGPUs that are enabled on them."""

    instances: Counter[InstanceSize]
    vgpus: Counter[Key]


def new_mig_layout(site: GpuState, assigned: Mapping[Key, int], *, exclusive: bool = False) -> MigLayout | None:
    """Return the smallest sufficient layout that keeps as many instances as possible. Return None if none is needed.

    vGPUs without a holder are disabled in between. Unrequested vGPUs are enabled again if there is room and the request
    is not exclusive.
    """
    vgpus = Counter({key: count for key, count in assigned.items() if count})
    has = instances_of(site.gpu)
    needed = _instances(vgpus)
    if not needed or (site.gpu.sharing and needed <= has):
        return None
    geometry = geometry_of(next(iter(vgpus))[0])
    if geometry is None:
        return None
    instances = Counter(needed)
    if not exclusive:
        # Each vGPU needs a virtual function, and a GPU may have fewer virtual functions than instances.
        places = len(site.gpu.slots) if site.gpu.sharing else virtual_functions(site.gpu)
        for key in sorted(site.loose):
            spare = min(len(site.loose[key]) - vgpus[key], places - vgpus.total())
            size = size_of(key)
            if size and spare > 0:
                fitting = _add(geometry, instances, size, spare)
                if fitting:
                    vgpus[key] += fitting
    for size in geometry.sizes:
        _add(geometry, instances, size, has[size] - instances[size])
    return MigLayout(_ordered(geometry, instances), vgpus)


def new_shared_layout(
    site: GpuState, assigned: Mapping[Key, int], shared: SharedLayouts, *, exclusive: bool = False
) -> MigLayout | None:
    """Return the layout of a GPU whose instances serve several vGPUs each. Return None if its instances suffice."""
    vgpus = Counter({key: count for key, count in assigned.items() if count})
    has, geometry = instances_of(site.gpu), shared.geometry

    def instances() -> Counter[InstanceSize]:
        return shared.instances(shared.needed(vgpus))

    if not vgpus or (site.gpu.sharing and instances() <= has):
        return None
    places = min(len(site.gpu.slots) if site.gpu.sharing else virtual_functions(site.gpu), catalog.MAX_PER_GPU)
    for key in () if exclusive else sorted(site.loose):
        while vgpus[key] < len(site.loose[key]) and vgpus.total() < places:
            vgpus[key] += 1
            if not geometry.fits(instances()):
                vgpus[key] -= 1
                break
    found = instances()
    for size in geometry.sizes:
        _add(geometry, found, size, has[size] - found[size])
    return MigLayout(_ordered(geometry, found), +vgpus)


def _instances(vgpus: Mapping[Key, int]) -> Counter[InstanceSize]:
    found: Counter[InstanceSize] = Counter()
    for key, count in vgpus.items():
        size = size_of(key)
        if size:
            found[size] += count
    return found


def _add(geometry: MigGeometry, instances: Counter[InstanceSize], size: InstanceSize, most: int) -> int:
    """Add as many instances as fit, and return their number."""
    added = 0
    while added < most and geometry.fits(instances + Counter({size: 1})):
        instances[size] += 1
        added += 1
    return added


def _ordered(geometry: MigGeometry, instances: Counter[InstanceSize]) -> Counter[InstanceSize]:
    """Return the instances in the order of creation: the largest first."""
    return Counter({size: instances[size] for size in geometry.sizes if instances[size]})
