"""docs/architecture.md names rooms and files that exist, and every room of the plugins."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "architecture.md").read_text()
ROOMS = PAGE.split("## Rooms")[1].split("\n## ")[0]
PLUGINS = [
    PurePosixPath(path).relative_to("plugins")
    for path in subprocess.run(
        ["git", "ls-files", "plugins"], cwd=CHECKOUT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    if (CHECKOUT / path).exists()
]
FILE = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py)`")


def test_every_file_that_the_page_names_exists() -> None:
    paths = [str(path) for path in PLUGINS]
    named = set(FILE.findall(ROOMS.split("The way of one task")[1]))
    missing = sorted(name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in paths))
    assert len(named) > 40
    assert not missing


def test_every_room_of_the_plugins_is_in_the_table() -> None:
    table = ROOMS.split("The way of one task")[0]
    rooms = {path.parts[:2] if path.parts[0].endswith("_utils") else path.parts[:1] for path in PLUGINS}
    folders = {"/".join(room) for room in rooms if not room[-1].endswith(".py")} - {"doc_fragments"}
    unnamed = sorted(folder for folder in folders if f"`{folder}/`" not in table)
    assert not unnamed


def test_every_folder_of_a_platform_is_named_in_its_row() -> None:
    for platform in ("harvester", "vsphere"):
        (row,) = [line for line in ROOMS.splitlines() if line.startswith(f"| `module_utils/{platform}/`")]
        folders = {path.parts[2] for path in PLUGINS if path.parts[:2] == ("module_utils", platform) and path.parts[3:]}
        assert {folder for folder in folders if f"`{folder}`" not in row} == set()
