# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Create, change and delete a cluster in a management cluster, and wait for its machines."""

from __future__ import annotations

import base64
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import FleetError
from ..kube.client import ApiClient, Conflict, Json, NotFound
from ..kube.watcher import Watcher
from . import manifests, plan as plans
from .machines import ClusterObjects, MachineRecord, records
from .ownership import is_ours
from .plan import DELETE, UPDATE, Namespace, Plan, Step
from .read import Reading, read
from .request import ClusterRequest
from .versions import ADDONS, KUBEADM_GROUPS, ApiVersions, discover
from .wait import WATCHED, Expected, MachinesFailed, MachineWait

ATTEMPTS = 10
# Fields that this version of the API does not have are refused, not dropped.
STRICT = "fieldValidation=Strict"


class NoKubeconfig(FleetError):
    code = "no_kubeconfig"
    changed = True


@dataclass
class ClusterResult:
    request: ClusterRequest
    versions: ApiVersions
    steps: list[Step] = field(default_factory=list)
    machines: list[MachineRecord] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    kubeconfig: str = ""
    wrote_kubeconfig: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.plan.kept

    def as_result(self) -> Json:
        said = [step.said for step in self.steps]
        return {
            "changed": bool(self.steps) or self.wrote_kubeconfig,
            "cluster": {
                "name": self.request.name,
                "namespace": self.request.namespace,
                "api_versions": self.versions.as_dict(),
                "kubeconfig": self.kubeconfig,
            },
            "machines": [machine.as_dict() for machine in self.machines],
            "pools_replaced": sorted(self.plan.rolls),
            "steps": said,
            "kept": list(self.plan.kept),
            "diff": {"prepared": "".join(f"{line}\n" for line in said)},
        }


class ClusterChange:
    def __init__(self, api: ApiClient, request: ClusterRequest, *, wait: bool, seconds: float) -> None:
        self._api = api
        self._request = request
        self._wait = wait
        self._seconds = seconds
        self._versions = discover(api, (*KUBEADM_GROUPS, *((ADDONS,) if request.addons else ())))

    # Reading
    def _read(self) -> Reading:
        wanted = manifests.objects(self._request, self._versions) if self._request.server else []
        secrets = [body["metadata"]["name"] for body in wanted if body["kind"] == "Secret"]
        return read(self._api, self._versions, self._request.namespace, self._request.name, secrets=secrets)

    def _machines(self, there: Namespace) -> list[MachineRecord]:
        return records(there.machine_objects(self._request.name), self._request.name)

    # Creating and changing
    def ensure(self, *, check_mode: bool, kubeconfig: str = "") -> ClusterResult:
        reading = self._read()
        plan = plans.plan(self._request, self._versions, reading.objects)
        result = ClusterResult(self._request, self._versions, list(plan.steps), self._machines(reading.objects), plan)
        # The API server checks every object before the first is written.
        for step in plan.steps:
            self._send(step, dry_run=True)
        if check_mode:
            return result
        for step in plan.steps:
            self._send(step)
        if plan.changed:
            reading = self._read()
        if self._wait:
            try:
                reading = self._until_ready(reading)
            except FleetError as error:
                error.changed = plan.changed
                raise
            result.steps += self._clean(reading)
        result.machines = self._machines(reading.objects)
        if kubeconfig and self._wait:
            result.wrote_kubeconfig = self._write_kubeconfig(kubeconfig)
            result.kubeconfig = kubeconfig
        return result

    def _send(self, step: Step, *, dry_run: bool = False) -> None:
        query = f"?{STRICT}&dryRun=All" if dry_run else f"?{STRICT}"
        path = self._versions.path(step.kind, self._request.namespace)
        if step.action == DELETE:
            if not dry_run:
                self._delete(step)
        elif step.action == UPDATE:
            self._update(step, query)
        else:
            self._api.post(f"{path}{query}", step.body)

    def _update(self, step: Step, query: str) -> None:
        path = self._versions.path(step.kind, self._request.namespace, step.name)
        for attempt in range(ATTEMPTS):
            try:
                self._api.put(f"{path}{query}", plans.updated(self._api.get(path), step.body))
                return
            except Conflict:
                # Controllers write to these objects as well.
                if attempt == ATTEMPTS - 1:
                    raise

    def _delete(self, step: Step) -> None:
        try:
            self._api.delete(self._versions.path(step.kind, self._request.namespace, step.name), uid=step.uid)
        except NotFound:
            return

    def _clean(self, reading: Reading) -> list[Step]:
        """Delete the templates that the replaced machines leave behind."""
        wanted = manifests.objects(self._request, self._versions)
        steps = plans.unused_templates(self._request, reading.objects, wanted)
        for step in steps:
            self._delete(step)
        return steps

    def _until_ready(self, reading: Reading) -> Reading:
        expected = [
            Expected(
                group.name,
                *(
                    ("KubeadmControlPlane", self._request.name)
                    if group.is_control_plane
                    else ("MachineDeployment", manifests.deployment_name(self._request.name, group.name))
                ),
                group.replicas,
            )
            for group in self._request.groups
        ]
        wait = MachineWait(self._api, self._versions, self._request.namespace, self._request.name, expected)
        wait.until_ready(reading, self._seconds)
        return self._read()

    # The kubeconfig of the new cluster
    def _write_kubeconfig(self, path: str) -> bool:
        """Write the kubeconfig that Cluster API made, if the file differs. Return whether it did."""
        name = f"{self._request.name}-kubeconfig"
        secret = self._api.get_or_none(self._versions.path("Secret", self._request.namespace, name))
        value = ((secret or {}).get("data") or {}).get("value")
        if not value:
            raise NoKubeconfig(
                f"Secret {self._request.namespace}/{name} has no kubeconfig.", hint="Run the task again."
            )
        content = base64.b64decode(value)
        target = Path(path).expanduser()
        if target.is_file() and target.read_bytes() == content and target.stat().st_mode & 0o077 == 0:
            return False
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(target)
        return True

    # Removing
    def remove(self, *, check_mode: bool, foreign_pools: bool) -> ClusterResult:
        reading = self._read()
        plan = plans.removal(self._request, reading.objects, foreign_pools=foreign_pools)
        result = ClusterResult(self._request, self._versions, list(plan.steps), self._machines(reading.objects), plan)
        if check_mode:
            return result
        first = [step for step in plan.steps if step.kind == "Cluster"]
        for step in first:
            self._delete(step)
        if first and not self._wait:
            # The provider needs the credentials and the templates until the machines are gone.
            result.steps = first
            kept = "The Secrets and templates of the cluster stay until its machines are gone. Run the task again then."
            result.plan = Plan(plan.steps, (*plan.kept, kept))
            return result
        if first:
            self._until_gone(reading)
            reading = self._read()
        for step in plan.steps:
            found = reading.objects.get(step.kind, step.name)
            if step not in first and found and is_ours(found, self._request.owner, self._request.name):
                self._delete(step)
        result.machines = self._machines(reading.objects)
        return result

    def _until_gone(self, reading: Reading) -> None:
        paths = [self._versions.path(kind, self._request.namespace) for kind in WATCHED]
        key = f"{self._request.namespace}/{self._request.name}"
        with Watcher(self._api, {path: reading.lists[path] for path in paths}, seconds=self._seconds) as seen:
            machine_path = self._versions.path("Machine", self._request.namespace)
            seen.describe = lambda: (
                f"waiting for the end of cluster {self._request.name}: {len(seen.items(machine_path))} machines in its"
                " namespace"
            )
            done = seen.until(lambda: seen.get(self._versions.path("Cluster", self._request.namespace), key) is None)
            machines, infra, vms = (
                list(seen.items(self._versions.path(kind, self._request.namespace)).values())
                for kind in ("Machine", "VSphereMachine", "VSphereVM")
            )
        if not done:
            left = records(ClusterObjects(machines, infra, vms), self._request.name)
            raise MachinesFailed(
                f"Cluster {self._request.name} still exists after {self._seconds:.0f} seconds. "
                + ("; ".join(machine.sentence for machine in left) or "It has no machines any more")
                + ".",
                left,
                hint="Run the task again to continue.",
                code="timeout",
            )
