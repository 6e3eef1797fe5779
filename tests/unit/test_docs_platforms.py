"""The pages of docs/platforms are numbered, state their evidence, and contain every section that is cited anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
FOLDERS = ("changelogs", "demo", "docs", "extensions", "lab", "playbooks", "plugins", "roles", "tests", "tools")
SUFFIXES = {".go", ".md", ".py", ".sh", ".yaml", ".yml"}
PAGES = {page.name: page for page in sorted(CHECKOUT.glob("docs/platforms/*.md")) if page.name != "index.md"}

HEADING = re.compile(r"^(#{2,}) (?:(\d+)\. |(\d+\.\d+) )?(.+)$")
EVIDENCE = re.compile(r"^\*Evidence: (.+)\. Versions: (.+)\.\*$")
NUMBER = r"\d+(?:\.\d+)*"
CITATION = re.compile(rf"\b({'|'.join(map(re.escape, PAGES))}) ({NUMBER}(?:(?:, | and | to ){NUMBER})*)")
# A citation may continue on the next line of a comment.
LINE_BREAK = re.compile(r"\n\s*(?:#|//|\*)?\s*")
WITHOUT_PAGE = re.compile(r"\bfacts?(?:/\w+\.md)?,? (?:sections? )?\d|\bfacts/\w+\.md", re.IGNORECASE)


def headings(page: str) -> list[tuple[str, str]]:
    """Return the number ("" if there is none) and the text below each heading of a page."""
    sections: list[tuple[str, str]] = []
    for line in PAGES[page].read_text().splitlines():
        if match := HEADING.match(line):
            sections.append((match[2] or match[3] or "", ""))
        elif sections:
            number, text = sections.pop()
            sections.append((number, text + line + "\n"))
    return sections


def numbers(page: str) -> list[str]:
    return [number for number, _text in headings(page)]


def texts() -> Iterator[tuple[str, str]]:
    """Return the path and the text, without line breaks, of every file that may cite a section."""
    files = [CHECKOUT / "README.md", *(file for folder in FOLDERS for file in (CHECKOUT / folder).rglob("*"))]
    for file in files:
        if file.suffix in SUFFIXES and file.is_file():
            yield str(file.relative_to(CHECKOUT)), LINE_BREAK.sub(" ", file.read_text())


def cited(text: str) -> list[tuple[str, str]]:
    return [(page, number) for page, listed in CITATION.findall(text) for number in re.findall(NUMBER, listed)]


@pytest.mark.parametrize("page", PAGES)
def test_chapters_and_sections_are_numbered_without_gaps(page: str) -> None:
    expected: list[str] = []
    chapter = section = 0
    for number in numbers(page):
        if "." in number:
            section += 1
            expected.append(f"{chapter}.{section}")
        else:
            chapter, section = chapter + 1, 0
            expected.append(str(chapter))
    assert chapter > 1
    assert numbers(page) == expected


@pytest.mark.parametrize("page", PAGES)
def test_every_section_starts_with_its_evidence_and_versions(page: str) -> None:
    words = re.findall(r"^\| ([a-z]+) \| ", (CHECKOUT / "docs/platforms/index.md").read_text(), re.MULTILINE)
    assert "recorded" in words
    for number, text in headings(page):
        if not text.strip() and f"{number}.1" in numbers(page):
            continue
        match = EVIDENCE.match(text.strip().splitlines()[0])
        assert match, f"{page} {number} does not state its evidence"
        assert any(re.search(rf"\b{word}\b", match[1]) for word in words), f"{page} {number}: {match[1]}"


def test_every_cited_section_exists() -> None:
    known = {page: set(numbers(page)) for page in PAGES}
    citations = [(path, page, number) for path, text in texts() for page, number in cited(text)]
    assert len(citations) > 100
    assert [one for one in citations if one[2] not in known[one[1]]] == []


def test_nothing_cites_a_number_without_a_page() -> None:
    assert [(path, match[0]) for path, text in texts() for match in WITHOUT_PAGE.finditer(text)] == []


def test_lists_of_sections_and_citations_across_lines_are_found() -> None:
    page = "harvester.md"
    assert cited(f"({page} 6.5, 9.1 and 10)") == [(page, "6.5"), (page, "9.1"), (page, "10")]
    assert cited(LINE_BREAK.sub(" ", f"// see {page}\n// 4.2.")) == [(page, "4.2")]
