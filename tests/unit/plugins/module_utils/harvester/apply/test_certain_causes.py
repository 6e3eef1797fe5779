"""Causes that end a wait before its time is over."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.certain_causes import (
    NOT_READY_SECONDS,
    CertainCauses,
    DriverCannotStart,
    NodeNotReady,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import Forbidden


def driver(reason, node="n1", name="driver-abc"):
    state = {"waiting": {"reason": reason, "message": "back-off 5m0s"}} if reason else {"running": {}}
    return {
        "metadata": {"name": name, "namespace": "harvester-system", "labels": {"app": "nvidia-driver-daemonset"}},
        "spec": {"nodeName": node},
        "status": {"containerStatuses": [{"state": state}]},
    }


def node(*, ready):
    return {"status": {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}}


class Pods:
    def __init__(self, *pods):
        self.pods = pods

    def get(self, _path, **_query):
        return {"items": list(self.pods)}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("reason", ["CrashLoopBackOff", "ImagePullBackOff"])
def test_u10_a_driver_pod_that_cannot_start_ends_the_wait_when_it_is_seen_twice(reason):
    causes = CertainCauses(Pods(driver(reason)), lambda: {"n1"})
    assert causes.find() is None
    error = causes.find()
    assert isinstance(error, DriverCannotStart)
    assert f"driver-abc on node n1 cannot start: {reason} (back-off 5m0s)" in str(error)


@pytest.mark.parametrize("pod", [driver("ContainerCreating"), driver(""), driver("CrashLoopBackOff", node="n2")])
def test_a_driver_that_is_still_starting_or_on_another_node_ends_nothing(pod):
    causes = CertainCauses(Pods(pod), lambda: {"n1"})
    assert [causes.find() for _look in range(3)] == [None] * 3


def test_a_driver_that_recovered_between_two_looks_ends_nothing():
    pods = Pods(driver("CrashLoopBackOff"))
    causes = CertainCauses(pods, lambda: {"n1"})
    assert causes.find() is None
    pods.pods = (driver(""),)
    assert causes.find() is None
    pods.pods = (driver("CrashLoopBackOff"),)
    assert causes.find() is None


def test_whoever_may_not_read_pods_waits_to_the_end():
    class Closed(Pods):
        def get(self, _path, **_query):
            raise Forbidden("no", status=403)

    causes = CertainCauses(Closed(), lambda: {"n1"})
    assert [causes.find() for _look in range(3)] == [None] * 3


def test_a_node_that_stays_down_ends_the_wait_and_one_that_comes_back_does_not():
    clock, state = Clock(), {"ready": False}
    causes = CertainCauses(Pods(), lambda: {"n1"}, lambda _name: node(**state), clock=clock)
    assert causes.find() is None
    clock.now += NOT_READY_SECONDS / 2
    state["ready"] = True
    assert causes.find() is None
    state["ready"] = False
    clock.now += NOT_READY_SECONDS
    assert causes.find() is None
    clock.now += NOT_READY_SECONDS
    error = causes.find()
    assert isinstance(error, NodeNotReady)
    assert "Node n1" in str(error)
