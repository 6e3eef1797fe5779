# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup of VMs by path, by name in all folders or by moid, with one call each, and by uuid with two calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ....errors import FleetError, did_you_mean, join_names
from ...faults import Operation, VsphereError, moid_of
from ...names import path_parts, real_name, stored_name
from ...session import Session
from ..decide.place import folder_path, is_datacenter
from .path import ancestor, path_of


class VmNotFound(FleetError):
    code = "vm_not_found"


class AmbiguousVm(FleetError):
    code = "vm_ambiguous"


class FolderNotFound(FleetError):
    code = "folder_not_found"


@dataclass(frozen=True)
class VmSelector:
    """The options by which a task identifies a VM."""

    name: str = ""
    folder: str = ""
    datacenter: str = ""
    uuid: str = ""
    moid: str = ""

    @property
    def certain(self) -> bool:
        """Return whether the options identify the VM uniquely."""
        return bool(self.uuid or self.moid)

    @property
    def said(self) -> str:
        if self.moid:
            return f"with moid {self.moid}"
        if self.uuid:
            return f"with uuid {self.uuid}"
        return f"{self.name} in {self.folder}" if self.folder else self.name

    @property
    def folder_path(self) -> str:
        """Return the folder as an inventory path, or an empty string if the options do not determine the path."""
        return folder_path(self.folder, self.datacenter) if self.folder else ""


@dataclass(frozen=True)
class InventoryItem:
    """A VM, VM folder or datacenter, with its own inventory path and the path of its datacenter."""

    reference: Any
    path: str
    datacenter: str = ""

    @property
    def name(self) -> str:
        return real_name(self.path.rpartition("/")[2])

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    def matches(self, *, datacenter: str = "", folder: str = "") -> bool:
        if datacenter and not is_datacenter(datacenter, self.datacenter):
            return False
        return not folder or self.folder == folder_path(folder, self.datacenter)


class VmFinder:
    """All VMs and VM folders of a vCenter with their paths, read in one call on first access."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # Finding VMs
    def candidates(self, identity: VmSelector) -> list[Any]:
        """Return the VMs that match the id, or the name, datacenter and folder."""
        if identity.moid:
            found = self._by_moid(identity)
            return [found] if found else []
        if identity.uuid:
            found = self._by_uuid(identity)
            return [found] if found else []
        path = identity.folder_path
        found = self._by_path(f"{path}/{stored_name(identity.name)}") if path else None
        if found is not None:
            return [found]
        # A datacenter given without its parent folders has a different path than the one tried above.
        datacenter = self.datacenter(identity.datacenter).path if identity.datacenter else ""
        return [
            entry.reference
            for entry in self.named(identity.name)
            if entry.matches(datacenter=datacenter, folder=identity.folder)
        ]

    def named(self, name: str) -> list[InventoryItem]:
        """Return all VMs and templates of this name, in any folder of any datacenter."""
        return [entry for entry in self.vms if entry.name == name]

    def not_found(self, identity: VmSelector) -> VmNotFound:
        if identity.certain:
            return VmNotFound(f"There is no VM {identity.said}.", hint="Look it up in the vSphere client.")
        elsewhere = [entry.path for entry in self.named(identity.name)]
        alike = did_you_mean(identity.name, (entry.name for entry in self.vms), limit=2)
        if elsewhere:
            hint = f"Of that name there is: {join_names(elsewhere)}."
        elif alike:
            hint = f"Did you mean {' or '.join(alike)}? To make a new one, give a template."
        else:
            hint = "To make a new one, give a template."
        return VmNotFound(f"There is no VM {identity.said}.", hint=hint)

    def ambiguous(self, name: str, found: Iterable[Any], *, what: str = "VM") -> AmbiguousVm:
        paths = {moid_of(entry.reference): entry.path for entry in self.vms}
        ids = [moid_of(reference) for reference in found]
        each = "; ".join(sorted(f"{paths.get(moid, '?')} ({moid})" for moid in ids))
        return AmbiguousVm(
            f"{len(ids)} {what}s are called {name}: {each}.",
            hint="Say which one with folder and datacenter, or use its moid or uuid."
            if what == "VM"
            else "Say which one with its path.",
        )

    def _by_moid(self, identity: VmSelector) -> Any | None:
        reference = self._session.vim.VirtualMachine(identity.moid, self._session.stub)
        try:
            found = self._session.read(Operation(f"find the VM {identity.said}"), [reference], ["name"])
        except VsphereError as error:
            if error.fault == "ManagedObjectNotFound":
                return None
            raise
        return reference if found and found[0][1] else None

    def _by_uuid(self, identity: VmSelector) -> Any | None:
        """Return the VM with this BIOS uuid, which copies of a VM may share, or with this instance uuid."""
        search, subject = self._session.content.searchIndex, Operation(f"find the VM {identity.said}")
        found: dict[str, Any] = {}
        for of_instance in (False, True):
            vms = self._session.call(subject, search.FindAllByUuid, None, identity.uuid.lower(), True, of_instance)
            found |= {moid_of(vm): vm for vm in vms or []}
        if len(found) > 1:
            paths = {moid_of(entry.reference): entry.path for entry in self.vms}
            candidates = "; ".join(sorted(f"{paths.get(moid, '?')} ({moid})" for moid in found))
            raise AmbiguousVm(
                f"{len(found)} VMs have the uuid {identity.uuid}: {candidates}.",
                hint="Copies of a VM can share it. Use the moid.",
            )
        return next(iter(found.values()), None)

    def _by_path(self, path: str) -> Any | None:
        found = self._session.call(
            Operation(f"find {path}"), self._session.content.searchIndex.FindByInventoryPath, path.strip("/")
        )
        return found if isinstance(found, self._session.vim.VirtualMachine) else None

    def template(self, name: str, *, datacenter: str = "") -> Any:
        """Return the template by inventory path or by name, with preference for the VM's own datacenter."""
        found = self._by_path("/" + "/".join(path_parts(name))) if "/" in name else None
        if found is None:
            known = self.named(real_name(name))
            near = [entry for entry in known if entry.matches(datacenter=datacenter)] or known
            if len(near) > 1:
                raise self.ambiguous(name, [entry.reference for entry in near], what="template")
            found = near[0].reference if near else None
        if found is None:
            alike = did_you_mean(name.rpartition("/")[2], (entry.name for entry in self.vms), limit=3)
            raise VmNotFound(
                f"There is no template {name}.", hint=f"Did you mean {' or '.join(alike)}?" if alike else ""
            )
        return found

    # Folders and datacenters
    def datacenter(self, name: str) -> InventoryItem:
        """Return the datacenter by name or inventory path. Datacenters in different folders can share a name."""
        paths = [entry.path for entry in self.datacenters]
        exact = [entry for entry in self.datacenters if entry.path == "/" + "/".join(path_parts(name))]
        found = exact or [entry for entry in self.datacenters if is_datacenter(name, entry.path)]
        if not found:
            raise FolderNotFound(f"There is no datacenter {name}.", hint=f"There are: {join_names(paths)}.")
        if len(found) > 1:
            raise FolderNotFound(
                f"There are several datacenters {name}: {join_names(entry.path for entry in found)}.",
                hint="Give its inventory path.",
            )
        return found[0]

    def folder(self, identity: VmSelector) -> InventoryItem:
        """Return the folder for a new VM."""
        path = identity.folder_path if identity.folder.startswith("/") else ""
        if not path:
            if identity.datacenter or len(self.datacenters) == 1:
                home = self.datacenter(identity.datacenter) if identity.datacenter else self.datacenters[0]
                path = folder_path(identity.folder, home.path)
            else:
                path = identity.folder_path
        if not path:
            raise FolderNotFound(
                f"VM {identity.name} could be made in any of the datacenters"
                f" {join_names(entry.path for entry in self.datacenters)}.",
                hint="Give the option datacenter.",
            )
        found = next((entry for entry in self.folders if entry.path == path), None)
        if found is None:
            if not any(path.startswith(f"{entry.path}/") for entry in self.datacenters):
                there = join_names(entry.path for entry in self.datacenters)
                raise FolderNotFound(f"{path} is in no datacenter.", hint=f"There are the datacenters {there}.")
            alike = did_you_mean(path, (entry.path for entry in self.folders), limit=3)
            raise FolderNotFound(
                f"There is no VM folder {path}.", hint=f"Did you mean {' or '.join(alike)}?" if alike else ""
            )
        if identity.datacenter and not is_datacenter(identity.datacenter, found.datacenter):
            raise FolderNotFound(
                f"Folder {found.path} is not in datacenter {identity.datacenter}.",
                hint="Correct one of the options folder and datacenter.",
            )
        return found

    @cached_property
    def _tree(self) -> tuple[tuple[InventoryItem, ...], ...]:
        """Return the VMs, VM folders and datacenters, each sorted by path."""
        session = self._session
        vim, query = session.vim, session.vmodl.query.PropertyCollector
        down = [
            query.TraversalSpec(
                name="folder",
                type=vim.Folder,
                path="childEntity",
                skip=False,
                selectSet=[query.SelectionSpec(name=name) for name in ("folder", "datacenter", "vapp")],
            ),
            query.TraversalSpec(
                name="datacenter",
                type=vim.Datacenter,
                path="vmFolder",
                skip=False,
                selectSet=[query.SelectionSpec(name="folder")],
            ),
            query.TraversalSpec(name="vapp", type=vim.VirtualApp, path="vm", skip=False),
        ]
        wanted = query.FilterSpec(
            objectSet=[query.ObjectSpec(obj=session.content.rootFolder, selectSet=down, skip=False)],
            propSet=[
                query.PropertySpec(type=vim.VirtualMachine, pathSet=["name", "parent", "parentVApp"]),
                query.PropertySpec(type=vim.VirtualApp, pathSet=["name", "parentFolder"]),
                query.PropertySpec(type=vim.Folder, pathSet=["name", "parent"]),
                query.PropertySpec(type=vim.Datacenter, pathSet=["name", "parent"]),
            ],
        )
        found = session.collect(Operation("list VMs and folders"), wanted)
        known = {moid_of(entity): values for entity, values in found}
        homes = {moid_of(entity) for entity, _values in found if isinstance(entity, vim.Datacenter)}
        vms, folders, datacenters = [], [], []
        for entity, _values in found:
            moid = moid_of(entity)
            home = ancestor(moid, known, homes)
            entry = InventoryItem(entity, path_of(moid, known), path_of(home, known) if home else "")
            if isinstance(entity, vim.VirtualMachine):
                vms.append(entry)
            elif isinstance(entity, vim.Datacenter):
                datacenters.append(entry)
            elif isinstance(entity, vim.Folder) and home:
                folders.append(entry)
        return tuple(tuple(sorted(each, key=lambda entry: entry.path)) for each in (vms, folders, datacenters))

    @property
    def vms(self) -> Sequence[InventoryItem]:
        return self._tree[0]

    @property
    def folders(self) -> Sequence[InventoryItem]:
        """Return the VM folders, all of which are inside a datacenter."""
        return self._tree[1]

    @property
    def datacenters(self) -> Sequence[InventoryItem]:
        return self._tree[2]
