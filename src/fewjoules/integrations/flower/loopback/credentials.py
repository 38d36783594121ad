"""Certificates for TLS on this machine, and the keys by which a SuperLink knows its SuperNodes."""

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 30
HOST = "127.0.0.1"
CERTIFICATE = "ca.pem"
SERVER_CERTIFICATE = "server.pem"
SERVER_KEY = "server.key"


def make_certificates(folder: Path) -> None:
    """Write ``ca.pem``, ``server.pem`` and ``server.key`` for 127.0.0.1 and localhost.

    The key of the certificate authority is written nowhere, so nobody can make further certificates.
    """
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _sign_authority(authority_key)
    server = _sign_server(server_key.public_key(), authority, authority_key)
    (folder / CERTIFICATE).write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (folder / SERVER_CERTIFICATE).write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_private_key(folder / SERVER_KEY, server_key, serialization.PrivateFormat.PKCS8)


def make_node_key(path: Path) -> None:
    """Write a private key in OpenSSH format to ``path``, and the public key beside it with the suffix ``.pub``."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private_key(path, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + b"\n")


def _write_private_key(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    data = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)


def _sign_authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("FewJoules loopback authority")
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    return (
        _certificate(name, name, key.public_key(), key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _sign_server(
    key: ec.EllipticCurvePublicKey, authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))])
    return (
        _certificate(_name("localhost"), authority.subject, key, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, issuer_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
