"""Run the matrix of faults and the kills on a lab, and write what came of them as JSON.

    python -m tests.resilience --out build/resilience.json [--jobs vgpu,vm] [--faults api-conflict] [--minutes 8]

Cells that the file already has for this commit are not run again, so that a long matrix can be run in parts.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
# A copy, so that the collection of a long run stays the same.
COLLECTIONS = tempfile.TemporaryDirectory(prefix="collections-")
shutil.copytree(CHECKOUT / "build/installed", COLLECTIONS.name, dirs_exist_ok=True)
sys.path.insert(0, COLLECTIONS.name)

from lab.lifecycle import up  # noqa: E402
from tests.integration.labs import Lab  # noqa: E402
from tests.resilience import cells, faults, jobs, meetings, table, vsphere  # noqa: E402
from tests.resilience.stage import NotRecovered, Stage  # noqa: E402

Json = dict[str, Any]

SPEED = 200.0
# Up to this many requests of a job, the job is killed after each of them.
EVERY_REQUEST = 25
KINDS = ("cells", "kills", "meetings")


def commit() -> str:
    """Return the last commit that changed something of what is measured, or of what measures it."""
    measured = ("plugins", "lab", "tests/resilience")
    command = ["git", "-C", str(CHECKOUT), "log", "-1", "--format=%h", "--abbrev=10", "--", *measured]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def matrix(chosen_faults: Iterable[str], chosen_jobs: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the cells as fault, job and moment, those of one world after the other.

    Within a world their order is mixed, always in the same way, so that a part of a run is a sample of the whole.
    """
    found = [
        (fault, job, moment)
        for job in chosen_jobs
        for fault in chosen_faults
        for moment in cells.MOMENTS
        if fault != "mig-setup" or job == "mig"
        if jobs.BY_NAME[job].world is jobs.USED or "node" not in faults.BY_NAME[fault].options
    ]
    random.Random(len(found)).shuffle(found)
    return sorted(found, key=lambda cell: jobs.BY_NAME[cell[1]].world.name, reverse=True)


def sampled(requests: int) -> list[int]:
    """Return the requests after which a job is killed: all, or a sample that is always the same."""
    if requests <= EVERY_REQUEST:
        return list(range(1, requests + 1))
    return sorted(random.Random(requests).sample(range(1, requests + 1), EVERY_REQUEST))


class Book:
    """The file of the results, written after each cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path.exists() else {}
        now = commit()
        self.content: Json = (
            found if found.get("commit") == now else {"commit": now, "cells": [], "kills": [], "meetings": []}
        )

    def has(self, kind: str, **key: Any) -> bool:
        return any(all(one[name] == value for name, value in key.items()) for one in self.content[kind])

    def add(self, kind: str, record: Json) -> None:
        self.content[kind].append(record)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self.content, indent=1) + "\n")


def wanted(chosen: str, known: Iterable[str], also: Iterable[str] = ()) -> list[str]:
    """Return the names to run, of those that are known here. Other names are known elsewhere."""
    names, others = list(known), list(also)
    if not chosen:
        return names
    given = chosen.split(",")
    unknown = set(given) - {*names, *others}
    if unknown:
        sys.exit(f"Unknown: {', '.join(sorted(unknown))}. Known: {', '.join([*names, *others])}.")
    return [name for name in names if name in given]


class Session:
    def __init__(self, stage: Stage, book: Book, until: float) -> None:
        self.stage, self.book, self._until = stage, book, until
        self._plain: dict[str, cells.Undisturbed | None] = {}

    @property
    def over(self) -> bool:
        return time.monotonic() > self._until

    def plain(self, job: str) -> cells.Undisturbed | None:
        """Return what a job does without a fault, or None if it does not work at all."""
        if job not in self._plain:
            try:
                self._plain[job] = cells.measure(self.stage, jobs.BY_NAME[job])
            except NotRecovered as error:
                self.book.add("cells", {"fault": "", "job": job, "moment": "", "error": str(error), "good": False})
                print(f"{job}: {error}", flush=True)
                self._plain[job] = None
        return self._plain[job]

    def faults(self, todo: list[tuple[str, str, str]]) -> Iterator[Json]:
        for fault, job, moment in todo:
            if self.over:
                return
            if self.book.has("cells", fault=fault, job=job, moment=moment):
                continue
            plain = self.plain(job)
            if plain:
                record = cells.run_cell(self.stage, faults.BY_NAME[fault], jobs.BY_NAME[job], moment, plain).as_dict()
                self.book.add("cells", record)
                yield record

    def meetings(self) -> Iterator[Json]:
        for case in meetings.CASES:
            if not self.over and not self.book.has("meetings", name=case.name):
                try:
                    plain = cells.measure(self.stage, case.job)
                    record = meetings.meet(self.stage, case, plain.written).as_dict()
                except NotRecovered as error:
                    record = {"name": case.name, "said": "", "wrong": [str(error)], "good": False}
                self.book.add("meetings", record)
                yield record

    def kills(self, names: list[str]) -> Iterator[Json]:
        for name in names:
            if self.over:
                return
            plain = self.plain(name)
            for after in sampled(plain.requests) if plain else ():
                if not self.over and not self.book.has("kills", job=name, after=after):
                    record = cells.run_kill(self.stage, jobs.BY_NAME[name], after, plain).as_dict()
                    self.book.add("kills", record)
                    yield record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=CHECKOUT / "build/resilience.json")
    parser.add_argument("--table", type=Path, help="also write the results as Markdown")
    parser.add_argument("--platform", choices=["harvester", "vsphere"])
    parser.add_argument("--faults", default="")
    parser.add_argument("--jobs", default="")
    parser.add_argument("--moments", default="")
    parser.add_argument("--only", choices=["faults", "kills", "meetings"])
    parser.add_argument("--minutes", type=float, default=600.0, help="for each platform, begin nothing after this time")
    chosen = parser.parse_args()
    book = Book(chosen.out)
    # Ends with an exception, so that the labs end, too. Shells let jobs in the background ignore SIGINT.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_signal: sys.exit(1))
    if chosen.platform != "harvester":
        on_vsphere(book, chosen)
    if chosen.platform != "vsphere":
        on_harvester(book, chosen)
    if chosen.table:
        all_faults, all_jobs = [*faults.BY_NAME, *vsphere.FAULTS_BY_NAME], [*jobs.BY_NAME, *vsphere.BY_NAME]
        chosen.table.write_text(table.render(book.content, all_faults, all_jobs))
    bad = [one for kind in KINDS for one in book.content[kind] if not one["good"]]
    print(", ".join(f"{len(book.content[kind])} {kind}" for kind in KINDS), f"{len(bad)} not as promised", sep=", ")
    return 1 if bad else 0


def on_harvester(book: Book, chosen: argparse.Namespace) -> None:
    names = wanted(chosen.jobs, jobs.BY_NAME, also=vsphere.BY_NAME)
    faulty = wanted(chosen.faults, faults.BY_NAME, also=vsphere.FAULTS_BY_NAME)
    moments = wanted(chosen.moments, cells.MOMENTS)
    todo = [cell for cell in matrix(faulty, names) if cell[2] in moments]
    with tempfile.TemporaryDirectory(prefix="lab-resilience-") as folder:
        run = up.start(Path(folder) / "lab", speed=SPEED, without=["vsphere"])
        try:
            began = time.monotonic()
            session = Session(Stage(Lab(run)), book, began + chosen.minutes * 60)
            parts = {
                "meetings": session.meetings,
                "faults": lambda: session.faults(todo),
                "kills": lambda: session.kills(names),
            }
            for part, records in parts.items():
                for record in records() if chosen.only in (None, part) else ():
                    tell(record, time.monotonic() - began, session.stage.resets)
        finally:
            up.stop(run)


def on_vsphere(book: Book, chosen: argparse.Namespace) -> None:
    names = wanted(chosen.jobs, vsphere.BY_NAME, also=jobs.BY_NAME)
    faulty = wanted(chosen.faults, vsphere.FAULTS_BY_NAME, also=faults.BY_NAME)
    moments = wanted(chosen.moments, cells.MOMENTS)
    began = time.monotonic()
    until = began + chosen.minutes * 60
    for name in names:
        if time.monotonic() > until:
            return
        job = vsphere.BY_NAME[name]
        plain = vsphere.measure(job)
        todo = [(fault, moment) for fault in faulty for moment in moments] if chosen.only in (None, "faults") else []
        for fault, moment in todo:
            if time.monotonic() < until and not book.has("cells", fault=fault, job=name, moment=moment):
                record = vsphere.run_cell(vsphere.FAULTS_BY_NAME[fault], job, moment, plain).as_dict()
                book.add("cells", record)
                tell(record, time.monotonic() - began, 0)
        for after in sampled(len(plain.calls)) if chosen.only in (None, "kills") else []:
            if time.monotonic() < until and not book.has("kills", job=name, after=after):
                record = vsphere.run_kill(job, after, plain).as_dict()
                book.add("kills", record)
                tell(record, time.monotonic() - began, 0)
        for case in meetings.VSPHERE_CASES if chosen.only in (None, "meetings") else ():
            if case.job is job and not book.has("meetings", name=case.name):
                record = meetings.meet_on_vsphere(case, plain).as_dict()
                book.add("meetings", record)
                tell(record, time.monotonic() - began, 0)


def tell(record: Json, seconds: float, resets: int) -> None:
    words = [f"{seconds:6.0f} s", f"{resets} resets", "ok " if record["good"] else "BAD", record.get("job", "")]
    if "request" in record:
        words.append(f"kill {record['after']}/{record['of']} {record['request']}")
    words += [record.get(key, "") for key in ("name", "said", "fault", "moment", "first")]
    for key in ("silent", "lost", "diverged", "surplus", "error", "wrong"):
        if record.get(key):
            words.append(f"{key}={record[key]}")
    if record.get("first") == cells.UNNAMED:
        words.append(f"said: {record['message']}")
    print(" ".join(map(str, words)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
