"""Certificates and keys of one federation.

    FOLDER/server/   stays on the server: ca.pem ca.key public.pem public.key loopback.pem loopback.key
                     federation.toml, and node-0000.pub ... (what the server knows of its sites)
    FOLDER/site-0/   goes to the first site, over a safe channel, and then away: ca.pem node.key site.toml
    FOLDER/site-1/   ...

A small certificate authority of our own signs two certificates: `public` for the address that sites
connect to, and `loopback` for the way between nginx and the SuperLink. A site proves who it is with its
node key (ECDSA on P-384, the form that Flower asks for); the server knows which client id belongs to
which key, so no site can speak for another.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedpurin.errors import ConfigError, MissingExtraError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    from fedpurin.engines.flower.roster import member_key, members
except ImportError as error:  # pragma: no cover
    raise MissingExtraError("flower", "a federation") from error

CERTIFICATE_DAYS = 397  # the longest that common TLS stacks accept for a server certificate
CA_DAYS = 3650
LOOPBACK_NAMES = ["localhost", "127.0.0.1"]


@dataclass(frozen=True)
class ServerKeys:
    """The server's folder, checked."""

    folder: Path
    names: list[str]  # public names and addresses, the first of which sites connect to
    port: int
    sites: int  # that have ever been given a key

    def path(self, name: str) -> Path:
        return self.folder / name

    def public_keys(self) -> dict[int, Path]:
        """Of all members now, by client."""
        return members(self.folder)


@dataclass(frozen=True)
class SiteKeys:
    """One site's folder, checked."""

    folder: Path
    client: int
    server: str  # host:port

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def node_key(self) -> Path:
        return self.folder / "node.key"


def make_keys(folder: Path, names: list[str], sites: int, port: int = 8443) -> list[Path]:
    """Write a new key folder and return the site folders. Never overwrites anything."""
    if sites < 1:
        raise ConfigError(f"a federation needs at least 1 site, not {sites}")
    if not names:
        raise ConfigError(
            "name at least one address of the server, as sites will type it: --name fed.example.org"
        )
    if not 0 < port < 65536:
        raise ConfigError(f"port {port} is not between 1 and 65535")
    for name in names:
        _general_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not empty: keys are never overwritten, name a new folder")
    server = folder / "server"
    for path in (folder, server):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    ca_key = ec.generate_private_key(ec.SECP384R1())
    ca = _ca_certificate(ca_key)
    _write(server / "ca.key", _private_pem(ca_key))
    _write(server / "ca.pem", _pem(ca))
    _sign_server_certificates(server, ca, ca_key, names)
    keys = ServerKeys(server, names, port, 0)
    made = [_make_site(keys, client) for client in range(sites)]
    _note_sites(keys, sites)
    return made


def _note_sites(keys: ServerKeys, sites: int) -> None:
    about = {"names": keys.names, "port": keys.port, "sites": sites}
    _write(keys.path("federation.toml"), tomli_w.dumps(about).encode(), replace=True)


def _make_site(keys: ServerKeys, client: int) -> Path:
    """A new key for a client: its folder to hand over, and what the server keeps of it."""
    site = _free_folder(keys.folder.parent / f"site-{client}")
    site.mkdir(mode=0o700)
    node_key = ec.generate_private_key(ec.SECP384R1())
    _write(site / "node.key", _ssh_private(node_key))
    _write(site / "ca.pem", keys.path("ca.pem").read_bytes())
    about = {"client": client, "server": f"{_bracketed(keys.names[0])}:{keys.port}"}
    _write(site / "site.toml", tomli_w.dumps(about).encode())
    _write(keys.path(member_key(client)), _ssh_public(node_key), replace=True)
    return site


def _free_folder(path: Path) -> Path:
    """A folder that was not handed over yet is never overwritten."""
    names = [path, *(path.with_name(f"{path.name}-{number}") for number in range(2, 1000))]
    return next(name for name in names if not name.exists())


def add_site(folder: Path) -> Path:
    """A folder for one more site, which takes the next client id; a server at work lets it in."""
    keys = load_server_keys(folder)
    site = _make_site(keys, keys.sites)
    _note_sites(keys, keys.sites + 1)
    return site


def revoke_site(folder: Path, client: int) -> None:
    """Refuse a site's key from now on."""
    path = _member(load_server_keys(folder), client)
    os.replace(path, path.with_suffix(".revoked"))


def new_site_key(folder: Path, client: int) -> Path:
    """A new key for a site, in a new folder to hand over; the old key is refused from now on."""
    keys = load_server_keys(folder)
    _member(keys, client)
    return _make_site(keys, client)


def _member(keys: ServerKeys, client: int) -> Path:
    found = keys.public_keys()
    if client not in found:
        raise ConfigError(
            f"client {client} is no member; the members are {', '.join(map(str, found)) or 'none'}"
        )
    return found[client]


def make_loopback_certificate(folder: Path) -> None:
    """ca.pem, loopback.pem and loopback.key for processes that talk to each other on this machine."""
    ca_key = ec.generate_private_key(ec.SECP384R1())  # not kept: nothing else is ever signed with it
    ca = _ca_certificate(ca_key)
    _write(folder / "ca.pem", _pem(ca), replace=True)
    _sign(folder, "loopback", LOOPBACK_NAMES, ca, ca_key)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that nobody else may read."""
    _write(path, content, replace=True)


def renew_certificates(server: Path) -> dt.datetime:
    """Sign new server certificates with the same authority; sites need nothing new. Returns the expiry."""
    keys = load_server_keys(server)
    ca = x509.load_pem_x509_certificate(keys.path("ca.pem").read_bytes())
    ca_key = serialization.load_pem_private_key(keys.path("ca.key").read_bytes(), password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{keys.path('ca.key')} is not the authority's key: restore it from your backup")
    return _sign_server_certificates(server, ca, ca_key, keys.names)


def load_server_keys(folder: Path) -> ServerKeys:
    """Read and check the server's folder; also accepts the folder above it."""
    if not (folder / "federation.toml").exists() and (folder / "server").is_dir():
        folder = folder / "server"
    about = _read_toml(folder / "federation.toml", "the server's key folder", ("names", "port", "sites"))
    keys = ServerKeys(folder, list(about["names"]), int(about["port"]), int(about["sites"]))
    needed = ["ca.pem", "public.pem", "public.key", "loopback.pem", "loopback.key"]
    needed += [
        member_key(client)
        for client in range(keys.sites)
        if not (folder / member_key(client)).with_suffix(".revoked").exists()
    ]
    for path in [folder / name for name in needed]:
        if not path.exists():
            raise ConfigError(f"{path} is missing: restore the key folder from your backup or make new keys")
    for name in ("public.pem", "loopback.pem"):
        certificate = x509.load_pem_x509_certificate(keys.path(name).read_bytes())
        if certificate.not_valid_after_utc < dt.datetime.now(dt.UTC):
            raise ConfigError(
                f"{keys.path(name)} expired on {certificate.not_valid_after_utc:%Y-%m-%d}: "
                f"run `fedpurin federation keys {folder.parent} --renew`"
            )
    return keys


def load_site_keys(folder: Path) -> SiteKeys:
    """Read and check the folder that a site was given."""
    about = _read_toml(folder / "site.toml", "a site's key folder", ("client", "server"))
    keys = SiteKeys(folder, int(about["client"]), str(about["server"]))
    for path in (keys.ca, keys.node_key):
        if not path.exists():
            raise ConfigError(f"{path} is missing: ask the server's operator for the whole site folder again")
    if keys.node_key.stat().st_mode & 0o077:
        raise ConfigError(f"{keys.node_key} can be read by other accounts: run `chmod 600 {keys.node_key}`")
    return keys


# Details


def _read_toml(path: Path, what: str, needed: tuple[str, ...]) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(
            f"{path.parent} is not {what} ({path.name} is missing); `fedpurin federation keys` writes one"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is damaged ({error}): restore it from your backup") from None
    for key in needed:
        if key not in table:
            raise ConfigError(f"{path} lacks the entry {key!r}: restore it from your backup")
    return table


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _general_name(name: str) -> x509.GeneralName:
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


def _sign_server_certificates(
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
        .add_extension(x509.SubjectAlternativeName([_general_name(n) for n in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA384())
    )
    _write(folder / f"{label}.key", _private_pem(key), replace=True)
    _write(folder / f"{label}.pem", _pem(certificate), replace=True)
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


def _ssh_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )


def _ssh_public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)


def _write(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write with mode 0600 from the first byte on. A file in place is only replaced when asked."""
    target = path.with_name(path.name + ".new") if replace else path
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if replace:
        os.replace(target, path)
