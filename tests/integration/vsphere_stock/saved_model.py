"""Write a saved model for the stock simulator: one XML file for each managed object of a running server.

The format is that of `govc object.save`, which `vcsim -load` reads. Between reading and writing, `gpus` adds GPUs to
the hosts. The simulator only stores and returns these values: it checks no rule about GPUs.
"""

from __future__ import annotations

import http.client
import ssl
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from lab.vsphere.stock import StockServer

VIM, XSI = "urn:vim25", "http://www.w3.org/2001/XMLSchema-instance"
ENVELOPE = (
    '<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body>'
    f'<{{0}} xmlns="{VIM}" xmlns:xsi="{XSI}"><_this type="{{1}}">{{2}}</_this>{{3}}</{{0}}></Body></Envelope>'
)
# Objects of a host or cluster that no folder contains.
BESIDE = {
    "ComputeResource": ["environmentBrowser"],
    "Datastore": ["browser"],
    "HostSystem": [
        f"configManager.{manager}"
        for manager in ("datastoreSystem", "networkSystem", "virtualNicManager", "certificateManager")
    ],
}
# Without this answer, the simulator refuses every upgrade of the hardware version.
HARDWARE_VERSIONS = "QueryConfigOptionDescriptor"
Reference = tuple[str, str]

A40 = 0x2235
NVIDIA = 0x10DE
FRAMEBUFFER_GIB = 48
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)
PROFILES = [f"nvidia_a40-{size}q" for size in SIZES]


class Client:
    """The few calls that reading a whole inventory takes, with the XML of the answers kept as it is."""

    def __init__(self, server: StockServer) -> None:
        tls = ssl._create_unverified_context()
        self._connection = http.client.HTTPSConnection(server.host, server.port, context=tls, timeout=30)
        self._cookie = ""
        login = f"<userName>{escape(server.user)}</userName><password>{escape(server.password)}</password>"
        self.content = self.call("RetrieveServiceContent", ("ServiceInstance", "ServiceInstance"))[0]
        self.call("Login", self.manager("sessionManager"), login)

    def manager(self, name: str) -> Reference:
        return _reference(_child(self.content, name))

    def call(self, method: str, this: Reference, arguments: str = "") -> list[ET.Element]:
        """Return the values that a method answers."""
        body = ENVELOPE.format(method, *this, arguments)
        headers = {"SOAPAction": "urn:vim25/6.5", "Content-Type": "text/xml", "Cookie": self._cookie}
        self._connection.request("POST", "/sdk", body.encode(), headers)
        answer = self._connection.getresponse()
        self._cookie = answer.getheader("Set-Cookie") or self._cookie
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method}: {text.decode()}")
        return list(ET.fromstring(text)[0][0])

    def read(self, references: Iterable[Reference], paths: dict[str, list[str] | None]) -> list[ET.Element]:
        """Return the properties of objects, all of them where a type has no paths."""
        properties = "".join(
            f"<propSet><type>{kind}</type>"
            + ("<all>true</all>" if wanted is None else "".join(f"<pathSet>{path}</pathSet>" for path in wanted))
            + "</propSet>"
            for kind, wanted in paths.items()
        )
        objects = "".join(f'<objectSet><obj type="{kind}">{moid}</obj></objectSet>' for kind, moid in references)
        asked = f"<specSet>{properties}{objects}</specSet><options/>"
        (result,) = self.call("RetrievePropertiesEx", self.manager("propertyCollector"), asked)
        return result.findall(f"{{{VIM}}}objects")

    def entities(self) -> list[Reference]:
        kind, moid = self.manager("rootFolder")
        arguments = f'<container type="{kind}">{moid}</container><recursive>true</recursive>'
        (view,) = self.call("CreateContainerView", self.manager("viewManager"), arguments)
        (shown,) = self.read([_reference(view)], {"ContainerView": ["view"]})
        listed = next(shown.iter(f"{{{VIM}}}val"))
        self.call("DestroyView", _reference(view))
        return [(kind, moid), *map(_reference, listed)]


def save(server: StockServer, directory: Path) -> None:
    """Write the inventory of a server with two A40 in each host of its clusters, as a vCenter of version 8.0.3."""
    client = Client(server)
    directory.mkdir()
    (instance,) = client.read([("ServiceInstance", "ServiceInstance")], {"ServiceInstance": ["content"]})
    for about in instance.iter(f"{{{VIM}}}about"):
        _child(about, "version").text = "8.0.3"
        _child(about, "apiVersion").text = "8.0.3.0"
    managers = [_reference(entry) for entry in client.content if _is_reference(entry)]
    managers = [entry for entry in managers if entry[0] != "Folder"]
    entities = client.entities()
    beside = []
    for kind, paths in BESIDE.items():
        chosen = [entry for entry in entities if entry[0] in (kind, f"Cluster{kind}")]
        for found in client.read(chosen, {kind: list(paths)}):
            beside += [_reference(value) for value in found.iter(f"{{{VIM}}}val") if _is_reference(value)]
    written = [instance]
    for reference in dict.fromkeys([*managers, *entities, *beside]):
        written += client.read([reference], {reference[0]: None})
    for number, found in enumerate(written):
        kind, moid = _reference(_child(found, "obj"))
        for missing in found.findall(f"{{{VIM}}}missingSet"):
            found.remove(missing)
        if kind == "HostSystem" and _in_cluster(found):
            _add_gpus(found)
        found.tag = "ObjectContent"
        name = f"{kind}-{moid}".replace("/", "%2f")
        (directory / f"{number:04}-{name}.xml").write_bytes(_plain(found))
        if kind == "EnvironmentBrowser":
            (directory / name).mkdir()
            for method in ("QueryConfigTarget", HARDWARE_VERSIONS):
                answer = ET.Element(f"{method}Response")
                answer.extend(client.call(method, (kind, moid)))
                if method == "QueryConfigTarget":
                    answer[0].extend(_offer())
                (directory / name / f"{method}.xml").write_bytes(_plain(answer))


def _add_gpus(host: ET.Element) -> None:
    """Add two A40 that serve vGPUs to the properties of a host."""
    values = {_child(entry, "name").text: _child(entry, "val") for entry in host.findall(f"{{{VIM}}}propSet")}
    config, hardware = values["config"], values["hardware"]
    for bus in ("3b", "5e"):
        address = f"0000:{bus}:00.0"
        config.append(
            _element(
                "graphicsInfo",
                deviceName="NVIDIA A40",
                vendorName="NVIDIA Corporation",
                pciId=address,
                graphicsType="sharedDirect",
                vgpuMode="sameSize",
                memorySizeInKB=FRAMEBUFFER_GIB << 20,
            )
        )
        ids = {"vendorId": NVIDIA, "deviceId": A40, "subVendorId": NVIDIA, "subDeviceId": 0x145A}
        names = {"vendorName": "NVIDIA Corporation", "deviceName": "NVIDIA A40"}
        place = {"id": address, "classId": 0x0302, "bus": int(bus, 16), "slot": 0, "function": 0}
        hardware.append(_element("pciDevice", **place, **ids, **names))
    graphics = _child(config, "graphicsConfig")
    _child(graphics, "hostDefaultGraphicsType").text = "sharedDirect"
    for profile in PROFILES:
        config.append(_element("sharedPassthruGpuTypes", profile))
        supported = dict.fromkeys(
            ("diskSnapshotSupported", "memorySnapshotSupported", "suspendSupported", "migrateSupported"), "true"
        )
        config.append(_element("sharedGpuCapabilities", vgpu=profile, **supported))


def _offer() -> Iterator[ET.Element]:
    """Yield what QueryConfigTarget says about the vGPUs of a host."""
    device = A40 << 16 | NVIDIA
    for profile, size in zip(PROFILES, SIZES, strict=True):
        yield _element("sharedGpuPassthroughTypes", name=profile, vgpu=profile)
        yield _element(
            "vgpuProfileInfo",
            profileName=profile,
            deviceVendorId=device,
            fbSizeInGib=size,
            profileSharing="timeSliced",
            profileClass="quadro",
        )
    capable = {"timeSlicedCapable": "true", "migCapable": "false"}
    capable |= {"computeProfileCapable": "true", "quadroProfileCapable": "true"}
    yield _element(
        "vgpuDeviceInfo", deviceName="NVIDIA A40", deviceVendorId=device, maxFbSizeInGib=FRAMEBUFFER_GIB, **capable
    )


def _in_cluster(host: ET.Element) -> bool:
    parents = [entry for entry in host.findall(f"{{{VIM}}}propSet") if _child(entry, "name").text == "parent"]
    return any(_reference(_child(entry, "val"))[0] == "ClusterComputeResource" for entry in parents)


def _element(tag: str, text: str = "", **fields: object) -> ET.Element:
    element = ET.Element(tag)
    element.text = text or None
    for name, value in fields.items():
        ET.SubElement(element, name).text = str(value)
    return element


def _child(element: ET.Element, name: str) -> ET.Element:
    found = element.find(f"{{{VIM}}}{name}")
    assert found is not None, name
    return found


def _is_reference(element: ET.Element) -> bool:
    return "type" in element.attrib


def _reference(element: ET.Element) -> Reference:
    return (element.attrib["type"], element.text or "")


def _plain(root: ET.Element) -> bytes:
    """Return XML without a namespace of elements, as govc writes it."""
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{VIM}}}")
    return ET.tostring(root)
