"""The runner of molecule scenarios looks at what molecule does not."""

from __future__ import annotations

import pytest

from tools.molecule import late_changes, runs

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
