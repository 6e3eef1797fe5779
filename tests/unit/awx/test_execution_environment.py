"""The execution environment can be made: ansible-builder accepts its definition and finds what the collection needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).parents[3]


def ansible_builder(*arguments: str | Path) -> str:
    command = [str(Path(sys.executable).with_name("ansible-builder")), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_build_context_is_made_from_the_definition(tmp_path: Path) -> None:
    ansible_builder("create", "-f", CHECKOUT / "awx/execution-environment.yml", "-c", tmp_path)
    assert "quay.io/centos/centos:stream9" in next(tmp_path.glob("*file")).read_text()
    wanted = yaml.safe_load((tmp_path / "_build/requirements.yml").read_text())["collections"]
    assert {one["name"] for one in wanted} == {"vgpu.fleet", "kubernetes.core"}


def test_the_collection_tells_which_python_packages_it_needs() -> None:
    found = ansible_builder("introspect", CHECKOUT / "build/collections")
    packages = [line for line in yaml.safe_load(found)["python"] if line.endswith("# from collection vgpu.fleet")]
    assert {line.split()[0].lower() for line in packages} == {"kubernetes", "pyvmomi", "jmespath"}
