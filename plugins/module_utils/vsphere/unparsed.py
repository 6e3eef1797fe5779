# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults that pyVmomi does not know, read from the XML of a response.

pyVmomi stops at the first type that it does not know and discards the rest of the response, with the text that says
what went wrong (vsphere.md 8.3). The functions here need no SDK.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
SUFFIX = "Fault"


class UnparsedFault:
    """Base of the faults that are made from XML. Their fields are attributes, as in pyVmomi."""


def named_fault(name: str, text: str = "", **fields: Any) -> UnparsedFault:
    """Return a fault of the named type. It also counts as the type without the suffix Fault, such as NotFound."""
    base: type = UnparsedFault
    if name.endswith(SUFFIX) and name != SUFFIX:
        base = type(name.removesuffix(SUFFIX), (UnparsedFault,), {})
    fault: Any = type(name, (base,), {})()
    for field, value in fields.items():
        setattr(fault, field, value)
    fault.localizedMessage = text
    found: UnparsedFault = fault
    return found


def faults_in(document: str | bytes) -> Iterator[UnparsedFault]:
    """Yield the outermost faults of a response, in their order."""
    yield from _search(ET.fromstring(document))


def _search(element: ET.Element) -> Iterator[UnparsedFault]:
    for child in element:
        if _local(child.tag) == "fault" and child.get(TYPE):
            yield _fault(child, element)
            return
        yield from _search(child)


def _fault(element: ET.Element, around: ET.Element) -> UnparsedFault:
    fields: dict[str, Any] = {}
    messages = []
    for child in element:
        name = _local(child.tag)
        if name == "faultCause":
            fields[name] = next(_search(child), None)
        elif name == "faultMessage":
            messages += [_Message(text) for text in _texts(child, "message")]
        elif not len(child) and child.text:
            fields[name] = child.text
    text = next(iter(_texts(around, "localizedMessage")), "")
    if not text or text.startswith("*types."):
        text = str(fields.get("reason") or "")
    kind = str(element.get(TYPE)).rsplit(":", 1)[-1]
    return named_fault(kind, text, **fields, faultMessage=tuple(messages))


class _Message:
    def __init__(self, message: str) -> None:
        self.message = message


def _texts(element: ET.Element, name: str) -> list[str]:
    return [child.text for child in element if _local(child.tag) == name and child.text]


def _local(tag: str) -> str:
    return tag.rsplit("}", 1)[-1]
