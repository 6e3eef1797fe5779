"""Programs of Ansible without their start-up: a process that has imported them already forks itself for each run.

They are the same programs with the same arguments and environment, and a module is packed once, not in each run.
Started by `Forks`; reads one run a line from its input and answers each with the exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The Python whose Ansible runs the tasks, unless it is the one that runs the tests.
PYTHON_VARIABLE = "VGPU_FLEET_TEST_PYTHON"
PLAYBOOK = "ansible-playbook"
INVENTORY = "ansible-inventory"


class Forks:
    """Runs of ansible-playbook and ansible-inventory from one process, whose own environment is that of the first."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        python = os.environ.get(PYTHON_VARIABLE) or sys.executable
        self._process = subprocess.Popen(
            [python, __file__], env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        *,
        program: str = PLAYBOOK,
        errors: Path | None = None,
        folder: Path | None = None,
    ) -> int:
        """Return the exit code. Standard output is in `output`, and so is standard error unless it goes to `errors`."""
        run = {
            "program": program,
            "arguments": arguments,
            "environment": environment,
            "output": str(output),
            "errors": str(errors or output),
            "folder": str(folder or Path.cwd()),
        }
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(run) + "\n")
        stdin.flush()
        answer = stdout.readline()
        assert answer, "the process that runs Ansible has ended"
        return int(answer)

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def _serve() -> None:
    # What takes the time. Each run is a fork, in which tasks of the collection are forked again.
    import pyVim.connect  # noqa: F401
    import urllib3  # noqa: F401
    import yaml  # noqa: F401
    from ansible.cli.inventory import main as inventory
    from ansible.cli.playbook import main as playbook

    programs = {PLAYBOOK: playbook, INVENTORY: inventory}
    for line in sys.stdin:
        run = json.loads(line)
        child = os.fork()
        if not child:
            _become(programs[run["program"]], run)
        _pid, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(main: Any, run: dict[str, Any]) -> None:
    code = 1
    try:
        os.environ.clear()
        os.environ.update(run["environment"])
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.chdir(run["folder"])
        written = os.open(run["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        together = run["errors"] == run["output"]
        errors = written if together else os.open(run["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for target, source in ((0, nothing), (1, written), (2, errors)):
            os.dup2(source, target)
        main([run["program"], *run["arguments"]])
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without the clean-up at exit, which is about a folder that the other runs use as well.
        os._exit(code)


if __name__ == "__main__":
    _serve()
