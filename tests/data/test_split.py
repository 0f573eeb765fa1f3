"""A split as a file: it comes back whole, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpurin.data import Split
from fedpurin.errors import DataError


def made() -> Split:
    return Split([np.array([3, 1]), np.array([0])], [np.array([2]), np.array([5, 4])])


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "split.json"
    made().save(path)
    return path


def test_a_saved_split_comes_back(saved):
    found = Split.load(saved)
    assert [a.tolist() for a in found.train] == [[3, 1], [0]]
    assert [a.tolist() for a in found.test] == [[2], [5, 4]]
    assert found.train[0].dtype == np.int64
    assert found.fingerprint == made().fingerprint
    assert found.clients == 2
    assert [p.name for p in saved.parent.iterdir()] == ["split.json"]  # no temporary file stays


def test_the_fingerprint_is_what_its_description_says():
    # clients, then per client the number of samples and the samples; first train, then test
    numbers = [*(2, 2, 3, 1, 1, 0), *(2, 1, 2, 2, 5, 4)]
    assert made().fingerprint == hashlib.sha256(struct.pack("<12q", *numbers)).hexdigest()


clients = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=3)


@given(a=st.tuples(clients, clients), b=st.tuples(clients, clients))
def test_fingerprints_are_equal_only_for_equal_splits(a, b):
    prints = [Split(*([np.array(c, np.int64) for c in side] for side in s)).fingerprint for s in (a, b)]
    assert (prints[0] == prints[1]) == (a == b)


def test_any_changed_index_is_noticed(saved):
    content = json.loads(saved.read_text())
    content["test"][1][0] = 6
    saved.write_text(json.dumps(content))
    with pytest.raises(DataError, match="fingerprint does not fit its content"):
        Split.load(saved)


@pytest.mark.parametrize(
    "text",
    ["", "no json", "[]", "{}", "[" * 100_000, '{"format": "other"}', "\x00\xff"],
    ids=["empty", "text", "a list", "no format", "deep", "other", "bytes"],
)
def test_another_file_is_refused(saved, text):
    saved.write_text(text)
    with pytest.raises(DataError, match="is not a split file"):
        Split.load(saved)


def test_bytes_that_are_no_text_are_refused(saved):
    saved.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="is not a split file"):
        Split.load(saved)


@pytest.mark.parametrize(
    "train", [None, [], [[]], [[1.5]], [["1"]], [[True]], [[-1]], [[2**70]], {"0": [1]}, [1]]
)
def test_samples_that_are_no_positions_are_refused(saved, train):
    content = json.loads(saved.read_text())
    saved.write_text(json.dumps({**content, "train": train}))
    with pytest.raises(DataError, match="is damaged"):
        Split.load(saved)


def test_whose_samples_are_damaged_is_named(saved: Path) -> None:
    content = json.loads(saved.read_text())
    saved.write_text(json.dumps({**content, "test": [[2], [5, None]]}))
    with pytest.raises(DataError, match="a test sample of client 1 is None, which is no position"):
        Split.load(saved)
    saved.write_text(json.dumps({**content, "train": [[3, 1], []]}))
    with pytest.raises(DataError, match="client 1 has no list of train samples"):
        Split.load(saved)


def test_a_name_that_is_there_twice_is_refused(saved: Path) -> None:
    saved.write_text(saved.read_text().replace('"train":', '"train": [[7], [8]], "train":'))
    with pytest.raises(DataError, match="a name is there twice"):
        Split.load(saved)


@pytest.mark.parametrize("version", [True, 1.0, "1", "x" * 10_000])
def test_a_version_that_is_no_whole_number_is_refused_and_not_told_at_length(
    saved: Path, version: object
) -> None:
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "version": version}))
    with pytest.raises(DataError, match=r"has version .{1,90}, this fedpurin reads 1$"):
        Split.load(saved)


def test_a_half_written_file_is_refused(saved):
    text = saved.read_text()
    saved.write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match="is not a split file"):
        Split.load(saved)


def test_another_version_is_refused(saved):
    content = json.loads(saved.read_text())
    saved.write_text(json.dumps({**content, "version": 2}))
    with pytest.raises(DataError, match="has version 2, this fedpurin reads 1"):
        Split.load(saved)


def test_a_missing_file_and_an_unwritable_folder_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.json cannot be read"):
        Split.load(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"split\.json cannot be written"):
        made().save(tmp_path / "missing" / "split.json")
    with pytest.raises(DataError, match="cannot be written"):
        made().save(tmp_path)  # a folder


def test_a_split_of_another_data_set_is_refused():
    made().check_fits(4, 6)
    with pytest.raises(DataError, match="train sample 3, but the data set has 3"):
        made().check_fits(3, 6)
    with pytest.raises(DataError, match="test sample 5, but the data set has 5"):
        made().check_fits(4, 5)


def test_a_split_file_without_end_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    for path in (tmp_path / "pipe", tmp_path / "sparse"):
        with pytest.raises(DataError, match=f"{path} cannot be read .it is (a pipe|larger than 256 MiB)"):
            Split.load(path)
