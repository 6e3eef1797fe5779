"""The rooms of plugins/ and who may import whom. docs/architecture.md shows the same as a table."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PLUGINS = CHECKOUT / "plugins"
COLLECTION = "ansible_collections.vgpu.fleet.plugins"
MOST_FILES = 12

MODEL = ("module_utils.fleet", "module_utils.planning", "module_utils.availability")
# What a room may import of the collection, beside itself. The longest name that fits decides.
MAY_IMPORT = {
    "module_utils.errors": (),
    "module_utils.progress": (),
    "module_utils.fleet": ("module_utils.errors",),
    "module_utils.planning": ("module_utils.errors", "module_utils.fleet"),
    "module_utils.availability": ("module_utils.errors", "module_utils.fleet", "module_utils.planning"),
    "module_utils.kube": ("module_utils.errors", "module_utils.progress", "module_utils.redaction"),
    "module_utils.harvester": (*MODEL, "module_utils.errors", "module_utils.kube", "module_utils.progress"),
    "module_utils.rancher": (*MODEL, "module_utils.errors", "module_utils.kube", "module_utils.harvester"),
    "module_utils.vsphere": (*MODEL, "module_utils.errors", "module_utils.progress"),
    "module_utils.capv": ("module_utils.errors", "module_utils.kube"),
    "module_utils": ("module_utils",),
    "plugin_utils": ("module_utils",),
    "modules": ("module_utils",),
    "filter": ("module_utils", "plugin_utils"),
    "inventory": ("module_utils", "plugin_utils"),
    "action": ("module_utils", "plugin_utils", "modules"),
    "doc_fragments": (),
}
# Rooms that compute and do nothing else: no SDK, no Ansible, no request.
PURE = (*MODEL, "module_utils.errors", "module_utils.harvester.decide", "module_utils.vsphere.vm.decide")
STANDARD_LIBRARY = frozenset(sys.stdlib_module_names)
# Rooms that write. Modules that only read do not carry them.
WRITING = (
    "module_utils.harvester.apply.runner",
    "module_utils.harvester.apply.journal",
    "module_utils.harvester.addon.apply",
    "module_utils.harvester.vm.apply",
    "module_utils.harvester.repair.apply",
    "module_utils.harvester.reprofile",
    "module_utils.rancher.apply",
    "module_utils.capv.run",
    "module_utils.vsphere.host.apply",
    "module_utils.vsphere.host.apply_passthrough",
    "module_utils.vsphere.vm.apply",
    "module_utils.vsphere.vm.clone",
)
READERS = (
    "modules.capv_info",
    "modules.harvester_gpu_info",
    "modules.vgpu_availability",
    "modules.vsphere_gpu_info",
    "modules.vsphere_template_check",
)

# Files and lines that Ansible packs for a module, the module itself included, at most. Every packed run compiles them.
# A module that is not listed here carries nothing of the collection.
MOST_PACKED = {
    "modules.capv_cluster": (23, 4_300),
    "modules.capv_info": (19, 3_400),
    "modules.harvester_addon": (29, 6_000),
    "modules.harvester_gpu_info": (29, 5_500),
    "modules.harvester_mig": (50, 10_900),
    "modules.harvester_repair": (36, 7_200),
    "modules.harvester_reprofile": (60, 14_600),
    "modules.harvester_sriov_gpu": (49, 10_200),
    "modules.harvester_vgpu": (59, 13_150),
    "modules.harvester_vgpu_vm": (36, 7_900),
    "modules.harvester_vm_check": (8, 1_500),
    "modules.kubernetes_session": (9, 1_500),
    "modules.rancher_gpu_pool": (44, 9_800),
    "modules.vgpu_availability": (56, 12_000),
    "modules.vsphere_gpu_host": (32, 6_200),
    "modules.vsphere_gpu_info": (31, 6_400),
    "modules.vsphere_template_check": (35, 6_400),
    "modules.vsphere_vgpu_vm": (58, 10_900),
}
ALONE = (1, 400)


def names() -> list[str]:
    return sorted(".".join(path.relative_to(PLUGINS).with_suffix("").parts) for path in PLUGINS.rglob("*.py"))


@cache
def imports(name: str) -> frozenset[str]:
    """Return the files of the collection, without its prefix, and the other packages that a file imports."""
    return frozenset(_imports(name))


def _imports(name: str) -> Iterator[str]:
    path = PLUGINS / (name.replace(".", "/") + ".py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = _absolute(name, node)
            if not package.startswith(COLLECTION):
                yield package
                continue
            inside = package[len(COLLECTION) + 1 :]
            for alias in node.names:
                file = f"{inside}.{alias.name}"
                yield file if (PLUGINS / (file.replace(".", "/") + ".py")).is_file() else inside


def _absolute(name: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    folder = f"{COLLECTION}.{name}".split(".")[: -node.level]
    return ".".join([*folder, *([node.module] if node.module else [])])


def room_of(name: str) -> str:
    return max((room for room in MAY_IMPORT if within(name, room)), key=len)


def within(name: str, *rooms: str) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def ours(name: str) -> set[str]:
    return {imported for imported in imports(name) if within(imported, *MAY_IMPORT)}


def payload(name: str) -> set[str]:
    """Return everything that travels with a module, lazy imports included, as Ansible packs it."""
    found: set[str] = set()
    left = [name]
    while left:
        new = ours(left.pop()) - found
        found |= new
        left += new
    return found


@pytest.mark.parametrize("name", names())
def test_a_file_imports_only_what_its_room_may_import(name: str) -> None:
    room = room_of(name)
    assert {found for found in ours(name) if not within(found, room, *MAY_IMPORT[room])} == set()


@pytest.mark.parametrize("name", [name for name in names() if within(name, *PURE)])
def test_a_pure_room_imports_neither_an_sdk_nor_ansible(name: str) -> None:
    assert {found.split(".")[0] for found in imports(name) - ours(name)} <= STANDARD_LIBRARY


@pytest.mark.parametrize("name", [name for name in names() if ".decide." in name or within(name, *MODEL)])
def test_what_is_decided_does_not_depend_on_how_it_is_applied(name: str) -> None:
    assert {found for found in payload(name) if within(found, *WRITING)} == set()


@pytest.mark.parametrize("name", READERS)
def test_a_module_that_only_reads_does_not_carry_code_that_writes(name: str) -> None:
    assert {found for found in payload(name) if within(found, *WRITING)} == set()


@pytest.mark.parametrize("name", [name for name in names() if within(name, "modules")])
def test_what_is_packed_for_a_module_stays_small(name: str) -> None:
    files = {name, *payload(name)}
    lines = sum(len((PLUGINS / (file.replace(".", "/") + ".py")).read_text().splitlines()) for file in files)
    most_files, most_lines = MOST_PACKED.get(name, ALONE)
    assert len(files) <= most_files, sorted(files)
    assert lines <= most_lines


def test_no_folder_holds_more_than_a_dozen_files() -> None:
    folders = {path.parent for path in PLUGINS.rglob("*.py")} - {
        PLUGINS / "modules",
        PLUGINS / "action",
        PLUGINS / "filter",
    }
    sizes = {str(folder.relative_to(PLUGINS)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MOST_FILES} == {}
