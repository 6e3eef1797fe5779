# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Result of a host graphics task, with the same keys in check mode. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..read.fleet import Snapshot
from ..result import records
from .plan import Plan


@dataclass(frozen=True)
class HostGraphicsResult:
    """A plan and the hosts after the changes. In check mode, the hosts are predicted."""

    plan: Plan
    after: Snapshot
    restarted: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        return [*self.plan.warnings, *self.failures, *self.plan.left_to_do(self.after)]

    @property
    def changed(self) -> bool:
        """Return whether a host was configured or Xorg restarted. A restart that failed changes nothing."""
        return bool(self.restarted) or any(change.write for change in self.plan.changes)

    def as_result(self) -> dict[str, Any]:
        return {
            "changed": self.changed,
            "hosts": self.plan.host_records(self.after),
            "gpus": records.gpu_records(self.after, self.after.fleet),
            "restarted": list(self.restarted),
            "diff": self.plan.diff(self.after),
        }
