"""The simulated machine driver against recordings of the real one: every VM it sends, every refusal it knows."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.rancher import machine_flags
from lab.rancher.driver import driver_flags, virtual_machine
from lab.rancher.driver.driver_flags import DRIVERS, DriverError

RECORDINGS = Path(__file__).parents[4] / "data" / "machine-driver"
BYTES = "<2100 bytes>"
# Refusals of the cluster, which the driver passes on; the integration tests show those that a pool can meet.
OF_THE_CLUSTER = {"PreCreateCheck"}
BY_THE_API = ("n4-long", "x-ns-missing", "x-quota", "x-denied", "w-running-no-if")


@cache
def recording(driver: str) -> dict[str, Any]:
    return yaml.safe_load((RECORDINGS / f"{driver}-machine-driver.yaml").read_text())


def cases(*, refused: bool) -> list[Any]:
    found = []
    for driver in DRIVERS:
        for case in recording(driver)["cases"]:
            error = case.get("error")
            if bool(error) is not refused and case["id"] not in BY_THE_API:
                continue
            if refused and (error is None or error["step"] in OF_THE_CLUSTER or case["id"] in BY_THE_API):
                continue
            if not refused and not case.get("objects"):
                continue
            found.append(pytest.param(driver, case, id=f"{driver}-{case['id']}"))
    return found


def sent(driver: str, case: dict[str, Any]) -> list[dict[str, Any]]:
    flags = {
        name: value.replace(BYTES, "x" * 2100) if isinstance(value, str) else value
        for name, value in case["flags"].items()
    }
    settings = driver_flags.read(DRIVERS[driver], flags)
    return virtual_machine.objects(
        case["machine"],
        settings,
        storage_classes={"default/image-ubuntu": "longhorn-image-ubuntu"},
        ssh_key="<ssh-public-key>",
        random=lambda: "<rand>",
    )


@pytest.mark.parametrize(("driver", "case"), cases(refused=False))
def test_a_machine_is_sent_as_recorded(driver: str, case: dict[str, Any]) -> None:
    vm, *secrets = sent(driver, case)
    recorded, *recorded_secrets = case["objects"]
    assert vm == recorded
    assert [one["metadata"]["name"] for one in secrets] == [one["metadata"]["name"] for one in recorded_secrets]
    assert [sorted(one["data"]) for one in secrets] == [sorted(one["data"]) for one in recorded_secrets]


@pytest.mark.parametrize(("driver", "case"), cases(refused=True))
def test_what_the_driver_refuses_is_refused_in_its_words(driver: str, case: dict[str, Any]) -> None:
    with pytest.raises(DriverError) as refusal:
        sent(driver, case)
    assert refusal.value.step == case["error"]["step"]
    assert refusal.value.text == case["error"].get("text", case["error"].get("panic"))


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_fields_of_a_machine_config_are_the_flags_of_the_driver(driver: str) -> None:
    fields = {
        flag["field"]: flag.get("fieldDefault", flag.get("default", "")) or ""
        for flag in recording(driver)["flags"]
        if flag["fieldType"] == "string" and flag["field"] != "kubeconfigContent"
    }
    assert fields.items() <= machine_flags.TEXT_FIELDS.items()
    switches = {flag["field"] for flag in recording(driver)["flags"] if flag["fieldType"] == "boolean"}
    assert switches <= set(machine_flags.SWITCH_FIELDS)
    for flag in recording(driver)["flags"]:
        assert machine_flags.flag_of(flag["field"]) == flag["flag"]


def test_the_master_knows_every_field() -> None:
    fields = {flag["field"] for flag in recording("master")["flags"]} - {"kubeconfigContent"}
    assert fields == {*machine_flags.TEXT_FIELDS, *machine_flags.SWITCH_FIELDS}


def test_a_schema_from_before_vgpus_drops_them_in_silence() -> None:
    config = {"kind": "HarvesterConfig", "metadata": {"name": "x"}, "cpuCount": "4", "vgpuInfo": '{"vGPURequests":[]}'}
    old = json.dumps({"resourceFields": {"cpuCount": {"type": "string"}}})
    assert machine_flags.content_of(config, None) == {"cpuCount": "4", "vgpuInfo": '{"vGPURequests":[]}'}
    assert machine_flags.content_of(config, old) == {"cpuCount": "4"}


def test_the_cluster_name_of_rancher_wins_and_empty_fields_are_not_passed() -> None:
    content = {"clusterName": "mine", "userData": "", "enableEfi": False, "vgpuInfo": None, "cpuCount": "4"}
    flags = machine_flags.flags_of(content, cluster="demo", cluster_id="c-m-1", named=True)
    assert flags == {
        "harvester-cluster-name": "demo",
        "harvester-cluster-id": "c-m-1",
        "harvester-cluster-type": "imported",
        "harvester-cpu-count": "4",
    }


def test_only_claims_that_were_there_from_the_start_go_with_the_vm() -> None:
    case = next(one for one in recording("master")["cases"] if one["id"] == "r-remove-hotplug")
    (vm,) = sent("master", case)
    assert virtual_machine.removed_claims(vm) == f"{case['machine']}-disk-0-<rand>"
    vm["metadata"]["annotations"][virtual_machine.REMOVE_ALL_ANNOTATION] = "true"
    assert len(virtual_machine.removed_claims(vm).split(",")) == 2
