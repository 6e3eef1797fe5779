"""A variable that has no effect is refused, with the name that was meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.vgpu.fleet.plugins.plugin_utils.variable_names import (
    MOST_TYPOS,
    Names,
    UnknownVariable,
    check_names,
    names_of,
    typos,
)
from hypothesis import assume, given, settings, strategies as st

CHECKOUT = Path(__file__).parents[4]
NAMES = names_of(CHECKOUT)
WORDS = st.text(alphabet="ab_", max_size=8)


def refused(*variables: str, **options: str) -> str:
    with pytest.raises(UnknownVariable) as caught:
        check_names(variables, NAMES, **options)  # type: ignore[arg-type]
    return caught.value.message


def test_every_documented_variable_and_every_fact_of_a_role_is_accepted() -> None:
    facts = {
        name
        for path in (CHECKOUT / "roles").glob("*/tasks/*.yml")
        for name in re.findall(r"register: (\w+)|^    (\w+): ", path.read_text(), re.MULTILINE)
        for name in name
        if name.startswith(NAMES.prefixes)
    }
    assert len(NAMES.documented) > 150
    assert len(facts) > 10
    assert check_names(NAMES.documented | facts, NAMES) == []


@pytest.mark.parametrize("playbook", sorted((CHECKOUT / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_every_variable_in_the_head_of_a_playbook_is_accepted(playbook: Path) -> None:
    head = "\n".join(line for line in playbook.read_text().splitlines() if line.startswith("#"))
    named = re.findall(r"\b(?:vgpu|vsphere|harvester|vcenter|rancher|guest|gpu|capv)(?:_[a-z0-9]+)+\b(?!_)", head)
    assert named or playbook.stem == "awx_setup"
    assert check_names(named, NAMES) == []


def test_every_question_of_awx_and_every_variable_of_an_action_plugin_is_accepted() -> None:
    questions = yaml.safe_load((CHECKOUT / "awx/questions.yml").read_text())["awx_questions"]
    read = {
        name
        for path in (CHECKOUT / "plugins").rglob("*.py")
        for name in re.findall(r'VARIABLE = "(vgpu_fleet_\w+)"', path.read_text())
    }
    assert len(read) == 3
    assert check_names({*questions, *read}, NAMES) == []


def test_all_misspelt_names_are_reported_at_once() -> None:
    message = refused("harvester_gpu_node_layuot", "vgpu_teardown_scop", "vgpu_fleet_host", "own_variable")
    assert message == (
        "The variable harvester_gpu_node_layuot is unknown. Did you mean harvester_gpu_node_layout? "
        "The variable vgpu_fleet_host is unknown. Did you mean vgpu_fleet_hosts? "
        "The variable vgpu_teardown_scop is unknown. Did you mean vgpu_teardown_scope? Nothing was changed."
    )


def test_a_misspelt_prefix_is_refused_too() -> None:
    assert "Did you mean harvester_gpu_node_layout?" in refused("harvester_gpu_nodes_layout")
    assert "Did you mean vsphere_gpu_vm_vms?" in refused("vshpere_gpu_vm_vms")


@pytest.mark.parametrize("name", ["berlin_harvester_gpu_node_layout", "harvesters", "gpu", "ansible_host", "layout"])
def test_variables_of_the_user_are_left_alone(name: str) -> None:
    assert check_names([name], NAMES) == []


def test_a_name_like_that_of_a_connection_is_worth_a_warning() -> None:
    (warning,) = check_names(["vcenter_hostnme"], NAMES)
    assert "vcenter_hostnme has no effect" in warning
    assert "Did you mean vcenter_hostname?" in warning


def test_a_name_that_serves_another_purpose_can_be_ignored() -> None:
    assert check_names(["gpu_operator_namespaces"], NAMES, ignored=["gpu_operator_namespaces"]) == []


def test_a_role_checks_only_its_own_variables() -> None:
    assert check_names(["vgpu_drift_layuot"], NAMES, role="harvester_gpu_node") == []
    assert "harvester_gpu_node_profile" in refused("harvester_gpu_node_profil", role="harvester_gpu_node")


@settings(deadline=None)
@given(name=st.sampled_from(sorted(NAMES.documented)), where=st.integers(min_value=0), letter=st.sampled_from("aqz_"))
def test_one_wrong_letter_is_never_accepted(name: str, where: int, letter: str) -> None:
    where %= len(name)
    wrong = name[:where] + letter + name[where + 1 :]
    assume(wrong not in NAMES.used)
    assert f"The variable {wrong} is unknown. Did you mean " in refused(wrong)


@given(WORDS, WORDS)
def test_typos_are_counted_in_both_directions_and_only_none_means_equal(first: str, second: str) -> None:
    assert typos(first, second) == typos(second, first)
    assert (typos(first, second) == 0) == (first == second)
    assert typos(first, second) >= min(abs(len(first) - len(second)), MOST_TYPOS + 1)


@pytest.mark.parametrize("path", sorted((CHECKOUT / "roles").glob("*/tasks/main.yml")), ids=lambda path: path.parts[-3])
def test_every_role_checks_the_names_first(path: Path) -> None:
    assert "vgpu.fleet.check_variables" in yaml.safe_load(path.read_text())[0]


@pytest.mark.parametrize("playbook", sorted((CHECKOUT / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_every_playbook_on_clusters_checks_the_names_first(playbook: Path) -> None:
    play = yaml.safe_load(playbook.read_text())[0]
    first = (play.get("pre_tasks") or play["tasks"])[0]
    assert ("vgpu.fleet.check_variables" in first) == (playbook.stem != "awx_setup")


def test_private_variables_of_a_role_are_not_misspelt_ones() -> None:
    names = Names(("gpu_operator_",), frozenset(), frozenset({"gpu_operator_state"}))
    assert check_names(["__gpu_operator_state"], names, role="gpu_operator") == []
