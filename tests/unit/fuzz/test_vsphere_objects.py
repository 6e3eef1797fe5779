"""No object of a vCenter makes a module end with a traceback: properties that are not set, odd values, odd backings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyVmomi import VmomiSupport, vim, vmodl

from tests.unit.fuzz import examples
from tests.unit.fuzz.arguments import ALWAYS, MODULES, VCENTER as LOGIN
from tests.unit.fuzz.harness import count, run
from tests.unit.fuzz.kubernetes_world import World, everything
from tests.unit.fuzz.tasks import TASKS
from tests.unit.fuzz.vcenter_world import PASSTHROUGH, VCenter, copied, vcenter

SOURCE = vcenter()
WORLD = everything()
VSPHERE = [module for module in MODULES if module.startswith("vsphere") or module == "vgpu_availability"]
TEXTS = [
    "",
    " ",
    "x" * 3000,
    "日本語",
    "💥",
    "%2f",
    "nvidia_a40-" + "9" * 5000 + "q",
    "grid_p40-1q",
    "none",
    "9.1.0.0",
    "vmx-",
]
NUMBERS = [0, -1, 1, 32767, -32768, (1 << 31) - 1]
VERSIONS = ["6.7", "7.0.3.0", "8.0.2.0", "8.0.3.0", "9.0.0.0", "9.1.0.0", ""]


def backings() -> list[Any]:
    """Return backings that devices of VMs can have, besides those of vGPUs."""
    return [
        None,
        PASSTHROUGH.VmiopBackingInfo(vgpu=""),
        PASSTHROUGH.VmiopBackingInfo(vgpu="nvidia_a40-48q", migrateSupported=False),
        PASSTHROUGH.PluginBackingInfo(),
        PASSTHROUGH.DeviceBackingInfo(
            id="0000:3b:00.0", deviceId="2235", systemId="BYPASS", vendorId=0x10DE, deviceName="x"
        ),
        PASSTHROUGH.DynamicBackingInfo(deviceName="", allowedDevice=[], customLabel="a"),
        PASSTHROUGH.DvxBackingInfo(deviceClass="class"),
        vim.vm.device.VirtualDevice.FileBackingInfo(fileName="[ds] x"),
    ]


def optional_fields(value: Any) -> list[str]:
    return [one.name for one in value._GetPropertyList() if one.flags & VmomiSupport.F_OPTIONAL]


def data_in(value: Any) -> list[Any]:
    """Return the data objects inside a property."""
    if isinstance(value, list):
        return [found for one in value for found in data_in(one)]
    if not isinstance(value, vmodl.DynamicData):
        return []
    return [value, *(found for one in value._GetPropertyList() for found in data_in(getattr(value, one.name)))]


@st.composite
def vcenters(draw: st.DrawFn) -> VCenter:
    """Return a vCenter in which one to four properties look odd."""
    made = copied(SOURCE)
    made.api_version = draw(st.sampled_from(VERSIONS))
    for _time in range(draw(st.integers(1, 4))):
        _reference, found = made.objects[draw(st.sampled_from(sorted(made.objects)))]
        # Names are always set; everything else may be unset, or unreadable for this user.
        names = sorted(set(found) - {"name"})
        if not names:
            continue
        name = draw(st.sampled_from(names))
        value, how = found[name], draw(st.sampled_from(["unset", "odd", "odd", "inside", "inside", "backing"]))
        inside = data_in(value)
        if how == "unset" or value is None:
            del found[name]
        elif isinstance(value, str) and name not in ("runtime.powerState", "runtime.connectionState"):
            found[name] = draw(st.sampled_from(TEXTS))
        elif isinstance(value, bool):
            found[name] = not value
        elif isinstance(value, list) and how == "odd":
            found[name] = draw(st.sampled_from([[], value * 20]))
        elif inside:
            _change_inside(draw, draw(st.sampled_from(inside)), how)
    return made


def _change_inside(draw: st.DrawFn, data: Any, how: str) -> None:
    if how == "backing" and isinstance(data, vim.vm.device.VirtualDevice):
        data.__dict__["backing"] = draw(st.sampled_from(backings()))
        return
    free = [name for name in optional_fields(data) if name != "name"]
    texts = [one.name for one in data._GetPropertyList() if isinstance(getattr(data, one.name), str)]
    numbers = [
        one.name
        for one in data._GetPropertyList()
        if isinstance(getattr(data, one.name), int) and not isinstance(getattr(data, one.name), bool)
    ]
    if how == "inside" and free:
        name = draw(st.sampled_from(free))
        data.__dict__[name] = [] if isinstance(getattr(data, name), list) else None
    elif texts:
        data.__dict__[draw(st.sampled_from(texts))] = draw(st.sampled_from(TEXTS))
    elif numbers:
        data.__dict__[draw(st.sampled_from(numbers))] = draw(st.sampled_from(NUMBERS))


@pytest.mark.parametrize("module", VSPHERE)
def test_vsphere_objects(module: str) -> None:
    tasks = [task for task in TASKS[module] if module != "vgpu_availability" or task.get("platform") == "vsphere"]

    @settings(max_examples=examples.number(0.2), suppress_health_check=list(HealthCheck), deadline=None)
    @given(vcenters(), st.sampled_from(tasks), st.booleans())
    def search(server: VCenter, task: dict[str, Any], check_mode: bool) -> None:
        connection = {**LOGIN, **(ALWAYS if module == "vgpu_availability" else {})}
        outcome = run(module, {**task, **connection}, World(WORLD), server, check_mode=check_mode)
        count(f"odd vCenter, {module}", outcome.kind)

    search()
