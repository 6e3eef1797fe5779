"""The versions that a management cluster serves."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.versions import (
    ADDONS,
    CORE,
    INFRASTRUCTURE,
    KUBEADM_GROUPS,
    MARKERS,
    NotInstalled,
    discover,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import ApiClient


class Server:
    """A management cluster that serves certain versions of each group."""

    def __init__(self, served: dict[str, list[str]], without: tuple[str, ...] = ()) -> None:
        self._served = served
        self._without = without

    def get_or_none(self, path: str) -> dict[str, Any] | None:
        parts = path.split("/")[2:]
        if parts[0] not in self._served:
            return None
        if len(parts) == 1:
            return {"versions": [{"version": version} for version in self._served[parts[0]]]}
        names = [] if path in self._without else [MARKERS[parts[0]]]
        return {"resources": [{"name": name} for name in names]}

    def together(self, calls: list[Any]) -> list[Any]:
        return [call() for call in calls]


def discovered(served: dict[str, list[str]], *required: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    return discover(cast("ApiClient", Server(served, without)), required).as_dict()


def test_the_newest_known_version_of_each_group_counts() -> None:
    served = {group: ["v1beta1", "v1beta2"] for group in MARKERS} | {
        INFRASTRUCTURE: ["v1beta1"],
        ADDONS: ["v1", "v1beta2"],
    }
    found = discovered(served, *KUBEADM_GROUPS)
    assert (found[CORE], found[INFRASTRUCTURE], found[ADDONS]) == ("v1beta2", "v1beta1", "v1beta2")


def test_a_version_without_the_kinds_of_the_provider_does_not_count() -> None:
    """Providers of other platforms share the API group of the infrastructure."""
    served = {group: ["v1beta2", "v1beta1"] for group in MARKERS}
    found = discovered(served, without=(f"/apis/{INFRASTRUCTURE}/v1beta2",))
    assert found[INFRASTRUCTURE] == "v1beta1"


def test_a_missing_group_is_an_error_only_if_it_is_required() -> None:
    served = {CORE: ["v1beta2"], INFRASTRUCTURE: ["v1beta2"]}
    assert discovered(served, CORE, INFRASTRUCTURE) == {CORE: "v1beta2", INFRASTRUCTURE: "v1beta2"}
    with pytest.raises(NotInstalled, match="no API group bootstrap"):
        discovered(served, *KUBEADM_GROUPS)


def test_a_group_in_unknown_versions_only_is_named_with_them() -> None:
    with pytest.raises(NotInstalled, match="v1alpha4"):
        discovered({CORE: ["v1alpha4"]}, CORE)
