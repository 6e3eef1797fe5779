"""Whether everything that was written is one's own."""

from __future__ import annotations

from lab.harvester.journal import Journal


def noted(*revisions: int) -> Journal:
    journal = Journal()
    for revision in revisions:
        journal.note(f"/path/{revision}", {"metadata": {"resourceVersion": str(revision)}})
    return journal


def test_own_writes_without_a_gap_are_all_there_is():
    assert noted(5, 6, 7).complete(4, 7) == {5: "/path/5", 6: "/path/6", 7: "/path/7"}


def test_a_gap_is_somebody_else():
    assert noted(5, 7).complete(4, 7) is None
    assert noted(5, 6).complete(4, 7) is None


def test_what_came_later_is_not_counted_and_not_forgotten():
    journal = noted(5, 6, 8)
    assert journal.complete(4, 6) == {5: "/path/5", 6: "/path/6"}
    assert journal.complete(6, 8) is None
    assert journal.complete(7, 8) == {8: "/path/8"}


def test_a_write_that_changed_nothing_or_left_no_object_is_none():
    journal = noted(3)
    journal.note("/gone", {"kind": "Status", "metadata": {}})
    assert journal.complete(4, 5) is None
