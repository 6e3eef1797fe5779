# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which VM a task means: by path in one call, by name in one call over all folders, by moid, or by uuid in two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError, listing, nearest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Subject, VsphereError, moid_of
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_path import path_of

# The folder that holds all VMs of a datacenter, by the name it has in paths.
VM_FOLDER = "vm"


class VmNotFound(FleetError):
    code = "vm_not_found"


class AmbiguousVm(FleetError):
    code = "vm_ambiguous"


class FolderNotFound(FleetError):
    code = "folder_not_found"


@dataclass(frozen=True)
class Identity:
    """How a task names a VM."""

    name: str = ""
    folder: str = ""
    datacenter: str = ""
    uuid: str = ""
    moid: str = ""

    @property
    def said(self) -> str:
        if self.moid:
            return f"with moid {self.moid}"
        if self.uuid:
            return f"with uuid {self.uuid}"
        return f"{self.name} in {self.folder}" if self.folder else self.name

    @property
    def folder_path(self) -> str:
        """The folder as an inventory path, if the task says enough for one."""
        return absolute(self.folder, self.datacenter) if self.folder else ""


def absolute(folder: str, datacenter: str) -> str:
    """`/dc1/vm/team` from any of the ways to write it, or nothing where the datacenter is not said."""
    parts = [part for part in folder.split("/") if part]
    if folder.startswith("/"):
        return "/" + "/".join(parts)
    if len(parts) > 1 and parts[1] == VM_FOLDER and datacenter in ("", parts[0]):
        return "/" + "/".join(parts)
    if not datacenter:
        return ""
    return "/".join(["", datacenter, VM_FOLDER, *(parts[1:] if parts[:1] == [VM_FOLDER] else parts)])


@dataclass(frozen=True)
class Entry:
    """A VM or a folder in the inventory."""

    reference: Any
    path: str

    @property
    def name(self) -> str:
        return unquote(self.path.rpartition("/")[2])

    @property
    def datacenter(self) -> str:
        return self.path.split("/")[1]


class Inventory:
    """All VMs and VM folders of a vCenter with their paths, read in one call when first needed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # Finding VMs
    def find(self, identity: Identity) -> Any | None:
        """The VM, or None if there is none."""
        if identity.moid:
            return self._by_moid(identity)
        if identity.uuid:
            return self._by_uuid(identity)
        path = identity.folder_path
        if path:
            return self._by_path(f"{path}/{_escaped(identity.name)}")
        return self._by_name(identity)

    def not_found(self, identity: Identity) -> VmNotFound:
        if identity.moid or identity.uuid:
            return VmNotFound(f"There is no VM {identity.said}.", hint="Look it up in the vSphere client.")
        elsewhere = [entry.path for entry in self.vms if entry.name == identity.name]
        alike = nearest(identity.name, (entry.name for entry in self.vms), limit=2)
        if elsewhere:
            hint = f"Of that name there is: {listing(elsewhere)}."
        elif alike:
            hint = f"Did you mean {' or '.join(alike)}? To make a new one, give a template."
        else:
            hint = "To make a new one, give a template."
        return VmNotFound(f"There is no VM {identity.said}.", hint=hint)

    def _by_moid(self, identity: Identity) -> Any | None:
        reference = self._session.vim.VirtualMachine(identity.moid, self._session.stub)
        try:
            found = self._session.read(Subject(f"find the VM {identity.said}"), [reference], ["name"])
        except VsphereError as error:
            if error.fault == "ManagedObjectNotFound":
                return None
            raise
        return reference if found and found[0][1] else None

    def _by_uuid(self, identity: Identity) -> Any | None:
        """The uuid that the BIOS shows the guest, which copies of a VM may share, or that of the instance."""
        search, subject = self._session.content.searchIndex, Subject(f"find the VM {identity.said}")
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
            Subject(f"find {path}"), self._session.content.searchIndex.FindByInventoryPath, path.strip("/")
        )
        return found if isinstance(found, self._session.vim.VirtualMachine) else None

    def _by_name(self, identity: Identity) -> Any | None:
        entry = self.named(identity.name, datacenter=identity.datacenter, folder=identity.folder)
        return entry.reference if entry else None

    def named(self, name: str, *, datacenter: str = "", folder: str = "", what: str = "VM") -> Entry | None:
        """By bare name. Two VMs in different folders may share one."""
        found = [
            entry
            for entry in self.vms
            if entry.name == name
            and datacenter in ("", entry.datacenter)
            and (not folder or entry.path.rpartition("/")[0] == absolute(folder, entry.datacenter))
        ]
        if len(found) > 1:
            candidates = "; ".join(f"{entry.path} ({moid_of(entry.reference)})" for entry in found)
            raise AmbiguousVm(
                f"{len(found)} {what}s are called {name}: {candidates}.",
                hint="Say which one with folder and datacenter, or use its moid or uuid."
                if what == "VM"
                else "Say which one with its path.",
            )
        return found[0] if found else None

    def template(self, name: str, *, datacenter: str = "") -> Any:
        """By inventory path or by name, in the VM's own datacenter first."""
        if "/" in name:
            found = self._by_path(name)
        else:
            near = self.named(name, datacenter=datacenter, what="template")
            entry = near or self.named(name, what="template")
            found = entry.reference if entry else None
        if found is None:
            alike = nearest(name.rpartition("/")[2], (entry.name for entry in self.vms), limit=3)
            raise VmNotFound(
                f"There is no template {name}.", hint=f"Did you mean {' or '.join(alike)}?" if alike else ""
            )
        return found

    # Folders
    def folder(self, identity: Identity) -> Entry:
        """Where a new VM is put."""
        datacenters = sorted({entry.datacenter for entry in self.folders})
        path = identity.folder_path
        if not path:
            if identity.datacenter or len(datacenters) == 1:
                path = absolute(identity.folder, identity.datacenter or datacenters[0])
            else:
                raise FolderNotFound(
                    f"VM {identity.name} could be made in any of the datacenters {listing(datacenters)}.",
                    hint="Give the option datacenter.",
                )
        found = next((entry for entry in self.folders if entry.path == path), None)
        if found is None:
            wanted = path.split("/")[1]
            if wanted not in datacenters:
                raise FolderNotFound(f"There is no datacenter {wanted}.", hint=f"There are: {listing(datacenters)}.")
            alike = nearest(path, (entry.path for entry in self.folders), limit=3)
            raise FolderNotFound(
                f"There is no VM folder {path}.", hint=f"Did you mean {' or '.join(alike)}?" if alike else ""
            )
        return found

    @cached_property
    def _tree(self) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
        """VMs and folders, sorted by path."""
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
        found = session.collect(Subject("list VMs and folders"), wanted)
        known = {moid_of(entity): values for entity, values in found}
        vms, folders = [], []
        for entity, _values in found:
            if isinstance(entity, vim.VirtualMachine):
                vms.append(Entry(entity, path_of(moid_of(entity), known)))
            elif isinstance(entity, vim.Folder):
                path = path_of(moid_of(entity), known)
                if path.count("/") > 1:
                    folders.append(Entry(entity, path))
        return tuple(sorted(vms, key=lambda entry: entry.path)), tuple(folders)

    @property
    def vms(self) -> Sequence[Entry]:
        return self._tree[0]

    @property
    def folders(self) -> Sequence[Entry]:
        return self._tree[1]


def _escaped(name: str) -> str:
    """Names hold slashes as vCenter stores them."""
    return name.replace("/", "%2f")
