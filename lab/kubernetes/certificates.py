"""Certificates of the lab: one authority for the cluster, one for the aggregation layer, all with EC keys."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.rundir import RunDir, write_atomically

LIFETIME = dt.timedelta(days=3650)
LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class KeyPair:
    cert: Path
    key: Path


def pair(run: RunDir, name: str) -> KeyPair:
    """Return the paths of a certificate and its key, whether or not they exist."""
    return KeyPair(run.pki / f"{name}.crt", run.pki / f"{name}.key")


def authority(run: RunDir, name: str = "ca") -> KeyPair:
    """Return a certificate authority, and create it if it does not exist."""
    files = pair(run, name)
    if files.cert.exists():
        return files
    key = _new_key()
    subject = _name(f"vgpu-fleet-lab-{name}", ())
    builder = (
        _builder(subject, subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write(files, builder.sign(key, hashes.SHA256()), key)
    return files


def server(run: RunDir, name: str, hosts: Iterable[str] = (), *, issuer: str = "ca") -> KeyPair:
    """Create a serving certificate for loopback and the given DNS names or addresses."""
    hosts = list(dict.fromkeys([*LOOPBACK, *hosts]))
    # Servers connect to each other (etcd to itself), so these certificates also serve as client certificates.
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _leaf(run, name, _name(name, ()), usages, issuer=issuer, hosts=hosts)


def client(run: RunDir, name: str, user: str, groups: Sequence[str] = (), *, issuer: str = "ca") -> KeyPair:
    """Create a client certificate. Kubernetes reads the user from CN and the groups from O."""
    return _leaf(run, name, _name(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH], issuer=issuer)


def signing_key(run: RunDir, name: str = "service-account") -> KeyPair:
    """Create a key pair for tokens; `cert` is the public key."""
    files = KeyPair(run.pki / f"{name}.pub", run.pki / f"{name}.key")
    if not files.cert.exists():
        key = _new_key()
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        write_atomically(files.key, _pem(key))
        write_atomically(files.cert, public.decode(), mode=0o644)
    return files


def _leaf(
    run: RunDir,
    name: str,
    subject: x509.Name,
    usages: list[x509.ObjectIdentifier],
    *,
    issuer: str,
    hosts: Sequence[str] = (),
) -> KeyPair:
    signer = authority(run, issuer)
    signer_cert = x509.load_pem_x509_certificate(signer.cert.read_bytes())
    signer_key = serialization.load_pem_private_key(signer.key.read_bytes(), password=None)
    assert isinstance(signer_key, ec.EllipticCurvePrivateKey)
    key = _new_key()
    builder = (
        _builder(subject, signer_cert.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        # Python 3.13 verifies certificates strictly and requires this extension.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_alt_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    files = pair(run, name)
    _write(files, builder.sign(signer_key, hashes.SHA256()), key)
    return files


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str, organizations: Sequence[str]) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, value) for value in organizations]
        + [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    )


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alt_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(files: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    files.key.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(files.key, _pem(key))
    write_atomically(files.cert, certificate.public_bytes(serialization.Encoding.PEM).decode(), mode=0o644)


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    # kube-controller-manager requires EC service account keys in this format; all other programs accept it.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()
