"""What to give Ansible as the interpreter of modules, so that they start warm: see warm_python.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

INSTALLED = Path(__file__).parents[2] / "build/installed"
SERVER = Path(__file__).with_name("warm_python.py")
# What modules import from elsewhere, by what they are for.
LIBRARIES = {
    "harvester": ("ansible.module_utils.basic", "urllib3", "yaml"),
    "rancher": (
        "ansible.module_utils.basic",
        "kubernetes.client.api_client",
        "kubernetes.client.rest",
        "kubernetes.config",
        "kubernetes.dynamic",
        "ansible_collections.kubernetes.core.plugins.module_utils.ansiblemodule",
        "ansible_collections.kubernetes.core.plugins.module_utils.k8s.runner",
    ),
    "vsphere": ("ansible.module_utils.basic", "pyVmomi", "pyVim.connect"),
}
LIBRARIES["everything"] = tuple(dict.fromkeys(library for libraries in LIBRARIES.values() for library in libraries))
# Utilities that they have no use for.
FOREIGN: dict[str, set[str]] = {
    "harvester": {"rancher", "vsphere"},
    "rancher": {"vsphere"},
    "vsphere": {"harvester", "rancher"},
    "everything": set(),
}
START_SECONDS = 300


@contextlib.contextmanager
def started(platform: str) -> Iterator[Path]:
    """An interpreter that has imported the installed collection's utilities for a platform."""
    collections = Path(os.environ.get("ANSIBLE_COLLECTIONS_PATH") or INSTALLED)
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        address, interpreter = Path(name) / "socket", Path(name) / "python"
        interpreter.write_text(
            f"#!{sys.executable} -IS\n"
            f"import sys\nsys.path.insert(0, {str(SERVER.parent)!r})\nimport warm_python\n"
            f"sys.exit(warm_python.request({str(address)!r}, sys.argv[1:]))\n"
        )
        interpreter.chmod(0o700)
        command = [sys.executable, str(SERVER), "serve", str(address), *LIBRARIES[platform]]
        command += _utilities(collections, platform)
        server = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(collections)}, process_group=0)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not address.exists():
                assert server.poll() is None, f"no warm interpreter: exit status {server.returncode}"
                assert time.monotonic() < deadline, "no warm interpreter in time"
                time.sleep(0.02)
            yield interpreter
        finally:
            # With the modules that still run.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _utilities(collections: Path, platform: str) -> Iterator[str]:
    top = collections / "ansible_collections/vgpu/fleet/plugins/module_utils"
    for file in sorted(top.rglob("*.py")):
        if file.name != "__init__.py" and file.relative_to(top).parts[0] not in FOREIGN[platform]:
            yield ".".join(file.relative_to(collections).with_suffix("").parts)
