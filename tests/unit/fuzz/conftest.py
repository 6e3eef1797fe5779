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
    from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session

    from tests.unit.fuzz.harness import connected

    with connected(), pytest.MonkeyPatch.context() as patch:
        # The vCenter in memory has no HTTP. Without a response to shorten, modules read through pyVmomi.
        patch.setattr(Session, "raw", lambda *_arguments: (0, b""))
        yield
