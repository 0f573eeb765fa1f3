"""The certificates and keys themselves: an authority of our own and what it signs, in private files."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from fedpurin.errors import ConfigError, MissingExtraError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:  # pragma: no cover
    raise MissingExtraError("flower", "a federation") from error

from fedpurin.federation.key_files import read_certificate, read_private_key

CERTIFICATE_DAYS = 397  # the longest that common TLS stacks accept for a server certificate
CA_DAYS = 3650
LOOPBACK_NAMES = ["localhost", "127.0.0.1"]


@dataclass(frozen=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls) -> Authority:
        key = ec.generate_private_key(ec.SECP384R1())
        name = _name("federation authority")
        certificate = _builder(name, name, key, CA_DAYS, signs=True).sign(key, hashes.SHA384())
        return cls(certificate, key)

    def sign(self, folder: Path, label: str, names: list[str]) -> dt.datetime:
        """LABEL.pem and LABEL.key for these names; the day until which they are valid."""
        key = ec.generate_private_key(ec.SECP384R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            _builder(_name(label), self.certificate.subject, key, CERTIFICATE_DAYS, signs=False)
            .add_extension(x509.SubjectAlternativeName([general_name(n) for n in names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA384())
        )
        write_private(folder / f"{label}.key", _private_pem(key))
        write_private(folder / f"{label}.pem", _pem(certificate))
        return certificate.not_valid_after_utc

    def sign_both(self, server: Path, names: list[str]) -> dt.datetime:
        return min(self.sign(server, "public", names), self.sign(server, "loopback", LOOPBACK_NAMES))


def make_authority(folder: Path, names: list[str]) -> None:
    """ca.key and ca.pem, and the two certificates that they sign for a server."""
    ca = Authority.new()
    write_private(folder / "ca.key", _private_pem(ca.key), replace=False)
    write_private(folder / "ca.pem", _pem(ca.certificate), replace=False)
    ca.sign_both(folder, names)


def sign_again(folder: Path, names: list[str]) -> dt.datetime:
    """New certificates for a server by the authority that it has; the day until which they are valid."""
    certificate = read_certificate(folder / "ca.pem")
    key = read_private_key(folder / "ca.key")
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(f"{folder / 'ca.key'} is not the authority's key: restore it from your backup")
    return Authority(certificate, key).sign_both(folder, names)


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
    ca = Authority.new()  # its key is not kept: nothing else is ever signed with it
    write_private(folder / "ca.pem", _pem(ca.certificate))
    ca.sign(folder, "loopback", LOOPBACK_NAMES)


def general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not name or len(name) > 253 or any(not (c.isascii() and (c.isalnum() or c in "-.")) for c in name):
        raise ConfigError(f"{name!r} is neither a host name nor an IP address (no port, no https://)")
    return x509.DNSName(name)


def _name(whose: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fedpurin {whose}")])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, *, signs: bool
) -> x509.CertificateBuilder:
    """What is the same in all; `signs`: it is of an authority."""
    now = dt.datetime.now(dt.UTC)
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        **dict.fromkeys((*unused, "encipher_only", "decipher_only"), False),
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))  # clocks of sites differ a little
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
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
