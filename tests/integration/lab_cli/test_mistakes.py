"""What a user may get wrong: one clear line, exit code 1, and no traceback."""

from __future__ import annotations

import pytest


def assert_one_line(answer, *phrases):
    assert answer.returncode == 1
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("lab: ")
    for phrase in phrases:
        assert phrase in line


class TestNoLabThere:
    @pytest.mark.parametrize(
        "words", [("env",), ("reset",), ("advance", "5"), ("reboot", "gpu-a"), ("fault", "webhook-down"), ("logs",)]
    )
    def test_commands_that_need_a_lab_say_how_to_start_one(self, quick_command, tmp_path, words):
        answer = quick_command(*words, run_dir=tmp_path / "nothing")
        assert_one_line(answer, str(tmp_path / "nothing"), "Start a lab: make -s lab ARGS=")

    def test_status_says_so_and_fails(self, quick_command, tmp_path):
        answer = quick_command("status", run_dir=tmp_path / "nothing")
        assert (answer.returncode, answer.stdout) == (1, f"No lab is running in {tmp_path / 'nothing'}.\n")

    def test_down_has_nothing_to_do(self, quick_command, tmp_path):
        answer = quick_command("down", run_dir=tmp_path / "nothing")
        assert (answer.returncode, answer.stderr) == (0, "")
        assert not (tmp_path / "nothing").exists()


def test_it_is_told_by_the_real_command_too(command, tmp_path):
    assert_one_line(command("reboot", "gpu-a", run_dir=tmp_path / "nothing"), "Start a lab: make -s lab ARGS=")


class TestUp:
    def test_an_unknown_scenario_is_named_with_the_known_ones(self, quick_command, tmp_path):
        answer = quick_command("up", "--scenario", "nosuch", run_dir=tmp_path / "run")
        assert_one_line(answer, "There is no scenario or file 'nosuch'", "default", "mixed")
        assert not (tmp_path / "run").exists()

    def test_a_directory_with_something_else_in_it_is_left_alone(self, quick_command, tmp_path):
        (tmp_path / "thesis.txt").write_text("mine")
        assert_one_line(quick_command("up", run_dir=tmp_path), "is not empty and does not belong to a lab")
        quick_command("down", run_dir=tmp_path)
        assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]

    def test_a_lab_that_runs_is_not_started_twice(self, quick_command, run_dir):
        assert_one_line(
            quick_command("up", run_dir=run_dir), "A lab is already running in", "make -s lab ARGS='down --"
        )

    @pytest.mark.parametrize("speed", ["-1", "nan", "inf"])
    def test_a_clock_does_not_run_backwards(self, quick_command, tmp_path, speed):
        assert_one_line(quick_command("up", f"--speed={speed}", run_dir=tmp_path / "run"), "--speed must be")
        assert not (tmp_path / "run").exists()

    def test_an_unknown_version_is_named_with_the_known_ones(self, quick_command, tmp_path):
        answer = quick_command("up", "--harvester-version", "2.0", run_dir=tmp_path / "run")
        assert answer.returncode == 2
        assert "invalid choice: '2.0'" in answer.stderr
        assert "Traceback" not in answer.stderr

    @pytest.mark.parametrize(
        ("text", "phrase"),
        [
            ("nodes: [", "is not valid YAML"),
            ("colour: blue", "colour"),
            ("nodes: 3", "nodes"),
            ("nodes: [{gpus: []}]", "name"),
            ('nodes: [{name: a, gpus: [{address: "0000:08:00.0"}]}]', "board"),
            ('nodes: [{name: a, gpus: [{address: "0000:08:00.0", board: X9}]}]', "There is no board 'X9'"),
            ('nodes: [{name: a, gpus: [{address: "08:00.0", board: A2}]}]', "'08:00.0' is not a PCI address"),
            ("nodes: [{name: a}, {name: a}]", "names a node twice"),
            ("addons: {pcidevice-controller: false}", "pcidevice-controller"),
            ("nodes: [{name: gpu, count: 3}]", "needs a placeholder for the number"),
            ('nodes: [{name: "gpu-{n}", count: 0}]', "not a number of at least 1"),
        ],
    )
    def test_a_mistake_in_a_scenario_file_is_told_in_one_line(self, quick_command, tmp_path, text, phrase):
        file = tmp_path / "mine.yaml"
        file.write_text(text + "\n")
        assert_one_line(quick_command("up", "--scenario", file, run_dir=tmp_path / "run"), phrase)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("words", "phrase"),
        [(("--nodes", "3"), "0 nodes with a count"), (("--scenario", "fleet", "--nodes", "0"), "at least 1")],
    )
    def test_a_number_of_nodes_is_for_scenarios_that_have_one(self, quick_command, tmp_path, words, phrase):
        assert_one_line(quick_command("up", *words, run_dir=tmp_path / "run"), phrase)


class TestWrongNames:
    def test_an_unknown_fault_is_named_with_the_known_ones(self, quick_command, run_dir):
        answer = quick_command("fault", "nosuch", run_dir=run_dir)
        assert_one_line(answer, "There is no fault 'nosuch'", "webhook-down", "apiserver-restart")

    @pytest.mark.parametrize("words", [("reboot", "nosuch"), ("fault", "driver-missing", "--node", "nosuch")])
    def test_an_unknown_node_is_named_with_the_known_ones(self, quick_command, run_dir, words):
        assert_one_line(quick_command(*words, run_dir=run_dir), "There is no node 'nosuch'", "gpu-a, gpu-b")

    def test_a_fault_of_the_whole_cluster_takes_no_node(self, quick_command, run_dir):
        assert_one_line(quick_command("fault", "webhook-down", "--node", "gpu-a", run_dir=run_dir), "webhook-down")

    def test_an_unknown_part_has_no_log(self, quick_command, run_dir):
        assert_one_line(quick_command("logs", "nosuch", run_dir=run_dir), "nosuch", "kube-apiserver")

    def test_time_does_not_run_backwards(self, quick_command, run_dir):
        answer = quick_command("advance", "--", "-5", run_dir=run_dir)
        assert_one_line(answer, "cannot be moved backwards")
