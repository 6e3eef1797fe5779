# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Supported versions of Rancher (docs/compatibility.md). Pure."""

from __future__ import annotations

import re

VERSION_SETTING = "/apis/management.cattle.io/v3/settings/server-version"
OLDEST, NEWEST = (2, 8), (2, 13)
# The first release of the oldest line whose machine driver supports vGPUs.
FIRST_WITH_VGPUS = (2, 8, 3)

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def version_warning(text: str | None) -> str:
    """Return a warning for an unsupported version. Return an empty text for a supported or unknown version."""
    found = _VERSION.match(text or "")
    if found is None:
        return ""
    version = int(found[1]), int(found[2]), int(found[3])
    if version < FIRST_WITH_VGPUS:
        return f"Rancher {text} is too old: its machine driver has no vGPUs. Upgrade to 2.8.3 or newer."
    if not OLDEST <= version[:2] <= NEWEST:
        return (
            f"Rancher {text} is outside the versions that this collection is tested with, 2.8 to 2.13. See"
            " docs/compatibility.md."
        )
    return ""
