"""No object that an API can return makes a module end with a traceback: fields that are missing, null, huge or odd."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.unit.fuzz import examples
from tests.unit.fuzz.arguments import ALWAYS, MODULES, VCENTER as LOGIN
from tests.unit.fuzz.harness import count, run
from tests.unit.fuzz.kubernetes_world import World, everything
from tests.unit.fuzz.tasks import TASKS
from tests.unit.fuzz.vcenter_world import vcenter

WORLD = everything()
VCENTER = vcenter()
PATHS = sorted(WORLD)
# What must be there: every object has metadata with a name, and a namespace if it is namespaced.
KEPT = {"metadata", "name", "namespace"}
TEXTS = [
    "",
    " ",
    "x" * 5000,
    "日本語",
    "\u202e",
    "💥",
    "1k",
    "0",
    "-1",
    "1e3",
    "9" * 5000,
    "A2-" + "9" * 5000 + "Q",
    "null",
    "{",
    "[]",
    "\n",
]
NUMBERS = [0, -1, 1 << 31, 1 << 63, 10**30]
QUANTITIES = ["1k", "1", "0", "-1", "2500m", "1Gi", "1e3", "", "many", "9" * 400, "1.5", "+2", "1E"]
KUBERNETES = [module for module in MODULES if not module.startswith("vsphere")]


def places(item: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places in an object that may look different."""
    found = []
    entries = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, value in entries:
        here = (*path, key)
        if not (path in ((), ("metadata",)) and key in KEPT):
            found.append(here)
        found.extend(places(value, here))
    return found


def changed(item: Any, path: tuple[Any, ...], how: str, text: str, number: int, quantity: str) -> Any:
    """Return a copy of an object with one place changed, in a way that keeps its type."""
    made = copy.deepcopy(item)
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    key, value = path[-1], inside[path[-1]]
    if how == "remove":
        del inside[key]
    elif how == "null":
        inside[key] = None
    elif how == "more" and isinstance(inside, dict):
        inside["unknownField"] = {"a": [None, 1]}
    elif isinstance(value, bool):
        inside[key] = not value
    elif isinstance(value, int):
        inside[key] = number
    elif isinstance(value, str):
        inside[key] = quantity if {"allocatable", "capacity", "limits", "requests"} & set(path) else text
    elif isinstance(value, list):
        inside[key] = [] if how == "empty" else value * 40
    elif isinstance(value, dict):
        inside[key] = {} if how == "empty" else {**value, text: next(iter(value.values()), text)}
    return made


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Return a world in which one to four places look odd."""
    made = {path: list(items) for path, items in WORLD.items()}
    for _time in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(PATHS))
        if not made[path]:
            continue
        number = draw(st.integers(0, len(made[path]) - 1))
        item = made[path][number]
        possible = places(item)
        if not possible:
            continue
        made[path][number] = changed(
            item,
            draw(st.sampled_from(possible)),
            draw(st.sampled_from(["remove", "null", "odd", "odd", "empty", "more"])),
            draw(st.sampled_from(TEXTS)),
            draw(st.sampled_from(NUMBERS)),
            draw(st.sampled_from(QUANTITIES)),
        )
    return made


@pytest.mark.parametrize("module", KUBERNETES)
def test_objects(module: str) -> None:
    @settings(max_examples=examples.number(0.1), suppress_health_check=list(HealthCheck), deadline=None)
    @given(worlds(), st.sampled_from(TASKS[module]), st.booleans(), st.booleans())
    def search(objects: dict[str, Any], task: dict[str, Any], check_mode: bool, writable: bool) -> None:
        world = World(objects, writable=writable)
        VCENTER.writes.clear()
        connection = {**ALWAYS, **(LOGIN if module == "vgpu_availability" else {})}
        outcome = run(module, {**task, **connection}, world, VCENTER, check_mode=check_mode)
        count(f"odd objects, {module}", outcome.kind)

    search()
