"""Files that several clusters are written to while somebody reads them."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views import shared_file
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.shared_file import CannotWrite, rewrite


def test_a_file_is_replaced_in_one_step_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "fleet.prom"
    target.write_text("old\n")
    seen = []

    def replace(source: str, destination: Path) -> None:
        # The old text is there until the new one is complete.
        seen.append((Path(source).read_text(), target.read_text(), Path(source).suffix))
        os.rename(source, destination)

    monkeypatch.setattr(shared_file.os, "replace", replace)
    assert rewrite(str(target), lambda text: text + "new\n") == str(target)
    assert seen == [("old\nnew\n", "old\n", ".tmp")]
    assert target.read_text() == "old\nnew\n"
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.prom"]


def test_others_can_read_a_new_file_and_the_mode_of_an_old_one_stays(tmp_path: Path) -> None:
    target = tmp_path / "fleet.prom"
    rewrite(str(target), lambda _text: "one\n")
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    target.chmod(0o600)
    rewrite(str(target), lambda _text: "two\n")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "fleet.prom"
    target.write_text("old\n")

    def no_room(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_file.os, "fsync", no_room)
    with pytest.raises(CannotWrite, match=r"fleet.prom cannot be written: No space left on device\."):
        rewrite(str(target), lambda _text: "new\n")
    assert target.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.prom"]


def test_a_folder_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match=r"^/.*/none/fleet.prom cannot be written: No such file or directory\. Name"):
        rewrite(str(tmp_path / "none" / "fleet.prom"), lambda _text: "")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    rewrite(str(tmp_path / "fleet.prom"), lambda _text: "new\n", dry_run=True)
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_where_the_command_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rewrite("fleet.prom", lambda _text: "new\n") == str(tmp_path / "fleet.prom")


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    target = tmp_path / "fleet.prom"
    with ThreadPoolExecutor(8) as pool:
        for _result in pool.map(lambda number: rewrite(str(target), lambda text: f"{text}{number}\n"), range(40)):
            pass
    assert sorted(map(int, target.read_text().split())) == list(range(40))
