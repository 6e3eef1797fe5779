# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects that must exist before a VM can be created: its namespace, images, storage classes and networks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import FleetError, did_you_mean, join_names
from ...kube.client import ApiClient, Forbidden, NotFound

Json = dict[str, Any]

NAMESPACE, IMAGE, NETWORK, STORAGE_CLASS = "Namespace", "Image", "Network", "StorageClass"
VM_PATH = "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines"
# The collection of each kind, of a namespace or of the cluster.
COLLECTIONS = {
    NAMESPACE: "/api/v1/namespaces",
    IMAGE: "/apis/harvesterhci.io/v1beta1/namespaces/{namespace}/virtualmachineimages",
    NETWORK: "/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions",
    STORAGE_CLASS: "/apis/storage.k8s.io/v1/storageclasses",
}

# Names of objects, which are DNS subdomains.
NAME = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


class MissingPrerequisites(FleetError):
    code = "missing_prerequisites"


class InvalidVmName(FleetError):
    code = "invalid_vm_name"


@dataclass(frozen=True, order=True)
class Reference:
    """An object that a VM refers to. `name` contains the namespace if the kind has one."""

    kind: str
    name: str

    @property
    def collection(self) -> str:
        return COLLECTIONS[self.kind].format(namespace=self.name.rpartition("/")[0])

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name.rpartition('/')[2]}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Prerequisites:
    """The objects that new VMs refer to, as found in the cluster. `unknown` are those that may not be read."""

    missing: Mapping[Reference, Sequence[str]] = field(default_factory=dict)
    not_ready: Mapping[Reference, Sequence[str]] = field(default_factory=dict)
    unknown: tuple[Reference, ...] = ()
    storage_classes: Mapping[str, str] = field(default_factory=dict)
    existing_vms: tuple[str, ...] = ()
    similar: Mapping[Reference, str] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each object that VMs need and that is missing or not ready."""
        problems = [
            f"{reference} of {_listed(vms)} does not exist.{self.similar.get(reference, '')}"
            for reference, vms in sorted(self.missing.items())
        ]
        problems += [
            f"{reference} of {_listed(vms)} is not ready." for reference, vms in sorted(self.not_ready.items())
        ]
        return problems

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self.unknown:
            return ()
        names = join_names(map(str, self.unknown))
        return (f"The user may not read these objects, so it is unknown whether they exist: {names}.",)

    def require(self) -> None:
        """Raise MissingPrerequisites with all problems at once."""
        if self.problems:
            hint = (
                "Create these objects, or correct the VMs. Images and networks have the form namespace/name, with the"
                " name of the object, not the name that the UI displays. Nothing was changed."
            )
            raise MissingPrerequisites(" ".join(self.problems), hint=hint)


def _listed(vms: Iterable[str]) -> str:
    names = sorted(set(vms))
    return f"VM {names[0]}" if len(names) == 1 else f"VMs {join_names(names)}"


def path_of(vm: Mapping[str, Any]) -> str:
    return f"{vm.get('namespace') or 'default'}/{vm['name']}"


def references(vm: Mapping[str, Any]) -> Iterator[Reference]:
    """Yield the objects that a new VM needs."""
    yield Reference(NAMESPACE, str(vm.get("namespace") or "default"))
    for disk in vm.get("disks") or ():
        if disk.get("image"):
            yield Reference(IMAGE, str(disk["image"]))
        if disk.get("storage_class"):
            yield Reference(STORAGE_CLASS, str(disk["storage_class"]))
    for network in vm.get("networks") or ():
        yield Reference(NETWORK, str(network))


def read_prerequisites(api: ApiClient, vms: Sequence[Mapping[str, Any]]) -> Prerequisites:
    """Read the objects that the VMs need which do not exist yet."""
    for vm in vms:
        _refuse_invalid_name(vm)
    found = api.together([_reading(api, _vm_path(vm)) for vm in vms]) if vms else []
    existing = tuple(path_of(vm) for vm, body in zip(vms, found, strict=True) if isinstance(body, dict))
    users: dict[Reference, list[str]] = {}
    for vm in vms:
        if path_of(vm) not in existing:
            for reference in references(vm):
                users.setdefault(reference, []).append(path_of(vm))
    needed = sorted(users)
    bodies = api.together([_reading(api, reference.path) for reference in needed]) if needed else []
    missing, not_ready, unknown, classes = {}, {}, [], {}
    for reference, body in zip(needed, bodies, strict=True):
        if body is UNKNOWN:
            unknown.append(reference)
        elif body is None:
            missing[reference] = users[reference]
        elif reference.kind == IMAGE:
            storage_class = (body.get("status") or {}).get("storageClassName") or ""
            classes[reference.name] = storage_class
            if not storage_class:
                not_ready[reference] = users[reference]
    similar = {reference: _similar(api, reference) for reference in missing}
    return Prerequisites(missing, not_ready, tuple(unknown), classes, existing, similar)


# An object that the user may not read.
UNKNOWN = object()


def _refuse_invalid_name(vm: Mapping[str, Any]) -> None:
    for option in ("name", "namespace"):
        text = str(vm.get(option) or ("default" if option == "namespace" else ""))
        if not NAME.fullmatch(text):
            raise InvalidVmName(
                f"{text[:80]!r} is not a valid {option} of a VM.",
                hint="Use at most 253 lower-case letters, digits, '-' and '.', with a letter or digit at both ends.",
            )


def _vm_path(vm: Mapping[str, Any]) -> str:
    namespace, name = path_of(vm).split("/")
    return f"{VM_PATH.format(namespace=namespace)}/{name}"


def _reading(api: ApiClient, path: str) -> Any:
    def read() -> Any:
        try:
            return api.get_or_none(path)
        except Forbidden:
            return UNKNOWN

    return read


def _similar(api: ApiClient, reference: Reference) -> str:
    """Return a sentence about the objects of the same kind that exist, if the user may list them."""
    try:
        listed = api.get(reference.collection).get("items") or []
    except (Forbidden, NotFound):
        return ""
    prefix, slash, _name = reference.name.rpartition("/")
    names = [f"{prefix}{slash}{item['metadata']['name']}" for item in listed]
    if close := did_you_mean(reference.name, names, limit=1):
        return f" Did you mean {close[0]}?"
    return f" Existing: {join_names(names)}." if names else ""
