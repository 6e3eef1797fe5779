# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Number of MIG instances that fit on a GPU. The host creates the instances when VMs start. Pure.

vSphere does not report the positions of existing instances. The numbers assume the best positions, so that fewer
instances may fit, but never more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ...fleet import mig
from ...fleet.profile import parse_or_none


def instances(boards: Sequence[str], offered: Iterable[str], present: Iterable[str]) -> dict[str, int]:
    """Return the maximum number of instances per profile, including existing instances. Empty for unknown boards."""
    geometry = mig.geometry_of(boards[0]) if len(boards) == 1 else None
    # Whether an instance serves several vGPUs depends on the release of ESXi, and the host does not report it.
    if geometry is None or mig.has_graphics_instances(boards[0]):
        return {}
    have = Counter(size for size in map(_size, present) if size)
    sizes = {name: size for name in offered if (size := _size(name))}
    return {name: have[size] + geometry.most(size, have) for name, size in sizes.items()}


def _size(name: str) -> mig.InstanceSize | None:
    parsed = parse_or_none(name)
    return mig.size_of(parsed) if parsed else None
