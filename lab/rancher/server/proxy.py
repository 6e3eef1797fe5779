"""Rancher's address: one TLS port with bearer tokens, in front of the API servers of all registered clusters."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable

import aiohttp
import yaml
from aiohttp import web

from lab.kubernetes import certificates, controlplane, kubeconfig
from lab.kubernetes.client import Client
from lab.rancher import resources as r
from lab.rancher.driver.operations import random_part
from lab.rancher.provisioning.harvester_side import CLOUD_PROVIDER_ROLE
from lab.rancher.server import tokens
from lab.rancher.world import World
from lab.rundir import RunDir

LOCAL = "local"
USER = "u-lab-admin"
PROXY_KUBECONFIG = "rancher-proxy"
HOP_BY_HOP = {"host", "authorization", "connection", "keep-alive", "transfer-encoding", "upgrade", "content-length"}
ANSWER_DROPS = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding"}

# Returns the run directory of a cluster, None if the cluster is not up; raises KeyError for an unknown cluster.
Find = Callable[[str], RunDir | None]


class Proxy:
    def __init__(self, run: RunDir, token: str, find: Find, world: World) -> None:
        self._run = run
        self._world = world
        self._token = token
        self._find = find
        # Keys are cluster and user.
        self._sessions: dict[tuple[str, str], aiohttp.ClientSession] = {}
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def start(self, port: int) -> None:
        application = web.Application(client_max_size=2**26)
        application.router.add_post("/k8s/clusters/{id}/v1/harvester/kubeconfig", self._cloud_provider)
        application.router.add_route("*", "/k8s/clusters/{id}/{path:.*}", self._forward)
        application.router.add_post("/v3/clusters/{id}", self._action)
        application.router.add_get("/ping", self._ping)
        # Open watches would delay the shutdown.
        self._runner = web.AppRunner(application, shutdown_timeout=0.5)
        await self._runner.setup()
        serving = certificates.server(self._run, "rancher")
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(str(serving.cert), str(serving.key))
        self.port = port or controlplane.free_ports(1)[0]
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls).start()

    async def stop(self) -> None:
        for session in self._sessions.values():
            await session.close()
        await self._runner.cleanup()

    async def forget(self, identity: str) -> None:
        for key in [one for one in self._sessions if one[0] == identity]:
            await self._sessions.pop(key).close()

    # Handlers
    async def _ping(self, request: web.Request) -> web.Response:
        return web.Response(text="pong")

    def _user(self, request: web.Request) -> str | None:
        """Return the user of a token. Keys of other users have another name before the administrator's secret.

        Tokens in kubeconfigs are Token objects, and may have expired.
        """
        kind, _space, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or not token:
            return None
        if token == self._token:
            return USER
        name, _colon, secret = token.removeprefix("token-").partition(":")
        if not name or secret != self._secret:
            return None
        if not name.startswith(tokens.KUBECONFIG_PREFIX):
            return name
        found = self._world[r.TOKEN].get(name)
        return None if found is None or tokens.is_expired(found, tokens.utc_now()) else str(found["userId"])

    @property
    def _secret(self) -> str:
        return self._token.partition(":")[2]

    def _refusal(self, request: web.Request) -> web.Response | None:
        if self._user(request) is not None:
            return None
        return _error(401, "Unauthorized", "must authenticate")

    def _cluster(self, identity: str) -> RunDir | web.Response:
        try:
            found = self._find(identity)
        except KeyError:
            return _error(404, "NotFound", f'clusters.management.cattle.io "{identity}" not found')
        return found or _error(503, "ClusterUnavailable", f"cluster {identity} not available")

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        refused = self._refusal(request)
        if refused is not None:
            return refused
        identity = request.match_info["id"]
        cluster = self._cluster(identity)
        if isinstance(cluster, web.Response):
            return cluster
        url = cluster.read()["server"] + "/" + request.match_info["path"]
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        body = await request.read() if request.can_read_body else None
        async with self._session(identity, cluster, self._user(request) or "").request(
            request.method,
            url,
            params=request.query,
            headers=headers,
            data=body,
            timeout=aiohttp.ClientTimeout(total=None),
            allow_redirects=False,
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in ANSWER_DROPS}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    def _session(self, identity: str, cluster: RunDir, user: str) -> aiohttp.ClientSession:
        """Return a session of the token's user; the administrator has all permissions, others those of the cluster."""
        key = (identity, user)
        if key not in self._sessions:
            name = PROXY_KUBECONFIG if user == USER else f"{PROXY_KUBECONFIG}-{user}"
            kubeconfig.issue(cluster, name, user, (kubeconfig.MASTERS,) if user == USER else ())
            tls = ssl.create_default_context(cafile=str(certificates.authority(cluster).cert))
            pair = certificates.pair(cluster, f"client-{name}")
            tls.load_cert_chain(str(pair.cert), str(pair.key))
            self._sessions[key] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, limit=0))
        return self._sessions[key]

    async def _action(self, request: web.Request) -> web.Response:
        refused = self._refusal(request)
        if refused is not None:
            return refused
        if request.query.get("action") != "generateKubeconfig":
            return _error(404, "NotFound", "not found")
        identity = request.match_info["id"]
        try:
            self._find(identity)
        except KeyError:
            return _error(404, "NotFound", f'clusters.management.cattle.io "{identity}" not found')
        setting = self._world[r.SETTING].get(tokens.TTL_SETTING) or {}
        minutes = int(setting.get("value") or tokens.DEFAULT_TTL_MINUTES)
        name = f"{tokens.KUBECONFIG_PREFIX}{self._user(request)}-{random_part()}"
        await self._world[r.TOKEN].create(tokens.body(name, self._user(request) or "", minutes, tokens.utc_now()))
        config = self.kubeconfig(identity, f"{name}:{self._secret}")
        return web.json_response(
            {"type": "generateKubeConfigOutput", "config": yaml.safe_dump(config, sort_keys=False)}
        )

    def kubeconfig(self, identity: str, token: str = "") -> dict[str, object]:
        """Return a kubeconfig as downloaded from Rancher, with the proxy's address and a token."""
        authority = certificates.authority(self._run).cert.read_bytes()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": identity,
                    "cluster": {
                        "server": f"{self.url}/k8s/clusters/{identity}",
                        "certificate-authority-data": _base64(authority),
                    },
                }
            ],
            "users": [{"name": identity, "user": {"token": token or self._token}}],
            "contexts": [{"name": identity, "context": {"user": identity, "cluster": identity}}],
            "current-context": identity,
        }

    async def _cloud_provider(self, request: web.Request) -> web.Response:
        """Return a kubeconfig of Harvester for a service account, and create the account (harvester.md 14.8)."""
        refused = self._refusal(request)
        if refused is not None:
            return refused
        cluster = self._cluster(request.match_info["id"])
        if isinstance(cluster, web.Response):
            return cluster
        asked = await request.json()
        namespace, name = asked.get("namespace") or "default", asked.get("serviceAccountName") or ""
        if asked.get("clusterRoleName") != CLOUD_PROVIDER_ROLE or not name:
            return _error(422, "Invalid", "clusterRoleName and serviceAccountName are required")
        async with Client.from_kubeconfig(cluster.kubeconfig("harvester")) as client:
            accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
            await client.create_if_absent(accounts, {"metadata": {"name": name}})
            binding = {
                "metadata": {"name": f"{namespace}-{name}"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": CLOUD_PROVIDER_ROLE,
                },
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            }
            await client.create_if_absent("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
            token = await client.create(f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 86400}})
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "default",
                    "cluster": {
                        "server": cluster.read()["server"],
                        "certificate-authority-data": _base64(certificates.authority(cluster).cert.read_bytes()),
                    },
                }
            ],
            "users": [{"name": "default", "user": {"token": token["status"]["token"]}}],
            "contexts": [
                {"name": "default", "context": {"cluster": "default", "namespace": namespace, "user": "default"}}
            ],
            "current-context": "default",
        }
        return web.json_response(text=json.dumps(yaml.safe_dump(config, sort_keys=False)))


def _base64(data: bytes) -> str:

    return base64.b64encode(data).decode()


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"type": "error", "status": str(status), "code": code, "message": message}, status=status)
