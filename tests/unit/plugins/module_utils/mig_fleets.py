# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs in MIG mode: what they could have, and a driver that cuts them as the lab's cards are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.catalog import boards
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step

from lab.gpu.mig import GEOMETRIES, MigCard, NoRoom
from tests.unit.plugins.module_utils.fleet.test_mig import PLACEMENTS, can_be_placed
from tests.unit.plugins.module_utils.fleets import Refused, vgpus

MOST_VFS = 16


def served(board: str, instance: str) -> str:
    """The vGPU type of an instance: 1g.5gb+me serves 1-5CME."""
    plain = instance.removesuffix("+me")
    slices, gib = plain.removesuffix("gb").split("g.")
    return f"{boards()[board].type_prefix}{slices}-{gib}C" + ("ME" if plain != instance else "")


TYPES = {board: {served(board, name): name for name in table} for board, table in PLACEMENTS.items()}


def placeable(board: str, instances: Counter[str]) -> bool:
    return can_be_placed(board, tuple(instances[name] for name in PLACEMENTS[board]))


def cut_anew(one: Gpu, profiles: Sequence[str], sriov: bool, evict: bool, mig: bool) -> Iterator[Counter[str]]:
    """Every set of vGPUs that its instances serve, or others that it could have instead."""
    if not one.sharing and not sriov:
        return
    board, now, held = one.boards[0], vgpus(one), vgpus(one, held=True)
    kinds = sorted({*profiles, *now})
    for counts in product(*(range(held[kind] if evict else now[kind], 8) for kind in kinds)):
        state = Counter({kind: count for kind, count in zip(kinds, counts, strict=True) if count})
        if state == now:
            continue
        as_it_is = all(one.max_instances.get(kind, 0) >= count for kind, count in state.items())
        anew = mig and not held and (evict or not now) and placeable(board, _needed(one, state, evict=evict))
        if as_it_is or anew:
            yield state


def _needed(one: Gpu, state: Counter[str], *, evict: bool) -> Counter[str]:
    kept = Counter() if evict else Counter(one.max_instances)
    table = TYPES[one.boards[0]]
    return Counter({table[kind]: max(state[kind], kept[kind]) for kind in {*state, *kept}})


class MigDriver:
    """The lab's card: instances are made one after the other on an empty card, each serves one vGPU of its own type."""

    def __init__(self, record: Fleet) -> None:
        self.gpus = {one.name: one for one in record.gpus}
        self.slots = {one.name: {slot.name: slot for slot in one.slots} for one in record.gpus}
        self.instances = {one.name: Counter(one.max_instances) for one in record.gpus}
        self.sharing = {one.name: one.sharing for one in record.gpus}

    def do(self, step: Step) -> None:
        slots, board = self.slots[step.gpu], self.gpus[step.gpu].boards[0]
        if step.action == "enable_sriov":
            self.sharing[step.gpu] = True
            slots.update({f"{step.gpu}-{place:02}": Slot(f"{step.gpu}-{place:02}") for place in range(MOST_VFS)})
            return
        if not self.sharing[step.gpu]:
            raise Refused("SR-IOV is off")
        if step.action == "create_mig_instances":
            if any(not slot.empty for slot in slots.values()):
                raise Refused("a vGPU is enabled")
            self.instances[step.gpu] = _cut(board, step)
            return
        name = step.slot or next(name for name, slot in sorted(slots.items()) if slot.empty)
        if slots[name].holders:
            raise Refused(f"{name} is in use")
        if step.action == "disable":
            if slots[name].empty:
                raise Refused(f"{name} is empty")
            slots[name] = Slot(name)
            return
        assert step.action == "enable"
        assert step.after
        taken = self.supply()[step.gpu][step.after]
        if not slots[name].empty or taken >= self.instances[step.gpu][step.after]:
            raise Refused(f"no instance for {step.after}")
        slots[name] = Slot(name, profile=step.after, wanted=step.after)

    def supply(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(one.profile for one in slots.values() if one.profile) for name, slots in self.slots.items()
        }


def _cut(board: str, step: Step) -> Counter[str]:
    card = MigCard(GEOMETRIES[board])
    numbers = {profile.name: profile.id for profile in card.geometry.profiles}
    made: Counter[str] = Counter()
    for name, count in step.instances:
        for _number in range(count):
            try:
                card.create(numbers[name])
            except NoRoom as error:
                raise Refused(f"{name} does not fit") from error
            made[served(board, name)] += 1
    return made
