# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines of a cluster with their devices and their state, from the objects of the management cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .ownership import labels_of
from .request import CONTROL_PLANE

Json = dict[str, Any]

CONTROL_PLANE_LABEL = "cluster.x-k8s.io/control-plane"
DEPLOYMENT_LABEL = "cluster.x-k8s.io/deployment-name"
CLONED_FROM = "cluster.x-k8s.io/cloned-from-name"
READY, PENDING, FAILED, DELETING = "ready", "pending", "failed", "deleting"
# The name of the condition in v1beta2 and in v1beta1 of the provider.
PROVISIONED = ("VirtualMachineProvisioned", "VMProvisioned")
DETACHED = "PCIDevicesDetached"
# The provider repeats these operations, but a user has to remove the cause. Its text is short (CAPV#1920).
FAILURES = ("TaskFailed", "TaskFailure", "CloningFailed", "PoweringOnFailed")
DETACHED_TEXT = "PCI devices were removed after the VM was powered on"


@dataclass(frozen=True)
class MachineRecord:
    name: str
    group: str
    vm: str = ""
    node: str = ""
    host: str = ""
    template: str = ""
    phase: str = ""
    devices: tuple[Json, ...] = ()
    state: str = PENDING
    reason: str = ""
    message: str = ""

    def as_dict(self) -> Json:
        return {
            "name": self.name,
            "pool": self.group,
            "control_plane": self.group == CONTROL_PLANE,
            "vm": self.vm,
            "node": self.node,
            "host": self.host,
            "template": self.template,
            "phase": self.phase,
            "devices": [dict(device) for device in self.devices],
            "state": self.state,
            "reason": self.reason,
            "message": self.message,
        }

    @property
    def sentence(self) -> str:
        """Describe the machine for a message."""
        about = f"Machine {self.name} {'has failed' if self.state == FAILED else f'is {self.state}'}"
        cause = ": ".join(part.rstrip(".") for part in (self.reason, self.message) if part)
        return f"{about} ({cause})" if cause else about


@dataclass(frozen=True)
class ClusterObjects:
    """The objects of one namespace that machines consist of."""

    machines: Sequence[Json] = ()
    vsphere_machines: Sequence[Json] = ()
    vms: Sequence[Json] = ()
    deployment_pools: Mapping[str, str] = field(default_factory=dict)


def conditions_of(thing: Mapping[str, Any] | None) -> dict[str, Json]:
    """Return the conditions by type. Objects in v1beta1 may have those of v1beta2 in a field of their own as well."""
    status = (thing or {}).get("status") or {}
    new = (status.get("v1beta2") or {}).get("conditions") or []
    return {str(condition.get("type")): condition for condition in [*new, *(status.get("conditions") or [])]}


def records(objects: ClusterObjects, cluster: str) -> list[MachineRecord]:
    """Return the machines of a cluster, sorted by name."""
    infra = {_name(vsphere_machine): vsphere_machine for vsphere_machine in objects.vsphere_machines}
    by_owner = {owner: vm for vm in objects.vms for owner in _owners(vm, "VSphereMachine")}
    by_name = {_name(vm): vm for vm in objects.vms}
    found = []
    for machine in objects.machines:
        if (machine.get("spec") or {}).get("clusterName") != cluster:
            continue
        own = infra.get(str((machine["spec"].get("infrastructureRef") or {}).get("name") or ""))
        vm = (by_owner.get(_name(own)) or by_name.get(_name(own))) if own else None
        found.append(_record(machine, own, vm, _group(machine, objects.deployment_pools)))
    return sorted(found, key=lambda record: (record.group != CONTROL_PLANE, record.group, record.name))


def _record(machine: Json, own: Json | None, vm: Json | None, group: str) -> MachineRecord:
    status = machine.get("status") or {}
    state, reason, message = _state(machine, own, vm)
    spec = (vm or own or {}).get("spec") or {}
    return MachineRecord(
        name=_name(machine),
        group=group,
        vm=_name(vm) if vm else "",
        node=str((status.get("nodeRef") or {}).get("name") or ""),
        host=str(((vm or {}).get("status") or {}).get("host") or ""),
        template=str((((own or {}).get("metadata") or {}).get("annotations") or {}).get(CLONED_FROM) or ""),
        phase=str(status.get("phase") or ""),
        devices=tuple(device_of(device) for device in spec.get("pciDevices") or []),
        state=state,
        reason=reason,
        message=message,
    )


def device_of(device: Mapping[str, Any]) -> Json:
    """Return a device of the provider as a record, with ids in hexadecimal as in the options."""
    label = str(device.get("customLabel") or "")
    if device.get("vGPUProfile"):
        return {"profile": str(device["vGPUProfile"]), "vendor_id": "", "device_id": "", "custom_label": label}
    ids = [f"{int(device.get(key) or 0):04x}" for key in ("vendorId", "deviceId")]
    return {"profile": "", "vendor_id": ids[0], "device_id": ids[1], "custom_label": label}


def _state(machine: Json, own: Json | None, vm: Json | None) -> tuple[str, str, str]:
    if "deletionTimestamp" in machine["metadata"]:
        return DELETING, "", ""
    failure = failure_of(vm) or failure_of(own)
    if failure:
        return FAILED, *failure
    status = machine.get("status") or {}
    if status.get("phase") == "Failed" or status.get("failureReason"):
        return FAILED, str(status.get("failureReason") or "Failed"), str(status.get("failureMessage") or "")
    if status.get("phase") != "Running" or not status.get("nodeRef"):
        return PENDING, *_progress(machine, own, vm)
    unready = _unready(machine)
    return (PENDING, *unready) if unready else (READY, "", "")


def failure_of(thing: Json | None) -> tuple[str, str] | None:
    """Return reason and text of a condition that needs a user, or None."""
    found = conditions_of(thing)
    # The provider removes the condition when all devices are there, so it is never true.
    detached = found.get(DETACHED)
    if detached and detached.get("status") == "False":
        return str(detached.get("reason") or "NotFound"), str(detached.get("message") or DETACHED_TEXT)
    for name in PROVISIONED:
        condition = found.get(name) or {}
        if condition.get("status") == "False" and condition.get("reason") in FAILURES:
            return str(condition["reason"]), str(condition.get("message") or "")
    return None


def _progress(machine: Json, own: Json | None, vm: Json | None) -> tuple[str, str]:
    """Return the first condition that is not true, beginning with the VM."""
    for thing in (vm, own):
        for name in PROVISIONED:
            condition = conditions_of(thing).get(name) or {}
            if condition.get("status") == "False":
                return str(condition.get("reason") or ""), str(condition.get("message") or "")
    for name in ("InfrastructureReady", "BootstrapConfigReady", "BootstrapReady", "NodeReady", "NodeHealthy", "Ready"):
        condition = conditions_of(machine).get(name) or {}
        if condition.get("status") == "False":
            return str(condition.get("reason") or ""), str(condition.get("message") or "")
    return "", ""


def _unready(machine: Json) -> tuple[str, str] | None:
    """Return why the node of a running machine is not ready, or None."""
    found = conditions_of(machine)
    for name in ("NodeReady", "NodeHealthy"):
        condition = found.get(name)
        if condition and condition.get("status") != "True":
            return str(condition.get("reason") or "NodeNotReady"), str(condition.get("message") or "")
    return None


def _group(machine: Json, pools: Mapping[str, str]) -> str:
    labels = labels_of(machine)
    if CONTROL_PLANE_LABEL in labels:
        return CONTROL_PLANE
    deployment = labels.get(DEPLOYMENT_LABEL, "")
    return pools.get(deployment, deployment)


def _owners(thing: Mapping[str, Any], kind: str) -> Iterable[str]:
    references = (thing.get("metadata") or {}).get("ownerReferences") or []
    return [str(reference.get("name")) for reference in references if reference.get("kind") == kind]


def _name(thing: Mapping[str, Any] | None) -> str:
    return str(((thing or {}).get("metadata") or {}).get("name") or "")
