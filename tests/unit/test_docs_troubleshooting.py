"""The symptoms on the page are those that the collection tells."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_every_code_on_the_page_is_one_that_a_task_can_end_with() -> None:
    page = (CHECKOUT / "docs/troubleshooting.md").read_text()
    plugins = "\n".join(file.read_text() for file in CHECKOUT.glob("plugins/**/*.py"))
    seen = [row.split(" | ")[0] for row in page.splitlines() if row.startswith("| ")]
    codes = {code for cell in seen for code in re.findall(r"`([a-z]+(?:_[a-z]+)*)`", cell)}
    assert len(codes) > 20
    assert {code for code in codes if f'"{code}"' not in plugins} == set()
