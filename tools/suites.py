"""Run test suites, several at a time: suites.py [--at-a-time N] [--may-be-empty] SUITE ... -- COMMAND ...

A suite mostly waits for one thing after the other, so two of them share two cores well. The output of several is
shown in one piece, each when it has ended.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

NO_TESTS = 5
# The end of a terminal is told to every process in it. The suites are to hear of it from here, as of any other end.
DEAF_TO_HANGUPS = ("env", "--ignore-signal=HUP")
running: set[subprocess.Popen[str]] = set()


def run(suite: str, command: list[str], *, live: bool) -> tuple[str, int, str, float]:
    began = time.monotonic()
    kept = {} if live else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    if live:
        print(suite, flush=True)
    suite_run = subprocess.Popen([*DEAF_TO_HANGUPS, *command, suite], text=True, **kept)  # type: ignore[call-overload]
    running.add(suite_run)
    output, _nothing = suite_run.communicate()
    running.discard(suite_run)
    return suite, suite_run.returncode, output or "", time.monotonic() - began


def stop(*_signal: object) -> None:
    """End as by Ctrl-C, which lets pytest stop its labs; no further suite is begun."""
    for one in list(running):
        one.send_signal(signal.SIGINT)
    sys.exit(1)


def main() -> int:
    words = sys.argv[1:]
    split = words.index("--")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-a-time", type=int, default=1)
    parser.add_argument("--may-be-empty", action="store_true", help="a suite without a matching test is no failure")
    parser.add_argument("suites", nargs="+")
    chosen, command = parser.parse_args(words[:split]), words[split + 1 :]
    live = chosen.at_a_time == 1 or len(chosen.suites) == 1
    failed = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    pool = ThreadPoolExecutor(chosen.at_a_time)
    try:
        for done in as_completed([pool.submit(run, suite, command, live=live) for suite in chosen.suites]):
            suite, code, output, seconds = done.result()
            if not live:
                print(f"{suite} ({seconds:.0f} s)\n{output}", flush=True)
            if code and not (code == NO_TESTS and chosen.may_be_empty):
                failed.append(suite)
    finally:
        pool.shutdown(cancel_futures=True)
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
