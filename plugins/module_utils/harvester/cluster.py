# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connect to a Harvester cluster and read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..fleet.model import Fleet
from ..kube import connection as access
from ..kube.client import ApiClient
from .decide.in_use import protect_running_vms
from .read import snapshot as snapshots
from .read.snapshot import Snapshot
from .version import HarvesterVersion


@dataclass(frozen=True)
class Cluster:
    """A Harvester cluster: its API and the snapshot that the task read from it."""

    api: ApiClient
    snapshot: Snapshot
    # The option harvester_version. None means the version was read from the cluster.
    version_option: str | None = None

    @classmethod
    def connect(cls, params: Mapping[str, Any]) -> Cluster:
        """Connect with a module's options and read a snapshot."""
        api = ApiClient(access.from_options(params), fail_fast=params.get("fail_fast", True))
        version = params.get("harvester_version")
        return cls(api, snapshots.read(api, version), version)

    def read_again(self) -> Cluster:
        """Return the cluster with a new snapshot."""
        return replace(self, snapshot=snapshots.read(self.api, self.version_option))

    @property
    def version(self) -> HarvesterVersion:
        return self.snapshot.version

    @cached_property
    def fleet_for_planning(self) -> Fleet:
        """Return the fleet to plan changes with: every vGPU that a running VM may have is protected."""
        return protect_running_vms(self.snapshot.fleet)
