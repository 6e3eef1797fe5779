"""States of a lab that would pass by, held until someone has met them, and states that stay, waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lab.lifecycle.control import Control
from tests.integration.api import ADDONS, DAEMON_SETS, HARVESTER_PODS
from tests.integration.labs import Lab

# Shorter than anything takes in the lab, so that no state is stepped over.
MOMENT = 0.01
# Of the lab whose clock runs, in simulated seconds for a real one.
SPEED = 100.0


@contextmanager
def standing_still(lab: Lab) -> Iterator[None]:
    """The clock stands until someone watches, so that a module finds things half done and has to wait for the rest."""
    lab.mark()
    stop = threading.Event()

    def release() -> None:
        control = Control(lab.run)
        while not stop.wait(0.02):
            if any(event["verb"] == "watch" for event in lab.audit(writes_only=False)):
                break
        control.speed(SPEED)

    waiting = threading.Thread(target=release)
    waiting.start()
    try:
        yield
    finally:
        stop.set()
        waiting.join()
        lab.stepped = False


def step_until(lab: Lab, condition: Callable[[], bool]) -> None:
    """Let time pass until the very moment at which the condition holds."""
    lab.control.settle()
    for _moment in range(1000):
        if condition():
            return
        lab.advance(MOMENT)
    raise AssertionError("it did not come to that")


def driver_pods(lab: Lab) -> dict[str, Any]:
    """By node, why its driver pod is not ready; None for one that is."""
    pods = lab.items(HARVESTER_PODS, labelSelector="app=nvidia-driver-daemonset")
    return {pod["spec"]["nodeName"]: _trouble(pod["status"]) for pod in pods if "nodeName" in pod["spec"]}


def _trouble(status: dict[str, Any]) -> str | None:
    if any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", [])):
        return None
    states = [one["state"] for one in status.get("containerStatuses", [])]
    return next((state["waiting"]["reason"] for state in states if "waiting" in state), "not ready")


def driver_rolled_out(lab: Lab) -> bool:
    """Whether every driver pod is of the newest kind, ready or not."""
    addon = lab.read(f"{ADDONS}/nvidia-driver-toolkit")
    wanted = lab.read(f"{DAEMON_SETS}/nvidia-driver-runtime")
    status = wanted["status"]
    return (
        addon["status"]["status"] == "AddonDeploySuccessful"
        and status["observedGeneration"] == wanted["metadata"]["generation"]
        and status.get("updatedNumberScheduled") == status["desiredNumberScheduled"] == len(driver_pods(lab))
    )


def break_driver(lab: Lab, node: str) -> None:
    """The driver does not build any more on a node, and its pod shows it."""
    lab.control.fault("driver-missing", node=node)
    lab.until(lambda: driver_pods(lab).get(node) == "CrashLoopBackOff")
