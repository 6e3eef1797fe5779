"""Show the counts of the fuzz tests at the end of a long run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: Any) -> None:
    # Only pytest-ansible, which starts after this file was read, makes the collection importable.
    from tests.unit.fuzz.harness import OUTCOMES, report

    if OUTCOMES and os.environ.get("HYPOTHESIS_PROFILE") == "long":
        terminalreporter.section("fuzz counts")
        for line in report():
            terminalreporter.write_line(line)


@pytest.fixture(scope="module", autouse=True)
def _worlds() -> Iterator[None]:
    from tests.unit.fuzz.harness import connected

    with connected():
        yield
