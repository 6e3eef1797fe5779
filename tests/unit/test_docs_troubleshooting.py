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


def test_every_code_that_a_task_can_end_with_is_explained_somewhere() -> None:
    pages = "\n".join(file.read_text() for file in CHECKOUT.glob("docs/*.md"))
    plugins = "\n".join(file.read_text() for file in CHECKOUT.glob("plugins/**/*.py"))
    codes = set(re.findall(r'code = "([a-z_]+)"', plugins)) | set(re.findall(r'Reading\(\s*"([a-z_]+)"', plugins))
    assert len(codes) > 60
    # That of the base class, which is never raised itself.
    assert {code for code in codes if f"`{code}`" not in pages} == {"fleet_error"}
