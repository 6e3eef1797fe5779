# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Properties of GPU hosts and their VMs, without devices that have nothing to do with GPUs.

pyVmomi parses XML in Python, which takes more than a millisecond of CPU time per VM, nearly all of it for controllers,
disks and network adapters. Here, such devices are removed from the response first. VMs that have no device left are
read directly, and pyVmomi parses everything else. If a response has any other form, pyVmomi parses all of it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from functools import cache, partial
from http import HTTPStatus
from typing import Any

from ..faults import Operation
from ..names import real_name
from ..session import Session

NAMESPACE = "urn:vim25"
TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
OBJ, PROPERTY, NAME, VALUE, OBJECTS = (f"{{{NAMESPACE}}}{tag}" for tag in ("obj", "propSet", "name", "val", "objects"))

# Without comments and CDATA sections, "<" always begins a tag. Elements of these names do not contain each other.
OBJECT = re.compile(rb"<objects>.*?</objects>", re.DOTALL)
DEVICE = re.compile(rb"<VirtualDevice(\s[^>]*[^/>])>(.*?)</VirtualDevice>", re.DOTALL)
PCI_DEVICE = re.compile(rb"<HostPciDevice><id>([^<]*)</id>.*?</HostPciDevice>", re.DOTALL)
BACKING = re.compile(rb"<backing(\s[^>]*)?>")
TYPE_ATTRIBUTE = re.compile(rb'[\s:]type="(?:\w+:)?(\w+)"')
WITHOUT_3D = b"<enable3DSupport>false</enable3DSupport>"
# Why a device is kept.
PASSED_THROUGH, RENDERING, UNCLEAR = "passed through", "rendering", "unclear"
# Types of the objects that are read directly: references, simple values, and lists of devices, of which none is left.
SIMPLE = frozenset(b"string boolean ManagedObjectReference VirtualMachinePowerState ArrayOfVirtualDevice".split())
SIMPLE |= {b"VirtualMachine", b"HostSystem"}
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
Objects = list[tuple[Any, dict[str, Any]]]


class Unexpected(Exception):
    """A response that only pyVmomi can read."""


def is_whole_device(device: Any) -> bool:
    """Return whether a device is passed through as a whole. Only such backings have these fields (vsphere.md 1.1)."""
    backing = getattr(device, "backing", None)
    return hasattr(backing, "allowedDevice") or (hasattr(backing, "systemId") and hasattr(backing, "vendorId"))


def renders_on_hardware(device: Any) -> bool:
    """Return whether a device is a video card with 3D support that may use a GPU of the host."""
    return bool(getattr(device, "enable3DSupport", False)) and getattr(device, "use3dRenderer", "") != "software"


def collect(session: Session, subject: Operation, filters: Sequence[Any], addresses: Collection[str]) -> Objects:
    """Return pairs of object and properties for filter specs, as `Session.collect` does.

    VMs come without devices that have nothing to do with GPUs, and hosts with the PCI devices at these addresses only.
    """
    options = session.vmodl.query.PropertyCollector.RetrieveOptions()
    reader = Reader(session, addresses)
    found: Objects = []
    status, document = session.raw(subject, "RetrievePropertiesEx", list(filters), options)
    while status == HTTPStatus.OK:
        objects, token = session.call(subject, reader.read, document)
        found += objects
        if not token:
            return found
        status, document = session.raw(subject, "ContinueRetrievePropertiesEx", token)
    # pyVmomi raises the fault, or the session logs in and reads again.
    return session.collect(subject, *filters)


class Reader:
    """A reader of responses. It asks pyVmomi for the types of devices, and remembers the answers."""

    def __init__(self, session: Session, addresses: Collection[str]) -> None:
        from pyVmomi import SoapAdapter, VmomiSupport

        self._session = session
        self._addresses = {address.encode() for address in addresses}
        self._adapter: Any = SoapAdapter
        types: Any = VmomiSupport
        self._type = partial(types.GetWsdlType, NAMESPACE)
        self._is_kept = cache(self._reason)

    def read(self, document: bytes) -> tuple[Objects, str | None]:
        """Return pairs of object and properties, and the token of the next page if there is one."""
        try:
            return self._read_in_parts(document)
        except Unexpected:
            return self._parse(document)

    def _read_in_parts(self, document: bytes) -> tuple[Objects, str | None]:
        if b"<!" in document:
            raise Unexpected("comments or CDATA sections")
        try:
            shortened = DEVICE.sub(self._unless_other, document)
            shortened = PCI_DEVICE.sub(lambda found: found[0] if found[1] in self._addresses else b"", shortened)
            first, last = shortened.find(b"<objects>"), shortened.rfind(b"</objects>") + len(b"</objects>")
            entries: list[bytes] = OBJECT.findall(shortened)
            if first < 0 or sum(map(len, entries)) != last - first:
                raise Unexpected("something between the objects")
            simple = [SIMPLE.issuperset(TYPE_ATTRIBUTE.findall(entry)) for entry in entries]
            start, end = shortened[:first], shortened[last:]
            parts = (
                b"".join(
                    [start, *(entry for entry, here in zip(entries, simple, strict=True) if here is directly), end]
                )
                for directly in (True, False)
            )
            direct = iter([self._object(element) for element in ET.fromstring(next(parts)).iter(OBJECTS)])
            parsed, token = self._parse(next(parts))
            others = iter(parsed)
            found = [next(direct if here else others) for here in simple]
            if next(direct, None) or next(others, None):
                raise Unexpected("more objects than elements")
        except (ET.ParseError, StopIteration, KeyError, AttributeError, TypeError, ValueError) as error:
            raise Unexpected(str(error)) from error
        return found, token

    def _parse(self, document: bytes) -> tuple[Objects, str | None]:
        """Let pyVmomi parse a response."""
        method = self._session.content.propertyCollector._GetMethodInfo("RetrievePropertiesEx")
        result = self._adapter.SoapResponseDeserializer(self._session.stub).Deserialize(document, method.result)
        if result is None:
            return [], None
        return [(entry.obj, self._session.properties(entry)) for entry in result.objects], result.token

    # Objects with simple values
    def _object(self, element: ET.Element) -> tuple[Any, dict[str, Any]]:
        reference, *properties = element
        found: dict[str, Any] = {}
        for entry in properties:
            name, value = entry
            # Properties that cannot be read are reported by pyVmomi.
            if (entry.tag, name.tag, value.tag) != (PROPERTY, NAME, VALUE):
                raise Unexpected(f"{entry.tag} with {name.tag} and {value.tag}")
            path = str(name.text)
            found[path] = self._value(path, value)
        if reference.tag != OBJ:
            raise Unexpected(reference.tag)
        return self._reference(reference), found

    def _value(self, path: str, value: ET.Element) -> Any:
        kind = value.attrib[TYPE].rpartition(":")[2]
        text = value.text or ""
        if len(value):
            raise Unexpected(f"elements in {path}")
        if kind == "ManagedObjectReference":
            return self._reference(value)
        if kind == "boolean":
            return BOOLEANS[text.lower()]
        if kind == "ArrayOfVirtualDevice":
            return []
        # vCenter returns stored names, in which characters are escaped.
        return real_name(text) if path == "name" else text

    def _reference(self, element: ET.Element) -> Any:
        if not element.text or len(element) or not {"type", TYPE}.issuperset(element.attrib):
            raise Unexpected(f"a reference with {element.attrib}")
        return self._type(element.attrib["type"])(element.text, self._session.stub)

    # Devices
    def _unless_other(self, found: re.Match[bytes]) -> bytes:
        attributes, fields = found.groups()
        backings = BACKING.findall(fields) if b"<backing" in fields else ()
        reason = self._is_kept(attributes, *backings)
        return found[0] if reason and not (reason == RENDERING and WITHOUT_3D in fields) else b""

    def _reason(self, device: bytes, *backings: bytes) -> str:
        """Return why a device is kept, or an empty string. The arguments are the attributes of its elements."""
        names = [TYPE_ATTRIBUTE.findall(attributes) for attributes in (device, *backings)]
        if any(len(name) != 1 for name in names):
            return UNCLEAR
        # pyVmomi raises KeyError for types that it does not know.
        found, *uses = (self._type(name[0].decode())() for name in names)
        if isinstance(found, self._session.vim.vm.device.VirtualPCIPassthrough):
            return PASSED_THROUGH
        vgpu = self._session.vim.vm.device.VirtualPCIPassthrough.VmiopBackingInfo
        for use in uses:
            found.backing = use
            if isinstance(use, vgpu) or is_whole_device(found):
                return PASSED_THROUGH
        return RENDERING if hasattr(found, "enable3DSupport") else ""
