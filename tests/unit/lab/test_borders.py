"""The rooms of lab/ and who may import whom. docs/architecture.md shows the same as a table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
MOST_FILES = 12
# The entry point is in the room that every other room imports.
FILES = {
    ".".join(path.relative_to(CHECKOUT).with_suffix("").parts): path
    for path in (CHECKOUT / "lab").rglob("*.py")
    if path.name != "__main__.py"
}


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, also inside functions, except those that only type checkers read."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    unread = {id(node) for block in ast.walk(tree) if _is_for_type_checkers(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (_module(f"{node.module}.{alias.name}", str(node.module)) for alias in node.names)


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _module(name: str, package: str) -> str:
    return next((found for found in (name, f"{name}.__init__") if found in FILES), package)


def room_of(module: str) -> str:
    return module.rpartition(".")[0]


@cache
def imported_rooms() -> dict[str, set[str]]:
    rooms: dict[str, set[str]] = {room_of(name): set() for name in FILES}
    for name, path in FILES.items():
        rooms[room_of(name)] |= {room_of(module) for module in imports(path) if module in FILES} - {room_of(name)}
    return rooms


def reachable(room: str) -> set[str]:
    reached: set[str] = set()
    left = [room]
    while left:
        new = imported_rooms()[left.pop()] - reached
        reached |= new
        left += new
    return reached


@pytest.mark.parametrize("room", sorted(imported_rooms()))
def test_rooms_do_not_import_in_circles(room: str) -> None:
    assert room not in reachable(room)


def test_the_collection_does_not_import_the_lab() -> None:
    plugins = (CHECKOUT / "plugins").rglob("*.py")
    assert [path.name for path in plugins if {name.split(".")[0] for name in imports(path)} & {"lab", "tests"}] == []


def test_every_room_is_described_in_the_architecture() -> None:
    page = (CHECKOUT / "docs/architecture.md").read_text()
    top = {room for room in imported_rooms() if room.count(".") == 1}
    assert {room for room in top if f"`{room.replace('.', '/')}/`" not in page} == set()


def test_no_folder_holds_more_than_a_dozen_files() -> None:
    folders = [folder for root in ("lab", "tests/unit/lab") for folder in _folders(CHECKOUT / root)]
    sizes = {str(folder.relative_to(CHECKOUT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MOST_FILES} == {}


def test_unit_tests_are_in_the_folder_of_what_they_test() -> None:
    tests = CHECKOUT / "tests/unit/lab"
    folders = {folder.relative_to(tests) for folder in _folders(tests)}
    assert {folder for folder in folders if not (CHECKOUT / "lab" / folder).is_dir()} == set()


def _folders(root: Path) -> set[Path]:
    return {path.parent for path in root.rglob("*.py")}
