"""Recorded changes over time against ours."""

from __future__ import annotations

from typing import Any

import pytest

from lab.replay.compare.transition import Change, align, closeness_of, out_of_order, spans


def aligned(
    recorded: list[tuple[float, Any]], ours: list[tuple[float, Any]], *, end: float = 30, observed_from: float = 0
) -> bool:
    return (
        align(spans(recorded, end), spans(ours, end, observed_from), lambda expected, actual: bool(expected == actual))
        is not None
    )


def test_the_same_values_in_the_same_order_agree_whatever_their_times() -> None:
    assert aligned([(0.0, "a"), (4.4, "b"), (9.5, "c")], [(0.0, "a"), (0.2, "b"), (5.0, "c")])


def test_another_order_disagrees() -> None:
    assert not aligned([(0.0, "a"), (4.4, "b"), (9.5, "c")], [(0.0, "a"), (4.0, "c"), (9.0, "b")])


def test_another_last_value_disagrees() -> None:
    assert not aligned([(0.0, "a"), (4.0, "b")], [(0.0, "a")])
    assert not aligned([(0.0, "a")], [(0.0, "a"), (4.0, "b")])


def test_polling_may_have_missed_a_short_value_of_ours_but_not_a_long_one() -> None:
    assert aligned([(0.0, "a"), (5.0, "c")], [(0.0, "a"), (5.0, "b"), (7.0, "c")])
    assert not aligned([(0.0, "a"), (5.0, "c")], [(0.0, "a"), (5.0, "b"), (15.0, "c")])


def test_a_glimpse_in_the_recording_may_be_missing_in_ours() -> None:
    assert aligned([(0.0, False), (4.2, True), (4.7, False)], [(0.0, False)])
    assert not aligned([(0.0, False), (4.2, True), (14.7, False)], [(0.0, False)])


def test_what_was_there_before_one_looked_may_have_been_seen_or_not() -> None:
    ours = [(0.0, "before"), (9.0, "a"), (12.0, "b")]
    assert aligned([(0.0, "a"), (4.0, "b")], ours, observed_from=9.5)
    assert aligned([(0.0, "before"), (1.0, "a"), (4.0, "b")], ours, observed_from=9.5)


def test_amounts_and_lists_may_be_seen_half_way() -> None:
    assert aligned([(0.0, None), (4.7, "2"), (6.0, "3"), (8.0, "4")], [(0.0, None), (4.0, "4")])
    assert aligned([(0.0, []), (1.0, ["11"]), (3.0, ["11", "12"])], [(0.0, []), (1.0, ["11", "12"])])
    assert not aligned([(0.0, "0"), (4.0, "5"), (8.0, "4")], [(0.0, "0"), (4.0, "4")])


@pytest.mark.parametrize(
    ("ours", "wrong"), [((3.0, 8.0), False), ((3.0, 3.0), False), ((3.3, 3.0), False), ((8.0, 3.0), True)]
)
def test_effects_far_apart_keep_their_order(ours: tuple[float, float], wrong: bool) -> None:
    changes = [Change("allocatable", "1", 4.4, ours[0]), Change("claim", "no", 9.5, ours[1])]
    assert bool(out_of_order(changes, closeness_of([0.0, 4.4, 5.1, 9.5]))) is wrong


def test_effects_that_polling_could_not_tell_apart_have_no_order() -> None:
    changes = [Change("a", False, 5.5, 9.0), Change("b", False, 6.0, 3.0)]
    assert not out_of_order(changes, closeness_of([0.0, 5.5, 6.0]))
