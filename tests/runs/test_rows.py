"""Records that checkpoints refer to: what they name stays as it was, and nothing else takes room for long."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from torch import Tensor

from fedpurin.runs.rows import ALIGN, RowFile, check_rows

SIZE = 100


def record(client: int, version: int) -> memoryview:
    return memoryview(bytes([client % 256, version % 256]) * (SIZE // 2))


def saved(rows: RowFile) -> dict[str, Tensor]:
    index = rows.index()
    rows.sync()
    rows.committed(1)
    return index


def contents(path: Path, index: dict[str, Tensor]) -> dict[int, bytes]:
    rows = RowFile("r", SIZE, path)
    rows.restore(index)
    return {client: bytes(rows.read(client) or b"") for client in index["r.client"].tolist()}


def test_a_client_without_a_record_has_none(tmp_path: Path) -> None:
    rows = RowFile("r", SIZE, tmp_path / "r.rows")
    assert rows.read(3) is None
    rows.write(3, record(3, 1))
    assert rows.read(3) == record(3, 1)
    rows.drop(3)
    assert rows.read(3) is None
    rows.drop(3)


@pytest.mark.parametrize("seed", range(5))
def test_the_newest_two_checkpoints_always_name_what_was_there_when_they_were_made(
    tmp_path: Path, seed: int
) -> None:
    """Any order of writes, drops, checkpoints and restarts from either of them."""
    draw, path = random.Random(seed), tmp_path / "r.rows"
    rows, now = RowFile("r", SIZE, path), {}
    kept: list[tuple[dict[str, Tensor], dict[int, bytes]]] = []
    for step in range(400):
        what, client = (
            draw.choices(["write", "drop", "checkpoint", "restart"], [12, 2, 2, 1])[0],
            draw.randrange(9),
        )
        if what == "write":
            rows.write(client, record(client, step))
            now[client] = bytes(record(client, step))
        elif what == "drop":
            rows.drop(client)
            now.pop(client, None)
        elif what == "checkpoint":
            kept = [*kept[-1:], (saved(rows), dict(now))]
        elif kept:
            if len(kept) == 2 and draw.random() < 0.3:
                kept.pop()  # the newest is damaged
            rows = RowFile("r", SIZE, path, beside=[index for index, _ in kept[:-1]])
            rows.restore(kept[-1][0])
            now = dict(kept[-1][1])
        assert {c: bytes(rows.read(c) or b"") for c in range(9) if rows.place(c) is not None} == now
        for index, then in kept:
            check_rows(tmp_path, index)
            assert contents(path, index) == then
    assert path.stat().st_size <= 3 * 9 * ALIGN, "two checkpoints and what is new, no more"


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    """A thousand clients, ten of which take part: 20 more records after two checkpoints, not 2000."""
    path = tmp_path / "r.rows"
    rows = RowFile("r", SIZE, path)
    for client in range(1000):
        rows.write(client, record(client, 0))
    saved(rows)
    for version in range(1, 6):
        for client in range(10):
            rows.write(client, record(client, version))
        saved(rows)
    assert path.stat().st_size <= 1020 * ALIGN


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    rows = RowFile("r", SIZE, tmp_path / "r.rows")
    for client in range(3):
        rows.write(client, record(client, 7))
    index = saved(rows)
    check_rows(tmp_path, index)
    content = bytearray((tmp_path / "r.rows").read_bytes())
    content[ALIGN + 5] ^= 4
    (tmp_path / "r.rows").write_bytes(content)
    with pytest.raises(ValueError, match="record of client 1"):
        check_rows(tmp_path, index)


def test_a_file_that_ends_too_early_is_found(tmp_path: Path) -> None:
    rows = RowFile("r", SIZE, tmp_path / "r.rows")
    rows.write(0, record(0, 1))
    index = saved(rows)
    (tmp_path / "r.rows").write_bytes(b"")
    with pytest.raises(ValueError, match="ends before"):
        check_rows(tmp_path, index)


def test_records_in_memory_travel_with_their_index() -> None:
    rows = RowFile("r", SIZE)
    rows.write(4, record(4, 2))
    other = RowFile("r", SIZE)
    other.restore(rows.index())
    assert other.read(4) == record(4, 2)
    assert other.read(5) is None


def test_a_server_that_goes_back_in_memory_forgets_whom_it_did_not_know_then() -> None:
    rows = RowFile("r", SIZE)
    rows.write(0, record(0, 1))
    before = rows.index()
    rows.write(0, record(0, 2))
    rows.write(5, record(5, 2))
    rows.restore(before)
    assert (rows.read(0), rows.read(5)) == (record(0, 1), None)
