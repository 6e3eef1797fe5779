# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The setting that decides whether running VMs with vGPUs can move to another host (vsphere.md 7.1)."""

from __future__ import annotations

from ..faults import Operation, VsphereError
from ..session import Session

HOT_MIGRATE = "vgpu.hotmigrate.enabled"


def hot_migrate(session: Session) -> bool:
    """Return whether running VMs with vGPUs can move. A setting that does not exist has its default, which is off."""
    manager = session.content.setting
    if manager is None:
        return False
    try:
        options = session.call(Operation(f"read the setting {HOT_MIGRATE}"), manager.QueryOptions, HOT_MIGRATE)
    except VsphereError as error:
        # vCenter raises InvalidName for a setting that was never written.
        if error.fault != "InvalidName":
            raise
        return False
    return any(str(option.value).casefold() == "true" for option in options or [] if option.key == HOT_MIGRATE)
