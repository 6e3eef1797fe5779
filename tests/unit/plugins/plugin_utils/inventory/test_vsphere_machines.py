"""VMs of a vCenter become machines with vGPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory import machines, vsphere_machines

from tests.unit.plugins.module_utils.vsphere.facts import FIRST, SECOND, gpu, host, snapshot, vm


def read(found: Any, guests: dict[str, Any] | None = None, **how: Any) -> dict[str, dict[str, Any]]:
    records = vsphere_machines.records(found, guests or {}, "vcenter.example")
    return {record["variables"]["name"]: machines.variables(record, **how) for record in records}


def card(network: str, *addresses: str, key: int | None = 4000) -> Any:
    return SimpleNamespace(
        network=network, ipAddress=list(addresses), macAddress="00:50:56:00:00:01", deviceConfigId=key
    )


def test_a_running_machine_has_its_host_and_gpu() -> None:
    found = read(snapshot(host("esx1", gpu(FIRST), gpu(SECOND, "a")), vms=(vm("a", "nvidia_a40-8q"),)))["a"]
    assert (found["gpu_vm_state"], found["gpu_vm_node"]) == ("running", "esx1")
    assert (found["gpu_vm_cluster"], found["gpu_vm_compute_cluster"], found["gpu_vm_moid"]) == ("gpu", "gpu", "a")
    assert found["gpu_vm_profiles"] == ["A40-8Q"]
    assert found["gpu_vm_gpus"] == ["esx1-00003d000"]
    assert found["gpu_vm_vgpus"][0]["type"] == "nvidia_a40-8q"
    assert found["gpu_vm_namespace"] is None


def test_a_machine_that_no_gpu_lists_yet_has_its_profile() -> None:
    found = read(snapshot(host(), vms=(vm("a", "nvidia_a40-8q"),)))["a"]
    assert (found["gpu_vm_profiles"], found["gpu_vm_gpus"]) == (["A40-8Q"], [])


def test_vgpus_on_two_gpus_are_told_apart() -> None:
    found = snapshot(host("esx1", gpu(FIRST, "a"), gpu(SECOND, "a")), vms=(vm("a", "nvidia_a40-8q", "nvidia_a40-8q"),))
    assert read(found)["a"]["gpu_vm_gpus"] == ["esx1-00003b000", "esx1-00003d000"]


@pytest.mark.parametrize(("power", "state"), [("poweredOff", "stopped"), ("suspended", "suspended")])
def test_a_machine_that_is_off_has_neither_node_nor_address(power: str, state: str) -> None:
    guests = {"a": {"guest.ipAddress": "192.0.2.9"}}
    found = read(snapshot(host(), vms=(vm("a", "nvidia_a40-8q", power=power),)), guests)["a"]
    assert (found["gpu_vm_state"], found["gpu_vm_node"], found["gpu_vm_address"]) == (state, None, None)


def test_templates_and_machines_without_vgpus_are_none() -> None:
    assert read(snapshot(host(), vms=(vm("a"), vm("b", "nvidia_a40-8q", template=True)))) == {}


def test_the_primary_address_of_tools_comes_first_and_a_network_can_be_chosen() -> None:
    running = snapshot(host(), vms=(vm("a", "nvidia_a40-8q"),))
    guests = {
        "a": {
            "guest.ipAddress": "192.0.2.9",
            "guest.net": [card("storage", "10.0.0.9"), card("VM Network", "fe80::1", "192.0.2.9")],
        }
    }
    assert read(running, guests)["a"]["ansible_host"] == "192.0.2.9"
    assert read(running, guests, network="storage")["a"]["ansible_host"] == "10.0.0.9"
    assert "ansible_host" not in read(running, guests, network="other")["a"]


def test_bridges_inside_the_guest_are_no_address() -> None:
    running = snapshot(host(), vms=(vm("a", "nvidia_a40-8q"),))
    guests = {"a": {"guest.net": [card("", "172.17.0.1", key=-1), card("", "172.18.0.1", key=None)]}}
    assert read(running, guests)["a"]["gpu_vm_address"] is None


def test_tools_may_tell_nothing_but_the_primary_address() -> None:
    running = snapshot(host(), vms=(vm("a", "nvidia_a40-8q"),))
    assert read(running, {"a": {"guest.ipAddress": "192.0.2.9"}})["a"]["ansible_host"] == "192.0.2.9"
    assert read(running, {"a": {"guest.ipAddress": "127.0.0.1"}})["a"]["gpu_vm_address"] is None
