"""A lab's Rancher as tests use it: through its address and with a token, as everybody else does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from lab.lifecycle.control import Control
from tests.integration import api as paths, history
from tests.integration.api import Answer, Api, Json
from tests.integration.history import Change
from tests.integration.labs import Lab

T = TypeVar("T")
NAMESPACE = "fleet-default"
CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{NAMESPACE}/clusters"
CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{NAMESPACE}/harvesterconfigs"
_CAPI = f"/apis/cluster.x-k8s.io/v1beta1/namespaces/{NAMESPACE}"
MACHINES, MACHINE_SETS, DEPLOYMENTS = (f"{_CAPI}/{kind}" for kind in ("machines", "machinesets", "machinedeployments"))
_MANAGEMENT = "/apis/management.cattle.io/v3"
NODE_DRIVER, TOKENS, SETTINGS = (f"{_MANAGEMENT}/{kind}" for kind in ("nodedrivers/harvester", "tokens", "settings"))
DRIVER_URL = "https://releases.rancher.com/harvester-node-driver/{}/docker-machine-driver-harvester-amd64.tar.gz"
RELEASED, UNRELEASED = "v0.7.2", "master"
# As a Rancher is installed.
SETTING_VALUES = {"server-version": "v2.11.3", "kubeconfig-default-token-ttl-minutes": "43200"}
FOUR_Q, EIGHT_Q = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-8Q"
# Guest control planes start in real time.
PATIENCE_SECONDS = 300.0
USER = "u-lab-admin"
CONTROL_ROLES = {"etcdRole": True, "controlPlaneRole": True, "workerRole": True}


class Cluster:
    """One API server behind Rancher's address."""

    def __init__(self, api: Api, identity: str) -> None:
        self.api = api
        self._prefix = f"/k8s/clusters/{identity}"

    def get(self, path: str, **query: Any) -> Answer:
        return self.api.get(self._prefix + path, **query)

    def read(self, path: str) -> Json:
        answer = self.get(path)
        assert answer.status == 200, answer
        return answer.body

    def find(self, path: str) -> Json | None:
        answer = self.get(path)
        assert answer.status in (200, 404), answer
        return answer.body if answer.status == 200 else None

    def items(self, path: str) -> list[Json]:
        return list(self.read(path)["items"])

    def make(self, path: str, body: Json) -> Json:
        answer = self.api.post(self._prefix + path, body)
        assert answer.status == 201, answer
        return answer.body

    def write(self, path: str, patch: Json) -> Json:
        answer = self.api.patch(self._prefix + path, patch)
        assert answer.status == 200, answer
        return answer.body

    def delete(self, path: str) -> None:
        answer = self.api.delete(self._prefix + path)
        assert answer.status in (200, 202, 404), answer

    def changes(self, path: str, since: str) -> list[Change]:
        """What happened to the objects of a collection since a revision of it."""
        return history.changes(self.api, since, [self._prefix + path])

    def text(self, path: str) -> str:
        answer = self.api.request("GET", self._prefix + path, accept="*/*")
        assert answer.status == 200, answer
        return str(answer.body.get("text", ""))


class Rancher:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.env = lab.env
        self._folder = folder
        self.api = self.api_with(self.env["RANCHER_TOKEN_KEY"])
        self.local = Cluster(self.api, "local")
        self._mark = 0
        self.harvester = Cluster(self.api, self.env["LAB_RANCHER_HARVESTER_ID"])

    def api_with(self, token: str) -> Api:
        config = {
            "clusters": [
                {
                    "cluster": {
                        "server": self.env["RANCHER_URL"],
                        "certificate-authority": self.env["LAB_RANCHER_CA_FILE"],
                    }
                }
            ],
            "users": [{"user": {"token": token}}],
        }
        path = self._folder / f"rancher-{abs(hash(token))}.yaml"
        path.write_text(yaml.safe_dump(config))
        return Api(path)

    def key_of(self, user: str) -> str:
        """An API key of somebody who may do what clusters let them."""
        return f"token-{user}:{self.env['RANCHER_TOKEN_KEY'].partition(':')[2]}"

    # What most tests begin with
    def make_config(self, name: str, *requests: str, **fields: Any) -> None:
        """A machine config as Rancher's pages write it."""
        info = {"vGPURequests": [{"name": "provisioned", "deviceName": resource} for resource in requests]}
        body = {
            "apiVersion": "rke-machine-config.cattle.io/v1",
            "kind": "HarvesterConfig",
            "metadata": {"name": name},
            "vmNamespace": "default",
            "cpuCount": "4",
            "memorySize": "8",
            "diskInfo": json.dumps(
                {"disks": [{"imageName": self.env["LAB_RANCHER_IMAGE"], "bootOrder": 1, "size": 40}]}
            ),
            "networkInfo": json.dumps({"interfaces": [{"networkName": self.env["LAB_RANCHER_NETWORK"]}]}),
            "sshUser": "ubuntu",
            **({"vgpuInfo": json.dumps(info)} if requests else {}),
            **fields,
        }
        self.local.make(CONFIGS, body)

    def make_cluster(self, name: str, *pools: Json, credential: str | None = None) -> Json:
        spec = {
            "cloudCredentialSecretName": credential or self.env["LAB_RANCHER_CREDENTIAL"],
            "kubernetesVersion": "v1.34.1+rke2r1",
            "rkeConfig": {"machinePools": list(pools)},
        }
        body = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
        return self.local.make(CLUSTERS, body)

    @staticmethod
    def pool(name: str, quantity: int, config: str, **more: Any) -> Json:
        reference = {"kind": "HarvesterConfig", "name": config}
        return {"name": name, "quantity": quantity, "workerRole": True, "machineConfigRef": reference, **more}

    def change_pool(self, cluster: str, name: str, **changes: Any) -> None:
        pools = self.local.read(f"{CLUSTERS}/{cluster}")["spec"]["rkeConfig"]["machinePools"]
        changed = [{**pool, **changes} if pool["name"] == name else pool for pool in pools]
        self.local.write(f"{CLUSTERS}/{cluster}", {"spec": {"rkeConfig": {"machinePools": changed}}})

    def use_driver(self, name: str) -> None:
        """Rancher downloads its machine driver from the URL in this object."""
        self.local.write(NODE_DRIVER, {"spec": {"url": DRIVER_URL.format(name)}})

    def set(self, setting: str, value: str) -> None:
        self.local.write(f"{SETTINGS}/{setting}", {"value": value})

    def clean(self) -> None:
        """No clusters, configs or machines, and Rancher as it was installed."""
        self.use_driver(RELEASED)
        for setting, value in SETTING_VALUES.items():
            self.set(setting, value)
        for path in (CLUSTERS, CONFIGS):
            for thing in self.local.items(path):
                self.local.delete(f"{path}/{thing['metadata']['name']}")
        self.until(lambda: not self.local.items(CLUSTERS) and not self.vms())

    # What there is
    def machines(self, pool: str | None = None) -> list[Json]:
        found = self.local.items(MACHINES)
        return [
            one for one in found if pool in (None, one["metadata"]["labels"]["rke.cattle.io/rke-machine-pool-name"])
        ]

    def running(self, pool: str | None = None) -> list[str]:
        return sorted(
            one["metadata"]["name"]
            for one in self.machines(pool)
            if (one.get("status") or {}).get("phase") == "Running"
        )

    def vms(self) -> list[Json]:
        return self.lab.items(paths.VMS)

    def guest(self, cluster: str) -> Cluster:
        return Cluster(self.api, self.local.read(f"{CLUSTERS}/{cluster}")["status"]["clusterName"])

    def ready(self, cluster: str) -> Cluster:
        """The guest cluster, once all its machines are nodes."""

        def settled() -> bool:
            status = self.local.read(f"{CLUSTERS}/{cluster}").get("status") or {}
            return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or [])

        self.until(settled)
        return self.guest(cluster)

    # Time
    @contextmanager
    def real_time(self) -> Iterator[None]:
        """Rancher gives up on a machine after ten minutes, which are long then: what waits for a VM stays as it is."""
        control = Control(self.lab.run)
        control.speed(1.0)
        try:
            yield
        finally:
            control.speed(self.lab.run.read()["settings"]["speed"])

    def short_of_vgpus(self, pool: str) -> str:
        """The VM of the pool's machine that no node takes, once the scheduler has said so and why."""

        def found() -> str:
            names = {one["spec"]["infrastructureRef"]["name"] for one in self.machines(pool)}
            for pod in self.lab.items("/api/v1/pods", labelSelector="kubevirt.io=virt-launcher"):
                vm = str(pod["metadata"]["labels"]["vm.kubevirt.io/name"])
                if vm in names and "Insufficient nvidia.com/" in json.dumps(pod["status"].get("conditions")):
                    return vm
            return ""

        return self.until(found)

    # Who wrote what
    def mark(self) -> None:
        self._mark = Path(self.env["LAB_RANCHER_AUDIT_LOG"]).stat().st_size

    def writes(self) -> list[str]:
        """What people have written since the mark, as verb and kind."""
        return [f"{verb} {resource}" for verb, resource in self.requests(USER) if verb not in ("get", "list", "watch")]

    def requests(self, user: str, *, granted_only: bool = False) -> list[tuple[str, str]]:
        """What a user has asked of Rancher's own cluster since the mark, as verb and kind, without dry runs."""
        with Path(self.env["LAB_RANCHER_AUDIT_LOG"]).open("rb") as log:
            log.seek(self._mark)
            events = [json.loads(line) for line in log if line.endswith(b"\n")]
        return [
            (event["verb"], event["objectRef"]["resource"])
            for event in events
            if event["user"]["username"] == user
            and "objectRef" in event
            and "dryRun" not in event["requestURI"]
            and not (granted_only and event["responseStatus"]["code"] == 403)
            # What was refused because Rancher had written in the meantime is asked for again.
            and event["responseStatus"]["code"] != 409
        ]

    def until(self, condition: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            assert time.monotonic() < deadline, "did not happen"
            time.sleep(0.1)
        return found
