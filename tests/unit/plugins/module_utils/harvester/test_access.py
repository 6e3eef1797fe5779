from __future__ import annotations

import base64
import ssl

import pytest
import yaml
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import access


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
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_file_with_paths_beside_it(config):
    found = access.from_options({"kubeconfig": str(config)})
    assert (found.host, found.token, found.verify) == ("https://c:6443", "secret", True)
    assert found.ca_cert == str(config.parent / "ca.crt")
    assert found.headers() == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(found)


def test_another_context_and_options_on_top(config):
    found = access.from_options({"kubeconfig": str(config), "context": "two", "api_key": "mine"})
    assert (found.host, found.token, found.verify) == ("https://d:6443", "mine", False)


def test_host_and_key_are_enough_and_come_before_any_file(config, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(config))
    found = access.from_options({"host": "https://x", "api_key": "k", "kubeconfig": str(config)})
    assert (found.host, found.token, found.ca_cert) == ("https://x", "k", None)
    assert access.from_options({}).host == "https://c:6443"


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
        access.Access("https://x", ca_cert=str(tmp_path / "none")).tls()


def test_a_kubeconfig_that_runs_a_program_is_left_to_the_library(tmp_path):
    script = tmp_path / "token.sh"
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"fresh"}}'
    script.write_text(f"#!/bin/sh\necho '{credential}'\n")
    script.chmod(0o755)
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
    content = kubeconfig(exec=run)
    del content["clusters"][0]["cluster"]["certificate-authority"]
    assert access.from_options({"kubeconfig": content}).token == "fresh"


@pytest.mark.parametrize("verify", [True, False])
def test_a_connection_that_sets_up_tls_does_not_disturb_others(verify):
    context = access.Access("https://x", verify=verify).tls()
    # As urllib3 does for each.
    context.set_alpn_protocols(["h2"])
    answers, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(answers, hello, server_hostname="x").do_handshake()
    greeting = hello.read()
    assert b"\x08http/1.1" in greeting
    assert b"\x02h2" not in greeting
