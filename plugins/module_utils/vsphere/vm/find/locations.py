# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup of the resource pool, datastore and networks of a new VM by name, with one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....errors import FleetError, did_you_mean, join_names
from ...faults import Operation, moid_of
from ...read.inventory import HostFacts
from ...session import Properties, Session
from ..decide.place import ROOT_POOL


class LocationNotFound(FleetError):
    code = "location_not_found"


@dataclass(frozen=True)
class Pool:
    reference: Any
    path: str
    resource: str


class Locations:
    """The resource pools, datastores and networks of the hosts' compute resources."""

    def __init__(self, session: Session, hosts: Sequence[HostFacts]) -> None:
        self._session = session
        self._found = session.collect(
            Operation("read resource pools, datastores and networks"), _everything_around(session, hosts)
        )

    def _of(self, kind: Any) -> list[tuple[Any, Properties]]:
        return [(reference, values) for reference, values in self._found if isinstance(reference, kind)]

    # Resource pools
    def pool(self, name: str, *, cluster: str = "") -> Pool:
        """Return the resource pool by name or path below the cluster, or the root pool if the name is empty."""
        pools = [pool for pool in self._pools() if cluster in ("", pool.resource)]
        wanted = name.strip("/") or ROOT_POOL
        found = [pool for pool in pools if wanted in (pool.path, pool.path.rpartition("/")[2])]
        if name:
            found = found or [pool for pool in pools if f"{pool.resource}/{pool.path}" == wanted]
            found = found or [pool for pool in pools if f"{pool.resource}/{ROOT_POOL}/{pool.path}" == wanted]
        if len(found) == 1:
            return found[0]
        named = [f"{pool.resource}/{pool.path}" for pool in found or pools]
        if found and not name:
            raise LocationNotFound(
                f"The VM could run in any of: {join_names(pool.resource for pool in found)}.",
                hint="Give the option cluster, resource_pool or esxi_host.",
            )
        if found:
            raise LocationNotFound(
                f"There are several resource pools {name}: {join_names(named)}.", hint="Give its path."
            )
        raise _missing("resource pool", name, named)

    def _pools(self) -> list[Pool]:
        vim = self._session.vim
        values = {moid_of(reference): found for reference, found in self._of(vim.ResourcePool)}
        resources = {moid_of(reference): found["name"] for reference, found in self._of(vim.ComputeResource)}
        pools = []
        for reference, found in self._of(vim.ResourcePool):
            names, at = [], found
            while moid_of(at.get("parent")) in values:
                names.append(str(at["name"]))
                at = values[moid_of(at["parent"])]
            path = "/".join(reversed(names)) or ROOT_POOL
            pools.append(Pool(reference, path, str(resources.get(moid_of(found.get("owner")), ""))))
        return pools

    # Datastores
    def datastore(self, name: str) -> Any:
        return _one("datastore", name, self._of(self._session.vim.Datastore))

    def emptiest_of(self, cluster: str) -> Any:
        """Return the datastore of the datastore cluster with the most free space."""
        pods = self._of(self._session.vim.StoragePod)
        pod = _one("datastore cluster", cluster, pods)
        members = [
            (int(found.get("summary.freeSpace") or 0), moid_of(reference), reference)
            for reference, found in self._of(self._session.vim.Datastore)
            if moid_of(found.get("parent")) == moid_of(pod)
            and found.get("summary.accessible") is not False
            and found.get("summary.maintenanceMode") in (None, "normal")
        ]
        if not members:
            raise LocationNotFound(
                f"No datastore of the datastore cluster {cluster} can be used.",
                hint="They are out of reach of the hosts, or in maintenance.",
            )
        return max(members, key=lambda member: member[:2])[2]

    # Networks
    def network(self, name: str) -> Any:
        """Return the network card backing for a port group."""
        vim = self._session.vim
        reference = _one("network", name, self._of(vim.Network))
        backing = vim.vm.device.VirtualEthernetCard
        if isinstance(reference, vim.dvs.DistributedVirtualPortgroup):
            found = dict(self._of(vim.dvs.DistributedVirtualPortgroup))[reference]
            subject = Operation(f"read the switch of network {name}")
            switch = self._session.read(subject, [found["config.distributedVirtualSwitch"]], ["uuid"])[0][1]["uuid"]
            connection = vim.dvs.PortConnection(portgroupKey=found["key"], switchUuid=switch)
            return backing.DistributedVirtualPortBackingInfo(port=connection)
        if isinstance(reference, vim.OpaqueNetwork):
            summary = dict(self._of(vim.OpaqueNetwork))[reference]["summary"]
            return backing.OpaqueNetworkBackingInfo(
                opaqueNetworkId=summary.opaqueNetworkId, opaqueNetworkType=summary.opaqueNetworkType
            )
        return backing.NetworkBackingInfo(deviceName=name)


def _one(what: str, name: str, entities: Sequence[tuple[Any, Properties]]) -> Any:
    found = [reference for reference, values in entities if values.get("name") == name]
    if len(found) == 1:
        return found[0]
    if found:
        ids = sorted(map(moid_of, found))
        raise LocationNotFound(f"There are several {what}s {name}: {join_names(ids)}.", hint="Rename one of them.")
    raise _missing(what, name, [str(values.get("name")) for _reference, values in entities])


def _missing(what: str, name: str, there: Sequence[str]) -> LocationNotFound:
    alike = did_you_mean(name, there, limit=2)
    meant = f"Did you mean {' or '.join(alike)}? " if alike else ""
    return LocationNotFound(f"There is no {what} {name} in reach.", hint=f"{meant}There are: {join_names(there)}.")


def _everything_around(session: Session, hosts: Sequence[HostFacts]) -> Any:
    vim, query = session.vim, session.vmodl.query.PropertyCollector

    def way(name: str, kind: Any, path: str, *further: str) -> Any:
        selections = [query.SelectionSpec(name=other) for other in further]
        return query.TraversalSpec(name=name, type=kind, path=path, skip=False, selectSet=selections)

    ways = [
        way("resource", vim.HostSystem, "parent", "pool", "datastore", "network"),
        way("pool", vim.ComputeResource, "resourcePool", "pools"),
        way("pools", vim.ResourcePool, "resourcePool", "pools"),
        way("datastore", vim.ComputeResource, "datastore", "pod"),
        way("pod", vim.Datastore, "parent"),
        way("network", vim.ComputeResource, "network"),
    ]
    wanted: Mapping[Any, list[str]] = {
        vim.ComputeResource: ["name"],
        vim.ResourcePool: ["name", "parent", "owner"],
        vim.Datastore: ["name", "parent", "summary.freeSpace", "summary.accessible", "summary.maintenanceMode"],
        vim.StoragePod: ["name"],
        vim.Network: ["name"],
        vim.dvs.DistributedVirtualPortgroup: ["name", "key", "config.distributedVirtualSwitch"],
        vim.OpaqueNetwork: ["name", "summary"],
    }
    return query.FilterSpec(
        objectSet=[query.ObjectSpec(obj=host.reference, skip=True, selectSet=ways) for host in hosts],
        propSet=[query.PropertySpec(type=kind, pathSet=paths) for kind, paths in wanted.items()],
    )
