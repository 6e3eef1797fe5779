from __future__ import annotations

import base64
import json

import pytest
from ansible.module_utils import basic
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.options import connection_spec
from ansible_collections.vgpu.fleet.plugins.module_utils.module import reporting_errors
from ansible_collections.vgpu.fleet.plugins.module_utils.redaction import secrets

KEY = base64.b64encode(b"PLANTED-KEY").decode()
KUBECONFIG = {
    "current-context": "default",
    "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
    "clusters": [
        {
            "name": "default",
            "cluster": {
                "server": "https://harvester.example:6443",
                "certificate-authority-data": "Q0E=",
                "proxy-url": "http://user:PLANTED%2Bproxy@proxy.example",
            },
        }
    ],
    "users": [
        {"name": "default", "user": {"token": "PLANTED-token", "client-key-data": KEY}},
        {"name": "basic", "user": {"username": "admin", "password": "PLANTED-password"}},
        {"name": "number", "user": {"token": 123456789}},
        {
            "name": "provider",
            "user": {"auth-provider": {"name": "oidc", "config": {"client-id": "me", "id-token": "PLANTED-id"}}},
        },
        {
            "name": "program",
            "user": {
                "exec": {
                    "command": "aws",
                    "env": [
                        {"name": "AWS_PROFILE", "value": "default"},
                        {"name": "AWS_SECRET_ACCESS_KEY", "value": "PLANTED-aws"},
                    ],
                }
            },
        },
    ],
}
SECRETS = {
    "PLANTED-token",
    "PLANTED-password",
    "PLANTED-id",
    "PLANTED-aws",
    "PLANTED%2Bproxy",
    "PLANTED+proxy",
    "123456789",
    KEY,
}


def test_only_secret_values_of_a_kubeconfig_are_secrets():
    assert secrets({"kubeconfig": KUBECONFIG}) == SECRETS


@pytest.mark.parametrize("odd", [None, "path", [], 5, {"users": 5}, {"users": [5, {"user": 5}]}, {"clusters": [None]}])
def test_anything_else_has_none(odd):
    assert secrets({"kubeconfig": odd}) == set()


def test_the_password_of_a_proxys_address_is_secret():
    assert secrets({"proxy": "http://user:PLANTED@proxy"}) == {"PLANTED"}
    assert secrets({"proxy": "http://[proxy"}) == set()


@pytest.mark.parametrize("fails", [False, True])
def test_a_kubeconfig_given_as_a_mapping_is_shown_and_logged_without_its_secrets(monkeypatch, capsys, fails):
    """M13: in the result, its invocation and the system log. Names such as `default` stay."""
    monkeypatch.setenv("K8S_AUTH_API_KEY", "PLANTED-variable")
    arguments = {"ANSIBLE_MODULE_ARGS": {"kubeconfig": KUBECONFIG, "_ansible_remote_tmp": "/tmp"}}
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps(arguments).encode())
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    logged: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "log", lambda _self, text, **more: logged.append(f"{text} {more}"))
    module = basic.AnsibleModule(argument_spec=connection_spec())
    ends = module.fail_json if fails else module.exit_json
    with reporting_errors(module), pytest.raises(SystemExit):
        ends(msg="It is over.", namespace="default", said="refused PLANTED-token and PLANTED-variable")
    shown = capsys.readouterr().out
    result = json.loads(shown)
    assert logged
    for secret in {*SECRETS, "PLANTED-variable"}:
        assert secret not in shown
        assert secret not in "".join(logged)
    assert result["namespace"] == "default"
    given = result["invocation"]["module_args"]["kubeconfig"]
    assert given["current-context"] == "default"
    assert given["clusters"][0]["cluster"]["server"] == "https://harvester.example:6443"
