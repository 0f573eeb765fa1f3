"""The models: the paper's sizes, and a user's own."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fedpurin.errors import ModelError
from fedpurin.layout import Layout, read_parameters
from fedpurin.models import BUILDERS, Conv2d, ResNet, build


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [  # the paper's table of settings
        ("resnet8", (1, 28, 28), 10, 1_229_002),
        ("resnet8", (3, 32, 32), 10, 1_235_274),
        ("resnet10", (3, 32, 32), 100, 4_957_092),
    ],
)
def test_resnets_have_exactly_the_papers_parameters(
    name: str, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    model = build(name, shape, classes, seed=0)
    assert size(model) == parameters
    assert model(torch.zeros(2, *shape)).shape == (2, classes)


def test_the_papers_first_uploads_follow_from_the_layout() -> None:
    """At tau = 0.5 it counts 616,293 values for ResNet-8 on CIFAR-10: half of each layer but the norms."""
    layout = Layout.of(build("resnet8", (3, 32, 32), 10, seed=0))
    exchanged = layout.select(layout.where("body", "head"))
    assert sum(int(0.5 * n) for n in exchanged.sizes) == 616_293


def test_resnet_layers_are_where_the_paper_has_them() -> None:
    model = build("resnet10", (3, 32, 32), 100, seed=0)
    assert isinstance(model, ResNet)
    assert tuple(model.pre_conv.weight.shape) == (64, 3, 7, 7)
    assert [block.conv1.out_channels for block in model.stages] == [64, 128, 256, 512]
    assert [block.conv1.stride[0] for block in model.stages] == [1, 2, 2, 2]
    assert [len(list(block.shortcut)) for block in model.stages] == [0, 2, 2, 2]
    assert model.classifier.bias is not None
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert all(c.bias is None for c in convolutions)
    for c in convolutions:
        if c.weight.numel() > 20_000:  # Kaiming normal, fan-out: standard deviation sqrt(2 / (out * k * k))
            expected = math.sqrt(2 / (c.out_channels * c.kernel_size[0] * c.kernel_size[1]))
            assert c.weight.std().item() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("batch", [1, 2, 8, 100])
@pytest.mark.parametrize(
    ("side", "size", "stride", "padding"),
    [  # the last stages of the paper's networks (4 -> 2 -> 1), without padding, and larger ones
        (4, 3, 2, 1),
        (2, 3, 1, 1),
        (2, 3, 2, 1),
        (1, 3, 1, 1),
        (2, 1, 2, 0),
        (3, 3, 1, 0),
        (7, 5, 3, 1),
        (8, 3, 2, 1),
    ],
)
def test_an_output_of_few_pixels_is_the_same_convolution(
    batch: int, side: int, size: int, stride: int, padding: int
) -> None:
    """Against torch's own, in double precision: output, gradients, and how they lie in memory."""
    torch.manual_seed(side + size)
    ours = Conv2d(6, 5, size, stride, padding).double().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 6, side, side, dtype=torch.float64)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    expected = nn.Conv2d.forward(ours, x)
    direction = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, (x, ours.weight), direction)
    actual = ours(x)
    torch.testing.assert_close(actual, expected)
    for found, wanted in zip(
        torch.autograd.grad(actual, (x, ours.weight), direction), gradients, strict=True
    ):
        torch.testing.assert_close(found, wanted)
        assert found.is_contiguous(memory_format=torch.channels_last)


def test_weights_that_meet_only_padding_have_no_gradient_at_all() -> None:
    """A 3x3 kernel on an image of one pixel: eight of nine weights do nothing (CIFAR-100's last stage)."""
    convolution = Conv2d(4, 3, 3, padding=1)
    convolution(torch.rand(2, 4, 1, 1)).sum().backward()
    gradient = convolution.weight.grad
    assert gradient is not None
    assert gradient[:, :, 1, 1].all()
    gradient[:, :, 1, 1] = 0
    assert not gradient.any()


@pytest.mark.parametrize("name", BUILDERS)
def test_initial_values_come_from_the_seed_alone(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = read_parameters(build(name, (1, 28, 28), 10, seed=7))
    assert torch.equal(before, torch.get_rng_state()), "the global random state is left alone"
    torch.manual_seed(2)
    assert torch.equal(first, read_parameters(build(name, (1, 28, 28), 10, seed=7)))
    assert not torch.equal(first, read_parameters(build(name, (1, 28, 28), 10, seed=8)))


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 16, 16)])
def test_models_take_images_of_several_sizes(name: str, shape: tuple[int, ...]) -> None:
    assert build(name, shape, 5, seed=0)(torch.zeros(2, *shape)).shape == (2, 5)


def test_what_is_no_image_needs_the_mlp() -> None:
    assert build("mlp", (7,), 3, seed=0)(torch.zeros(2, 7)).shape == (2, 3)
    with pytest.raises(ModelError, match=r"'cnn' needs images.*\(7,\); use mlp"):
        build("cnn", (7,), 3, seed=0)


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'vgg'; choose one of resnet8, resnet10, cnn, mlp"):
        build("vgg", (1, 28, 28), 10, seed=0)


OWN = """
from torch import nn
def both(shape, classes): return nn.Linear(shape[0], classes)
def one(classes): return nn.Linear(4, classes)
def none(): return nn.Linear(4, 3)
def anything(**given): return nn.Linear(given["shape"][0], given["classes"])
def wrong(): return "a model"
def demanding(shape, depth): return nn.Linear(4, depth)
def failing(): raise RuntimeError("no luck")
not_callable = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_models_for_test.py").write_text(OWN)
    (tmp_path / "broken_module_for_test.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return "own_models_for_test"


@pytest.mark.parametrize("function", ["both", "one", "none", "anything"])
def test_an_own_model_is_called_with_what_it_takes(own_module: str, function: str) -> None:
    model = build(f"{own_module}:{function}", (4,), 3, seed=0)
    assert model(torch.zeros(2, 4)).shape == (2, 3)
    again = build(f"{own_module}:{function}", (4,), 3, seed=0)
    assert torch.equal(read_parameters(model), read_parameters(again))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own_models_for_test:wrong", "returned str"),
        ("own_models_for_test:demanding", "failed: TypeError: .*depth"),
        ("own_models_for_test:failing", "failed: RuntimeError: no luck"),
        ("broken_module_for_test:f", "broken_module_for_test.*SyntaxError"),
        ("own_models_for_test:missing", "no function 'missing'"),
        ("own_models_for_test:not_callable", "no function"),
        ("no_such_module_anywhere:f", "cannot import 'no_such_module_anywhere'"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_own_models_that_are_none_are_refused(name: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        build(name, (4,), 3, seed=0)


def test_a_built_in_that_does_not_tell_its_parameters_is_called_without_any() -> None:
    with pytest.raises(ModelError, match=r"builtins:dict returned dict, not a torch\.nn\.Module"):
        build("builtins:dict", (1, 8, 8), 3, seed=1)
