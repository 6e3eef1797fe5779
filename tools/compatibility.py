"""Take a vGPU through its life on every minor version of Harvester: python -m tools.compatibility [--version V ...]

One lab with KubeVirt takes the versions one after the other, and runs the playbooks of tests/compatibility in order
with the installed collection. The result is a table. With --page it is also written into a page between two markers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.harvester import versions
from lab.lifecycle import running, up
from lab.rundir import RunDir

CHECKOUT = Path(__file__).resolve().parents[1]
PLAYS = sorted((CHECKOUT / "tests/compatibility").glob("*.yml"))
MINOR = tuple(name for name in versions.VERSIONS if name.count(".") == 1)
# Lab seconds per second: the VMs of KubeVirt have their own pace.
SPEED = 20.0
BEGIN, END = "<!-- compatibility: begin -->", "<!-- compatibility: end -->"
PASSED = "passed"


@dataclass
class Line:
    """A version, and what came of each stage."""

    version: str
    results: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return list(self.results.values()) == [PASSED] * len(PLAYS)


def stage_of(play: Path) -> str:
    return play.stem.partition("-")[2]


def live(line: Line, environment: Mapping[str, str]) -> None:
    """Run the playbooks. A failure ends the life of this vGPU, and the rest is not tried."""
    began = time.monotonic()
    for play in PLAYS:
        done = subprocess.run(
            ["ansible-playbook", "-i", "localhost,", "-c", "local", str(play)],
            env={**os.environ, **environment, "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
        line.results[stage_of(play)] = PASSED if done.returncode == 0 else "failed"
        if done.returncode:
            print(done.stdout[-6000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
            break
    line.seconds = time.monotonic() - began


def table(lines: Sequence[Line], commit: str) -> str:
    stages = [stage_of(play) for play in PLAYS]
    rows = [
        f"| Harvester | lab | {' | '.join(stages)} |",
        "|---" * (len(stages) + 2) + "|",
    ]
    for line in lines:
        shown = versions.named(line.version).server_version
        rows.append(f"| {line.version} | {shown} | {' | '.join(line.results.get(one, 'not run') for one in stages)} |")
    return "\n".join((*rows, "", f"Commit {commit}."))


def commit_of_checkout() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def written_into(page: str, content: str) -> str:
    """Return a page with the content between its markers."""
    before, _begin, rest = page.partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"The page has no lines {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="append", choices=MINOR, help="only this version; repeat it for more")
    parser.add_argument("--table", type=Path, help="write the table to this file")
    parser.add_argument("--page", type=Path, help="write the table into this page, between its markers")
    options = parser.parse_args(arguments)
    chosen = [name for name in MINOR if not options.version or name in options.version]
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="compatibility-") as folder:
        run: RunDir = up.start(Path(folder) / "lab", speed=SPEED, harvester_version=chosen[0], without=["vsphere"])
        try:
            for version in chosen:
                if lines:
                    with run.editing() as state:
                        state["settings"]["harvester_version"] = version
                    up.reset(run)
                line = Line(version)
                lines.append(line)
                live(line, running.environment(run))
                print(f"{version}: {'passed' if line.passed else 'failed'} in {line.seconds:.0f} s", flush=True)
        finally:
            running.stop(run)
    shown = table(lines, commit_of_checkout())
    print(shown)
    if options.table:
        options.table.write_text(shown + "\n")
    if options.page:
        options.page.write_text(written_into(options.page.read_text(), shown))
    return 0 if all(line.passed for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
