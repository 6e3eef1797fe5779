"""Registration and server of the admission webhooks."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from pathlib import Path
from typing import Any

from aiohttp import web

from lab.harvester import resources as r
from lab.harvester.admission import addon_rules, mutations, rules, vm_memory
from lab.harvester.cluster import Cluster
from lab.harvester.versions import Version
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.resource import Resource

log = logging.getLogger(__name__)

ALL = ["*"]


class InformerCache:
    """Cached objects for the rules."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.version: Version = cluster.version

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        informer = self._cluster.informers.get(resource)
        return informer.get(name, namespace) if informer else None

    def all(self, resource: Resource) -> list[Json]:
        informer = self._cluster.informers.get(resource)
        return informer.all() if informer else []

    def labelled(self, resource: Resource, label: str, value: str) -> list[Json]:
        informer = self._cluster.informers.get(resource)
        return informer.labelled(label, value) if informer else []

    def resource_of(self, type_name: str) -> str:
        return self._cluster.vgpu_resource(type_name)


def _rule(operations: list[str], group: str, resource: str, scope: str = "Cluster") -> Json:
    version = "v1" if group in ("", "kubevirt.io") else "v1beta1"
    return {
        "operations": operations,
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
        "scope": scope,
    }


VALIDATED = [
    _rule(["DELETE", "UPDATE"], r.DEVICES_GROUP, "sriovnetworkdevices"),
    _rule(["CREATE", "DELETE"], r.DEVICES_GROUP, "pcideviceclaims"),
    _rule(["UPDATE", "DELETE"], r.DEVICES_GROUP, "vgpudevices"),
    _rule(["UPDATE", "DELETE"], r.DEVICES_GROUP, "sriovgpudevices"),
    _rule(["UPDATE", "DELETE"], r.DEVICES_GROUP, "usbdeviceclaims"),
    _rule(["CREATE", "UPDATE"], "kubevirt.io", "virtualmachines", "Namespaced"),
    _rule(["DELETE"], r.DEVICES_GROUP, "usbdevices"),
    _rule(["UPDATE"], r.DEVICES_GROUP, "migconfigurations"),
]
# From 1.9 on.
NODES_VALIDATED = [_rule(["UPDATE"], "", "nodes")]
MUTATED = [_rule(["CREATE", "UPDATE"], "kubevirt.io", "virtualmachines", "Namespaced")]
CORE_VALIDATED = [_rule(["CREATE", "UPDATE", "DELETE"], "harvesterhci.io", "addons", "Namespaced")]


class WebhookServer:
    """Two listeners: Harvester's own webhook always runs, the pcidevices webhook only while its process runs."""

    def __init__(self, cluster: Cluster, cert: Path, key: Path, ca: Path) -> None:
        self._cluster = cluster
        self._world = InformerCache(cluster)
        self._ca = base64.b64encode(ca.read_bytes()).decode()
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(str(cert), str(key))
        self._pcidevices = web.AppRunner(self._application({"/validate": self._validate, "/mutate": self._mutate}))
        self._core = web.AppRunner(self._application({"/validate": self._validate_core, "/mutate": self._mutate_core}))
        self._site: web.TCPSite | None = None
        self._port = 0
        self._change = asyncio.Lock()
        # In real seconds, because the webhook timeout of the API server is real time.
        self.delay = 0.0

    @staticmethod
    def _application(handlers: dict[str, Any]) -> web.Application:
        application = web.Application(client_max_size=2**26)
        for path, handler in handlers.items():
            application.router.add_post(path, handler)
        return application

    async def start_core(self) -> None:
        await self._core.setup()
        await web.TCPSite(self._core, "127.0.0.1", 0, ssl_context=self._tls).start()
        port = self._core.addresses[0][1]
        await self._register(
            "ValidatingWebhookConfiguration",
            "harvester-validator",
            "validator.harvesterhci.io",
            port,
            "/validate",
            CORE_VALIDATED,
        )
        await self._register(
            "MutatingWebhookConfiguration", "harvester-mutator", "mutator.harvesterhci.io", port, "/mutate", MUTATED
        )

    async def register_pcidevices(self) -> None:
        """Register the configurations, which stay when the processes end: the API server ignores a dead webhook."""
        await self.open()
        # The recordings of 1.9 were made before it had this rule.
        checks_nodes = self._cluster.version.baremetal_label and not self._cluster.scenario.fake_driver
        validated = [*VALIDATED, *(NODES_VALIDATED if checks_nodes else ())]
        for kind, name, path, served in (
            ("ValidatingWebhookConfiguration", "pcidevices-validator", "/validate", validated),
            ("MutatingWebhookConfiguration", "pcidevices-mutator", "/mutate", MUTATED),
        ):
            await self._register(kind, name, "pcidevices.harvesterhci.io", self._port, path, served)

    async def open(self) -> None:
        async with self._change:
            if self._site is None:
                if self._pcidevices.server is None:
                    await self._pcidevices.setup()
                self._site = web.TCPSite(
                    self._pcidevices, "127.0.0.1", self._port, ssl_context=self._tls, reuse_address=True
                )
                await self._site.start()
                self._port = self._pcidevices.addresses[0][1]

    async def close(self) -> None:
        async with self._change:
            if self._site is not None:
                await self._pcidevices.cleanup()
                self._pcidevices = web.AppRunner(
                    self._application({"/validate": self._validate, "/mutate": self._mutate})
                )
                self._site = None

    async def stop(self) -> None:
        await self.close()
        await self._core.cleanup()

    async def _register(self, kind: str, name: str, webhook: str, port: int, path: str, served: list[Json]) -> None:
        plural = kind.lower() + "s"
        collection = f"/apis/admissionregistration.k8s.io/v1/{plural}"
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": webhook,
                    "failurePolicy": "Ignore",
                    "matchPolicy": "Equivalent",
                    "sideEffects": "None",
                    "timeoutSeconds": 10,
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": self._ca},
                    "rules": served,
                }
            ],
        }
        try:
            await self._cluster.admin.create(collection, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            await self._cluster.admin.patch(f"{collection}/{name}", {"webhooks": body["webhooks"]})

    async def _validate(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.delay)
        review = (await request.json())["request"]
        return _answer(review, rules.denial(self._world, review))

    async def _mutate(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.delay)
        review = (await request.json())["request"]
        return _answer(review, None, mutations.pcidevices_patch(self._world, review))

    async def _validate_core(self, request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        return _answer(review, addon_rules.denial(self._world, review))

    async def _mutate_core(self, request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        try:
            return _answer(review, None, vm_memory.patch(review))
        except vm_memory.Refusal as refusal:
            return _answer(review, str(refusal))


def _answer(review: Json, denial: str | None, patch: list[Json] | None = None) -> web.Response:
    response: Json = {"uid": review["uid"], "allowed": denial is None}
    if denial is not None:
        # The real webhook returns a plain error, so a denial looks like a server error (harvester.md 10.1).
        response["status"] = {"status": "Failure", "code": 500, "reason": "InternalError", "message": denial}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
