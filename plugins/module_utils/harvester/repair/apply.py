# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repair KubeVirt's list of permitted devices, remove claims that vGPUs left behind, and restart controllers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...errors import FleetError, join_names
from ...kube.client import AdmissionDenied, Conflict, NotFound
from ...kube.objects import Json, ObjectList
from ...kube.watcher import Watcher
from .. import paths as r
from ..cluster import Cluster
from ..time_limit import SECONDS_PER_CLAIM
from .plan import (
    ClaimRepair,
    ControllerRepair,
    ListRepair,
    RepairRequest,
    described,
    gpus_of,
    not_offered,
    repair_claims,
    repair_controllers,
    repair_permitted_devices,
    unknown_list,
)

BASE_SECONDS = 60.0
# The controller starts, reads all devices of its node, and registers a device plugin for each type.
CONTROLLER_SECONDS = 180.0
CONFLICTS = 10
CONFLICT_PAUSE = 0.05
KUBEVIRT = f"{r.KUBEVIRTS}/{r.KUBEVIRT.rpartition('/')[2]}"


class ClaimsStillThere(FleetError):
    code = "timeout"
    changed = True


class NotOffered(FleetError):
    code = "timeout"
    changed = True


class ClaimRefused(FleetError):
    code = "refused"


@dataclass
class Repair:
    """One repair of a cluster. In check mode, requests are sent as dry runs."""

    cluster: Cluster
    request: RepairRequest
    check_mode: bool
    wait: bool
    seconds: float | None
    permitted: ListRepair | None = None
    claims: list[ClaimRepair] = field(default_factory=list)
    controllers: list[ControllerRepair] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    _pci_devices: Mapping[str, Json] = field(default_factory=dict)

    def run(self) -> Repair:
        snapshot = self.cluster.snapshot
        unknown_list(self.request, snapshot)
        if snapshot.version.vendor_vfio:
            self._pci_devices = ObjectList.of(self.cluster.api.get(r.PCI_DEVICES)).items
        if self.request.selects_claims:
            self.claims = repair_claims(self.request, snapshot, self.cluster.fleet_for_planning, self._pci_devices)
        if self.request.controllers is not None:
            pods = ObjectList.of(self.cluster.api.get(r.SYSTEM_PODS, labelSelector=r.PCIDEVICES_PODS)).items
            self.controllers = repair_controllers(self.request, snapshot, list(pods.values()))
        self._refuse_held()
        if self.request.permitted_devices:
            self._permit()
        if self.claims:
            self._remove_claims()
        if self.controllers:
            self._restart_controllers()
        return self

    def as_result(self) -> dict[str, Any]:
        """Return the keys that the module documents."""
        permitted = self.permitted
        names = [claim.name for claim in self.claims]
        return {
            "changed": bool(permitted or self.claims or self.controllers),
            "permitted_devices": {
                "added": list(permitted.added) if permitted else [],
                "deduplicated": list(permitted.removed) if permitted else [],
            },
            "claims": [claim.as_dict() for claim in self.claims],
            "controllers": [controller.as_dict() for controller in self.controllers],
            "diff": {
                "before": {
                    "permittedHostDevices": permitted.before if permitted else {},
                    "claims": names,
                    "restarted_pods": [],
                },
                "after": {
                    "permittedHostDevices": permitted.after if permitted else {},
                    "claims": [],
                    "restarted_pods": [controller.pod for controller in self.controllers],
                },
            },
        }

    def _refuse_held(self) -> None:
        names = {claim.name for claim in self.claims}.union(*(controller.vgpus for controller in self.controllers))
        gpus = gpus_of(self.cluster.snapshot, names)
        if any(r.JOURNAL_ANNOTATION in (gpu["metadata"].get("annotations") or {}) for gpu in gpus):
            # Most tasks find no journal.
            from ..apply import journal

            journal.refuse_held(gpus=gpus)

    def _permit(self) -> None:
        """Write the repaired list. The controllers write the same list, so compute it again after a conflict."""
        kubevirt = self.cluster.snapshot.get(r.KUBEVIRTS, r.KUBEVIRT)
        for attempt in range(CONFLICTS):
            self.permitted = repair_permitted_devices(kubevirt, self.cluster.snapshot, self._pci_devices)
            if self.permitted is None or kubevirt is None:
                return
            revision = kubevirt["metadata"].get("resourceVersion")
            body = {**self.permitted.patch, "metadata": {"resourceVersion": revision}}
            try:
                self.cluster.api.patch(KUBEVIRT, body, dry_run=self.check_mode)
                return
            except Conflict as error:
                last = error
                time.sleep(CONFLICT_PAUSE * attempt)
                kubevirt = ObjectList.of(self.cluster.api.get(r.KUBEVIRTS)).items.get(r.KUBEVIRT)
        raise Conflict(
            "KubeVirt's configuration changes faster than it can be written.", status=last.status, hint="Run it again."
        ) from last

    @property
    def _limit(self) -> float:
        return BASE_SECONDS + SECONDS_PER_CLAIM * len(self.claims) if self.seconds is None else self.seconds

    def _remove_claims(self) -> None:
        api, names = self.cluster.api, [claim.name for claim in self.claims]
        with Watcher(api, {r.CLAIMS: self.cluster.snapshot.claims}, seconds=self._limit) as seen:
            if self.wait and not self.check_mode:
                seen.open()
            for number, claim in enumerate(self.claims):
                try:
                    self._remove(claim)
                except FleetError as error:
                    error.changed = error.changed or (bool(number or self.permitted) and not self.check_mode)
                    raise
            if self.check_mode or not self.wait:
                return

            def gone(name: str) -> bool:
                return seen.get(r.CLAIMS, name) is None

            def describe() -> str:
                there = [name for name in names if not gone(name)]
                return f"{len(there)} of {len(names)} claims are still there: {join_names(there)}"

            seen.describe = describe
            left = seen.wait_for_all({name: partial(gone, name) for name in names}, {name: [name] for name in names})
            if left:
                raise ClaimsStillThere(
                    f"Not done after {self._limit:g} s: {join_names(map(str, left))} is still there.",
                    hint="A node removes one claim after the other, about 5 s each. Set a longer wait_timeout.",
                )

    def _restart_controllers(self) -> None:
        """Delete the pods, which their DaemonSet creates again. Running VMs keep their devices."""
        snapshot, api = self.cluster.snapshot, self.cluster.api
        seconds = CONTROLLER_SECONDS if self.seconds is None else self.seconds
        with Watcher(api, {r.NODES: snapshot.nodes}, seconds=seconds) as seen:
            if self.wait and not self.check_mode:
                seen.open()
            for number, controller in enumerate(self.controllers):
                try:
                    api.delete(f"{r.SYSTEM_PODS}/{controller.pod}", dry_run=self.check_mode)
                except NotFound:
                    # Somebody else restarts it at this moment.
                    continue
                except FleetError as error:
                    already = bool(number or self.permitted or self.claims) and not self.check_mode
                    error.changed = error.changed or already
                    raise
            if self.check_mode or not self.wait:
                return
            nodes = {controller.node for controller in self.controllers}

            def offered(node: str) -> bool:
                return node not in not_offered(replace(snapshot, nodes=seen.listing(r.NODES)))

            def describe() -> str:
                waiting = sorted(node for node in nodes if not offered(node))
                return f"{len(waiting)} of {len(nodes)} nodes do not offer all vGPUs yet: {join_names(waiting)}"

            seen.describe = describe
            left = seen.wait_for_all({node: partial(offered, node) for node in nodes}, {node: [node] for node in nodes})
            if left:
                names = [
                    name for controller in self.controllers if controller.node in left for name in controller.vgpus
                ]
                raise NotOffered(
                    f"Not done after {seconds:g} s: node {join_names(sorted(map(str, left)))} does not offer all of"
                    f" {join_names(names)}, although their controllers were restarted.",
                    hint=f"See the log of the pod: kubectl -n {r.SYSTEM_NAMESPACE} logs -l {r.PCIDEVICES_PODS}.",
                )

    def _remove(self, claim: ClaimRepair) -> None:
        path = f"{r.CLAIMS}/{claim.name}"
        body = claim.patch
        body["metadata"]["resourceVersion"] = claim.claim["metadata"].get("resourceVersion")
        try:
            self.cluster.api.patch(path, body, dry_run=self.check_mode)
            if not self.check_mode and not claim.deleting:
                self.cluster.api.delete(path, uid=str(claim.claim["metadata"].get("uid") or ""))
        except NotFound:
            return
        except AdmissionDenied as error:
            raise ClaimRefused(
                f"The cluster rejected the removal of claim {described([claim])}: {error.text}."
            ) from error
