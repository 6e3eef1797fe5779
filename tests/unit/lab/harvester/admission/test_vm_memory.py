"""What Harvester's mutator makes of the memory of a VM, and how amounts are read and written."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lab.harvester.admission import vm_memory
from lab.kubernetes.quantity import Quantity

Json = dict[str, Any]
DEVICE = [{"name": "d1", "deviceName": "nvidia.com/NVIDIA_A2-4Q"}]
DOMAIN = "/spec/template/spec/domain"


def vm(
    limit: str | None = "4Gi",
    *,
    requests: Json | None = None,
    guest: str | None = None,
    devices: Json | None = None,
    reserved: str | None = None,
    dedicated: bool = False,
) -> Json:
    domain: Json = {"devices": devices or {}, "resources": {}}
    if limit:
        domain["resources"]["limits"] = {"cpu": "2", "memory": limit}
    if requests is not None:
        domain["resources"]["requests"] = requests
    if guest:
        domain["memory"] = {"guest": guest}
    if dedicated:
        domain["cpu"] = {"dedicatedCpuPlacement": True}
    annotations = {"harvesterhci.io/reservedMemory": reserved} if reserved else {}
    return {"metadata": {"name": "vm", "annotations": annotations}, "spec": {"template": {"spec": {"domain": domain}}}}


def created(machine: Json) -> dict[str, Any]:
    """What is written, by path below the domain."""
    return written({"operation": "CREATE", "object": machine})


def updated(old: Json, new: Json) -> dict[str, Any]:
    return written({"operation": "UPDATE", "object": new, "oldObject": old})


def written(request: Json) -> dict[str, Any]:
    return {step["path"].removeprefix(f"{DOMAIN}/"): step["value"] for step in vm_memory.patch(request)}


@pytest.mark.parametrize("field", ["gpus", "hostDevices"])
def test_beside_a_device_guest_and_request_are_the_limit(field: str) -> None:
    found = created(vm("4Gi", requests={"cpu": "1", "memory": "1Gi"}, devices={field: DEVICE}))
    assert found == {"resources/requests/memory": "4Gi", "memory": {"guest": "4Gi"}}


def test_without_a_device_two_thirds_are_requested_in_whole_mebibytes() -> None:
    assert created(vm("4Gi")) == {"resources/requests": {"memory": "2730Mi"}, "memory": {"guest": "4Gi"}}


def test_dedicated_cpus_get_all_that_is_asked_for() -> None:
    found = created(vm("4Gi", dedicated=True, reserved="1Gi"))
    assert found == {"resources/requests": {"memory": "4Gi"}, "memory": {"guest": "3Gi"}}


def test_what_is_reserved_is_not_the_guests() -> None:
    found = created(vm("4Gi", guest="8Gi", reserved="256Mi", devices={"gpus": DEVICE}))
    assert found == {"resources/requests": {"memory": "3840Mi"}, "memory/guest": "3840Mi"}


def test_without_a_limit_nothing_is_changed() -> None:
    assert created(vm(None, guest="4Gi", requests={"memory": "1Gi"}, devices={"gpus": DEVICE})) == {}


def test_the_kind_of_the_limits_unit_is_kept() -> None:
    assert created(vm("4G", devices={"gpus": DEVICE}))["memory"] == {"guest": "4G"}


@pytest.mark.parametrize(
    ("machine", "phrase"),
    [
        (vm("1Gi", reserved="1Gi"), "can't be equal or greater than limits.memory"),
        (vm("1Gi", reserved="much"), "can't be converted to memory unit"),
        (vm("9Mi"), r"minimum requirement \(10 Mi\)"),
        (vm("lots"), "quantities must match"),
    ],
)
def test_what_cannot_be_is_refused(machine: Json, phrase: str) -> None:
    with pytest.raises(vm_memory.Refusal, match=phrase):
        created(machine)


class TestUpdates:
    settled = vm("4Gi", guest="4Gi", requests={"memory": "4Gi"}, devices={"gpus": DEVICE})

    def test_an_update_of_something_else_is_left_alone(self) -> None:
        assert updated(self.settled, self.settled) == {}
        overcommitted = vm("4Gi", guest="1Gi", requests={"memory": "1Gi"})
        assert updated(overcommitted, overcommitted) == {}

    @pytest.mark.parametrize(
        "change", [{"limit": "8Gi"}, {"reserved": "1Gi"}, {"dedicated": True}, {"devices": {"gpus": DEVICE * 2}}]
    )
    def test_what_it_goes_by_has_changed(self, change: Json) -> None:
        same: Json = {"limit": "4Gi", "guest": "4Gi", "requests": {"memory": "4Gi"}, "devices": {"gpus": DEVICE}}
        assert set(updated(self.settled, vm(**{**same, **change}))) == {"resources/requests/memory", "memory/guest"}

    def test_beside_a_device_the_request_is_brought_back(self) -> None:
        less = vm("4Gi", guest="4Gi", requests={"memory": "1Gi"}, devices={"gpus": DEVICE})
        assert updated(self.settled, less)["resources/requests/memory"] == "4Gi"

    def test_a_vm_in_deletion_is_left_alone(self) -> None:
        gone = vm("8Gi", devices={"gpus": DEVICE})
        gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert updated(self.settled, gone) == {}


@pytest.mark.parametrize(
    ("text", "amount", "shortest"),
    [
        ("4096Mi", 4 * 1024**3, "4Gi"),
        ("1.5Gi", 1536 * 1024**2, "1536Mi"),
        ("4294967296", 4294967296, "4294967296"),
        ("4e9", 4_000_000_000, "4G"),
        ("1500m", 2, "2"),
        ("0", 0, "0"),
        (1024, 1024, "1024"),
    ],
)
def test_amounts_are_read_in_any_form_and_written_in_the_shortest(text: str, amount: int, shortest: str) -> None:
    assert Quantity.parse(text).amount == amount
    assert str(Quantity.parse(text)) == shortest


@given(st.integers(0, 2**62), st.booleans())
def test_an_amount_that_is_written_is_read_as_the_same(amount: int, binary: bool) -> None:
    assert Quantity.parse(str(Quantity(amount, binary))).amount == amount


@given(st.text(max_size=6))
def test_everything_else_is_no_amount(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(Quantity.parse(text).amount, int)
