"""Remove everything from a recording that must not leave the cluster. Pure.

Two nets, one behind the other. Of each kind of object only the parts are kept that a recording is about. Then every
text that is left is searched for what looks like an address, a name of a machine or a secret, and for the very
credentials with which the recording was made.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from lab.replay.compare.bindings import UUID
from lab.replay.observe.normalized import normalized

Json = dict[str, Any]

ADDRESS, HOST, SECRET, USER = "<address>", "<host>", "<secret>", "<user>"

NODE_LABELS = re.compile(r"sriovgpu\.harvesterhci\.io/\S+")
HOSTNAME_LABEL = "kubernetes.io/hostname"
VM_ANNOTATIONS = ("harvesterhci.io/deviceAllocationDetails",)
VM_DOMAIN = ("cpu", "memory", "resources", "machine")
VM_DEVICES = ("gpus", "hostDevices")
KNOWN_USERS = ("admin",)

PEM = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL)
TOKENS = (
    re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]+){0,2}"),
    re.compile(r"(?i)\b(?:bearer|basic)\s+[\w.~+/=:-]{8,}"),
    # Rancher's: a name, a colon and 54 characters.
    re.compile(r"\b[a-z][a-z0-9-]+:[a-z0-9]{40,}\b"),
    re.compile(r"\b[0-9a-fA-F]{32,}\b"),
)
ENCODED = re.compile(r"[A-Za-z0-9+/_]{40,}={0,2}")
PASSWORD = re.compile(r"(?i)\b((?:password|passwd|secret|token|api[-_]?key)\s*[:=]\s*)(?!<)[^\s,;'\"]+")
MAC = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)
IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.]*\d)")
IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?![\w:])")
URL_HOST = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:[^\s/@'\"]*@)?[^\s/'\"\]\)>]+")
# Two labels or more, the last without digits: a version or an address is none.
DOTTED = re.compile(r"(?<![\w.<-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}(?![\w<-])", re.IGNORECASE)
# Names of API groups and the like, and paths of fields, are dotted too.
PUBLIC = re.compile(r"(?:.*\.)?(?:harvesterhci\.io|kubernetes\.io|k8s\.io|kubevirt\.io|nvidia\.com|cattle\.io)")
FIELD_PATH = re.compile(r"(?:spec|status|metadata|data|items|template|domain|devices)\..*", re.IGNORECASE)
FIELD_NAME = re.compile(r"[a-z]+[A-Z]\w*")


class Redaction:
    """For one recording: `names` may be told, `secrets` may not, and one UUID has one placeholder throughout."""

    def __init__(self, names: Iterable[str] = (), secrets: Iterable[str] = ()) -> None:
        self._names = set(names)
        # The longest first, since one may contain another.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)
        self._uuids: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        """Return the value with all texts redacted, including keys."""
        if isinstance(value, dict):
            return {self.text(str(key)): self.of(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.of(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, SECRET)
        text = re.sub(UUID, lambda match: self._placeholder(match.group()), text)
        text = PEM.sub(SECRET, text)
        for token in TOKENS:
            text = token.sub(SECRET, text)
        text = PASSWORD.sub(rf"\1{SECRET}", text)
        text = ENCODED.sub(lambda match: SECRET if _looks_encoded(match.group()) else match.group(), text)
        text = URL_HOST.sub(rf"\g<scheme>{HOST}", text)
        text = MAC.sub(ADDRESS, text)
        text = IPV4.sub(_if_address, text)
        text = IPV6.sub(_if_address, text)
        return DOTTED.sub(self._if_host, text)

    def _placeholder(self, uuid: str) -> str:
        return self._uuids.setdefault(uuid, f"<uuid-{len(self._uuids) + 1}>")

    def _if_host(self, match: re.Match[str]) -> str:
        name = match.group()
        # In Go's messages a field's path has capitals inside its words, as no name of a machine has.
        is_path = FIELD_PATH.fullmatch(name) or any(FIELD_NAME.fullmatch(part) for part in name.split("."))
        return name if name in self._names or PUBLIC.fullmatch(name) or is_path else HOST


def _if_address(match: re.Match[str]) -> str:
    """What follows an address may look like a part of it."""
    text = match.group()
    for end in (len(text), len(text.rstrip(".")), len(text) - 1):
        try:
            ipaddress.ip_address(text[:end])
        except ValueError:
            continue
        return ADDRESS + text[end:]
    return text


def _looks_encoded(text: str) -> bool:
    """Names are long too, but they have no capitals and digits in the midst of small letters."""
    return bool(re.search(r"[a-z]", text) and re.search(r"[A-Z]", text) and re.search(r"\d", text))


def shown(live: Json) -> Json:
    """Return an object without what a recording must not contain."""
    kind = str(live.get("kind", ""))
    if kind.endswith("List") and "items" in live:
        item_kind = kind.removesuffix("List")
        version = live.get("apiVersion")
        items = [shown({"apiVersion": version, "kind": item_kind, **item}) for item in live["items"] or []]
        return {"kind": kind, "items": items}
    object_ = normalized(live)
    keep = KEPT.get(kind)
    return keep(object_) if keep else object_


def is_recorded(kind: str) -> bool:
    return kind in KEPT or kind == "Status"


def _whole(live: Json) -> Json:
    return live


def _node(live: Json) -> Json:
    metadata = live.get("metadata") or {}
    labels = metadata.get("labels") or {}
    same_name = labels.get(HOSTNAME_LABEL) == metadata.get("name")
    return _with_metadata(
        live,
        lambda key: bool(NODE_LABELS.fullmatch(key)) or (key == HOSTNAME_LABEL and same_name),
        ("name", "generation", "labels", "finalizers", "deleting"),
    )


def _claim(live: Json) -> Json:
    spec = dict(live.get("spec") or {})
    if spec.get("userName") and spec["userName"] not in KNOWN_USERS:
        spec["userName"] = USER
    return live | {"spec": spec}


def _machine(live: Json) -> Json:
    """What it asks of GPUs: neither disks, networks and cloud-init, nor where it runs and what for."""
    kept = _with_metadata(
        {key: value for key, value in live.items() if key in ("apiVersion", "kind", "metadata")},
        lambda key: key in VM_ANNOTATIONS,
        ("name", "namespace", "generation", "annotations", "finalizers", "deleting", "resourceVersion"),
    )
    spec = live.get("spec") or {}
    spec_kept = {key: spec[key] for key in ("runStrategy", "running") if key in spec}
    domain = ((spec.get("template") or {}).get("spec") or {}).get("domain") or {}
    devices = domain.get("devices") or {}
    if "template" in spec:
        shape = {key: domain[key] for key in VM_DOMAIN if key in domain}
        shape["devices"] = {key: devices[key] for key in VM_DEVICES if key in devices}
        spec_kept["template"] = {"spec": {"domain": shape}}
    return kept | {"spec": spec_kept}


def _addon(live: Json) -> Json:
    """Not its values: they hold the address of the driver, and whatever else people put in."""
    spec = {key: value for key, value in (live.get("spec") or {}).items() if key in ("enabled", "chart")}
    return live | {"metadata": _without_annotations(live), "spec": spec}


def _without_annotations(live: Json) -> Json:
    return {key: value for key, value in (live.get("metadata") or {}).items() if key != "annotations"}


def _with_metadata(live: Json, is_kept: Callable[[str], bool], keys: Collection[str]) -> Json:
    metadata = {key: value for key, value in (live.get("metadata") or {}).items() if key in keys}
    for key in ("labels", "annotations"):
        if key in metadata:
            metadata[key] = {name: value for name, value in (metadata[key] or {}).items() if is_kept(name)}
            if not metadata[key]:
                del metadata[key]
    return live | {"metadata": metadata}


# Everything a recording may hold. What is not here is neither asked for nor kept.
KEPT: dict[str, Callable[[Json], Json]] = {
    "SRIOVGPUDevice": _whole,
    "VGPUDevice": _whole,
    "PCIDevice": _whole,
    "PCIDeviceClaim": _claim,
    "MigConfiguration": _whole,
    "Node": _node,
    "KubeVirt": _whole,
    "CustomResourceDefinition": _whole,
    "ValidatingWebhookConfiguration": _whole,
    "MutatingWebhookConfiguration": _whole,
    "VirtualMachine": _machine,
    "Addon": _addon,
}


def shown_body(kind: str, body: Any) -> Any:
    """Return the body of a request without what a recording must not contain."""
    return _machine(body) if kind == "VirtualMachine" and isinstance(body, dict) and "spec" in body else body
