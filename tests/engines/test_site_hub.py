"""One client's and the server's side of a round at the edges: tiny and unequal clients, divergence."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest
import torch

from fedpurin.data import Dataset
from fedpurin.engines.hub import Hub
from fedpurin.engines.states import state_digest
from fedpurin.errors import CorruptError, DivergedError
from fedpurin.job import Job
from fedpurin.meta import Measures, Meta
from fedpurin.methods import METHODS
from fedpurin.train import Score
from tiny import Federation, four_exploding, tiny_job

every_name = pytest.mark.parametrize("name", METHODS)


@every_name
def test_clients_smaller_than_a_batch_and_with_a_remainder_of_one(name: str) -> None:
    """Batches of 5: one sample, fewer than a batch, one more than a batch, two batches and one."""
    fed = Federation(tiny_job(name, counts=(1, 3, 6, 11)))
    for t in (1, 2, 3, 4):
        record = fed.round(t)
        assert record["clients"] == [0, 1, 2, 3]
    for client in range(4):
        assert torch.isfinite(fed.states[client]["weights"]).all()
        assert torch.isfinite(fed.merged(client)).all()


def test_a_client_with_one_sample_learns_without_touching_its_running_statistics() -> None:
    """One sample has no variance: batch norm uses what it has, and its parameters still learn."""
    fed = Federation(tiny_job("fedavg", counts=(1, 8)))
    before = {k: v.clone() for k, v in fed.states[0].items()}
    fed.round(1)
    after = fed.states[0]
    statistics = [k for k in after if k.startswith("buffer.")]
    assert len(statistics) == 3
    assert all(torch.equal(before[k], after[k]) for k in statistics)
    norm = fed.job.layout.where("norm")
    assert not torch.equal(before["weights"][norm], after["weights"][norm])
    assert not torch.equal(fed.states[1]["buffer.2.running_mean"], before["buffer.2.running_mean"])


@every_name
def test_a_federation_of_one_client(name: str) -> None:
    fed = Federation(tiny_job(name, counts=(9,)))
    for t in (1, 2, 3, 4):
        record = fed.round(t)
        if "collaborators" in record:
            assert record["collaborators"] == [[]]
            assert record["threshold"] is None
            assert record["overlap"] == [[1.0]]


def exploding_job(name: str) -> Job:
    """The last client's samples are so large that two steps leave the range of float32."""
    job = tiny_job(name, model__name="tiny:plain_model", train__epochs=3)
    dataset = Dataset("exploding", job.class_names, *four_exploding())
    return replace(job, dataset=dataset)


@every_name
def test_training_that_leaves_the_numbers_is_reported_as_such(name: str) -> None:
    fed = Federation(exploding_job(name))
    fed.hub.begin(1, [3])
    with pytest.raises(DivergedError, match=r"client 3 diverged in round 1 \(NaN or Inf\); lower train.lr"):
        fed.work(3, 1)


@pytest.mark.parametrize("name", ["fedpurin", "fedcac"])
def test_scores_that_are_no_numbers_are_reported_and_not_sent_as_an_empty_mask(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As infinity times a weight of zero is, though all weights are numbers."""
    fed = Federation(tiny_job(name))
    module = importlib.import_module(f"fedpurin.methods.{name}")
    monkeypatch.setattr(module, "perturbation", lambda g, theta, **_: theta * torch.inf * 0)
    fed.hub.begin(1, [3])
    with pytest.raises(DivergedError, match=r"scores .* are NaN.*lower train.lr"):
        fed.work(3, 1)


def test_a_head_of_one_layer_leaves_fedper_nothing_to_exchange() -> None:
    fed = Federation(tiny_job("fedper", model__name="tiny:only_head"))
    assert fed.hub.selection.d == 0
    assert fed.round(1)["clients"] == [0, 1, 2, 3]
    assert fed.round(2)["merged"]["round"] == [1, 1, 1, 1]
    assert fed.hub.take_ledger() == []


# Records


def test_the_record_of_a_round() -> None:
    fed = Federation(tiny_job("fedpurin"))
    first, second = fed.round(1), fed.round(2)
    assert first["merged"] == {"clients": [], "round": [], "accuracy": [], "loss": []}
    assert second["merged"]["clients"] == [0, 1, 2, 3]
    assert second["merged"]["round"] == [1, 1, 1, 1]
    for moment in ("trained", "upload", "merged"):
        assert all(0 <= a <= 1 for a in second[moment]["accuracy"])
        assert len(second[moment]["accuracy"]) == len(second[moment]["loss"]) == 4
    assert list(second["kept"]) == ["1.weight", "1.bias", "4.weight", "4.bias"]
    assert second["seconds"].keys() == {"train", "evaluate", "client"}


def test_kept_is_the_mean_share_of_critical_parameters_per_layer() -> None:
    # magnitude at tau = 0.5: int(0.5 * size) of each layer, 48 of 96, 3 of 6, 9 of 18, 1 of 3
    fed = Federation(tiny_job("fedpurin", method__score="magnitude"))
    kept = fed.round(1)["kept"]
    assert kept == pytest.approx({"1.weight": 0.5, "1.bias": 0.5, "4.weight": 0.5, "4.bias": 1 / 3})


def test_accuracy_is_measured_on_the_model_of_each_moment() -> None:
    """trained: after local training; upload: 0 where FedPURIN sent nothing; merged: after the reply."""
    fed = Federation(tiny_job("fedpurin", method__tau=0.2))
    record = fed.round(1)
    client = 2
    data, state = fed.job.client_data(client), fed.states[client]
    model = fed.job.model(client)

    def accuracy(weights_D: torch.Tensor) -> float:
        named, at = {}, 0
        for name, p in model.named_parameters():
            named[name] = weights_D[at : at + p.numel()].view(p.shape)
            at += p.numel()
        buffers = {k.removeprefix("buffer."): v for k, v in state.items() if k.startswith("buffer.")}
        model.eval()
        logits = torch.func.functional_call(model, named | buffers, (data.test_x.float() / 255,))
        return float((logits.argmax(1) == data.test_y).float().mean())

    trained = state["weights"]
    uploaded = fed.job.selection.put(trained[None], fed.uploads[client].values_nd)[0]
    assert record["trained"]["accuracy"][client] == pytest.approx(accuracy(trained))
    assert record["upload"]["accuracy"][client] == pytest.approx(accuracy(uploaded))
    merged = accuracy(fed.merged(client))
    assert fed.round(2)["merged"]["accuracy"][client] == pytest.approx(merged)


def test_metrics_can_be_kept_from_the_server() -> None:
    fed = Federation(tiny_job("fedpurin", run__share_metrics=False))
    record = fed.round(1)
    assert record["trained"]["accuracy"] == [None] * 4
    assert record["merged"]["clients"] == []
    assert {line["bytes"]["meta"] for line in fed.hub.take_ledger()} == {4}, "the sample count alone: u32"


def test_what_goes_up_beside_an_upload_survives_its_bytes() -> None:
    score = Score(7, 10, 3.25)
    meta = Meta(123, 4, score, None, Score(1, 10, 0.5), (1.5, 0.25, 0.125))
    assert Meta.from_bytes(meta.to_bytes()) == meta
    assert Meta.from_bytes(meta.to_bytes(share_metrics=False)) == Meta(123)


@pytest.mark.parametrize("data", [b"", b"\x01\x00\x00", bytes(4), bytes(5), b"\x01" * 81, bytes(80)])
def test_malformed_meta_is_refused(data: bytes) -> None:
    """Wrong lengths; and no training samples at all."""
    with pytest.raises(CorruptError):
        Meta.from_bytes(data)


def test_more_right_answers_than_samples_are_refused() -> None:
    with pytest.raises(CorruptError, match="11 correct answers of 10"):
        Meta.from_bytes(Meta(123, 4, Score(11, 10, 3.25)).to_bytes())


@pytest.mark.parametrize(
    ("measures", "score", "says"),
    [
        ("answers", Score(1.0, 1, 0.0), "a metric that is no count"),
        ("a share", Score(1, 1, 0.0), "counts of right answers"),
        ("a metric", Score(1, 1, 0.0), "counts of right answers"),
        ("a share", Score(1.5, 1, 0.0), "1.5 correct answers of 1"),
        ("a share", Score(-0.5, 1, 0.0), "-0.5 correct answers of 1"),
        ("a metric", Score(1e101, 1, 0.0), "a metric of 1e"),
        ("a metric", Score(float("inf"), 1, 0.0), "a metric of inf"),
        ("a metric", Score(float("nan"), 1, 0.0), "a metric of nan"),
        ("a metric", Score(0.5, 1, -1e101), "a sum of losses of -1.0e"),
    ],
)
def test_a_measure_that_the_job_cannot_give_is_refused(measures: Measures, score: Score, says: str) -> None:
    with pytest.raises(CorruptError, match=says):
        Meta.from_bytes(Meta(123, 4, score).to_bytes(), measures)


@pytest.mark.parametrize("value", [-2.5, -1e80])
def test_any_finite_number_can_be_the_metric_of_a_job(value: float) -> None:
    meta = Meta(123, 4, Score(10 * value, 10, float("inf")))
    assert Meta.from_bytes(meta.to_bytes(), "a metric") == meta


def test_without_test_samples_nothing_tells_what_a_job_measures() -> None:
    assert Meta.from_bytes(Meta(123).to_bytes(), "a metric") == Meta(123)


@pytest.mark.parametrize(
    "seconds",
    [(float("nan"), 0.0, 0.0), (0.0, float("inf"), 0.0), (0.0, 0.0, -1.0), (0.0, 4e7, 0.0)],
)
def test_times_that_are_none_are_refused(seconds: tuple[float, float, float]) -> None:
    """They would stand in metrics.jsonl, and JSON knows no NaN."""
    with pytest.raises(CorruptError, match="its clock is broken"):
        Meta.from_bytes(Meta(123, seconds=seconds).to_bytes())


# Checkpoints of version 0.1


@pytest.mark.parametrize("name", ["fedpurin", "fedcac"])
def test_a_checkpoint_with_matrices_of_masks_and_merged_models_is_taken_up(name: str) -> None:
    fed = Federation(tiny_job(name, method__beta=5))
    fed.round(1)
    kept = {client: fed.hub.kept(client) for client in range(fed.hub.clients)}
    assert any(row is not None for row in kept.values())
    nothing = torch.zeros(fed.hub.selection.d)
    state = {k: v for k, v in fed.hub.state().items() if not k.startswith(("masks.", "kept."))}
    state["masks"] = torch.stack([mask for c in kept if (mask := fed.hub.known(c).mask) is not None])
    state["method.merged"] = torch.stack([nothing if row is None else row for row in kept.values()])
    state["method.alone"] = torch.tensor([row is None for row in kept.values()])
    other = Hub(fed.job)
    other.restore(state)
    for client in kept:
        assert other.reply(client) == fed.hub.reply(client)


# The digest of one client


def test_the_digest_of_a_client_covers_parameters_statistics_and_mask_and_nothing_else() -> None:
    fed = Federation(tiny_job("fedpurin", wire__values="int8", wire__feedback=True))
    fed.round(1)
    state = fed.states[0]
    digest = state_digest(state)
    for name, tensor in state.items():
        changed = state | {name: tensor + 1}
        counts = name in ("weights", "mask") or name.startswith("buffer.")
        assert (state_digest(changed) != digest) == counts, name


def test_finishing_leaves_the_state_that_is_digested() -> None:
    fed = Federation(tiny_job("fedcac"))
    fed.round(1)
    finish = fed.site.finish(1, 1, fed.hub.reply(1), fed.states[1], fed.job.client_data(1))
    assert finish.digest == state_digest(finish.state)
    assert int(Meta.from_bytes(finish.meta).merged_round) == 1
