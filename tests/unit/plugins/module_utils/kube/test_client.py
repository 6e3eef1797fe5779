from __future__ import annotations

import sys

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.kube import client as module
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import ApiClient
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.connection import (
    BadConnection,
    ConnectionConfig,
    MissingLibrary,
)

from tests.unit.plugins.module_utils.harvester.server import Page, Server

IN_USE = "device d is in use with VM v in namespace n"
DENIAL = f'admission webhook "pcidevices.harvesterhci.io" denied the request: {IN_USE}'


@pytest.fixture
def serve():
    servers = []

    def start(answer, **access):
        server = Server(answer)
        servers.append(server)
        return server, ApiClient(ConnectionConfig(server.url, **access))

    yield start
    for server in servers:
        server.stop()


def answering(status, content=None):
    return lambda _asked: (status, content if content is not None else {})


def test_a_denial_arrives_as_500_and_is_never_sent_again(serve):
    server, api = serve(answering(500, {"message": DENIAL, "reason": "InternalError"}))
    with pytest.raises(module.AdmissionDenied) as caught:
        api.patch("/x", {"spec": {}})
    assert len(server.asked) == 1
    assert caught.value.text == IN_USE


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (401, {}, module.Unauthorized),
        (403, {"message": 'nodes is forbidden: User "u" cannot list resource "nodes"'}, module.Forbidden),
        (404, {"message": "not found"}, module.NotFound),
        (409, {"message": "the object has been modified"}, module.Conflict),
        (422, {"message": "wrong type"}, module.ApiError),
    ],
)
def test_errors_in_our_words(serve, status, content, error):
    server, api = serve(answering(status, content))
    with pytest.raises(error) as caught:
        api.get("/api/v1/nodes")
    assert len(server.asked) == 1
    if status == 403:
        assert 'cannot list resource "nodes"' in caught.value.message
        assert "ClusterRole" in caught.value.hint


def test_a_busy_server_is_asked_again(serve, monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    answers = [(429, {}), (503, {}), (200, {"fine": True})]
    server, api = serve(lambda _asked: answers.pop(0))
    assert api.get("/x") == {"fine": True}
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_server_in_trouble_is_read_again_and_not_written_to_again(serve, monkeypatch, status):
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    answers = [(status, {"message": "etcd is unhappy"}), (200, {"fine": True})]
    server, api = serve(lambda asked: answers.pop(0) if asked.method == "GET" else (status, {}))
    assert api.get("/x") == {"fine": True}
    assert len(server.asked) == 2
    with pytest.raises(module.ApiError):
        api.patch("/x", {})
    assert len(server.asked) == 3


def test_trouble_that_lasts_is_an_error_in_the_end(serve, monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    server, api = serve(answering(500, {"message": "etcd is unhappy"}))
    with pytest.raises(module.ApiError, match="etcd is unhappy"):
        api.get("/x")
    assert len(server.asked) == 1 + module.RETRIES


def test_a_connection_that_breaks_is_opened_again_even_the_first_one(serve, monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    answers = [None, (200, {"fine": True})]
    server, api = serve(lambda _asked: answers.pop(0))
    assert api.get("/x") == {"fine": True}
    assert len(server.asked) == 2


def test_a_server_that_is_not_there_is_an_error_at_once(serve):
    server, api = serve(answering(200))
    server.stop()
    with pytest.raises(BadConnection, match="cannot be reached"):
        api.get("/x")


def test_each_group_has_a_header_of_its_own_and_patches_are_merge_patches(serve):
    server, api = serve(answering(200), token="t", impersonate_user="me", impersonate_groups=("a", "b"))
    api.patch("/x", {"spec": {"enabled": True}}, dry_run=True)
    (asked,) = server.asked
    assert asked.headers.get_all("Impersonate-Group") == ["a", "b"]
    assert asked.headers["Authorization"] == "Bearer t"
    assert asked.headers["Content-Type"] == "application/merge-patch+json"
    assert asked.path == "/x?dryRun=All"
    assert asked.body == {"spec": {"enabled": True}}


def test_a_deletion_names_the_object_that_was_read(serve):
    server, api = serve(answering(200))
    api.delete("/x", uid="1-2-3", dry_run=True)
    (asked,) = server.asked
    assert (asked.path, asked.body["preconditions"]) == ("/x?dryRun=All", {"uid": "1-2-3"})


def test_a_watch_yields_events_as_they_come(serve):
    events = [{"type": "ADDED", "object": {"n": number}} for number in range(3)]
    _server, api = serve(answering(200, events))
    assert list(api.watch("/x", "5", 10)) == events


def test_an_action_takes_any_answer_and_is_never_repeated_when_the_connection_breaks(serve, monkeypatch):
    server, api = serve(answering(202))
    api.act("/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines/v/restart")
    (asked,) = server.asked
    assert (asked.method, asked.headers["Accept"], asked.body) == ("PUT", "*/*", {})
    sent = []

    def broken(*arguments, **_settings):
        sent.append(arguments)
        raise api._transport_errors("the line went dead")

    monkeypatch.setattr(api._pool, "request", broken)
    with pytest.raises(BadConnection):
        api.act("/x")
    assert len(sent) == 1


def test_an_action_that_is_refused_is_an_error_like_any_other(serve):
    _server, api = serve(answering(409, {"message": "VM is not running"}))
    with pytest.raises(module.Conflict, match="VM is not running"):
        api.act("/x")


HTML = {"Content-Type": "text/html; charset=utf-8"}
LOGIN = {**HTML, "Location": "https://proxy.example/login?session=PLANTED"}


@pytest.mark.parametrize(
    ("status", "page", "said"),
    [
        (200, Page(b"<html>Welcome</html>\n", HTML), "it sent text/html instead of JSON (HTTP 200)"),
        (302, Page(b"<html>Moved</html>", LOGIN), "it redirects to https://proxy.example/login (HTTP 302)"),
        (302, Page(b"", LOGIN), "it redirects to https://proxy.example/login (HTTP 302)"),
        (200, Page(b'["a list"]\n', {}), "it sent no content type instead of JSON"),
        (200, Page(b"\xff\xfe\n", {}), "it sent no content type instead of JSON"),
    ],
)
@pytest.mark.parametrize("watching", [False, True])
def test_an_answer_that_no_api_server_gives_is_told(serve, status, page, said, watching):
    """M14: the wrong port, a login page, a proxy."""
    _, api = serve(answering(status, page))
    with pytest.raises(module.NotKubernetes) as caught:
        list(api.watch("/x", "1", 1)) if watching and page.data else api.get("/api/v1/nodes")
    assert said in caught.value.message
    assert caught.value.code == "not_kubernetes"
    assert "PLANTED" not in str(caught.value)


@pytest.mark.parametrize("content", [["a list"], "text", None])
def test_an_error_without_a_status_object_is_an_error_in_our_words(serve, content):
    _, api = serve(answering(404, Page(module.json.dumps(content).encode(), {})))
    with pytest.raises(module.NotFound):
        api.get("/api/v1/nodes")


@pytest.mark.parametrize(
    ("library", "proxy", "package"),
    [("urllib3", None, "urllib3"), ("socks", "socks5h://127.0.0.1:1080", "PySocks")],
)
def test_a_missing_library_is_named_with_how_to_install_it(monkeypatch, library, proxy, package):
    """M14."""
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "urllib3.contrib.socks", raising=False)
    with pytest.raises(MissingLibrary, match=f"pip install {package}") as caught:
        ApiClient(ConnectionConfig("https://x", verify=False, proxy=proxy))
    assert caught.value.code == "missing_library"


@pytest.mark.parametrize("proxy", ["proxy:3128", "ftp://proxy", "http://user:PLANTED@proxy:port", "//", "http://[::1"])
def test_a_proxy_that_is_none_is_named_without_its_password(proxy):
    with pytest.raises(BadConnection, match="The proxy") as caught:
        ApiClient(ConnectionConfig("http://127.0.0.1:1", proxy=proxy))
    assert "PLANTED" not in str(caught.value)


def test_the_password_of_a_proxys_address_is_sent_to_the_proxy(serve):
    server, _ = serve(answering(200))
    proxy = server.url.replace("http://", "http://user:p%40ss@")
    ApiClient(ConnectionConfig("http://cluster.example", proxy=proxy)).get("/version")
    assert server.asked[0].headers["Proxy-Authorization"] == "Basic dXNlcjpwQHNz"


@pytest.mark.parametrize("access", [ConnectionConfig("http://x", token="two\nPLANTED"), ConnectionConfig("http://[x")])
def test_settings_that_the_http_library_refuses_are_told_without_their_values(access):
    with pytest.raises(BadConnection) as caught:
        ApiClient(access).get("/version")
    assert "PLANTED" not in str(caught.value)
