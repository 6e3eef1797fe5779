# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines of a cluster that anybody may have created, for modules that only read."""

from __future__ import annotations

from ..errors import FleetError, join_names
from ..kube.client import ApiClient, Json
from .machines import ClusterObjects, MachineRecord, records
from .ownership import labels_of
from .plan import Namespace, referenced
from .read import read
from .versions import discover
from .wait import Expected, MachineWait


class NoSuchDeployment(FleetError):
    code = "not_found"


def read_info(
    api: ApiClient, namespace: str, cluster: str, deployment: str = "", *, seconds: float | None = None
) -> Json:
    """Return versions, machines and templates. Wait up to `seconds` for the machines of the deployment."""
    versions = discover(api)
    reading = read(api, versions, namespace, cluster)
    if seconds is not None:
        found = reading.objects.get("MachineDeployment", deployment)
        if found is None:
            there = join_names(
                deployment["metadata"]["name"] for deployment in reading.objects.all("MachineDeployment")
            )
            raise NoSuchDeployment(f"There is no MachineDeployment {deployment}.", hint=f"There are: {there}.")
        replicas = int((found.get("spec") or {}).get("replicas") or 0)
        expected = Expected(deployment, "MachineDeployment", deployment, replicas)
        _Wait(api, versions, namespace, cluster, [expected]).until_ready(reading, seconds)
        reading = read(api, versions, namespace, cluster)
    machines = records(_objects(reading.objects), cluster)
    chosen = [machine for machine in machines if not deployment or machine.group == deployment]
    return {
        "api_versions": versions.as_dict(),
        "machines": [machine.as_dict() for machine in chosen],
        "templates": _templates(reading.objects),
    }


class _Wait(MachineWait):
    """Pools are called like their deployments: names of other people follow no pattern."""

    def machines(self, there: Namespace) -> list[MachineRecord]:
        groups = {expectation.group for expectation in self.expected}
        return [record for record in records(_objects(there), self.cluster) if record.group in groups]


def _objects(there: Namespace) -> ClusterObjects:
    return ClusterObjects(there.all("Machine"), there.all("VSphereMachine"), there.all("VSphereVM"))


def _templates(there: Namespace) -> list[Json]:
    used = referenced(there)
    return [
        {
            "name": template["metadata"]["name"],
            "used": ("VSphereMachineTemplate", template["metadata"]["name"]) in used,
            "labels": labels_of(template),
        }
        for template in sorted(there.all("VSphereMachineTemplate"), key=lambda item: str(item["metadata"]["name"]))
    ]
