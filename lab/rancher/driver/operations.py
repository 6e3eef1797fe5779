"""Operations of the machine driver: checks, creation and removal of one VM (tests/data/machine-driver)."""

from __future__ import annotations

import secrets
import string
from typing import Any

from lab.harvester import resources as h
from lab.harvester.controllers.volumes import REMOVED_ANNOTATION
from lab.kubernetes.client import ApiError, Client, Json
from lab.rancher import resources as r
from lab.rancher.driver import driver_flags, virtual_machine
from lab.rancher.driver.driver_flags import CREATE, PRE_CREATE, Driver, DriverError, Settings

SSH_KEY = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 lab"
OLDEST_SERVER = (0, 2)
LETTERS = string.ascii_lowercase + string.digits


def random_part() -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(5))


async def create(client: Client, driver: Driver, name: str, flags: dict[str, Any]) -> Settings:
    """Create the VM; the caller waits until the VM runs."""
    settings = driver_flags.read(driver, flags)
    try:
        storage_classes = await _pre_create(client, name, settings)
    except ApiError as error:
        raise DriverError(PRE_CREATE, error.message) from error
    things = virtual_machine.objects(
        name, settings, storage_classes=storage_classes, ssh_key=SSH_KEY, random=random_part
    )
    try:
        made = await client.create(h.VM.collection_in(settings.namespace), things[0])
        for secret in things[1:]:
            owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name}
            secret["metadata"]["ownerReferences"] = [owner | {"uid": made["metadata"]["uid"]}]
            await client.create(r.SECRET.collection_in(settings.namespace), secret)
    except ApiError as error:
        raise DriverError(CREATE, error.message) from error
    return settings


async def _pre_create(client: Client, name: str, settings: Settings) -> dict[str, str]:
    """Run the checks in the driver's order. The driver does not check whether the vGPUs exist or are free."""
    server = (await client.get(h.SETTING.path("server-version")))["value"]
    if _version(server) < OLDEST_SERVER:
        raise DriverError(PRE_CREATE, f"current harvester server version is {server}, only support v0.2.0+")
    if await client.get_or_none(h.VM.path(name, settings.namespace)) is not None:
        raise DriverError(PRE_CREATE, f"machine {name} already exists in namespace {settings.namespace}")
    storage_classes: dict[str, str] = {}
    for disk in settings.disks:
        if disk.image:
            image = await client.get(h.IMAGE.path(*_named(disk.image, settings.namespace)))
            storage_classes[disk.image] = (image.get("status") or {}).get("storageClassName", "")
        else:
            await client.get(h.STORAGE_CLASS.path(disk.storage_class))
    for network in settings.networks:
        await client.get(h.NETWORK.path(*_named(network, settings.namespace)))
    if settings.key_pair:
        key_name, key_namespace = _named(settings.key_pair, settings.namespace)
        pair = await client.get(r.KEY_PAIR.path(key_name, key_namespace))
        conditions = (pair.get("status") or {}).get("conditions") or []
        if not any(one["type"] == "validated" and one["status"] == "True" for one in conditions):
            raise DriverError(PRE_CREATE, f"keypair {key_name} is not validated")
    return storage_classes


def _version(text: str) -> tuple[int, int]:
    try:
        major, minor = text.lstrip("v").split(".")[:2]
        return int(major), int(minor.split("-")[0])
    except ValueError:
        return OLDEST_SERVER


def _named(text: str, namespace: str) -> tuple[str, str]:
    first, slash, second = text.partition("/")
    return (second, first) if slash else (first, namespace)


async def remove(client: Client, name: str, namespace: str) -> None:
    """Annotate the VM with the claims to remove, then delete the VM with all that it owns (harvester.md 14.6)."""
    path = h.VM.path(name, namespace)
    while True:
        vm = await client.get_or_none(path)
        if vm is None:
            return
        vm["metadata"].setdefault("annotations", {})[REMOVED_ANNOTATION] = virtual_machine.removed_claims(vm)
        try:
            if "deletionTimestamp" not in vm["metadata"]:
                await client.replace(path, vm)
                await client.delete(path, {"propagationPolicy": "Foreground"})
            return
        except ApiError as error:
            if error.status == 404:
                return
            if error.status != 409:
                raise


def address(instance: Json | None) -> str:
    """Return the IPv4 address of a running guest's first interface, or an empty string (harvester.md 14.4)."""
    status = (instance or {}).get("status") or {}
    interfaces = status.get("interfaces") or []
    if status.get("phase") != "Running" or not interfaces:
        return ""
    found = str(interfaces[0].get("ipAddress") or "")
    return found if found.count(".") == 3 else ""
