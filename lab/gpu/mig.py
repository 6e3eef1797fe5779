"""MIG: how a GPU is divided into GPU instances, and which vGPU types they serve. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

FIRST_INSTANCE_ID = 11


@dataclass(frozen=True)
class MigProfile:
    """A GPU-instance profile; it may begin at these memory slices and covers so many from there."""

    id: int
    name: str
    compute: int
    starts: tuple[int, ...]
    memory: int
    media: bool = False
    # The memory in the name of its vGPU type, if the name of the instance has another.
    type_gib: int | None = None

    @property
    def attribute(self) -> str:
        """Return the end of the name, such as +gfx."""
        return self.name.partition("gb")[2]

    def serves(self, suffix: str, *, graphics: bool) -> bool:
        """Return whether vGPUs of a type can be on the instance: 1-5C on 1g.5gb, 1-5CME on 1g.5gb+me.

        On a board with graphics instances these serve all types with their slices, and other instances serve none.
        """
        if graphics:
            return self.attribute == "+gfx" and suffix.startswith(f"{self.compute}-")
        size = self.type_gib or int(self.name.split("g.")[1].split("gb")[0])
        return suffix == f"{self.compute}-{size}C" + ("ME" if self.media else "")


@dataclass(frozen=True)
class MigInstance:
    id: int
    profile: MigProfile
    start: int


class NoRoom(Exception):
    """Raised for an instance that does not fit, as nvidia-smi reports it."""


@dataclass(frozen=True)
class Geometry:
    profiles: tuple[MigProfile, ...]
    compute: int

    @property
    def graphics(self) -> bool:
        """Return whether only instances with graphics serve vGPUs, several of one size each."""
        return any(profile.attribute == "+gfx" for profile in self.profiles)

    def place(self, profile: MigProfile, instances: Sequence[MigInstance]) -> int:
        """Return the last free placement, so that small instances leave room for large ones."""
        taken = {instance.start + offset for instance in instances for offset in range(instance.profile.memory)}
        if sum(instance.profile.compute for instance in instances) + profile.compute > self.compute:
            raise NoRoom(profile.name)
        present = [instance.profile for instance in instances]
        if profile.media and any(other.media for other in present):
            raise NoRoom(profile.name)
        for one, others in ((profile, present), *((other, [profile]) for other in present)):
            # An instance with all media engines leaves none to others.
            if one.attribute == "+me.all" and any(other.attribute != "-me" for other in others):
                raise NoRoom(profile.name)
        for start in reversed(profile.starts):
            if taken.isdisjoint(range(start, start + profile.memory)):
                return start
        raise NoRoom(profile.name)

    def available(self, profile: MigProfile, instances: Sequence[MigInstance]) -> int:
        """Return how many more instances of the profile fit."""
        trial = list(instances)
        count = 0
        while True:
            try:
                trial.append(MigInstance(0, profile, self.place(profile, trial)))
            except NoRoom:
                return count
            count += 1


@dataclass
class MigCard:
    """The MIG side of a card: instances outlive SR-IOV, but not a reboot."""

    geometry: Geometry
    # The card of the recordings had MIG and kept the time-sliced types all the same.
    keeps_time_sliced_types: bool = False
    instances: list[MigInstance] = field(default_factory=list)

    def create(self, profile_id: int) -> None:
        profile = self.profile(profile_id)
        start = self.geometry.place(profile, self.instances)
        number = max((instance.id for instance in self.instances), default=FIRST_INSTANCE_ID - 1) + 1
        self.instances.append(MigInstance(number, profile, start))

    def destroy(self, number: int) -> None:
        self.instances = [instance for instance in self.instances if instance.id != number]

    def profile(self, profile_id: int) -> MigProfile:
        for profile in self.geometry.profiles:
            if profile.id == profile_id:
                return profile
        raise NoRoom(str(profile_id))


def _seven_slices(eighth: int, quarter: int, half: int, whole: int) -> Geometry:
    """A100 and H100: seven compute slices, eight memory slices, and what parts of the memory are called, in GB."""
    return Geometry(
        compute=7,
        profiles=(
            MigProfile(19, f"1g.{eighth}gb", 1, tuple(range(7)), 1),
            MigProfile(20, f"1g.{eighth}gb+me", 1, tuple(range(7)), 1, media=True),
            MigProfile(15, f"1g.{quarter}gb", 1, (0, 2, 4, 6), 2),
            MigProfile(14, f"2g.{quarter}gb", 2, (0, 2, 4), 2),
            MigProfile(9, f"3g.{half}gb", 3, (0, 4), 4),
            MigProfile(5, f"4g.{half}gb", 4, (0,), 4),
            MigProfile(0, f"7g.{whole}gb", 7, (0,), 8),
        ),
    )


def _gb200() -> Geometry:
    """Newer drivers name the instances after 186 GB, while the vGPU types keep the names of 189 GB."""
    geometry = _seven_slices(23, 47, 93, 186)
    types = {"23": 24, "47": 47, "93": 95, "186": 189}
    return replace(
        geometry,
        profiles=tuple(
            replace(profile, type_gib=types[profile.name.split("g.")[1].split("gb")[0]])
            for profile in geometry.profiles
        ),
    )


def _rtx_pro() -> Geometry:
    """RTX PRO 6000 Blackwell Server Edition, as `nvidia-smi mig -lgip` lists it."""
    one, two = (0, 1, 2, 3), (0, 2)
    return Geometry(
        compute=4,
        profiles=(
            MigProfile(14, "1g.24gb", 1, one, 1),
            MigProfile(21, "1g.24gb+me", 1, one, 1, media=True),
            MigProfile(47, "1g.24gb+gfx", 1, one, 1),
            MigProfile(65, "1g.24gb+me.all", 1, one, 1, media=True),
            MigProfile(67, "1g.24gb-me", 1, one, 1),
            MigProfile(5, "2g.48gb", 2, two, 2),
            MigProfile(35, "2g.48gb+gfx", 2, two, 2),
            MigProfile(64, "2g.48gb+me.all", 2, two, 2, media=True),
            MigProfile(66, "2g.48gb-me", 2, two, 2),
            MigProfile(0, "4g.96gb", 4, (0,), 4),
            MigProfile(32, "4g.96gb+gfx", 4, (0,), 4),
        ),
    )


GEOMETRIES = {
    "A30": Geometry(
        compute=4,
        profiles=(
            MigProfile(14, "1g.6gb", 1, (0, 1, 2, 3), 1),
            MigProfile(21, "1g.6gb+me", 1, (0, 1, 2, 3), 1, media=True),
            MigProfile(5, "2g.12gb", 2, (0, 2), 2),
            MigProfile(6, "2g.12gb+me", 2, (0, 2), 2, media=True),
            MigProfile(0, "4g.24gb", 4, (0,), 4),
        ),
    ),
    "A100": _seven_slices(5, 10, 20, 40),
    "H100": _seven_slices(10, 20, 40, 80),
    "H100L": _seven_slices(12, 24, 47, 94),
    "GB200": _gb200(),
    "RTX Pro 6000 Blackwell DC": _rtx_pro(),
}


class _Budget(Geometry):
    """The nvidia-smi of the recordings: seven slices, wherever they are."""

    def place(self, profile: MigProfile, instances: Sequence[MigInstance]) -> int:
        if sum(instance.profile.compute for instance in instances) + profile.compute > self.compute:
            raise NoRoom(profile.name)
        return 0

    def available(self, profile: MigProfile, instances: Sequence[MigInstance]) -> int:
        return (self.compute - sum(instance.profile.compute for instance in instances)) // profile.compute


def recorded_card() -> MigCard:
    wanted = (19, 14, 9, 5, 0)
    profiles = {profile.id: profile for profile in GEOMETRIES["A100"].profiles}
    return MigCard(_Budget(tuple(profiles[number] for number in wanted), 7), keeps_time_sliced_types=True)
