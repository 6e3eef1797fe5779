"""The reader of responses against pyVmomi's own parser: the same inventory, or none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import (
    UNREADABLE,
    Operation,
    VsphereError,
    moid_of,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read import inventory, response
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.response import Reader, Unexpected
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from hypothesis import given, strategies as st
from pyVmomi import SoapAdapter, VmomiSupport, vim, vmodl

QUERY = vmodl.query.PropertyCollector
VGPU = vim.vm.device.VirtualPCIPassthrough.VmiopBackingInfo
READ = Operation("read the GPU hosts and their VMs")
ENVELOPE = """<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"
  xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>
<{method}Response xmlns="urn:vim25">{result}</{method}Response>
</soapenv:Body></soapenv:Envelope>"""


def types_below(base):
    """Return the types of a kind that this pyVmomi knows, by their name in XML. vCenter always names the type."""
    found = {}
    for namespace, name in sorted(VmomiSupport._wsdlDefMap):
        if namespace == "urn:vim25" and name.startswith(("Virtual", "Para")):
            known = VmomiSupport.GetWsdlType(namespace, name)
            if isinstance(known, type) and issubclass(known, base) and known is not base:
                found[name] = known
    return found


def some(kind):
    """Return a value of a type."""
    if issubclass(kind, VmomiSupport.ManagedObject):
        return kind("some-1")
    if issubclass(kind, VmomiSupport.Enum):
        return kind.values[0]
    return filled(kind) if issubclass(kind, VmomiSupport.DataObject) else kind(1)


def filled(made):
    """Return an object of a type with values in all fields that pyVmomi does not write without."""
    found = made()
    for field in found._GetPropertyList():
        if not field.flags & VmomiSupport.F_OPTIONAL and getattr(found, field.name) in (None, []):
            is_list = issubclass(field.type, list)
            value = some(field.type.Item if is_list else field.type)
            setattr(found, field.name, [value] if is_list else value)
    return found


DEVICES = types_below(vim.vm.device.VirtualDevice)
BACKINGS = types_below(vim.vm.device.VirtualDevice.BackingInfo)


def envelope(*objects, method="RetrievePropertiesEx", token=None):
    """Return a response as pyVmomi itself writes these objects."""
    result = SoapAdapter.SerializeToStr(QUERY.RetrieveResult(objects=list(objects), token=token), version=VERSION)
    inner = result.partition(">")[2].rpartition("<")[0]
    # vCenter names the type of references so.
    inner = inner.replace('xsi:type="ManagedObject"', 'xsi:type="ManagedObjectReference"')
    return ENVELOPE.format(method=method, result=f"<returnval>{inner}</returnval>").encode()


VERSION = "vim.version.v8_0_1_0"


def an_object(reference, **properties):
    return QUERY.ObjectContent(
        obj=reference,
        propSet=[vmodl.DynamicProperty(name=name.replace("__", "."), val=value) for name, value in properties.items()],
    )


def a_vm(number, devices, name="trainer", power="poweredOn", template=False):
    return an_object(
        vim.VirtualMachine(f"vm-{number}"),
        name=name,
        runtime__powerState=vim.VirtualMachine.PowerState(power),
        runtime__host=vim.HostSystem("host-7"),
        config__template=template,
        config__hardware__device=vim.vm.device.VirtualDevice.Array(devices),
    )


def a_host(number, *devices):
    return an_object(
        vim.HostSystem(f"host-{number}"),
        hardware__pciDevice=vim.host.PciDevice.Array(devices),
        configManager__graphicsManager=vim.host.GraphicsManager(f"graphicsManager-{number}"),
        configManager__serviceSystem=vim.host.ServiceSystem(f"serviceSystem-{number}"),
    )


def pci(address, vendor, device):
    return vim.host.PciDevice(
        id=address, classId=768, bus=1, slot=0, function=0, vendorId=vendor, subVendorId=0, vendorName="x",
        deviceId=device, subDeviceId=0, deviceName="a <b> & c",
    )  # fmt: skip


def reader():
    session = object.__new__(Session)
    session.vim, session.stub = vim, None
    session.content = SimpleNamespace(propertyCollector=QUERY)
    return Reader(session, {"0000:3b:00.0"})


def parsed_by_pyvmomi(document):
    return reader()._parse(document)[0]


def parsed_here(document):
    return reader()._read_in_parts(document)[0]


def facts(objects):
    """Return what the inventory makes of objects."""
    found = []
    for reference, properties in objects:
        if isinstance(reference, vim.VirtualMachine):
            found.append((reference, inventory._vm(reference, properties, VGPU, {})))
        else:
            host = inventory.HostFacts("host", "host", gpus=(inventory.GpuFacts("0000:3b:00.0"),))
            bindings = [
                (moid_of(binding.vm), binding.deviceKey, binding.pciId)
                for binding in properties.get("config.assignableHardwareBinding") or []
            ]
            whole = inventory._with_hardware(host, properties)
            found.append((reference, whole, whole.graphics_manager, whole.service_system, bindings))
    return found


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12) | st.sampled_from(
    ["</VirtualDevice>", '<backing xsi:type="VirtualPCIPassthroughVmiopBackingInfo">', "a%2fb", "]]>", "<!-- a -->"]
)


@st.composite
def made_devices(draw):
    """A device of any type, with a backing of any type: the reader must not rely on which ones belong together."""
    device = filled(
        DEVICES[draw(st.sampled_from(sorted(DEVICES) + ["VirtualMachineVideoCard", "VirtualPCIPassthrough"] * 20))]
    )
    device.key = draw(st.integers(0, 20_000))
    if draw(st.booleans()):
        device.deviceInfo = vim.Description(label=draw(texts), summary=draw(texts))
    if draw(st.booleans()):
        likely = [name for name in BACKINGS if name.startswith("VirtualPCIPassthrough")]
        device.backing = filled(BACKINGS[draw(st.sampled_from(sorted(BACKINGS) + likely * 20))])
        for field in ("vgpu", "deviceName", "fileName"):
            if hasattr(device.backing, field) and field in {entry.name for entry in device.backing._GetPropertyList()}:
                setattr(device.backing, field, draw(texts))
    if hasattr(device, "enable3DSupport"):
        device.enable3DSupport = draw(st.sampled_from([None, False, True]))
        device.use3dRenderer = draw(st.sampled_from([None, "automatic", "software", "hardware"]))
    return device


vms = st.builds(
    a_vm,
    st.integers(1, 99),
    st.lists(made_devices(), max_size=5),
    name=texts,
    power=st.sampled_from(["poweredOn", "poweredOff", "suspended"]),
    template=st.booleans(),
)
hosts = st.builds(
    a_host,
    st.integers(1, 99),
    st.builds(pci, st.sampled_from(["0000:3b:00.0", "0000:00:1f.0"]), st.integers(-(2**15), 2**15 - 1), st.just(8757)),
)


@given(st.lists(st.one_of(vms, hosts), min_size=1, max_size=6))
def test_the_inventory_is_the_same_as_with_pyvmomi(objects):
    document = envelope(*objects)
    assert facts(parsed_here(document)) == facts(parsed_by_pyvmomi(document))


def test_every_type_of_device_and_backing_that_pyvmomi_knows_is_read_alike():
    pairs = [(device, None) for device in DEVICES]
    pairs += [(device, backing) for device in ("VirtualDisk", "VirtualPCIPassthrough") for backing in BACKINGS]
    vms = []
    for number, (name, backing) in enumerate(pairs):
        device = filled(DEVICES[name])
        device.key = number
        device.backing = filled(BACKINGS[backing]) if backing else None
        if isinstance(device.backing, VGPU):
            device.backing.vgpu = "nvidia_a40-4q"
        vms.append(a_vm(number, [device]))
    document = envelope(*vms)
    found = facts(parsed_here(document))
    assert found == facts(parsed_by_pyvmomi(document))
    passed_through = {pairs[number] for number, (_vm, vm) in enumerate(found) if vm.passthrough or vm.vgpus}
    assert {backing for _device, backing in passed_through} == {
        f"VirtualPCIPassthrough{kind}BackingInfo" for kind in ("Device", "Dynamic", "Vmiop")
    }


FILE = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName="[ds1] a", diskMode="persistent")
DISK = vim.vm.device.VirtualDisk(key=2000, backing=FILE)
CARD = vim.vm.device.VirtualVideoCard(key=500, enable3DSupport=False, use3dRenderer="hardware")
SLOT = vim.vm.device.VirtualPCIPassthrough(key=13000, backing=VGPU(vgpu="nvidia_a40-4q"))


def test_vms_without_gpus_are_not_even_parsed_by_pyvmomi(monkeypatch):
    document = envelope(a_vm(1, [DISK, CARD, SLOT]), a_vm(2, [DISK, CARD]), a_vm(3, []))
    parsed = []
    own = reader()
    parse = own._parse
    monkeypatch.setattr(own, "_parse", lambda part: parsed.append(part) or parse(part))
    found, _token = own.read(document)
    assert [reference._moId for reference, _properties in found] == ["vm-1", "vm-2", "vm-3"]
    assert [device.key for device in found[0][1]["config.hardware.device"]] == [13000]
    (part,) = parsed
    assert (part.count(b"<objects>"), part.count(b"<VirtualDevice ")) == (1, 1)


def test_pci_devices_other_than_the_gpus_of_hosts_are_left_out():
    document = envelope(
        a_host(7, pci("0000:3b:00.0", 4318, 8757), pci("0000:00:1f.0", 4318, 1), pci("0000:3d:00.0", 1, 1))
    )
    ((_host, properties),) = parsed_here(document)
    assert [device.id for device in properties["hardware.pciDevice"]] == ["0000:3b:00.0"]


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        # Comments and CDATA sections may contain tags.
        ("<key>2000</key>", "<!-- </VirtualDevice> --><key>2000</key>"),
        ("[ds1] a", "<![CDATA[</VirtualDevice>]]>"),
        # The same XML, written in another way.
        ('<VirtualDevice xsi:type="VirtualDisk">', "<VirtualDevice\n xsi:type='VirtualDisk' >"),
        ('xsi:type="VirtualDisk"', 'xmlns:v="urn:vim25" xsi:type="v:VirtualDisk"'),
        ("<key>2000</key>", "<key >2000</key>"),
        ("<enable3DSupport>false</enable3DSupport>", "<enable3DSupport>1</enable3DSupport>"),
        ("<enable3DSupport>false</enable3DSupport>", "<enable3DSupport>0</enable3DSupport>"),
    ],
)
def test_xml_in_another_form_is_read_alike(found, instead):
    document = envelope(a_vm(1, [DISK, CARD, SLOT]), a_vm(2, [DISK, CARD]))
    changed = document.replace(found.encode(), instead.encode())
    assert changed != document
    assert facts(reader().read(changed)[0]) == facts(parsed_by_pyvmomi(changed))


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ('xsi:type="VirtualDisk"', 'xsi:type="VirtualHologram"'),
        ('xsi:type="VirtualPCIPassthroughVmiopBackingInfo"', 'xsi:type="VirtualPCIPassthroughNewBackingInfo"'),
        ('<VirtualDevice xsi:type="VirtualDisk">', "<VirtualDevice>"),
        ('<obj type="VirtualMachine">vm-2', '<obj type="VirtualMachine" serverGuid="other">vm-2'),
        ("</obj><propSet><name>name<", "</obj><propSet><name><b/>name<"),
        ('<val xsi:type="xsd:boolean">false', '<val xsi:type="xsd:boolean">perhaps'),
        ("urn:vim25", "urn:vim26"),
        ("<objects>", "<!-- a comment --><objects>"),
        ("</objects><objects>", "</objects> <objects>"),
        ("</soapenv:Body>", ""),
        ("RetrievePropertiesExResponse", "Fault"),
    ],
)
def test_a_response_with_anything_unknown_is_left_to_pyvmomi(found, instead, monkeypatch):
    document = envelope(a_vm(1, [DISK, CARD, SLOT]), a_vm(2, [DISK]))
    changed = document.replace(found.encode(), instead.encode())
    assert changed != document
    own = reader()
    with pytest.raises(Unexpected):
        own._read_in_parts(changed)
    monkeypatch.setattr(own, "_parse", lambda whole: (whole, None))
    assert own.read(changed) == (changed, None)


def test_properties_that_cannot_be_read_are_reported_by_pyvmomi():
    refused = QUERY.MissingProperty(
        path="name", fault=vim.fault.NoPermission(object=vim.VirtualMachine("vm-2"), privilegeId="System.Read")
    )
    hidden = a_vm(2, [DISK])
    hidden.missingSet = [refused]
    with pytest.raises(vim.fault.NoPermission):
        reader().read(envelope(a_vm(1, []), hidden))


def test_no_result_is_no_object():
    assert reader().read(ENVELOPE.format(method="RetrievePropertiesEx", result="").encode()) == ([], None)


class Collector:
    def _GetMethodInfo(self, name):  # noqa: N802
        return QUERY._GetMethodInfo(name)


class Connection:
    def __init__(self, answers):
        self.answers, self.requests, self.closed = answers, [], False

    def request(self, *request):
        self.requests.append(request)

    def getresponse(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, encoding, body = answer
        return SimpleNamespace(
            status=status, read=lambda: body, getheader=lambda _name, default: encoding or default, reason="x"
        )

    def close(self):
        self.closed = True


class Stub:
    version = VERSION
    cookie, versionId, path = "vmware_soap_session=1", "urn:vim25/8.0", "/sdk"  # noqa: N815

    def __init__(self, *answers):
        self.connection, self.returned = Connection(list(answers)), 0

    def GetConnection(self):  # noqa: N802
        return self.connection

    def ReturnConnection(self, _connection):  # noqa: N802
        self.returned += 1

    def SerializeRequest(self, _collector, method, arguments):  # noqa: N802
        return method.wsdlName, arguments


def session_with(stub):
    session = object.__new__(Session)
    session.vim, session.vmodl, session.stub = vim, vmodl, stub
    session.content = SimpleNamespace(propertyCollector=Collector())
    session.collect = lambda _subject, *_filters: "pyVmomi's own"
    return session


def test_all_pages_are_read_with_the_cookie_of_the_session():
    stub = Stub(
        (200, None, envelope(a_vm(1, [SLOT]), token="next")),
        (200, "identity", envelope(a_vm(2, [DISK]), method="ContinueRetrievePropertiesEx")),
    )
    found = response.collect(session_with(stub), READ, ["filter"], ())
    assert [reference._moId for reference, _properties in found] == ["vm-1", "vm-2"]
    (method, path, (name, arguments), headers), (_, _, following, _) = stub.connection.requests
    assert (method, path, headers["Cookie"]) == ("POST", "/sdk", Stub.cookie)
    assert (name, arguments[0]) == ("RetrievePropertiesEx", ["filter"])
    assert following == ("ContinueRetrievePropertiesEx", ("next",))
    assert stub.returned == 2
    assert found[0][0]._stub is stub


@pytest.mark.parametrize(
    "answer",
    [
        (500, None, b"<a fault/>"),
        (200, "gzip", b"\x1f\x8b"),
    ],
)
def test_faults_and_other_encodings_are_left_to_pyvmomi(answer):
    assert response.collect(session_with(Stub(answer)), READ, [], ()) == "pyVmomi's own"


def test_a_type_that_pyvmomi_does_not_know_is_an_error_that_says_so():
    document = envelope(a_vm(1, [DISK])).replace(b"VirtualDisk", b"VirtualHologram")
    with pytest.raises(VsphereError, match="pyVmomi cannot read its answer") as caught:
        response.collect(session_with(Stub((200, None, document))), READ, [], ())
    assert caught.value.code == UNREADABLE


def test_a_lost_connection_is_closed_and_reported():
    stub = Stub(ConnectionResetError("reset"))
    with pytest.raises(Exception, match="The connection to vCenter broke while it was to read the GPU hosts"):
        response.collect(session_with(stub), READ, [], ())
    assert (stub.connection.closed, stub.returned) == (True, 0)
