"""What a job gets of a credential: the injectors of its type, filled in as AWX does when it starts the job."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.unit.awx.data import TYPES


@dataclass(frozen=True)
class Injected:
    """Files are in the folder, and named in the other two."""

    environment: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


def injected(type_name: str, inputs: dict[str, str], folder: Path) -> Injected:
    """Of a type that awx_setup makes. What is not filled in is undefined in the templates, hence empty."""
    (injectors,) = (given["injectors"] for given in TYPES if given["name"] == type_name)
    jinja = ImmutableSandboxedEnvironment()
    known: dict[str, object] = {name: value for name, value in inputs.items() if value}
    files = {
        name.partition(".")[2]: _file(folder, jinja.from_string(template).render(known))
        for name, template in injectors.get("file", {}).items()
    }
    # One file is called template and has no further name.
    known["tower"] = SimpleNamespace(filename=files.get("") or SimpleNamespace(**files))

    def rendered(kind: str) -> dict[str, str]:
        return {name: jinja.from_string(text).render(known) for name, text in injectors.get(kind, {}).items()}

    return Injected(rendered("env"), rendered("extra_vars"))


def bearer_token(host: str, token: str, ca_cert: str, folder: Path) -> Injected:
    """Of AWX's own type "OpenShift or Kubernetes API Bearer Token", with certificates checked."""
    return Injected(
        {
            "K8S_AUTH_HOST": host,
            "K8S_AUTH_API_KEY": token,
            "K8S_AUTH_VERIFY_SSL": "True",
            "K8S_AUTH_SSL_CA_CERT": _file(folder, ca_cert),
        }
    )


def vcenter(host: str, username: str, password: str) -> Injected:
    """Of AWX's own type "VMware vCenter". Whether certificates are checked is a setting of AWX, and off at first."""
    return Injected(
        {
            "VMWARE_HOST": host,
            "VMWARE_USER": username,
            "VMWARE_PASSWORD": password,
            "VMWARE_VALIDATE_CERTS": "False",
        }
    )


def _file(folder: Path, content: str) -> str:
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(content)
    return file.name
