# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the repair of what Harvester's controllers lost or left behind: permitted devices, claims and counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ...errors import FleetError, join_names
from ...fleet.model import Fleet, Slot
from ...kube.objects import Json
from .. import paths as r
from ..decide.in_use import DeviceInUse
from ..read.permitted_devices import LISTS, PermittedDevices, entries_of
from ..read.snapshot import Snapshot, is_made_by_hand, parent_of

PATTERN = frozenset("*?[")


class InvalidRepair(FleetError):
    code = "invalid_request"


class NotLeftBehind(FleetError):
    code = "claim_not_left_behind"


class DeviceMissing(FleetError):
    code = "pci_device_missing"


class ControllerMissing(FleetError):
    code = "controller_missing"


class PermittedDevicesUnknown(FleetError):
    code = "permitted_devices_unknown"


@dataclass(frozen=True)
class RepairRequest:
    """The request of a task: repair KubeVirt's list, remove claims, restart controllers of nodes, or several of them.

    Claims and nodes are names or patterns.
    """

    permitted_devices: bool
    claims: tuple[str, ...] | None
    controllers: tuple[str, ...] | None = None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> RepairRequest:
        """Read the options of a task. An empty list selects nothing, and that is an error."""
        claims, controllers = params["claims"], params["controllers"]
        if claims is not None and not claims:
            raise InvalidRepair("claims is empty.", hint="Name at least one claim, or leave the option out.")
        if controllers is not None and not controllers:
            raise InvalidRepair("controllers is empty.", hint="Name at least one node, or leave the option out.")
        if not params["permitted_devices"] and claims is None and controllers is None:
            raise InvalidRepair("There is nothing to repair.", hint="Set permitted_devices, claims or controllers.")
        return cls(
            params["permitted_devices"],
            None if claims is None else tuple(claims),
            None if controllers is None else tuple(controllers),
        )

    @property
    def selects_claims(self) -> bool:
        return self.claims is not None


# KubeVirt's list


@dataclass(frozen=True)
class ListRepair:
    """KubeVirt's lists before and after the repair, as far as they change."""

    before: Json
    after: Json
    added: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def patch(self) -> Json:
        return {"spec": {"configuration": {"permittedHostDevices": self.after}}}


def repair_permitted_devices(
    kubevirt: Json | None, snapshot: Snapshot, pci_devices: Mapping[str, Json]
) -> ListRepair | None:
    """Return the lists with the missing types of existing vGPUs and without duplicates. None if nothing changes."""
    configuration = ((kubevirt or {}).get("spec") or {}).get("configuration") or {}
    permitted = PermittedDevices.of(kubevirt)
    if permitted is None:
        # Without a list, KubeVirt permits every device.
        return None
    current = configuration["permittedHostDevices"]
    before = {key: list(current.get(key) or []) for key, _selector in LISTS}
    after = {key: _without_duplicates(entries) for key, entries in before.items()}
    removed = [entry["resourceName"] for key in before for entry in _repeated(before[key])]
    added = []
    for key, entry in entries_of(snapshot.fleet, snapshot.version, pci_devices):
        if entry["resourceName"] not in permitted.resources and entry not in after[key]:
            after[key].append(entry)
            added.append(entry["resourceName"])
    changed = [key for key in after if after[key] != before[key]]
    if not changed:
        return None
    return ListRepair(
        {key: before[key] for key in changed},
        {key: after[key] for key in changed},
        tuple(sorted(set(added))),
        tuple(sorted(set(removed))),
    )


def _without_duplicates(entries: Sequence[Json]) -> list[Json]:
    return [entry for number, entry in enumerate(entries) if entry not in entries[:number]]


def _repeated(entries: Sequence[Json]) -> Iterator[Json]:
    return (entry for number, entry in enumerate(entries) if entry in entries[:number])


# Claims


@dataclass(frozen=True)
class ClaimRepair:
    """A claim to remove. Its PCI device has to be its only owner: the webhook protects claims of vGPUs.

    The controller removes the claim by the device that the first owner reference names (harvester.md 5.5).
    """

    claim: Json
    device: Json

    @property
    def name(self) -> str:
        return str(self.claim["metadata"]["name"])

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.claim["metadata"]

    @property
    def patch(self) -> Json:
        metadata = self.device["metadata"]
        owner = {
            "apiVersion": r.DEVICES.removeprefix("/apis/"),
            "kind": "PCIDevice",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        return {"metadata": {"ownerReferences": [owner]}}

    def as_dict(self) -> dict[str, Any]:
        spec = self.claim.get("spec") or {}
        annotations = self.claim["metadata"].get("annotations") or {}
        return {
            "name": self.name,
            "node": spec.get("nodeName", ""),
            "resource": annotations.get(r.OVERRIDE_ANNOTATION, ""),
        }


def repair_claims(
    request: RepairRequest, snapshot: Snapshot, fleet: Fleet, pci_devices: Mapping[str, Json]
) -> list[ClaimRepair]:
    """Return the selected claims that a vGPU left behind. Refuse claims of existing vGPUs that are named in full.

    `fleet` is the fleet in which every vGPU that a running VM may have has a holder.
    """
    slots = {slot.name: slot for _gpu, slot in fleet.slots()}
    found: list[ClaimRepair] = []
    for name in _selected(request.claims or (), snapshot.claims.items):
        claim, slot = snapshot.claims.items[name], slots.get(name)
        by_name = name in (request.claims or ())
        if not left_behind(snapshot, claim, slot):
            if by_name:
                raise NotLeftBehind(
                    f"Claim {name} was not left behind: {_owner(claim, slot)}.",
                    hint="Remove the claim by disabling the vGPU, or delete your own claim yourself.",
                )
            continue
        if slot is not None and slot.holders:
            raise DeviceInUse([slot], f"remove claim {name}")
        device = pci_devices.get(name)
        if device is None:
            gpu = (claim["metadata"].get("labels") or {}).get(r.PARENT_LABEL) or "unknown"
            raise DeviceMissing(
                f"Claim {name} cannot be removed, because its PCI device does not exist.",
                hint=f"Enable SR-IOV on GPU {gpu} first: vgpu.fleet.harvester_sriov_gpu.",
            )
        if not _being_removed(claim, device):
            found.append(ClaimRepair(claim, device))
    return found


def _selected(patterns: Sequence[str], names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns))


def left_behind(snapshot: Snapshot, claim: Json, slot: Slot | None) -> bool:
    """Return whether a claim was made for a vGPU that does not exist any more."""
    if not snapshot.version.vendor_vfio or is_made_by_hand(claim):
        return False
    return slot is None or slot.empty


def _owner(claim: Json, slot: Slot | None) -> str:
    if is_made_by_hand(claim):
        return f"{(claim.get('spec') or {}).get('userName') or 'a user'} created it"
    return f"its vGPU is {slot.profile or slot.wanted}" if slot else "this Harvester version has no such claims"


def _being_removed(claim: Json, device: Json) -> bool:
    """Return whether Harvester removes the claim by itself: it is being deleted, and its first owner exists."""
    owners = claim["metadata"].get("ownerReferences") or []
    return (
        "deletionTimestamp" in claim["metadata"]
        and bool(owners)
        and owners[0].get("name") == device["metadata"]["name"]
    )


def gpus_of(snapshot: Snapshot, vgpus: Iterable[str]) -> list[Json]:
    """Return the GPUs of vGPUs."""
    names = {parent_of(vgpu) for name in vgpus if (vgpu := snapshot.vgpus.items.get(name))}
    return [gpu for name in sorted(names) if (gpu := snapshot.gpus.items.get(name))]


# Controllers


@dataclass(frozen=True)
class ControllerRepair:
    """A pod to restart, because its node does not offer vGPUs that are configured."""

    node: str
    pod: str
    vgpus: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"node": self.node, "pod": self.pod, "vgpus": list(self.vgpus)}


def not_offered(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the configured vGPUs that their nodes do not offer, by node."""
    found: dict[str, list[str]] = {}
    for gpu, slot in snapshot.fleet.slots():
        if slot.state == "configured" and slot.wanted and not slot.drifted:
            found.setdefault(gpu.node, []).append(slot.name)
    return {node: tuple(sorted(names)) for node, names in sorted(found.items())}


def repair_controllers(request: RepairRequest, snapshot: Snapshot, pods: Sequence[Json]) -> list[ControllerRepair]:
    """Return the pods to restart on the selected nodes. Nodes that offer all their vGPUs keep theirs."""
    known = sorted({gpu.node for gpu in snapshot.fleet.gpus})
    patterns = request.controllers or ()
    if unknown := [pattern for pattern in patterns if not PATTERN.intersection(pattern) and pattern not in known]:
        raise InvalidRepair(
            f"Node {join_names(unknown)} in controllers has no GPU.", hint=f"Nodes with GPUs: {join_names(known)}."
        )
    missing, found = not_offered(snapshot), []
    for node in _selected(patterns, known):
        if node not in missing:
            continue
        names = [pod["metadata"]["name"] for pod in pods if (pod.get("spec") or {}).get("nodeName") == node]
        if not names:
            raise ControllerMissing(
                f"Node {node} has no pod of {r.PCIDEVICES_DAEMONSET} in namespace {r.SYSTEM_NAMESPACE}.",
                hint=f"Check the addon {r.PCIDEVICES_ADDON}.",
            )
        found += [ControllerRepair(node, name, missing[node]) for name in sorted(names)]
    return found


def unknown_list(request: RepairRequest, snapshot: Snapshot) -> None:
    """Refuse to repair a list that cannot be read."""
    if request.permitted_devices and snapshot.kubevirts is None:
        raise PermittedDevicesUnknown(
            "KubeVirt's list of permitted devices cannot be read.",
            hint=f"Grant the right to list kubevirts in namespace {r.SYSTEM_NAMESPACE}.",
        )


def described(claims: Sequence[ClaimRepair]) -> str:
    return join_names(claim.name for claim in claims)
