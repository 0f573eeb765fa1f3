"""Data sets by name, the bundled sample, and what a user's own function may return."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpurin.data import DEFAULT, NAMES, Dataset, load
from fedpurin.data.catalog import MINI
from fedpurin.errors import DataError


@pytest.fixture(scope="module")
def mini() -> Dataset:
    return load(DEFAULT)


def test_the_bundled_sample_is_balanced_and_needs_no_data_directory(mini, monkeypatch):
    monkeypatch.setenv("FEDPURIN_DATA", "/nowhere")
    again = load("fashion-mnist-mini")
    assert torch.equal(again.train_x, mini.train_x)
    assert mini.train_x.shape == (6000, 1, 28, 28)
    assert mini.test_x.shape == (1500, 1, 28, 28)
    assert mini.train_x.dtype == torch.uint8
    assert mini.train_y.dtype == torch.int64
    assert torch.bincount(mini.train_y).tolist() == [600] * 10
    assert torch.bincount(mini.test_y).tolist() == [150] * 10
    assert mini.num_classes == 10
    assert mini.shape == (1, 28, 28)


def test_the_bundled_sample_stays_below_four_megabytes_and_carries_its_licence():
    files = list(MINI.bundled.iterdir())
    assert sum(f.stat().st_size for f in files) < 4_000_000
    assert "MIT" in (MINI.bundled / "LICENSE-fashion-mnist").read_text()


def test_the_bundled_sample_is_the_first_of_each_class_of_the_real_set(mini, official):
    full = load("fashion-mnist", official("fashion-mnist"))
    for mini_x, mini_y, x, y, count in (
        (mini.train_x, mini.train_y, full.train_x, full.train_y, 600),
        (mini.test_x, mini.test_y, full.test_x, full.test_y, 150),
    ):
        for c in range(10):
            assert torch.equal(mini_x[mini_y == c], x[y == c][:count])


@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        ("fashion-mnist", (60000, 1, 28, 28), (10000, 1, 28, 28), 10),
        ("cifar-10", (50000, 3, 32, 32), (10000, 3, 32, 32), 10),
        ("cifar-100", (50000, 3, 32, 32), (10000, 3, 32, 32), 100),
    ],
)
def test_the_real_sets_load(name, train, test, classes, official):
    found = load(name, official(name))
    assert (tuple(found.train_x.shape), tuple(found.test_x.shape)) == (train, test)
    assert torch.bincount(found.train_y).tolist() == [train[0] // classes] * classes
    assert found.num_classes == classes


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar-10", "cifar-10-batches-bin/batches.meta.txt"),
        ("cifar-100", "cifar-100-binary/fine_label_names.txt"),
    ],
)
def test_the_names_of_the_classes_are_the_official_ones(name, file, official):
    names = official(name) / file
    if not names.exists():
        pytest.skip("only the archive is there")
    assert load(name, official(name)).classes == names.read_text().split()


def test_names_cost_neither_torch_nor_numpy():
    code = """
import sys
sys.path.insert(0, {source!r})
import fedpurin.data
print(*fedpurin.data.NAMES)
sys.exit("torch" in sys.modules or "numpy" in sys.modules)
""".format(source=str(Path(__file__).parents[2] / "src"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, list(NAMES))


# --- a user's own function ------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Loads the data set of a function with this body, in a module of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = "own_data_for_tests"

    def load_from(body: str) -> Dataset:
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        Path(f"{module}.py").write_text(f"import numpy as np\nimport torch\ndef make():\n{lines}")
        return load(f"{module}:make")

    yield load_from
    sys.modules.pop(module, None)


def test_a_function_may_return_four_arrays(own):
    found = own(
        "return np.ones((6, 3, 4, 5), np.uint8), np.arange(6) % 3, np.ones((3, 3, 4, 5), np.uint8), [0, 1, 2]"
    )
    assert found.classes == ["0", "1", "2"]
    assert found.shape == (3, 4, 5)
    assert found.train_y.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.train_y.dtype == torch.int64


def test_a_function_may_return_a_data_set_with_names_of_classes(own):
    found = own(
        "from fedpurin.data import Dataset\n"
        "x, y = torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])\n"
        "return Dataset('mine', ['cat', 'dog', 'bird'], x, y, x, y)"
    )
    assert found.classes == ["cat", "dog", "bird"]
    assert found.train_x.dtype == torch.float32


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 8, 9), (6, 1, 8, 9)),
        ((6, 8, 9, 3), (6, 3, 8, 9)),  # channels last, and nothing else it could be
        ((6, 3, 8, 9), (6, 3, 8, 9)),
        ((6, 7), (6, 7)),  # features stay as they are
    ],
)
def test_images_are_brought_to_channels_height_width(own, shape, expected):
    found = own(f"x, y = np.zeros({shape}), np.arange(6) % 2\nreturn x, y, x, y")
    assert tuple(found.train_x.shape) == expected
    assert found.train_x.dtype == torch.float32


def test_channels_last_images_keep_each_pixel_in_place(own):
    found = own(
        "x, y = np.arange(6 * 8 * 9 * 3).reshape(6, 8, 9, 3) * 1.0, np.arange(6) % 2\nreturn x, y, x, y"
    )
    original = np.arange(6 * 8 * 9 * 3).reshape(6, 8, 9, 3)
    assert found.train_x[4, 2, 7, 1] == original[4, 7, 1, 2]


GOOD_X, GOOD_Y = "np.zeros((4, 1, 4, 4), np.uint8)", "np.array([0, 1, 0, 1])"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 3", "gave int, expected"),
        (f"return {GOOD_X}, {GOOD_Y}", "gave tuple, expected"),
        (f"return {GOOD_X}, [0, 0, 0, 0], {GOOD_X}, [0, 0, 0, 0]", "a data set with one class"),
        (f"return {GOOD_X}, [0, 1, 0], {GOOD_X}, {GOOD_Y}", "4 images but 3 labels"),
        (f"return {GOOD_X}, [0, 1, 0, -1], {GOOD_X}, {GOOD_Y}", "labels from -1 to 1"),
        (f"return {GOOD_X}, [0, 1, 0, 0.5], {GOOD_X}, {GOOD_Y}", "whole numbers"),
        (f"return {GOOD_X}, np.eye(4), {GOOD_X}, {GOOD_Y}", "whole numbers"),
        (
            f"return np.zeros((4, 1, 4, 4), np.int64), {GOOD_Y}, {GOOD_X}, {GOOD_Y}",
            "type int64; give images as uint8",
        ),
        (f"return np.full((4, 1, 4, 4), np.nan), {GOOD_Y}, {GOOD_X}, {GOOD_Y}", "NaN"),
        (f"return np.full((4, 1, 4, 4), 1e300), {GOOD_Y}, {GOOD_X}, {GOOD_Y}", "too large for float32"),
        (f"return np.zeros((4, 2, 2, 2, 2)), {GOOD_Y}, {GOOD_X}, {GOOD_Y}", r"shape \[4, 2, 2, 2, 2\]"),
        (f"return np.zeros((0, 1, 4, 4)), [], {GOOD_X}, {GOOD_Y}", r"shape \[0, 1, 4, 4\]"),
        (f"return {GOOD_X}, {GOOD_Y}, np.zeros((4, 1, 5, 4), np.uint8), {GOOD_Y}", "they must be alike"),
        (f"return {GOOD_X} * 1.0, {GOOD_Y}, {GOOD_X}, {GOOD_Y}", "they must be alike"),
        (f"return [[1], [1, 2]], {GOOD_Y}, {GOOD_X}, {GOOD_Y}", "is no array"),
        (f"return np.array([None] * 4), {GOOD_Y}, {GOOD_X}, {GOOD_Y}", "Python objects"),
        ("raise KeyError('disk')", "failed: KeyError: 'disk'"),
    ],
)
def test_what_a_function_returns_is_checked(own, body, expected):
    with pytest.raises(DataError, match=expected):
        own(body)


def test_a_label_beyond_the_named_classes_is_refused(own):
    with pytest.raises(DataError, match="label 2 found, but there are 2 classes"):
        own(
            "from fedpurin.data import Dataset\n"
            "x, y = torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 2, 1])\n"
            "return Dataset('mine', ['cat', 'dog'], x, y, x, y)"
        )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("np.arange(8) % 4 + 1", "labels from 1 to 4, but no sample has label 0; number the classes from 0"),
        ("np.array([0, 1, 3, 4] * 2)", "labels from 0 to 4, but no sample has label 2"),
        ("np.array([0, 2**31 - 1] * 4)", "no sample has label 1"),
    ],
)
def test_labels_that_leave_numbers_out_are_told_so(own, labels, expected):
    with pytest.raises(DataError, match=expected):
        own(f"x, y = np.zeros((8, 1, 2, 2)), {labels}\nreturn x, y, x, y")


def test_labels_from_one_are_told_what_to_do(own):
    with pytest.raises(DataError, match=r"label 2 found, but .* yours go from 1 to 2: subtract 1 from each"):
        own(
            "from fedpurin.data import Dataset\n"
            "x, y = torch.zeros(4, 1, 2, 2), torch.tensor([1, 2, 2, 1])\n"
            "return Dataset('mine', ['cat', 'dog'], x, y, x, y)"
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no_such_module:make", "cannot import 'no_such_module'"),
        ("json:no_such", "has no function 'no_such'"),
    ],
)
def test_a_function_that_is_not_there_is_named(name, expected):
    with pytest.raises(DataError, match=expected):
        load(name)
