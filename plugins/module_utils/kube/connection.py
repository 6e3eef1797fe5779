# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Address of the API server and credentials: from module options, a kubeconfig file or the pod that runs the module."""

from __future__ import annotations

import base64
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from ..errors import FleetError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


# Options for the address and the credentials of the cluster, by environment variable.
IDENTITY = {
    "K8S_AUTH_KUBECONFIG": "kubeconfig",
    "K8S_AUTH_CONTEXT": "context",
    "K8S_AUTH_HOST": "host",
    "K8S_AUTH_API_KEY": "api_key",
    "K8S_AUTH_USERNAME": "username",
    "K8S_AUTH_PASSWORD": "password",
    "K8S_AUTH_CERT_FILE": "client_cert",
    "K8S_AUTH_KEY_FILE": "client_key",
}
# Options for the verification of the server. The variables apply to the cluster that the environment names.
VERIFICATION = {"K8S_AUTH_SSL_CA_CERT": "ca_cert", "K8S_AUTH_VERIFY_SSL": "validate_certs"}
SWITCHED_OFF = ("0", "false", "n", "no", "off", "f")


class BadConnection(FleetError):
    code = "bad_connection"


class MissingLibrary(FleetError):
    code = "missing_library"

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the Python package {package}, which is not installed for {sys.executable}.",
            hint=f"Install it there: pip install {package}.",
        )


@dataclass(frozen=True)
class ConnectionConfig:
    """Address, credentials and TLS settings for one API server. Secrets are excluded from its repr."""

    host: str
    token: str | None = field(default=None, repr=False)
    basic: tuple[str, str] | None = field(default=None, repr=False)
    client_cert: str | None = None
    client_key: str | None = None
    client_cert_data: bytes | None = field(default=None, repr=False)
    client_key_data: bytes | None = field(default=None, repr=False)
    ca_cert: str | None = None
    ca_data: bytes | None = field(default=None, repr=False)
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None
    no_proxy: str | None = None
    proxy_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    impersonate_user: str | None = None
    impersonate_groups: tuple[str, ...] = ()

    def headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.token:
            found["Authorization"] = f"Bearer {self.token}"
        elif self.basic:
            pair = base64.b64encode(":".join(self.basic).encode()).decode()
            found["Authorization"] = f"Basic {pair}"
        if self.impersonate_user:
            found["Impersonate-User"] = self.impersonate_user
        return found

    def tls(self) -> ssl.SSLContext:
        try:
            if self.verify:
                # Without a CA certificate, this loads the certificates of the system, which takes a moment.
                context = ssl.create_default_context(
                    cafile=self.ca_cert, cadata=self.ca_data.decode() if self.ca_data else None
                )
            else:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            with self._client_files() as files:
                if files:
                    context.load_cert_chain(*files)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise BadConnection(
                f"The certificates for {self.host} cannot be used: {error}.",
                hint="Check ca_cert, client_cert and client_key, or the kubeconfig they come from.",
            ) from error
        # urllib3 sets the protocols for each new connection. Another thread that connects at that moment would send
        # memory that OpenSSL is about to free, and get a "decode error".
        context.set_alpn_protocols(["http/1.1"])
        context.set_alpn_protocols = _is_set  # type: ignore[method-assign, assignment]
        return context

    @contextmanager
    def _client_files(self) -> Iterator[tuple[str, str] | None]:
        """Yield the files of the client certificate and key: the ssl module reads key pairs only from files."""
        if self.client_cert and self.client_key:
            yield self.client_cert, self.client_key
        elif self.client_cert_data and self.client_key_data:
            with tempfile.TemporaryDirectory(prefix="vgpu-fleet-") as folder:
                cert, key = os.path.join(folder, "cert"), os.path.join(folder, "key")
                Path(cert).write_bytes(self.client_cert_data)
                Path(key).write_bytes(self.client_key_data)
                yield cert, key
        else:
            yield None


def _is_set(_protocols: Sequence[str]) -> None:
    """Do nothing, in place of the method that sets the ALPN protocols."""


def completed(params: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the options, completed with the address and the credentials from the environment.

    If the options contain both, ignore the environment: its credentials, its CA certificate and its verification
    setting may belong to another cluster.
    """
    given = {option: value for option, value in params.items() if value is not None}
    names = {**IDENTITY, **VERIFICATION}
    found: dict[str, Any] = {
        option: environment[variable] for variable, option in names.items() if environment.get(variable)
    }
    if "ca_cert" in found:
        found["ca_cert"] = os.path.expanduser(found["ca_cert"])
    if "validate_certs" in found:
        # Verify the certificate unless the value clearly disables it.
        found["validate_certs"] = found["validate_certs"].strip().lower() not in SWITCHED_OFF
    if is_complete(given):
        # The context may belong to a kubeconfig file.
        left = () if isinstance(given.get("kubeconfig"), Mapping) else ("context",)
        found = {option: value for option, value in found.items() if option in left}
    return {**found, **given}


def is_complete(given: Mapping[str, Any]) -> bool:
    return bool(given.get("kubeconfig")) or bool(given.get("host") and has_credentials(given))


def from_options(params: Mapping[str, Any]) -> ConnectionConfig:
    params = completed(params, os.environ)
    access = _base(params)
    given: dict[str, Any] = {
        "host": params.get("host"),
        "token": params.get("api_key"),
        "client_cert": params.get("client_cert"),
        "client_key": params.get("client_key"),
        "ca_cert": params.get("ca_cert"),
        "verify": params.get("validate_certs"),
        "proxy": params.get("proxy"),
        "no_proxy": params.get("no_proxy"),
        "proxy_headers": {name: text for name, text in (params.get("proxy_headers") or {}).items() if text} or None,
        "impersonate_user": params.get("impersonate_user"),
        "impersonate_groups": tuple(params.get("impersonate_groups") or ()) or None,
    }
    access = replace(access, **{name: value for name, value in given.items() if value is not None})
    if params.get("username") and params.get("password"):
        access = replace(access, basic=(params["username"], params["password"]))
    if not _is_url(access.host):
        raise BadConnection(
            f"{access.host!r} is not the address of an API server.", hint="Write it as https://name:6443."
        )
    return _checked(access)


def _is_url(host: str) -> bool:
    try:
        url = urlsplit(host)
        return url.scheme in ("https", "http") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _checked(access: ConnectionConfig) -> ConnectionConfig:
    """Return the connection with a valid token. Tokens from files often end with a newline."""
    token = access.token.strip() if access.token else None
    headers = {
        "The token (api_key, or that of the kubeconfig)": token,
        "impersonate_user": access.impersonate_user,
        "A group of impersonate_groups": "".join(access.impersonate_groups),
        "proxy_headers.user_agent": access.proxy_headers.get("user_agent"),
    }
    for name, value in headers.items():
        # Do not show the value: it may be a secret.
        if value and not (value.isprintable() and value.isascii()):
            raise BadConnection(
                f"{name} has characters that cannot be sent in an HTTP header, such as a line break.",
                hint="Remove them. A token is one line of plain characters.",
            )
    return replace(access, token=token)


def _base(params: Mapping[str, Any]) -> ConnectionConfig:
    """Return the connection in the same order of precedence as kubernetes.core."""
    if params.get("host") and has_credentials(params):
        return ConnectionConfig(host=params["host"])
    if isinstance(params.get("kubeconfig"), Mapping):
        return _from_content(params["kubeconfig"], params, "the option kubeconfig", Path())
    if params.get("kubeconfig"):
        return _from_file(Path(str(params["kubeconfig"])).expanduser(), params)
    if (
        not params.get("context")
        and (SERVICE_ACCOUNT / "token").is_file()
        and os.environ.get("KUBERNETES_SERVICE_HOST")
    ):
        return _from_pod()
    paths = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if len(paths) > 1:
        return _from_library(os.pathsep.join(paths), params)
    path = Path(paths[0] if paths else "~/.kube/config").expanduser()
    if not path.is_file() and params.get("host") and not params.get("context"):
        # Without credentials, the API server decides what anonymous users may do.
        return ConnectionConfig(host=params["host"])
    if not path.is_file():
        raise BadConnection(
            "No cluster to connect to: there is neither a kubeconfig nor a host.",
            hint="Set kubeconfig or K8S_AUTH_KUBECONFIG, or host and api_key or K8S_AUTH_HOST and K8S_AUTH_API_KEY.",
        )
    return _from_file(path, params)


def has_credentials(params: Mapping[str, Any]) -> bool:
    """Return whether the options contain credentials, so that no file is needed."""
    pairs = (("username", "password"), ("client_cert", "client_key"))
    return bool(params.get("api_key")) or any(params.get(first) and params.get(second) for first, second in pairs)


def _from_pod() -> ConnectionConfig:
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return ConnectionConfig(
        host=f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{port}",
        token=(SERVICE_ACCOUNT / "token").read_text().strip(),
        ca_cert=str(SERVICE_ACCOUNT / "ca.crt"),
    )


def _from_file(path: Path, params: Mapping[str, Any]) -> ConnectionConfig:
    try:
        import yaml
    except ImportError as error:
        raise MissingLibrary("PyYAML", "A kubeconfig file") from error
    try:
        # Prefer the C loader of libyaml: the Python loader takes longer than the request that follows.
        content = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise BadConnection(f"The kubeconfig {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadConnection(f"The kubeconfig {path} is not valid YAML.") from error
    return _from_content(content, params, f"the kubeconfig {path}", path)


def runs_a_program(content: Mapping[str, Any], context: str | None) -> bool:
    """Return whether the kubeconfig has no credentials, but a plugin or provider that returns them."""
    return _needs_library(_chosen(content, context, "the option kubeconfig")[1])


def _needs_library(user: Mapping[str, Any]) -> bool:
    return "exec" in user or "auth-provider" in user


def _chosen(content: Any, context: str | None, origin: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the cluster and the user of the selected context."""
    if not isinstance(content, Mapping):
        raise BadConnection(f"There is no configuration in {origin}.")
    chosen = _named(content, "contexts", "context", context or content.get("current-context"), origin)
    cluster = _named(content, "clusters", "cluster", chosen.get("cluster"), origin)
    user = _named(content, "users", "user", chosen["user"], origin) if chosen.get("user") else {}
    return cluster, user


def _from_content(content: Any, params: Mapping[str, Any], origin: str, path: Path) -> ConnectionConfig:
    cluster, user = _chosen(content, params.get("context"), origin)
    if not cluster.get("server"):
        raise BadConnection(f"A cluster in {origin} has no server.")
    if _needs_library(user):
        # The kubernetes library gets credentials from external programs. Its import takes a second.
        return _from_library(content if path == Path() else path, params)
    folder = path.parent

    def text(section: Mapping[str, Any], key: str) -> str | None:
        value = section.get(key)
        if isinstance(value, (Mapping, list)):
            raise BadConnection(f"{key} in {origin} is not a text.")
        # YAML reads digits as a number.
        return None if value is None or value == "" else str(value)

    def file(section: Mapping[str, Any], key: str) -> str | None:
        name = text(section, key)
        return str(folder / name) if name else None

    def data(section: Mapping[str, Any], key: str) -> bytes | None:
        try:
            return base64.b64decode(text(section, f"{key}-data") or "", validate=True) or None
        except ValueError as error:
            raise BadConnection(f"{key}-data in {origin} is not base64.") from error

    token, token_file = text(user, "token"), file(user, "tokenFile")
    if not token and token_file:
        try:
            token = Path(token_file).read_text().strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text"
            raise BadConnection(f"The tokenFile in {origin} cannot be read: {reason}.") from error
    username, password = text(user, "username"), text(user, "password")
    return ConnectionConfig(
        host=str(cluster["server"]),
        token=token,
        basic=(username, password) if username and password else None,
        client_cert=file(user, "client-certificate"),
        client_key=file(user, "client-key"),
        client_cert_data=data(user, "client-certificate"),
        client_key_data=data(user, "client-key"),
        ca_cert=file(cluster, "certificate-authority"),
        ca_data=data(cluster, "certificate-authority"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=text(cluster, "tls-server-name"),
        proxy=text(cluster, "proxy-url"),
    )


def _named(content: Mapping[str, Any], section: str, key: str, name: Any, origin: str) -> Mapping[str, Any]:
    entries = content.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise BadConnection(f"{section} in {origin} is not a list of mappings.", hint="It is not a valid kubeconfig.")
    # Compare names as strings: YAML reads digits as a number.
    found = {str(entry.get("name")): entry.get(key) or {} for entry in entries}
    if str(name) not in found:
        known = ", ".join(sorted(found)) or "none"
        raise BadConnection(f"There is no {key} {name!r} in {origin}.", hint=f"It has: {known}.")
    chosen = found[str(name)]
    if not isinstance(chosen, Mapping):
        raise BadConnection(f"The {key} {name!r} in {origin} is not a mapping.", hint="It is not a valid kubeconfig.")
    return chosen


def _from_library(source: Path | str | Mapping[str, Any], params: Mapping[str, Any]) -> ConnectionConfig:
    context, persist = params.get("context"), params.get("persist_config")
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise MissingLibrary("kubernetes", "This kubeconfig") from error
    loaded, loader = client.Configuration(), cast("Any", config)
    try:
        if isinstance(source, Mapping):
            loader.load_kube_config_from_dict(dict(source), context=context, client_configuration=loaded)
        else:
            loader.load_kube_config(
                config_file=str(source),
                context=context,
                client_configuration=loaded,
                persist_config=True if persist is None else persist,
            )
    except config.ConfigException as error:
        raise BadConnection(f"The kubeconfig cannot be used: {error}.") from error
    except Exception as error:
        # The library raises arbitrary errors of its parsers and of the program. Their text could contain credentials.
        raise BadConnection(
            f"The kubeconfig cannot be used: it makes the Python package kubernetes fail with {type(error).__name__}.",
            hint="Try it with kubectl, which tells more.",
        ) from error
    scheme, _space, credentials = (
        loaded.get_api_key_with_prefix("authorization") or loaded.get_api_key_with_prefix("BearerToken") or ""
    ).partition(" ")
    return ConnectionConfig(
        host=loaded.host,
        token=credentials if scheme == "Bearer" else None,
        basic=_pair(credentials) if scheme == "Basic" else None,
        client_cert=loaded.cert_file,
        client_key=loaded.key_file,
        ca_cert=loaded.ssl_ca_cert,
        verify=bool(loaded.verify_ssl),
        server_name=getattr(loaded, "tls_server_name", None),
        proxy=loaded.proxy,
    )


def _pair(encoded: str) -> tuple[str, str]:
    """Return user and password from the authorization header in which the library keeps them."""
    user, _colon, password = base64.b64decode(encoded).decode(errors="replace").partition(":")
    return user, password
