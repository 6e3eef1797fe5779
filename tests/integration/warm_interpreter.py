"""An environment in which modules of other collections start warm: see warm_python.py.

The interpreter is the one that users have, the one that runs Ansible, so tasks of this collection run in process as
theirs do. Where it starts a packed module, its first act is to hand that over to the warm process.
"""

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
START_SECONDS = 300
Warm = dict[str, str]
# Read by each interpreter as it starts.
HAND_OVER = """\
import os
import sys

if os.path.basename(sys.orig_argv[1] if len(sys.orig_argv) > 1 else "").startswith("AnsiballZ_"):
    sys.path.insert(0, {folder!r})
    import warm_python

    os._exit(warm_python.request({address!r}, sys.orig_argv[1:]))
"""


@contextlib.contextmanager
def started(platform: str) -> Iterator[Warm]:
    """What to add to the environment of Ansible, for what a platform's modules import."""
    collections = Path(os.environ.get("ANSIBLE_COLLECTIONS_PATH") or INSTALLED)
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        address = Path(name) / "socket"
        (Path(name) / "sitecustomize.py").write_text(HAND_OVER.format(folder=str(SERVER.parent), address=str(address)))
        command = [sys.executable, str(SERVER), "serve", str(address), *LIBRARIES[platform]]
        server = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(collections)}, process_group=0)
        try:
            deadline = time.monotonic() + START_SECONDS
            while not address.exists():
                assert server.poll() is None, f"no warm interpreter: exit status {server.returncode}"
                assert time.monotonic() < deadline, "no warm interpreter in time"
                time.sleep(0.02)
            yield {"PYTHONPATH": name}
        finally:
            # With the modules that still run.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
