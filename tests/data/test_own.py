"""A site's own data: .npz files, folders of images, functions."""

from __future__ import annotations

import io
import os
import stat
import struct
import sys
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedpurin import memory
from fedpurin.data import clients, load_own
from fedpurin.data.own import divide
from fedpurin.errors import DataError

X = np.arange(20 * 4 * 4, dtype=np.uint8).reshape(20, 1, 4, 4)
Y = np.arange(20) % 2


# --- .npz -------------------------------------------------------------------------------------------------


def test_an_npz_with_both_splits_is_taken_as_it_is(tmp_path):
    np.savez(tmp_path / "site.npz", x_train=X[:15], y_train=Y[:15], x_test=X[15:], y_test=Y[15:])
    train_x, train_y, test_x, test_y = load_own(str(tmp_path / "site.npz"))
    assert torch.equal(train_x, torch.from_numpy(X[:15]))
    assert train_y.tolist() == Y[:15].tolist()
    assert torch.equal(test_x, torch.from_numpy(X[15:]))
    assert test_y.tolist() == Y[15:].tolist()


def test_an_npz_with_x_and_y_is_divided_four_to_one_in_every_class(tmp_path):
    np.savez_compressed(tmp_path / "site.npz", x=X, y=Y)
    train_x, train_y, test_x, test_y = load_own(str(tmp_path / "site.npz"))
    assert torch.bincount(train_y).tolist() == [8, 8]
    assert torch.bincount(test_y).tolist() == [2, 2]
    together = torch.cat([train_x, test_x]).flatten(1)
    assert sorted(together.tolist()) == sorted(X.reshape(20, -1).tolist())  # every sample once
    assert all(
        torch.equal(a, b)
        for a, b in zip(load_own(str(tmp_path / "site.npz"))[::2], (train_x, test_x), strict=True)
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_few_samples_still_leave_one_for_each_side(n):
    train_x, _, test_x, _ = divide(X[:n], Y[:n], "site")
    assert (len(train_x), len(test_x)) == (n - 1, 1)


def test_one_sample_cannot_be_divided():
    with pytest.raises(DataError, match=r"site has 1 sample\(s\)"):
        divide(X[:1], Y[:1], "site")


def test_a_site_may_have_one_class_only(tmp_path):
    np.savez(tmp_path / "site.npz", x=X, y=np.full(20, 3))
    assert set(load_own(str(tmp_path / "site.npz"), num_classes=4)[1].tolist()) == {3}


def broken_npz(path: Path, fault: str) -> None:
    np.savez(path, x=X, y=Y)
    if fault == "text":
        path.write_text("a, b, c\n")
    elif fault == "empty":
        path.write_bytes(b"")
    elif fault == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif fault == "flipped":
        content = bytearray(path.read_bytes())
        content[200] ^= 0xFF
        path.write_bytes(bytes(content))
    elif fault == "objects":
        np.savez(path, x=np.array([{}, {}], object), y=Y)
    elif fault == "names":
        np.savez(path, images=X, labels=Y)
    elif fault == "npy":
        with path.open("wb") as file:
            np.save(file, X)
    elif fault == "missing":
        path.unlink()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("text", "is not an .npz file"),
        ("empty", "is not an .npz file"),
        ("npy", "is not an .npz file"),
        ("cut", "is not an .npz file"),
        ("flipped", "cannot be read"),
        ("objects", "cannot be read .*plain arrays"),
        ("names", "has the arrays images, labels; expected x_train, y_train, x_test, y_test, or x, y"),
        ("missing", "is missing"),
    ],
)
def test_another_file_is_refused(tmp_path, fault, expected):
    path = tmp_path / "site.npz"
    broken_npz(path, fault)
    with pytest.raises(DataError, match=expected) as caught:
        load_own(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_npz_is_refused_however_it_is_packed(tmp_path, packing):
    path = tmp_path / "site.npz"
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, array in {"x": X, "y": Y}.items():
            with file.open(f"{name}.npy", "w") as member:
                np.save(member, array)
    assert len(load_own(str(path))[0]) == 16
    content = bytearray(path.read_bytes())
    content[80:100] = b"\xff" * 20
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"site\.npz cannot be read"):
        load_own(str(path))


@pytest.mark.parametrize("names", [("x", "y"), ("x_train", "y_train", "x_test", "y_test")])
def test_an_npz_that_unpacks_to_more_than_the_memory_is_refused_before_it_is_unpacked(
    tmp_path, monkeypatch, names
):
    bomb = np.zeros((4096, 1, 64, 64), np.uint8)  # 16 MiB, packed to 16 KiB
    np.savez_compressed(
        tmp_path / "site.npz", **{n: bomb if n[0] == "x" else np.zeros(4096, int) for n in names}
    )
    free = tmp_path / "meminfo"
    free.write_text("MemTotal: 99999999 kB\nMemAvailable:      8192 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", free)
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", None)  # nothing is unpacked
    with pytest.raises(DataError, match=r"site.npz takes 0.0 GiB of memory to read, 0.0 GiB are free"):
        load_own(str(tmp_path / "site.npz"))


def test_the_limit_of_a_container_counts_where_it_is_below_what_is_free(tmp_path, monkeypatch):
    one, other = tmp_path / "memory.max", tmp_path / "limit"
    monkeypatch.setattr(memory, "LIMITS", (one, other))
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "missing")
    assert memory.available_memory() == float("inf")
    one.write_text("max\n")
    other.write_text("1048576\n")
    assert memory.available_memory() == 2**20


@pytest.mark.parametrize("place", ["site.npz", "site"])
def test_a_pipe_is_no_data_set_and_not_waited_for(tmp_path, place):
    os.mkfifo(tmp_path / place)
    for read in (lambda: load_own(str(tmp_path / place)), lambda: clients([tmp_path / place])):
        with pytest.raises(DataError, match=r"cannot be read \(it is a pipe or a device"):
            read()
    (tmp_path / place).unlink()
    (tmp_path / place).symlink_to(place)
    with pytest.raises(DataError, match=r"cannot be read \(.*[Ss]ymbolic links|does not exist"):
        load_own(str(tmp_path / place))


def test_a_text_file_is_no_data_set(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"notes\.txt is not an \.npz file"):
        load_own(str(tmp_path / "notes.txt"))


def test_a_path_that_is_not_there_lists_the_forms():
    with pytest.raises(
        DataError, match=r"does not exist; give an \.npz file, a folder of images, or package"
    ):
        load_own("/nowhere/at/all")


# --- what the federation agreed on ------------------------------------------------------------------------


def test_labels_and_shapes_beyond_the_agreement_are_refused(tmp_path):
    path = str(tmp_path / "site.npz")
    np.savez(path, x=X, y=Y + 1)
    with pytest.raises(DataError, match="label 2 found, but there are 2 classes"):
        load_own(path, num_classes=2)
    with pytest.raises(DataError, match=r"samples of shape \[1, 4, 4\], but the federation uses \[3, 4, 4\]"):
        load_own(path, shape=(3, 4, 4))


def test_features_take_the_agreed_shape(tmp_path):
    path = str(tmp_path / "site.npz")
    np.savez(path, x=np.random.RandomState(0).rand(20, 7), y=Y)
    assert load_own(path)[0].shape == (16, 7)
    assert load_own(path, shape=(7,))[0].shape == (16, 7)
    assert load_own(path, shape=(1, 1, 7))[0].shape == (16, 1, 1, 7)


# --- folders of images ------------------------------------------------------------------------------------


def paint(path: Path, colour, size=(6, 5), mode="RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


@pytest.fixture
def folder(tmp_path):
    """Five red cats and five green dogs, 6 wide and 5 high."""
    for i in range(5):
        paint(tmp_path / "dog" / f"{i}.png", (0, 100 + i, 0))
        paint(tmp_path / "cat" / f"{i}.PNG", (100 + i, 0, 0))
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    return tmp_path


def test_folders_are_classes_in_the_order_of_their_names(folder):
    train_x, train_y, test_x, test_y = load_own(str(folder))
    assert train_x.shape == (8, 3, 5, 6)
    assert train_x.dtype == torch.uint8
    assert torch.bincount(train_y).tolist() == [4, 4]
    assert torch.bincount(test_y).tolist() == [1, 1]
    for x, y in ((train_x, train_y), (test_x, test_y)):
        assert (x[y == 0, 0] >= 100).all()  # cats are red
        assert (x[y == 1, 1] >= 100).all()


def test_the_order_of_classes_can_be_given(folder):
    train_x, train_y, _, _ = load_own(str(folder), classes=["dog", "bird", "cat"])
    assert set(train_y.tolist()) == {0, 2}
    assert (train_x[train_y == 0, 1] >= 100).all()
    with pytest.raises(DataError, match="has folders dog, which are no classes; accepted: cat, bird"):
        load_own(str(folder), classes=["cat", "bird"])


def test_folders_train_and_test_are_taken_as_they_are(tmp_path):
    paint(tmp_path / "train" / "cat" / "1.png", 10, mode="L")
    paint(tmp_path / "train" / "dog" / "2.jpg", 200, mode="L")
    paint(tmp_path / "test" / "dog" / "3.png", 90, mode="L")
    train_x, train_y, test_x, test_y = load_own(str(tmp_path))
    assert train_x.shape == (2, 1, 5, 6)  # all grey: one channel
    assert (train_y.tolist(), test_y.tolist()) == ([0, 1], [1])
    assert (test_x == 90).all()
    assert load_own(str(tmp_path), shape=(3, 5, 6))[0].shape == (2, 3, 5, 6)  # unless colour was agreed


@pytest.mark.parametrize("place", ["cat/0.png", "dog/9.png"])
def test_a_grey_image_among_coloured_ones_becomes_coloured(folder, place):
    paint(folder / place, 120, mode="L")  # the first image of all, or the last
    assert load_own(str(folder))[0].shape[1:] == (3, 5, 6)


def test_images_of_two_sizes_are_refused(folder):
    paint(folder / "dog" / "big.png", 0, size=(7, 5))
    with pytest.raises(DataError, match=r"big\.png is 7x5, but 0\.PNG is 6x5; bring all images to one size"):
        load_own(str(folder))


def test_a_broken_image_is_named(folder):
    good = (folder / "dog" / "1.png").read_bytes()
    for content, expected in (
        (b"text", r"1\.png is not an image"),
        (good[: len(good) // 2], r"1\.png is (damaged|not an image)"),
    ):
        (folder / "dog" / "1.png").write_bytes(content)
        with pytest.raises(DataError, match=expected):
            load_own(str(folder))


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 5\n%%EndComments\nshowpage\n%%EOF\n"


def test_a_file_of_another_format_is_no_image_whatever_its_name(folder, monkeypatch):
    """Pillow hands PostScript to a program, `gs`, whatever the file is called."""
    ran = folder / "ran"
    program = folder / ".bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    tiff = io.BytesIO()
    Image.new("RGB", (6, 5)).save(tiff, "TIFF")
    for content in (POSTSCRIPT, tiff.getvalue()):
        (folder / "dog" / "1.png").write_bytes(content)
        for read in (lambda: load_own(str(folder)), lambda: clients({"a": folder})):
            with pytest.raises(DataError, match=r"1\.png is not an image in PNG or JPEG format; convert"):
                read()
    assert not ran.exists()


def png_header(width: int, height: int) -> bytes:
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", size), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    packed = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


@pytest.mark.parametrize("side", [13_000, 60_000])  # of the smaller one Pillow only warns
def test_an_image_of_too_many_pixels_is_refused_before_they_are_unpacked(folder, side):
    for file in [*folder.glob("cat/*.PNG"), *folder.glob("dog/*.png")]:
        file.write_bytes(png_header(side, side))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match=r"0\.PNG is too large an image \(Image size .*; make it smaller"):
            load_own(str(folder))


def test_images_that_do_not_fit_into_memory_together_are_refused(folder, monkeypatch):
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", refuse)
    with pytest.raises(DataError, match=r"10 images of 6x5, as .*0\.PNG, do not fit into memory"):
        load_own(str(folder))


def test_an_image_that_is_no_file_is_named_and_not_waited_for(folder):
    place = folder / "dog" / "pipe.png"
    os.mkfifo(place)
    with pytest.raises(DataError, match=r"pipe\.png is not an image .*it is a pipe or a device"):
        load_own(str(folder))
    place.unlink()
    place.symlink_to(place)
    with pytest.raises(DataError, match=r"pipe\.png is not an image .*[Ss]ymbolic links"):
        load_own(str(folder))
    place.unlink()
    (folder / "dog" / "again").symlink_to(folder)  # folders within a class are not looked into
    assert len(load_own(str(folder))[0]) == 8


def test_folders_without_images_are_refused(tmp_path):
    with pytest.raises(DataError, match="has no images; expected folders named by class"):
        load_own(str(tmp_path))
    paint(tmp_path / "train" / "cat" / "1.png", 0)
    (tmp_path / "test").mkdir()
    with pytest.raises(DataError, match="test has no images"):
        load_own(str(tmp_path))


def test_without_pillow_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "fedpurin.data.folders", raising=False)
    from fedpurin.errors import MissingExtraError

    with pytest.raises(MissingExtraError, match=r"pip install 'fedpurin\[images\]'"):
        load_own(str(folder))


# --- functions --------------------------------------------------------------------------------------------


def test_a_function_gives_the_data_of_a_site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_site_for_tests", raising=False)
    Path("own_site_for_tests.py").write_text(
        "import numpy as np\n"
        "def make():\n    return np.zeros((4, 8, 8, 3)), [0, 1, 1, 0], np.zeros((2, 8, 8, 3)), [1, 0]\n"
        "def wrong():\n    return 1, 2\n"
    )
    train_x, train_y, _, test_y = load_own("own_site_for_tests:make")
    assert train_x.shape == (4, 3, 8, 8)
    assert (train_y.tolist(), test_y.tolist()) == ([0, 1, 1, 0], [1, 0])
    with pytest.raises(DataError, match="own_site_for_tests:wrong gave tuple"):
        load_own("own_site_for_tests:wrong")
