#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: probe
short_description: Do whatever a module may do
description:
  - Shows how a module was run, and ends in every way in which a module can end.
options:
  say:
    description: What to return.
    type: str
    default: ""
  number:
    description: A number.
    type: int
  secret:
    description: Something that must not be shown.
    type: str
  end:
    description: How to end.
    type: str
    default: exit
    choices: [exit, fail, raise, return, die, hang, silent]
  wait_for:
    description: A file whose appearance ends the wait.
    type: path
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

import os
import sys
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.vgpu.fleet.plugins.module_utils import progress

LEFT_BEHIND: list[str] = []


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "say": {"type": "str", "default": ""},
            "number": {"type": "int"},
            "secret": {"type": "str", "no_log": True},
            "end": {
                "type": "str",
                "default": "exit",
                "choices": ["exit", "fail", "raise", "return", "die", "hang", "silent"],
            },
            "wait_for": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    if params["say"] == "warn":
        module.warn("A warning of the module.")
        module.deprecate("An option is old.", version="9.0.0", collection_name="vgpu.probe")
    if params["say"] == "noise":
        print("a library talks")
        sys.stderr.write("and complains\n")
        os.write(1, b"so does its C code\n")
    if params["say"] == "progress":
        reporter = progress.Reporter()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and progress.is_shown():
            reporter.update("half of it is done", 30)
            if time.monotonic() > deadline - 60 + progress.FIRST_SECONDS + 0.5:
                break
            time.sleep(0.1)
    if params["end"] == "hang":
        while not os.path.exists(params["wait_for"] or ""):
            time.sleep(0.02)
    if params["end"] == "raise":
        raise ValueError("an unexpected error")
    if params["end"] == "return":
        return
    if params["end"] == "die":
        os._exit(3)
    if params["end"] == "silent":
        sys.exit(4)
    LEFT_BEHIND.append(params["say"])
    result = {
        "said": params["say"],
        "number": params["number"],
        "secret": params["secret"],
        "left_behind": LEFT_BEHIND,
        "check": module.check_mode,
        "colour": os.environ.get("PROBE_COLOUR"),
        "interpreter": sys.executable,
        "folder": os.getcwd(),
        "temporary": os.path.isdir(module.tmpdir),
        "standard_input": sys.stdin.read() if not os.isatty(0) else None,
        "changed": params["say"] == "changed",
        "diff": {"before": "a\n", "after": f"{params['say']}\n"},
        # Not a part of the comparison.
        "pid": os.getpid(),
        "parent": os.getppid(),
        "in_process": "ansible.plugins.strategy" in sys.modules,
    }
    if params["end"] == "fail":
        module.fail_json(msg=f"failed with {params['secret']}", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
