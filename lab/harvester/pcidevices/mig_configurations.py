"""Controller for MigConfigurations: the instances of a GPU in MIG mode (harvester.md 5.6 and 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.gpu.mig import MigCard, NoRoom
from lab.harvester import resources as r
from lab.kubernetes.client import ApiError, Json

if TYPE_CHECKING:
    from lab.harvester.hardware import Gpu
    from lab.harvester.pcidevices.process import NodeProcess

RECHECK_SECONDS = 300.0
# Exit status of nvidia-smi if a GPU has no room for an instance, and of the program in its place in the recordings.
# Both are inferred (harvester.md 8.1): the first is NVML's error, the second the usual status of a script that fails.
INSUFFICIENT_RESOURCES = 23
FAKE_EXIT_STATUS = 1
SYNCED, OUT_OF_SYNC, DISABLED = "synced", "out-of-sync", "disabled"


class MigSetupFailed(Exception):
    """Raised if MIG mode cannot be enabled. The GPU keeps its functions and offers time-sliced types."""


def profile_status(card: MigCard) -> list[Json]:
    entries = []
    for profile in card.geometry.profiles:
        numbers = [str(instance.id) for instance in card.instances if instance.profile == profile]
        entry: Json = {
            "name": f"MIG {profile.name}",
            "id": profile.id,
            "available": card.geometry.available(profile, card.instances),
            "total": card.geometry.available(profile, []),
        }
        if numbers:
            entry["vGPUID"] = numbers
        entries.append(entry)
    return entries


async def follow_card(process: NodeProcess, obj: Json, gpu: Gpu) -> None:
    """Handle a change of a GPU: enable MIG mode on a MIG-capable GPU when SR-IOV is enabled."""
    if not process.cluster.version.mig or gpu.mig is None:
        return
    name = obj["metadata"]["name"]
    existing = process.cluster[r.MIG].get(name)
    if not obj["spec"].get("enabled"):
        if existing is not None:
            await process.delete(r.MIG, name)
        return
    annotations = obj["metadata"].get("annotations") or {}
    if process.cluster.version.skip_mig and annotations.get(r.SKIP_MIG_ANNOTATION) == "true":
        gpu.mig_mode = False
        return
    if process.host.mig_setup_fails and existing is None and not gpu.mig_mode:
        # Only the log of the process shows it, and the next attempt follows (harvester.md 5.6).
        raise MigSetupFailed(f"error enable MIG Mode of {gpu.address}: nvidia-smi exits with status 255")
    gpu.mig_mode = True
    if existing is None:
        await _introduce(process, obj, gpu, gpu.mig)


async def _introduce(process: NodeProcess, obj: Json, gpu: Gpu, card: MigCard) -> None:
    metadata = obj["metadata"]
    has_instances = bool(card.instances)
    body = {
        "metadata": {
            "name": metadata["name"],
            "ownerReferences": [
                {
                    "apiVersion": r.SRIOV_GPU.api_version,
                    "kind": r.SRIOV_GPU.kind,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": {
            "enabled": has_instances,
            "gpuAddress": gpu.address,
            "nodeName": process.node,
            "profileSpec": [
                {"name": f"MIG {profile.name}", "id": profile.id, "requested": 0} for profile in card.geometry.profiles
            ],
        },
    }
    created = await process.create(r.MIG, body)
    if has_instances and not process.cluster.version.vendor_vfio:
        # On 1.7 the reconcile of the configuration writes first, and this status is lost in the conflict.
        return
    try:
        await process.replace_status(r.MIG, created, {"status": "", "profileStatus": profile_status(card)})
    except ApiError as error:
        if error.status != 409:
            raise


async def reconcile(process: NodeProcess, obj: Json) -> None:
    gpu = process.host.gpu(obj["spec"].get("gpuAddress", ""))
    if gpu is None or gpu.mig is None or "deletionTimestamp" in obj["metadata"]:
        return
    card, status = gpu.mig, dict(obj.get("status") or {})
    if process.cluster.version.vendor_vfio and "profileStatus" not in status:
        return
    if obj["spec"].get("enabled"):
        if not card.instances:
            # Without requested instances nothing is created, and the configuration never becomes synced.
            await _create(process, obj, card, status)
        else:
            state = SYNCED if status.get("profileStatus") == profile_status(card) else OUT_OF_SYNC
            if status.get("status") != state:
                await process.replace_status(r.MIG, obj, status | {"status": state})
        process.enqueue(r.MIG, obj["metadata"]["name"], after=RECHECK_SECONDS)
    elif card.instances:
        for entry in status.get("profileStatus") or []:
            for number in entry.get("vGPUID") or []:
                card.destroy(int(number))
        after: Json = {"status": DISABLED, "profileStatus": profile_status(card)}
        await process.replace_status(r.MIG, obj, after)


def _wanted(obj: Json) -> list[Any]:
    return [entry for entry in obj["spec"].get("profileSpec") or [] if entry.get("requested", 0) > 0]


def _failure(process: NodeProcess, address: str, entry: Json) -> str:
    """Return the message with the command and its exit status, as the kubelet or the controller reports it.

    The controller runs the command in the driver pod. On the recordings' hosts, which have no driver pods, it runs the
    command itself.
    """
    status = (
        f"exit status {FAKE_EXIT_STATUS}"
        if process.cluster.scenario.fake_driver
        else f"error during command execution: command terminated with exit code {INSUFFICIENT_RESOURCES}"
    )
    return (
        f"failed creation for {entry['name']} MIG configuration, please check if the requested and available resources"
        f" match: error executing nvidia-smi mig -i {address} -cgi {entry['id']} -C: {status}"
    )


async def _create(process: NodeProcess, obj: Json, card: MigCard, status: Json) -> None:
    """Create instances one by one in the order of the spec; a failure leaves the earlier ones (harvester.md 8.1)."""
    for entry in _wanted(obj):
        for _ in range(entry["requested"]):
            try:
                card.create(entry["id"])
            except NoRoom:
                if not card.instances and not process.cluster.version.mig_message:
                    # The controller retries endlessly and reports nothing.
                    raise
                failed = status | {"status": OUT_OF_SYNC}
                if process.cluster.version.mig_message:
                    failed["message"] = _failure(process, obj["spec"]["gpuAddress"], entry)
                await process.replace_status(r.MIG, obj, failed)
                return
    # The next node scan updates the types of the vGPUs.
    await process.replace_status(r.MIG, obj, {"status": "", "profileStatus": profile_status(card)})
