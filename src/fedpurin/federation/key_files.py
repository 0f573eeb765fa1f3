"""The files of a key folder, whoever may have written them: an error names the file and the remedy."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from fedpurin.errors import ConfigError
from fedpurin.files import read_bounded
from fedpurin.shell import command

LARGEST = 2**20  # bytes; those that fedpurin writes have a few thousand
RESTORE = "restore it from your backup, or make new keys"
T = TypeVar("T")

Check = Callable[[Any], bool]


def read_table(path: Path, what: str, needed: dict[str, tuple[str, Check]]) -> dict[str, Any]:
    """A TOML file with these entries: what each has to be, in words and as a question."""
    try:
        table = tomllib.loads(read_bounded(path, LARGEST).decode())
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{path.parent} is not {what} ({path.name} is missing); `fedpurin federation keys` writes one"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): {RESTORE}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}): restore it from your backup") from None
    for key, (kind, fits) in needed.items():
        if key not in table:
            raise ConfigError(f"{path} lacks the entry {key!r}: restore it from your backup")
        if not fits(table[key]):
            raise ConfigError(
                f"{path} is damaged ({key} = {table[key]!r:.80}, which is not {kind}): {RESTORE}"
            )
    return table


def read_certificate(path: Path) -> x509.Certificate:
    return _parsed(path, "certificate", x509.load_pem_x509_certificate)


def read_private_key(path: Path) -> Any:
    """Of the authority or of a certificate."""
    return _parsed(path, "private key", lambda data: serialization.load_pem_private_key(data, None))


def read_node_key(path: Path) -> Any:
    """Of a site, in the form that Flower asks for."""
    return _parsed(path, "private key", lambda data: serialization.load_ssh_private_key(data, None))


def _parsed(path: Path, what: str, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(read_bounded(path, LARGEST))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): {RESTORE}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{path} is damaged: it holds no {what}; {RESTORE}") from None


def check_pair(certificate: Path, key: Path, authority: Path) -> x509.Certificate:
    """A certificate of this authority, and the private key that belongs to it."""
    found = read_certificate(certificate)
    if found.public_key() != read_private_key(key).public_key():
        raise ConfigError(
            f"{key} is not the key of {certificate}: restore both from one backup, or run "
            f"`{command('federation', 'keys', certificate.parent.parent, '--renew')}`"
        )
    try:
        found.verify_directly_issued_by(read_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        raise ConfigError(
            f"{certificate} is not signed by {authority}: files of two federations are mixed; "
            "restore the folder from your backup, or make new keys"
        ) from None
    return found


def check_private(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} can be read by other accounts: run `chmod 600 {path}`")
