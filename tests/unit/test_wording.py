"""Texts for users avoid phrases that a reader has to translate. docs/glossary.md has the names of things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
FOLDERS = ("roles", "playbooks", "extensions", "awx", "plugins", "docs")
SUFFIXES = (".yml", ".py", ".md")
PHRASES = re.compile(
    r"""(?ix)
    \bthe\ most\ seconds\b                    # maximum time, in seconds
    | \b(?:is|are|be|was)\ (?:told|had)\b     # report, exist, get
    | \bshall\b
    | \bbesides\b
    | \bsays\ otherwise\b                     # overrides, defaults to
    | \b(?:take[sn]?|given?)\ back\b          # remove, release
    | \bas\ it\ is\ meant\b
    | (?:short_description:\ |\"\"\")(?:what|which|whether|who|how|where|why)\b
    """
)


def files() -> list[Path]:
    found = [file for folder in FOLDERS for file in (CHECKOUT / folder).rglob("*") if file.suffix in SUFFIXES]
    return sorted([*found, *CHECKOUT.glob("*.md")])


@pytest.mark.parametrize("file", files(), ids=lambda file: file.relative_to(CHECKOUT).as_posix())
def test_a_text_has_no_phrase_that_needs_a_translation(file: Path) -> None:
    lines = enumerate(file.read_text().splitlines(), 1)
    assert [(number, line.strip()) for number, line in lines if PHRASES.search(line)] == []
