from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.gpu_operator import (
    complaints,
    is_ready,
    offers,
    outdated_drivers,
    shortfalls,
)

VALUES = {"driver": {"enabled": True, "version": "570.172.08"}}


def node(name: str, gpus: int = 0, *, present: bool = False) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.present": "true"} if present else {}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {}},
    }


def policy(state: str, **driver: Any) -> dict[str, Any]:
    return {"spec": {"driver": driver}, "status": {"state": state}}


@pytest.mark.parametrize(
    ("nodes", "expected", "said"),
    [
        ([node("a", 2), node("b")], {}, []),
        ([node("a", 2), node("b", present=True)], {}, ["node b offers no GPU"]),
        ([node("b")], {}, ["the operator has found a GPU on no node"]),
        ([node("a", 2), node("b", present=True)], {"a": 2}, []),
        ([node("a", 1), node("b")], {"a": "2", "c": 1}, ["node a offers 1 of 2 GPUs", "node c is not there"]),
        ([node("a")], {"a": 1}, ["node a offers 0 of 1 GPUs"]),
    ],
)
def test_nodes_offer_what_they_should(nodes: list[dict[str, Any]], expected: dict[str, Any], said: list[str]) -> None:
    assert shortfalls(offers(nodes, expected), expected) == said


@pytest.mark.parametrize(
    ("policies", "ready"),
    [
        ([], False),
        ([{"spec": {}}], False),
        ([policy("notReady", **VALUES["driver"])], False),
        ([policy("ready", **VALUES["driver"])], True),
        # The chart has been changed, and the policy is still the one from before.
        ([policy("ready", enabled=True, version="550.90.07")], False),
        ([policy("ready", enabled=False)], False),
    ],
)
def test_only_the_policy_that_was_asked_for_is_ready(policies: list[dict[str, Any]], ready: bool) -> None:
    assert is_ready(policies, VALUES) is ready


def test_without_a_driver_its_version_does_not_matter():
    assert is_ready([policy("ready", enabled=False, version="580.1")], {"driver": {"enabled": False}})


def test_what_is_wrong_is_told_once():
    bad = policy("notReady")
    bad["status"]["conditions"] = [
        {"type": "Error", "status": "True", "message": "driver is not ready."},
        {"type": "Error", "status": "False", "message": "all is well"},
        {"type": "Ready", "status": "False", "message": "driver is not ready."},
    ]
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    running: dict[str, Any] = {"state": {"running": {}}}
    pods = [
        {
            "metadata": {"name": "driver-x"},
            "status": {"initContainerStatuses": [running], "containerStatuses": [waiting, waiting]},
        },
        {"metadata": {"name": "toolkit-y"}, "status": {"containerStatuses": [running]}},
    ]
    assert complaints([bad, bad], pods) == [
        "driver is not ready",
        "pod driver-x waits: ImagePullBackOff: no such image",
    ]


LICENSED = {"driver": {"version": "570.172.08", "licensingConfig": {"secretName": "new"}}}


def driver_pod(name: str, volume: dict[str, Any], *, ready: bool = True, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app": "nvidia-driver-daemonset"}, **metadata},
        "spec": {"volumes": [{"name": "licensing-config", **volume}, {"name": "run", "hostPath": {"path": "/run"}}]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def test_m1_a_policy_with_another_license_is_outdated():
    old = policy("ready", version="570.172.08", licensingConfig={"secretName": "old"})
    new = policy("ready", version="570.172.08", licensingConfig={"secretName": "new"})
    assert [is_ready([one], LICENSED) for one in (old, new)] == [False, True]
    # The definition of an older chart drops the field.
    assert not is_ready([policy("ready", version="570.172.08", licensingConfig={})], LICENSED)


def test_m1_driver_pods_are_renewed_one_by_one_and_all_of_them_are_waited_for():
    new, old = {"secret": {"secretName": "new"}}, {"secret": {"secretName": "old"}}
    pods = [
        driver_pod("a", new),
        driver_pod("b", old),
        driver_pod("c", new, ready=False),
        driver_pod("d", new, deletionTimestamp="2026-11-18T08:00:00Z"),
        {"metadata": {"name": "other", "labels": {"app": "nvidia-device-plugin-daemonset"}}, "spec": {}},
    ]
    assert outdated_drivers(LICENSED, pods) == ["b", "c", "d"]
    older = {"driver": {"licensingConfig": {"configMapName": "old"}}}
    assert outdated_drivers(older, [driver_pod("a", {"configMap": {"name": "old"}})]) == []
    assert outdated_drivers({"driver": {"enabled": False}}, pods) == []
