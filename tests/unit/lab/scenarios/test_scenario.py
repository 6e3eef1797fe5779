"""Scenario files: many nodes from one entry."""

from __future__ import annotations

import pytest

from lab.errors import LabError
from lab.scenarios import scenario

GPUS = [{"address": "0000:08:00.0", "board": "A2"}]


def test_an_entry_with_a_count_stands_for_as_many_nodes():
    content = {"nodes": [{"name": "one"}, {"name": "gpu-{n}", "count": 3, "gpus": GPUS}]}
    nodes = scenario.parse("mine", content).nodes
    assert [node.name for node in nodes] == ["one", "gpu-1", "gpu-2", "gpu-3"]
    assert [len(node.gpus) for node in nodes] == [0, 1, 1, 1]


def test_a_number_of_nodes_replaces_the_count():
    assert [node.name for node in scenario.load("fleet", 2).nodes] == ["gpu-1", "gpu-2"]
    assert len(scenario.load("fleet").nodes) == 16


@pytest.mark.parametrize("nodes", [[{"name": "a"}], [{"name": "a-{n}", "count": 1}, {"name": "b-{n}", "count": 1}]])
def test_a_number_of_nodes_needs_one_entry_with_a_count(nodes):
    with pytest.raises(LabError, match="nodes with a count"):
        scenario.parse("mine", {"nodes": nodes}, 5)


def test_names_that_meet_are_told():
    content = {"nodes": [{"name": "gpu-2"}, {"name": "gpu-{n}", "count": 3}]}
    with pytest.raises(LabError, match="names a node twice"):
        scenario.parse("mine", content)
