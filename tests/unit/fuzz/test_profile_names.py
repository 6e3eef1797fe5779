"""No text breaks the parser of profile names, and a name that it accepts keeps its meaning in every spelling."""

from __future__ import annotations

import contextlib
import random

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import read_size
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import (
    parse,
    parse_or_none,
    resource_name,
    vsphere_name,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile_resolver import ProfileResolver
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.unit.fuzz import examples
from tests.unit.fuzz.harness import count

BOARDS = [
    "A2",
    "A40",
    "A100",
    "L40S",
    "RTX 6000 Ada",
    "RTX PRO 6000 Blackwell DC",
    "H100XM",
    "T4",
    "A100X",
    "GH200 480GB",
    "x/y",
    "a.b",
]
BRANDS = [
    "",
    "NVIDIA ",
    "GRID ",
    "nvidia_",
    "grid_",
    "nvidia.com/NVIDIA_",
    "nvidia.com/GRID_",
    "Tesla ",
    " ",
    "NVIDIA  ",
    "\u00a0",
]
KNOWN = ProfileResolver(["NVIDIA A2-4Q", "NVIDIA A2-8Q", "NVIDIA A100-1-5C", "GRID A100X-4C", "NVIDIA RTX 6000 Ada-2Q"])
pieces = st.one_of(
    st.sampled_from(BOARDS),
    st.sampled_from(BRANDS),
    st.sampled_from(
        [
            "-",
            "_",
            " ",
            "1-",
            "4",
            "16",
            "0",
            "Q",
            "c",
            "ME",
            "NOME",
            "GFX",
            "b4",
            "9" * 5000,
            "\u0661",
            "²",
            "Ⅷ",
            "\x00",
            ".",
        ]
    ),
    st.text(max_size=3),
)
names = st.one_of(
    st.builds("".join, st.lists(pieces, max_size=6)),
    st.builds(
        "{}{}-{}{}{}".format,
        st.sampled_from(BRANDS),
        st.sampled_from(BOARDS),
        st.sampled_from(["", "", "1-", "3-", "10-"]),
        st.one_of(st.integers(0, 200), st.just("9" * 5000), st.just("08")),
        st.sampled_from(["Q", "q", "A", "B", "C", "B4", "CME", "QGFX", "Z", "", "CNOME"]),
    ),
    st.text(max_size=40),
)


PARTS = [
    *BOARDS,
    *BRANDS,
    *"-_ .0123456789QqABCcZ",
    "1-",
    "16",
    "ME",
    "NOME",
    "GFX",
    "B4",
    "9" * 5000,
    "\u0663",
    "²",
    "💥",
    "\x00",
]
# Names for each example: a million of them in `make fuzz`.
NAMES_AT_ONCE = 100


def check(name: str, *, resolve: bool) -> None:
    parsed = parse_or_none(name)
    count("profile names", "parsed" if parsed else "refused")
    resource_name(name), vsphere_name(name), read_size(name), catalog.find_board(name)
    if resolve:
        with contextlib.suppress(FleetError):
            KNOWN.resolve(name)
    if parsed:
        assert parse(vsphere_name(name)).key == parsed.key
        assert parse(parsed.short).key == parsed.key
        assert parsed.mib > 0


@settings(max_examples=examples.number(), suppress_health_check=list(HealthCheck), deadline=None)
@given(names)
def test_profile_names(name: str) -> None:
    check(name, resolve=True)


@settings(max_examples=examples.number(), suppress_health_check=list(HealthCheck), deadline=None)
@given(st.integers(0, 1 << 62))
def test_many_profile_names(seed: int) -> None:
    """Drawing each name with Hypothesis would take half an hour for a million names. A failure shows the name."""
    chance = random.Random(seed)
    for number in range(NAMES_AT_ONCE):
        brand, board = chance.choice(BRANDS), chance.choice(BOARDS)
        end = "".join(chance.choices(PARTS, k=chance.randrange(5)))
        proper = f"{brand}{board}-{chance.choice(['', '1-', '3-'])}{chance.randrange(100)}{chance.choice('ABCQq')}"
        check(proper if number % 3 == 0 else f"{brand}{board}-{end}", resolve=number % 20 == 0)
