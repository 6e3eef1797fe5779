"""Real Kubernetes control plane on loopback: etcd, kube-apiserver, scheduler and controller manager.

The control plane has no real nodes. Node objects are plain data; simulated kubelets patch their status.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import random
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from lab.errors import LabError
from lab.kubernetes import certificates, kubeconfig
from lab.kubernetes.client import Client
from lab.kubernetes.gate_orders import order
from lab.programs import processes
from lab.rundir import RunDir, write_atomically

BINARIES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
POLL_SECONDS = 0.05
START_TIMEOUT = 90.0
# Another program can take a free port before a program of the lab listens on it.
PORT_ATTEMPTS = 3
SYSTEM_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT = 10000
INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
TRACE_LINES = 400

SERVICE_NETWORK = "10.53.0.0/16"
SERVICE_ADDRESS = "10.53.0.1"
FRONT_PROXY = "front-proxy-client"
# Garbage collection takes half of the startup time of these programs: trade memory for time, within a limit.
FAST_START = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
GATE = "api-gate"
# With a memory limit that is too low, the API server spends most of its time on garbage collection.
MIB_PER_NODE = 8
PORTS = ("etcd", "etcd-peer", "etcd-http", "kube-apiserver", GATE, "kube-scheduler", "kube-controller-manager")
# Controllers for objects that no lab has. Their informers watch most kinds, and each watcher costs the API server time.
UNUSED_CONTROLLERS = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "ephemeral-volume-controller",
    "horizontal-pod-autoscaler-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "replicationcontroller-controller",
    "resourceclaim-controller",
    "resourcequota-controller",
    "service-cidr-controller",
    "statefulset-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
)

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "Metadata"},
    ],
}

READ = ["get", "list", "watch"]
VIEWER_ROLE = "lab-viewer"
VIEWER_RULES = [
    {
        "apiGroups": ["devices.harvesterhci.io", "harvesterhci.io", "kubevirt.io", "node.harvesterhci.io"],
        "resources": ["*"],
        "verbs": READ,
    },
    {
        "apiGroups": [""],
        "resources": ["nodes", "pods", "pods/log", "namespaces", "events", "configmaps", "services", "endpoints"],
        "verbs": READ,
    },
    {"apiGroups": ["apps"], "resources": ["daemonsets", "deployments"], "verbs": READ},
    {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": READ},
]


class PortTaken(LabError):
    pass


def start(run: RunDir, binaries: Mapping[str, Path]) -> None:
    """Start a control plane, and return when the scheduler is ready."""
    start_api(run, binaries)
    start_controllers(run)
    wait_ready(run)


def start_api(run: RunDir, binaries: Mapping[str, Path], meanwhile: Callable[[], None] | None = None) -> None:
    """Start etcd and kube-apiserver, and return when they are ready. `meanwhile` may start clients of them.

    The garbage collector knows custom resource definitions that are installed before `start_controllers` from the
    start; it discovers later definitions within half a minute.
    """
    run.create()
    run.update(binaries={name: str(binaries[name]) for name in BINARIES})
    for attempt in range(1, PORT_ATTEMPTS + 1):
        _choose_addresses(run)
        _write_credentials(run)
        try:
            _spawn_etcd(run)
            _spawn_apiserver(run)
            _spawn_gate(run)
            if meanwhile:
                meanwhile()
            wait_api_ready(run)
            wait_until(run, [GATE], run.gate_socket.exists)
            break
        except PortTaken:
            processes.stop_all(run)
            if attempt == PORT_ATTEMPTS:
                raise
    asyncio.run(_grant_viewer(run))


def start_controllers(run: RunDir) -> None:
    """Start scheduler and controller manager, and return before they are ready."""
    _spawn_scheduler(run)
    _spawn_controller_manager(run)


def wait_ready(run: RunDir, timeout: float = START_TIMEOUT) -> None:
    """Wait until the API server responds and scheduler and controller manager are healthy."""
    wait_api_ready(run, timeout)
    for name in ("kube-scheduler", "kube-controller-manager"):
        wait_healthy(run, name, timeout)


def wait_healthy(run: RunDir, name: str, timeout: float = START_TIMEOUT) -> None:
    """Wait until the /healthz endpoint of a program reports success."""
    _wait(run, name, "/healthz", timeout)


def wait_api_ready(run: RunDir, timeout: float = START_TIMEOUT) -> None:
    _wait(run, "kube-apiserver", "/readyz", timeout, also="etcd")


def stop_apiserver(run: RunDir) -> None:
    # Close the gate, so that nothing listens at the address that users know.
    order(run, "close")
    processes.stop(run, "kube-apiserver")


def start_apiserver(run: RunDir) -> None:
    """Restart a stopped API server at the same address and with the same data."""
    _spawn_apiserver(run)
    wait_api_ready(run)
    order(run, "open")


def restart_apiserver(run: RunDir) -> None:
    stop_apiserver(run)
    start_apiserver(run)


def free_ports(count: int) -> list[int]:
    """Return free ports. All ports stay bound until the last is chosen, so that they differ.

    The function avoids the range that the system uses for outgoing connections, because such a port is likely to be
    taken before a program of the lab listens on it.
    """
    first_of_the_system = int(SYSTEM_PORTS.read_text().split()[0])
    ours = range(LOWEST_PORT, first_of_the_system if first_of_the_system > 2 * LOWEST_PORT else 65536)
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.append(listener)
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", random.choice(ours)))
                continue
            held.pop().close()
        return [listener.getsockname()[1] for listener in held]
    finally:
        for listener in held:
            listener.close()


def _choose_addresses(run: RunDir) -> None:
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    # Users get the gate's address; components of the lab get the server's own address.
    server, direct = (f"https://127.0.0.1:{ports[name]}" for name in (GATE, "kube-apiserver"))
    run.update(ports=ports, server=server, direct=direct)


def _write_credentials(run: RunDir) -> None:
    service_names = [f"kubernetes{suffix}" for suffix in ("", ".default", ".default.svc")]
    certificates.server(run, "kube-apiserver", [*service_names, SERVICE_ADDRESS])
    for name in ("etcd", "kube-scheduler", "kube-controller-manager"):
        certificates.server(run, name)
    certificates.client(run, FRONT_PROXY, FRONT_PROXY, issuer="front-proxy-ca")
    certificates.signing_key(run)
    kubeconfig.issue_all(run)
    write_atomically(run.path / "audit-policy.yaml", yaml.safe_dump(AUDIT_POLICY, sort_keys=False))


def _spawn_etcd(run: RunDir) -> None:
    ports = run.read()["ports"]
    serving, ca = certificates.pair(run, "etcd"), certificates.authority(run).cert
    client_url, peer_url, http_url = (f"https://127.0.0.1:{ports[name]}" for name in ("etcd", "etcd-peer", "etcd-http"))
    _spawn(
        run,
        "etcd",
        {
            "name": "lab",
            "data-dir": run.etcd,
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            # On a port without HTTP services, etcd serves gRPC directly, which takes a third less CPU time.
            "listen-client-http-urls": http_url,
            "enable-grpc-gateway": False,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"lab={peer_url}",
            "cert-file": serving.cert,
            "key-file": serving.key,
            "trusted-ca-file": ca,
            "client-cert-auth": True,
            "peer-cert-file": serving.cert,
            "peer-key-file": serving.key,
            "peer-trusted-ca-file": ca,
            "peer-client-cert-auth": True,
            # A lab's data need not survive a power cut.
            "unsafe-no-fsync": True,
            "quota-backend-bytes": 4 * 2**30,
            "log-level": "warn",
        },
    )


def _spawn_apiserver(run: RunDir) -> None:
    ports = run.read()["ports"]
    ca = certificates.authority(run)
    serving, etcd = certificates.pair(run, "kube-apiserver"), certificates.pair(run, "etcd")
    front_proxy, tokens = certificates.pair(run, FRONT_PROXY), certificates.signing_key(run)
    _spawn(
        run,
        "kube-apiserver",
        {
            "etcd-servers": f"https://127.0.0.1:{ports['etcd']}",
            "etcd-cafile": ca.cert,
            "etcd-certfile": etcd.cert,
            "etcd-keyfile": etcd.key,
            "bind-address": "127.0.0.1",
            "secure-port": ports["kube-apiserver"],
            "tls-cert-file": serving.cert,
            "tls-private-key-file": serving.key,
            # The endpoints of the kubernetes service cannot have a loopback address.
            "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": SERVICE_NETWORK,
            "client-ca-file": ca.cert,
            "token-auth-file": kubeconfig.token_file(run),
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": tokens.cert,
            "service-account-signing-key-file": tokens.key,
            "requestheader-client-ca-file": certificates.authority(run, "front-proxy-ca").cert,
            "requestheader-allowed-names": FRONT_PROXY,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": front_proxy.cert,
            "proxy-client-key-file": front_proxy.key,
            "audit-policy-file": run.path / "audit-policy.yaml",
            "audit-log-path": run.audit_log,
            # The server logs a request before it sends the response, and never rotates the file.
            "audit-log-mode": "blocking",
            "audit-log-maxsize": 100_000,
            # Pods may be created in a namespace whose default service account does not exist yet.
            "disable-admission-plugins": "ServiceAccount",
            "allow-privileged": True,
            # Two plain limits instead of priority and fairness, so that the server throttles nothing.
            "enable-priority-and-fairness": False,
            "max-requests-inflight": 4000,
            "max-mutating-requests-inflight": 2000,
            "profiling": False,
            **run.read().get("apiserver_flags", {}),
        },
        # The server would wait for its watchers, which do not disconnect.
        grace=1.0,
        env=FAST_START | {"GOMEMLIMIT": f"{1024 + MIB_PER_NODE * _nodes(run)}MiB"},
    )


def _spawn_gate(run: RunDir) -> None:
    run.gate_socket.unlink(missing_ok=True)
    processes.spawn(
        run,
        GATE,
        [sys.executable, "-m", "lab.gate.daemon", f"--run-dir={run.path}"],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )


def _nodes(run: RunDir) -> int:
    return (run.read().get("settings") or {}).get("nodes") or 0


def _spawn_scheduler(run: RunDir) -> None:
    _spawn(run, "kube-scheduler", _controller_flags(run, "kube-scheduler"))


def _spawn_controller_manager(run: RunDir) -> None:
    _spawn(
        run,
        "kube-controller-manager",
        {
            **_controller_flags(run, "kube-controller-manager"),
            # Nothing renews node leases in the lab, and nodes must not become NotReady because of that.
            "controllers": ",".join(["*", "-node-lifecycle-controller", *(f"-{one}" for one in UNUSED_CONTROLLERS)]),
            "service-account-private-key-file": certificates.signing_key(run).key,
            "root-ca-file": certificates.authority(run).cert,
        },
    )


def _controller_flags(run: RunDir, name: str) -> dict[str, object]:
    serving = certificates.pair(run, name)
    return {
        "kubeconfig": run.kubeconfig(name),
        "bind-address": "127.0.0.1",
        "secure-port": run.read()["ports"][name],
        "tls-cert-file": serving.cert,
        "tls-private-key-file": serving.key,
        "leader-elect": False,
        "profiling": False,
        # The client's default limits are intended for large clusters that share one API server.
        "kube-api-qps": 1000,
        "kube-api-burst": 2000,
    }


def _spawn(
    run: RunDir,
    name: str,
    flags: Mapping[str, object],
    grace: float = processes.GRACE_SECONDS,
    env: Mapping[str, str] = FAST_START,
) -> None:
    program = run.read()["binaries"][name]
    processes.spawn(run, name, [program, *as_arguments(flags)], env=env, grace=grace)


def as_arguments(flags: Mapping[str, object]) -> list[str]:
    return [f"--{flag}={_as_flag(value)}" for flag, value in flags.items()]


def _as_flag(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wait(run: RunDir, name: str, path: str, timeout: float, also: str | None = None) -> None:
    port = run.read()["ports"][name]
    tls = ssl.create_default_context(cafile=str(certificates.authority(run).cert))
    if name == "kube-apiserver":
        # The API server refuses anonymous callers until it has created its RBAC roles.
        admin = certificates.pair(run, "client-admin")
        tls.load_cert_chain(str(admin.cert), str(admin.key))
    wait_until(run, [program for program in (name, also) if program], lambda: _answers_ok(port, path, tls), timeout)


def wait_until(run: RunDir, names: list[str], done: Callable[[], bool], timeout: float = START_TIMEOUT) -> None:
    """Poll until `done` is true, and raise as soon as one of the named processes has exited."""
    deadline = time.monotonic() + timeout
    while not done():
        for name in names:
            if not processes.is_running(run, name):
                raise _ended(run, name)
        if time.monotonic() > deadline:
            raise LabError(f"{names[0]} did not become ready within {timeout:.0f} s.", hint=f"See {run.log(names[0])}.")
        time.sleep(POLL_SECONDS)


def _ended(run: RunDir, name: str) -> LabError:
    lines = run.log(name).read_text(errors="replace").splitlines()
    tail = "\n".join(lines[-5:])
    whole_log = f"The whole log is in {run.log(name)}."
    # A stack trace follows the message of the program.
    if any("too many open files" in line for line in lines[-TRACE_LINES:]):
        return LabError(f"{name} exited during startup: too many open files.", hint=f"{_file_limits()} {whole_log}")
    kind = PortTaken if "address already in use" in tail else LabError
    return kind(f"{name} exited during startup:\n{tail}", hint=whole_log)


def _file_limits() -> str:
    """Return the two limits that cause "too many open files", and the commands that raise them."""
    try:
        instances = f" ({INOTIFY_INSTANCES.read_text().strip()})"
    except OSError:
        instances = ""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"Either the inotify instances of this user are used up{instances}: "
        "sudo sysctl fs.inotify.max_user_instances=1024. "
        f"Or a process may not open more files ({files}): ulimit -n 65536. Stopping other labs helps as well."
    )


def _answers_ok(port: int, path: str, tls: ssl.SSLContext) -> bool:
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


async def _grant_viewer(run: RunDir) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": VIEWER_ROLE}, "rules": VIEWER_RULES}
    binding = {
        "metadata": {"name": VIEWER_ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": VIEWER_ROLE},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": kubeconfig.VIEWER.name}],
    }
    async with Client.from_kubeconfig(run.kubeconfig("harvester"), user_agent="lab") as client:
        await client.create_if_absent(f"{rbac}/clusterroles", role)
        await client.create_if_absent(f"{rbac}/clusterrolebindings", binding)
