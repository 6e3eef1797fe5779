"""The capacity as people and monitoring see it: the table of a default ansible.cfg, metrics and JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.labs import Lab
from tests.integration.playbooks.runs import CHECKOUT, INSTALLED, Runs

SCHEMA = json.loads((CHECKOUT / "docs/fleet.schema.json").read_text())
TABLE = """\
PROFILE  NODE   TOTAL  IN USE  CLAIMED  FREE
A2-4Q    gpu-a      2       1        0     1

NODE   GPU           BOARD      MEMORY                      USED GIB  VGPUS
gpu-a  0000:08:00.0  A2         [######======............]   8 of 16  2 x A2-4Q (default/trainer)
gpu-b  0000:08:00.0  A16 or A2  [........................]   0 of 16  not enabled
# in use  = free vGPU  . empty
"""


def command(lab: Lab, folder: Path, playbook: str, variables: dict[str, Any], **environment: str) -> str:
    """What ansible-playbook prints to somebody who has no ansible.cfg."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "ANSIBLE_HOME")
    own = {name: os.environ[name] for name in kept if name in os.environ}
    told = {"ansible_python_interpreter": sys.executable, **variables}
    done = subprocess.run(
        ["ansible-playbook", f"vgpu.fleet.{playbook}", "-e", json.dumps(told)],
        cwd=folder,
        env={**lab.env, **own, "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def samples(file: Path) -> dict[tuple[str, ...], float]:
    """The metrics of the cluster that a file has, by name, platform and profile or kind."""
    return {
        (sample.name, sample.labels["platform"], sample.labels.get("profile") or sample.labels.get("kind") or ""): (
            sample.value
        )
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }


def counts(found: dict[tuple[str, ...], float], name: str, platform: str) -> list[float]:
    """The values of one metric on one platform, for all profiles."""
    return [value for key, value in found.items() if key[:2] == (name, platform)]


def test_the_table_is_a_table_and_the_files_say_the_same(used: Lab, tmp_path: Path) -> None:
    files = {"vgpu_capacity_metrics": "fleet.prom", "vgpu_capacity_json": "fleet.json", "vgpu_capacity_name": "berlin"}
    shown = command(used, tmp_path, "capacity", files)
    assert TABLE in shown
    assert '"' not in shown.partition("TASK [vgpu.fleet.vgpu_capacity : Show the capacity]")[2].partition("TASK")[0]
    vsphere = {**files, "vgpu_capacity_platform": "vsphere", "vgpu_capacity_name": "vcenter"}
    assert "esx1  0000:3b:00.0  A40    [...." in command(used, tmp_path, "capacity", vsphere)
    command(used, tmp_path, "drift", {"vgpu_drift_metrics": "fleet.prom", "vgpu_drift_name": "berlin"})

    found = samples(tmp_path / "fleet.prom")
    suffixes = ("", "_in_use", "_claimed", "_free")
    for level in ("vgpus", "node_vgpus", "gpu_vgpus"):
        by_state = [found[f"vgpu_fleet_{level}{suffix}", "harvester", "A2-4Q"] for suffix in suffixes]
        assert (level, by_state) == (level, [2, 1, 0, 1])
    # Other tests of the suite may have left VMs on the vCenter that they share.
    vsphere_counts = [found[f"vgpu_fleet_vgpus{suffix}", "vsphere", "A40-8Q"] for suffix in ("_in_use", "_free")]
    assert sum(vsphere_counts) == 24
    assert found["vgpu_fleet_drift_findings", "harvester", "unused"] == 1
    assert found["vgpu_fleet_drift_findings", "harvester", "type_differs"] == 0
    for kind, platform in (("capacity", "harvester"), ("capacity", "vsphere"), ("drift", "harvester")):
        assert found[f"vgpu_fleet_{kind}_last_success_timestamp_seconds", platform, ""] > 1_700_000_000

    written = json.loads((tmp_path / "fleet.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(written)
    assert [(one["cluster"], one["platform"], one["in_use"]) for one in written["clusters"]] == [
        ("berlin", "harvester", 1),
        ("vcenter", "vsphere", sum(counts(found, "vgpu_fleet_vgpus_in_use", "vsphere"))),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.json", "fleet.prom"]


def test_a_program_that_reads_the_output_gets_json(lab: Lab, tmp_path: Path) -> None:
    shown = command(lab, tmp_path, "capacity", {}, ANSIBLE_STDOUT_CALLBACK="ansible.posix.json")
    (play,) = json.loads(shown)["plays"]
    (lines,) = [host["lines"] for task in play["tasks"] for host in task["hosts"].values() if "lines" in host]
    assert lines[0] == "There are no vGPUs."


def test_awx_shows_the_table_once_and_keeps_it_out_of_results(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    target = tmp_path / "none" / "fleet.prom"
    looked = runs.playbook("capacity")
    heading = "NODE   GPU           BOARD"
    assert looked.status == "successful", looked.shown
    assert looked.shown.count(heading) == 1
    assert heading not in json.dumps([event["event_data"] for event in looked.results("runner_on_ok")])
    # A folder that does not exist is one sentence, and a dry run writes nothing.
    refused = runs.playbook("capacity", {"vgpu_capacity_metrics": str(target)})
    assert refused.failure.startswith(f"{target} cannot be written: No such file or directory. Name a file in a folder")
    target.parent.mkdir()
    assert runs.playbook("capacity", {"vgpu_capacity_metrics": str(target)}, check=True).status == "successful"
    assert not target.exists()


@pytest.mark.parametrize("details", ["summary", "full"])
def test_rows_are_summarized_on_request(used: Lab, tmp_path: Path, details: str) -> None:
    shown = command(used, tmp_path, "capacity", {"vgpu_capacity_details": details})
    assert ("BOARD      GPUS  MEMORY" in shown) == (details == "summary")
