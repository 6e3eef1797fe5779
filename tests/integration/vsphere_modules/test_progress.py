"""What users see while a task waits for a slow vCenter."""

from __future__ import annotations

import json
import re

MODULE = "vsphere_vgpu_vm"
NEW = {"template": "ubuntu-22.04-efi", "vgpus": [{"profile": "nvidia_a40-4q"}], "state": "powered_off"}
# Longer than the first line takes, and longer than the longest silence. The lab's tasks take that long in any case.
SHORT_MS, LONG_MS = 6_000, 26_000
LINE = re.compile(
    r"^  \[localhost\] waiting for vCenter to (?P<doing>.+): task-\d+ is (?P<state>\w+) \(\d+:\d\d min left\)$",
    re.MULTILINE,
)


def test_u8_a_wait_for_vcenter_shows_each_change_and_is_never_silent_for_long(vcenter, playbooks):
    run = playbooks(vcenter)
    vcenter.control("PUT", "/tasks", {"queued_ms": SHORT_MS, "running_ms": LONG_MS, "methods": ["CloneVM_Task"]})
    result = run.task(MODULE, name="trainer", **NEW)
    assert result.changed, result.message
    output = result.pop("output")
    lines = [match.groupdict() for match in LINE.finditer(output)]
    assert lines, output
    assert all("trainer" in line["doing"] for line in lines), output
    states = [line["state"] for line in lines]
    # A line for the change, and another one although nothing changes.
    assert states == sorted(states), output
    assert "queued" in states, output
    assert states.count("running") >= 2, output
    assert "waiting for vCenter" not in json.dumps(result)

    vcenter.control("PUT", "/tasks", {"running_ms": SHORT_MS, "methods": ["CloneVM_Task"]})
    calls = {f"vgpu.fleet.{MODULE}": {"name": "silent", **NEW}}
    (silent,) = run.run([calls], vars={"vgpu_fleet_progress": False})
    assert silent.changed, silent.message
    assert "waiting for vCenter" not in silent["output"]
