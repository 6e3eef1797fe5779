"""The demo ends at Ctrl-C, whatever it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
SCRIPT = CHECKOUT / "demo/interruptible.py"
DEAF = (
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('started', flush=True); time.sleep(600)"
)


def test_the_exit_code_is_that_of_the_command() -> None:
    assert subprocess.run([sys.executable, str(SCRIPT), sys.executable, "-c", "exit(7)"], check=False).returncode == 7


def test_a_command_that_does_not_hear_ctrl_c_is_killed_at_the_second_one() -> None:
    command = [sys.executable, str(SCRIPT), sys.executable, "-c", DEAF]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    assert process.stdout.readline() == "started\n"
    os.killpg(process.pid, signal.SIGINT)
    # The second one may come before the first has been looked at: then there is one more.
    while process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    assert process.returncode == 130
    # Its end of the pipe is closed only when the command is gone as well.
    assert process.stdout.read() == ""
