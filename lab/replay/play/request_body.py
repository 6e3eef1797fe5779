"""Complete the body of a recorded request with values that differ from run to run."""

from __future__ import annotations

import copy
import re
from typing import Any

from lab.replay.compare.bindings import UUID
from lab.replay.observe.api import Api
from lab.replay.observe.history import PLURAL, WATCHED
from lab.replay.read.recording import Request

Json = dict[str, Any]
API_VERSION = {"Node": "v1", "KubeVirt": "kubevirt.io/v1", "VirtualMachine": "kubevirt.io/v1"}


def completed_body(api: Api, request: Request) -> Any:
    body = copy.deepcopy(request.body)
    if isinstance(body, list):
        for operation in body:
            if str(operation.get("path", "")).startswith("/metadata/ownerReferences"):
                value = operation.get("value")
                for owner in value if isinstance(value, list) else [value]:
                    if isinstance(owner, dict):
                        _complete(api, owner)
    if not isinstance(body, dict):
        return body
    metadata = body.get("metadata") or {}
    for owner in metadata.get("ownerReferences") or []:
        _complete(api, owner)
    if request.method == "PUT":
        body.setdefault("apiVersion", request.target.api_version)
        wanted = body.pop("resourceVersion", metadata.pop("resourceVersion", "current"))
        live = api.get(request.path.partition("?")[0]) or {}
        current = str((live.get("metadata") or {}).get("resourceVersion", "1"))
        if wanted == "current":
            metadata["resourceVersion"] = current
        elif wanted == "stale":
            metadata["resourceVersion"] = str(max(int(current) - 1, 1))
        body["metadata"] = metadata
    return body


def _complete(api: Api, owner: Json) -> None:
    """An owner reference cannot do without what recordings drop."""
    kind = owner.get("kind", "")
    owner.setdefault("apiVersion", API_VERSION.get(kind, "devices.harvesterhci.io/v1beta1"))
    if not re.fullmatch(UUID, str(owner.get("uid", ""))) and kind in PLURAL:
        live = api.get(f"{WATCHED[PLURAL[kind]]}/{owner.get('name')}") or {}
        owner["uid"] = (live.get("metadata") or {}).get("uid", "00000000-0000-0000-0000-000000000000")
