"""Import the built collection as Ansible Galaxy does, and fail on any warning: python -m tools.galaxy_import TARBALL

galaxy-importer gets a virtual environment of its own below build/importer. Its runs of ansible-lint and ansible-test
are off, because `make lint` and `make sanity` run both with the profile of the project.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "build/importer"
REQUIREMENTS = CHECKOUT / "requirements/importer.txt"
CONFIGURATION = "[galaxy-importer]\nRUN_ANSIBLE_LINT = False\nRUN_ANSIBLE_TEST = False\n"
COMPLAINT = re.compile(r"^(WARNING|ERROR|CRITICAL)\b|error:", re.MULTILINE | re.IGNORECASE)


def prepare() -> Path:
    """Create the environment if it is not up to date, and return its Python."""
    python, stamp = FOLDER / "venv/bin/python", FOLDER / "venv/.requirements"
    wanted = REQUIREMENTS.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(FOLDER / "venv", clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS], check=True)
        stamp.write_text(wanted)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tarball", type=Path)
    tarball = parser.parse_args().tarball.resolve()
    python = prepare()
    home, configuration = FOLDER / "home", FOLDER / "galaxy-importer.cfg"
    home.mkdir(exist_ok=True)
    configuration.write_text(CONFIGURATION)
    # The importer leaves a file with its result in the working directory.
    done = subprocess.run(
        [python, "-m", "galaxy_importer.main", tarball],
        cwd=home,
        env={
            **os.environ,
            "HOME": str(home),
            "GALAXY_IMPORTER_CONFIG": str(configuration),
            "PATH": f"{python.parent}:{os.environ['PATH']}",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    complaints = COMPLAINT.search(done.stdout)
    print(done.stdout if done.returncode or complaints else done.stdout.splitlines()[-1])
    return 1 if done.returncode or complaints else 0


if __name__ == "__main__":
    sys.exit(main())
