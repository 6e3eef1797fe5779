# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machines with vGPUs of a Harvester cluster, converted from a snapshot. Pure, except for `read`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from ...module_utils.fleet.model import HARVESTER, Gpu, Slot
from ...module_utils.harvester.read import snapshot as snapshots
from ...module_utils.harvester.read.snapshot import Snapshot
from ...module_utils.harvester.vm.model import VmState
from ...module_utils.kube import connection as access
from ...module_utils.kube.client import ApiClient
from ...module_utils.rancher.client import PROXY
from . import machines
from .addresses import interface
from .machines import Record

Json = dict[str, Any]
Slots = Mapping[str, tuple[Gpu, Slot]]

# Labels that Rancher's machine driver sets on the VMs of a pool, since the driver of Harvester 1.8.
GUEST_CLUSTER_LABEL = "guestcluster.harvesterhci.io/name"
POOL_LABEL = "nodepool.harvesterhci.io/name"
MACHINE_SET_LABEL = "harvesterhci.io/machineSetName"


def read(params: Mapping[str, Any]) -> list[Record]:
    """Read the cluster with the requests of one snapshot, whatever the number of machines."""
    way = access.from_options(params)
    return records(snapshots.read(ApiClient(way), params.get("harvester_version")), cluster_of(way.host))


def cluster_of(url: str) -> str:
    """Return the name of a cluster from its address: its id behind Rancher, otherwise the server's name."""
    front, proxied, identity = url.partition(PROXY)
    return identity.strip("/") if proxied else urlsplit(front).hostname or ""


def records(snapshot: Snapshot, cluster: str) -> list[Record]:
    slots = {slot.name: (gpu, slot) for gpu, slot in snapshot.fleet.slots()}
    found = []
    for path in sorted({**snapshot.vms.items, **snapshot.instances.items}):
        instance = snapshot.instances.items.get(path)
        vm = snapshot.vms.items.get(path) or _vm_of(instance or {})
        vm_state = VmState(vm, instance, snapshot.version, snapshot.known)
        if vm_state.vgpus or vm_state.running_vgpus:
            found.append(_record(vm_state, slots, cluster))
    return found


def _vm_of(instance: Json) -> Json:
    """Return an instance without a VM in the form of a VM."""
    return {"metadata": instance["metadata"], "spec": {"template": {"spec": instance.get("spec") or {}}}}


def _record(vm_state: VmState, slots: Slots, cluster: str) -> Record:
    metadata = vm_state.vm["metadata"]
    namespace = str(metadata.get("namespace") or "")
    labels = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
    guest_cluster = labels.get(GUEST_CLUSTER_LABEL)
    instance = vm_state.instance if vm_state.running else None
    return machines.machine(
        identity=str(metadata.get("uid") or f"{cluster}/{vm_state.path}"),
        title=f"VM {vm_state.path} of {cluster}",
        key=str(metadata.get("uid") or namespace),
        # A namespace has no dots, so the name is unique.
        host_name=f"{vm_state.name}.{namespace}",
        name=vm_state.name,
        namespace=namespace,
        platform=HARVESTER,
        cluster=cluster,
        state=_state(instance),
        node=vm_state.node,
        vgpus=list(_vgpus(vm_state, slots)),
        interfaces=list(_interfaces(instance)),
        labels=labels,
        restart_required=vm_state.restart_required,
        guest_cluster=guest_cluster,
        pool=_pool(labels, namespace, guest_cluster),
        guest_os=_guest_os(instance),
    )


def _state(instance: Json | None) -> str:
    if instance is None:
        return machines.STOPPED
    if instance["metadata"].get("deletionTimestamp"):
        return machines.STOPPING
    status = instance.get("status") or {}
    if status.get("phase") != "Running":
        return machines.STARTING
    conditions = [condition for condition in status.get("conditions") or [] if isinstance(condition, dict)]
    paused = any(condition.get("type") == "Paused" and condition.get("status") == "True" for condition in conditions)
    return machines.PAUSED if paused else machines.RUNNING


def _vgpus(vm_state: VmState, slots: Slots) -> Iterator[Record]:
    """Yield the vGPUs that a machine has or, while it is stopped, requests.

    An edited VM may run without vGPUs and get them at its next start.
    """
    shown = "domain" in ((vm_state.instance or {}).get("spec") or {})
    types = vm_state.running_vgpus if vm_state.running and shown else vm_state.vgpus
    known = _devices(vm_state, types, slots)
    for type_name, count in sorted(types.items()):
        for place in range(count):
            if type_name in known:
                gpu, slot = known[type_name][place]
                yield machines.vgpu(type_name, device=slot.name, address=slot.address, gpu=gpu.name, node=gpu.node)
            else:
                yield machines.vgpu(type_name, node=vm_state.node)


def _devices(vm_state: VmState, types: Counter[str], slots: Slots) -> dict[str, list[tuple[Gpu, Slot]]]:
    """Return the devices that a machine certainly has, by type.

    Harvester writes the allocation annotation when the VM reaches the phase Running, and keeps it when the VM stops.
    Before that phase, the annotation describes an earlier run.
    """
    if ((vm_state.instance or {}).get("status") or {}).get("phase") != "Running":
        return {}
    found = {}
    for type_name, names in vm_state.allocated().items():
        devices = [slots[name] for name in dict.fromkeys(names) if name in slots]
        if len(devices) == types[type_name] and all(_is_on(gpu, slot, vm_state) for gpu, slot in devices):
            found[type_name] = devices
    return found


def _is_on(gpu: Gpu, slot: Slot, vm_state: VmState) -> bool:
    """Return whether a device is on the machine's node and not listed for another running machine."""
    return gpu.node == vm_state.node and sum(holder.running for holder in slot.holders) <= 1


def _interfaces(instance: Json | None) -> Iterator[Record]:
    """Yield the interfaces of the VM's networks.

    Interfaces that exist only inside the guest, such as container bridges, have no network, and their addresses belong
    to other machines elsewhere.
    """
    if instance is None:
        return
    networks = (instance.get("spec") or {}).get("networks") or []
    pods = {network.get("name") for network in networks if isinstance(network, dict) and "pod" in network}
    for item in (instance.get("status") or {}).get("interfaces") or []:
        if isinstance(item, dict) and item.get("name"):
            listed = item.get("ipAddresses") if isinstance(item.get("ipAddresses"), list) else None
            yield interface(
                item["name"], listed or [item.get("ipAddress")], mac=item.get("mac"), pod=item["name"] in pods
            )


def _pool(labels: Mapping[str, str], namespace: str, cluster: str | None) -> str | None:
    """Return the name of a machine pool in Rancher.

    The driver's own label of the pool ends with the hash of the machine set. The name of the machine set does not,
    unless it was too long.
    """
    start = f"{namespace}-{cluster}-"
    named = labels.get(MACHINE_SET_LABEL, "")
    if cluster and named.startswith(start):
        return named.removeprefix(start)
    return labels.get(POOL_LABEL)


def _guest_os(instance: Json | None) -> str | None:
    told = ((instance or {}).get("status") or {}).get("guestOSInfo")
    return str(told.get("prettyName") or told.get("name") or "") if isinstance(told, dict) else None
