"""Pages of the documentation, run as a reader would: files as printed, then the commands in one shell, in order."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.integration.playbooks.runs import CHECKOUT, INSTALLED, NOT_INJECTED

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"^# (\S+\.ya?ml)\n")
MARK = "##### "


@dataclass(frozen=True)
class Page:
    files: Mapping[str, str]
    commands: list[str]
    # The output that the page shows, one text per block.
    shown: list[str]

    @classmethod
    def read(cls, name: str) -> Page:
        files, commands, shown = {}, [], []
        for language, text in BLOCK.findall((CHECKOUT / name).read_text()):
            if language == "console":
                commands += [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
            elif language == "yaml" and (named := FILE_NAME.match(text)):
                files[named[1]] = text
            elif language == "text":
                shown.append(text)
        return cls(files, commands, shown)


class Reader:
    """A reader with an own home folder, in which the kubeconfig of the page lies, and an own working directory."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = {
            **{name: value for name, value in environment.items() if not name.startswith(NOT_INJECTED)},
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
        }
        (folder / "home").mkdir()
        kubeconfig = Path(environment["KUBECONFIG"]).read_text()
        (folder / "home/harvester.yaml").write_text(kubeconfig)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)

    def follow(self, page: Page, *, leave_out: str = "") -> list[str]:
        """Run all commands of a page in one shell, and return the output of each."""
        self.write(page.files)
        chosen = [command for command in page.commands if not (leave_out and leave_out in command)]
        script = "\n".join(f"echo; echo '{MARK}'; {command}" for command in chosen)
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
        return done.stdout.split(f"\n{MARK}\n")[1:]
