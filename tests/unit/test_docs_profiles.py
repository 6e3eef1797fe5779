"""The page on profiles says what the catalogue says."""

from __future__ import annotations

from tools import profile_tables


def test_the_tables_of_the_page_are_those_of_the_catalogue() -> None:
    page = profile_tables.PAGE.read_text()
    assert page == profile_tables.with_tables(page), "tools/profile_tables.py writes them anew"


def test_time_sliced_and_mig_stand_side_by_side_by_memory() -> None:
    rows = profile_tables.tables()["both"].splitlines()
    a100 = rows[rows.index("### A100, A100X") :]
    assert "| 5 GiB | `5C` | 8 | `1-5C` | 7 | 1g.5gb |" in a100
    assert "|  |  |  | `1-5CME` | 1 | 1g.5gb+me |" in a100
    assert "| 4 GiB | `4C` | 10 |  |  |  |" in a100


def test_the_cuts_of_an_a30_are_complete() -> None:
    cuts = profile_tables.tables()["cuts"].split("### ")[1]
    found = [row.split(" | ")[0].removeprefix("| ") for row in cuts.splitlines() if " of 4 | " in row]
    assert found == ["1 x 4g.24gb", "2 x 2g.12gb", "1 x 2g.12gb, 2 x 1g.6gb", "4 x 1g.6gb"]
