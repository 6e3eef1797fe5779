"""The reference part of each page docs/playbook-*.md: how the playbook is run, its variables and its tags.

It is made from the comment at the top of the playbook and, where that says `ROLE_*`, from the role's argument spec. The
text before it is ours.

python -m tools.playbook_pages    # writes it anew
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[1]
PLAYBOOKS = CHECKOUT / "playbooks"
BEGIN = "<!-- made by tools/playbook_pages.py from the playbook and its roles -->"
ENTRY = re.compile(r"# +([a-z_]+(?:_\*)?) {2,}(\S.*)")
MORE = re.compile(r"# {10,}(\S.*)")
SEVERAL = re.compile(r"and ((?:[a-z_]+, )*[a-z_]+): (.*)")
MARKUP = re.compile(r"\b[OVMCEP]\((?:vgpu\.fleet\.)?(?:[a-z_]+#(?:module|plugin):)?([^)#]*)(?:#[a-z]+)?\)")


@dataclass
class Entry:
    """What the top of a playbook says of a variable, or of several that belong together."""

    names: list[str]
    text: str


def head(playbook: Path) -> list[str]:
    """The comment at the top."""
    lines = playbook.read_text().splitlines()[1:]
    return lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]


def entries(playbook: Path) -> list[Entry]:
    found: list[Entry] = []
    for line in head(playbook):
        if entry := ENTRY.fullmatch(line):
            found.append(Entry([entry[1]], entry[2]))
        elif found and (more := MORE.fullmatch(line)):
            found[-1].text += f" {more[1]}"
    for one in found:
        if several := SEVERAL.fullmatch(one.text):
            one.names += several[1].split(", ")
            one.text = several[2]
    return found


def options(role: str) -> dict[str, Any]:
    specs = yaml.safe_load((CHECKOUT / f"roles/{role}/meta/argument_specs.yml").read_text())
    return dict(specs["argument_specs"]["main"]["options"])


def reference(playbook: Path) -> str:
    return "\n".join(_reference(playbook))


def _reference(playbook: Path) -> Iterator[str]:
    commands = [line[1:].strip() for line in head(playbook) if line.startswith("#   ansible-playbook ")]
    yield from ["## Run the playbook", "", "```console", *(f"$ {command}" for command in commands), "```", ""]
    found = entries(playbook)
    yield from ["## Variables", "", "| variable | |", "|---|---|"]
    for one in found:
        names = ", ".join(f"`{name}`" for name in one.names)
        yield f"| {names} | {one.text} |"
    for one in found:
        for name in one.names:
            if name.endswith("_*"):
                yield from ["", *_of_role(name.removesuffix("_*"))]
    tags = [line.partition(":")[2].strip() for line in head(playbook) if line.startswith("# Tags:")]
    if tags:
        yield from ["", f"Tags: {tags[0]}."]
    yield ""


def _of_role(role: str) -> Iterator[str]:
    yield from [f"### Variables of the role {role}", "", "| variable | | default |", "|---|---|---|"]
    for name, option in options(role).items():
        said = option["description"]
        text = MARKUP.sub(r"`\1`", " ".join(said if isinstance(said, list) else [said]))
        default = f"`{json.dumps(option['default'])}`" if "default" in option else ""
        yield f"| `{name}` | {text.replace('|', chr(92) + '|')} | {default} |"


def page_of(playbook: Path) -> Path:
    return CHECKOUT / f"docs/playbook-{playbook.stem.replace('_', '-')}.md"


def with_reference(playbook: Path) -> str:
    """The page with its reference as playbook and roles have it now."""
    text = page_of(playbook).read_text().partition(BEGIN)[0]
    return f"{text}{BEGIN}\n\n{reference(playbook)}"


if __name__ == "__main__":
    for one in sorted(PLAYBOOKS.glob("*.yml")):
        page_of(one).write_text(with_reference(one))
