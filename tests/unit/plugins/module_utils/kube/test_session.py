from __future__ import annotations

import stat

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.kube import connection as access, session

ELSEWHERE = {"K8S_AUTH_HOST": "https://harvester", "K8S_AUTH_API_KEY": "another"}
HERE = {"host": "https://rancher/k8s/clusters/local", "api_key": "PLANTED", "validate_certs": True, "ca_cert": None}
MAPPING = {
    "current-context": "one",
    "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    "clusters": [{"name": "one", "cluster": {"server": "https://guest"}}],
    "users": [{"name": "one", "user": {"token": "PLANTED"}}],
}


@pytest.fixture
def prepared(monkeypatch):
    for variable in access.IDENTITY:
        monkeypatch.delenv(variable, raising=False)

    def prepare(given, environment=None):
        for variable, value in (environment or {}).items():
            monkeypatch.setenv(variable, value)
        reached = access.from_options(given)
        return reached, session.prepare(given, reached, environment or {})

    return prepare


def user_of(content):
    return content["users"][0]["user"]


def test_a_token_goes_into_the_file_and_not_into_the_options(prepared):
    """S1."""
    _, found = prepared(HERE)
    assert found.options == {"validate_certs": True}
    assert user_of(found.content) == {"token": "PLANTED"}
    assert found.content["clusters"][0]["cluster"]["server"] == HERE["host"]


def test_the_file_leads_to_the_same_connection(prepared, tmp_path):
    given = {**HERE, "ca_cert": str(tmp_path / "ca.crt"), "client_cert": "/c", "client_key": "/k"}
    reached, found = prepared(given)
    assert access.from_options({"kubeconfig": found.content}) == reached
    basic = {"host": "https://x", "username": "u", "password": "PLANTED", "validate_certs": False}
    reached, found = prepared(basic)
    assert access.from_options({"kubeconfig": found.content}) == reached


@pytest.mark.parametrize("given", [HERE, {"kubeconfig": MAPPING}])
def test_credentials_of_another_cluster_in_the_environment_are_not_used(prepared, given):
    reached, found = prepared(given, {**ELSEWHERE, "K8S_AUTH_CONTEXT": "another"})
    assert reached.token == "PLANTED"
    assert found.options["host"] == reached.host
    # An empty one keeps kubernetes.core from reading the variable.
    assert found.options["api_key"] == ""
    assert found.options["context"] == found.content["current-context"]


def test_without_secrets_there_is_no_file():
    given = {"kubeconfig": "~/guest.yaml", "context": "one"}
    found = session.prepare(given, access.ConnectionConfig("https://guest"), {})
    assert (found.options, found.content) == (given, None)
    assert session.prepare(given, access.ConnectionConfig("https://guest"), ELSEWHERE).options == {
        **given,
        "host": "https://guest",
        "api_key": "",
    }


@pytest.mark.parametrize("given", [{}, {"context": None}, {"host": "https://harvester"}])
def test_what_is_not_given_is_left_to_the_environment(prepared, given):
    reached, found = prepared(given, ELSEWHERE)
    assert (reached.host, reached.token) == ("https://harvester", "another")
    assert (found.options, found.content) == ({key: value for key, value in given.items() if value}, None)


def test_a_password_in_a_proxys_address_is_not_an_option_either(prepared):
    _, found = prepared({**HERE, "proxy": "http://user:PLANTED@proxy"})
    assert "PLANTED" not in str(found.options)


def test_headers_with_a_password_are_refused(prepared):
    with pytest.raises(access.BadConnection, match="proxy_headers with a password"):
        prepared({**HERE, "proxy_headers": {"proxy_basic_auth": "user:PLANTED", "basic_auth": None}})


def test_the_file_is_for_one_user_only_and_goes_again(tmp_path, monkeypatch):
    monkeypatch.setattr(session.tempfile, "tempdir", str(tmp_path))
    path = session.write({"kind": "Config"})
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    session.remove(path)
    assert list(tmp_path.iterdir()) == []
    session.remove(path)


def test_no_other_file_is_removed(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text("mine")
    with pytest.raises(session.NotASession):
        session.remove(path)
    assert path.exists()
