# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes should run the driver if a label reserves the GPUs of some nodes for containers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.addon.apply import AddonSnapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.objects import ObjectList

Json = dict[str, Any]


def listed(*items: Json) -> ObjectList:
    return ObjectList.of({"metadata": {"resourceVersion": "1"}, "items": list(items)})


def node(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": {r.DRIVER_NEEDED_LABEL: "true", **labels}}}


def daemon_set(*keys: str) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["true"]} for key in keys]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    metadata = {"name": "nvidia-driver-runtime", "namespace": "harvester-system"}
    return {"metadata": metadata, "spec": {"template": {"spec": {"affinity": affinity}}}}


DRIVER = {
    "metadata": {"name": r.DRIVER_ADDON, "namespace": "harvester-system"},
    "spec": {"enabled": True, "chart": "harvester-nvidia-driver-toolkit", "version": "1"}
    | {"valuesContent": "fullnameOverride: nvidia-driver-runtime\n"},
}


@pytest.mark.parametrize(
    ("daemon_sets", "nodes"),
    [
        # The charts of Harvester 1.9 leave out reserved nodes. In older ones the label means nothing.
        ([daemon_set(r.BARE_METAL_LABEL)], ["n1", "n3"]),
        ([daemon_set("another/label")], ["n1", "n2", "n3"]),
        ([daemon_set()], ["n1", "n2", "n3"]),
        # Unknown before the chart is there: no driver is demanded of these nodes.
        ([], ["n1", "n3"]),
    ],
)
def test_the_affinity_of_the_driver_decides_about_reserved_nodes(daemon_sets: list[Json], nodes: list[str]) -> None:
    there = (node("n1"), node("n2", **{r.BARE_METAL_LABEL: "true"}), node("n3", **{r.BARE_METAL_LABEL: "false"}))
    found = AddonSnapshot(listed(DRIVER), listed(*daemon_sets), listed(*there), listed())
    assert found.driver_nodes() == nodes
    assert found.reserved_nodes() == ["n2"]
