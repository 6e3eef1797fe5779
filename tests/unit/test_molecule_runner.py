"""The runner of molecule scenarios looks at what molecule does not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lab.rundir import RunDir
from tools import molecule
from tools.molecule import late_changes, runs

PATIENCE_SECONDS = 120
GREEN, PLAIN = "\x1b[32m", "\x1b[0m"


def log(*actions: tuple[str, int]) -> str:
    lines = []
    for action, changed in actions:
        lines.append(f"INFO     {GREEN}role{PLAIN} ➜ {GREEN}{action}{PLAIN}: {GREEN}Executing{PLAIN}")
        lines.append(f"  │ localhost : ok=9    changed={changed}    unreachable=0    failed=0")
        lines.append(f"INFO     role ➜ {action}: Executed: Successful")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("last", "changes"), [(("check", 0), False), (("check", 2), True), (("verify", 3), False), (("cleanup", 1), False)]
)
def test_only_a_dry_run_after_the_second_run_must_not_change_anything(last: tuple[str, int], changes: bool) -> None:
    assert late_changes(log(("check", 2), ("converge", 2), ("idempotence", 0), last)) is changes


def test_every_scenario_says_on_what_it_runs() -> None:
    found = {(run.scenario, run.version) for run in runs("")}
    assert {("harvester_gpu_node", "1.7"), ("harvester_gpu_node", "1.8"), ("vsphere_gpu_host", "")} <= found
    assert {run.scenario for run in runs("vm on Harvester 1.8")} == {"harvester_gpu_vm"}
    assert [run.title for run in runs("capv")] == [
        "capv_gpu_cluster on vSphere",
        "capv_gpu_pool on Harvester 1.8 and vSphere",
    ]
    assert [run.labs for run in runs("capv_gpu_cluster")] == [("vsphere-only-capv",)]


def test_every_role_has_a_scenario() -> None:
    roles = {role.name for role in molecule.CHECKOUT.glob("roles/*")}
    assert roles <= {run.scenario for run in runs("")}


def test_a_lab_starts_over_unless_it_is_where_the_scenario_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is at the first one's beginning, or where the scenario that the next one names has ended well."""
    begun: list[str] = []
    told: list[str] = []
    failing: set[str] = set()

    def ran(run: molecule.Run, environment: Mapping[str, str]) -> str:
        told.append(" ".join([run.scenario, *environment]))
        return "bad" if run.scenario in failing else ""

    monkeypatch.setattr(molecule, "stopping", threading.Event())
    monkeypatch.setattr(molecule, "begin", lambda _, run: begun.append(run.scenario))
    monkeypatch.setattr(molecule, "molecule", ran)
    monkeypatch.setattr(molecule.up, "environment", lambda _: {})

    def one(name: str, after: str = "", version: str = "1.8") -> molecule.Run:
        return molecule.Run(name, "default", version, (molecule.HARVESTER,), after=after)

    labs = dict.fromkeys(("harvester-vfio", "harvester-mdev"), RunDir("nowhere"))
    chain = [one("first"), one("second", "first"), one("third", "second"), one("fourth", "second")]
    molecule.run_all(chain, labs, begun=chain[0])
    assert told == ["first LAB_STAYS", "second LAB_GOES_ON LAB_STAYS", "third LAB_GOES_ON", "fourth"]
    molecule.run_all([one("elsewhere", version="1.7"), one("here", "elsewhere")], labs)
    failing.add("first")
    molecule.run_all(chain[:2], labs, begun=chain[0])
    assert begun == ["fourth", "elsewhere", "here", "second"]
    assert told[-2:] == ["first LAB_STAYS", "second"]


def test_a_scenario_comes_right_after_the_one_that_it_names() -> None:
    named = [run for run in runs("") if run.after]
    assert {run.scenario for run in named} == {"gpu_operator", "gpu_smoke_test"}
    for run in named:
        alone = [one for one in runs("") if one.labs == run.labs]
        assert run.begins_where(alone[alone.index(run) - 1])


def test_what_a_scenario_has_started_ends_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(molecule, "stopping", threading.Event())
    grandchild, log = tmp_path / "pid", (tmp_path / "log").open("w")
    # Its end is seen before one's own comes, which must not look like a success.
    command = [
        "sh",
        "-c",
        f"sh -c 'echo $$ > {grandchild}.new; mv {grandchild}.new {grandchild}; exec setsid sleep 600' &"
        "while :; do wait; done",
    ]
    codes: list[int] = []
    running = threading.Thread(target=lambda: codes.append(molecule.in_a_group(command, os.environ, log)))
    running.start()
    until(grandchild.exists)
    molecule.stop_groups()
    running.join()
    assert codes == [-9]
    until(lambda: not runs_still(int(grandchild.read_text())))
    # Nothing is begun any more.
    assert molecule.in_a_group(["false"], os.environ, log) == 1
    log.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs_still(pid: int) -> bool:
    """A process that nobody has waited for yet does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_runs_on_two_labs_have_a_pair_of_their_own() -> None:
    found = molecule.groups(runs(""))
    assert {"vsphere", "harvester-vfio", "harvester-vfio-rancher", "harvester-vfio+vsphere"} <= set(found)
    labs = [place for group in found for place in molecule.places(group).values()]
    assert len(labs) == len(set(labs))
    assert {run.group for run in runs("capv_gpu_pool")} == {"harvester-vfio+vsphere"}
