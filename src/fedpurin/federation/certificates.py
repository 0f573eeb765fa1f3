"""The certificates and keys themselves: an authority of our own and what it signs, in private files."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from pathlib import Path

from fedpurin.errors import ConfigError, MissingExtraError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:  # pragma: no cover
    raise MissingExtraError("flower", "a federation") from error

CERTIFICATE_DAYS = 397  # the longest that common TLS stacks accept for a server certificate
CA_DAYS = 3650
LOOPBACK_NAMES = ["localhost", "127.0.0.1"]


def make_authority(folder: Path, names: list[str]) -> None:
    """ca.key and ca.pem, and the two certificates that they sign for a server."""
    ca_key = ec.generate_private_key(ec.SECP384R1())
    ca = _ca_certificate(ca_key)
    write_private(folder / "ca.key", _private_pem(ca_key), replace=False)
    write_private(folder / "ca.pem", _pem(ca), replace=False)
    _sign_both(folder, ca, ca_key, names)


def sign_again(folder: Path, names: list[str]) -> dt.datetime:
    """New certificates for a server by the authority that it has; the day until which they are valid."""
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    ca_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / 'ca.key'} is not the authority's key: restore it from your backup")
    return _sign_both(folder, ca, ca_key, names)


def expiry(certificate: Path) -> dt.datetime:
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def make_node_key() -> tuple[bytes, bytes]:
    """A site's key in the form that Flower asks for: the private and the public half."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public


def make_loopback_certificate(folder: Path) -> None:
    """ca.pem, loopback.pem and loopback.key for processes that talk to each other on this machine."""
    ca_key = ec.generate_private_key(ec.SECP384R1())  # not kept: nothing else is ever signed with it
    ca = _ca_certificate(ca_key)
    write_private(folder / "ca.pem", _pem(ca))
    _sign(folder, "loopback", LOOPBACK_NAMES, ca, ca_key)


def general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not name or len(name) > 253 or any(not (c.isascii() and (c.isalnum() or c in "-.")) for c in name):
        raise ConfigError(f"{name!r} is neither a host name nor an IP address (no port, no https://)")
    return x509.DNSName(name)


def _ca_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedpurin federation authority")])
    return (
        _builder(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )


def _sign_both(
    server: Path, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey, names: list[str]
) -> dt.datetime:
    return min(
        _sign(server, label, subject_names, ca, ca_key)
        for label, subject_names in (("public", names), ("loopback", LOOPBACK_NAMES))
    )


def _sign(
    folder: Path, label: str, names: list[str], ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey
) -> dt.datetime:
    """LABEL.pem and LABEL.key for these names; the day until which they are valid."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fedpurin {label}")])
    certificate = (
        _builder(subject, ca.subject, key.public_key(), CERTIFICATE_DAYS)
        .add_extension(x509.SubjectAlternativeName([general_name(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA384())
    )
    write_private(folder / f"{label}.key", _private_pem(key))
    write_private(folder / f"{label}.pem", _pem(certificate))
    return certificate.not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))  # clocks of sites differ a little
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_private(path: Path, content: bytes, *, replace: bool = True) -> None:
    """A file that nobody else may read, with mode 0600 from the first byte on."""
    target = path.with_name(path.name + ".new") if replace else path
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if replace:
        os.replace(target, path)
