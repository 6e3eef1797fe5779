"""U6: the collection, installed into an empty home as README says for a machine without a network."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from tools import matrix

README = (matrix.CHECKOUT / "README.md").read_text()


def test_u6_the_tarballs_that_readme_names_are_all_that_the_playbooks_need(tmp_path: Path) -> None:
    commands = re.search(r"## Install\n\n```console\n(.*?)```", README, re.DOTALL)
    assert commands is not None
    install, requirements = (line.removeprefix("$ ") for line in commands[1].strip().splitlines())
    assert install == "ansible-galaxy collection install vgpu.fleet"
    assert "download `vgpu-fleet-*.tar.gz` and `kubernetes-core-*.tar.gz`, and give both files to" in README
    kubernetes, awx = (tarball(name, tmp_path) for name in matrix.COLLECTIONS)

    refused = run(tmp_path, "ansible-galaxy", "collection", "install", "--offline", str(matrix.TARBALL))
    assert refused.returncode != 0
    assert "kubernetes.core" in refused.stderr
    done = run(tmp_path, "ansible-galaxy", "collection", "install", str(matrix.TARBALL), str(kubernetes))
    assert done.returncode == 0, done.stderr
    file = tmp_path / requirements.removeprefix("pip install -r ~/")
    assert file.read_text() == (matrix.CHECKOUT / "requirements.txt").read_text()

    names = [f"vgpu.fleet.{name}" for name in matrix.PLAYBOOKS]
    names.remove("vgpu.fleet.awx_setup")
    parsed = run(tmp_path, "ansible-playbook", "--syntax-check", *names)
    assert parsed.returncode == 0, parsed.stderr
    lacking = run(tmp_path, "ansible-playbook", "--syntax-check", "vgpu.fleet.awx_setup")
    assert "awx.awx" in lacking.stderr
    assert "| playbook `awx_setup` | the collection `awx.awx`: `ansible-galaxy collection install awx.awx` |" in README
    run(tmp_path, "ansible-galaxy", "collection", "install", str(awx))
    parsed = run(tmp_path, "ansible-playbook", "--syntax-check", "vgpu.fleet.awx_setup")
    assert parsed.returncode == 0, parsed.stderr


def tarball(name: str, folder: Path) -> Path:
    """A collection of the development environment as the file that Galaxy offers, without what PyPI's package lacks."""
    source = matrix._bundled(name).resolve()
    files = json.loads((source / "FILES.json").read_text())
    files["files"] = [entry for entry in files["files"] if (source / entry["name"]).exists()]
    listing = json.dumps(files).encode()
    manifest = json.loads((source / "MANIFEST.json").read_text())
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(listing).hexdigest()
    packed = folder / f"{name.replace('.', '-')}-{manifest['collection_info']['version']}.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
        for path, content in (("MANIFEST.json", json.dumps(manifest).encode()), ("FILES.json", listing)):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for entry in files["files"]:
            if entry["name"] != ".":
                archive.add(source / entry["name"], arcname=entry["name"], recursive=False)
    return packed


def run(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """As a user whose home is empty, and whose Python has no collections of its own."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
        "ANSIBLE_LOCALHOST_WARNING": "false",
    }
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
