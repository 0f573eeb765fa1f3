"""nn.Module <-> flat vector, and what kind each parameter is.

D all parameters of a model; d the exchanged ones. A layer is one parameter tensor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from fedpurin.core.bits import choose
from fedpurin.errors import ModelError

Kind = Literal["body", "head", "norm"]

NORMS: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._NormBase,  # every BatchNorm and InstanceNorm
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


@dataclass(frozen=True)
class Layer:
    name: str
    shape: tuple[int, ...]
    size: int
    start: int  # offset in the flat vector of all parameters
    kind: Kind


@dataclass(frozen=True)
class Layout:
    """The order, shape and kind of a model's parameters in its flat vector."""

    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, model: nn.Module, head: str | None = None) -> Layout:
        """Kinds come from module types; the head is the last linear layer unless `head` names a module."""
        kinds: dict[str, Kind] = {}
        last_linear = None
        for module_name, module in model.named_modules():
            for name, _ in module.named_parameters(module_name, recurse=False):
                kinds[name] = "norm" if isinstance(module, NORMS) else "body"
            if isinstance(module, nn.Linear):
                last_linear = module_name
        head = last_linear if head is None else head
        if head is None:
            raise ModelError(
                "the model has no linear layer that could be its head; name the module: model.head = ..."
            )
        if head not in dict(model.named_modules()):
            modules = ", ".join(name for name, _ in model.named_modules() if name)
            raise ModelError(f"the model has no module {head!r} to be its head; its modules are: {modules}")
        layers, start = [], 0
        for name, parameter in model.named_parameters():
            if parameter.dtype != torch.float32:
                raise ModelError(
                    f"parameter {name} is {parameter.dtype}; fedpurin trains float32 models: call .float()"
                )
            inside_head = name.startswith(f"{head}.") or head == ""
            kind: Kind = "head" if inside_head and kinds[name] != "norm" else kinds[name]
            layers.append(Layer(name, tuple(parameter.shape), parameter.numel(), start, kind))
            start += parameter.numel()
        if not layers:
            raise ModelError("the model has no parameters")
        return cls(tuple(layers))

    @property
    def total(self) -> int:
        return self.layers[-1].start + self.layers[-1].size

    def where(self, *kinds: Kind) -> Tensor:
        """bool [D]: the parameters of these kinds."""
        mask = torch.zeros(self.total, dtype=torch.bool)
        for layer in self.layers:
            if layer.kind in kinds:
                mask[layer.start : layer.start + layer.size] = True
        return mask

    def select(self, exchanged: Tensor) -> Selection:
        """The exchanged layers as a vector of their own; whole layers only."""
        chosen = []
        for layer in self.layers:
            part = exchanged[layer.start : layer.start + layer.size]
            if part.any() != part.all():
                raise ModelError(f"layer {layer.name} is exchanged only in part; exchange whole layers")
            if part.all():
                chosen.append(layer)
        return Selection(self.total, tuple(chosen))


@dataclass(frozen=True)
class Selection:
    """The exchanged layers: [n, D] -> [n, d] and back."""

    total: int
    layers: tuple[Layer, ...]

    @property
    def sizes(self) -> list[int]:
        return [layer.size for layer in self.layers]

    @cached_property
    def d(self) -> int:
        return sum(self.sizes)

    @cached_property
    def fingerprint(self) -> bytes:
        """8 bytes that two sides compare: names and shapes of what is exchanged."""
        text = ";".join(f"{layer.name}{list(layer.shape)}" for layer in self.layers)
        return hashlib.sha256(text.encode()).digest()[:8]

    def spans(self) -> Iterator[tuple[Layer, int]]:
        """Each layer with its offset among the exchanged parameters."""
        at = 0
        for layer in self.layers:
            yield layer, at
            at += layer.size

    @cached_property
    def _runs(self) -> list[tuple[int, int, int]]:
        """(start in D, start in d, length) of maximal runs, so that few copies move everything."""
        runs: list[tuple[int, int, int]] = []
        for layer, at in self.spans():
            if runs and runs[-1][0] + runs[-1][2] == layer.start:
                start, first, length = runs[-1]
                runs[-1] = (start, first, length + layer.size)
            else:
                runs.append((layer.start, at, layer.size))
        return runs

    def take(self, full_nD: Tensor) -> Tensor:
        """The exchanged columns [n, d] of [n, D]; always a copy."""
        out = full_nD.new_empty((*full_nD.shape[:-1], self.d))
        for start, at, length in self._runs:
            out[..., at : at + length] = full_nD[..., start : start + length]
        return out

    def put(self, full_nD: Tensor, part_nd: Tensor, where_nd: Tensor | None = None) -> Tensor:
        """A copy of [n, D] with its exchanged columns replaced; only those of `where_nd`, if it is given."""
        out = full_nD.clone()
        for start, at, length in self._runs:
            there, new = out[..., start : start + length], part_nd[..., at : at + length]
            there[:] = new if where_nd is None else choose(where_nd[..., at : at + length], new, there)
        return out


def read_parameters(model: nn.Module) -> Tensor:
    """[D] float32: a copy of the parameters, each in its logical (contiguous) order."""
    return _flat([p.detach() for p in model.parameters()])


def live_parameters(model: nn.Module) -> Tensor:
    """[D]: as `read_parameters`, but what is computed from it has gradients: for terms of a loss."""
    return torch.cat([p.reshape(-1) for p in model.parameters()])


def read_gradients(model: nn.Module) -> Tensor:
    """[D]: the gradients as last back-propagated; zero where a parameter had none."""
    return _flat([torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()])


@torch.no_grad()
def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """One vector, each tensor in its logical order; one pass, where reshaping and joining them takes two."""
    flat = tensors[0].new_empty(sum(x.numel() for x in tensors))
    for part, x in zip(torch.split(flat, [x.numel() for x in tensors]), tensors, strict=True):
        part.view(x.shape).copy_(x)
    return flat


def split_like(flat: Tensor, model: nn.Module) -> list[Tensor]:
    """Views of [D], one per parameter and in its shape."""
    parameters = list(model.parameters())
    parts = torch.split(flat, [p.numel() for p in parameters])
    return [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]


@torch.no_grad()
def write_parameters(model: nn.Module, flat: Tensor) -> None:
    """Copy a flat vector into the model's own tensors, keeping their memory format."""
    for p, part in zip(model.parameters(), split_like(flat, model), strict=True):
        p.copy_(part)
