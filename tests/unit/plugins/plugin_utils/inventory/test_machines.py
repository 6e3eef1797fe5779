"""Which machines become hosts, and what they are called."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory import addresses, machines, naming
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory.machines import Selection


def machine(**changes: Any) -> dict[str, Any]:
    given = {
        "identity": "1",
        "title": "VM a",
        "key": "1",
        "host_name": "a.default",
        "name": "a",
        "namespace": "default",
        "platform": "harvester",
        "cluster": "berlin",
        "state": "running",
        "vgpus": [machines.vgpu("NVIDIA A2-4Q", node="n1")],
        "interfaces": [addresses.interface("nic-0", ["192.0.2.1"])],
    }
    return machines.variables(machines.machine(**{**given, **changes}))


ALL = frozenset(machines.STATES)


@pytest.mark.parametrize("profile", ["A2-4Q", "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q", "nvidia_a2-4q"])
def test_profiles_are_meant_in_any_spelling(profile: str) -> None:
    assert Selection(ALL, profiles=[profile]).takes(machine())
    assert not Selection(ALL, profiles=[profile]).takes(machine(vgpus=[machines.vgpu("NVIDIA A2-8Q", node="n1")]))


def test_a_profile_that_is_none_is_an_error() -> None:
    with pytest.raises(FleetError, match="A2"):
        Selection(ALL, profiles=["A2"]).takes(machine())


def test_filters() -> None:
    assert not Selection(frozenset(["running"])).takes(machine(state="stopped"))
    assert Selection(ALL, namespaces=["def*"]).takes(machine())
    assert not Selection(ALL, namespaces=["other"]).takes(machine())
    assert not Selection(ALL, namespaces=[]).takes(machine())
    assert not Selection(ALL, profiles=[]).takes(machine())
    # Namespaces are a matter of Harvester alone.
    assert Selection(ALL, namespaces=["other"]).takes(machine(namespace=None))
    assert not Selection(ALL, require_address=True).takes(machine(interfaces=[]))


def test_all_machines_have_the_same_variables() -> None:
    assert set(machine()) - set(machine(interfaces=[], namespace=None)) == {"ansible_host"}


def test_a_profile_is_called_the_same_on_both_platforms() -> None:
    assert machines.vgpu("nvidia_a40-8q", node=None)["profile"] == "A40-8Q"
    assert machines.vgpu("NVIDIA A40-8Q", node=None)["profile"] == "A40-8Q"
    assert machines.vgpu("something new", node=None)["profile"] == "something new"


def test_ipv4_comes_before_ipv6_on_whatever_interface() -> None:
    interfaces = [addresses.interface("a", ["2001:db8::1"]), addresses.interface("b", ["192.0.2.1"])]
    assert addresses.chosen(interfaces) == "192.0.2.1"
    assert addresses.chosen(interfaces[:1]) == "2001:db8::1"


def named(*records: tuple[str, str], suffix: str = "") -> list[str]:
    listed = [{"id": key, "key": key, "name": name} for name, key in records]
    return list(naming.default_names(listed, suffix).values())


def test_names_that_are_not_unique_get_the_id_of_the_machine() -> None:
    assert named(("a", "vm-1"), ("b", "vm-2"), ("A", "vm-3")) == ["a_vm-1", "b", "A_vm-3"]


@pytest.mark.parametrize("name", ["localhost", "LocalHost", "all", "ungrouped", "127.0.0.1", "::1", "", "???"])
def test_names_that_mean_something_else_get_the_id_as_well(name: str) -> None:
    assert named((name, "vm-1"))[0].endswith("_vm-1")


def test_names_have_no_characters_that_could_be_a_template_or_a_pattern() -> None:
    assert named(("{{ lookup('pipe', 'id') }}", "vm-1")) == ["___lookup__pipe____id_____"]
    assert named(("a b,c[1]*", "vm-1")) == ["a_b_c_1__"]
    assert named(("rechner-ä", "vm-1")) == ["rechner-ä"]
    # What becomes alike is told apart.
    assert named(("a b", "vm-1"), ("a,b", "vm-2")) == ["a_b_vm-1", "a_b_vm-2"]


def test_the_name_of_the_cluster_ends_all_names() -> None:
    assert named(("a.default", "1"), ("localhost", "2"), suffix="ber lin") == [
        "a.default.ber_lin",
        "localhost_2.ber_lin",
    ]
