# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs in MIG mode: what they could have, and a driver that cuts them as the lab's cards are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
        if state == now or state.total() > (len(one.slots) if one.sharing else one.vf_capacity or 0):
            continue
        as_it_is = one.sharing and all(one.max_instances.get(kind, 0) >= count for kind, count in state.items())
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
            places = range(self.gpus[step.gpu].vf_capacity or 0)
            slots.update({f"{step.gpu}-{place:02}": Slot(f"{step.gpu}-{place:02}") for place in places})
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


# A board whose instances serve several vGPUs of one size: types by the slices of their instance and vGPUs per instance,
# and how often an instance fits, written down a second time so that the catalogue is not its own witness.
SHARED_BOARD = "RTX Pro 4500 Blackwell DC"
SHARED_TYPES = {
    f"NVIDIA {SHARED_BOARD}-{suffix}": most
    for suffix, most in {"1-8C": 2, "1-16C": 1, "1-16Q": 1, "2-8C": 4, "2-8Q": 4, "2-16C": 2, "2-32Q": 1}.items()
}
SHARED_INSTANCES = {"1g.16gb+gfx": 1, "2g.32gb+gfx": 2}


def _use(type_name: str) -> tuple[int, int]:
    slices, size = type_name.removeprefix(f"NVIDIA {SHARED_BOARD}-").split("-")
    return int(slices), int(size[:-1])


def _fewest_instances(vgpus_of: Counter[str]) -> Counter[int]:
    """The fewest instances by slices: each is for one size."""
    totals: Counter[tuple[int, int]] = Counter()
    most: dict[tuple[int, int], int] = {}
    for kind, count in vgpus_of.items():
        totals[_use(kind)] += count
        most[_use(kind)] = SHARED_TYPES[kind]
    found: Counter[int] = Counter()
    for use, count in totals.items():
        found[use[0]] += -(-count // most[use])
    return found


def shared_gpu(one: Gpu, ones: int, twos: int, slots: Sequence[Slot]) -> Gpu:
    """The GPU with so many instances of one slice and of two."""
    by_slices = {1: ones, 2: twos}
    return replace(
        one,
        slots=tuple(slots),
        instances={"1g.16gb+gfx": ones, "2g.32gb+gfx": twos, "1g.16gb": 0, "1g.16gb-me": 0},
        max_instances={kind: by_slices[_use(kind)[0]] * most for kind, most in SHARED_TYPES.items()},
    )


def _slices(one: Gpu) -> Counter[int]:
    return Counter({SHARED_INSTANCES[name]: one.instances.get(name, 0) for name in SHARED_INSTANCES})


def share_anew(one: Gpu, profiles: Sequence[str], sriov: bool, evict: bool, mig: bool) -> Iterator[Counter[str]]:
    """Every set of vGPUs that its instances serve, or others that it could have instead."""
    if not one.sharing and not sriov:
        return
    now, held = vgpus(one), vgpus(one, held=True)
    kinds = sorted({*profiles, *now})
    for counts in product(*(range(held[kind] if evict else now[kind], 5) for kind in kinds)):
        state = Counter({kind: count for kind, count in zip(kinds, counts, strict=True) if count})
        needed = _fewest_instances(state)
        if state == now or state.total() > MOST_VFS:
            continue
        kept = Counter() if evict else _slices(one)
        cut = needed | kept
        as_it_is = one.sharing and needed <= _slices(one)
        anew = mig and not held and (evict or not now) and cut[1] + 2 * cut[2] <= 2
        if as_it_is or anew:
            yield state


class SharedDriver:
    """A card whose instances take vGPUs of one size each: the first that fits takes the next one."""

    def __init__(self, record: Fleet) -> None:
        self.slots = {one.name: {slot.name: slot for slot in one.slots} for one in record.gpus}
        self.sharing = {one.name: one.sharing for one in record.gpus}
        self.instances = {
            one.name: [(slices, {}) for slices, count in _slices(one).items() for _number in range(count)]
            for one in record.gpus
        }
        for one in record.gpus:
            for slot in one.slots:
                if slot.profile:
                    self._place(one.name, slot.name, slot.profile)

    def _place(self, gpu: str, slot: str, kind: str) -> None:
        slices, _size = use = _use(kind)
        for its, taken in self.instances[gpu]:
            alike = its == slices and all(_use(other) == use for other in taken.values())
            if alike and len(taken) < SHARED_TYPES[kind]:
                taken[slot] = kind
                return
        raise Refused(f"no instance takes {kind}")

    def do(self, step: Step) -> None:
        slots = self.slots[step.gpu]
        if step.action == "enable_sriov":
            self.sharing[step.gpu] = True
            slots.update({f"{step.gpu}-{place:02}": Slot(f"{step.gpu}-{place:02}") for place in range(MOST_VFS)})
            return
        if not self.sharing[step.gpu]:
            raise Refused("SR-IOV is off")
        if step.action == "create_mig_instances":
            if any(not slot.empty for slot in slots.values()):
                raise Refused("a vGPU is enabled")
            made = [(SHARED_INSTANCES[name], {}) for name, count in step.instances for _number in range(count)]
            if sum(slices for slices, _taken in made) > 2:
                raise Refused("there are two slices")
            self.instances[step.gpu] = made
            return
        name = step.slot or next(name for name, slot in sorted(slots.items()) if slot.empty)
        if slots[name].holders:
            raise Refused(f"{name} is in use")
        if step.action == "disable":
            for _slices_of, taken in self.instances[step.gpu]:
                taken.pop(name, None)
            slots[name] = Slot(name)
            return
        assert step.action == "enable"
        assert step.after
        if not slots[name].empty:
            raise Refused(f"{name} has a vGPU")
        self._place(step.gpu, name, step.after)
        slots[name] = Slot(name, profile=step.after, wanted=step.after)

    def supply(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(one.profile for one in slots.values() if one.profile) for name, slots in self.slots.items()
        }
