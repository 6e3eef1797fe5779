"""Compare tasks in process with packed modules: python -m tools.same_results [--line LINE] [SUITE ...] [-- PYTEST ...]

Runs the suites of the modules in both ways with the same ansible-core, records the result of every task of every test,
and prints each difference. Without `--line`, the tasks are run by the Ansible of the development environment; a line
such as 2.16 has an environment of its own, see tools/matrix.py. The tests themselves, and thus the labs, run in the
development environment in any case.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools import matrix

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "build/same-results"
SUITES = ("tests/integration/modules", "tests/integration/vsphere_modules")
# Read by tests/integration/modules: where to put records, and the Python whose Ansible runs the tasks.
RECORDS_VARIABLE = "VGPU_FLEET_TEST_RECORDS"
PYTHON_VARIABLE = "VGPU_FLEET_TEST_PYTHON"
MODES = {"in process": "true", "packed": "false"}
PYTEST_NO_TESTS = 5

# Values that differ between two runs of the same test, by key and by form.
PASSING_KEYS = {"task_seconds", "resourceVersion", "resource_version", "uid", "generation", "output"}
# Lines of tracebacks that do not name an exception.
FRAMES = ("Traceback", "The above exception", "During handling")
PASSING_FORMS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\bport=\d+"), "<port>"),
    (re.compile(r"/\S*/pytest-\d+/"), "<folder>/"),
    (re.compile(r"0x[0-9a-f]{6,}"), "<object>"),
    # How long a task has waited is rounded to seconds in messages.
    (re.compile(r"\b\d+(\.\d+)? (s|seconds)\b"), "<duration>"),
    # Ids that a vCenter counts.
    (re.compile(r"\b(vm|task|session|host)-\d+\b"), r"\1-<number>"),
)


class Differences(Exception):
    """The two ways gave different results, or a suite did not pass."""


def comparable(value: Any) -> Any:
    """Return a result without what differs from run to run."""
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items() if key not in PASSING_KEYS}
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if isinstance(value, str) and "Traceback" in value:
        # Packed modules have other folders, and Ansible's own frames. What was raised is the same.
        return [line for line in value.splitlines() if line[:1].strip() and not line.startswith(FRAMES)]
    if isinstance(value, str):
        for form, name in PASSING_FORMS:
            value = form.sub(name, value)
    return value


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Return the places in which two results differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}, key=str):
            if key not in one or key not in other:
                yield f"{where}.{key} is {'missing' if key in one else 'additional'} in the packed run"
            else:
                yield from differences(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (mine, its) in enumerate(zip(one, other, strict=True)):
            yield from differences(mine, its, f"{where}[{number}]")
    elif one != other:
        yield f"{where}: {json.dumps(one)[:200]} in process, {json.dumps(other)[:200]} packed"


def read_records(folder: Path) -> dict[str, list[Any]]:
    """Return the comparable results by test: a list of plays, each a list of results."""
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            found.setdefault(record["test"], []).append(comparable(record["results"]))
    return found


def compare(inside: Mapping[str, list[Any]], packed: Mapping[str, list[Any]]) -> list[str]:
    """Return all differences between the records of two runs."""
    found = []
    for test in sorted({*inside, *packed}):
        if test not in inside or test not in packed:
            found.append(f"{test} has no record of the {'packed' if test in inside else 'in-process'} run")
            continue
        found += [f"{test}: {difference}" for difference in differences(inside[test], packed[test])]
    return found


def record(line: str | None, mode: str, suites: list[str], pytest: list[str]) -> Path:
    """Run the suites in one way, and return the folder of the records."""
    folder = FOLDER / (line or "development") / mode.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = {**os.environ, RECORDS_VARIABLE: str(folder), "VGPU_FLEET_IN_PROCESS": MODES[mode]}
    if line:
        environment = matrix.prepare(next(known for known in matrix.LINES if known.core == line))
        if environment is None:
            raise Differences(f"This machine has no Python for ansible-core {line}.")
        env |= {
            PYTHON_VARIABLE: str(environment.python),
            "ANSIBLE_COLLECTIONS_PATH": environment.variables["ANSIBLE_COLLECTIONS_PATH"],
            "ANSIBLE_HOME": environment.variables["ANSIBLE_HOME"],
        }
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", *pytest, *suites], env=env, check=False
    ).returncode
    if code not in (0, PYTEST_NO_TESTS):
        raise Differences(f"The suites did not pass {mode}.")
    return folder


def check(line: str | None, suites: list[str], pytest: list[str]) -> str:
    """Compare both ways, and return how much was compared. Raise Differences."""
    inside, packed = (read_records(record(line, mode, suites, pytest)) for mode in MODES)
    if found := compare(inside, packed):
        raise Differences("\n".join(found))
    tasks = sum(len(play) for plays in inside.values() for play in plays)
    if not tasks:
        raise Differences("No test ran.")
    return f"{tasks} tasks of {len(inside)} tests gave the same results in process and packed."


def main() -> int:
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__)
    lines = [line.core for line in matrix.LINES]
    parser.add_argument("--line", action="append", choices=lines, help="a line of ansible-core; several are possible")
    parser.add_argument("suites", nargs="*", default=list(SUITES))
    chosen, pytest = parser.parse_args(words[:split]), words[split + 1 :]
    failed = False
    for line in chosen.line or [None]:
        title = f"ansible-core {line}" if line else "Ansible of the development environment"
        try:
            print(f"{title}: {check(line, chosen.suites, pytest)}", flush=True)
        except Differences as error:
            failed = True
            print(f"{title}: {error}", file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
