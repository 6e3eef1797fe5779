"""Lines printed as they are, by ansible-playbook with a default configuration."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {
                "vgpu.fleet.show": {
                    "title": "{{ inventory_hostname }}:",
                    "lines": ["PROFILE  TOTAL", 'A2 "4Q"      2 '],
                },
                "register": "shown",
            },
            {"ansible.builtin.assert": {"that": "'lines' not in shown and shown is not changed"}},
            {"vgpu.fleet.show": {"lines": ["a secret"]}, "no_log": True},
        ],
    }
]


def run(folder: Path, play: Any, **environment: str) -> str:
    (folder / "play.yml").write_text(json.dumps(play))
    done = subprocess.run(
        ["ansible-playbook", "-i", "edge-1,edge-2,", "play.yml"],
        cwd=folder,
        env=os.environ | {"ANSIBLE_HOME": str(folder / "home"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_lines_are_printed_in_one_piece_for_each_host_and_a_secret_is_not(tmp_path: Path) -> None:
    shown = run(tmp_path, PLAY)
    for host in ("edge-1", "edge-2"):
        assert f'\n{host}:\nPROFILE  TOTAL\nA2 "4Q"      2\n' in shown
    assert "a secret" not in shown


def test_output_for_programs_stays_readable_for_them(tmp_path: Path) -> None:
    play = [{**PLAY[0], "tasks": PLAY[0]["tasks"][:1]}]  # type: ignore[index]
    found = json.loads(run(tmp_path, play, ANSIBLE_STDOUT_CALLBACK="ansible.posix.json"))
    hosts = found["plays"][0]["tasks"][0]["hosts"]
    assert {host: result["lines"] for host, result in hosts.items()} == {
        host: [f"{host}:", "PROFILE  TOTAL", 'A2 "4Q"      2'] for host in ("edge-1", "edge-2")
    }
