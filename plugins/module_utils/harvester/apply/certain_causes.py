# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find causes that make it certain that waiting is pointless: a driver pod that cannot start, a node that is down."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from ...errors import FleetError
from ...kube.client import ApiClient, Json
from ...kube.objects import ObjectList
from .. import paths as r
from .diagnosis import DRIVER_POD, driver_pods, is_ready, waiting_reason

# A restarted kubelet or an overloaded node recovers within this time.
NOT_READY_SECONDS = 60.0
CANNOT_START = frozenset(
    ("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError")
)
HINT = "Set fail_fast: false to wait for wait_timeout all the same."


class DriverCannotStart(FleetError):
    code = "driver_cannot_start"


class NodeNotReady(FleetError):
    code = "node_not_ready"


class CertainCauses:
    """Checks for the nodes that a wait is about. A cause counts when two consecutive checks find it."""

    def __init__(
        self,
        api: ApiClient,
        nodes: Callable[[], Collection[str]],
        node: Callable[[str], Json | None] = lambda _name: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._nodes = nodes
        self._node = node
        self._clock = clock
        self._not_ready_since: dict[str, float] = {}
        self._failing: set[tuple[str, str]] = set()

    def find(self) -> FleetError | None:
        nodes = sorted(self._nodes())
        return self._node_down(nodes) or self._driver_fails(nodes)

    def _node_down(self, nodes: Iterable[str]) -> FleetError | None:
        for name in nodes:
            node = self._node(name)
            if node is None or is_ready(node):
                self._not_ready_since.pop(name, None)
                continue
            since = self._not_ready_since.setdefault(name, self._clock())
            if self._clock() - since >= NOT_READY_SECONDS:
                return NodeNotReady(
                    f"Node {name} has not been ready for {NOT_READY_SECONDS:.0f} s, so nothing changes on it.",
                    hint=f"Bring the node back and run the task again. {HINT}",
                )
        return None

    def _driver_fails(self, nodes: Collection[str]) -> FleetError | None:
        if not nodes:
            return None
        try:
            pods = ObjectList.of(self._api.get(r.SYSTEM_PODS, labelSelector="=".join(DRIVER_POD))).items.values()
        except FleetError:
            # Users without permission to read pods wait until the timeout.
            return None
        failing = {}
        for pod in pods:
            if (pod.get("spec") or {}).get("nodeName") in nodes and driver_pods([pod]):
                reason, detail = waiting_reason(pod)
                if reason in CANNOT_START:
                    failing[pod["metadata"]["name"], reason] = (pod["spec"]["nodeName"], detail)
        again = sorted(self._failing & set(failing))
        self._failing = set(failing)
        if not again:
            return None
        name, reason = again[0]
        node, detail = failing[name, reason]
        return DriverCannotStart(
            f"The NVIDIA driver pod {name} on node {node} cannot start: {reason}"
            + (f" ({detail})" if detail else "")
            + ".",
            hint=f"See its log: kubectl -n {r.SYSTEM_NAMESPACE} logs {name} --previous. {HINT}",
        )
