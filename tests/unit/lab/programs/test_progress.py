"""How far a compilation is, and how it is shown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from lab.programs.progress import PLAIN_SECONDS, Line, Step, packages_in, state

# The second takes nine tenths of the time for a third of the packages.
STEPS = [Step("small", 200, 10.0), Step("large", 100, 90.0)]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("packages", "fraction", "step"),
    [(0, 0.0, "small"), (100, 0.05, "small"), (200, 0.1, "large"), (250, 0.55, "large"), (300, 0.99, "large")],
)
def test_a_programs_share_is_its_measured_time_not_its_number_of_packages(packages, fraction, step):
    found = state(STEPS, packages, 30.0, jobs=2)
    assert found.fraction == pytest.approx(fraction)
    assert found.step == step


def test_at_first_the_estimate_is_the_measured_time_on_as_many_cores():
    assert state(STEPS, 0, 0.0, jobs=2).remaining == pytest.approx(50)
    assert state(STEPS, 0, 0.0, jobs=1).remaining == pytest.approx(100)


def test_later_it_is_this_machines_own_pace():
    """Four times slower than measured: at the middle as much is left as has passed."""
    found = state(STEPS, 244, 200.0, jobs=1)
    assert found.fraction == pytest.approx(0.5, abs=0.01)
    assert found.remaining == pytest.approx(200, rel=0.2)


def test_it_never_says_that_it_is_done_before_it_is():
    found = state(STEPS, 5000, 100.0, jobs=2)
    assert found.fraction < 1
    assert str(found) == "99%, at large, 1:40 min so far, less than a minute left"


def test_the_estimate_is_in_minutes():
    assert str(state(STEPS, 0, 0.0, jobs=1)).endswith("0:00 min so far, about 2 min left")


def test_packages_are_counted_and_nothing_else_that_go_says(tmp_path: Path):
    log = tmp_path / "log"
    assert packages_in(log) == 0
    log.write_text(
        "go: downloading k8s.io/api v0.34.4\nruntime\nk8s.io/api/core/v1\n# k8s.io/api\na.go:1:2: undefined: x\n"
    )
    assert packages_in(log) == 2


def test_on_a_terminal_one_line_is_renewed():
    out = io.StringIO()
    line = Line("Compiling", out, Clock(), live=True)
    for text in ("1%", "2%"):
        line.show(text)
    line.close("done.")
    assert out.getvalue() == "\r\x1b[KCompiling: 1%\r\x1b[KCompiling: 2%\r\x1b[KCompiling: done.\n"


def test_elsewhere_there_is_a_line_now_and_then():
    out, clock = io.StringIO(), Clock()
    line = Line("Compiling", out, clock, live=False)
    for second in range(2 * int(PLAIN_SECONDS) + 1):
        clock.now = float(second)
        line.show(f"{second}s")
    line.close()
    assert out.getvalue() == f"Compiling: {PLAIN_SECONDS:.0f}s\nCompiling: {2 * PLAIN_SECONDS:.0f}s\n"
