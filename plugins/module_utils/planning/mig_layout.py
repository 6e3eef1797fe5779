# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The MIG instances that a GPU is to have, from the vGPUs that it is to have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import (
    InstanceSize,
    MigGeometry,
    geometry_of,
    size_of,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import Key
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.capacity import (
    GpuState,
    instances_of,
    virtual_functions,
)


@dataclass(frozen=True)
class MigLayout:
    """A GPU cut anew: its instances, and the vGPUs that are enabled on them."""

    instances: Counter[InstanceSize]
    vgpus: Counter[Key]


def new_mig_layout(site: GpuState, assigned: Mapping[Key, int], *, exclusive: bool = False) -> MigLayout | None:
    """No more instances than are needed, beside as much as possible of what is there; None if that serves as it is.

    vGPUs that nobody holds are disabled on the way. Those that were not asked for come back if there is room and
    unless the GPU should have only what was asked for.
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
        # Each vGPU needs a virtual function, and a GPU may have fewer of them than instances.
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


def _instances(vgpus: Mapping[Key, int]) -> Counter[InstanceSize]:
    found: Counter[InstanceSize] = Counter()
    for key, count in vgpus.items():
        size = size_of(key)
        if size:
            found[size] += count
    return found


def _add(geometry: MigGeometry, instances: Counter[InstanceSize], size: InstanceSize, most: int) -> int:
    """As many as fit, and how many that were."""
    added = 0
    while added < most and geometry.fits(instances + Counter({size: 1})):
        instances[size] += 1
        added += 1
    return added


def _ordered(geometry: MigGeometry, instances: Counter[InstanceSize]) -> Counter[InstanceSize]:
    """The largest first: it is the order to create them in."""
    return Counter({size: instances[size] for size in geometry.sizes if instances[size]})
