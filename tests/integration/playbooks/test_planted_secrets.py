"""A distinct secret in every place where one can be given: no playbook shows any, with -vvvv and --diff.

Each playbook runs as AWX runs it. What it wrote is searched: the events and the output of the job, every other file
below the folder of the job, and the command lines of all its processes while it ran.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
import yaml

from tests.integration.labs import Lab
from tests.integration.playbooks.runs import CHECKOUT, INSTALLED
from tests.integration.playbooks.test_secrets import ROLES, mapping
from tests.integration.warm_interpreter import Warm

Json = dict[str, Any]

MARK = "PLANTED"
LICENCE = {
    "gpu_operator_licence_token": f"{MARK}-licence-token",
    "gpu_operator_licence_gridd_conf": f"# {MARK}-gridd-conf\n",
    "gpu_operator_driver_repository": "registry.example/nvidia",
    "gpu_operator_driver_version": "570.172.08",
}
RANCHER = {
    **ROLES["rancher_gpu_cluster"],
    "rancher_gpu_cluster_token": f"{MARK}-rancher-token",
    "rancher_gpu_cluster_pools": [{"name": "gpu", "user_data": f"#cloud-config\n# {MARK}-pool-user-data"}],
}
NODE = ROLES["harvester_gpu_node"]
VMS = {"harvester_gpu_vm_vms": [{"name": "desk", "vgpus": [], "user_data": f"#cloud-config\n# {MARK}-vm-user-data"}]}
DESKS = {
    "vsphere_gpu_vm_vms": [
        {
            "name": "desk",
            "template": "t",
            "cluster": "c",
            "cloud_init": {"user_data": f"#cloud-config\n# {MARK}-cloud-init\n", "network": f"# {MARK}-network\n"},
        }
    ],
    "vsphere_gpu_vm_defaults": {"cloud_init": {"user_data": f"#cloud-config\n# {MARK}-default-cloud-init\n"}},
}
CAPV = {
    **ROLES["capv_gpu_cluster"],
    "capv_gpu_cluster_password": f"{MARK}-capv-password",
}
# What each playbook gets, besides the connections: every secret of its roles.
PLAYBOOKS: dict[str, Json] = {
    "awx_setup": {
        "awx_setup_image": "registry.example/ee:1",
        "awx_setup_notification_templates": [
            {
                "name": "chat",
                "notification_type": "webhook",
                "notification_configuration": {"url": "https://chat.example", "password": f"{MARK}-notification"},
            }
        ],
    },
    "capacity": {},
    "drift": {"vgpu_drift_rancher_url": "https://127.0.0.1:1", "vgpu_drift_rancher_token": f"{MARK}-drift-rancher"},
    "export": {"vgpu_export_platform": "harvester"},
    "harvester_gpu_cluster": {**NODE, **VMS, **RANCHER, **LICENCE},
    "reprofile": ROLES["vgpu_reprofile"],
    "smoke_test": {},
    "teardown": {"vgpu_teardown_confirm": True, **NODE, **VMS, **RANCHER},
    "vsphere_gpu_cluster": {"vsphere_gpu_host_cluster": "c", **DESKS, **CAPV, **LICENCE},
}
# Options of roles whose name sounds like a secret, and that hold none.
NO_SECRETS = {
    "capv_gpu_cluster_ssh_authorized_keys",
    "gpu_operator_driver_pull_secrets",
    "gpu_operator_licence_secret",
    "gpu_smoke_test_pull_secrets",
    "rancher_gpu_cluster_credential",
    "vgpu_drift_credential_days",
}
UNREACHABLE = r"cannot be reached|Connection refused|Failed to get token|Unable to connect|There was a network error"
SOUNDS_SECRET = re.compile(r"token|passw|secret|user_data|cloud_init|credential|authorized_keys|gridd_conf|private")


def planted(value: Any) -> set[str]:
    """Return the secrets inside a value."""
    return set(re.findall(rf"{MARK}-[a-z-]+", json.dumps(value)))


def options(spec: Json, prefix: str = "") -> Iterator[tuple[str, Json]]:
    for name, option in spec.items():
        yield f"{prefix}{name}", option
        yield from options(option.get("options") or {}, f"{prefix}{name}.")


def secret_options() -> set[str]:
    found = set()
    for path in (CHECKOUT / "roles").glob("*/meta/argument_specs.yml"):
        for name, option in options(yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]):
            if option.get("no_log") or SOUNDS_SECRET.search(name.rpartition(".")[2]):
                found.add(name)
    return found


def holds(variables: Json, option: str) -> bool:
    """Return whether variables plant a secret in an option of a role."""
    value: Any = variables
    for part in option.split("."):
        value = value[0] if isinstance(value, list) else value
        value = value.get(part) if isinstance(value, dict) else None
    return bool(planted(value))


def test_every_playbook_role_and_secret_option_is_tried() -> None:
    """A new one has to be added above."""
    assert set(PLAYBOOKS) == {path.stem for path in (CHECKOUT / "playbooks").glob("*.yml")}
    assert set(ROLES) == {path.name for path in (CHECKOUT / "roles").iterdir()}
    asked = secret_options() - NO_SECRETS
    assert len(asked) > 5
    assert {name for name in asked if not any(holds(variables, name) for variables in PLAYBOOKS.values())} == set()


@contextmanager
def watched_processes(found: set[str], secrets: set[str]) -> Iterator[None]:
    """Look at the command lines of all processes while the block runs, and remember secrets in them."""
    over = threading.Event()
    looked = 0

    def watch() -> None:
        nonlocal looked
        while not over.wait(0.05):
            looked += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    line = path.read_bytes()
                    found.update(secret for secret in secrets if secret.encode() in line)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()
    assert looked, "nobody looked at the process list"


def written(folder: Path) -> Iterator[Path]:
    """Yield the files of a job, except what the job was given: variables, inventory and environment."""
    for path in folder.rglob("*"):
        given = path.relative_to(folder).parts[0] in ("env", "inventory", "given") or path.name == "command"
        if path.is_file() and not given:
            yield path


def run(folder: Path, name: str, variables: Json, environment: dict[str, str], warm: Warm, secrets: set[str]) -> Any:
    """Run a playbook and fail if any of the secrets was shown."""
    temporary = folder / "temporary"
    temporary.mkdir(parents=True)
    seen: set[str] = set()
    with watched_processes(seen, secrets):
        done = ansible_runner.run(
            private_data_dir=str(folder),
            project_dir=str(CHECKOUT),
            playbook=name if name.startswith("/") else f"playbooks/{name}.yml",
            inventory={"all": {"hosts": {"localhost": {"ansible_connection": "local"}}}},
            extravars={"ansible_python_interpreter": sys.executable, **variables},
            envvars={
                "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED),
                "ANSIBLE_LOCALHOST_WARNING": "false",
                "HOME": str(folder),
                "PATH": os.environ["PATH"],
                **warm,
                "TMPDIR": str(temporary),
                **environment,
            },
            cmdline="--diff",
            verbosity=4,
            quiet=True,
            # As in runs.py.
            cancel_callback=lambda: False,
        )
    assert seen == set(), "in the process list"
    text = json.dumps(list(done.events)) + done.stdout.read()
    assert {secret for secret in secrets if secret in text} == set(), f"shown by {name}"
    for path in written(folder):
        content = path.read_bytes()
        hits = {secret for secret in secrets if secret.encode() in content}
        assert hits == set(), f"{name} left {hits} in {path.relative_to(folder)}"
        # kubernetes.core keeps the API's discovery there, which has no secret.
        ours = path.is_relative_to(temporary) and not path.name.startswith("k8srcp-")
        readable = stat.S_IMODE(path.stat().st_mode) & 0o077 and ours
        assert not readable, f"others may read {path.relative_to(folder)}"
    return done


@pytest.fixture(scope="module")
def closed() -> int:
    """Return a port at which nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("kind", ["token", "mapping"])
@pytest.mark.parametrize("name", sorted(PLAYBOOKS))
def test_no_playbook_shows_a_secret_when_connections_fail(
    name: str, kind: str, closed: int, tmp_path: Path, warm: Warm
) -> None:
    address = f"https://127.0.0.1:{closed}"
    given = tmp_path / "given"
    given.mkdir()
    file = given / "guest.yaml"
    file.write_text(json.dumps(mapping(address, f"{MARK}-guest-file")))
    file.chmod(0o600)
    # The same playbook with a token and with a kubeconfig as a mapping: only some use Kubernetes.
    if kind == "mapping" and name in ("awx_setup", "vsphere_gpu_cluster", "smoke_test"):
        pytest.skip("This playbook takes no kubeconfig of a Harvester.")
    connection: Json = {"harvester_host": address, "harvester_api_key": f"{MARK}-harvester-token"}
    if kind == "mapping":
        connection = {"harvester_kubeconfig": mapping(address, f"{MARK}-kubeconfig-mapping")}
    variables = {
        **PLAYBOOKS[name],
        **connection,
        "vcenter_hostname": "127.0.0.1",
        "vcenter_port": closed,
        "vcenter_username": "admin",
        "vcenter_password": f"{MARK}-vcenter-password",
        "guest_kubeconfig": str(file),
    }
    if "rancher_gpu_cluster_token" in variables:
        variables["rancher_gpu_cluster_url"] = address
    environment = {
        "CONTROLLER_HOST": address,
        "CONTROLLER_OAUTH_TOKEN": f"{MARK}-controller-token",
        "K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH": f"user:{MARK}-proxy-headers",
        "RANCHER_TOKEN_KEY": f"{MARK}-rancher-environment",
        "VMWARE_PASSWORD": f"{MARK}-vmware-environment",
        "K8S_AUTH_PASSWORD": f"{MARK}-kubernetes-password",
    }
    secrets = planted(variables) | planted(environment) | {f"{MARK}-guest-file"}
    done = run(tmp_path, name, variables, environment, warm, secrets)
    failures = [event["event_data"]["res"] for event in done.events if event["event"] == "runner_on_failed"]
    # It got as far as a connection, or its output would prove nothing.
    assert done.status == "failed", done.stdout.read()
    assert re.search(UNREACHABLE, json.dumps(failures)), failures


@pytest.mark.parametrize(
    ("task", "where"),
    [
        ({"ansible.builtin.debug": {"msg": "{{ secret }}"}}, "shown by"),
        ({"ansible.builtin.copy": {"content": "{{ secret }}", "dest": "{{ file }}", "mode": "0600"}}, "left"),
        ({"ansible.builtin.copy": {"content": "a", "dest": "{{ file }}", "mode": "0644"}}, "others may read"),
        ({"ansible.builtin.command": {"argv": ["sh", "-c", "sleep 2", "{{ secret }}"]}}, "in the process list"),
    ],
    ids=["output", "file", "mode", "process"],
)
def test_a_secret_that_is_shown_is_found(task: Json, where: str, tmp_path: Path, warm: Warm) -> None:
    given = tmp_path / "given"
    given.mkdir()
    hidden = {"no_log": True, "failed_when": False} if where != "shown by" else {}
    (given / "play.yml").write_text(
        json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [{**task, **hidden}]}])
    )
    variables = {"secret": f"{MARK}-shown", "file": str(tmp_path / "temporary/file")}
    with pytest.raises(AssertionError, match=where):
        run(tmp_path, str(given / "play.yml"), variables, {}, warm, {f"{MARK}-shown"})


def test_a_cluster_that_is_made_shows_no_secret(lab: Lab, tmp_path: Path, warm: Warm) -> None:
    """The playbook succeeds as far as its VM, with a kubeconfig as a mapping that has the key of its user."""
    kubeconfig = yaml.safe_load(lab.run.kubeconfig("admin").read_text())
    user = kubeconfig["users"][0]["user"]
    for name in ("client-key", "client-certificate"):
        if path := user.pop(name, None):
            user[f"{name}-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    variables = {
        "harvester_kubeconfig": kubeconfig,
        "harvester_gpu_node_nodes": ["gpu-a"],
        "harvester_gpu_node_layout": [{"profile": "A2-4Q", "count": 1}],
        "harvester_gpu_vm_vms": [
            {
                "name": "desk",
                "cpus": 2,
                "memory_gib": 2,
                "disks": [{"container": "registry.example/ubuntu"}],
                "vgpus": [{"profile": "A2-4Q"}],
                "user_data": f"#cloud-config\npassword: {MARK}-vm-user-data\n",
            }
        ],
    }
    keys = {str(user[key]) for key in ("client-key-data", "token", "password") if user.get(key)}
    assert keys
    done = run(tmp_path, "harvester_gpu_cluster", variables, {}, warm, keys | {f"{MARK}-vm-user-data"})
    assert done.status == "successful", done.stdout.read()
    assert lab.items("/apis/kubevirt.io/v1/virtualmachines")
