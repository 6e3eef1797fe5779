"""Reduce objects to what a recording shows: without values that differ from run to run, large kinds in summary."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

METADATA = ("name", "namespace", "generation", "labels", "annotations", "finalizers")
RESOURCE_PREFIX = "nvidia.com/"


def normalized(live: Json) -> Json:
    kind = live.get("kind", "")
    if kind == "Status":
        return {"kind": "Status", "status": live.get("status")}
    if kind.endswith("List") and "items" in live:
        item_kind = kind.removesuffix("List")
        return {"kind": kind, "items": [normalized({"kind": item_kind, **item}) for item in live["items"] or []]}
    if kind == "CustomResourceDefinition":
        return _custom_resource_definition(live)
    if kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        return _webhook_configuration(live)
    if is_core_node(live):
        return _core_node(live)
    if kind == "KubeVirt":
        return _kubevirt(live)
    shown = {key: value for key, value in live.items() if key not in ("apiVersion", "metadata")}
    return {"kind": kind, "metadata": metadata(live), **{key: shown[key] for key in shown if key != "kind"}}


def metadata(live: Json) -> Json:
    full = live.get("metadata") or {}
    shown = {key: full[key] for key in METADATA if full.get(key)}
    if owners := full.get("ownerReferences"):
        shown["ownerReferences"] = [{"kind": owner["kind"], "name": owner["name"]} for owner in owners]
    if full.get("deletionTimestamp"):
        shown["deleting"] = True
    return shown


def is_core_node(live: Json) -> bool:
    return live.get("kind") == "Node" and live.get("apiVersion", "v1") == "v1"


def gpu_resources(node: Json, of: str) -> dict[str, str]:
    amounts = (node.get("status") or {}).get(of) or {}
    return {name: str(amount) for name, amount in amounts.items() if name.startswith(RESOURCE_PREFIX)}


def _core_node(live: Json) -> Json:
    full = metadata(live)
    return {
        "kind": "Node",
        "metadata": {key: full[key] for key in ("name", "labels", "finalizers", "deleting") if key in full},
        "status": {"capacity": gpu_resources(live, "capacity"), "allocatable": gpu_resources(live, "allocatable")},
    }


def _kubevirt(live: Json) -> Json:
    configuration = (live.get("spec") or {}).get("configuration") or {}
    return {
        "kind": "KubeVirt",
        "metadata": {key: value for key, value in metadata(live).items() if key in ("name", "namespace")},
        "spec": {"configuration": {"permittedHostDevices": configuration.get("permittedHostDevices")}},
    }


def _custom_resource_definition(live: Json) -> Json:
    spec = live["spec"]
    names = spec["names"]
    version = next((version for version in spec["versions"] if version.get("storage")), spec["versions"][0])
    return {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": live["metadata"]["name"]},
        "spec": {
            "scope": spec["scope"],
            "names": {key: names.get(key) for key in ("kind", "plural", "singular", "shortNames")},
            "version": version["name"],
            "subresources": sorted(version.get("subresources") or {}),
            "printerColumns": [
                {column["name"]: column["jsonPath"]} for column in version.get("additionalPrinterColumns") or []
            ],
        },
    }


def _webhook_configuration(live: Json) -> Json:
    return {
        "kind": live["kind"],
        "metadata": {"name": live["metadata"]["name"]},
        "webhooks": [
            {
                **{
                    key: webhook.get(key)
                    for key in ("name", "failurePolicy", "matchPolicy", "sideEffects", "timeoutSeconds")
                },
                "rules": [
                    {key: rule.get(key) for key in ("operations", "apiGroups", "resources")}
                    for rule in webhook.get("rules") or []
                ],
            }
            for webhook in live.get("webhooks") or []
        ],
    }
