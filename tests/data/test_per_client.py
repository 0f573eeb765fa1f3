"""Data as users have them, per client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from fedpurin import clients
from fedpurin.errors import DataError

X = np.arange(40, dtype=np.float32).reshape(20, 2)
Y = np.arange(20) % 2


class Columns:
    """What fedpurin uses of a Hugging Face dataset."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns_ = columns
        self.column_names = list(columns)
        self.features = dict.fromkeys(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns_.values())))

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns_[name]

    def select(self, rows: Any) -> Columns:
        return Columns(**{name: [values[i] for i in rows] for name, values in self.columns_.items()})


def test_a_share_of_every_class_is_held_out_and_nothing_is_lost() -> None:
    x = np.arange(50.0)[:, None]
    y = np.repeat([0, 1, 2], [30, 15, 5])
    (part,) = clients([(x, y)]).parts
    assert torch.bincount(part.test_y).tolist() == [6, 3, 1]
    both = torch.cat([part.train_x, part.test_x]).flatten()
    assert sorted(both.tolist()) == x.flatten().tolist()
    (again,) = clients([(x, y)]).parts
    assert torch.equal(part.test_x, again.test_x)


def test_test_data_may_be_given_or_left_out() -> None:
    (given,) = clients({"a": (X, Y, X[:3], Y[:3])}).parts
    assert (len(given.train_y), len(given.test_y)) == (20, 3)
    (split,) = clients({"a": {"train": (X, Y), "test": (X[:4], Y[:4])}}).parts
    assert (len(split.train_y), len(split.test_y)) == (20, 4)
    (none,) = clients({"a": (X, Y)}, test=0).parts
    assert (len(none.train_y), len(none.test_y)) == (20, 0)
    (single,) = clients({"a": (X[:1], Y[:1])}).parts
    assert (len(single.train_y), len(single.test_y)) == (1, 0)


def test_a_frame_is_divided_by_its_column() -> None:
    frame = pandas.DataFrame({"city": ["P", "B"] * 10, "age": X[:, 0], "size": X[:, 1], "price": X[:, 0] * 2})
    held = clients(frame, client="city", y="price")
    assert held.names == ("B", "P")
    assert held.shape == (2,)  # neither the city nor the price
    assert (held.usual_loss, held.classes) == ("mse", ())
    chosen = clients(frame, client="city", x="age", y=["size", "price"])
    assert (chosen.shape, chosen.outputs) == ((), 2)
    with pytest.raises(DataError, match="client="):
        clients(frame, y="price")
    with pytest.raises(DataError, match="no column 'town'; there are city, age, size, price"):
        clients(frame, client="town")
    with pytest.raises(DataError, match="which column is the target"):
        clients(frame, client="city")
    with pytest.raises(DataError, match="column 'city' holds text"):
        clients({"a": frame}, y="price")


def test_hugging_face_datasets_by_what_they_can_do() -> None:
    tokens = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]]
    table = Columns(user=["u", "v", "u", "v"], input_ids=tokens, label=["no", "yes", "yes", "no"])
    held = clients(table, client="user", x="input_ids")
    assert held.names == ("u", "v")
    assert held.classes == ("no", "yes")
    assert held.parts[0].train_x.dtype == torch.int64
    assert held.shape == (3,)
    parts = {"train": table.select([0, 2]), "test": table.select([1])}
    (part,) = clients({"one": parts}, x="input_ids").parts
    assert part.test_x.tolist() == [[4, 5, 6]]
    with pytest.raises(DataError, match="pad or cut"):
        clients([Columns(input_ids=[[1], [1, 2]], label=[0, 1])])


def test_torch_datasets_and_pictures() -> None:
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    (part,) = clients([tensors], test=0).parts
    assert torch.equal(part.train_x, torch.from_numpy(X))
    pictures = [(Image.new("RGB", (5, 4), (255, 0, i)), i % 2) for i in range(6)]
    held = clients([pictures, pictures])
    assert held.shape == (3, 4, 5)
    assert held.parts[0].train_x.dtype == torch.uint8
    dicts = [{"x": torch.zeros(3), "y": i % 2} for i in range(6)]
    assert clients([dicts]).shape == (3,)


def test_folders_and_files_of_each_client(tmp_path: Path) -> None:
    """A shop that lacks a kind keeps the numbers of the others."""
    for shop, kinds in {"a": ["bag", "coat"], "b": ["coat", "shoe"]}.items():
        for kind in kinds:
            (tmp_path / shop / kind).mkdir(parents=True)
            for i in range(5):
                pixels = np.full((4, 4), 50 * len(kind) + i, np.uint8)
                Image.fromarray(pixels).save(tmp_path / shop / kind / f"{i}.png")
    found = clients({"a": str(tmp_path / "a"), "b": tmp_path / "b"})
    assert found.classes == ("bag", "coat", "shoe")
    assert found.counts() == ([[4, 4, 0], [0, 4, 4]], [[1, 1, 0], [0, 1, 1]])
    coats = [part.train_x[part.train_y == 1] for part in found.parts]
    assert all(int(x.min()) >= 200 for x in coats)
    assert [len(part.test_y) for part in clients({"a": tmp_path / "a"}, test=0.5).parts] == [5]
    np.savez(tmp_path / "c.npz", x=np.zeros((10, 1, 4, 4), np.uint8), y=np.arange(10) % 2)
    assert len(clients([str(tmp_path / "c.npz")]).parts[0].train_y) == 8
    with pytest.raises(DataError, match="nowhere does not exist; give a folder of images"):
        clients({"a": "nowhere"})


def test_whole_numbers_stay_whole_and_floats_become_float32() -> None:
    for given, kept in ((np.int32, torch.int64), (np.uint16, torch.int64), (np.float64, torch.float32)):
        assert clients([(X.astype(given), Y)]).parts[0].train_x.dtype == kept
    assert clients([(X.astype(np.uint8), Y)]).parts[0].train_x.dtype == torch.uint8
    assert clients([(X, Y == 1)]).classes == ("0", "1")


def test_the_fingerprint_is_that_of_the_data() -> None:
    first = clients([(X, Y)]).fingerprint
    assert clients([(X.copy(), Y)]).fingerprint == first
    assert clients([(X + 1, Y)]).fingerprint != first
    assert "1 clients, 16 to 16 training samples of shape [2], 2 classes" in repr(clients([(X, Y)]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": (X, Y[:5])}, "client 'a' has 20 samples but 5 targets"),
        ({"a": (X[:0], Y[:0])}, "client 'a' has no samples; leave it out"),
        ({"a": (X, Y), "b": (X[:, :1], Y)}, r"client 'b' has samples of shape \[1\].*client 'a' of \[2\]"),
        ({"a": (X, Y), "b": (X, Y * 0.5)}, "client 'b' has targets of shape"),
        ({"a": (X * np.nan, Y)}, "client 'a': inputs hold NaN"),
        ({"a": (X, Y - 1)}, "label -1; number the classes from 0"),
        ({"a": ([["x"], ["y"]], [0, 1])}, "not an array of numbers"),
        ({"a": 3}, "client 'a' is a int"),
        ({1: (X, Y), "1": (X, Y)}, "the same name"),
        (3, "data is a int"),
        ("text", "data is a str"),
    ],
)
def test_a_mistake_is_named_with_its_client(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        clients(data)


def test_unknown_labels_and_shares_are_refused() -> None:
    with pytest.raises(DataError, match="label 'bird' is not among"):
        clients([(X[:2], ["cat", "bird"])], classes=["cat", "dog"])
    with pytest.raises(DataError, match="label 1 found, but there are 1 classes"):
        clients([(X, Y)], classes=["only"])
    with pytest.raises(DataError, match="test = 1"):
        clients([(X, Y)], test=1)
