# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which versions of Rancher are warned about (M15)."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.compatibility import NEWEST, OLDEST, version_warning

PAGE = Path(__file__).parents[5] / "docs" / "compatibility.md"


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        ("v2.7.9", "too old"),
        ("v2.8.2", "too old"),
        ("v2.8.3", ""),
        ("v2.8.9", ""),
        ("v2.13.4", ""),
        ("v2.14.0", "outside the versions"),
        ("v3.0.0", "outside the versions"),
        ("master-head", ""),
        (None, ""),
    ],
)
def test_m15_versions_outside_the_matrix_are_warned_about(version: str | None, warning: str) -> None:
    said = version_warning(version)
    assert warning in said
    assert bool(said) is bool(warning)


def test_m15_the_page_has_a_row_for_each_supported_line() -> None:
    text = PAGE.read_text()
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        assert f"| {OLDEST[0]}.{minor}" in text
