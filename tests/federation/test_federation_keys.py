"""Keys: private from the first byte, never overwritten, in the forms that Flower and nginx read."""

from __future__ import annotations

import datetime as dt
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedpurin.engines.flower.roster import Roster, node_key_bytes
from fedpurin.errors import ConfigError, EngineError
from fedpurin.federation import certificates, members
from fedpurin.federation import keys as k


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "fed"
    k.make_keys(path, ["fed.example.org", "10.1.2.3"], sites=2, port=9443)
    return path


def test_nobody_else_can_read_any_file(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_site_gets_its_key_the_authority_and_nothing_else(folder: Path) -> None:
    assert sorted(p.name for p in (folder / "site-1").iterdir()) == ["ca.pem", "node.key", "site.toml"]
    site = k.load_site_keys(folder / "site-1")
    assert (site.client, site.server) == (1, "fed.example.org:9443")


def test_node_keys_are_p384_in_openssh_form_and_the_server_has_their_public_half(folder: Path) -> None:
    server = k.load_server_keys(folder)
    for client, public in server.public_keys().items():
        private = serialization.load_ssh_private_key((folder / f"site-{client}/node.key").read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        pem = private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        assert node_key_bytes(public) == pem


def test_certificates_name_the_public_address_and_loopback(folder: Path) -> None:
    def names(file: str) -> list[str]:
        certificate = x509.load_pem_x509_certificate((folder / "server" / file).read_bytes())
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [str(name.value) for name in alternatives]

    assert names("public.pem") == ["fed.example.org", "10.1.2.3"]
    assert names("loopback.pem") == ["localhost", "127.0.0.1"]


def test_existing_keys_are_never_overwritten(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="never overwritten"):
        k.make_keys(folder, ["fed.example.org"], sites=2)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_renewed_certificates_come_from_the_same_authority(tmp_path: Path) -> None:
    k.make_keys(tmp_path / "fed", ["fed.example.org"], sites=1)
    server = tmp_path / "fed" / "server"
    old = (server / "public.pem").read_bytes()
    expiry = k.renew_certificates(server)
    assert (server / "public.pem").read_bytes() != old
    assert expiry > dt.datetime.now(dt.UTC) + dt.timedelta(days=390)
    authority = x509.load_pem_x509_certificate((server / "ca.pem").read_bytes())
    x509.load_pem_x509_certificate((server / "public.pem").read_bytes()).verify_directly_issued_by(authority)
    assert (server / "ca.pem").read_bytes() == (tmp_path / "fed" / "site-0" / "ca.pem").read_bytes()


def test_an_expired_certificate_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "CERTIFICATE_DAYS", 0)
        k.make_keys(tmp_path / "fed", ["fed.example.org"], sites=2)
    with pytest.raises(ConfigError, match=r"expired on .* --renew"):
        k.load_server_keys(tmp_path / "fed")
    k.revoke_site(tmp_path / "fed", 1)  # does not wait for new certificates
    k.renew_certificates(tmp_path / "fed")
    assert list(k.load_server_keys(tmp_path / "fed").public_keys()) == [0]


@pytest.mark.parametrize("name", ["https://fed.example.org", "fed.example.org:8443", "", "a b", "fed/x"])
def test_what_is_no_host_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="neither a host name nor an IP address"):
        k.make_keys(tmp_path / "fed", [name], sites=1)
    assert not (tmp_path / "fed").exists()


@pytest.mark.parametrize(("sites", "port"), [(0, 8443), (1, 0), (1, 70000)])
def test_impossible_numbers_are_refused(tmp_path: Path, sites: int, port: int) -> None:
    with pytest.raises(ConfigError, match=str(sites if sites == 0 else port)):
        k.make_keys(tmp_path / "fed", ["fed.example.org"], sites=sites, port=port)


def test_an_incomplete_folder_is_named(tmp_path: Path) -> None:
    k.make_keys(tmp_path / "fed", ["fed.example.org"], sites=1)
    (tmp_path / "fed/server/node-0000.pub").unlink()
    with pytest.raises(ConfigError, match=r"node-0000\.pub is missing"):
        k.load_server_keys(tmp_path / "fed")
    with pytest.raises(ConfigError, match="is not a site's key folder"):
        k.load_site_keys(tmp_path)


def test_a_node_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    k.make_keys(tmp_path / "fed", ["fed.example.org"], sites=1)
    (tmp_path / "fed/site-0/node.key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        k.load_site_keys(tmp_path / "fed/site-0")


def another(folder: Path) -> Path:
    k.make_keys(folder, ["fed.example.org"], sites=1)
    return folder


DAMAGED = b"-----BEGIN CERTIFICATE-----\nMIIB"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("federation.toml", b"names = 5\nport = 1\nsites = 1", "names = 5, which is not a list of names"),
        ("federation.toml", b"names = []\nport = 1\nsites = 1", r"names = \[\], which is not"),
        ("federation.toml", b'names = ["a"]\nport = "x"\nsites = 1', "port = 'x', which is not a whole"),
        ("federation.toml", b'names = ["a"]\nport = 1\nsites = 9999999999', "sites = 9999999999, which"),
        ("federation.toml", b"\xff", "is damaged"),
        ("ca.pem", DAMAGED, "ca.pem is damaged: it holds no certificate"),
        ("public.pem", DAMAGED, "public.pem is damaged: it holds no certificate"),
        ("public.key", b"", "public.key is damaged: it holds no private key"),
        ("loopback.key", b"\0" * 2**21, "cannot be read .it is larger than"),
        ("node-0000.pub", b"ecdsa-sha2-nistp384 AAAA", "node-0000.pub is damaged: it holds no public key"),
        ("node-first.pub", b"", "named like no client's key"),
        ("node-00000.pub", b"", "named like no client's key"),
    ],
)
def test_a_damaged_file_of_the_server_is_named(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    folder = another(tmp_path / "fed")
    (folder / "server" / name).write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        k.load_server_keys(folder)


def test_files_of_two_federations_are_not_mixed(tmp_path: Path) -> None:
    ours, theirs = another(tmp_path / "ours") / "server", another(tmp_path / "theirs") / "server"
    (ours / "public.key").write_bytes((theirs / "public.key").read_bytes())
    with pytest.raises(ConfigError, match=r"public\.key is not the key of .*public\.pem"):
        k.load_server_keys(ours)
    (ours / "public.pem").write_bytes((theirs / "public.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"public\.pem is not signed by .*ca\.pem"):
        k.load_server_keys(ours)
    (ours / "ca.pem").write_bytes((theirs / "ca.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"ca\.key is not the authority's key"):
        k.renew_certificates(ours)


def test_two_clients_cannot_have_one_key(tmp_path: Path) -> None:
    k.make_keys(tmp_path / "fed", ["fed.example.org"], sites=2)
    server = tmp_path / "fed/server"
    (server / "node-0001.pub").write_bytes((server / "node-0000.pub").read_bytes())
    with pytest.raises(ConfigError, match=r"node-0001\.pub holds the key of client 0, too"):
        k.load_server_keys(server)


def test_a_private_key_of_the_server_that_others_can_read_is_refused(tmp_path: Path) -> None:
    server = another(tmp_path / "fed") / "server"
    (server / "public.key").chmod(0o644)
    with pytest.raises(ConfigError, match=r"public\.key can be read by other accounts: run `chmod 600"):
        k.load_server_keys(server)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("site.toml", b'client = "0"\nserver = "a:1"', "client = '0', which is not a whole number"),
        ("site.toml", b'client = -1\nserver = "a:1"', "client = -1, which is not a whole number"),
        ("site.toml", b"client = 0\nserver = 5", "server = 5, which is not an address"),
        ("node.key", b"-----BEGIN OPENSSH PRIVATE KEY-----\n", "node.key is damaged: it holds no private"),
    ],
)
def test_a_damaged_file_of_a_site_is_named(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    site = another(tmp_path / "fed") / "site-0"
    (site / name).write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        k.load_site_keys(site)


def test_a_pipe_in_a_key_folder_is_not_waited_for(tmp_path: Path) -> None:
    folder = another(tmp_path / "fed")
    for part, name, load in (
        ("server", "ca.pem", k.load_server_keys),
        ("site-0", "site.toml", k.load_site_keys),
    ):
        path = folder / part / name
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(ConfigError, match=r"cannot be read .it is a pipe"):
            load(folder / part)


def test_an_ipv6_server_is_written_in_brackets(tmp_path: Path) -> None:
    k.make_keys(tmp_path / "fed", ["fd00::1"], sites=1)
    assert k.load_site_keys(tmp_path / "fed/site-0").server == "[fd00::1]:8443"


# Membership


@pytest.fixture
def two(tmp_path: Path) -> Path:
    k.make_keys(tmp_path / "fed", ["fed.example.org"], sites=2)
    return tmp_path / "fed"


def roster_of(folder: Path) -> list[int]:
    return sorted(Roster(folder / "server").clients().values())


def test_an_added_site_takes_the_next_client_id(two: Path) -> None:
    site = k.load_site_keys(k.add_site(two))
    assert (site.client, site.folder.name) == (2, "site-2")
    assert roster_of(two) == [0, 1, 2]
    assert k.load_server_keys(two).sites == 3


def test_a_revoked_site_is_no_member_and_its_id_is_not_given_again(two: Path) -> None:
    k.revoke_site(two, 1)
    assert roster_of(two) == [0]
    assert k.load_site_keys(k.add_site(two)).client == 2
    with pytest.raises(ConfigError, match="client 1 is no member; the members are 0, 2"):
        k.revoke_site(two, 1)


def test_a_new_key_replaces_the_old_one_and_overwrites_no_folder(two: Path) -> None:
    before = Roster(two / "server").clients()
    site = k.load_site_keys(k.new_site_key(two, 1))
    after = Roster(two / "server").clients()
    assert (site.client, site.folder.name) == (1, "site-1-2")
    assert sorted(after.values()) == [0, 1]
    assert len(set(before) & set(after)) == 1


def test_a_roster_sees_changes_while_it_is_in_use(two: Path) -> None:
    roster = Roster(two / "server")
    assert sorted(roster.clients().values()) == [0, 1]
    k.revoke_site(two, 0)
    assert sorted(roster.clients().values()) == [1]
    k.add_site(two)
    assert sorted(roster.clients().values()) == [1, 2]


class Link:
    """A SuperLink that is away now and then."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.away, self.known = folder, False, dict[str, str]()  # node -> key

    def call(self, command: list[str], problem: str) -> dict[str, Any]:
        if self.away:
            raise EngineError("Connection to the SuperLink is unavailable")
        nodes = {file: f"node {len(self.known) + i}" for i, file in enumerate(command[4:])}
        self.known |= {node: Path(file).read_text() for file, node in nodes.items()}
        return {"success": True, "nodes": nodes}

    def flwr(self, *arguments: str) -> None:
        assert arguments[:2] == ("supernode", "unregister")
        del self.known[arguments[2]]


def test_flower_is_told_of_members_also_where_it_was_away(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "AGAIN_SECONDS", 0.0)
    link: Any = Link(tmp_path)
    membership = members.Membership(link, k.load_server_keys(two))
    k.add_site(two)
    k.revoke_site(two, 0)
    link.away = True
    (line,) = membership.tend()
    assert "another try in" in line
    link.away = False
    assert membership.tend() == [
        "a new key of client 2 is accepted",
        "an old key of client 0 is refused from now on",
    ]
    assert set(link.known.values()) == {
        file.read_text() for file in k.load_server_keys(two).public_keys().values()
    }
    assert membership.tend() == []
    link.away = True
    with pytest.raises(EngineError):  # a server does not begin without its sites
        members.Membership(link, k.load_server_keys(two))


@pytest.mark.parametrize("content", ["", "[1]", '{"key": 5}', "[" * 100_000])
def test_a_damaged_list_of_nodes_does_not_keep_the_server_from_starting(
    content: str, two: Path, tmp_path: Path
) -> None:
    link: Any = Link(tmp_path)
    (tmp_path / "nodes.json").write_text(content)
    members.Membership(link, k.load_server_keys(two))
    assert json.loads((tmp_path / "nodes.json").read_text()) == {
        key: node for node, key in link.known.items()
    }
