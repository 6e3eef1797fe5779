"""VirtualMachine exactly as the machine driver creates it (tests/data/machine-driver). Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

import yaml

from lab.harvester.controllers.volumes import CLAIMS_ANNOTATION
from lab.kubernetes.client import Json
from lab.rancher.driver.driver_flags import CREATE, MASTER, Disk, DriverError, Settings

CREATOR_LABEL = "harvesterhci.io/creator"
MACHINE_SET_LABEL = "harvesterhci.io/machineSetName"
VM_NAME_LABEL = "harvesterhci.io/vmName"
CLUSTER_LABEL = "guestcluster.harvesterhci.io/name"
POOL_LABEL = "nodepool.harvesterhci.io/name"
REMOVE_ALL_ANNOTATION = "harvesterhci.io/removeAllPersistentVolumeClaims"
# Larger cloud-init data goes into a Secret.
LONGEST_INLINE = 2048
LONGEST_LABEL = 63


def objects(
    name: str, settings: Settings, *, storage_classes: Mapping[str, str], ssh_key: str, random: Callable[[], str]
) -> list[Json]:
    """Return the VM and, for large user data, its Secret. `storage_classes` maps images to storage classes."""
    if settings.driver is MASTER and settings.cpus < 1:
        raise DriverError(CREATE, f"invalid number of CPU cores: {settings.cpus}")
    labels = _labels(name, settings)
    claims = {disk.name: f"{name}-{disk.name}-{random()}" for disk in settings.disks}
    annotations = {CLAIMS_ANNOTATION: _claim_templates(settings.disks, claims, storage_classes)}
    if settings.reserved_memory_mib > 0:
        annotations["harvesterhci.io/reservedMemory"] = f"{settings.reserved_memory_mib}Mi"
    user_data = _user_data(settings.user_data, ssh_key)
    secret = f"{name}-cloudinit" if len(user_data) > LONGEST_INLINE else ""
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": settings.namespace, "labels": labels, "annotations": annotations},
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {
                "metadata": {
                    "annotations": {
                        "harvesterhci.io/sshNames": "[]",
                        "harvesterhci.io/waitForLeaseInterfaceNames": "[]",
                    },
                    "labels": labels,
                },
                "spec": {
                    "affinity": _affinity(settings, labels),
                    "domain": _domain(settings),
                    "evictionStrategy": "LiveMigrateIfPossible",
                    "networks": [
                        {"name": f"nic-{index}", "multus": {"networkName": network}}
                        for index, network in enumerate(settings.networks)
                    ],
                    "volumes": [
                        {"name": "cloudinitdisk", "cloudInitNoCloud": _cloud_init(settings, user_data, secret)},
                        *(_volume(disk, claims[disk.name]) for disk in settings.disks),
                    ],
                },
            },
        },
        "status": {},
    }
    return [vm, *([_secret(settings, secret, user_data)] if secret else [])]


def _labels(name: str, settings: Settings) -> dict[str, str]:
    """Return the labels, which two contradicting rules derive from the machine's name (harvester.md 14.3)."""
    labels = {CREATOR_LABEL: "docker-machine-driver-harvester", VM_NAME_LABEL: name}
    if settings.driver.labels or settings.affinity is not None:
        labels[MACHINE_SET_LABEL] = label_value(f"{settings.namespace}-{name}".rsplit("-", 2)[0])
    if settings.driver.labels and settings.cluster:
        if "-" not in name:
            raise DriverError(CREATE, "runtime error: slice bounds out of range [:-1]")
        labels[CLUSTER_LABEL] = settings.cluster
        labels[POOL_LABEL] = name.rsplit("-", 1)[0].removeprefix(f"{settings.cluster}-")
    return labels


def label_value(text: str) -> str:
    if len(text) <= LONGEST_LABEL:
        return text
    number = 0x811C9DC5
    for byte in text.encode():
        number = (number ^ byte) * 0x01000193 % 2**32
    return f"hash_{base64.urlsafe_b64encode(number.to_bytes(4, 'big')).decode().rstrip('=')}_z"


def _affinity(settings: Settings, labels: Mapping[str, str]) -> Json:
    if settings.affinity is None:
        selector: Json = {"matchExpressions": [{"key": CREATOR_LABEL, "operator": "Exists"}]}
        return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_apart(selector, 100)]}}
    affinity: Json = json.loads(json.dumps(settings.affinity))
    selector = {"matchLabels": {MACHINE_SET_LABEL: labels[MACHINE_SET_LABEL]}}
    apart = affinity.setdefault("podAntiAffinity", {})
    apart.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(_apart(selector, 1))
    return affinity


def _apart(selector: Json, weight: int) -> Json:
    return {
        "weight": weight,
        "podAffinityTerm": {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"},
    }


def _domain(settings: Settings) -> Json:
    devices: Json = {
        "disks": [
            {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
            *(
                {
                    "name": disk.name,
                    "disk": {"bus": disk.bus},
                    **({"bootOrder": disk.boot_order} if disk.boot_order else {}),
                }
                for disk in settings.disks
            ),
        ],
        "interfaces": [
            {"name": f"nic-{index}", "model": settings.network_model, "bridge": {}}
            for index in range(len(settings.networks))
        ],
    }
    if settings.vgpus:
        devices[settings.driver.device_field] = [dict(vgpu) for vgpu in settings.vgpus]
    if settings.tpm:
        devices["tpm"] = {}
    domain: Json = {
        "cpu": _cpu(settings),
        "devices": devices,
        "resources": {"limits": {"cpu": str(settings.cpus), "memory": f"{settings.memory_gib}Gi"}},
    }
    if settings.efi:
        domain["features"] = {"acpi": {}, "smm": {"enabled": settings.secure_boot}}
        domain["firmware"] = {"bootloader": {"efi": {"secureBoot": settings.secure_boot}}}
    return domain


def _cpu(settings: Settings) -> Json:
    cpu: Json = {"cores": settings.cpus} if settings.cpus else {}
    if settings.driver is MASTER:
        cpu |= {"sockets": 1, "threads": 1}
    if settings.cpu_pinning:
        cpu["dedicatedCpuPlacement"] = True
    if settings.isolate_emulator:
        cpu["isolateEmulatorThread"] = True
    if settings.cpu_model:
        cpu["model"] = settings.cpu_model
    return cpu


def _claim_templates(disks: tuple[Disk, ...], claims: Mapping[str, str], storage_classes: Mapping[str, str]) -> str:
    templates = []
    for disk in disks:
        metadata: Json = {"name": claims[disk.name], "creationTimestamp": None}
        if disk.image:
            metadata["annotations"] = {"harvesterhci.io/imageId": disk.image}
        spec = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": f"{disk.size}Gi"}},
            "storageClassName": storage_classes[disk.image] if disk.image else disk.storage_class,
            "volumeMode": "Block",
        }
        templates.append({"metadata": metadata, "spec": spec, "status": {}})
    return json.dumps(templates, separators=(",", ":"))


def _volume(disk: Disk, claim: str) -> Json:
    source: Json = {"claimName": claim}
    if disk.hotpluggable:
        source["hotpluggable"] = True
    return {"name": disk.name, "persistentVolumeClaim": source}


def _user_data(given: str, ssh_key: str) -> str:
    if not given:
        return f"#cloud-config\n\nssh_authorized_keys:\n- >-\n  {ssh_key}\n"
    config = yaml.safe_load(given)
    config["ssh_authorized_keys"] = [*(config.get("ssh_authorized_keys") or []), ssh_key]
    return "#cloud-config\n" + yaml.safe_dump(config, width=2**20)


def _cloud_init(settings: Settings, user_data: str, secret: str) -> Json:
    if secret:
        source: Json = {"secretRef": {"name": secret}}
        return source | ({"networkDataSecretRef": {"name": secret}} if settings.network_data else {})
    return {"userData": user_data} | ({"networkData": settings.network_data} if settings.network_data else {})


def _secret(settings: Settings, name: str, user_data: str) -> Json:
    """Return the Secret, which is created after the VM; the caller adds the VM as its owner."""
    data = {"userdata": user_data} | ({"networkdata": settings.network_data} if settings.network_data else {})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": settings.namespace},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


def removed_claims(vm: Json) -> str:
    """Return the claims to delete with the VM: all, or those that were not hot-plugged."""
    everything = (vm["metadata"].get("annotations") or {}).get(REMOVE_ALL_ANNOTATION) == "true"
    names = []
    for volume in vm["spec"]["template"]["spec"].get("volumes") or []:
        claim = volume.get("persistentVolumeClaim")
        if claim and (everything or not claim.get("hotpluggable")):
            names.append(claim["claimName"])
    return ",".join(names)
