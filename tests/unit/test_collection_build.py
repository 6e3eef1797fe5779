"""The tarball holds the product and nothing else, and its metadata agrees with what is in it."""

from __future__ import annotations

import re
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

import pytest
import yaml

from tools.stage import listed

CHECKOUT = Path(__file__).resolve().parents[2]
GALAXY = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text())
TARBALL = CHECKOUT / "build/dist" / "{namespace}-{name}-{version}.tar.gz".format(**GALAXY)

PRODUCT = {
    *("CHANGELOG.rst", "LICENSE", "README.md", "requirements.txt"),
    *("CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("FILES.json", "MANIFEST.json"),
    *("awx", "changelogs", "docs", "extensions", "meta", "monitoring", "playbooks", "plugins", "roles", "tests"),
}
ACTION_GROUPS = ("capv", "harvester", "rancher", "vsphere")


def files_in(tarball: Path) -> set[PurePosixPath]:
    with tarfile.open(tarball) as archive:
        return {PurePosixPath(member.name) for member in archive if member.isfile()}


def tracked_files() -> list[Path]:
    names = listed(CHECKOUT, "--cached", "--others", "--exclude-standard")
    return [path for name in sorted(names) if (path := CHECKOUT / name).is_file()]


@pytest.fixture(scope="module")
def tarball_from_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(["ansible-galaxy", "collection", "build", "--output-path", folder], cwd=CHECKOUT, check=True)
    return folder / TARBALL.name


@pytest.mark.parametrize(
    "name",
    [
        *("CHANGELOG.rst", "LICENSE", "README.md", "requirements.txt"),
        *("changelogs/changelog.yaml", "docs/architecture.md"),
        *("meta/execution-environment.yml", "meta/runtime.yml", "tests/config.yml"),
    ],
)
def test_the_tarball_has(name: str) -> None:
    assert PurePosixPath(name) in files_in(TARBALL)


def test_the_tarball_has_the_product_only() -> None:
    assert {path.parts[0] for path in files_in(TARBALL)} <= PRODUCT
    assert {path.parts[1] for path in files_in(TARBALL) if path.parts[0] == "tests"} <= {"config.yml", "sanity"}


def test_a_tarball_built_in_the_checkout_has_the_product_only_too(tarball_from_checkout: Path) -> None:
    """And what somebody keeps beside it, which ansible-galaxy cannot know."""
    own = {name.split("/")[0] for name in listed(CHECKOUT, "--others", "--exclude-standard")}
    known = {name.split("/")[0] for name in listed(CHECKOUT, "--cached")}
    assert {path.parts[0] for path in files_in(tarball_from_checkout)} - (own - known) <= PRODUCT


def test_every_python_file_of_the_plugins_is_in_the_tarball() -> None:
    plugins = {path.relative_to(CHECKOUT) for path in tracked_files() if CHECKOUT / "plugins" in path.parents}
    assert {PurePosixPath(path) for path in plugins} <= files_in(TARBALL)


def test_the_changelog_ends_with_the_version_of_the_collection() -> None:
    changelog = yaml.safe_load((CHECKOUT / "changelogs/changelog.yaml").read_text())
    newest = max(changelog["releases"], key=lambda version: tuple(map(int, version.split("."))))
    assert newest == GALAXY["version"]
    assert f"v{newest}\n" in (CHECKOUT / "CHANGELOG.rst").read_text()


@pytest.mark.parametrize("group", ACTION_GROUPS)
def test_an_action_group_lists_its_modules(group: str) -> None:
    listed = yaml.safe_load((CHECKOUT / "meta/runtime.yml").read_text())["action_groups"][group]
    own = {path.stem for path in CHECKOUT.glob(f"plugins/modules/{group}_*.py")}
    # Modules for both platforms; Rancher's group connects to Rancher, that of Cluster API to a management cluster.
    both = set() if group in ("capv", "rancher") else {path.stem for path in CHECKOUT.glob("plugins/modules/vgpu_*.py")}
    # The connection of kubernetes.core is the one of Harvester, unless a role says otherwise.
    session = {"kubernetes_session"} if group == "harvester" else set()
    assert listed == sorted(own | both | session)


def test_there_are_no_other_action_groups() -> None:
    groups = yaml.safe_load((CHECKOUT / "meta/runtime.yml").read_text())["action_groups"]
    assert tuple(groups) == ACTION_GROUPS


def test_no_sanity_check_is_ignored() -> None:
    assert not list(CHECKOUT.glob("tests/sanity/ignore*.txt"))


def test_requirements_pin_every_package_and_name_no_index() -> None:
    lines = (CHECKOUT / "requirements/dev.txt").read_text().splitlines()
    assert [line for line in lines if not re.match(r"[a-z0-9.-]+==[\w.]+( ; .+)?$", line)] == []


def test_no_file_names_a_package_index() -> None:
    option = re.compile(rb"(?:--(?:extra-)?index-url|--find-links|\bindex-url|GOPROXY)\s*[= ]\s*['\"]?\w+://")
    assert [path for path in tracked_files() if option.search(path.read_bytes())] == []


def test_help_shows_every_target() -> None:
    targets = set(re.findall(r"^\.PHONY: ([a-z-]+)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    shown = subprocess.run(["make", "help"], cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout
    assert targets == set(re.findall(r"^  ([a-z-]+) ", shown, re.MULTILINE))
    assert {"demo", "test", "lint", "unit", "integration", "sanity", "replay", "lab", "lab-up", "lab-down"} <= targets
    assert {"playbook", "bench", "docs", "clean", "help"} <= targets


def test_the_collections_that_roles_and_playbooks_use_are_dependencies() -> None:
    used: dict[str, set[str]] = {}
    for path in tracked_files():
        name = path.relative_to(CHECKOUT)
        if name.parts[0] in ("roles", "playbooks") and path.suffix == ".yml":
            for collection in re.findall(
                r"(?:^|[\s('\"])([a-z]+\.[a-z]+)\.[a-z_0-9]+:$", path.read_text(), re.MULTILINE
            ):
                used.setdefault(collection, set()).add(str(name))
    assert set(used) - {"ansible.builtin", "vgpu.fleet", "awx.awx"} == set(GALAXY["dependencies"])
    # Only administrators of AWX need it, and the README names it.
    assert {path for path in used["awx.awx"] if "awx" not in path} == set()
    assert "awx.awx" in (CHECKOUT / "README.md").read_text()
