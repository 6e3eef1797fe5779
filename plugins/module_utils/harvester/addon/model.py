# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""State of Harvester's addons, and the patches that change it (harvester.md 11.1). Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ansible.module_utils.common.dict_transformations import dict_merge

from ...errors import FleetError
from .. import paths as r

Json = dict[str, Any]

DEPLOYED = "AddonDeploySuccessful"
DISABLED = "AddonDisabled"
# The states of an operation in progress, by the value of `enabled` in the spec.
UNDER_WAY = {True: ("AddonEnabling", "AddonUpdating"), False: ("AddonDisabling",)}
DEFAULTS_ANNOTATION = "harvesterhci.io/addon-defaults"
DRIVER_LOCATION = "driverLocation"
# The placeholder that Harvester ships instead of the server that hosts the driver.
PLACEHOLDER = "HTTPENDPOINT"


class InvalidValues(FleetError):
    code = "invalid_values"


class NoDriverLocation(FleetError):
    code = "no_driver_location"


class AddonFailed(FleetError):
    code = "addon_failed"

    def __init__(self, addon: Addon) -> None:
        why = f": {addon.failure}" if addon.failure else ""
        super().__init__(
            f"The last operation on addon {addon.name} failed{why}.",
            hint="Harvester leaves it as it is until it is disabled: run with state disabled, correct its values,"
            f" then enable it again. The Helm job helm-install-{addon.name} in {addon.namespace} has the log.",
        )


@dataclass(frozen=True)
class Addon:
    name: str
    namespace: str
    chart: str
    version: str
    enabled: bool
    status: str
    values_text: str
    defaults_text: str = ""
    in_progress: bool = False
    failed: bool = False
    failure: str = ""
    revision: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, item: Json) -> Addon:
        metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
        conditions = {condition.get("type"): condition for condition in status.get("conditions") or []}
        failed = conditions.get("OperationFailed", {})
        annotations = metadata.get("annotations") or {}
        return cls(
            name=metadata["name"],
            namespace=metadata.get("namespace", ""),
            chart=spec.get("chart", ""),
            version=spec.get("version", ""),
            enabled=bool(spec.get("enabled")),
            status=status.get("status") or "",
            values_text=spec.get("valuesContent") or "",
            defaults_text=_decoded(annotations.get(DEFAULTS_ANNOTATION, "")),
            in_progress=conditions.get("InProgress", {}).get("status") == "True",
            failed=failed.get("status") == "True",
            failure=(failed.get("message") or failed.get("reason") or "").strip().rstrip("."),
            revision=str(metadata.get("resourceVersion", "")),
            annotations=annotations,
        )

    @cached_property
    def values(self) -> Json:
        """Return the values of the chart. Harvester uses the defaults only if the addon has no values at all."""
        return parsed(self.values_text if self.values_text.strip() else self.defaults_text, self.name)

    @property
    def settled(self) -> bool:
        """Return whether the addon has reached its spec and no operation is in progress."""
        return not self.in_progress and self.status in ((DEPLOYED,) if self.enabled else (DISABLED, ""))

    @property
    def stuck(self) -> bool:
        """Return whether Harvester has stopped trying to reach the spec."""
        return self.failed and not self.in_progress and self.status in UNDER_WAY[self.enabled]

    @property
    def is_driver(self) -> bool:
        return self.name == r.DRIVER_ADDON

    @property
    def workload(self) -> str:
        """Return the name of the DaemonSet that the chart creates."""
        return str(self.values.get("fullnameOverride") or self.chart)

    def as_dict(self) -> Json:
        return {
            "name": self.name,
            "namespace": self.namespace,
            "chart": self.chart,
            "version": self.version,
            "enabled": self.enabled,
            "status": self.status,
            "values": self.values,
        }


@dataclass(frozen=True)
class AddonPlan:
    """The addon before and after the change."""

    before: Addon
    after: Addon

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def patch(self) -> Json:
        """Return the merge patch. The API server refuses it if the addon has changed since its values were read."""
        spec: Json = {}
        if self.after.enabled != self.before.enabled:
            spec["enabled"] = self.after.enabled
        if self.after.values_text != self.before.values_text:
            spec["valuesContent"] = self.after.values_text
        return {"metadata": {"resourceVersion": self.before.revision}, "spec": spec}

    @property
    def diff(self) -> Json:
        return {
            "before": {"enabled": self.before.enabled, "values": self.before.values},
            "after": {"enabled": self.after.enabled, "values": self.after.values},
        }


def plan(addon: Addon, *, enabled: bool, values: Mapping[str, Any]) -> AddonPlan:
    """Plan the change. Rewrite the text of the values, including its comments, only if a value changes."""
    after = replace(addon, enabled=enabled)
    merged_values = dict_merge(addon.values, values)
    if merged_values != addon.values:
        after = replace(after, values_text=dumped(merged_values))
    if addon != after:
        after = replace(after, status=DEPLOYED if enabled else addon.status if not addon.enabled else DISABLED)
        after = replace(after, in_progress=False, failed=False, failure="")
    if addon.stuck and enabled and addon.enabled:
        raise AddonFailed(addon)
    return AddonPlan(addon, after)


def wanted_values(name: str, values: Mapping[str, Any] | None, driver_location: str | None) -> Json:
    """Return the values to merge into the addon's values, including the driver location."""
    wanted = dict(values or {})
    if driver_location is None:
        return wanted
    if name != r.DRIVER_ADDON:
        raise InvalidValues(
            f"The addon {name} has no driver location.", hint=f"driver_location belongs to {r.DRIVER_ADDON}."
        )
    if wanted.get(DRIVER_LOCATION, driver_location) != driver_location:
        raise InvalidValues(
            f"driver_location and {DRIVER_LOCATION} in values name two different places.", hint="Give only one of them."
        )
    check_location(driver_location)
    return {**wanted, DRIVER_LOCATION: driver_location}


def check_location(location: str) -> None:
    """Refuse the placeholder: driver pods would crash forever, and the API does not show why (harvester.md 11.3)."""
    if not location:
        raise NoDriverLocation(
            "The driver has no location.", hint="Set driver_location to the URL of the vGPU host driver (.run)."
        )
    if PLACEHOLDER in location:
        raise NoDriverLocation(
            f"The driver's location {location} still has Harvester's placeholder {PLACEHOLDER} in it.",
            hint="Set driver_location to the URL of the vGPU host driver on a server that the nodes can reach.",
        )
    scheme, separator, rest = location.partition("://")
    if not separator or scheme not in ("http", "https") or not rest or location != "".join(location.split()):
        raise NoDriverLocation(
            f"The driver's location {location!r} is not a URL.",
            hint="The nodes fetch the driver by HTTP: write it as http://server/NVIDIA-Linux-x86_64-vgpu-kvm.run.",
        )


def parsed(text: str, name: str) -> Json:
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidValues(
            f"The values of addon {name} are not valid YAML, so nothing can be merged into them.",
            hint="Correct valuesContent in Harvester first.",
        ) from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InvalidValues(f"The values of addon {name} are not a mapping.", hint="Correct valuesContent first.")
    return values


def dumped(values: Mapping[str, Any]) -> str:
    import yaml

    # Escape these characters: YAML reads some of them, such as U+0085, as line breaks.
    return str(yaml.safe_dump(dict(values), sort_keys=False, width=4096))


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return ""
