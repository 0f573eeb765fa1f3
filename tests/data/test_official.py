"""The official formats: what is read, and how everything else is refused."""

from __future__ import annotations

import gzip
import os
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fedpurin.data import official as reader
from fedpurin.data.catalog import CIFAR_10, CIFAR_100, FASHION_MNIST, NAMES
from fedpurin.errors import DataError


def test_images_and_labels_come_out_as_they_went_in(tiny, tmp_path):
    tiny.write(tmp_path)
    found = reader.read(tiny.source, tmp_path)
    np.testing.assert_array_equal(found.train_x, tiny.x["train"])
    np.testing.assert_array_equal(found.test_x, tiny.x["test"])
    assert found.train_y.tolist() == [0, 1, 2, 2, 1, 0]
    assert found.test_y.tolist() == [2, 1, 0, 0]
    assert found.train_x.dtype == np.uint8
    assert found.train_y.dtype == np.int64


def test_the_data_directory_may_be_the_folder_itself(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    assert reader.read(tiny.source, folder).train_y.tolist() == tiny.y["train"].tolist()


@pytest.mark.parametrize("prefix", ["", "./"])
def test_an_archive_reads_like_the_unpacked_folder(tiny_cifar, tmp_path, prefix):
    (tmp_path / "tiny.tar.gz").write_bytes(tiny_cifar.archive(prefix, {"tiny-folder/readme.html": b"hello"}))
    found = reader.read(tiny_cifar.source, tmp_path)
    np.testing.assert_array_equal(found.train_x, tiny_cifar.x["train"])
    assert found.train_y.tolist() == tiny_cifar.y["train"].tolist()
    assert found.test_y.tolist() == tiny_cifar.y["test"].tolist()
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.tar.gz"]  # nothing was extracted


def test_an_archive_counts_although_an_empty_folder_is_there(tiny_cifar, tmp_path):
    (tmp_path / "tiny-folder").mkdir()
    (tmp_path / "tiny.tar.gz").write_bytes(tiny_cifar.archive())
    assert reader.read(tiny_cifar.source, tmp_path).test_y.tolist() == tiny_cifar.y["test"].tolist()


def first_file(tiny) -> str:
    return next(iter(tiny.contents))


BROKEN = {
    "missing": (lambda tiny, path: path.unlink(), "is missing"),
    "empty": (lambda tiny, path: path.write_bytes(b""), "holds 0 bytes, expected|cut short"),
    "cut in the middle": (
        lambda tiny, path: path.write_bytes(path.read_bytes()[:-5]),
        r"cut short|holds \d+ bytes, expected",
    ),
    "a text file": (
        lambda tiny, path: path.write_text("not a data set\n"),
        "not a sound gzip file|holds 15 bytes, expected",
    ),
    "a directory": (lambda tiny, path: (path.unlink(), path.mkdir()), "cannot be read"),
    "a pipe": (lambda tiny, path: (path.unlink(), os.mkfifo(path)), "it is a pipe or a device"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_gets_one_line_with_path_and_remedy(tiny, tmp_path, fault):
    path = tiny.write(tmp_path) / first_file(tiny)
    damage, expected = BROKEN[fault]
    damage(tiny, path)
    with pytest.raises(DataError, match=expected) as caught:
        reader.read(tiny.source, tmp_path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "fedpurin data get tiny" in message
    assert "--data-dir" in message
    assert "\n" not in message


def test_a_cut_or_missing_file_of_labels_is_refused(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    path = next(folder / n for n in tiny.contents if "images" not in n)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"cut short|holds \d+ bytes, expected \d+"):
        reader.read(tiny.source, tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        reader.read(tiny.source, tmp_path)


def test_one_changed_pixel_is_noticed(tiny, tmp_path):
    path = tiny.write(tmp_path) / first_file(tiny)
    content = bytearray(tiny.contents[path.name])
    content[-1] ^= 1
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else bytes(content))
    with pytest.raises(DataError, match="not the official file"):
        reader.read(tiny.source, tmp_path)


def test_an_idx_file_of_other_dimensions_is_refused(tiny_idx, tmp_path):
    path = tiny_idx.write(tmp_path) / "train-images.gz"
    content = bytearray(tiny_idx.contents[path.name])
    content[11], content[15] = 3, 2  # height and width exchanged: as many bytes
    path.write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=r"does not start like an idx file of \(6, 2, 3\)"):
        reader.read(tiny_idx.source, tmp_path)


def test_a_label_beyond_the_classes_is_refused(tiny, tmp_path):
    tiny.write(tmp_path)
    source = tiny.with_source(classes=("a", "b")).source  # the files hold label 2
    with pytest.raises(DataError, match="has label 2, expected 0 to 1"):
        reader.read(source, tmp_path)


def test_a_gzip_bomb_costs_no_memory(tiny_idx, tmp_path):
    path = tiny_idx.write(tmp_path) / "train-images.gz"
    path.write_bytes(gzip.compress(bytes(100_000_000)))
    error, peak = refused_with_peak(tiny_idx, tmp_path)
    assert "holds more than 52 bytes" in error  # 16 bytes of header and 6 images of 2x3
    assert peak < 5_000_000


def test_an_archive_bomb_costs_no_memory(tiny_cifar, tmp_path):
    bomb = tiny_cifar.archive(extra={"huge": bytes(30_000_000)})
    (tmp_path / "tiny.tar.gz").write_bytes(bomb)
    error, peak = refused_with_peak(tiny_cifar, tmp_path)
    assert "unpacks to more than the official archive" in error
    assert peak < 5_000_000


@pytest.mark.parametrize(
    "name", ["../evil", "/tmp/evil", "tiny-folder/../../evil", "tiny-folder/../test.bin"]
)
def test_a_member_of_an_archive_chooses_no_path(tiny_cifar, tmp_path, name):
    """Whatever else is in it, only the wanted members are read, into memory; nothing is written."""
    root = tmp_path / "data"
    root.mkdir()
    (root / "tiny.tar.gz").write_bytes(tiny_cifar.archive(extra={name: b"evil"}))
    before = sorted(tmp_path.rglob("*"))
    assert reader.read(tiny_cifar.source, root).train_y.tolist() == tiny_cifar.y["train"].tolist()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_a_member_that_is_no_file_is_refused(tiny_cifar, tmp_path, kind):
    """A link in place of a wanted file must not lead the reader elsewhere."""
    secret = tmp_path / "secret"
    secret.write_bytes(tiny_cifar.contents["test.bin"])
    with tarfile.open(tmp_path / "tiny.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("tiny-folder/test.bin")
        member.type, member.linkname = kind, str(secret)
        tar.addfile(member)
    with pytest.raises(DataError, match=r"test.bin holds 0 bytes"):
        reader.read(tiny_cifar.source, tmp_path)


def refused_with_peak(tiny, root: Path) -> tuple[str, int]:
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            reader.read(tiny.source, root)
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_broken_archive_is_refused(tiny_cifar, tmp_path):
    archive = tmp_path / "tiny.tar.gz"
    whole = tiny_cifar.archive()
    for content, expected in (
        (b"text", "not a sound .tar.gz"),
        (b"", "not a sound .tar.gz"),
        (whole[:-20], "not a sound .tar.gz"),
        (gzip.compress(b"x" * 5000), "not a sound .tar.gz"),
        (tiny_cifar.archive(leave_out="test.bin"), "lacks tiny-folder/test.bin"),
    ):
        archive.write_bytes(content)
        with pytest.raises(DataError, match=expected):
            reader.read(tiny_cifar.source, tmp_path)


def tar_header(name: str, content: bytes, kind: bytes, size: bytes = b"") -> bytes:
    """Header and blocks of one member; a size as it stands in the header is taken for what it is."""
    member = tarfile.TarInfo(name)
    member.size, member.type = len(content), kind
    header = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    if size:
        header[124:136], header[148:156] = size, b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content + bytes(-len(content) % 512)


def pax(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = next(n for n in range(len(body), len(body) + 9) if len(b"%d" % n) + len(body) == n)
    return tar_header("PaxHeader/batch_1.bin", b"%d" % length + body, b"x")


EXTENDED = {
    "a sparse map of letters": pax(b"GNU.sparse.map", b"a,b,c"),
    "a sparse size of letters": pax(b"GNU.sparse.size", b"zz"),
    "a sparse file whose map is its content": pax(b"GNU.sparse.major", b"1") + pax(b"GNU.sparse.minor", b"0"),
    "an old sparse file": tar_header("sparse", bytes(8), b"S"),
    "a chain of long names": tar_header("@LongLink", b"name\0", b"L") * 700,
    "a chain of PAX headers": pax(b"a", b"b") * 700,
    "a header of digits, on which tarfile's pattern spends hours": tar_header("p", b"1" * 300_000, b"x"),
    "a PAX header for all": tar_header("p", b"18 size=999999999\n", b"g"),
}


@pytest.mark.parametrize("form", EXTENDED)
def test_extensions_of_a_tar_header_are_passed_over(tiny_cifar, tmp_path, form):
    sound = gzip.decompress(tiny_cifar.archive())
    (tmp_path / "tiny.tar.gz").write_bytes(gzip.compress(EXTENDED[form] + sound))
    assert reader.read(tiny_cifar.source, tmp_path).test_y.tolist() == tiny_cifar.y["test"].tolist()


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (b"\x80" + b"\x7f" * 11, "unpacks to more than the official archive"),  # no end within years
        ((-1000).to_bytes(12, "big", signed=True), "not a sound .tar.gz|lacks"),
    ],
)
def test_a_member_of_an_impossible_size_is_refused_at_once(tiny_cifar, tmp_path, size, expected):
    content = tar_header("other", b"", b"0", size) + gzip.decompress(tiny_cifar.archive())
    (tmp_path / "tiny.tar.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=expected) as caught:
        reader.read(tiny_cifar.source, tmp_path)
    assert "\n" not in str(caught.value)


def test_an_archive_of_nothing_but_headers_costs_no_memory(tiny_cifar, tmp_path):
    (tmp_path / "tiny.tar.gz").write_bytes(gzip.compress(tar_header("a", b"", b"0") * 1900))
    error, peak = refused_with_peak(tiny_cifar, tmp_path)
    assert "lacks" in error
    assert peak < 400_000, peak


def test_check_names_every_file_and_its_fault(tiny, tmp_path):
    folder = tiny.write(tmp_path)
    assert [c.ok for c in reader.check_source(tiny.source, tmp_path)] == [True] * len(tiny.contents)
    (folder / first_file(tiny)).unlink()
    found = reader.check_source(tiny.source, tmp_path)
    assert [c.ok for c in found] == [False] + [True] * (len(tiny.contents) - 1)
    assert found[0].file == str(folder / first_file(tiny))
    assert "is missing" in found[0].message


def test_check_of_an_archive(tiny_cifar, tmp_path):
    archive = tmp_path / "tiny.tar.gz"
    archive.write_bytes(tiny_cifar.archive())
    assert [c.ok for c in reader.check_source(tiny_cifar.source, tmp_path)] == [True] * 3
    archive.write_bytes(b"no")
    found = reader.check_source(tiny_cifar.source, tmp_path)
    assert [(c.file, c.ok) for c in found] == [(str(archive), False)]


def test_the_argument_goes_before_the_environment_and_that_before_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPURIN_DATA", str(tmp_path / "environment"))
    assert reader.resolve_data_dir(tmp_path / "argument") == tmp_path / "argument"
    assert reader.resolve_data_dir() == tmp_path / "environment"
    monkeypatch.delenv("FEDPURIN_DATA")
    assert "fedpurin" in str(reader.resolve_data_dir())


@pytest.mark.parametrize("folder", ["a" * 5000, "~nobody-of-that-name/data"])
def test_a_data_folder_that_cannot_be_is_one_line(folder):
    for ask in (reader.check, reader.is_present):
        with pytest.raises(DataError, match=r"cannot be the data folder .*; name another with --data-dir"):
            ask("cifar-10", folder)


def test_an_unknown_name_lists_the_accepted_ones():
    with pytest.raises(DataError, match=r"unknown data set 'notes.txt'.*fashion-mnist-mini.*cifar-100"):
        reader.check("notes.txt")


def test_the_table_describes_the_published_sizes():
    # the sizes the authors publish: 60,000 + 10,000 images of 28x28; 50,000 + 10,000 of 3x32x32
    sizes = {s.name: [s.size(f) for f in s.files] for s in (FASHION_MNIST, CIFAR_10, CIFAR_100)}
    assert sizes["fashion-mnist"] == [47040016, 60008, 7840016, 10008]
    assert sizes["cifar-10"] == [30730000] * 6
    assert sizes["cifar-100"] == [153700000, 30740000]


@pytest.mark.parametrize("name", NAMES)
def test_the_official_files_are_recognised(name, official):
    found = reader.check(name, official(name))
    assert [c.message for c in found if not c.ok] == []


def test_a_user_without_a_home_needs_none_for_the_bundled_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(path: str) -> str:
        return path  # as os.path does where neither HOME nor the list of users tells

    monkeypatch.delenv("FEDPURIN_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", nobody)
    assert reader.resolve_data_dir() == Path("fedpurin-data")
    with pytest.raises(DataError, match=r"~/data cannot be the data folder \(Could not determine home"):
        reader.resolve_data_dir("~/data")
