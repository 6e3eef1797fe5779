"""Real KubeVirt without its operator: the definitions, virt-api and virt-controller.

Other packages simulate the node agent and the guests. As in Harvester, KubeVirt is installed in harvester-system.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.kubernetes import certificates, controlplane
from lab.kubernetes.client import Client
from lab.programs import binaries, processes
from lab.rundir import RunDir

Json = dict[str, Any]

BINARIES = ("virt-api", "virt-controller")
# Objects that KubeVirt's operator would install, written by `make kubevirt-manifests` (tools/kubevirt_manifests.py).
MANIFESTS = Path(__file__).with_name("kubevirt_manifests.json")
NAMESPACE = "harvester-system"
IMAGES = "docker.io/kubevirt"
VERSION = binaries.pinned_version(binaries.CLUSTER, "kubevirt.io/kubevirt")
POLL_SECONDS = 0.1

CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOK_PATH = "/apis/admissionregistration.k8s.io/v1"
API_SERVICE_PATH = "/apis/apiregistration.k8s.io/v1/apiservices"
CR_PATH = f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/kubevirts"

# Large schemas take seconds in the API server. These kinds exist only because the components watch them, and
# nothing in a lab writes them. Of the other kinds, only the stored version is in use.
UNCHECKED_KINDS = {
    "VirtualMachineInstancePreset",
    "VirtualMachineInstanceReplicaSet",
    "VirtualMachinePool",
    "VirtualMachineSnapshotContent",
}
# Kinds that the lab itself stores or reads. The other kinds are needed only if KubeVirt runs.
STORED_KINDS = {"KubeVirt", "VirtualMachine", "VirtualMachineInstance"}
UNCHECKED = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}

# Harvester's defaults; VMs with devices require the feature gate HostDevices.
CONFIGURATION = {
    "additionalGuestMemoryOverheadRatio": "1.5",
    "developerConfiguration": {
        "featureGates": [
            "LiveMigration",
            "HotplugVolumes",
            "HostDevices",
            "GPU",
            "CPUManager",
            "VMPersistentState",
            "ExpandDisks",
        ]
    },
}
# Without a phase the components ignore the object, and without an architecture they refuse VMs.
STATUS = {
    "phase": "Deployed",
    "defaultArchitecture": "amd64",
    "observedKubeVirtVersion": VERSION,
    "operatorVersion": VERSION,
    "targetKubeVirtVersion": VERSION,
}


def install_crds(run: RunDir, *, runs: bool, others: Sequence[Json] = ()) -> None:
    """Install KubeVirt's definitions, which VMs require, together with `others`, and wait until all are served.

    If KubeVirt does not run, the kinds of its components are left out, because each kind costs the API server time.
    """
    asyncio.run(_install(run, runs, others))


def create_cr(run: RunDir) -> None:
    """Create the KubeVirt object.

    The call takes time, because the API server delays the first object of a new kind by two seconds.
    """
    asyncio.run(_create_cr(run))


def start_early(run: RunDir, programs: Mapping[str, Path]) -> None:
    """Start virt-api early, because its startup takes seconds before it needs the API server."""
    ports = dict(zip(BINARIES, controlplane.free_ports(len(BINARIES)), strict=True))
    with run.editing() as state:
        state["ports"].update(ports)
        state["binaries"].update({name: str(programs[name]) for name in BINARIES})
    certificates.server(run, "virt-api", [f"virt-api.{NAMESPACE}.svc"])
    certificates.server(run, "virt-controller")
    _spawn(run, "virt-api")


def start(run: RunDir, programs: Mapping[str, Path]) -> None:
    """Start virt-api, unless it runs, and virt-controller. Call `install_crds` and `create_cr` first."""
    if not processes.is_running(run, "virt-api"):
        start_early(run, programs)
    asyncio.run(_create_prerequisites(run))
    _spawn(run, "virt-controller")


def restart_ended(run: RunDir) -> None:
    """Restart the components that have exited, as a kubelet would."""
    for name in BINARIES:
        if not processes.is_running(run, name):
            _spawn(run, name)


def wait_ready(run: RunDir, timeout: float = controlplane.START_TIMEOUT) -> None:
    """Wait until virt-api admits VMs and virt-controller runs them."""
    try:
        asyncio.run(asyncio.wait_for(_become_ready(run), timeout))
    except TimeoutError:
        logs = f"{run.log('virt-api')} and {run.log('virt-controller')}"
        raise LabError(f"KubeVirt did not become ready within {timeout:.0f} s.", hint=f"See {logs}.") from None


def _flags(run: RunDir, name: str) -> Json:
    serving = certificates.pair(run, name)
    common = {"kubeconfig": run.kubeconfig(name), "listen": "127.0.0.1", "port": run.read()["ports"][name]}
    if name == "virt-api":
        return common | {
            "subresources-only": True,
            "tls-cert-file": serving.cert,
            "tls-key-file": serving.key,
            "handler-cert-file": serving.cert,
            "handler-key-file": serving.key,
        }
    return common | {
        "launcher-image": f"{IMAGES}/virt-launcher:{VERSION}",
        "exporter-image": f"{IMAGES}/virt-exportserver:{VERSION}",
        "prom-cert-file": serving.cert,
        "prom-key-file": serving.key,
        # virt-controller exits if it cannot renew its lease, for example during an outage of the API server.
        "leader-elect-lease-duration": "20m",
        "leader-elect-renew-deadline": "15m",
    }


def _spawn(run: RunDir, name: str) -> None:
    scratch = run.path / "tmp"
    scratch.mkdir(exist_ok=True)
    processes.spawn(
        run,
        name,
        [run.read()["binaries"][name], *controlplane.as_arguments(_flags(run, name))],
        env={**controlplane.FAST_START, "KUBEVIRT_NAMESPACE": NAMESPACE, "TMPDIR": str(scratch)},
        # virt-api sleeps for five seconds before it exits, for the sake of load balancers.
        grace=0.2,
    )


async def _install(run: RunDir, runs: bool, others: Sequence[Json]) -> None:
    crds = [crd for crd in manifests()["crds"] if runs or crd["spec"]["names"]["kind"] in STORED_KINDS]
    async with _client(run) as client:
        await asyncio.gather(
            _create_namespace(client),
            *(client.create_if_absent(CRD_PATH, crd) for crd in (*others, *crds)),
        )
        await _until_served(client, [*others, *crds])


async def _create_prerequisites(run: RunDir) -> None:
    ca = certificates.authority(run).cert.read_text()
    core = f"/api/v1/namespaces/{NAMESPACE}"
    async with _client(run) as client:
        await asyncio.gather(
            client.create_if_absent(
                f"{core}/configmaps", {"metadata": {"name": "kubevirt-ca"}, "data": {"ca-bundle": ca}}
            ),
            # The aggregation layer finds virt-api through a service, and services cannot have endpoints on loopback.
            client.create_if_absent(
                f"{core}/services",
                {"metadata": {"name": "virt-api"}, "spec": {"type": "ExternalName", "externalName": "localhost"}},
            ),
        )


async def _become_ready(run: RunDir) -> None:
    async with _client(run) as client:
        await _until_healthy(run, "virt-api")
        await _register_virt_api(run, client)
        await _until_healthy(run, "virt-controller")
        await _until_leading(client)


async def _register_virt_api(run: RunDir, client: Client) -> None:
    registered = manifests()
    port = run.read()["ports"]["virt-api"]
    bundle = base64.b64encode(certificates.authority(run).cert.read_bytes()).decode()
    registrations: list[Awaitable[None]] = []
    for key, resource in (
        ("mutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("validatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ):
        configuration = registered[key]
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
        registrations.append(client.create_if_absent(f"{WEBHOOK_PATH}/{resource}", configuration))
    for service in registered["apiServices"]:
        service["spec"]["service"]["port"] = port
        service["spec"]["caBundle"] = bundle
        registrations.append(client.create_if_absent(API_SERVICE_PATH, service))
    await asyncio.gather(*registrations)
    for service in registered["apiServices"]:
        await _until_condition(client, f"{API_SERVICE_PATH}/{service['metadata']['name']}", "Available")


async def _create_namespace(client: Client) -> None:
    await client.create_if_absent("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})


async def _create_cr(run: RunDir) -> None:
    cr = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt"},
        "spec": {"configuration": CONFIGURATION},
    }
    async with _client(run) as client:
        await client.create_if_absent(CR_PATH, cr)
        await client.patch(f"{CR_PATH}/kubevirt/status", {"status": STATUS})


def slim(crd: Json) -> Json:
    """Return a definition without descriptions and without schemas that a lab does not need."""
    slimmed: Json = _without_descriptions(crd) | {"status": {}}
    for version in slimmed["spec"]["versions"]:
        if slimmed["spec"]["names"]["kind"] in UNCHECKED_KINDS or not version["storage"]:
            version["schema"] = UNCHECKED
    return slimmed


def _without_descriptions(value: Any) -> Any:
    """Remove descriptions, but keep a property of that name, whose value is a schema and not a text."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if key != "description" or not isinstance(one, str)}
        return {key: _without_descriptions(one) for key, one in kept.items()}
    return [_without_descriptions(item) for item in value] if isinstance(value, list) else value


async def _until_served(client: Client, crds: list[Json]) -> None:
    """Wait until discovery, which is much smaller than the definitions themselves, lists all definitions."""
    wanted: dict[str, set[str]] = {}
    for crd in crds:
        for version in crd["spec"]["versions"]:
            path = f"/apis/{crd['spec']['group']}/{version['name']}"
            wanted.setdefault(path, set()).add(crd["spec"]["names"]["plural"])
    for path, plurals in wanted.items():
        while True:
            answer = await client.get_or_none(path) or {}
            if plurals <= {resource["name"] for resource in answer.get("resources", [])}:
                break
            await asyncio.sleep(POLL_SECONDS)


async def _until_condition(client: Client, path: str, condition: str) -> None:
    while True:
        status = (await client.get(path)).get("status", {})
        if any(entry["type"] == condition and entry["status"] == "True" for entry in status.get("conditions") or []):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _until_healthy(run: RunDir, name: str) -> None:
    await asyncio.to_thread(controlplane.wait_healthy, run, name)


async def _until_leading(client: Client) -> None:
    """Wait until virt-controller holds the lease, because only the leader runs the controllers."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/virt-controller"
    while True:
        lease = await client.get_or_none(path)
        if lease and lease["spec"].get("holderIdentity"):
            return
        await asyncio.sleep(POLL_SECONDS)


def manifests() -> Json:
    """Return the objects that KubeVirt's operator installs, for the version that the lab runs."""
    manifests: Json = json.loads(MANIFESTS.read_text())
    if manifests["version"] != VERSION:
        raise LabError(
            f"{MANIFESTS.name} is for KubeVirt {manifests['version']}, but the lab runs {VERSION}.",
            hint="Regenerate it: make kubevirt-manifests",
        )
    return manifests


def _client(run: RunDir) -> Client:
    return Client.from_kubeconfig(run.kubeconfig("harvester"), user_agent="lab")
