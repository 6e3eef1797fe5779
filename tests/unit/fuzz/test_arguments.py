"""No arguments make a module end with a traceback, and none that it refuses make it write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.unit.fuzz import examples
from tests.unit.fuzz.arguments import MODULES, sets
from tests.unit.fuzz.harness import count, run
from tests.unit.fuzz.kubernetes_world import World, everything
from tests.unit.fuzz.vcenter_world import vcenter

WORLD = everything()
VCENTER = vcenter()


@pytest.mark.parametrize("module", MODULES)
def test_arguments(module: str) -> None:
    @settings(max_examples=examples.number(), suppress_health_check=list(HealthCheck), deadline=None)
    @given(sets(module), st.booleans(), st.booleans())
    def search(arguments: dict[str, Any], check_mode: bool, writable: bool) -> None:
        world = World({path: list(items) for path, items in WORLD.items()}, writable=writable)
        VCENTER.writes.clear()
        count(module, run(module, arguments, world, VCENTER, check_mode=check_mode).kind)

    search()
