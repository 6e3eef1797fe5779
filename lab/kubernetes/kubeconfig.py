"""Users of the lab's API server, and their kubeconfig files.

Users authenticate in one of two ways. Client certificates can be issued at any time. Bearer tokens are in a
file that kube-apiserver reads when it starts, so users with tokens must be created before that.
"""

from __future__ import annotations

import csv
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from lab.kubernetes import certificates
from lab.rundir import RunDir, write_atomically

MASTERS = "system:masters"
LONGEST_COMMON_NAME = 64


@dataclass(frozen=True)
class User:
    kubeconfig: str
    name: str
    groups: tuple[str, ...] = ()
    token: bool = False


# Admission webhooks distinguish components from users by these names. The permissions of components are not
# under test, so each is in the group system:masters; RBAC rules for them would only slow down the start.
# Components have tokens, because the API server verifies a client certificate twice in each request, which takes a
# tenth of its CPU time.
COMPONENTS = (
    User("admin", "lab:admin", (MASTERS,)),
    *(
        User(kubeconfig, name, (MASTERS,), token=True)
        for kubeconfig, name in {
            "kube-scheduler": "system:kube-scheduler",
            "kube-controller-manager": "system:kube-controller-manager",
            "pcidevices": "system:serviceaccount:harvester-system:harvester-pcidevices-controller",
            "harvester": "system:serviceaccount:harvester-system:harvester",
            "virt-controller": "system:serviceaccount:harvester-system:kubevirt-controller",
            "virt-api": "system:serviceaccount:harvester-system:kubevirt-apiserver",
            "virt-handler": "system:serviceaccount:harvester-system:kubevirt-handler",
        }.items()
    ),
)
_UNDISTURBED = {user.kubeconfig for user in COMPONENTS} - {"admin"}
VIEWER = User("viewer", "lab:viewer", token=True)
NOBODY = User("nobody", "lab:nobody", token=True)
USERS = (*COMPONENTS, VIEWER, NOBODY)


def token_file(run: RunDir) -> Path:
    return run.pki / "tokens.csv"


def issue_all(run: RunDir) -> None:
    """Create a kubeconfig for every user of the lab, and `expired` with a token that the server rejects."""
    for user in USERS:
        if user.token:
            issue_token_user(run, user.kubeconfig, user.name, user.groups)
        else:
            issue(run, user.kubeconfig, user.name, user.groups)
    issue_unknown_token(run, "expired")


def issue(run: RunDir, name: str, user: str, groups: Sequence[str] = (), namespace: str = "default") -> Path:
    """Create a kubeconfig with a client certificate."""
    if len(user) > LONGEST_COMMON_NAME:
        raise LabError(
            f"The user name {user} does not fit into a client certificate ({LONGEST_COMMON_NAME} characters).",
            hint="Give it a token before the API server starts.",
        )
    files = certificates.client(run, f"client-{name}", user, groups)
    return _write(run, name, {"client-certificate": str(files.cert), "client-key": str(files.key)}, namespace)


def issue_token_user(run: RunDir, name: str, user: str, groups: Sequence[str] = (), namespace: str = "default") -> Path:
    """Create a kubeconfig with a token. Only tokens created before the API server starts are valid."""
    tokens = _read_tokens(run)
    token = next((row[0] for row in tokens if row[1] == user), None) or secrets.token_hex(20)
    rows = [row for row in tokens if row[1] != user] + [[token, user, user, ",".join(groups)]]
    with_quotes = "".join(",".join(f'"{field}"' for field in row) + "\n" for row in rows)
    write_atomically(token_file(run), with_quotes)
    return _write(run, name, {"token": token}, namespace)


def issue_unknown_token(run: RunDir, name: str, namespace: str = "default") -> Path:
    """Create a kubeconfig with an expired token: well formed, but rejected with 401."""
    return _write(run, name, {"token": secrets.token_hex(20)}, namespace)


def _read_tokens(run: RunDir) -> list[list[str]]:
    try:
        with token_file(run).open(newline="") as file:
            return list(csv.reader(file))
    except FileNotFoundError:
        return []


def _write(run: RunDir, name: str, credentials: dict[str, Any], namespace: str) -> Path:
    state = run.read()
    # Users connect through the gate; faults of the gate never affect components of the lab.
    server = state["direct"] if name in _UNDISTURBED and "direct" in state else state["server"]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [
            {
                "name": "lab",
                "cluster": {
                    "server": server,
                    "certificate-authority": str(certificates.authority(run).cert),
                },
            }
        ],
        "users": [{"name": name, "user": credentials}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name, "namespace": namespace}}],
    }
    path = run.kubeconfig(name)
    write_atomically(path, yaml.safe_dump(config, sort_keys=False))
    return path
