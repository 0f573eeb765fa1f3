"""Local training and evaluation of one client, against loops written by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin.layout import read_gradients, read_parameters, write_parameters
from fedpurin.methods.base import Ending
from fedpurin.sections import TrainSection
from fedpurin.train import (
    EVALUATION_BATCH,
    ClientData,
    Score,
    as_batch,
    batches,
    evaluate,
    generator,
    key,
    prepare_inputs,
    refresh_statistics,
    train,
)


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def some_data(samples: int, test: int = 4) -> ClientData:
    draw = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (samples + test, 1, 3, 3), generator=draw).to(torch.uint8)
    y = torch.randint(0, 3, (samples + test,), generator=draw)
    return ClientData(x[:samples], y[:samples], x[samples:], y[samples:])


def some_model(*, norm: bool = True) -> nn.Module:
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(5)] if norm else []
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 5), *middle, nn.ReLU(), nn.Linear(5, 3))


# Randomness


def test_seeds_depend_on_every_part_and_on_nothing_else() -> None:
    seeds = {
        key(1, "training", 2, 3),
        key(2, "training", 2, 3),
        key(1, "training", 3, 2),
        key(1, "scores", 2, 3),
    }
    assert len(seeds) == 4
    # the first 8 bytes of SHA-256("1/training/2/3"), little-endian, without the lowest bit
    assert key(1, "training", 2, 3) == 1193660222316672246
    assert torch.equal(torch.rand(3, generator=generator(5, "a")), torch.rand(3, generator=generator(5, "a")))


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        (10, 5, [5, 5]),
        (12, 5, [5, 5, 2]),
        (11, 5, [5, 6]),  # a single sample left over joins the batch before: batch norm needs two
        (6, 5, [6]),
        (3, 5, [3]),
        (1, 5, [1]),
        (2, 1, [2]),
        (4, 1, [1, 1, 2]),
    ],
)
def test_batches_hold_every_sample_once_and_never_end_with_one(
    count: int, size: int, expected: list[int]
) -> None:
    parts = list(batches(count, size, torch.Generator().manual_seed(0)))
    assert [len(p) for p in parts] == expected
    assert torch.cat(parts).sort().values.tolist() == list(range(count))


def test_batches_are_shuffled_anew_by_their_generator() -> None:
    order = torch.Generator().manual_seed(0)
    first, second = torch.cat(list(batches(50, 10, order))), torch.cat(list(batches(50, 10, order)))
    assert not torch.equal(first, second)
    assert not torch.equal(first, torch.arange(50))


# Training


def by_hand(model: nn.Module, data: ClientData, settings: TrainSection, seed: int) -> tuple[Tensor, Tensor]:
    """SGD with momentum written out; the parameters at the end, and the gradient of the last mini-batch."""
    order = torch.Generator().manual_seed(seed)
    speed = [torch.zeros_like(p) for p in model.parameters()]
    model.train()
    for _ in range(settings.epochs):
        for index in batches(len(data.train_y), settings.batch_size, order):
            model.zero_grad()
            x = data.train_x[index].float() / 255
            F.cross_entropy(model(x), data.train_y[index]).backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for p, v in zip(model.parameters(), speed, strict=True):
                    assert p.grad is not None
                    v.mul_(settings.momentum).add_(p.grad + settings.weight_decay * p)
                    p.sub_(settings.lr * v)
    return read_parameters(model), read_gradients(model)


@pytest.mark.parametrize(
    "settings",
    [
        TrainSection(epochs=1, batch_size=4, lr=0.1, momentum=0.0),
        TrainSection(epochs=3, batch_size=4, lr=0.05, momentum=0.9),
        TrainSection(epochs=2, batch_size=100, lr=0.1, momentum=0.5, weight_decay=0.01),
    ],
)
@pytest.mark.parametrize("samples", [3, 9, 12])
def test_training_is_sgd_and_leaves_the_gradient_of_the_last_mini_batch(
    settings: TrainSection, samples: int
) -> None:
    """The gradient is the one before the last step, the parameters those after it."""
    data, model = some_data(samples), some_model()
    twin = copy.deepcopy(model)
    train(model, data, settings, cross_entropy, seed=11, device="cpu")
    end, gradient = by_hand(twin, data, settings, seed=11)
    torch.testing.assert_close(read_parameters(model), end, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(read_gradients(model), gradient, rtol=1e-4, atol=1e-5)


def test_squares_are_the_mean_over_the_last_epochs_mini_batches_and_change_nothing_else() -> None:
    data, model = some_data(9), some_model()
    settings = TrainSection(epochs=3, batch_size=4)
    twin = copy.deepcopy(model)
    squares = train(model, data, settings, cross_entropy, seed=3, device="cpu", ending=Ending(squares=True))
    assert train(twin, data, settings, cross_entropy, seed=3, device="cpu") is None
    assert torch.equal(read_parameters(model), read_parameters(twin))
    gradients = last_gradients(data, settings, seed=3)
    assert squares is not None
    torch.testing.assert_close(squares, torch.stack(gradients).square().mean(0), rtol=1e-4, atol=1e-7)


def last_gradients(data: ClientData, settings: TrainSection, seed: int) -> list[Tensor]:
    """Of each mini-batch of the last epoch, written out."""
    model, order = some_model(), torch.Generator().manual_seed(seed)
    speed = torch.zeros_like(read_parameters(model))
    model.train()
    for _ in range(settings.epochs):
        gradients = []
        for index in batches(len(data.train_y), settings.batch_size, order):
            model.zero_grad()
            cross_entropy(model, data.train_x[index].float() / 255, data.train_y[index]).backward()  # type: ignore[no-untyped-call]
            gradients.append(read_gradients(model))
            speed = settings.momentum * speed + gradients[-1]
            write_parameters(model, read_parameters(model) - settings.lr * speed)
    return gradients


def test_momentum_does_not_survive_a_round() -> None:
    data, settings = some_data(8), TrainSection(epochs=1, batch_size=8, lr=0.1, momentum=0.9)
    model = some_model()
    train(model, data, settings, cross_entropy, seed=1, device="cpu")
    middle = copy.deepcopy(model)
    train(model, data, settings, cross_entropy, seed=2, device="cpu")
    train(middle, data, settings, cross_entropy, seed=2, device="cpu")  # knows nothing of the first round
    assert torch.equal(read_parameters(model), read_parameters(middle))


def test_the_seed_alone_decides_also_with_dropout() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    ends = []
    for noise, seed in ((1, 5), (2, 5), (2, 6)):
        torch.manual_seed(noise)
        twin = copy.deepcopy(model)
        train(twin, some_data(9), TrainSection(epochs=2, batch_size=4), cross_entropy, seed, "cpu")
        ends.append(read_parameters(twin))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


@pytest.mark.parametrize(("samples", "batch_size"), [(1, 4), (5, 1)])
def test_a_batch_of_one_trains_with_the_running_statistics(samples: int, batch_size: int) -> None:
    model = some_model()
    norm = model[2]  # type: ignore[index]
    norm.running_mean.fill_(0.3)
    before = {name: b.clone() for name, b in model.named_buffers()}
    start = read_parameters(model)
    settings = TrainSection(epochs=2, batch_size=batch_size)
    train(model, some_data(samples), settings, cross_entropy, seed=0, device="cpu")
    assert all(torch.equal(before[name], b) for name, b in model.named_buffers())
    end = read_parameters(model)
    assert torch.isfinite(end).all()
    assert not torch.equal(start, end)


# Evaluation


def test_evaluation_counts_hits_and_sums_losses_over_all_batches() -> None:
    """More samples than fit one batch, and a remainder of one."""
    data = some_data(2, test=EVALUATION_BATCH + 1)
    model = some_model()
    model.train()
    score = evaluate(model, data, "cpu")
    model.eval()
    with torch.no_grad():
        logits = model(data.test_x.float() / 255)
    assert score.total == EVALUATION_BATCH + 1
    assert score.correct == int((logits.argmax(1) == data.test_y).sum())
    expected = float(F.cross_entropy(logits, data.test_y, reduction="sum"))
    assert score.loss_sum == pytest.approx(expected, rel=1e-5)
    assert score.accuracy == pytest.approx(score.correct / score.total)
    assert score.loss == pytest.approx(expected / score.total, rel=1e-5)


def test_a_score_of_nothing_is_zero() -> None:
    assert (Score(0, 0, 0.0).accuracy, Score(0, 0, 0.0).loss) == (0.0, 0.0)


def test_images_are_scaled_and_laid_out_channels_last() -> None:
    x = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).view(2, 3, 4, 5)
    batch = as_batch(prepare_inputs(x, "cpu"))
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(batch, x.float() / 255)


def test_floats_are_taken_as_they_are() -> None:
    x = torch.tensor([[[[300.0, -1.0]]]])
    assert torch.equal(as_batch(prepare_inputs(x, "cpu")), x)
    features = torch.tensor([[1.0, 2.0]])
    assert torch.equal(as_batch(prepare_inputs(features, "cpu")), features)


# How training may end


@pytest.mark.parametrize("tail", [1, 2, 5])
def test_with_a_tail_the_model_is_the_mean_of_the_iterates_of_the_last_epochs(tail: int) -> None:
    """The iterates by hand: SGD with momentum, one epoch after the other. 5 is more than there are: all."""
    data, settings = some_data(14), TrainSection(epochs=3, batch_size=4, lr=0.05, momentum=0.9)
    model = some_model()
    twin, plain = copy.deepcopy(model), copy.deepcopy(model)
    train(model, data, settings, cross_entropy, 7, "cpu", ending=Ending(tail=tail))
    train(plain, data, settings, cross_entropy, 7, "cpu")

    twin.train()
    x, y = prepare_inputs(data.train_x, "cpu"), data.train_y
    order = torch.Generator().manual_seed(7)
    velocity = [torch.zeros_like(p) for p in twin.parameters()]
    kept: list[Tensor] = []
    for epoch in range(3):
        for index in batches(14, 4, order):
            twin.zero_grad()
            cross_entropy(twin, as_batch(x[index]), y[index]).backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for p, v in zip(twin.parameters(), velocity, strict=True):
                    assert p.grad is not None
                    v.copy_(0.9 * v + p.grad)
                    p.sub_(0.05 * v)
            if epoch >= 3 - tail:
                kept.append(read_parameters(twin))
    assert len(kept) == min(tail, 3) * 4, "14 samples by 4: batches of 4, 4, 4 and 2"
    expected = sum(kept[1:], kept[0]) / len(kept)
    torch.testing.assert_close(read_parameters(model), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(read_parameters(plain), kept[-1], rtol=1e-5, atol=1e-6)
    assert torch.equal(read_gradients(model), read_gradients(plain)), "those of the last mini-batch stay"


@pytest.mark.parametrize(("samples", "parts"), [(10, [4, 4, 2]), (9, [4, 5]), (3, [3]), (2, [2])])
def test_refreshed_statistics_are_the_plain_mean_over_batches(samples: int, parts: list[int]) -> None:
    """In the order of the samples; a last batch of one joins the one before. The variance is unbiased."""
    data, model = some_data(samples), some_model()
    model(torch.rand(8, 1, 3, 3))  # some history, which must not count
    linear, norm = model[1], model[2]  # type: ignore[index]
    before = read_parameters(model)
    refresh_statistics(model, data, 4, "cpu")

    inner = linear(prepare_inputs(data.train_x, "cpu").flatten(1)).detach().double()
    means, variances = [], []
    for part in inner.split(parts):
        mean = part.sum(0) / len(part)
        means.append(mean)
        variances.append(((part - mean) ** 2).sum(0) / (len(part) - 1))
    expected_mean = sum(means[1:], means[0]) / len(means)
    expected_var = sum(variances[1:], variances[0]) / len(variances)
    torch.testing.assert_close(norm.running_mean.double(), expected_mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.running_var.double(), expected_var, rtol=1e-5, atol=1e-6)
    assert norm.momentum == 0.1, "as it was"
    assert torch.equal(read_parameters(model), before)


def test_statistics_stay_where_nothing_can_be_measured() -> None:
    for model, samples in ((some_model(), 1), (some_model(norm=False), 6)):
        model(torch.rand(8, 1, 3, 3))
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        refresh_statistics(model, some_data(samples), 4, "cpu")
        assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())


def test_dropout_is_off_while_statistics_are_measured() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.BatchNorm1d(9), nn.Linear(9, 3))
    refresh_statistics(model, some_data(6), 6, "cpu")
    x = prepare_inputs(some_data(6).train_x, "cpu").flatten(1)
    torch.testing.assert_close(model[2].running_mean, x.mean(0), rtol=1e-5, atol=1e-6)
