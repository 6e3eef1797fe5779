"""The tables of docs/profiles.md, made from the catalogue. They stand between markers; the text around them is ours.

PYTHONPATH=build/collections python tools/profile_tables.py    # writes them anew
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import (
    InstanceSize,
    MigGeometry,
    format_instances,
    geometry_of,
    read_wanted,
    vgpus_per_instance,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse

PAGE = Path(__file__).parents[1] / "docs/profiles.md"
BEGIN, END = "<!-- {}: made by tools/profile_tables.py -->", "<!-- end of {} -->"
# Boards whose cuts are listed; those of other boards differ in the sizes only.
EXAMPLES = ("A30", "A100", "RTX Pro 6000 Blackwell DC")


def tables() -> dict[str, str]:
    return {"both": "\n".join(_both()), "cuts": "\n".join(_cuts()), "all": "\n".join(_all())}


def with_tables(page: str) -> str:
    """The page with its tables as the catalogue has them now."""
    for name, table in tables().items():
        begin, end = BEGIN.format(name), END.format(name)
        before, rest = page.split(begin)
        page = f"{before}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"
    return page


def _both() -> Iterator[str]:
    """Boards that can do both, time-sliced and MIG side by side by the memory of a vGPU."""
    alike: dict[tuple[tuple[str, ...], int], list[catalog.Board]] = {}
    for board in catalog.boards().values():
        if geometry_of(board.name):
            alike.setdefault((board.words, board.framebuffer_mib), []).append(board)
    for boards in sorted(alike.values(), key=lambda boards: boards[0].name):
        names = ", ".join(board.name for board in boards)
        first = boards[0]
        yield f"### {names}\n"
        for board in boards:
            yield f"{board.product}: type names begin with `{board.type_prefix}`.\n"
        yield "| memory of a vGPU | time-sliced | most per GPU | MIG | most per GPU | instance |"
        yield "|---|---|---|---|---|---|"
        for gib in sorted({profile.mib // 1024 for profile in first.profiles}):
            sliced = [one for one in first.profiles if one.mib // 1024 == gib and not one.mig]
            mig = [one for one in first.profiles if one.mib // 1024 == gib and one.mig]
            for number in range(max(len(sliced), len(mig))):
                left = _cells(sliced[number : number + 1])
                right = _cells(mig[number : number + 1])
                instance = _instance(mig[number]) if mig[number : number + 1] else ""
                yield f"| {gib if number == 0 else ''} GiB | {left} | {right} | {instance} |".replace("|  GiB", "| ")
        yield ""


def _cells(profiles: list[catalog.BoardProfile]) -> str:
    return f"{_suffix(profiles[0])} | {profiles[0].max_per_gpu}" if profiles else " | "


def _suffix(profile: catalog.BoardProfile) -> str:
    return f"`{parse(profile.name).suffix}`"


def _instance(profile: catalog.BoardProfile) -> str:
    each = vgpus_per_instance(parse(profile.name).key)
    return read_wanted(profile.name).size.name + (f", {each} on each" if each > 1 else "")


def _cuts() -> Iterator[str]:
    for name in EXAMPLES:
        geometry = geometry_of(name)
        assert geometry
        yield f"### The fullest cuts of {name}\n"
        yield "| instances | compute slices | memory slices |"
        yield "|---|---|---|"
        plain = [size for size in geometry.sizes if not size.media]
        for cut in geometry.maximal(plain):
            compute, memory = f"{_compute(cut)} of {geometry.compute}", f"{_memory(geometry, cut)} of {geometry.memory}"
            yield f"| {format_instances(cut)} | {compute} | {memory} |"
        yield ""


def _compute(cut: Counter[InstanceSize]) -> int:
    return sum(size.compute * count for size, count in cut.items())


def _memory(geometry: MigGeometry, cut: Counter[InstanceSize]) -> int:
    return sum(geometry.memory_of(size) * count for size, count in cut.items())


def _all() -> Iterator[str]:
    yield "| board | product | memory of a GPU | SR-IOV | time-sliced: most per GPU | MIG: most per GPU |"
    yield "|---|---|---|---|---|---|"
    for board in sorted(catalog.boards().values(), key=lambda board: (board.name.casefold(), board.name)):
        gpus = f" (each of {board.gpus} GPUs)" if board.gpus > 1 else ""
        sliced = " ".join(_count(word) for word in board.words if "-" not in word)
        mig = " ".join(_count(word) for word in board.words if "-" in word)
        yield (
            f"| {board.name} | {board.product} | {board.framebuffer_mib // 1024} GiB{gpus} |"
            f" {'yes' if board.sriov else 'no'} | {sliced} | {mig} |"
        )


def _count(word: str) -> str:
    suffix, marked = word.split(":")
    return f"{suffix}:{marked.rstrip('?')}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
