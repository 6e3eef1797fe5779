# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Owner mark and creation stage of a VM, stored in its extraConfig. Pure.

A clone inherits the extraConfig of its source, so every creation writes both keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....errors import FleetError

DEFAULT_OWNER = "vgpu.fleet"
OWNER = "vgpu.fleet.owner"
STAGE = "vgpu.fleet.stage"
# The clone exists. The cloud-init data and the settings that need a newer hardware version are not written yet.
CLONED = "cloned"
COMPLETE = "complete"


class NotOurs(FleetError):
    code = "vm_not_ours"


class Unfinished(FleetError):
    code = "vm_unfinished"


@dataclass(frozen=True)
class Mark:
    owner: str = ""
    stage: str = ""

    @property
    def unfinished(self) -> bool:
        """Return whether the creation is incomplete. VMs not created by this collection have no stage."""
        return self.stage not in ("", COMPLETE)


def mark_of(extra_config: Mapping[str, str]) -> Mark:
    """Return the mark of a VM. vSphere returns keys in their original case or in lower case."""
    folded = {key.casefold(): value for key, value in extra_config.items()}
    return Mark(folded.get(OWNER, ""), folded.get(STAGE, ""))


@dataclass(frozen=True)
class OwnerClaim:
    """The owner of a task, and the grounds on which the task may change a VM with another owner mark."""

    owner: str = DEFAULT_OWNER
    adopt: bool = False
    # The task identifies the VM by uuid or moid.
    certain: bool = False
    # The task names the location of the VM.
    placed: bool = False

    def refuse_foreign(self, path: str, mark: Mark) -> None:
        """Reject a VM of another owner unless the task identifies the VM by uuid or moid."""
        if mark.owner and mark.owner != self.owner and not self.certain:
            raise NotOurs(
                f"VM {path} belongs to owner {mark.owner}, and this task acts for owner {self.owner}.",
                hint="Nothing was changed. Use another name or the owner that made it, or name the VM by moid or uuid.",
            )

    def refuse_to_delete(self, path: str, moid: str, mark: Mark) -> None:
        if not self.certain and not self.adopt and mark.owner != self.owner:
            raise NotOurs(
                f"VM {path} does not carry the mark of owner {self.owner}, so it is not deleted by its name.",
                hint="Nothing was changed. A VM made by other means is deleted with adopt: true, or by its uuid or its"
                f" moid, {moid}.",
            )

    def refuse_to_stop(self, path: str, moid: str, mark: Mark) -> None:
        if not self.certain and not self.adopt and not self.placed and mark.owner != self.owner:
            raise NotOurs(
                f"VM {path} does not carry the mark of owner {self.owner}, so it is not stopped by its name alone.",
                hint="Nothing was changed. Say where it is (datacenter, folder, cluster, resource_pool or esxi_host),"
                f" name it by its uuid or its moid, {moid}, or take it over with adopt: true.",
            )

    def wanted(self, mark: Mark) -> dict[str, str]:
        """Return the extraConfig that adopts the VM."""
        return {OWNER: self.owner} if self.adopt and mark.owner != self.owner else {}


def refuse_to_start_unfinished(path: str, mark: Mark) -> None:
    if mark.unfinished:
        raise Unfinished(
            f"VM {path} was cloned but never finished: what cloud-init needs has not been written, so it is not"
            " powered on.",
            hint="Run the task that creates it again, with template and cloud_init. It finishes the VM.",
        )
