"""Certificates and kubeconfigs."""

from __future__ import annotations

import csv
import socket
import ssl
import threading
from contextlib import suppress

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from lab.errors import LabError
from lab.kubernetes import certificates, kubeconfig
from lab.rundir import RunDir


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path).create()
    run.update(server="https://127.0.0.1:6443")
    return run


def subject(path, attribute) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return [entry.value for entry in certificate.subject.get_attributes_for_oid(attribute)]


def handshake(run: RunDir, server: certificates.KeyPair, client: certificates.KeyPair, hostname: str) -> dict:
    """What the server learns about a client that trusts it, over a real connection."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.authority(run).cert))
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_cert_chain(server.cert, server.key)
    calling = ssl.create_default_context(cafile=str(certificates.authority(run).cert))
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    calling.load_cert_chain(client.cert, client.key)
    left, right = socket.socketpair()
    learnt: dict = {}

    def serve() -> None:
        with suppress(ssl.SSLError), serving.wrap_socket(left, server_side=True) as connection:
            learnt.update(connection.getpeercert() or {})

    thread = threading.Thread(target=serve)
    thread.start()
    with calling.wrap_socket(right, server_hostname=hostname) as connection:
        connection.recv(1)
    thread.join()
    return learnt


@pytest.mark.parametrize("hostname", ["127.0.0.1", "localhost", "virt-api.harvester-system.svc"])
def test_server_and_client_accept_each_other(run, hostname):
    server = certificates.server(run, "virt-api", ["virt-api.harvester-system.svc"])
    client = certificates.client(run, "someone", "lab:someone", ["a", "b"])
    learnt = handshake(run, server, client, hostname)
    assert (("commonName", "lab:someone"),) in learnt["subject"]


def test_another_authority_is_not_trusted(run):
    server = certificates.server(run, "server")
    client = certificates.client(run, "proxy", "proxy", issuer="front-proxy-ca")
    with pytest.raises((ssl.SSLError, OSError)):
        handshake(run, server, client, "localhost")


def test_groups_are_organizations(run):
    client = certificates.client(run, "admin", "lab:admin", ["system:masters", "others"])
    assert subject(client.cert, NameOID.COMMON_NAME) == ["lab:admin"]
    assert subject(client.cert, NameOID.ORGANIZATION_NAME) == ["system:masters", "others"]


def test_the_authority_is_made_once(run):
    first = certificates.authority(run).cert.read_bytes()
    assert certificates.authority(run).cert.read_bytes() == first


def test_keys_are_readable_by_their_owner_only(run):
    assert certificates.client(run, "admin", "lab:admin").key.stat().st_mode & 0o077 == 0
    assert kubeconfig.issue(run, "admin", "lab:admin").stat().st_mode & 0o077 == 0


def test_a_certificate_kubeconfig_names_server_user_and_namespace(run):
    config = yaml.safe_load(kubeconfig.issue(run, "dev", "lab:dev", ["devs"], namespace="team").read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert config["contexts"][0]["context"]["namespace"] == "team"
    assert config["users"][0]["user"]["client-certificate"].endswith("client-dev.crt")


def test_a_user_name_too_long_for_a_certificate_is_refused(run):
    with pytest.raises(LabError, match="does not fit"):
        kubeconfig.issue(run, "long", "u" * 65)


def test_all_users_have_kubeconfigs_and_token_users_stand_in_the_token_file(run):
    kubeconfig.issue_all(run)
    for name in ("admin", "pcidevices", "harvester", "virt-handler", "viewer", "nobody", "expired"):
        assert run.kubeconfig(name).exists()
    with kubeconfig.token_file(run).open(newline="") as file:
        users = {row[1]: row for row in csv.reader(file)}
    assert users["lab:viewer"][3] == ""
    pcidevices = "system:serviceaccount:harvester-system:harvester-pcidevices-controller"
    assert users[pcidevices][3] == "system:masters"


def test_the_expired_token_is_in_no_file(run):
    kubeconfig.issue_all(run)
    token = yaml.safe_load(run.kubeconfig("expired").read_text())["users"][0]["user"]["token"]
    assert token not in kubeconfig.token_file(run).read_text()


def test_issuing_a_token_again_keeps_it(run):
    first = kubeconfig.issue_token_user(run, "viewer", "lab:viewer").read_text()
    assert kubeconfig.issue_token_user(run, "viewer", "lab:viewer").read_text() == first
    assert len(kubeconfig.token_file(run).read_text().splitlines()) == 1
