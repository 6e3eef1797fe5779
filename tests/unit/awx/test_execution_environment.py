"""The execution environment can be made: ansible-builder accepts its definition and finds what the collection needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).parents[3]
GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())
TARBALL = CHECKOUT / "build/dist" / "{namespace}-{name}-{version}.tar.gz".format(**GALAXY)


def ansible_builder(*arguments: str | Path) -> str:
    command = [str(Path(sys.executable).with_name("ansible-builder")), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_build_context_is_made_from_the_definition(tmp_path: Path) -> None:
    ansible_builder("create", "-f", CHECKOUT / "awx/execution-environment.yml", "-c", tmp_path)
    recipe = next(tmp_path.glob("*file")).read_text()
    assert "quay.io/centos/centos:stream9" in recipe
    final = recipe.partition(" AS final")[2]
    assert re.search(r"go install helm\.sh/helm/v3/cmd/helm@v3\.\d+\.\d+\b", final)
    # F8: AWX starts jobs with an SSH key by ssh-agent.
    system = (tmp_path / "_build/bindep.txt").read_text()
    assert {"git-core", "openssh-clients", "sshpass"} <= {line.split()[0] for line in system.splitlines() if line}
    ours, kubernetes = yaml.safe_load((tmp_path / "_build/requirements.yml").read_text())["collections"]
    assert kubernetes["name"] == "kubernetes.core"
    # The tarball of this checkout, where ansible-galaxy looks for it: beside the requirements.
    assert ours == {"name": f"dist/{TARBALL.name}", "type": "file"}
    assert (tmp_path / "_build" / ours["name"]).read_bytes() == TARBALL.read_bytes()


def test_the_collection_tells_which_python_packages_it_needs() -> None:
    found = ansible_builder("introspect", CHECKOUT / "build/collections")
    packages = [line for line in yaml.safe_load(found)["python"] if line.endswith("# from collection vgpu.fleet")]
    assert {line.split()[0].lower() for line in packages} == {"kubernetes", "pyvmomi", "jmespath", "urllib3"}
