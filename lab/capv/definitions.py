"""Custom resource definitions of a management cluster.

Those of Cluster API are its own. Those of the provider for vSphere are ours, with the fields of its version 1.16 that
the collection and the simulation use. Rules that the provider's webhook checks are part of the definitions.
"""

from __future__ import annotations

import json
from pathlib import Path

from lab.kubernetes.client import Json

CLUSTER_API = Path(__file__).with_name("cluster_api_definitions.json")
GROUP = "infrastructure.cluster.x-k8s.io"
STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
BOOLEAN: Json = {"type": "boolean"}
STRINGS: Json = {"type": "array", "items": STRING}
CONDITIONS: Json = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": dict.fromkeys(("type", "status", "reason", "message", "severity", "lastTransitionTime"), STRING),
    },
}
DEVICE_RULE = {
    "rule": "has(self.vGPUProfile) ? !has(self.deviceId) && !has(self.vendorId)"
    " : has(self.deviceId) && has(self.vendorId)",
    "message": "should have either deviceId + vendorId or vGPUProfile set",
}
IMMUTABLE_RULE = {
    "rule": "self == oldSelf",
    "message": "VSphereMachineTemplate spec.template.spec field is immutable. Please create a new resource instead.",
}


def definitions(version: str) -> list[Json]:
    """Return all definitions in one version: a conversion between versions would need a webhook."""
    return [*cluster_api(version), *provider(version)]


def names() -> list[str]:
    return [definition["metadata"]["name"] for definition in definitions("v1beta2")]


def cluster_api(version: str) -> list[Json]:
    stored = json.loads(CLUSTER_API.read_text())["definitions"]
    found = []
    for one in stored:
        chosen = next(each for each in one["versions"] if each["name"] == version)
        found.append(_definition(one["group"], one["names"], chosen))
    return found


def _definition(group: str, names: Json, version: Json) -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version | {"served": True, "storage": True}],
        },
    }


def _fields(required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _clone_spec(version: str) -> dict[str, Json]:
    new = version == "v1beta2"
    device = _fields(
        deviceId={"type": "integer", "format": "int32"},
        vendorId={"type": "integer", "format": "int32"},
        vGPUProfile=STRING | ({"minLength": 1, "maxLength": 1024} if new else {}),
        customLabel=STRING,
    ) | {"x-kubernetes-validations": [DEVICE_RULE]}
    network_device = _fields(
        ("networkName",), networkName=STRING, deviceName=STRING, dhcp4=BOOLEAN, dhcp6=BOOLEAN, ipAddrs=STRINGS
    )
    texts = "server thumbprint datacenter folder datastore storagePolicyName resourcePool snapshot hardwareVersion"
    return {
        "template": STRING | {"minLength": 1},
        **dict.fromkeys(texts.split(), STRING),
        "cloneMode": STRING | {"enum": ["fullClone", "linkedClone"]},
        "network": _fields(("devices",), devices=_array(network_device)),
        **dict.fromkeys(("numCPUs", "numCoresPerSocket", "diskGiB"), INTEGER),
        "memoryMiB": {"type": "integer", "format": "int64"},
        "customVMXKeys": {"type": "object", "additionalProperties": STRING},
        "tagIDs": STRINGS,
        "os": STRING | {"enum": ["Linux", "Windows"]},
        # A list of this length keeps the costs of the rule below the limit of the API server.
        "pciDevices": _array(device) | {"maxItems": 64},
        "powerOffMode": STRING | {"enum": ["hard", "soft", "trySoft"]},
        **({"guestSoftPowerOffTimeoutSeconds": INTEGER} if new else {"guestSoftPowerOffTimeout": STRING}),
    }


def provider(version: str) -> list[Json]:
    clone = _clone_spec(version)
    machine = _fields(("template", "network"), **clone, providerID=STRING, failureDomain=STRING)
    endpoint = _fields(host=STRING | {"minLength": 1}, port=INTEGER | {"minimum": 1, "maximum": 65535})
    identity = _fields(("kind", "name"), kind=STRING | {"enum": ["Secret", "VSphereClusterIdentity"]}, name=STRING)
    progress = _fields(provisioned=BOOLEAN)
    cluster = _fields(server=STRING, thumbprint=STRING, controlPlaneEndpoint=endpoint, identityRef=identity)
    vm = _fields(("template", "network"), **clone, biosUUID=STRING, bootstrapRef=_fields(name=STRING, kind=STRING))
    return [
        _provided(version, "VSphereCluster", cluster, _fields(ready=BOOLEAN, conditions=CONDITIONS)),
        _provided(
            version,
            "VSphereMachineTemplate",
            _fields(
                ("template",),
                template=_fields(("spec",), spec=machine | {"x-kubernetes-validations": [IMMUTABLE_RULE]}),
            ),
        ),
        _provided(
            version,
            "VSphereMachine",
            machine,
            _fields(ready=BOOLEAN, initialization=progress, conditions=CONDITIONS),
        ),
        _provided(
            version,
            "VSphereVM",
            vm,
            _fields(
                ready=BOOLEAN, host=STRING, addresses=STRINGS, cloneMode=STRING, vmRef=STRING, conditions=CONDITIONS
            ),
        ),
    ]


def _provided(version: str, kind: str, spec: Json, status: Json | None = None) -> Json:
    properties = {"spec": spec} | ({"status": status} if status else {})
    content = {
        "name": version,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        **({"subresources": {"status": {}}} if status else {}),
    }
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return _definition(GROUP, names, content)
