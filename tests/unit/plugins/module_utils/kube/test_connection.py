from __future__ import annotations

import base64
import contextlib
import ssl

import pytest
import yaml
from ansible_collections.vgpu.fleet.plugins.module_utils.kube import connection as access
from hypothesis import given, strategies as st


def kubeconfig(**user):
    return {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://c:6443", "certificate-authority": "ca.crt"}},
            {"name": "d", "cluster": {"server": "https://d:6443", "insecure-skip-tls-verify": True}},
        ],
        "users": [{"name": "u", "user": user}],
    }


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(kubeconfig(token="secret")))
    return path


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch, tmp_path):
    for variable in ("KUBECONFIG", *access.IDENTITY, *access.VERIFICATION):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_file_with_paths_beside_it(config):
    found = access.from_options({"kubeconfig": str(config)})
    assert (found.host, found.token, found.verify) == ("https://c:6443", "secret", True)
    assert found.ca_cert == str(config.parent / "ca.crt")
    assert found.headers() == {"Authorization": "Bearer secret"}
    assert "token" not in repr(found)


def test_another_context_and_options_on_top(config):
    found = access.from_options({"kubeconfig": str(config), "context": "two", "api_key": "mine"})
    assert (found.host, found.token, found.verify) == ("https://d:6443", "mine", False)


def test_host_and_key_are_enough_and_come_before_any_file(config, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(config))
    found = access.from_options({"host": "https://x", "api_key": "k", "kubeconfig": str(config)})
    assert (found.host, found.token, found.ca_cert) == ("https://x", "k", None)
    assert access.from_options({}).host == "https://c:6443"


def test_a_cluster_that_is_given_wins_over_the_credentials_of_another_in_the_environment(config, monkeypatch):
    monkeypatch.setenv("K8S_AUTH_HOST", "https://other")
    monkeypatch.setenv("K8S_AUTH_API_KEY", "others")
    assert access.from_options({}).token == "others"
    assert access.from_options({"kubeconfig": str(config)}).token == "secret"
    assert access.from_options({"host": "https://x", "api_key": "k"}).token == "k"
    # Each half may come from either.
    assert access.from_options({"host": "https://x"}).token == "others"
    assert access.from_options({"api_key": "k"}).host == "https://other"


def test_a_cluster_that_is_given_is_not_verified_as_another_in_the_environment(config, monkeypatch):
    """Where it is switched off there, it stays on here; an authority from there would not know this one."""
    monkeypatch.setenv("K8S_AUTH_SSL_CA_CERT", "~/other.crt")
    monkeypatch.setenv("K8S_AUTH_VERIFY_SSL", "no")
    for options in ({"kubeconfig": str(config)}, {"host": "https://x", "api_key": "k"}):
        found = access.from_options(options)
        assert found.verify
        assert not (found.ca_cert or "").endswith("other.crt")
    monkeypatch.setenv("K8S_AUTH_API_KEY", "others")
    for options in ({}, {"host": "https://x"}):
        monkeypatch.setenv("K8S_AUTH_HOST", "https://other")
        found = access.from_options(options)
        assert (found.verify, found.ca_cert) == (False, str(config.parent / "other.crt"))
    assert access.from_options({"validate_certs": True}).verify
    monkeypatch.setenv("K8S_AUTH_VERIFY_SSL", "True")
    assert access.from_options({}).verify


def test_a_dictionary_with_embedded_credentials():
    data = base64.b64encode(b"PEM").decode()
    found = access.from_options(
        {"kubeconfig": kubeconfig(**{"client-certificate-data": data, "client-key-data": data})}
    )
    assert (found.client_cert_data, found.client_key_data) == (b"PEM", b"PEM")


def test_a_user_by_name_and_password():
    found = access.from_options({"host": "https://x", "username": "u", "password": "p"})
    assert found.headers()["Authorization"] == "Basic " + base64.b64encode(b"u:p").decode()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "neither a kubeconfig nor a host"),
        ({"kubeconfig": "/does/not/exist"}, "/does/not/exist cannot be read"),
        ({"kubeconfig": kubeconfig(), "context": "three"}, "no context 'three'"),
        ({"kubeconfig": {"contexts": []}}, "no context None"),
        ({"kubeconfig": {**kubeconfig(), "clusters": [{"name": "c", "cluster": {}}]}}, "has no server"),
        ({"kubeconfig": kubeconfig(**{"client-key-data": "%%"})}, "not base64"),
        ({"host": "cluster:6443", "api_key": "k"}, "not the address"),
    ],
)
def test_what_is_wrong_with_it(options, said):
    with pytest.raises(access.BadConnection, match=said):
        access.from_options(options)


def test_a_file_that_is_no_yaml(tmp_path):
    path = tmp_path / "config"
    path.write_text("{")
    with pytest.raises(access.BadConnection, match="not valid YAML"):
        access.from_options({"kubeconfig": str(path)})


def test_certificates_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(access.BadConnection, match="certificates for https://x"):
        access.ConnectionConfig("https://x", ca_cert=str(tmp_path / "none")).tls()


def test_a_kubeconfig_that_runs_a_program_is_left_to_the_library(tmp_path):
    script = tmp_path / "token.sh"
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"fresh"}}'
    script.write_text(f"#!/bin/sh\necho '{credential}'\n")
    script.chmod(0o755)
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
    content = kubeconfig(exec=run)
    del content["clusters"][0]["cluster"]["certificate-authority"]
    assert access.from_options({"kubeconfig": content}).token == "fresh"


def test_a_host_alone_takes_the_credentials_of_the_kubeconfig(config, monkeypatch):
    """As with kubernetes.core."""
    monkeypatch.setenv("KUBECONFIG", str(config))
    found = access.from_options({"host": "https://x"})
    assert (found.host, found.token, found.ca_cert) == ("https://x", "secret", str(config.parent / "ca.crt"))
    assert access.from_options({"host": "https://x", "context": "two"}).verify is False


def test_a_host_alone_without_a_kubeconfig_is_an_anonymous_connection():
    assert access.from_options({"host": "https://x"}).headers() == {}


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"username": "u", "password": "p:q"}, "Basic " + base64.b64encode(b"u:p:q").decode()),
        ({"token": "secret"}, "Bearer secret"),
    ],
)
def test_several_files_send_the_header_of_their_user(tmp_path, monkeypatch, user, header):
    whole = kubeconfig(**user)
    for cluster in whole["clusters"]:
        cluster["cluster"].pop("certificate-authority", None)
    parts = {"users": {"users": whole.pop("users")}, "rest": whole}
    for name, part in parts.items():
        (tmp_path / name).write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **part}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'rest'}:{tmp_path / 'users'}")
    assert access.from_options({}).headers()["Authorization"] == header


def test_a_token_that_ends_with_a_newline_is_sent_without_it(config):
    assert access.from_options({"kubeconfig": str(config), "api_key": "mine\n"}).token == "mine"


@pytest.mark.parametrize("token", ["two\nlines", "umläut"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_shown(token):
    """M14: the HTTP library would raise an error with the token in it."""
    with pytest.raises(access.BadConnection, match="cannot be sent in an HTTP header") as caught:
        access.from_options({"host": "https://x", "api_key": token})
    assert token not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@given(data=st.data())
def test_a_kubeconfig_with_odd_values_is_an_error_of_ours_or_works(data):
    """M14: one value of a good kubeconfig is replaced by anything else."""
    content = kubeconfig(**{"token": "t", "username": "u", "password": "p", "client-key-data": "UEVN"})
    places = list(_places(content))
    parent, key = data.draw(st.sampled_from(places))
    parent[key] = data.draw(JSON)
    with contextlib.suppress(access.BadConnection):
        assert isinstance(access.from_options({"kubeconfig": content}).headers(), dict)


def _places(content):
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield content, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


@pytest.mark.parametrize("verify", [True, False])
def test_a_connection_that_sets_up_tls_does_not_disturb_others(verify):
    context = access.ConnectionConfig("https://x", verify=verify).tls()
    # As urllib3 does for each.
    context.set_alpn_protocols(["h2"])
    answers, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(answers, hello, server_hostname="x").do_handshake()
    greeting = hello.read()
    assert b"\x08http/1.1" in greeting
    assert b"\x02h2" not in greeting
