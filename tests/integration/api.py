"""Plain requests to a lab's API server, as one of the lab's users."""

from __future__ import annotations

import http
import http.client
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import yaml

Json = dict[str, Any]

RETRY_SECONDS = 0.2

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

DEVICES = "/apis/devices.harvesterhci.io/v1beta1"
SRIOV_GPUS = f"{DEVICES}/sriovgpudevices"
VGPUS = f"{DEVICES}/vgpudevices"
PCI_DEVICES = f"{DEVICES}/pcidevices"
CLAIMS = f"{DEVICES}/pcideviceclaims"
MIG_CONFIGURATIONS = f"{DEVICES}/migconfigurations"
NODES = "/api/v1/nodes"
SETTINGS = "/apis/harvesterhci.io/v1beta1/settings"
HARVESTER_PODS = "/api/v1/namespaces/harvester-system/pods"
DAEMON_SETS = "/apis/apps/v1/namespaces/harvester-system/daemonsets"
ADDONS = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/addons"
KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/kubevirt"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
VM_ACTIONS = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"
PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Answer(NamedTuple):
    """What came back. A refusal's `reason` and `message` are those of the Status object."""

    status: int
    body: Json
    warnings: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def items(self) -> list[Json]:
        return list(self.body["items"])


class Api:
    """One connection, one user. Every answer is returned as it is, refusals too."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._host = urlsplit(cluster["server"]).netloc
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        if "client-certificate" in user:
            self._tls.load_cert_chain(user["client-certificate"], user["client-key"])
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._connection: http.client.HTTPSConnection | None = None

    def as_user(self, name: str) -> Api:
        """The same API server, as another of the lab's users: viewer, nobody, expired, ..."""
        return Api(self._kubeconfig.with_name(f"{name}.yaml"))

    def again(self) -> Api:
        """Another connection of the same user."""
        return Api(self._kubeconfig)

    def lines(self, path: str, **query: Any) -> list[str]:
        """An answer that is a stream, such as a watch, when it has ended."""
        connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=60)
        target = f"{path}?{urlencode(query, quote_via=quote)}"
        response, text = self._exchange(connection, "GET", target, None, self._headers)
        connection.close()
        assert response.status == 200, (response.status, text)
        return text.decode().splitlines()

    def once(self, method: str, path: str, body: Any = None) -> tuple[http.client.HTTPResponse, bytes]:
        """One request on a connection of its own, whatever comes of it."""
        connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=60)
        headers = {**self._headers, "Content-Type": MERGE_PATCH}
        try:
            return self._exchange(connection, method, path, None if body is None else json.dumps(body), headers)
        finally:
            connection.close()

    def watch(self, path: str, revision: str) -> http.client.HTTPResponse:
        """A watch that has begun; its connection is kept by the response."""
        connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=60)
        connection.request("GET", f"{path}?watch=1&resourceVersion={revision}", headers=self._headers)
        return connection.getresponse()

    def get(self, path: str, **query: Any) -> Answer:
        return self.request("GET", path, query=query)

    def post(self, path: str, body: Json | None = None, **query: Any) -> Answer:
        return self.request("POST", path, body, query=query)

    def put(self, path: str, body: Json, **query: Any) -> Answer:
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, body: Any, *, content_type: str = MERGE_PATCH, **query: Any) -> Answer:
        return self.request("PATCH", path, body, content_type=content_type, query=query)

    def delete(self, path: str, body: Json | None = None, **query: Any) -> Answer:
        return self.request("DELETE", path, body, query=query)

    def action(self, path: str, body: Json | None = None) -> Answer:
        """A subresource of KubeVirt's own API server, which answers with plain text or nothing."""
        return self.request("PUT", path, body or {}, accept="*/*")

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        query: Mapping[str, Any] | None = None,
    ) -> Answer:
        if query:
            path = f"{path}?{urlencode(query, quote_via=quote)}"
        headers = {**self._headers, "Accept": accept, "User-Agent": "tests"}
        payload = None
        if body is not None:
            payload, headers["Content-Type"] = json.dumps(body), content_type
        response, text = self._send(method, path, payload, headers)
        while response.status == http.HTTPStatus.TOO_MANY_REQUESTS:
            # A kind that was defined a moment ago: any client of Kubernetes tries again.
            time.sleep(RETRY_SECONDS)
            response, text = self._send(method, path, payload, headers)
        warnings = tuple(response.headers.get_all("Warning") or ())
        return Answer(response.status, _as_json(text), warnings)

    def _send(
        self, method: str, path: str, payload: str | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is not None:
            try:
                return self._exchange(self._connection, method, path, payload, headers)
            except (ConnectionError, ssl.SSLError, http.client.HTTPException):
                # The API server was restarted meanwhile, or has closed an idle connection.
                self._connection.close()
        self._connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=60)
        return self._exchange(self._connection, method, path, payload, headers)

    @staticmethod
    def _exchange(
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        payload: str | None,
        headers: Mapping[str, str],
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request(method, path, payload, dict(headers))
        response = connection.getresponse()
        return response, response.read()


def _as_json(text: bytes) -> Json:
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        value = text.decode(errors="replace")
    return value if isinstance(value, dict) else {"text": value}
