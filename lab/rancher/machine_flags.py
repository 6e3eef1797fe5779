"""Conversion of a HarvesterConfig to flags of the machine driver, as in Rancher (harvester.md 14.1). Pure."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from lab.kubernetes.client import Json

PREFIX = "harvester-"
# Fields of a machine config that are not flags: those of the object, and those that Rancher adds.
NOT_FLAGS = ("apiVersion", "kind", "metadata", "common", "type")

TEXT_FIELDS = {
    "clusterType": "",
    "clusterId": "",
    "clusterName": "",
    "vmNamespace": "default",
    "cpuCount": "2",
    "memorySize": "4",
    "diskSize": "0",
    "diskBus": "",
    "imageName": "",
    "diskInfo": "",
    "sshUser": "root",
    "sshPort": "22",
    "sshPassword": "",
    "keyPairName": "",
    "sshPrivateKeyPath": "",
    "networkType": "",
    "networkName": "",
    "networkModel": "",
    "networkInfo": "",
    "cloudConfig": "",
    "userData": "",
    "networkData": "",
    "vmAffinity": "",
    "vgpuInfo": "",
    "reservedMemorySize": "-1",
    "cpuModel": "",
}
SWITCH_FIELDS = ("enableEfi", "enableSecureBoot", "cpuPinning", "isolateEmulatorThread", "enableTpm")


def flag_of(field: str) -> str:
    """Return the flag of a field: `harvester-vgpu-info` for `vgpuInfo`."""
    return PREFIX + re.sub(r"(?<!^)([A-Z])", lambda found: f"-{found[1].lower()}", field)


def content_of(config: Json, schema: str | None) -> Json:
    """Return the fields of a config that reach the machines.

    A pool may contain a copy of the driver's schema. Rancher silently drops fields that the copy lacks, so a copy
    from a driver without vGPU support removes the vGPUs (harvester.md 14.7).
    """
    content = {field: value for field, value in config.items() if field not in NOT_FLAGS}
    if not schema:
        return content
    try:
        known = (json.loads(schema) or {}).get("resourceFields") or {}
    except (ValueError, AttributeError):
        return content
    return {field: value for field, value in content.items() if field in known}


def digest_of(content: Json) -> str:
    """Return a hash of the content; a different hash rolls out the pool."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def flags_of(content: Json, *, cluster: str, cluster_id: str, named: bool) -> dict[str, Any]:
    """Return flags without empty strings, null, false; the cluster's name comes last and wins (harvester.md 14.1)."""
    flags = {flag_of(field): value for field, value in content.items() if value not in ("", None, False)}
    flags[f"{PREFIX}cluster-id"] = cluster_id
    flags[f"{PREFIX}cluster-type"] = "imported"
    if named:
        flags[f"{PREFIX}cluster-name"] = cluster
    return flags
