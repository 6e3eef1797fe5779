"""vgpu.fleet.gpu_vms on a vCenter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.inventory.inventories import Inventories
from tests.integration.vsphere_modules.conftest import VERSIONS, VCenter

MANY = 1000
KEYED = {"platform": "vsphere", "keyed_groups": [{"key": "gpu_vm_profiles", "prefix": "profile"}]}
Start = Callable[..., VCenter]
OfVCenter = Callable[[VCenter], Inventories]


def running(name: str, *profiles: str, address: str = "", host: str = "esx1") -> dict[str, Any]:
    extra = {"extra_config": {"SET.guest.ipAddress": address}} if address else {}
    return {"name": name, "host": host, "vgpus": list(profiles), "memory_locked": True, "power": "on", **extra}


@pytest.mark.parametrize("version", VERSIONS)
def test_machines_have_address_profile_host_and_gpu(
    start: Start, section: dict[str, Any], of_vcenter: OfVCenter, version: str
) -> None:
    section["vms"] += [
        running("trainer", "nvidia_a40-8q", address="192.0.2.5"),
        {"name": "later", "host": "esx2", "vgpus": ["nvidia_a40-16q"]},
    ]
    section["templates"].append({"name": "golden", "host": "esx1", "vgpus": ["nvidia_a40-8q"]})
    inventories = of_vcenter(start(section, version))
    file = inventories.file("vcenter", {**KEYED, "states": ["running", "stopped"]})
    assert inventories.graph(file).splitlines() == [
        "@all:",
        "  |--@ungrouped:",
        "  |--@gpu_vms:",
        "  |  |--later",
        "  |  |--trainer",
        "  |--@profile_A40_16Q:",
        "  |  |--later",
        "  |--@profile_A40_8Q:",
        "  |  |--trainer",
    ]
    found = inventories.hosts(file)
    trainer = found["trainer"]
    assert (trainer["ansible_host"], trainer["gpu_vm_node"]) == ("192.0.2.5", "esx1")
    assert trainer["gpu_vm_gpus"] == ["esx1-00003b000"]
    assert (trainer["gpu_vm_cluster"], trainer["gpu_vm_datacenter"]) == ("gpu", "dc1")
    assert (found["later"]["gpu_vm_state"], "ansible_host" in found["later"]) == ("stopped", False)
    assert list(inventories.hosts(inventories.file("default", KEYED))) == ["trainer"]
    other = inventories.file("esx2", {**KEYED, "states": ["stopped"], "esxi_hosts": ["esx2"]})
    assert list(inventories.hosts(other)) == ["later"]


def test_a_thousand_machines_take_as_many_calls_as_one(
    start: Start, section: dict[str, Any], of_vcenter: OfVCenter
) -> None:
    calls = []
    for count in (1, MANY):
        section["vms"] = [{"name": "vm-{n}", "count": count, "vgpus": ["nvidia_a40-8q"]}]
        if count == 1:
            section["vms"][0] = {"name": "vm-1", "host": "esx1", "vgpus": ["nvidia_a40-8q"]}
        section["clusters"][0]["hosts"] = [{"name": "esx1", "gpus": [{"board": "A40", "count": 2}]}]
        vcenter = start(section)
        inventories = of_vcenter(vcenter)
        vcenter.mark()
        found = inventories.hosts(inventories.file("vcenter", {**KEYED, "states": ["stopped"]}))
        assert len(found) == count
        assert vcenter.writes == 0
        calls.append(vcenter.calls)
    assert calls[0] == calls[1]
    assert sum(calls[1].values()) <= 10


def test_names_are_never_templated(start: Start, section: dict[str, Any], of_vcenter: OfVCenter) -> None:
    section["vms"] += [running("{{ 6 * 7 }}", "nvidia_a40-8q"), running("localhost", "nvidia_a40-8q")]
    inventories = of_vcenter(start(section))
    file = inventories.file("vcenter", {**KEYED, "compose": {"copied": "gpu_vm_name"}})
    hosts = inventories.hosts(file)
    (braces, local) = sorted(hosts)
    assert braces == "___6___7___"
    assert local.startswith("localhost_vm-")
    connected = {"ansible_connection": "local", "ansible_python_interpreter": "'/usr/bin/python3'"}
    shown = inventories.file(
        "shown", {**KEYED, "compose": {"copied": "gpu_vm_name", **{k: f"'{v}'" for k, v in connected.items()}}}
    )
    assert inventories.rendered(shown, "gpu_vm_name + '|' + copied + '|' + inventory_hostname")[0] == (
        "{{ 6 * 7 }}|{{ 6 * 7 }}|___6___7___"
    )


def test_machines_of_one_name_in_two_inventories_are_refused(
    start: Start, section: dict[str, Any], of_vcenter: OfVCenter
) -> None:
    section["vms"].append(running("trainer", "nvidia_a40-8q"))
    first = start(section)
    section["vms"].append(running("other", "nvidia_a40-8q"))
    inventories, second = of_vcenter(first), start(section)

    def of(vcenter: VCenter, **more: Any) -> dict[str, Any]:
        # The same machine with another address is another one.
        host = {"hostname": "localhost"} if vcenter is second else {}
        return {
            **KEYED,
            "port": int(vcenter.env["VMWARE_PORT"]),
            "password": vcenter.env["VMWARE_PASSWORD"],
            **host,
            **more,
        }

    one, two = inventories.file("one", of(first)), inventories.file("two", of(second))
    said = inventories.refusal(one, two)
    assert "Another inventory has a host 'trainer' that is not the same. Set cluster_name or hostnames" in said
    two = inventories.file("two", of(second, cluster_name="munich"))
    assert sorted(inventories.hosts(one, two)) == ["other.munich", "trainer", "trainer.munich"]


def test_errors_are_one_sentence_and_a_hint(start: Start, section: dict[str, Any], of_vcenter: OfVCenter) -> None:
    inventories = of_vcenter(start(section))
    said = inventories.refusal(inventories.file("vcenter", {**KEYED, "password": "wrong-secret"}))
    assert "does not accept the user" in said
    assert "wrong-secret" not in said
    said = inventories.refusal(inventories.file("vcenter", {**KEYED, "cluster": "gpus"}))
    assert "There is no cluster 'gpus'." in said
    said = inventories.refusal(inventories.file("vcenter", KEYED), VMWARE_HOST="")
    assert "The option hostname is missing. Give it, or set VMWARE_HOST." in said
