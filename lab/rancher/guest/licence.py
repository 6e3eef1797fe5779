"""Licenses of a guest's vGPUs: configuration of the driver, and output of nvidia-smi (nvidia.md 6.2). Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

from lab.kubernetes.client import Json

TOKEN, CONF = "client_configuration_token.tok", "gridd.conf"
VOLUME = "licensing-config"
# The first chart whose ClusterPolicy has licensingConfig.secretName. Older definitions prune the field.
SECRETS_SINCE = (25, 10, 0)
# The license server rejects tokens that contain this word.
REJECTED = "expired"

SMI_HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 16 10:00:00 2026
Driver Version                            : 570.172.08
CUDA Version                              : 12.8

Attached GPUs                             : {gpus}
"""
SMI_GPU = """GPU 00000000:{bus:02X}:00.0
    Product Name                          : NVIDIA A2-4Q
    Product Brand                         : NVIDIA RTX Virtual Workstation
    GPU Virtualization Mode
        Virtualization Mode               : VGPU
        Host VGPU Mode                    : N/A
    vGPU Software Licensed Product
        Product Name                      : NVIDIA RTX Virtual Workstation
        License Status                    : {status}
"""
LICENSED = "Licensed (Expiry: 2026-12-24 8:5:9 GMT)"
UNLICENSED = "Unlicensed (Unrestricted)"


def pruned(values: Json, chart_version: str) -> Json:
    """Return the chart's driver values without the fields that its ClusterPolicy prunes."""
    driver = dict(values.get("driver") or {})
    config = dict(driver.get("licensingConfig") or {})
    if "secretName" in config and not _has_secrets(chart_version):
        del config["secretName"]
    return {**driver, "licensingConfig": config} if "licensingConfig" in driver else driver


def _has_secrets(chart_version: str) -> bool:
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", chart_version)
    return found is None or tuple(map(int, found.groups())) >= SECRETS_SINCE


def source(driver: Json) -> Json | None:
    """Return the license volume of the driver pods, or None if no license is configured."""
    config = driver.get("licensingConfig") or {}
    if config.get("secretName"):
        return {"name": VOLUME, "secret": {"secretName": config["secretName"]}}
    if config.get("configMapName"):
        return {"name": VOLUME, "configMap": {"name": config["configMapName"]}}
    return None


def content(thing: Json) -> dict[str, str]:
    """Return the decoded data of a Secret or a ConfigMap."""
    data = dict(thing.get("data") or {})
    if thing.get("kind") == "ConfigMap" or "type" not in thing:
        return {key: str(value) for key, value in data.items()}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def accepted(files: Mapping[str, str]) -> bool:
    """Return whether the license server grants the driver a license for its vGPUs."""
    features = re.findall(r"^FeatureType=(\d)", files.get(CONF, ""), re.MULTILINE)
    return bool(files.get(TOKEN)) and REJECTED not in files[TOKEN] and features != ["0"]


def smi(gpus: int, *, licensed: bool) -> str:
    """Return the output of `nvidia-smi -q` in a pod with this number of GPUs."""
    status = LICENSED if licensed else UNLICENSED
    return SMI_HEAD.format(gpus=gpus) + "".join(SMI_GPU.format(bus=2 + number, status=status) for number in range(gpus))
