# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting until the machines of a cluster are ready, or until one of them has failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import FleetError
from ..kube.client import ApiClient
from ..kube.watcher import Watcher
from .machines import FAILED, READY, MachineRecord, records
from .plan import Namespace
from .read import Reading
from .request import CONTROL_PLANE
from .versions import ApiVersions

WATCHED = ("KubeadmControlPlane", "MachineDeployment", "Machine", "VSphereMachine", "VSphereVM", "Cluster")


class MachinesFailed(FleetError):
    """A machine has a condition that waiting does not change, or the time for waiting is over."""

    changed = True

    def __init__(self, message: str, machines: list[MachineRecord], *, hint: str, code: str = "machine_failed") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.machines = machines

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "machines": [machine.as_dict() for machine in self.machines]}


@dataclass(frozen=True)
class Expected:
    """The machines that a KubeadmControlPlane or MachineDeployment is to have."""

    group: str
    kind: str
    name: str
    replicas: int

    @property
    def title(self) -> str:
        return "The control plane" if self.group == CONTROL_PLANE else f"Pool {self.group}"

    def is_rolled_out(self, controller: Mapping[str, Any] | None) -> bool:
        """Return whether the controller has seen the request and all machines are up to date."""
        if controller is None:
            return False
        status = controller.get("status") or {}
        if int(status.get("observedGeneration") or 0) < int(controller["metadata"].get("generation") or 0):
            return False
        current = status.get("upToDateReplicas", status.get("updatedReplicas")) or 0
        return int(status.get("replicas") or 0) == self.replicas == int(current)


@dataclass(frozen=True)
class MachineWait:
    api: ApiClient
    versions: ApiVersions
    namespace: str
    cluster: str
    expected: Sequence[Expected]

    def until_ready(self, reading: Reading, seconds: float) -> None:
        """Wait on one stream of changes. Raise MachinesFailed with all machines if they do not become ready."""
        kinds = [kind for kind in WATCHED if self.versions.serves(kind)]
        paths = {kind: self.versions.path(kind, self.namespace) for kind in kinds}
        lists = {path: reading.lists[path] for path in paths.values()}
        with Watcher(self.api, lists, seconds=seconds) as seen:

            def now() -> Namespace:
                return Namespace(
                    {
                        kind: {str(item["metadata"]["name"]): item for item in seen.items(path).values()}
                        for kind, path in paths.items()
                    }
                )

            seen.describe = lambda: self._description(now())
            seen.find_cause = lambda: self.failure(now())
            done = seen.until(lambda: not self.missing(now()))
            there = now()
        if not done:
            raise self.failure(there) or self._timeout(there, seconds)

    def machines(self, there: Namespace) -> list[MachineRecord]:
        groups = {expectation.group for expectation in self.expected}
        found = records(there.machine_objects(self.cluster), self.cluster)
        return [machine for machine in found if machine.group in groups]

    def missing(self, there: Namespace) -> list[str]:
        """Return what the cluster still lacks, in words."""
        found = []
        machines = self.machines(there)
        for expectation in self.expected:
            own = [machine for machine in machines if machine.group == expectation.group]
            if not expectation.is_rolled_out(there.get(expectation.kind, expectation.name)):
                found.append(f"{expectation.title} has not created or replaced all machines")
            elif len(own) != expectation.replicas:
                found.append(f"{expectation.title} has {len(own)} of {expectation.replicas} machines")
            found += [machine.sentence for machine in own if machine.state != READY]
        return found

    def _description(self, there: Namespace) -> str:
        ready = sum(machine.state == READY for machine in self.machines(there))
        return f"{ready} of {sum(expectation.replicas for expectation in self.expected)} machines are ready"

    def failure(self, there: Namespace) -> MachinesFailed | None:
        machines = self.machines(there)
        failed = [machine for machine in machines if machine.state == FAILED]
        if not failed:
            return None
        said = "; ".join(machine.sentence for machine in failed)
        return MachinesFailed(
            f"{said}.",
            machines,
            hint="The events of the VM in vCenter name the cause. The provider repeats the operation: run the task"
            " again once the cause is gone.",
        )

    def _timeout(self, there: Namespace, seconds: float) -> MachinesFailed:
        said = "; ".join(self.missing(there)) or "the cluster is ready now"
        return MachinesFailed(
            f"Cluster {self.cluster} is not ready after {seconds:.0f} seconds: {said}.",
            self.machines(there),
            hint="Nodes need a network plugin and the cloud provider of vSphere to become ready. Run the task again to"
            " continue.",
            code="timeout",
        )
