"""Bad input is refused with the name of the option."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.request import InvalidCluster

from tests.unit.plugins.module_utils.capv.clusters import MACHINE, request


def pool(**changed: Any) -> dict[str, Any]:
    return {"pools": [{"name": "gpu", "machine": MACHINE, **changed}]}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"name": "ML"}, "name 'ML'"),
        ({"name": "x" * 41}, "name"),
        ({"owner": "a b"}, "owner"),
        ({"kubernetes_version": None}, "kubernetes_version"),
        ({"kubernetes_version": "latest"}, "kubernetes_version"),
        ({"control_plane_endpoint": None}, "control_plane_endpoint.host"),
        ({"vcenter": None}, "vcenter.server"),
        ({"control_plane": None}, "control_plane"),
        ({"vcenter": {"server": "v", "username": "u"}}, "no credentials"),
        ({"vcenter": {"server": "v", "username": "u", "password": "p", "identity": {"name": "i"}}}, "identity"),
        ({"control_plane": {"machine": MACHINE, "replicas": 2}}, "control_plane.replicas is 2"),
        ({"control_plane": {"machine": MACHINE, "surge": 0}}, "control_plane.surge is 0"),
        ({"control_plane": {"machine": MACHINE, "surge": 2}}, "control_plane.surge is 2"),
        ({"control_plane": {"machine": {}}}, "control_plane.machine has no template"),
        (pool(machine={"template": "t"}), r"pools\[0\].machine has no network.devices"),
        (pool(machine=MACHINE | {"pciDevices": []}), "pciDevices"),
        (pool(machine=MACHINE | {"hardwareVersion": "19"}), "hardwareVersion"),
        (pool(name="control-plane"), "control plane"),
        (pool(name="x" * 21), r"pools\[0\].name"),
        (pool(replicas=-1), "negative"),
        (pool(vgpus=[{"profile": ""}]), r"pools\[0\].vgpus"),
        (pool(vgpus=[{"profile": "p", "count": 0}]), "count 0"),
        (pool(pci_devices=[{"vendor_id": "nvidia", "device_id": "1"}]), "vendor_id 'nvidia'"),
        (pool(pci_devices=[{"vendor_id": "10de", "device_id": "12345"}]), "device_id '12345'"),
        ({"pools": [{"name": "a", "machine": MACHINE}] * 2}, "same name"),
        ({"addons": [{"name": "A", "manifest": ""}]}, r"addons\[0\].name"),
    ],
)
def test_a_wrong_option_is_named(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidCluster, match=named):
        request(**changed)


def test_a_version_may_lack_its_letter_and_absent_needs_only_the_name() -> None:
    assert request(kubernetes_version="1.34.1").kubernetes_version == "v1.34.1"
    assert request(state="absent", vcenter=None, control_plane=None).name == "ml"
