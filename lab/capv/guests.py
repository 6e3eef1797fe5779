"""The clusters that Cluster API creates: a control plane each, nodes that join it, and addons."""

from __future__ import annotations

import base64
import hashlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import yaml

from lab.capv.resources import CONTROL_PLANE_LABEL, SECRET
from lab.kubernetes.client import ApiError, Json
from lab.programs import processes
from lab.rancher.guest.cluster import KUBEADM, Guest, Member
from lab.rancher.world import World
from lab.rundir import RunDir

log = logging.getLogger(__name__)

CNI_MISSING = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
    " message:Network plugin returns error: cni plugin not initialized"
)
GPU_VENDOR = 0x10DE


class Guests:
    """Without `real`, clusters have no API server. Their machines join, and nothing runs on them."""

    def __init__(self, lab: RunDir, world: World, *, real: bool) -> None:
        self._lab = lab
        self._world = world
        self._real = real
        self._by_key: dict[str, Guest | None] = {}
        self._applied: dict[str, dict[str, str]] = {}
        self._with_network: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None

    def started(self, cluster: Json) -> bool:
        return _key(cluster) in self._by_key

    async def close(self) -> None:
        for guest in self._by_key.values():
            if guest is not None:
                await guest.stop()

    # Nodes
    async def node(self, cluster: Json, machine: Json, own: Json, *, running: bool) -> tuple[bool, str]:
        """Reconcile the node of a machine. Return whether it has joined, and why it is not ready."""
        key, name = _key(cluster), machine["metadata"]["name"]
        is_control_plane = CONTROL_PLANE_LABEL in machine["metadata"]["labels"]
        if running and is_control_plane and key not in self._by_key:
            await self._start(key)
        if key not in self._by_key:
            return False, ""
        trouble = "" if key in self._with_network else CNI_MISSING
        guest = self._by_key[key]
        if guest is None:
            return running, trouble if running else ""
        taints = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}] if is_control_plane else []
        roles = {"node-role.kubernetes.io/control-plane": ""} if is_control_plane else {}
        spec = own["spec"]
        devices = spec.get("pciDevices") or []
        member = Member(
            name=name,
            provider_id=f"vsphere://{machine['metadata']['uid']}",
            labels=roles,
            taints=taints,
            cpus=str(spec.get("numCPUs") or 2),
            memory=f"{spec.get('memoryMiB') or 4096}Mi",
            gpus=sum("vGPUProfile" in one or one.get("vendorId") == GPU_VENDOR for one in devices),
            trouble=trouble,
        )
        await guest.member(member, running=running)
        return running, trouble if running else ""

    async def remove_node(self, cluster: Json, name: str) -> None:
        guest = self._by_key.get(_key(cluster))
        if guest is not None:
            await guest.remove_node(name)

    async def _start(self, key: str) -> None:
        if not self._real:
            self._by_key[key] = None
            return
        guest = await Guest.start(
            self._folder(key), self._lab, self._world.clock, lambda _vm: False, distribution=KUBEADM
        )
        guest.operator.on_change.append(self.on_change)
        self._by_key[key] = guest

    def _folder(self, key: str) -> RunDir:
        return RunDir(self._lab.path.parent / "guests" / key.replace("/", "-"))

    async def stop(self, cluster: Json) -> None:
        key = _key(cluster)
        guest = self._by_key.pop(key, None)
        self._applied.pop(key, None)
        self._with_network.discard(key)
        if guest is not None:
            await guest.stop()
            processes.stop_all(guest.run)
            shutil.rmtree(guest.run.path, ignore_errors=True)

    # Its kubeconfig and its addons
    async def publish_kubeconfig(self, cluster: Json, owner: Json) -> None:
        name, namespace = f"{cluster['metadata']['name']}-kubeconfig", cluster["metadata"]["namespace"]
        if self._world[SECRET].get(name, namespace) is not None:
            return
        guest = self._by_key[_key(cluster)]
        content = yaml.safe_dump(_embedded(guest.run.kubeconfig("admin"))) if guest else "# There is no API server.\n"
        body = {
            "metadata": {
                "name": name,
                "labels": {"cluster.x-k8s.io/cluster-name": cluster["metadata"]["name"]},
                "ownerReferences": [owner],
            },
            "type": "cluster.x-k8s.io/secret",
            "data": {"value": base64.b64encode(content.encode()).decode()},
        }
        await self._world[SECRET].create(body, namespace)

    async def apply(self, cluster: Json, secret: Json) -> bool:
        """Apply the manifests of a Secret to the cluster once. Return whether that was done now."""
        key, name = _key(cluster), secret["metadata"]["name"]
        content = "\n---\n".join(base64.b64decode(value).decode() for value in (secret.get("data") or {}).values())
        digest = hashlib.sha256(content.encode()).hexdigest()
        if key not in self._by_key or self._applied.get(key, {}).get(name) == digest:
            return False
        documents = [one for one in yaml.safe_load_all(content) if one]
        guest = self._by_key[key]
        for document in documents if guest else ():
            assert guest is not None
            await _apply(guest, document)
        self._applied.setdefault(key, {})[name] = digest
        if any(document.get("kind") == "DaemonSet" for document in documents):
            self._with_network.add(key)
        return True


async def _apply(guest: Guest, document: Json) -> None:
    api, namespace = document["apiVersion"], document["metadata"].get("namespace")
    base = f"/apis/{api}" if "/" in api else f"/api/{api}"
    plural = f"{document['kind'].lower()}s"
    path = f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"
    try:
        await guest.world.client.create_if_absent(path, document)
    except ApiError as error:
        log.warning("addon %s: %s", document["metadata"]["name"], error)


def _embedded(path: Path) -> Json:
    """Return a kubeconfig with the content of its files."""
    config: Json = yaml.safe_load(path.read_text())
    for section, inside, keys in (
        ("clusters", "cluster", ("certificate-authority",)),
        ("users", "user", ("client-certificate", "client-key")),
    ):
        for entry in config[section]:
            for key in keys:
                file = entry[inside].pop(key, None)
                if file:
                    content = (path.parent / file).read_bytes()
                    entry[inside][f"{key}-data"] = base64.b64encode(content).decode()
    return config


def _key(cluster: Json) -> str:
    return f"{cluster['metadata']['namespace']}/{cluster['metadata']['name']}"
