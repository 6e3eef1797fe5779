"""Fixtures of the conformance suite: the tests say by them what they begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api import VMS, Json
from tests.integration.lab_harvester import stories
from tests.integration.lab_harvester.beginnings import four_vgpus, one_card_split
from tests.integration.lab_harvester.machines import machine
from tests.integration.labs import Lab

STORIES = (
    "life_of_a_vgpu",
    "card_filled",
    "rebooted",
    "enabled_again",
    "card_taken_away",
    "mixed",
    "vm_life",
    "vm_lab",
)
BEGINNINGS = ("lab", "sriov_lab", "vgpu_lab", *STORIES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the same beginning follow each other: starting over is what takes the time."""
    places = [place for place, item in enumerate(items) if Path(__file__).parent in item.path.parents]
    ours = sorted((items[place] for place in places), key=_beginning)
    for place, item in zip(places, ours, strict=True):
        items[place] = item


def _beginning(item: pytest.Item) -> int:
    fixtures = getattr(item, "fixturenames", ())
    return next((place for place, name in enumerate(BEGINNINGS) if name in fixtures), len(BEGINNINGS))


@pytest.fixture
def sriov_lab(labs: Callable[[str], Lab], era: str) -> Lab:
    """SR-IOV is on at gpu-a: sixteen vGPUs without a type. Once per era."""
    return labs(era).begin(arranged=one_card_split)


@pytest.fixture
def vgpu_lab(labs: Callable[[str], Lab], era: str) -> Lab:
    """SR-IOV is on at both nodes; two vGPUs are 4Q on gpu-a, one 4Q and one 4A on gpu-b. Once per era."""
    return labs(era).begin(arranged=four_vgpus)


@pytest.fixture
def life_of_a_vgpu(labs: Callable[[str], Lab], era: str) -> stories.Story:
    """Before, split, configured, cleared, after, scanned. Once per era, as all stories."""
    return labs(era).begin(arranged=stories.first_steps).story["life_of_a_vgpu"]


@pytest.fixture
def card_filled(labs: Callable[[str], Lab], era: str) -> stories.Story:
    """Empty, half, full, half again, empty again."""
    return labs(era).begin(arranged=stories.first_steps).story["card_filled"]


@pytest.fixture
def rebooted(labs: Callable[[str], Lab], era: str) -> stories.Story:
    """Before, changed, down, functions are back, after; on gpu-a."""
    return labs(era).begin(arranged=stories.long_run).story["rebooted"]


@pytest.fixture
def enabled_again(labs: Callable[[str], Lab], era: str) -> stories.Story:
    """Again, process down, process up."""
    return labs(era).begin(arranged=stories.long_run).story["enabled_again"]


@pytest.fixture
def card_taken_away(labs: Callable[[str], Lab], era: str) -> stories.Story:
    """At once, after; on gpu-b."""
    return labs(era).begin(arranged=stories.long_run).story["card_taken_away"]


@pytest.fixture
def stored_vm() -> Callable[..., AbstractContextManager[Json]]:
    """A VM that exists while the block runs: `with stored_vm(lab, "user", ...) as vm`."""

    @contextmanager
    def store(lab: Lab, name: str, **options: Any) -> Iterator[Json]:
        vm = lab.make(VMS, machine(name, **options))
        lab.control.settle()
        try:
            yield vm
        finally:
            assert lab.api.delete(f"{VMS}/{name}").status == 200
            lab.control.settle()

    return store
