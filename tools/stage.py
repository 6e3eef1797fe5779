"""Keep a copy of the collection at ansible_collections/NAMESPACE/NAME, where Ansible's tools want to find it.

The copy holds what the tarball will hold: the files git knows, without galaxy.yml's build_ignore. A file that git does
not know yet belongs to it in a folder with files that git knows, so that a new module can be tried; elsewhere it is
somebody's own.
The stamp is renewed only when something changed, so that make rebuilds what depends on the copy, and only then.
"""

from __future__ import annotations

import argparse
import filecmp
import fnmatch
import shutil
import subprocess
from pathlib import Path

import yaml


def product_files(checkout: Path, build_ignore: list[str]) -> set[str]:
    known = listed(checkout, "--cached")
    folders = {Path(name).parts[0] for name in known if "/" in name}
    new = {name for name in listed(checkout, "--others", "--exclude-standard") if Path(name).parts[0] in folders}
    return {name for name in known | new if (checkout / name).is_file() and not is_ignored(name, build_ignore)}


def listed(checkout: Path, *which: str) -> set[str]:
    command = ["git", "ls-files", "-z", *which]
    listing = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout
    return set(filter(None, listing.split("\0")))


def is_ignored(name: str, build_ignore: list[str]) -> bool:
    path = Path(name)
    candidates = [name, *(str(parent) for parent in path.parents)]
    return any(fnmatch.fnmatch(candidate, pattern) for candidate in candidates[:-1] for pattern in build_ignore)


def sync(checkout: Path, copy: Path, wanted: set[str]) -> bool:
    """Make `copy` hold exactly the wanted files; tell whether anything had to change."""
    changed = False
    for name in sorted(files_in(copy) - wanted):
        (copy / name).unlink()
        changed = True
    for name in sorted(wanted):
        source, target = checkout / name, copy / name
        if not target.is_file() or not same(source, target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
            changed = True
    remove_empty_folders(copy)
    return changed


def files_in(copy: Path) -> set[str]:
    names = (path.relative_to(copy) for path in copy.rglob("*") if path.is_file() or path.is_symlink())
    return {str(name) for name in names if ".git" not in name.parts and "__pycache__" not in name.parts}


def same(source: Path, target: Path) -> bool:
    return source.stat().st_mode == target.stat().st_mode and filecmp.cmp(source, target, shallow=False)


def remove_empty_folders(copy: Path) -> None:
    for folder in sorted((path for path in copy.rglob("*") if path.is_dir()), reverse=True):
        if ".git" not in folder.relative_to(copy).parts and not any(folder.iterdir()):
            folder.rmdir()


def make_git_tree(copy: Path) -> None:
    """ansible-test asks git for the files: without a repository here, the one of the checkout, which ignores build/."""
    if not (copy / ".git").exists():
        subprocess.run(["git", "-c", "init.defaultBranch=main", "init", "--quiet"], cwd=copy, check=True)
        (copy / ".git/info").mkdir(exist_ok=True)
        (copy / ".git/info/exclude").write_text("__pycache__/\n.ansible/\ntests/output/\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", type=Path, help="folder that holds ansible_collections")
    parser.add_argument("--stamp", type=Path, required=True, help="file to touch when the copy changed")
    args = parser.parse_args()

    checkout = Path(__file__).resolve().parent.parent
    galaxy = yaml.safe_load((checkout / "galaxy.yml").read_text())
    copy = args.collections / "ansible_collections" / galaxy["namespace"] / galaxy["name"]
    copy.mkdir(parents=True, exist_ok=True)

    changed = sync(checkout, copy, product_files(checkout, galaxy["build_ignore"]))
    make_git_tree(copy)
    if changed or not args.stamp.exists():
        args.stamp.touch()


if __name__ == "__main__":
    main()
