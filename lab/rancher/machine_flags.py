"""From a HarvesterConfig to the flags of the machine driver, as Rancher does it (harvester.md 14.1). Pure."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from lab.kubernetes.client import Json

PREFIX = "harvester-"
# What is in a machine config and no flag: the object itself, and what Rancher keeps there.
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
    """vgpuInfo is --harvester-vgpu-info."""
    return PREFIX + re.sub(r"(?<!^)([A-Z])", lambda found: f"-{found[1].lower()}", field)


def content_of(config: Json, schema: str | None) -> Json:
    """What of a config reaches the machines.

    A pool may carry a copy of the driver's schema. Fields that the copy does not know are dropped in silence, which
    is how a copy from before vGPUs takes them away (harvester.md 14.7).
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
    """Equal contents make equal machines; anything else rolls the pool."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def flags_of(content: Json, *, cluster: str, cluster_id: str, named: bool) -> dict[str, Any]:
    """Empty strings, null and false are not passed; the cluster's name comes last and wins (recordings' README)."""
    flags = {flag_of(field): value for field, value in content.items() if value not in ("", None, False)}
    flags[f"{PREFIX}cluster-id"] = cluster_id
    flags[f"{PREFIX}cluster-type"] = "imported"
    if named:
        flags[f"{PREFIX}cluster-name"] = cluster
    return flags
