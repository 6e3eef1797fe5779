"""The copy that the tarball is made of holds the product, also what is new in it, and nobody's own files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import stage


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("README.md", "plugins/modules/known.py", "lab/up.py"):
        write(tmp_path / name)
    for command in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("text\n")


@pytest.mark.parametrize("name", ["plugins/modules/new.py", "plugins/inventory/new.py"])
def test_a_new_file_in_a_folder_of_the_product_belongs_to_it(checkout: Path, name: str) -> None:
    write(checkout / name)
    assert stage.product_files(checkout, ["lab"]) == {"README.md", "plugins/modules/known.py", name}


@pytest.mark.parametrize("name", ["sriov.yml", "mine/sriov.yml", "lab/new.py"])
def test_a_new_file_elsewhere_is_somebodys_own(checkout: Path, name: str) -> None:
    write(checkout / name)
    assert stage.product_files(checkout, ["lab"]) == {"README.md", "plugins/modules/known.py"}


def test_a_file_that_was_deleted_is_not_looked_for(checkout: Path) -> None:
    (checkout / "plugins/modules/known.py").unlink()
    assert stage.product_files(checkout, ["lab"]) == {"README.md"}
