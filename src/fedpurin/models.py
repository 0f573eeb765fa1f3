"""The paper's ResNet-8 and ResNet-10, a small CNN, an MLP, or any `package.module:function`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedpurin.errors import ModelError
from fedpurin.plugins import load_function

FEW_PIXELS, IMAGES_A_PIXEL = 4, 2
"""Outputs of so few pixels, of so many images for each, are computed pixel by pixel, see `Conv2d`."""


class Conv2d(nn.Conv2d):
    """A square convolution without bias that stays fast where its output has few pixels (on CPUs).

    oneDNN reads all weights anew for every image, which takes several times as long as the arithmetic once
    the output is 2x2. Here every output pixel is one matrix product over the batch, of just those weights
    that meet the image and not its padding.
    """

    def __init__(
        self, channels_in: int, channels_out: int, size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(channels_in, channels_out, size, stride, padding, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self._sights(x.shape[2]), self._sights(x.shape[3])
        pixels_out = len(rows) * len(columns)
        if x.device.type != "cpu" or pixels_out > FEW_PIXELS or len(x) < IMAGES_A_PIXEL * pixels_out:
            return super().forward(x)
        # channels last, as both lie in memory: [batch, channels_in] each, [channels_out, channels_in] each
        pixels = x.permute(0, 2, 3, 1).flatten(1, 2).unbind(1)
        taps = self.weight.permute(0, 2, 3, 1).flatten(1, 2).unbind(1)
        outputs = []
        for row in rows:
            for column in columns:
                seen = [pixels[y * x.shape[3] + z] for y, _ in row for z, _ in column]
                through = [taps[i * self.kernel_size[1] + j] for _, i in row for _, j in column]
                outputs.append(F.linear(torch.cat(seen, 1), torch.cat(through, 1)))
        return torch.stack(outputs, 1).reshape(len(x), len(rows), len(columns), -1).permute(0, 3, 1, 2)

    def _sights(self, size: int) -> list[list[tuple[int, int]]]:
        """Along one side of the image, for each output pixel: which input it sees through which weight."""
        kernel, stride, padding = self.kernel_size[0], self.stride[0], int(self.padding[0])
        starts = range(-padding, size + padding - kernel + 1, stride)
        return [[(start + i, i) for i in range(kernel) if 0 <= start + i < size] for start in starts]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv2d(channels_in, channels_out, 3, stride, padding=1)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = Conv2d(channels_out, channels_out, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                Conv2d(channels_in, channels_out, 1, stride), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x), inplace=True)


class ResNet(nn.Module):
    """One basic block per stage; a 7x7 stride-2 convolution and a max-pool before them."""

    def __init__(self, channels: int, classes: int, stages: tuple[int, ...]) -> None:
        super().__init__()
        self.pre_conv = Conv2d(channels, 64, 7, stride=2, padding=3)
        self.pre_bn = nn.BatchNorm2d(64)
        blocks, width = [], 64
        for i, stage in enumerate(stages):
            blocks.append(BasicBlock(width, stage, stride=1 if i == 0 else 2))
            width = stage
        self.stages = nn.Sequential(*blocks)
        self.classifier = nn.Linear(width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.pre_bn(self.pre_conv(x)), inplace=True), 3, stride=2, padding=1)
        logits: Tensor = self.classifier(self.stages(x).mean(dim=(2, 3)))
        return logits


class SmallCNN(nn.Module):
    """Two convolutions with batch norm and a linear head: trains in seconds on a laptop."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 5, stride=2, padding=2, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.hidden = nn.Linear(32 * 4 * 4, 64)
        self.classifier = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.adaptive_avg_pool2d(x, 4).flatten(1)
        logits: Tensor = self.classifier(F.relu(self.hidden(x)))
        return logits


class MLP(nn.Module):
    """Two hidden layers; takes inputs of any shape."""

    def __init__(self, inputs: int, classes: int, width: int = 128) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(inputs, width)
        self.hidden2 = nn.Linear(width, width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.hidden1(x.flatten(1)))
        logits: Tensor = self.classifier(F.relu(self.hidden2(x)))
        return logits


BUILDERS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "resnet8": lambda shape, classes: ResNet(shape[0], classes, (64, 128, 256)),
    "resnet10": lambda shape, classes: ResNet(shape[0], classes, (64, 128, 256, 512)),
    "cnn": lambda shape, classes: SmallCNN(shape[0], classes),
    "mlp": lambda shape, classes: MLP(math.prod(shape), classes),
}


def build(name: str, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """A new model whose initial values depend on `seed` alone.

    `name` is one of BUILDERS, or `package.module:function`; such a function is called with what it
    takes of shape= (channels, height, width) and classes=.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if ":" in name:
            return _build_own(name, shape, classes)
        if name not in BUILDERS:
            names = ", ".join(BUILDERS)
            raise ModelError(f"unknown model {name!r}; choose one of {names}, or package.module:function")
        if name != "mlp" and len(shape) != 3:
            raise ModelError(
                f"model {name!r} needs images (channels, height, width), not shape {shape}; use mlp"
            )
        return BUILDERS[name](shape, classes)


def _build_own(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    function = load_function(name, ModelError)
    offered = {"shape": shape, "classes": classes}
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some built-in that does not tell
        parameters = []
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    given = {k: v for k, v in offered.items() if takes_all or k in {p.name for p in parameters}}
    try:
        model = function(**given)
    except Exception as problem:  # whatever the user's function raises
        raise ModelError(f"{name} failed: {type(problem).__name__}: {problem}") from problem
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name} returned {type(model).__name__}, not a torch.nn.Module")
    return model
