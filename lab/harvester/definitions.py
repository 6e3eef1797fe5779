"""Custom resource definitions of Harvester, with the schemas and columns of the real controllers (harvester.md 2)."""

from __future__ import annotations

from typing import Any

from lab.harvester.resources import DEVICES_GROUP
from lab.harvester.versions import Version
from lab.kubernetes.client import Json

STRING: Json = {"type": "string", "nullable": True}
INTEGER: Json = {"type": "integer"}
BOOLEAN: Json = {"type": "boolean"}
STRINGS: Json = {"type": "array", "nullable": True, "items": {"type": "string", "nullable": True}}
STRING_MAP: Json = {"type": "object", "nullable": True, "additionalProperties": {"type": "string", "nullable": True}}
ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def fields(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


def list_of(item: Json) -> Json:
    return {"type": "array", "nullable": True, "items": item | {"nullable": True}}


def definition(
    group: str,
    kind: str,
    plural: str,
    *,
    spec: Json | None = None,
    status: Json | None = None,
    top_level: Json | None = None,
    columns: tuple[tuple[str, str, str], ...] = (),
    namespaced: bool = False,
    version: str = "v1beta1",
) -> Json:
    properties: Json = dict(top_level or {})
    if spec is not None:
        properties["spec"] = spec
    if status is not None:
        properties["status"] = status
    served: Json = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    if status is not None:
        served["subresources"] = {"status": {}}
    if columns:
        served["additionalPrinterColumns"] = [
            {"name": name, "jsonPath": path, "type": kind_of_column} for name, path, kind_of_column in columns
        ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [served],
        },
    }


def device_definitions(version: Version) -> list[Json]:
    """Return the definitions that the pcidevices process creates when it starts."""
    definitions = [
        definition(
            DEVICES_GROUP,
            "PCIDevice",
            "pcidevices",
            spec=fields(),
            status=fields(
                address=STRING,
                vendorId=STRING,
                deviceId=STRING,
                classId=STRING,
                iommuGroup=STRING,
                nodeName=STRING,
                resourceName=STRING,
                description=STRING,
                kernelDriverInUse=STRING,
            ),
            columns=(
                ("Address", ".status.address", "string"),
                ("Vendor Id", ".status.vendorId", "string"),
                ("Device Id", ".status.deviceId", "string"),
                ("Node Name", ".status.nodeName", "string"),
                ("Description", ".status.description", "string"),
                ("Kernel Driver In Use", ".status.kernelDriverInUse", "string"),
            ),
        ),
        definition(
            DEVICES_GROUP,
            "PCIDeviceClaim",
            "pcideviceclaims",
            spec=fields(
                address=STRING,
                nodeName=STRING,
                userName=STRING,
                **({"disableResourcePooling": BOOLEAN} if version.rebuilds_allocation_notes else {}),
            ),
            status=fields(kernelDriverToUnbind=STRING, passthroughEnabled=BOOLEAN),
            columns=(
                ("Address", ".spec.address", "string"),
                ("Node Name", ".spec.nodeName", "string"),
                ("User Name", ".spec.userName", "string"),
                # Two of these letters are Greek in the real definition.
                ("Kernel Driver \u03a4\u03bf Unbind", ".status.kernelDriverToUnbind", "string"),
                ("Passthrough Enabled", ".status.passthroughEnabled", "string"),
            ),
        ),
        definition(DEVICES_GROUP, "Node", "nodes", spec=fields()),
        definition(
            DEVICES_GROUP,
            "SRIOVGPUDevice",
            "sriovgpudevices",
            spec=fields(address=STRING, nodeName=STRING, enabled=BOOLEAN),
            status=fields(vfAddresses=STRINGS, vGPUDevices=STRINGS),
            columns=(
                ("Address", ".spec.address", "string"),
                ("Node Name", ".spec.nodeName", "string"),
                ("Enabled", ".spec.enabled", "string"),
                ("VGPUDevices", ".status.vGPUDevices", "string"),
            ),
        ),
        definition(
            DEVICES_GROUP,
            "VGPUDevice",
            "vgpudevices",
            spec=fields(
                vGPUTypeName=STRING,
                address=STRING,
                enabled=BOOLEAN,
                nodeName=STRING,
                parentGPUDeviceAddress=STRING,
            ),
            status=fields(vGPUStatus=STRING, uuid=STRING, configureVGPUTypeName=STRING, availableTypes=STRING_MAP),
            columns=(
                ("Address", ".spec.address", "string"),
                ("Node Name", ".spec.nodeName", "string"),
                ("Enabled", ".spec.enabled", "string"),
                ("UUID", ".status.uuid", "string"),
                ("VGPUType", ".status.configureVGPUTypeName", "string"),
                ("ParentGPUDevice", ".spec.parentGPUDeviceAddress", "string"),
            ),
        ),
    ]
    return [*definitions, *_mig_definition(version)]


def _mig_definition(version: Version) -> list[Json]:
    if not version.mig:
        return []
    message = {"message": STRING} if version.mig_message else {}
    return [
        definition(
            DEVICES_GROUP,
            "MigConfiguration",
            "migconfigurations",
            spec=fields(
                enabled=BOOLEAN,
                gpuAddress=STRING,
                nodeName=STRING,
                profileSpec=list_of(fields(name=STRING, id=INTEGER, requested=INTEGER)),
            ),
            status=fields(
                status=STRING,
                profileStatus=list_of(
                    fields(name=STRING, id=INTEGER, available=INTEGER, total=INTEGER, vGPUID=STRINGS)
                ),
                **message,
            ),
            columns=(
                ("Node Name", ".spec.nodeName", "string"),
                ("Address", ".spec.gpuAddress", "string"),
                ("Enabled", ".spec.enabled", "string"),
                ("Status", ".status.status", "string"),
                *((("Message", ".status.message", "string"),) if version.mig_message else ()),
            ),
        )
    ]


def condition() -> Json:
    return fields(
        type=STRING, status=STRING, reason=STRING, message=STRING, lastUpdateTime=STRING, lastTransitionTime=STRING
    )


def core_definitions() -> list[Json]:
    """Return Harvester's own definitions, which exist from the start."""
    addon_spec = fields(
        repo={"type": "string"},
        chart={"type": "string"},
        version={"type": "string"},
        enabled=BOOLEAN,
        valuesContent={"type": "string"},
    )
    addon_spec["required"] = ["repo", "chart", "version", "enabled", "valuesContent"]
    return [
        definition(
            "harvesterhci.io",
            "Addon",
            "addons",
            namespaced=True,
            spec=addon_spec,
            status=fields(status=STRING, conditions=list_of(condition())),
            columns=(
                ("HelmRepo", ".spec.repo", "string"),
                ("ChartName", ".spec.chart", "string"),
                ("Enabled", ".spec.enabled", "boolean"),
            ),
        ),
        definition(
            "harvesterhci.io",
            "Setting",
            "settings",
            top_level={"value": {"type": "string"}, "default": {"type": "string"}, "source": {"type": "string"}},
            status=fields(conditions=list_of(condition())),
            columns=(("Value", ".value", "string"),),
        ),
    ]
