"""The fields of a recorded state, and how to read each from the watched objects or from the hosts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.replay.compare import node_state
from lab.replay.observe.history import Snapshot
from lab.replay.observe.host_state import Sample, instances_of, type_on
from lab.replay.observe.normalized import gpu_resources
from lab.replay.read.condition import field_of, types_of
from lab.replay.read.step_context import DEVICE, StepContext, resource_of

Json = dict[str, Any]
DRIVER_LABEL = "sriovgpu.harvesterhci.io/driver-needed"
COUNTED = {
    "sriovgpudevices": "sriovgpudevices",
    "vgpudevices": "vgpudevices",
    "pcidevices": "pcidevices",
    "claims": "pcideviceclaims",
    "pcideviceclaims": "pcideviceclaims",
    "migconfigurations": "migconfigurations",
}
# Fields of the device of the last requests; amounts beside them are those of its node.
OF_IT = ("vGPUStatus", "configured", "uuid", "enabled", "typesOfIt", "claim", "object", "hardware")
NESTED = ("hardware", "status", "allocatable", "capacity", "processes")
OTHERS = "(others)"


@dataclass(frozen=True)
class StateField:
    """One value of a state, read from the watched objects (`of_snapshot`) or from the hosts (`of_sample`)."""

    name: str
    of_snapshot: Callable[[Snapshot], Any] | None = None
    of_sample: Callable[[Sample], Any] | None = None

    @property
    def supported(self) -> bool:
        return self.of_snapshot is not None or self.of_sample is not None


def flatten(state: Any) -> dict[str, Any]:
    """Return a recorded state by fields. A list is one value, unless its items are devices."""
    if isinstance(state, list):
        if state and all(re.fullmatch(r".*vGPUConfigured|.* ", str(item)) for item in state):
            return {f"[{index}]": item for index, item in enumerate(state)}
        return {"instances": state}
    if not isinstance(state, dict):
        return {"": state}
    flat: dict[str, Any] = {}
    for key, value in state.items():
        if key in NESTED and isinstance(value, dict):
            flat |= {f"{key}.{inner}": amount for inner, amount in value.items()}
            if key in ("allocatable", "capacity"):
                flat[f"{key}.{OTHERS}"] = []
        else:
            flat[key] = value
    return flat


def fields_of(states: list[Any], context: StepContext, *, mdev: bool) -> list[StateField]:
    flat = [flatten(state) for state in states]
    names = list(dict.fromkeys(name for values_of_state in flat for name in values_of_state))
    values = {name: [values_of_state.get(name) for values_of_state in flat] for name in names}
    reader = _Reader(context, mdev, len([name for name in names if name.startswith("[")]), values)
    return [reader.state_field(name) for name in names]


class _Reader:
    def __init__(self, context: StepContext, mdev: bool, listed: int, values: Mapping[str, list[Any]]) -> None:
        self.context = context
        self.mdev = mdev
        self.values = values
        self.device = context.device
        speaks_of_it = self.device and any(name in OF_IT for name in values)
        self.node = self.device.rpartition("-")[0] if self.device and speaks_of_it else context.node
        self.listed = [name for name in context.touched if name.startswith(f"{context.node}-")][:listed]

    def state_field(self, name: str) -> StateField:
        of_sample = self._of_sample(name)
        return StateField(name, None if of_sample else self._of_snapshot(name), of_sample)

    def _of_sample(self, name: str) -> Callable[[Sample], Any] | None:
        key, _, inner = name.partition(".")
        if key == "processes" and inner:
            return lambda sample: sample.processes.get(inner)
        if key == "hardware" and inner:
            return lambda sample: type_on(sample.hardware[self.context.node], inner, mdev=self.mdev)
        if key == "hardware" and self.device:
            address = address_of(self.device)
            node = self.device.rpartition("-")[0]
            return lambda sample: type_on(sample.hardware[node], address, mdev=self.mdev)
        if key == "instances":
            return lambda sample: instances_of(sample.hardware[self.context.node])
        if re.fullmatch(r"webhook(?:Refuses\w*|Answers|Up)", key):
            return lambda sample: sample.webhook_refuses
        return None

    def _of_snapshot(self, name: str) -> Callable[[Snapshot], Any] | None:
        if of_node := node_state.reader(name):
            return of_node
        key, _, inner = name.partition(".")
        node = self.node
        if re.fullmatch(r"\[\d+\]", name):
            index = int(name[1:-1])
            return (
                (lambda snapshot: _configured_text(snapshot, self.listed[index])) if index < len(self.listed) else None
            )
        if key in ("allocatable", "capacity") and inner == OTHERS:
            known = {value.partition(".")[2] for value in self.values if value.startswith(f"{key}.")}
            return lambda snapshot: sorted(
                name for name, amount in _amounts(snapshot, node, key).items() if amount != "0" and name not in known
            )
        if key in ("allocatable", "capacity") and inner:
            return lambda snapshot: _nothing_for_zero(_amounts(snapshot, node, key).get(inner))
        if match := re.fullmatch(r"(allocatable|capacity)(\d+[A-Z]+)", key):
            of, resource = match.group(1), resource_of(match.group(2))
            return lambda snapshot: _amounts(snapshot, node, of).get(resource, "0")
        if match := re.fullmatch(r"configuredCount(\d+[A-Z]+)", key):
            wanted = resource_of(match.group(1))
            return lambda snapshot: sum(
                1
                for vgpu in snapshot.of_node("vgpudevices", node).values()
                if resource_of(field_of(vgpu, "status.configureVGPUTypeName") or "") == wanted
            )
        if key in COUNTED:
            return lambda snapshot: len(snapshot.of_node(COUNTED[key], node))
        if key == "pfVFs":
            return lambda snapshot: sum(
                len(field_of(pf, "status.vfAddresses") or [])
                for pf in snapshot.of_node("sriovgpudevices", node).values()
            )
        if key == "status" and inner and DEVICE.fullmatch(inner):
            return lambda snapshot: _joined(snapshot, inner, "configureVGPUTypeName", "vGPUStatus", "uuid")
        if DEVICE.fullmatch(name):
            return lambda snapshot: device_text(snapshot, name)
        if self._about_mig(key):
            return self._mig(key)
        if key == "objects" and self.context.subject:
            plural = self.context.subject[0]
            return lambda snapshot: sorted(snapshot.all(plural))
        return self._of_labels(key) or self._of_field(key) or self._of_device(key)

    def _about_mig(self, key: str) -> bool:
        return key == "profiles" or (key in ("status", "message") and "profiles" in self.values)

    def _mig(self, key: str) -> Callable[[Snapshot], Any]:
        def configuration(snapshot: Snapshot) -> Json:
            return next(iter(snapshot.of_node("migconfigurations", self.context.node).values()), {})

        if key == "profiles":
            return lambda snapshot: [
                f"{profile['name']} {profile.get('available', 0)}/{profile.get('total', 0)}"
                + (f" {list(profile['vGPUID'])}" if profile.get("vGPUID") else "")
                for profile in field_of(configuration(snapshot), "status.profileStatus") or []
            ]
        return lambda snapshot: field_of(configuration(snapshot), f"status.{key}") or ""

    def _of_labels(self, key: str) -> Callable[[Snapshot], Any] | None:
        if key == "nodeLabel":
            return lambda snapshot: field_of(
                snapshot.get("nodes", self.context.node), f"metadata.labels.{DRIVER_LABEL}"
            )
        if key not in ("vgpuLabels", "pfLabels"):
            return None
        plural = "vgpudevices" if key == "vgpuLabels" else "sriovgpudevices"
        name = next(
            (
                request.target.name
                for request in self.context.requests
                if request.target.plural == plural
                and isinstance(request.body, dict)
                and (request.body.get("metadata") or {}).get("labels")
            ),
            None,
        )
        return (lambda snapshot: field_of(snapshot.get(plural, name), "metadata.labels") or None) if name else None

    def _of_field(self, key: str) -> Callable[[Snapshot], Any] | None:
        """A field of the spec that requests of this recording gave to a device."""
        given = self.context.named("nodeName" if key == "unknownNode" else key)
        if key not in ("nodeName", "address", "unknownNode") or not given:
            return None
        if key == "unknownNode":
            given = [(name, value) for name, value in given if value not in self.context.nodes] or given
            key = "nodeName"
        name = given[0][0]
        return lambda snapshot: field_of(snapshot.get("vgpudevices", name), f"spec.{key}")

    def _of_device(self, key: str) -> Callable[[Snapshot], Any] | None:
        device = self.device
        if key in ("typesOfLast", "typesOfFirst"):
            place = -1 if key == "typesOfLast" else 0
            return lambda snapshot: len(types_of(_nth(snapshot.of_node("vgpudevices", self.node), place)))
        if device is None:
            return None
        if key in ("typesOfIt", "types"):
            return lambda snapshot: len(types_of(snapshot.get("vgpudevices", device)))
        if key == "object":
            return lambda snapshot: _object_text(snapshot, device)
        if key == "claim":
            if any(isinstance(value, list) for value in self.values[key]):
                return lambda snapshot: [
                    claim_summary(claim) for claim in [snapshot.get("pcideviceclaims", device)] if claim is not None
                ]
            tell_deleting = "deleting" in self.values[key]
            return lambda snapshot: _claim_text(snapshot.get("pcideviceclaims", device), tell_deleting)
        if key == "enabled":
            return lambda snapshot: _enabled(snapshot, device)
        path = {"configured": "status.configureVGPUTypeName", "type": "spec.vGPUTypeName"}.get(key, key)
        if path not in KNOWN_FIELDS:
            return None
        return lambda snapshot: field_of(snapshot.get("vgpudevices", device), path) or ""


KNOWN_FIELDS = (
    "status.configureVGPUTypeName",
    "spec.vGPUTypeName",
    "configureVGPUTypeName",
    "vGPUTypeName",
    "vGPUStatus",
    "uuid",
)


def address_of(device: str) -> str:
    """The PCI address in a device's name: nine hex digits for domain, bus, device and function (harvester.md 2.6)."""
    digits = device[-9:]
    return f"{digits[:4]}:{digits[4:6]}:{digits[6:8]}.{digits[8]}"


def claim_summary(claim: Json) -> Json:
    metadata = claim["metadata"]
    summary = {
        "name": metadata["name"],
        "override": (metadata.get("annotations") or {}).get("pcidevice.harvesterhci.io/override-resource-name"),
        "passthroughEnabled": (claim.get("status") or {}).get("passthroughEnabled"),
    }
    return summary | ({"deleting": True} if metadata.get("deletionTimestamp") else {})


def device_text(snapshot: Snapshot, device: str) -> str:
    return f"{_enabled(snapshot, device)}|{_joined(snapshot, device, 'vGPUStatus', 'configureVGPUTypeName')}"


def _amounts(snapshot: Snapshot, node: str, of: str) -> dict[str, str]:
    return gpu_resources(snapshot.get("nodes", node) or {}, of)


def _nothing_for_zero(amount: str | None) -> str | None:
    return None if amount == "0" else amount


def _nth(objects: Mapping[str, Json], place: int) -> Json | None:
    return list(objects.values())[place] if objects else None


def _joined(snapshot: Snapshot, device: str, *fields: str) -> str:
    vgpu = snapshot.get("vgpudevices", device)
    return "|".join(str(field_of(vgpu, f"status.{field}") or "") for field in fields)


def _configured_text(snapshot: Snapshot, device: str) -> str:
    return _joined(snapshot, device, "configureVGPUTypeName", "vGPUStatus").replace("|", " ")


def _enabled(snapshot: Snapshot, device: str) -> bool:
    return bool(field_of(snapshot.get("vgpudevices", device), "spec.enabled"))


def _object_text(snapshot: Snapshot, device: str) -> str:
    if snapshot.get("vgpudevices", device) is None:
        return "absent"
    fields = _joined(snapshot, device, "vGPUStatus", "configureVGPUTypeName").replace("|", " ")
    return f"enabled={_enabled(snapshot, device)} {fields}"


def _claim_text(claim: Json | None, tell_deleting: bool) -> str:
    if claim is None:
        return "no"
    return "deleting" if tell_deleting and claim["metadata"].get("deletionTimestamp") else "yes"
