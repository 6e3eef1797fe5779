"""States of a lab that tests begin with, and what reached its API since."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.integration.api import Json
from tests.integration.labs import Arrangement, Lab
from tests.integration.modules.playbooks import Result

GPU_A, GPU_B = "gpu-a-000008000", "gpu-b-000008000"
A4, A5, A6, A7 = (f"gpu-a-00000800{function}" for function in "4567")
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
CONFLICT = 409
NOTE = "harvesterhci.io/deviceAllocationDetails"


def arranged(how: Arrangement | None = None, *, scenario: str = "default", stays: bool = False) -> pytest.MarkDecorator:
    """What a test's lab begins with. A test after which it `stays` as it was, VMs apart, leaves it to the next."""
    return pytest.mark.arranged.with_args(how, scenario, stays)


def beginning(test: pytest.Item) -> tuple[Arrangement | None, str, bool]:
    """What a test is marked with: how, scenario, and whether it stays."""
    marker = test.get_closest_marker("arranged")
    return marker.args if marker else (None, "default", False)


def begin(lab: Lab, version: str, request: pytest.FixtureRequest) -> Lab:
    how, scenario, _stays = beginning(request.node)
    return lab.begin(version=version, arranged=how, scenario=scenario)


def gpus_on(lab: Lab) -> None:
    lab.enable_gpus(GPU_A, GPU_B)


def gpu_a_on(lab: Lab) -> None:
    lab.enable_gpus(GPU_A)


def two_4q(lab: Lab) -> None:
    """Two A2-4Q on the first node."""
    lab.enable_gpus(GPU_A)
    lab.enable_vgpus({A4: "NVIDIA A2-4Q", A5: "NVIDIA A2-4Q"})


def four_4q(lab: Lab) -> None:
    """The first node's GPU is full."""
    lab.enable_gpus(GPU_A)
    lab.enable_vgpus(dict.fromkeys((A4, A5, A6, A7), "NVIDIA A2-4Q"))


def machine(
    lab: Lab, name: str, *, spec: list[str] | None = None, noted: list[str] | None = None, note: str | None = None
) -> None:
    """A stopped VM whose spec, or whose allocation note, names devices."""
    resource = "nvidia.com/NVIDIA_A2-4Q"
    field = "hostDevices" if lab.vfio else "gpus"
    part = "hostdevices" if lab.vfio else "gpus"
    devices = [{"name": device, "deviceName": resource} for device in spec or []]
    if noted:
        note = f'{{"{part}": {{"{resource}": [{", ".join(f"{chr(34)}{device}{chr(34)}" for device in noted)}]}}}}'
    body: dict[str, Any] = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default", "annotations": {NOTE: note} if note else {}},
        "spec": {
            "runStrategy": "Halted",
            "template": {
                "spec": {
                    "domain": {
                        "devices": {field: devices} if devices else {},
                        "resources": {"requests": {"memory": "1Gi"}},
                    }
                }
            },
        },
    }
    lab.make(VMS, body)


def writes(lab: Lab, during: Result | None = None) -> list[str]:
    """Requests that could have changed something, other than dry runs: of one task, or since the last mark."""
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in _written(lab, during)
        if "dryRun=All" not in event["requestURI"]
    ]


def dry_runs(lab: Lab, during: Result | None = None) -> list[str]:
    return [event["requestURI"] for event in _written(lab, during) if "dryRun=All" in event["requestURI"]]


def patched(lab: Lab, during: Result | None = None) -> list[str]:
    """The names of the objects that were patched, in order.

    A patch that came too late for its version of the object changed nothing, and was sent again.
    """
    return [
        event["objectRef"]["name"]
        for event in _written(lab, during)
        if event["verb"] == "patch"
        and "dryRun=All" not in event["requestURI"]
        and event["responseStatus"]["code"] != CONFLICT
    ]


def requests(lab: Lab, during: Result | None = None) -> list[Json]:
    """Everything that was asked of the API server."""
    return [event for event in lab.audit(writes_only=False) if during is None or _within(event, during)]


def _written(lab: Lab, during: Result | None) -> list[Json]:
    return [event for event in lab.audit(writes_only=True) if during is None or _within(event, during)]


def _within(event: Json, task: Result) -> bool:
    return task.began <= dt.datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp() <= task.ended
