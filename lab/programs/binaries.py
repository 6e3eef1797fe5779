"""The Go programs a lab runs: each built once from pinned modules, kept in a cache, and reused.

`bin/<module>-<key>/<name>` in the cache directory, where the key covers the pins, our own Go
sources and the build flags. Go's own caches live beside it; the compiler's objects of a module
are dropped once all of its programs exist, since they are several times larger than the programs
and a change of the pins would recompile nearly everything anyway.

The programs of a module are built by one call of Go, which keeps all cores busy while one of them links.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.programs import compiler, progress
from lab.programs.compiler import cache_dir

GO_SOURCES = Path(__file__).resolve().parents[1] / "go"
BUILD_FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")

Tick = Callable[[], None]


@dataclass(frozen=True)
class GoModule:
    name: str
    # What it is called while it is compiled.
    title: str
    # Modules whose versions the programs report, and the packages with the variables that hold them.
    versions: tuple[tuple[str, str], ...] = ()
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
    # What it adds to the programs above it, from empty caches: packages to compile, and their CPU seconds
    # (docs/performance.md).
    packages: int
    seconds: float
    in_kubebuilder_assets: bool = False

    @property
    def step(self) -> progress.Step:
        return progress.Step(self.name, self.packages, self.seconds)


VSPHERE = GoModule("vsphere", "the lab's vCenter", keep_objects=True)
CLUSTER = GoModule(
    "cluster",
    "Kubernetes and KubeVirt",
    versions=(
        ("k8s.io/kubernetes", "k8s.io/component-base/version"),
        ("kubevirt.io/kubevirt", "kubevirt.io/client-go/version"),
    ),
    overridden="kubevirt.io/client-go",
)

# In the order in which they are built.
BINARIES = {
    binary.name: binary
    for binary in (
        Binary("vgpu-vcsim", VSPHERE, ".", 260, 69),
        # The simulator of govmomi without our additions: a second vCenter for the tests.
        Binary("stock-vcsim", VSPHERE, "./stock", 1, 3),
        Binary("etcd", CLUSTER, "go.etcd.io/etcd/server/v3", 560, 110, in_kubebuilder_assets=True),
        Binary(
            "kube-apiserver", CLUSTER, "k8s.io/kubernetes/cmd/kube-apiserver", 1500, 490, in_kubebuilder_assets=True
        ),
        Binary("virt-api", CLUSTER, "./virt-api", 245, 60),
        Binary("virt-controller", CLUSTER, "kubevirt.io/kubevirt/cmd/virt-controller", 70, 40),
        Binary("kube-scheduler", CLUSTER, "k8s.io/kubernetes/cmd/kube-scheduler", 60, 37),
        Binary("kube-controller-manager", CLUSTER, "k8s.io/kubernetes/cmd/kube-controller-manager", 320, 91),
    )
}
# Upkeep alone needs this one: a lab has its output as a file (lab/kubernetes/kubevirt_manifests.json).
MANIFESTS = Binary("kubevirt-manifests", CLUSTER, "./kubevirt-manifests", 1, 5)
# For `make helm` alone: no lab runs it.
HELM = Binary("helm", GoModule("helm", "helm"), "helm.sh/helm/v3/cmd/helm", 950, 190)


def ensure(names: Iterable[str], while_building: Tick = lambda: None) -> dict[str, Path]:
    """Return the paths of the named programs, and build those that are missing.

    `while_building` is called twice a second; what it raises ends the build.
    """
    wanted = {name: _lookup(name) for name in dict.fromkeys(names)}
    _build_missing(list(wanted.values()), while_building)
    return {name: _existing(binary) or cached_path(binary) for name, binary in wanted.items()}


def ensure_manifests() -> Path:
    """Return the program that prints KubeVirt's manifests."""
    _build_missing([MANIFESTS], lambda: None)
    return cached_path(MANIFESTS)


def ensure_helm() -> Path:
    """Return the path of helm."""
    _build_missing([HELM], lambda: None)
    return cached_path(HELM)


def missing(names: Iterable[str] = tuple(BINARIES)) -> list[str]:
    """Return the named programs that are not built yet."""
    return [name for name in names if not _existing(_lookup(name))]


def status() -> str | None:
    """Return the progress of a running compilation, whichever process runs it."""
    folders = [
        f"Compiling {module.title}: {running}"
        for module in (VSPHERE, CLUSTER)
        if _is_locked(module) and (running := _state_of_running(module))
    ]
    return folders[0] if folders else None


def cached_path(binary: Binary) -> Path:
    return cache_dir() / "bin" / cache_key(binary.module) / binary.name


def cache_key(module: GoModule) -> str:
    """Return a key that changes with the pinned versions, our own sources and the build flags."""
    digest = hashlib.sha256()
    for path in sorted(_sources(module)):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(module.directory).as_posix()}\0{len(content)}\0".encode() + content)
    digest.update("\0".join([*_build_arguments(module), platform.system(), platform.machine()]).encode())
    return f"{module.name}-{digest.hexdigest()[:16]}"


def pinned_version(module: GoModule, dependency: str) -> str:
    """Return the version of a dependency in go.mod."""
    match = re.search(rf"^(?:require)?\s*{re.escape(dependency)} (v\S+)", _go_mod(module), re.MULTILINE)
    if not match:
        raise LabError(f"{module.directory / 'go.mod'} does not require {dependency}.")
    return match[1]


def _lookup(name: str) -> Binary:
    try:
        return BINARIES[name]
    except KeyError:
        raise LabError(f"There is no lab program {name}.", hint=f"Available programs: {', '.join(BINARIES)}.") from None


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
        raise LabError(f"KUBEBUILDER_ASSETS is {assets}, which is not a directory.", hint="Correct or unset it.")
    return Path(assets) / binary.name


def _sources(module: GoModule) -> Iterator[Path]:
    for pattern in ("go.mod", "go.sum", "*.go"):
        yield from module.directory.rglob(pattern)


def _go_mod(module: GoModule) -> str:
    try:
        return (module.directory / "go.mod").read_text()
    except FileNotFoundError:
        raise LabError(
            f"{module.directory} does not contain a Go module.", hint="The checkout is incomplete."
        ) from None


def _build_arguments(module: GoModule) -> list[str]:
    return [*BUILD_FLAGS, f"-ldflags={' '.join(_linker_flags(module))}"]


def _linker_flags(module: GoModule) -> list[str]:
    flags = ["-s", "-w"]
    for versioned, package in module.versions:
        version = pinned_version(module, versioned)
        major, minor, *_ = version.removeprefix("v").split(".")
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        flags += [f"-X={package}.{variable}={value}" for variable, value in values.items()]
    return flags


def _build_missing(wanted: list[Binary], tick: Tick) -> None:
    modules = dict.fromkeys(binary.module for binary in (*BINARIES.values(), *wanted))
    groups = [[binary for binary in wanted if binary.module == module and not _existing(binary)] for module in modules]
    groups = [group for group in groups if group]
    if not groups:
        return
    go = compiler.find(max(_required_go(group[0].module) for group in groups))
    with _downloading(go, groups[1:]):
        for group in groups:
            with _build_lock(group[0].module, tick):
                # Whoever held the lock may have built them meanwhile.
                _build([binary for binary in group if not _existing(binary)], go, tick)


def _build(binaries: list[Binary], go: Path, tick: Tick) -> None:
    if not binaries:
        return
    module = binaries[0].module
    folder = cached_path(binaries[0]).parent
    unfinished = folder / f".unfinished.{os.getpid()}"
    unfinished.mkdir(parents=True, exist_ok=True)
    log = _log(module)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    running = _Running([binary.name for binary in binaries], time.time())
    _record(module).write_text(json.dumps(vars(running)))
    command = [
        str(go),
        "build",
        "-v",
        f"-p={compiler.parallel_jobs()}",
        *_override_arguments(go, module),
        *_build_arguments(module),
        "-o",
        f"{unfinished}/",
        *(binary.package for binary in binaries),
    ]
    names = ", ".join(binary.name for binary in binaries)
    print(f"Compiling {module.title} (only once): {names}.", file=sys.stderr)
    line = progress.Line(f"Compiling {module.title}")

    def tick_and_show() -> None:
        tick()
        line.show(running.state(log))

    try:
        env = compiler.environment(_objects(module))
        code = compiler.run(command, cwd=module.directory, env=env, log=log, tick=tick_and_show)
        if code:
            raise LabError(f"Building {names} failed:\n{_tail(log)}", hint=f"The full output is in {log}.")
        for binary in binaries:
            os.replace(unfinished / _output_name(binary), cached_path(binary))
        line.close(f"done after {progress.minutes(time.time() - running.started)}.")
    finally:
        line.close()
        shutil.rmtree(unfinished, ignore_errors=True)
        _record(module).unlink(missing_ok=True)
    _drop_objects_if_complete(module)


def _output_name(binary: Binary) -> str:
    """What Go calls a program: the last word of its package's path, except for a major version."""
    words = [binary.module.name, *binary.package.split("/")]
    return next(word for word in reversed(words) if word != "." and not re.fullmatch(r"v\d+", word))


@contextmanager
def _downloading(go: Path, groups: list[list[Binary]]) -> Iterator[None]:
    """Fetch what later builds need while the first one keeps the cores busy. A failure shows when it is their turn."""
    downloads = []
    for group in groups:
        module = group[0].module
        _objects(module).mkdir(parents=True, exist_ok=True)
        downloads.append(
            subprocess.Popen(
                [str(go), "list", "-e", "-deps", "-mod=readonly", *(binary.package for binary in group)],
                cwd=module.directory,
                env=compiler.environment(_objects(module)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
    try:
        yield
    finally:
        for download in downloads:
            compiler.end(download)


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
        env=compiler.environment(_objects(module)),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return Path(json.loads(answer.stdout)["Dir"])
    except (ValueError, KeyError):
        raise LabError(f"{dependency} could not be downloaded: {answer.stdout}{answer.stderr}") from None


def _objects(module: GoModule) -> Path:
    return cache_dir() / "go" / f"objects-{module.name}"


def _drop_objects_if_complete(module: GoModule) -> None:
    complete = all(cached_path(binary).exists() for binary in BINARIES.values() if binary.module == module)
    if complete and not module.keep_objects:
        shutil.rmtree(_objects(module), ignore_errors=True)


def _required_go(module: GoModule) -> tuple[int, ...]:
    match = re.search(r"^go (\S+)$", _go_mod(module), re.MULTILINE)
    return compiler.as_version(match[1]) if match else (0,)


@dataclass(frozen=True)
class _Running:
    """A build that is under way, as whoever waits for it finds it on disk."""

    names: list[str]
    started: float

    def state(self, log: Path) -> progress.State:
        known = {**BINARIES, MANIFESTS.name: MANIFESTS, HELM.name: HELM}
        steps = [known[name].step for name in self.names]
        return progress.state(steps, progress.packages_in(log), time.time() - self.started, compiler.parallel_jobs())


def _state_of_running(module: GoModule) -> progress.State | None:
    try:
        return _Running(**json.loads(_record(module).read_text())).state(_log(module))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        # It has not begun yet, has just ended, or belongs to another version of the lab.
        return None


def _record(module: GoModule) -> Path:
    return cache_dir() / f"build-{module.name}.json"


def _log(module: GoModule) -> Path:
    return cache_dir() / "logs" / f"build-{module.name}.log"


def _lock_file(module: GoModule) -> Path:
    return cache_dir() / f"build-{module.name}.lock"


def _is_locked(module: GoModule) -> bool:
    try:
        with _lock_file(module).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def _build_lock(module: GoModule, tick: Tick) -> Iterator[None]:
    """One build of a module at a time per user: two would only take turns on the same cores."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with _lock_file(module).open("w") as lock:
        line: progress.Line | None = None
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                tick()
                if line is None:
                    print(f"Waiting for another process that compiles {module.title}.", file=sys.stderr)
                    line = progress.Line(f"Compiling {module.title}")
                line.show(_state_of_running(module) or "starting or finishing")
                time.sleep(compiler.POLL_SECONDS)
        if line is not None:
            line.close()
        yield


def _tail(log: Path, lines: int = 15) -> str:
    """What the compiler said last, apart from the names of packages."""
    text = log.read_text(errors="replace").splitlines()
    return "\n".join([line for line in text if " " in line][-lines:])
