"""Prepare a home folder for ansible-test, so that its caches stay in ours and its pip reaches the package index.

ansible-test keeps its environments below ~/.ansible/test, downloads a script to install pip, and hides every PIP_*
variable from the pip it starts. The folder made here holds a script that uses the pip Python brings along, and the
present pip settings as a file.
"""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from pathlib import Path

# The versions that ansible-test of ansible-core 2.16 and 2.17, 2.18 and 2.19, and 2.20 to 2.22 ask for.
PIPS_THAT_ANSIBLE_TEST_ASKS_FOR = ("23_1_2", "24_2", "25_2")

INSTALL_PIP = """\
import subprocess
import sys

# In a child: ensurepip hides the pip settings from the process it runs in.
subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"], stdout=subprocess.DEVNULL)
"""


def pip_settings() -> configparser.RawConfigParser:
    """What `pip config list` shows, environment over files as pip itself decides."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True)
    settings = configparser.RawConfigParser()
    settings["global"] = {"disable-pip-version-check": "true", "no-compile": "true"}
    from_environment = {}
    for line in listing.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        text = str(ast.literal_eval(value))
        if section == ":env:":
            from_environment[option] = text
        else:
            settings.setdefault(section, {})
            settings[section][option] = text
    settings["global"].update(from_environment)
    return settings


def main() -> None:
    home = Path(sys.argv[1])
    scripts = [home / f".ansible/test/cache/get_pip_{version}.py" for version in PIPS_THAT_ANSIBLE_TEST_ASKS_FOR]
    config = home / ".config/pip/pip.conf"
    for path in (*scripts, config):
        path.parent.mkdir(parents=True, exist_ok=True)
    for script in scripts:
        script.write_text(INSTALL_PIP)
    config.touch(mode=0o600)
    with config.open("w") as file:
        pip_settings().write(file)


if __name__ == "__main__":
    main()
