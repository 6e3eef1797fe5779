"""The oldest and the newest supported ansible-core parse every playbook and run every module.

`make matrix` does more, for all of them.
"""

from __future__ import annotations

import pytest

from tests.integration.labs import Lab
from tools import matrix

ENDS = (matrix.LINES[0], matrix.LINES[-1])


@pytest.mark.parametrize("line", ENDS, ids=[line.core for line in ENDS])
def test_a_supported_ansible_core_runs_every_module(line: matrix.Line, lab: Lab) -> None:
    environment = matrix.prepare(line)
    if environment is None:
        pytest.skip(
            f"ansible-core {line.core} needs Python {' or '.join(line.pythons)}, which this machine does not have."
        )
    matrix.check_packages(environment)
    matrix.check_syntax(environment)
    matrix.on_lab(lambda: lab.env, matrix.PLAYS / "modules.yml")(environment)
