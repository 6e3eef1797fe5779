# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Assignment of the vGPUs of running VMs to GPUs. Pure.

A host lists the VMs of each GPU, not their vGPUs (vsphere.md 3.5). The assignment is unique for a VM on one GPU, or
with one vGPU of one profile per GPU. Otherwise the rule of one size per GPU often decides. VMs for which several
assignments remain are `ambiguous`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...fleet.profile import parse_or_none
from .inventory import GpuFacts, VmFacts

# Maximum number of assignments to compare. Beyond this limit, the VM is ambiguous in any case.
WAYS = 500

Split = tuple[Counter[str], ...]


@dataclass
class GpuAssignment:
    """Profiles by GPU address and VM id. `unlisted` VMs run with vGPUs, but no GPU lists them."""

    by_gpu: dict[str, dict[str, Counter[str]]] = field(default_factory=dict)
    ambiguous: set[str] = field(default_factory=set)
    unlisted: set[str] = field(default_factory=set)

    def put(self, address: str, vm: str, profiles: Counter[str]) -> None:
        if profiles:
            self.by_gpu.setdefault(address, {})[vm] = profiles

    def profiles_on(self, address: str) -> set[str]:
        return {profile for profiles in self.by_gpu.get(address, {}).values() for profile in profiles}


def occupancy(
    gpus: Sequence[GpuFacts], running: Sequence[VmFacts], mixing: Mapping[str, bool], *, by_type: bool
) -> GpuAssignment:
    """Assign the vGPUs of running VMs to GPUs.

    `mixing` maps each GPU to whether it accepts different sizes. With `by_type`, all vGPUs of another GPU have one
    profile, not only one size.
    """
    found = GpuAssignment()
    open_questions: list[tuple[VmFacts, list[str]]] = []
    for vm in running:
        listing = [gpu.address for gpu in gpus if vm.moid in gpu.vms]
        if vm.vgpus and all(key in vm.bindings for key, _profile in vm.vgpus):
            for key, profile in vm.vgpus:
                there = found.by_gpu.setdefault(vm.bindings[key], {}).setdefault(vm.moid, Counter())
                there[profile] += 1
        elif not listing:
            found.unlisted.add(vm.moid)
        elif len(listing) == 1:
            found.put(listing[0], vm.moid, _profiles(vm))
        else:
            open_questions.append((vm, listing))
    for vm, listing in open_questions:
        ways = []
        for split in splits(_profiles(vm), len(listing)):
            if all(
                mixing.get(address) or _alike(found.profiles_on(address) | set(part), by_type)
                for address, part in zip(listing, split, strict=True)
            ):
                ways.append(split)
                if len(ways) >= WAYS:
                    break
        if len(ways) != 1:
            found.ambiguous.add(vm.moid)
        chosen = min(ways, key=_unevenness) if ways else next(splits(_profiles(vm), len(listing)), ())
        for address, part in zip(listing, chosen, strict=False):
            found.put(address, vm.moid, part)
    return found


def _profiles(vm: VmFacts) -> Counter[str]:
    return Counter(profile for _key, profile in vm.vgpus)


def _alike(profiles: set[str], by_type: bool) -> bool:
    if by_type:
        return len(profiles) <= 1
    return len({parsed.mib if (parsed := parse_or_none(name)) else name for name in profiles}) <= 1


def _unevenness(split: Split) -> int:
    sizes = [part.total() for part in split]
    return max(sizes) - min(sizes)


def splits(profiles: Counter[str], parts: int) -> Iterator[Split]:
    """Yield all ways to divide vGPUs among a number of GPUs with at least one vGPU each."""
    kinds = sorted(profiles.items())

    def shares(count: int, left: int) -> Iterator[tuple[int, ...]]:
        if left == 1:
            yield (count,)
            return
        # Yield even shares first, since even splits are the most likely.
        fair = -(-count // left)
        for mine in sorted(range(count + 1), key=lambda amount: abs(amount - fair)):
            for others in shares(count - mine, left - 1):
                yield (mine, *others)

    def divide(index: int) -> Iterator[list[Counter[str]]]:
        if index == len(kinds):
            yield [Counter() for _part in range(parts)]
            return
        name, count = kinds[index]
        for rest in divide(index + 1):
            for share in shares(count, parts):
                yield [
                    part + Counter({name: amount}) if amount else part for part, amount in zip(rest, share, strict=True)
                ]

    for divided in divide(0):
        if all(divided):
            yield tuple(divided)
