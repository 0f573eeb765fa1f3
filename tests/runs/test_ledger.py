"""The ledger: what is written per message, and what can be read from it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedpurin import wire
from fedpurin.core.bits import pack_bits
from fedpurin.errors import RunError
from fedpurin.messages import Message
from fedpurin.runs.entry import ledger_entry, paper_bytes
from fedpurin.runs.ledger import Ledger, entropy_bits

D = 1000
CRITICAL = (torch.arange(D) < 500)[None]  # a run, so that gap lists would be short: 500 of 1000


def irregular(share: float, seed: int = 0) -> torch.Tensor:
    return torch.rand(1, D, generator=torch.Generator().manual_seed(seed)) < share


def send(
    message: Message, t: int, client: int, direction: str, **options: object
) -> tuple[bytes, dict[str, object]]:
    to = wire.Address(b"layout01", D, t, client, direction)  # type: ignore[arg-type]
    made = wire.encode(message, to, **options)  # type: ignore[arg-type]
    return made.data, ledger_entry(made.head, message, meta=60 if direction == "up" else 0)


def upload(mask: torch.Tensor) -> Message:
    return Message(torch.where(mask, 2.0, 0.0), mask, mask)


def test_a_line_holds_what_the_documentation_says() -> None:
    data, line = send(upload(irregular(0.5)), 3, 7, "up")
    kept = int(irregular(0.5).sum())
    assert line == {
        "round": 3,
        "client": 7,
        "direction": "up",
        "bytes": {"header": 68, "mask": 125, "values": 4 * kept, "meta": 60},  # 125 = 1000 / 8
        "kept": kept,
        "critical": kept,
        "outside": 0,
        "paper_bytes": 4 * kept + 125,
        "mask_encoding": "bitmap",
        "value_type": "float32",
    }
    assert len(data) + 60 == sum(line["bytes"].values())  # type: ignore[attr-defined]
    assert json.loads(json.dumps(line)) == line


@pytest.mark.parametrize("value_type", wire.VALUE_TYPES)
@pytest.mark.parametrize("pack", [False, True])
def test_the_sections_sum_to_what_was_handed_over(value_type: str, pack: bool) -> None:
    mask = irregular(0.3)
    reference = wire.Reference(2, pack_bits(mask)[0])
    messages: list[tuple[Message, str, wire.Reference | None]] = [
        (Message(torch.ones(1, D)), "up", None),
        (upload(mask), "up", None),
        (Message(torch.ones(1, D), mask, None), "up", None),
        (Message(torch.where(mask, 0.0, 1.0), mask, ~mask), "down", reference),
    ]
    for message, direction, known in messages:
        data, line = send(message, 3, 0, direction, values=value_type, pack=pack, reference=known)
        assert line["bytes"]["header"] + line["bytes"]["mask"] + line["bytes"]["values"] == len(data)  # type: ignore[index]


class TestPaperRule:
    """4 bytes per non-zero value that travels; 1 bit per exchanged parameter for uploads with masks."""

    def test_a_dense_upload_has_no_mask(self) -> None:
        assert paper_bytes(Message(torch.ones(1, D)), "up") == 4 * D

    def test_fedcac_adds_its_mask_up_but_not_down(self) -> None:
        message = Message(torch.ones(1, D), CRITICAL, None)
        assert paper_bytes(message, "up") == 4 * D + 125
        assert paper_bytes(message, "down") == 4 * D

    def test_the_papers_first_rounds_of_cifar10(self) -> None:
        # d = 1,232,586, half of it critical: 616,293 values and the mask are 2.50 MiB
        mask = (torch.arange(1_232_586) % 2 == 0)[None]
        count = paper_bytes(Message(mask.float(), mask, mask), "up")
        assert count == 4 * 616_293 + 154_074
        assert f"{count / 2**20:.2f}" == "2.50"

    def test_zeros_do_not_count_although_they_travel(self) -> None:
        values = torch.where(torch.arange(D) < 100, 0.0, 1.0)[None]
        assert paper_bytes(Message(values, CRITICAL, CRITICAL), "down") == 4 * 400

    def test_values_that_are_not_sent_back_do_not_count(self) -> None:
        message = Message(torch.where(CRITICAL, 0.0, 1.0), CRITICAL, ~CRITICAL)
        assert paper_bytes(message, "down") == 4 * 500

    def test_the_value_type_does_not_matter(self) -> None:
        _, line = send(upload(irregular(0.5)), 1, 0, "up", values="int8")
        assert line["paper_bytes"] == 4 * int(line["kept"]) + 125  # type: ignore[call-overload]


def test_the_entropy_of_half_is_one_bit_each() -> None:
    assert entropy_bits(500, 1000) == 1000
    assert entropy_bits(0, 1000) == entropy_bits(1000, 1000) == entropy_bits(0, 0) == 0
    # H(1/4) = 2 - 3/4 * log2(3) = 0.811278...
    assert entropy_bits(250, 1000) == pytest.approx(811.278, abs=1e-3)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two clients, rounds 1 to 3, beta 2: uploads of half the values, replies that echo the mask."""
    lines = []
    for t in (1, 2, 3):
        for client in (0, 1):
            mask = irregular(0.5, seed=10 * t + client)
            lines.append(send(upload(mask), t, client, "up")[1])
            support = irregular(0.9, seed=client) | mask if t <= 2 else irregular(0.9, seed=client) & ~mask
            reply = Message(torch.where(support, 1.0, 0.0), mask, support)
            reference = wire.Reference(t, pack_bits(mask)[0])
            lines.append(send(reply, t, client, "down", reference=reference, confirmed=t)[1])
    (tmp_path / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "layout.json").write_text(json.dumps({"parameters": 1200, "exchanged": D}))
    (tmp_path / "config.toml").write_text("[method]\nbeta = 2\n")
    return tmp_path


def test_totals_are_the_sums_of_the_lines(run: Path) -> None:
    raw = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    ledger = Ledger.load(run)
    for direction in ("up", "down"):
        mine = [line for line in raw if line["direction"] == direction]
        totals = ledger.totals(direction)  # type: ignore[arg-type]
        assert totals.messages == 6
        assert totals.total == sum(sum(line["bytes"].values()) for line in mine)
        assert totals.header == 6 * wire.HEADER_BYTES
        assert totals.mask == sum(line["bytes"]["mask"] for line in mine)
        assert totals.paper_bytes == sum(line["paper_bytes"] for line in mine)
    both = ledger.totals()
    assert both.total == ledger.totals("up").total + ledger.totals("down").total


def test_rounds_and_phases_partition_the_messages(run: Path) -> None:
    ledger = Ledger.load(run)
    for direction in ("up", "down"):
        rounds = ledger.rounds(direction)  # type: ignore[arg-type]
        assert list(rounds) == [1, 2, 3]
        phases = ledger.phases(direction)  # type: ignore[arg-type]
        assert list(phases) == ["all rounds", "rounds to 2", "rounds from 3"]
        everything, before, after = phases.values()
        assert sum(t.total for t in rounds.values()) == everything.total == before.total + after.total
        assert after.total == rounds[3].total


def test_methods_without_masks_have_no_beta(run: Path) -> None:
    line = send(Message(torch.ones(1, D)), 1, 0, "up")[1]
    (run / "ledger.jsonl").write_text(json.dumps(line) + "\n")
    ledger = Ledger.load(run)
    assert ledger.beta is None
    assert list(ledger.phases("up")) == ["all rounds"]
    assert ledger.phases("down") == {}


def test_the_gap_to_the_entropy_bound_is_small_and_explained(run: Path) -> None:
    ledger = Ledger.load(run)
    up = ledger.totals("up")
    # About half of 1000 positions: H is 1 bit, like the bitmap, to within a byte or two of some 2100.
    assert 0 <= up.gap < 0.001
    # An echoed mask costs nothing in the bound either; the support outside it has about 0.47 bits of entropy.
    assert 0 <= ledger.totals("down").gap < 0.02


def test_an_int8_message_is_above_its_bound_by_its_scales(run: Path) -> None:
    line = send(Message(torch.ones(1, D)), 1, 0, "up", values="int8")[1]
    (run / "ledger.jsonl").write_text(json.dumps(line) + "\n")
    assert Ledger.load(run).totals("up").gap == pytest.approx(4 * 4 / D)  # ceil(1000 / 256) = 4 scales


def test_the_table_puts_ours_beside_the_papers(run: Path) -> None:
    rows = Ledger.load(run).table_rows()
    assert [(row["direction"], row["phase"]) for row in rows] == [
        (direction, phase)
        for direction in ("up", "down")
        for phase in ("all rounds", "rounds to 2", "rounds from 3")
    ]
    totals = Ledger.load(run).totals("up")
    assert rows[0]["total"] == f"{totals.total / 6 / 2**20:.4f}"
    assert rows[0]["paper"] == f"{totals.paper_bytes / 6 / 2**20:.4f}"


def test_exports_agree_with_the_totals(run: Path) -> None:
    ledger = Ledger.load(run)
    ledger.to_csv(run / "out.csv")
    ledger.to_json(run / "out.json")
    with (run / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert sum(int(row["total"]) for row in rows) == ledger.totals().total
    document = json.loads((run / "out.json").read_text())
    assert document["directions"]["up"]["phases"]["all rounds"]["total"] == ledger.totals("up").total
    assert (
        document["directions"]["down"]["rounds"]["3"]["paper_bytes"] == ledger.rounds("down")[3].paper_bytes
    )
    assert sum(document["directions"]["down"]["encodings"].values()) == 6


def test_a_torn_last_line_is_dropped(run: Path) -> None:
    file = run / "ledger.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert len(Ledger.load(run)) == 11


@pytest.mark.parametrize("bad", ["{}", "[]", "not json", '{"bytes": {"header": 1}}', '{"bytes": 3}'])
def test_a_damaged_line_is_named(run: Path, bad: str) -> None:
    file = run / "ledger.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], bad + "\n", *lines[1:]]))
    with pytest.raises(RunError, match="line 2"):
        Ledger.load(run)


def test_a_line_of_an_unknown_kind_is_named(run: Path) -> None:
    file = run / "ledger.jsonl"
    file.write_text(file.read_text().replace('"up"', '"sideways"', 1))
    with pytest.raises(RunError, match=r"line 1 .*sideways"):
        Ledger.load(run)


def test_a_run_without_layout_is_not_guessed_at(run: Path) -> None:
    (run / "layout.json").unlink()
    with pytest.raises(RunError, match=r"layout\.json"):
        Ledger.load(run)


def test_a_directory_without_ledger_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is this a run directory"):
        Ledger.load(tmp_path)


def test_reading_a_ledger_does_not_load_torch(run: Path) -> None:
    program = (
        "import sys; from fedpurin.runs.ledger import Ledger; "
        f"Ledger.load({str(run)!r}).table_rows(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
