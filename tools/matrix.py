"""Check the built collection on every supported line of ansible-core: python -m tools.matrix [--line LINE ...]

Each line gets a virtual environment below build/matrix with a Python that it supports, the newest release of the line
and the run-time requirements of the collection, which are the oldest supported ones for the oldest line. The collection
is the tarball of build/dist. Collections that it depends on are those of the development environment. uv installs a
Python that this machine lacks. If it cannot, that is reported, and the line is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "build/matrix"
GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())
TARBALL = CHECKOUT / "build/dist" / "{namespace}-{name}-{version}.tar.gz".format(**GALAXY)
PLAYBOOKS = sorted(path.stem for path in (CHECKOUT / "playbooks").glob("*.yml"))
MODULES = sorted(path.stem for path in (CHECKOUT / "plugins/modules").glob("*.py"))
ROLES = sorted(path.name for path in (CHECKOUT / "roles").iterdir())
PLAYS = CHECKOUT / "tests/matrix"
# The dependency of the collection, and what the playbook awx_setup needs.
COLLECTIONS = ("kubernetes.core", "awx.awx")


class CheckFailed(Exception):
    """A check did not pass; the message is its output."""


@dataclass(frozen=True)
class Line:
    """A minor version of ansible-core, and the Pythons that its controller supports, preferred first."""

    core: str
    pythons: tuple[str, ...]
    prerelease: bool = False
    # Whether the Python packages have the oldest supported versions instead of the newest.
    oldest_packages: bool = False

    @property
    def requirement(self) -> str:
        return f"ansible-core~={self.core}.0" + ("rc1" if self.prerelease else "")

    @property
    def packages(self) -> list[str]:
        """Return the run-time requirements of the collection, pinned to the oldest versions if asked for."""
        lines = [line.replace(" ", "") for line in (CHECKOUT / "requirements.txt").read_text().splitlines() if line]
        return [line.replace(">=", "==") if self.oldest_packages else line for line in lines]


def oldest_versions() -> dict[str, str]:
    """Return the oldest supported version of each run-time requirement."""
    lines = (CHECKOUT / "requirements.txt").read_text().splitlines()
    return {line.split()[0]: line.split(">=")[1].split(",")[0].strip() for line in lines if line}


# Between them, the preferred Pythons cover all versions that a controller may have.
LINES = (
    Line("2.16", ("3.10", "3.11", "3.12"), oldest_packages=True),
    Line("2.17", ("3.10", "3.11", "3.12")),
    Line("2.18", ("3.11", "3.12", "3.13")),
    Line("2.19", ("3.12", "3.11", "3.13")),
    Line("2.20", ("3.12", "3.13", "3.14")),
    Line("2.21", ("3.13", "3.12", "3.14")),
    Line("2.22", ("3.13", "3.14"), prerelease=True),
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment with one ansible-core and the collection installed for it."""

    line: Line
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv/bin/python"

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables of a user who has activated this environment."""
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "SSL_CERT_FILE") if name in os.environ}
        return {
            **kept,
            "PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
            "ANSIBLE_REMOTE_TEMP": str(self.folder / "tmp"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
        }

    def run(self, *command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """Run a program of the environment and return its output, or raise CheckFailed."""
        done = subprocess.run(
            [str(self.python.parent / command[0]), *command[1:]],
            env={**self.variables, **(env or {})},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CheckFailed(f"{' '.join(command)[:200]}\n{(done.stdout + done.stderr)[-4000:]}")
        return done.stdout

    @property
    def versions(self) -> tuple[str, str]:
        """Return the versions of ansible-core and of Python."""
        code = "import platform, ansible.release as r; print(r.__version__, platform.python_version())"
        core, python = self.run("python", "-c", code).split()
        return core, python


def find_python(line: Line) -> str | None:
    """Return the first supported Python of this machine, on the path, of pyenv or of uv, which may install it."""
    for version in line.pythons:
        installed = sorted(
            str(found) for root in _pyenv_roots() for found in root.glob(f"{version}.*/bin/python{version}")
        )
        for candidate in (f"python{version}", *installed):
            try:
                # A shim of pyenv is on the path even if it leads nowhere.
                subprocess.run([candidate, "-c", "import venv"], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            return candidate
    for version in line.pythons:
        if found := _python_of_uv(version):
            return found
    return None


def _pyenv_roots() -> list[Path]:
    """Return the folders with the Pythons of pyenv. The home folder of a test may be another one."""
    shims = [Path(folder).parent for folder in os.environ.get("PATH", "").split(":") if folder.endswith("/shims")]
    named = [Path(os.environ["PYENV_ROOT"])] if os.environ.get("PYENV_ROOT") else []
    return [root / "versions" for root in dict.fromkeys([*named, Path.home() / ".pyenv", *shims])]


def _python_of_uv(version: str) -> str | None:
    """Return a Python that uv has or can download. Where it cannot, because there is no network, return None."""
    try:
        subprocess.run(["uv", "python", "install", "--quiet", version], check=True, capture_output=True, timeout=300)
        found = subprocess.run(["uv", "python", "find", version], check=True, capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def prepare(line: Line, folder: Path = FOLDER) -> Environment | None:
    """Create the environment of a line, or return None if this machine has no Python for it."""
    environment = Environment(line, folder / line.core)
    stamp = environment.folder / "venv/.requirements"
    wanted = "\n".join([line.requirement, *line.packages])
    if not stamp.exists() or stamp.read_text() != wanted:
        python = find_python(line)
        if python is None:
            return None
        shutil.rmtree(environment.folder, ignore_errors=True)
        environment.folder.mkdir(parents=True)
        subprocess.run([python, "-m", "venv", environment.folder / "venv"], check=True)
        _install(environment, line.requirement, *line.packages)
        stamp.write_text(wanted)
    _install_collections(environment)
    for name in ("home", "tmp"):
        (environment.folder / name).mkdir(exist_ok=True)
    return environment


def _install(environment: Environment, *requirements: str) -> None:
    """Install packages with uv, or with pip where uv cannot reach the package index."""
    uv = ["uv", "pip", "install", "--quiet", "--prerelease", "if-necessary-or-explicit"]
    if subprocess.run([*uv, "--python", environment.python, *requirements], check=False).returncode:
        subprocess.run([environment.python, "-m", "pip", "install", "--quiet", *requirements], check=True)


def _install_collections(environment: Environment) -> None:
    root = environment.folder / "collections/ansible_collections"
    shutil.rmtree(root, ignore_errors=True)
    for name in COLLECTIONS:
        target = root / name.replace(".", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(_bundled(name))
    environment.run("ansible-galaxy", "collection", "install", "--offline", "-p", str(root.parent), str(TARBALL))


def _bundled(name: str) -> Path:
    """Return the folder of a collection in the development environment."""
    import ansible_collections

    return next(
        found for base in ansible_collections.__path__ if (found := Path(base) / name.replace(".", "/")).exists()
    )


# Checks. Each raises CheckFailed, or returns a word for the table.

# Ask each question of docs/query-examples.md, of a fleet without anything.
_ASK = r"""
import importlib.metadata, json, re, sys
import jmespath
page, packages = open(sys.argv[1]).read(), sys.argv[2:]
queries = re.findall(r"json_query\(\s*([\"'])(.*?)\1", page, re.DOTALL)
for _quote, query in queries:
    jmespath.search(query, {"nodes": [], "vms": [], "findings": [], "gpus": [], "vgpus": []})
print(json.dumps({"queries": len(queries), **{name: importlib.metadata.version(name) for name in packages}}))
"""


def check_packages(environment: Environment) -> str:
    """Import the run-time requirements, at the oldest versions for the oldest line, and ask JMESPath the questions."""
    oldest = oldest_versions()
    page = str(CHECKOUT / "docs/query-examples.md")
    found = json.loads(environment.run("python", "-c", _ASK, page, *oldest))
    if not found.pop("queries"):
        raise CheckFailed("docs/query-examples.md has no question with json_query")
    if environment.line.oldest_packages and found != oldest:
        raise CheckFailed(f"Installed are {found} instead of {oldest}")
    return ", ".join(f"{name} {version}" for name, version in found.items())


def check_syntax(environment: Environment) -> str:
    """Parse every playbook."""
    environment.run("ansible-playbook", "--syntax-check", *(f"vgpu.fleet.{name}" for name in PLAYBOOKS))
    return f"{len(PLAYBOOKS)} playbooks"


def check_documentation(environment: Environment) -> str:
    """Render the documentation of every module and role."""
    modules = json.loads(environment.run("ansible-doc", "--json", *(f"vgpu.fleet.{name}" for name in MODULES)))
    if undocumented := [name for name in MODULES if "doc" not in modules.get(f"vgpu.fleet.{name}", {})]:
        raise CheckFailed(f"No documentation: {', '.join(undocumented)}")
    roles = json.loads(
        environment.run("ansible-doc", "--type", "role", "--json", *(f"vgpu.fleet.{name}" for name in ROLES))
    )
    if undocumented := [name for name in ROLES if not roles.get(f"vgpu.fleet.{name}", {}).get("entry_points")]:
        raise CheckFailed(f"No argument specification: {', '.join(undocumented)}")
    return f"{len(MODULES)} modules, {len(ROLES)} roles"


def check_sanity(environment: Environment) -> str:
    """Run ansible-test sanity of this ansible-core."""
    home = environment.folder / "home"
    environment.run("python", str(CHECKOUT / "tools/ansible_test_home.py"), str(home))
    collection = environment.folder / "collections/ansible_collections/vgpu/fleet"
    version = ".".join(environment.versions[1].split(".")[:2])
    # ansible-test leaves out what git ignores, and build/ is ignored, so the collection becomes a repository.
    for command in (("init", "--quiet"), ("add", "--all", "--force")):
        subprocess.run(["git", *command], cwd=collection, check=True)
    output = environment.run("ansible-test", "sanity", "--local", "--python", version, cwd=collection)
    if "All targets skipped" in output:
        raise CheckFailed(output)
    return "passed"


def on_lab(variables: Callable[[], Mapping[str, str]], playbook: Path) -> Callable[[Environment], str]:
    """Return a check that runs a playbook against a lab, whose addresses change when it starts over."""

    def check(environment: Environment) -> str:
        environment.run("ansible-playbook", str(playbook), env=variables())
        return "passed"

    return check


Check = tuple[str, Callable[[Environment], str]]
CHECKS: tuple[Check, ...] = (
    ("packages", check_packages),
    ("syntax", check_syntax),
    ("documentation", check_documentation),
    ("sanity", check_sanity),
)


@dataclass(frozen=True)
class Row:
    core: str
    python: str
    results: tuple[str, ...]
    failures: tuple[str, ...]


def check_line(line: Line, checks: Iterable[Check]) -> Row:
    environment = prepare(line)
    if environment is None:
        return Row(line.core, "not on this machine", tuple("" for _ in checks), ())
    core, python = environment.versions
    results, failures = [], []
    for name, check in checks:
        began = time.monotonic()
        try:
            results.append(check(environment))
        except CheckFailed as failure:
            results.append("failed")
            failures.append(f"ansible-core {core}, {name}:\n{failure}")
        print(
            f"ansible-core {core}, Python {python}: {name}: {results[-1]} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
    return Row(core, python, tuple(results), tuple(failures))


def table(rows: Iterable[Row], checks: Iterable[Check]) -> str:
    heading = ["ansible-core", "Python", *(name for name, _ in checks)]
    lines = [heading, ["---"] * len(heading), *([row.core, row.python, *row.results] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--line", action="append", choices=[line.core for line in LINES], help="only this line; repeatable"
    )
    parser.add_argument("--table", type=Path, help="also write the table to this file")
    parser.add_argument("--without-lab", action="store_true", help="skip the checks that need a lab")
    parser.add_argument("--without-sanity", action="store_true", help="skip ansible-test sanity, which takes minutes")
    chosen = parser.parse_args()
    lines = [line for line in LINES if not chosen.line or line.core in chosen.line]
    checks = [check for check in CHECKS if not (chosen.without_sanity and check[0] == "sanity")]
    rows = [check_line(line, checks) for line in lines] if chosen.without_lab else _with_lab(lines, checks)
    shown = table(rows, checks)
    print(shown)
    if chosen.table:
        chosen.table.write_text(shown)
    failures = [failure for row in rows for failure in row.failures]
    print("\n\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


def _with_lab(lines: list[Line], checks: list[Check]) -> list[Row]:
    from lab.lifecycle import up

    folder = FOLDER / "lab"
    shutil.rmtree(folder, ignore_errors=True)
    run = up.start(folder, speed=50.0)
    try:
        for name, play in (("every module", "modules.yml"), ("whole cluster", "cluster.yml")):
            checks.append((name, on_lab(lambda: up.environment(run), PLAYS / play)))
        rows = []
        for line in lines:
            up.reset(run)
            rows.append(check_line(line, checks))
        return rows
    finally:
        up.stop(run)


if __name__ == "__main__":
    sys.exit(main())
