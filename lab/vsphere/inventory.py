"""Convert the `vsphere:` section of a scenario to the inventory that the simulator reads.

The section is short for people: one datacenter needs no list, `count` multiplies hosts, GPUs and VMs,
addresses are made up where nobody cares. The inventory says everything once for each object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lab.errors import LabError

Entry = dict[str, Any]

API_VERSIONS = ("8.0.3", "9.1", "9.0", "7.0.3", "6.7")

SECTION_KEYS = {"api_version", "max_vgpus_per_vm", "hot_migrate", "users", "datacenters"}
USER_KEYS = {"name", "privileges"}
DATACENTER_KEYS = {
    "name",
    "folder",
    "clusters",
    "datastores",
    "datastore_clusters",
    "networks",
    "folders",
    "templates",
    "vms",
}
CLUSTER_KEYS = {"name", "drs", "drs_options", "resource_pools", "hosts"}
HOST_KEYS = {
    "name",
    "count",
    "memory_gib",
    "cpu_cores",
    "graphics_type",
    "assignment_policy",
    "driver",
    "maintenance",
    "connected",
    "gpus",
    "pci_devices",
    "passthrough_without_reboot",
    "device_groups",
}
GROUP_KEYS = {"name", "description", "devices"}
GROUP_MEMBER_KEYS = {"address", "profile"}
GPU_KEYS = {"board", "count", "address", "device_id", "graphics_type", "mode"}
PCI_DEVICE_KEYS = {
    "address",
    "vendor_id",
    "device_id",
    "vendor_name",
    "device_name",
    "label",
    "dependent",
    "passthrough",
    "capable",
    "count",
}
MACHINE_KEYS = {
    "name",
    "count",
    "folder",
    "cluster",
    "host",
    "resource_pool",
    "datastore",
    "networks",
    "hardware_version",
    "firmware",
    "cpus",
    "memory_mb",
    "disk_gb",
    "guest_id",
    "annotation",
    "extra_config",
    "vgpus",
    "memory_locked",
    "power",
    "tools",
    "ignores_shutdown",
    "snapshot",
    "vsga",
    "drs",
}
FIRST_GPU_BUS = 0x3B
FIRST_PCI_BUS = 0x81


def inventory_from_scenario(section: Entry) -> Entry:
    """Return the inventory of a `vsphere:` section, or raise LabError if it is invalid."""
    section = dict(section)
    if "datacenter" in section:
        datacenter: Entry = {"name": section.pop("datacenter")}
        datacenter |= {key: section.pop(key) for key in list(section) if key in DATACENTER_KEYS - {"name"}}
        section["datacenters"] = [datacenter]
    _only("The vsphere section", section, SECTION_KEYS)
    if section.get("api_version", API_VERSIONS[0]) not in API_VERSIONS:
        raise LabError(
            f"There is no API version {section['api_version']!r}.", hint=f"Known: {', '.join(API_VERSIONS)}."
        )
    if not section.get("datacenters"):
        raise LabError("The vsphere section has no datacenter.")
    inventory: Entry = {key: section[key] for key in ("max_vgpus_per_vm", "hot_migrate") if key in section}
    inventory["users"] = [_user(entry) for entry in section.get("users", [])]
    inventory["datacenters"] = [_datacenter(entry) for entry in section["datacenters"]]
    return inventory


def _user(entry: Entry) -> Entry:
    _only("A user", entry, USER_KEYS)
    if not entry.get("name"):
        raise LabError("A user of the vsphere section has no name.")
    return {"privileges": []} | entry


def _datacenter(entry: Entry) -> Entry:
    _only("A datacenter", entry, DATACENTER_KEYS)
    if not entry.get("clusters"):
        raise LabError(f"Datacenter {entry['name']} has no cluster.")
    return {
        "name": entry["name"],
        "folder": entry.get("folder", ""),
        "clusters": [_cluster(cluster) for cluster in entry["clusters"]],
        "datastores": [_named(store) for store in entry.get("datastores", ["datastore1"])],
        "datastore_clusters": entry.get("datastore_clusters", []),
        "networks": entry.get("networks", ["VM Network"]),
        "folders": entry.get("folders", []),
        "templates": list(_multiplied(entry.get("templates", []), _machine)),
        "vms": list(_multiplied(entry.get("vms", []), _machine)),
    }


def _cluster(entry: Entry) -> Entry:
    _only("A cluster", entry, CLUSTER_KEYS)
    return entry | {"hosts": list(_multiplied(entry.get("hosts", []), _host))}


def _host(entry: Entry) -> Entry:
    _only("A host", entry, HOST_KEYS)
    host: Entry = {"graphics_type": "shared_direct" if entry.get("gpus") else "shared"} | entry
    host["gpus"] = _addressed(entry.get("gpus", []), GPU_KEYS, "A GPU", FIRST_GPU_BUS)
    for group in entry.get("device_groups", []):
        _only("A device group", group, GROUP_KEYS)
        for member in group.get("devices", []):
            _only("A device of a device group", member, GROUP_MEMBER_KEYS)
    host["pci_devices"] = _addressed(entry.get("pci_devices", []), PCI_DEVICE_KEYS, "A PCI device", FIRST_PCI_BUS)
    return host


def _machine(entry: Entry) -> Entry:
    _only("A machine", entry, MACHINE_KEYS)
    # YAML reads `power: on` as a boolean.
    power = entry.get("power", "off")
    return entry | {"power": {True: "on", False: "off"}.get(power, power)}


def _addressed(entries: Iterable[Entry], keys: set[str], what: str, first_bus: int) -> list[Entry]:
    """Return devices with an address each."""
    devices: list[Entry] = []
    for entry in entries:
        _only(what, entry, keys)
        for _ in range(entry.get("count", 1)):
            bus = first_bus + 2 * len(devices)
            device = {"address": f"0000:{bus:02x}:00.0"} | {key: entry[key] for key in entry if key != "count"}
            devices.append(device)
    addresses = [device["address"] for device in devices]
    if len(set(addresses)) != len(addresses):
        raise LabError(f"Several devices have the same address: {', '.join(addresses)}.")
    return devices


def _multiplied(entries: Iterable[Entry], finished: Callable[[Entry], Entry]) -> Iterator[Entry]:
    """`{name: "vm-{n}", count: 3}` stands for vm-1, vm-2 and vm-3."""
    for entry in entries:
        if "count" not in entry:
            yield finished(entry)
            continue
        name, count = entry["name"], entry["count"]
        if "{n}" not in name:
            raise LabError(
                f"The name {name!r} of {count} objects needs a placeholder for the number.", hint="For example: vm-{n}."
            )
        single = {key: value for key, value in entry.items() if key != "count"}
        for number in range(1, count + 1):
            yield finished(single | {"name": name.replace("{n}", str(number))})


def _named(entry: str | Entry) -> Entry:
    return {"name": entry} if isinstance(entry, str) else entry


def _only(what: str, entry: Entry, keys: set[str]) -> None:
    unknown = set(entry) - keys
    if unknown:
        raise LabError(
            f"{what} has the unknown keys {', '.join(sorted(unknown))}.", hint=f"Known: {', '.join(sorted(keys))}."
        )
