"""Rancher as a component of the lab: its own API server, its controllers and its address."""

from __future__ import annotations

import asyncio
import base64
import secrets
from pathlib import Path

import yaml

from lab.clock import Clock
from lab.harvester import wipe
from lab.harvester.cluster import Cluster as Harvester
from lab.kubernetes import controlplane, custom_resources
from lab.kubernetes.client import Client, Json
from lab.kubernetes.resource import Resource
from lab.kubernetes.workqueue import WorkQueue
from lab.rancher import definitions, resources as r
from lab.rancher.driver import driver_flags
from lab.rancher.driver.driver_flags import Driver
from lab.rancher.guest import clusters
from lab.rancher.guest.clusters import Guests
from lab.rancher.provisioning import harvester_side
from lab.rancher.provisioning.clusters import Clusters, credential_of
from lab.rancher.provisioning.machines import UNAUTHORIZED, Machines
from lab.rancher.server import tokens
from lab.rancher.server.proxy import LOCAL, Proxy
from lab.rancher.world import World
from lab.rundir import RunDir, write_atomically

HARVESTER_ID = "c-m-harvest1"
CREDENTIAL = "cc-lab"
WATCHED = (
    r.CLUSTER,
    r.MANAGEMENT_CLUSTER,
    r.CONFIG,
    r.DEPLOYMENT,
    r.MACHINE_SET,
    r.MACHINE,
    r.TEMPLATE,
    r.INFRA_MACHINE,
    r.SECRET,
    r.NODE_DRIVER,
    r.TOKEN,
    r.SETTING,
)
# Owners first, because they would create their dependents again.
WIPED = (
    r.CLUSTER,
    r.DEPLOYMENT,
    r.MACHINE_SET,
    r.MACHINE,
    r.INFRA_MACHINE,
    r.TEMPLATE,
    r.CONFIG,
    r.MANAGEMENT_CLUSTER,
    r.NODE_DRIVER,
    r.TOKEN,
    r.SETTING,
)


def folder(run: RunDir) -> RunDir:
    """Return the run directory of Rancher's own cluster, which is inside that of the lab."""
    return RunDir(run.path / "rancher")


def start_api(run: RunDir, programs: dict[str, Path]) -> None:
    """Start the API server of Rancher's own cluster, which needs no scheduler and no controllers."""
    own = folder(run)
    controlplane.start_api(own, programs)
    (port,) = controlplane.free_ports(1)
    run.update(rancher={"port": port})
    write_atomically(own.path / "token", f"token-lab:{secrets.token_hex(27)}")


def environment(run: RunDir) -> dict[str, str]:
    """Return the environment variables for users of the lab."""
    recorded = run.read().get("rancher")
    if not recorded:
        return {}
    own = folder(run)
    return {
        "RANCHER_URL": f"https://127.0.0.1:{recorded['port']}",
        "RANCHER_TOKEN_KEY": (own.path / "token").read_text(),
        "LAB_RANCHER_CA_FILE": str(own.pki / "ca.crt"),
        "LAB_RANCHER_KUBECONFIG": str(own.path / "local.yaml"),
        "LAB_RANCHER_AUDIT_LOG": str(own.audit_log),
        "LAB_RANCHER_HARVESTER_ID": HARVESTER_ID,
        "LAB_RANCHER_CREDENTIAL": f"{r.CREDENTIALS_NAMESPACE}:{CREDENTIAL}",
        "LAB_RANCHER_IMAGE": harvester_side.IMAGE,
        "LAB_RANCHER_IMAGE_WITH_DRIVER": harvester_side.IMAGE_WITH_DRIVER,
        "LAB_RANCHER_NETWORK": harvester_side.VM_NETWORK,
    }


def forget(run: RunDir) -> None:
    """Reset Rancher to an empty state, while webhooks and controllers are stopped."""
    clusters.forget_all(run)
    asyncio.run(_wipe(run))


async def _wipe(run: RunDir) -> None:
    async with Client.from_kubeconfig(folder(run).kubeconfig("harvester")) as client:
        for resource in WIPED:
            await wipe.empty(client, resource)
        for secret in (await client.get(r.SECRET.collection_in(r.CREDENTIALS_NAMESPACE)))["items"]:
            await client.delete(r.SECRET.path(secret["metadata"]["name"], r.CREDENTIALS_NAMESPACE))


class Rancher:
    def __init__(self, run: RunDir, clock: Clock, harvester: Harvester, client: Client) -> None:
        self._run = run
        self._harvester = harvester
        self.world = World(clock, client)
        self.proxy = Proxy(folder(run), (folder(run).path / "token").read_text(), self._find, self.world)
        self._guests = Guests(run, self.world, harvester_side.has_driver)
        self._guests.on_stop = self.proxy.forget
        self._machines = Machines(self.world, harvester, self._guests, self._driver, self._credential_trouble)
        self._guests.on_change = self._machines.look_again
        self._clusters = Clusters(self.world, self._guests)

    async def start(self) -> None:
        await self.proxy.start(self._run.read()["rancher"]["port"])
        await asyncio.gather(
            custom_resources.install(self.world.client, definitions.rancher_definitions()),
            harvester_side.seed(self._harvester),
            *(
                self.world.client.create_if_absent(r.NAMESPACE.collection, {"metadata": {"name": name}})
                for name in (r.CLUSTERS_NAMESPACE, r.CREDENTIALS_NAMESPACE)
            ),
        )
        self.world.watch(*WATCHED)
        await self.world.watched()
        await self._seed()
        self._endless = WorkQueue(self.world.clock, "credential tokens", self._keep_valid, workers=1)
        self.world[r.SECRET].listen(self._credential_noticed)
        self._machines.run()
        self._clusters.run()

    async def stop(self) -> None:
        await self.proxy.stop()
        await self._guests.close()

    async def sync(self) -> None:
        await self.world.sync()
        await self._guests.sync()

    async def _create_if_absent(self, resource: Resource, body: Json) -> None:
        named = {"apiVersion": resource.api_version, "kind": resource.kind}
        await self.world.client.create_if_absent(resource.collection, named | body)

    async def _seed(self) -> None:
        url = driver_flags.URL.format(name=driver_flags.RELEASED.name)
        driver = {"active": True, "builtin": True, "displayName": "harvester", "url": url}
        await self._create_if_absent(r.NODE_DRIVER, {"metadata": {"name": "harvester"}, "spec": driver})
        for name, value in (
            (tokens.VERSION_SETTING, tokens.DEFAULT_VERSION),
            (tokens.TTL_SETTING, tokens.DEFAULT_TTL_MINUTES),
        ):
            setting = {"metadata": {"name": name}, "value": value, "default": value}
            await self._create_if_absent(r.SETTING, setting)
        for name, provider in ((LOCAL, "rke2"), (HARVESTER_ID, "harvester")):
            body = {
                "apiVersion": r.MANAGEMENT_CLUSTER.api_version,
                "kind": r.MANAGEMENT_CLUSTER.kind,
                "metadata": {"name": name, "labels": {"provider.cattle.io": provider}},
                "spec": {"displayName": "harvester" if name == HARVESTER_ID else name, "imported": name != LOCAL},
            }
            await self.world.client.create_if_absent(r.MANAGEMENT_CLUSTER.collection, body)
            told = {"provider": provider, "conditions": [{"type": "Ready", "status": "True"}]}
            await self.world.client.patch(f"{r.MANAGEMENT_CLUSTER.path(name)}/status", {"status": told})
        content = yaml.safe_dump(self.proxy.kubeconfig(HARVESTER_ID), sort_keys=False)
        credential = {
            "metadata": {"name": CREDENTIAL, "annotations": {"field.cattle.io/name": "lab"}},
            "stringData": {
                "harvestercredentialConfig-clusterId": HARVESTER_ID,
                "harvestercredentialConfig-clusterType": "imported",
                "harvestercredentialConfig-kubeconfigContent": content,
            },
        }
        await self.world.client.create_if_absent(r.SECRET.collection_in(r.CREDENTIALS_NAMESPACE), credential)
        local = yaml.safe_dump(self.proxy.kubeconfig(LOCAL), sort_keys=False)
        write_atomically(folder(self._run).path / "local.yaml", local)

    def _find(self, identity: str) -> RunDir | None:
        if identity == LOCAL:
            return folder(self._run)
        if identity == HARVESTER_ID:
            return self._run
        if self.world[r.MANAGEMENT_CLUSTER].get(identity) is None:
            raise KeyError(identity)
        guest = self._guests.by_id.get(identity)
        return guest.run if guest else None

    def _driver(self) -> Driver:
        """Return the machine driver, which Rancher downloads from the URL of the NodeDriver."""
        found = self.world[r.NODE_DRIVER].get("harvester") or {}
        return driver_flags.at(str((found.get("spec") or {}).get("url") or ""))

    def _credential_trouble(self, cluster: Json, pool: str) -> str:
        """Return why a pool's credential no longer works, or an empty string (harvester.md 14.8, rancher#44912)."""
        secret, trouble = credential_of(cluster, pool, self.world[r.SECRET].objects)
        if secret is None:
            return trouble
        identity = base64.b64decode((secret.get("data") or {}).get("harvestercredentialConfig-clusterId", "")).decode()
        if identity != HARVESTER_ID:
            return f'clusters.management.cattle.io "{identity}" not found'
        return "" if self._is_valid(tokens.name_in(secret)) else UNAUTHORIZED

    def _is_valid(self, token: str) -> bool:
        """Return whether a token is valid. Keys that the lab issues are not objects, and never expire."""
        found = self.world[r.TOKEN].get(token)
        return not token or (found is not None and not tokens.is_expired(found, tokens.utc_now()))

    def _credential_noticed(self, old: Json | None, new: Json | None) -> None:
        """Handle a change of a credential: from 2.12 on Rancher removes the time to live of its token."""
        setting = self.world[r.SETTING].get(tokens.VERSION_SETTING) or {}
        name = tokens.name_in(new) if new else ""
        token = self.world[r.TOKEN].get(name) if name else None
        if token and token.get("ttl") and tokens.never_expire(str(setting.get("value") or tokens.DEFAULT_VERSION)):
            self._endless.add(name)

    async def _keep_valid(self, name: str) -> None:
        """Remove the time to live of a token; its expiry stays in the object without effect (rancher#49685)."""
        token = self.world[r.TOKEN].get(name)
        if token is not None:
            await self.world[r.TOKEN].patch(token, {"ttl": 0})
