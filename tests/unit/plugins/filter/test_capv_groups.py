"""Variables of the roles as options of the modules."""

from __future__ import annotations

from typing import Any

from ansible_collections.vgpu.fleet.plugins.filter.capv_groups import capv_groups

Json = dict[str, Any]
SHARED = {"template": "ubuntu", "memoryMiB": 8192}
POOL: Json = {"name": "gpu", "replicas": 3, "vgpus": [{"profile": "A40-8Q"}], "machine": {"memoryMiB": 65536}}
CHECKED: list[Json] = [
    {
        "name": "gpu",
        "vgpus": [{"profile": "nvidia_a40-8q", "count": 1}],
        "vmx_keys": {"pciPassthru.use64bitMMIO": "TRUE"},
    }
]


def machine(name: str) -> Json:
    return {"name": name, "pool": "gpu", "vm": name}


def test_settings_of_a_pool_complete_the_shared_ones() -> None:
    found = capv_groups([POOL], machine=SHARED, control_plane={})
    assert found["pools"][0]["machine"] == {"template": "ubuntu", "memoryMiB": 65536}
    assert found["control_plane"] == {"machine": SHARED}
    assert [(one["name"], one["memory_mb"]) for one in found["check"]] == [("control-plane", 8192), ("gpu", 65536)]


def test_profiles_and_settings_of_the_check_reach_the_pool() -> None:
    (pool,) = capv_groups([POOL], machine=SHARED, checked=CHECKED)["pools"]
    assert pool["vgpus"] == [{"profile": "nvidia_a40-8q", "count": 1}]
    assert pool["vmx_keys"] == {"pciPassthru.use64bitMMIO": "TRUE"}


def test_the_surge_needs_room_only_while_machines_are_replaced() -> None:
    machines = [machine("a"), machine("b")]
    (calm,) = capv_groups([POOL], checked=CHECKED, machines=machines)["demand"]
    (rolling,) = capv_groups([POOL], checked=CHECKED, machines=machines, replaced=["gpu"])["demand"]
    assert (calm["machines"], calm["surge"], calm["owner"]) == (3, 0, "name in (a,b)")
    assert rolling["surge"] == 1


def test_passthrough_counts_the_machines_that_run_in_addition() -> None:
    pool = {"name": "gpu", "replicas": 3, "pci_devices": [{"vendor_id": "10de", "device_id": "20b5"}]}

    def additional(machines: list[Json], replaced: list[str]) -> int:
        found = capv_groups([pool], machines=machines, replaced=replaced)
        assert found["devices"] is True
        return int(found["check"][0]["machines"])

    three = [machine(name) for name in "abc"]
    assert (additional([], []), additional(three[:2], []), additional(three, []), additional(three, ["gpu"])) == (
        3,
        1,
        0,
        1,
    )


def test_a_pool_that_goes_needs_neither_room_nor_a_template() -> None:
    found = capv_groups([{"name": "gpu", "state": "absent"}], machine=SHARED, control_plane={})
    assert [one["name"] for one in found["check"]] == ["control-plane"]
    assert found["pools"] == [{"name": "gpu", "state": "absent"}]
    assert found["demand"] == []
