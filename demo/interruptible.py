"""Run a command that Ctrl-C ends for certain: interruptible.py COMMAND ...

ansible-core can wait for ever for a worker process that was interrupted while it held the lock of a queue. A command
that has not ended some seconds after Ctrl-C, or at a second one, is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys

GRACE_SECONDS = 20.0
INTERRUPTED = 130


def run(command: list[str], grace_seconds: float = GRACE_SECONDS) -> int:
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_signal: process.terminate())
    try:
        return process.wait()
    except KeyboardInterrupt:
        # Ctrl-C in a terminal has reached the command as well.
        pass
    try:
        process.wait(grace_seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
    return INTERRUPTED


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
