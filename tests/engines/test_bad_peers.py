"""One bad client among five, through the driver: what it sends is refused or bounded, and said by client and
reason; the others end with the very bytes as if it had not been there."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.peers import ATTACKS, BadPeers
from engine_tools import metrics_of
from fedpurin import wire
from fedpurin.config import Config
from fedpurin.engines.driver import Driver, Policy
from fedpurin.engines.inline import InlineWorkers
from fedpurin.engines.suspicion import LARGEST, bounded, check_values
from fedpurin.engines.transport import Failure, Outcome, Reply, Transport
from fedpurin.errors import ConfigError, MismatchError, NotFiniteError
from fedpurin.job import Job
from fedpurin.meta import Meta, Validation
from fedpurin.methods import METHODS
from fedpurin.runs.directory import RunDirectory
from fedpurin.train import Score
from tiny import Federation, tiny_job

BAD, T, ROUNDS = 1, 2, 3  # who lies, when, and of how many rounds
COUNTS = (12, 9, 20, 6, 11)

Tamper = Callable[[dict[int, Outcome], dict[int, Outcome]], list[Outcome]]
"""What arrives in place of the bad client's outcome, from the outcomes of this round and the one before."""


def job(method: str = "fedavg", **settings: Any) -> Job:
    return tiny_job(method, COUNTS, run__rounds=ROUNDS, **settings)


class OneLiar(InlineWorkers):
    def __init__(self, job: Job, tamper: Tamper) -> None:
        super().__init__(job)
        self.tamper = tamper
        self.before: dict[int, Outcome] = {}

    def run(self, op: str, t: int, clients: list[int], reply: Reply) -> Iterator[Outcome]:
        outcomes: dict[int, Outcome] = {}
        states = {}
        for outcome in super().run(op, t, clients, reply):
            outcomes[outcome.client], states[outcome.client] = outcome, self.last
        for client, outcome in outcomes.items():
            lies = op == "work" and t == T and client == BAD
            for arrived in self.tamper(outcomes, self.before) if lies else [outcome]:
                self.last = states[client]
                yield arrived
        self.before = outcomes


def drive(job: Job, path: Path, transport: Transport) -> None:
    with RunDirectory.create(path, job) as directory:
        Driver(job, directory, transport, Policy(forgiving=True)).run()


def vanish(outcomes: dict[int, Outcome], before: dict[int, Outcome]) -> list[Outcome]:
    return [Outcome(BAD, failure=Failure("gone", "client"))]


def upload(change: Callable[[bytes], bytes]) -> Tamper:
    def tamper(outcomes: dict[int, Outcome], before: dict[int, Outcome]) -> list[Outcome]:
        honest = outcomes[BAD]
        assert honest.upload is not None
        return [replace(honest, upload=change(honest.upload))]

    return tamper


def told(change: Callable[[Meta], Meta]) -> Tamper:
    return lambda outcomes, before: [
        replace(outcomes[BAD], meta=change(Meta.from_bytes(outcomes[BAD].meta)).to_bytes())
    ]


def sealed(data: bytes) -> bytes:
    """With the checksum that belongs to it."""
    head, body = data[: wire.HEADER_BYTES - 4], data[wire.HEADER_BYTES :]
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


def ending_with(value: float) -> Tamper:
    return upload(lambda data: sealed(data[:-4] + struct.pack("<f", value)))


def at(offset: int, number: int) -> Tamper:
    """A field of the header, as the specification numbers them."""
    return upload(lambda data: sealed(data[:offset] + struct.pack("<I", number) + data[offset + 4 :]))


REFUSED: dict[str, tuple[Tamper, str]] = {
    "NaN": (ending_with(float("nan")), "is nan"),
    "Inf": (ending_with(float("inf")), "is inf"),
    "a value whose sums leave float32": (ending_with(3e38), "client 1 sent a value of 3.0e+38"),
    "minus such a value": (ending_with(-3e38), "client 1 sent a value of 3.0e\\+38"),
    "a flipped bit": (upload(lambda data: data[:-1] + bytes([data[-1] ^ 1])), "checksum"),
    "half a message": (upload(lambda data: data[: len(data) // 2]), "promises"),
    "more than a message": (upload(lambda data: data + b"\0"), "promises"),
    "no bytes at all": (upload(lambda data: b""), "header"),
    "fewer values than it says": (at(48, 7), ""),
    "another layout": (at(40, 7), ""),
    "no upload": (lambda now, before: [replace(now[BAD], upload=None)], "sent no upload"),
    "its upload of the round before": (
        lambda now, before: [replace(now[BAD], upload=before[BAD].upload)],
        "round 1",
    ),
    "the upload of another client": (
        lambda now, before: [replace(now[BAD], upload=now[3].upload)],
        "client 3",
    ),
    "no samples": (told(lambda meta: replace(meta, samples=0)), "0 training samples"),
    "four billion samples": (
        told(lambda meta: replace(meta, samples=2**32 - 1)),
        "client 1 reports 4294967295 training samples, but the split gives it 9",
    ),
    "a sample too many": (told(lambda meta: replace(meta, samples=10)), "reports 10 training samples"),
    "more right answers than questions": (
        told(lambda meta: replace(meta, trained=Score(11, 10, 1.0))),
        "11 correct answers of 10",
    ),
    "the accuracy of a model to come": (
        told(lambda meta: replace(meta, merged_round=7)),
        "round 7's merged model in round 2",
    ),
    "a clock that runs backwards": (
        told(lambda meta: replace(meta, seconds=(-1.0, 0.0, 0.0))),
        "its clock is broken",
    ),
    "a clock that stood still for years": (
        told(lambda meta: replace(meta, seconds=(1e308, 0.0, 0.0))),
        "its clock is broken",
    ),
    "a metric where answers are counted": (
        told(lambda meta: replace(meta, trained=Score(1000.0, 1, 0.0))),
        "a metric that is no count",
    ),
    "less than no answer right": (
        told(lambda meta: replace(meta, upload=Score(-5.0, 1, 0.0))),
        "a metric that is no count",
    ),
    "a validation where there is none": (
        told(lambda meta: replace(meta, validation=Validation(Score(1, 1, 0.0), 1))),
        "client 1 reports a validation, but data.validation is 0",
    ),
    "a loss that no sum survives": (
        told(lambda meta: replace(meta, trained=Score(1, 1, 1e308))),
        "a sum of losses of 1.0e+308",
    ),
    "metrics of no known length": (lambda now, before: [replace(now[BAD], meta=b"\1" * 7)], "not 7"),
}


def without_reasons(path: Path) -> list[dict[str, Any]]:
    records = metrics_of(path)
    for record in records:
        record["failed"] = [failure["client"] for failure in record.get("failed", [])]
    return records


def assert_as_if_absent(path: Path, absent: Path) -> None:
    """Models of everybody, metrics and ledger, to the byte."""
    assert without_reasons(path) == without_reasons(absent)
    assert (path / "ledger.jsonl").read_bytes() == (absent / "ledger.jsonl").read_bytes()
    models = sorted((absent / "models").iterdir())
    assert len(models) == len(COUNTS)
    for model in models:
        assert model.read_bytes() == (path / "models" / model.name).read_bytes(), model.name


@pytest.fixture(scope="module")
def absent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose client BAD was not there in round T."""
    path = tmp_path_factory.mktemp("absent") / "run"
    drive(job(), path, OneLiar(job(), vanish))
    return path


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_reported_by_client_and_reason_and_leaves_no_trace(
    what: str, absent: Path, tmp_path: Path
) -> None:
    tamper, reason = REFUSED[what]
    drive(job(), tmp_path / "run", OneLiar(job(), tamper))
    record = metrics_of(tmp_path / "run")[T - 1]
    assert [failure["client"] for failure in record["failed"]] == [BAD]
    assert reason.replace("\\", "") in record["failed"][0]["reason"]
    assert record["clients"] == [0, 2, 3, 4]
    assert_as_if_absent(tmp_path / "run", absent)


@pytest.mark.parametrize("best_round", [0, 2, 2**32 - 1])
def test_a_best_model_is_of_a_round_that_there_was(best_round: int) -> None:
    fed = Federation(tiny_job("fedavg", COUNTS, data__validation=0.4))
    fed.hub.begin(1, [BAD])
    done = fed.work(BAD, 1)
    lie = replace(Meta.from_bytes(done.meta), validation=Validation(Score(1, 1, 0.0), best_round))
    with pytest.raises(MismatchError, match=f"client 1 says in round 1 .* is of round {best_round}"):
        fed.hub.accept(BAD, done.upload, lie.to_bytes())
    fed.hub.accept(BAD, done.upload, done.meta)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "separate"])
def test_a_refused_upload_leaves_no_trace_with_any_method(method: str, tmp_path: Path) -> None:
    """A replay: sound bytes, of the round before."""
    replayed = REFUSED["its upload of the round before"][0]
    for name, tamper in (("absent", vanish), ("replayed", replayed)):
        drive(job(method), tmp_path / name, OneLiar(job(method), tamper))
    assert_as_if_absent(tmp_path / "replayed", tmp_path / "absent")


@pytest.mark.parametrize(
    ("who", "reason"),
    [(BAD, "sent two"), (3, "sent two"), (7, "was not asked")],
    ids=["again", "as another client", "as nobody"],
)
def test_a_second_upload_is_refused_and_the_first_stays(who: int, reason: str, tmp_path: Path) -> None:
    def twice(outcomes: dict[int, Outcome], before: dict[int, Outcome]) -> list[Outcome]:
        honest = [outcomes[who]] if who in outcomes and who != BAD else []  # before the lie, or after it
        return [outcomes[BAD], *honest, replace(outcomes[BAD], client=who)]

    drive(job(), tmp_path / "honest", InlineWorkers(job()))
    drive(job(), tmp_path / "twice", OneLiar(job(), twice))
    failed = metrics_of(tmp_path / "twice")[T - 1]["failed"]
    assert {failure["client"] for failure in failed} == {who}
    assert all(reason in failure["reason"] for failure in failed)
    for name in ("ledger.jsonl", *(f"models/client-{c:04d}.safetensors" for c in range(len(COUNTS)))):
        if (
            who != 3 or "0003" not in name
        ):  # the state of the client whose answer came twice is not told apart
            assert (tmp_path / "honest" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes(), name


# Sound messages that lie


def global_mean(method: str, attack: str = "", **robust: float) -> tuple[torch.Tensor, dict[str, Any]]:
    """theta_bar after one round in which client BAD lies, and the round's record."""
    fed = Federation(job(method, **{f"robust__{name}": value for name, value in robust.items()}))
    liars = BadPeers(fed.job, [BAD], ATTACKS.get(attack, torch.clone))
    fed.hub.begin(1, list(range(5)))
    for client in range(5):
        done = fed.work(client, 1)
        assert done.upload is not None
        sent = liars.forged(client, 1, done.upload, fed.states[client]) if client == BAD else done.upload
        fed.hub.accept(client, sent, done.meta)
    record = fed.hub.close(1)
    server = fed.hub.server
    return (server.change + server.residual if method == "fedfrugal" else server.theta_bar), record


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("method", ["fedavg", "fedpurin", "fedcac", "fedfrugal"])
def test_a_norm_bound_holds_a_liar_back_without_the_method_knowing_and_says_so(
    method: str, attack: str
) -> None:
    honest, _ = global_mean(method)
    free, silence = global_mean(method, attack)
    held, record = global_mean(method, attack, norm_bound=1.5)
    assert "bounded" not in silence
    moved, moved_held = float((free - honest).norm()), float((held - honest).norm())
    if method == "fedfrugal" and attack == "sign-flipped":  # an update as long as any other
        _, truth = global_mean(method, norm_bound=1.5)
        lying, honestly = ([b["client"] for b in r.get("bounded", [])] for r in (record, truth))
        assert lying == honestly, "whom it bounds does not depend on the signs"
        return
    assert BAD in [bound["client"] for bound in record["bounded"]]
    assert "times as far out as the median client; bounded at 1.5 times" in record["bounded"][0]["reason"]
    assert moved_held < moved / (1.5 if attack == "sign-flipped" else 100)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_trimmed_mean_holds_a_liar_back(attack: str) -> None:
    honest, _ = global_mean("fedavg")
    free, _ = global_mean("fedavg", attack)
    held, _ = global_mean("fedavg", attack, trim=0.2)
    moved, moved_held = float((free - honest).norm()), float((held - honest).norm())
    assert moved_held < moved / (1.5 if attack == "sign-flipped" else 100)


def test_bounds_that_nobody_exceeds_change_no_bit() -> None:
    plain, _ = global_mean("fedpurin")
    wary, record = global_mean("fedpurin", norm_bound=1e6, sample_bound=1e6)
    assert torch.equal(plain, wary)
    assert "bounded" not in record


def test_sample_counts_that_only_sites_know_are_bounded_by_the_median_of_the_round() -> None:
    # counts 12, 9, 20, 6, 11: median 11, so 16 at the most
    fed = Federation(job(robust__sample_bound=1.5))
    fed.hub._samples = None  # as where every site brings its own data
    fed.hub.begin(1, list(range(5)))
    for client in range(5):
        done = fed.work(client, 1)
        samples = 2**32 - 1 if client == BAD else COUNTS[client]
        fed.hub.accept(client, done.upload, Meta(samples).to_bytes())
    # 12, 4294967295, 20, 6, 11: median 12, so 18 at the most
    uploads, said = bounded(fed.hub._uploads(list(range(5))), fed.job.config)
    assert uploads.samples_n.tolist() == [12, 18, 18, 6, 11]
    assert [bound["client"] for bound in said] == [1, 2]
    assert "it reports 1.67 times as many samples as the median client; bounded at 1.5" in said[1]["reason"]
    assert fed.hub.close(1)["bounded"] == said


# Settings


@pytest.mark.parametrize("method", ["fedpurin", "fedcac", "separate"])
def test_a_trimmed_mean_is_refused_where_there_is_no_one_mean(method: str) -> None:
    with pytest.raises(ConfigError, match=rf"robust.trim = 0.1 needs one mean.*{method}.*robust.norm_bound"):
        Config().updated({"run": {"method": method}, "robust": {"trim": 0.1}})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("norm_bound", 0.5, "is below the median itself; choose 1 or more"),
        ("sample_bound", 0.9, "is below the median itself"),
        ("norm_bound", -1, "must be at least 0"),
        ("trim", 0.5, "must be at most 0.49"),
        ("trim", -0.1, "must be at least 0"),
        ("norm_bound", float("nan"), "not a finite number"),
    ],
)
def test_robust_settings_out_of_range_are_refused(name: str, value: float, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"robust.{name} = .*{says}"):
        Config().updated({"run": {"method": "fedavg"}, "robust": {name: value}})


@pytest.mark.parametrize("method", ["fedavg", "fedpurin", "fedfrugal"])
def test_values_as_large_as_are_taken_never_make_a_reply_that_is_no_number(method: str) -> None:
    """From everybody, round after round. Twice that much and their sums would leave float32."""
    fed = Federation(job(method, wire__values="float32"))
    liars = BadPeers(fed.job, [], lambda values: torch.where(values != 0, LARGEST, 0.0))
    for t in (1, 2, 3):
        fed.hub.begin(t, list(range(5)))
        for client in range(5):
            start = fed.site.initial_state(client)
            done = fed.site.work(client, t, None, start, fed.job.client_data(client))
            assert done.upload is not None
            fed.hub.accept(client, liars.forged(client, t, done.upload, start), done.meta)
        fed.hub.close(t)
        assert all(fed.hub.reply(client) for client in range(5))


def test_a_value_beyond_the_largest_is_refused() -> None:
    check_values(0, torch.tensor([[LARGEST, -LARGEST, 0.0]]))
    with pytest.raises(NotFiniteError, match=r"client 0 sent a value of 2.5e\+30; nothing above 1.3e\+30"):
        check_values(0, torch.tensor([[0.0, -2 * LARGEST]]))
