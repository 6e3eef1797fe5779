"""When the progress of a wait is worth a line."""

from __future__ import annotations

import io

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils import progress
from hypothesis import given, strategies as st


@pytest.fixture
def stream():
    stream = io.StringIO()
    progress.open_stream(stream)
    yield stream
    progress.open_stream(None)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_short_wait_is_not_commented(stream):
    clock = Clock()
    reporter = progress.Reporter(clock)
    clock.now += progress.FIRST_SECONDS - 0.5
    reporter.update("node n1: 2 not ready yet", 60)
    assert stream.getvalue() == ""


def test_a_line_comes_when_something_changes_and_at_least_every_fifteen_seconds(stream):
    clock = Clock()
    reporter = progress.Reporter(clock)
    for second in range(60):
        clock.now = 100.0 + second
        reporter.update("2 not ready" if second < 20 else "1 not ready", 300 - second)
    assert stream.getvalue().splitlines() == [
        "2 not ready (4:57 min left)",
        "2 not ready (4:42 min left)",
        "1 not ready (4:39 min left)",
        "1 not ready (4:24 min left)",
        "1 not ready (4:09 min left)",
    ]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.1, 2)), min_size=1, max_size=100))
def test_nobody_waits_longer_than_the_interval_for_a_line(states):
    stream, clock = io.StringIO(), Clock()
    progress.open_stream(stream)
    try:
        reporter = progress.Reporter(clock)
        lines, silence = 0, 0.0
        for text, seconds in states:
            clock.now += seconds
            silence += seconds
            reporter.update(text, 10)
            if stream.getvalue().count("\n") > lines:
                lines, silence = stream.getvalue().count("\n"), 0.0
            assert silence < progress.SILENCE_SECONDS
    finally:
        progress.open_stream(None)


def test_a_stream_that_nobody_reads_any_more_does_not_end_the_task(stream):
    stream.close()
    clock = Clock()
    reporter = progress.Reporter(clock)
    clock.now += 10
    reporter.update("2 not ready", 60)
    assert not progress.is_shown()


def test_a_line_stays_one_line(stream):
    clock = Clock()
    reporter = progress.Reporter(clock)
    clock.now += 10
    reporter.update("pod x: failed\nwith two lines", 60)
    assert stream.getvalue() == "pod x: failed with two lines (1:00 min left)\n"
