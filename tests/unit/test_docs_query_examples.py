"""The questions of docs/query-examples.md, asked of a fleet: both ways to ask give the answer that the page has."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.document import document
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record

from tests.unit.plugins.module_utils.fleets import fleet, gpu
from tests.unit.plugins.plugin_utils.views.results import finding, harvester_info

PAGE = (Path(__file__).parents[2] / "docs/query-examples.md").read_text()
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"```(jinja|json)\n(.*?)```", re.DOTALL)
QUESTIONS = {title: BLOCK.findall(body) for title, body in SECTION.findall(PAGE)}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What ansible-playbook says to each question, by the two expressions."""
    folder = tmp_path_factory.mktemp("questions")
    found = fleet(gpu("gpu-a:1", "4Q 4Q@batch-"), gpu("gpu-b:1", "8Q@web 8Q"), gpu("gpu-c:1"))
    info = harvester_info(found, [finding("restart_required", "default/web")])
    (folder / "fleet.json").write_text(document(fleet_record(info, cluster="edge-1"), 0.0))
    start = yaml.safe_load(PAGE.partition("# questions.yml\n")[2].partition("```")[0])[0]
    asked = {
        title: [f"{{{{ {expression.strip()} }}}}" for kind, expression in blocks if kind == "jinja"]
        for title, blocks in QUESTIONS.items()
    }
    answer = {"content": "{{ answers | to_json }}", "dest": str(folder / "answers.json"), "mode": "0600"}
    tasks = [*start["tasks"], {"ansible.builtin.copy": answer, "vars": {"answers": asked}}]
    (folder / "play.yml").write_text(json.dumps([{**start, "connection": "local", "tasks": tasks}]))
    environment = os.environ | {"ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_LOCALHOST_WARNING": "false"}
    done = subprocess.run(
        ["ansible-playbook", "play.yml"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found_answers: dict[str, list[Any]] = json.loads((folder / "answers.json").read_text())
    return found_answers


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_ways_to_ask_give_the_answer_of_the_page(question: str, answers: dict[str, list[Any]]) -> None:
    kinds = [kind for kind, _text in QUESTIONS[question]]
    assert kinds == ["jinja", "jinja", "json"]
    by_json_query, by_jinja = answers[question]
    assert "json_query" in QUESTIONS[question][0][1]
    assert "json_query" not in QUESTIONS[question][1][1]
    assert by_json_query == by_jinja == json.loads(QUESTIONS[question][2][1])
