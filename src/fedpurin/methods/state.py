"""Dataclasses of tensors: what clients remember and what the server keeps, as safetensors or in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Self

from torch import Tensor


@dataclass(frozen=True)
class TensorState:
    """Every field is a tensor, or None where there is none yet. Memory of clients has a row per client."""

    def tensors(self) -> dict[str, Tensor]:
        """What is kept in files: the tensors by name."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """The state that `tensors` gave; other names are left alone."""
        return cls(**{f.name: tensors[f.name] for f in fields(cls) if f.name in tensors})

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """A copy with `change` applied to every tensor."""
        return type(self).of({name: change(tensor) for name, tensor in self.tensors().items()})


@dataclass(frozen=True)
class ServerState(TensorState):
    """What a server keeps from round to round. `tensors` is what goes into a checkpoint."""

    def support(self) -> Tensor | None:
        """bool [d]: where the global model is not zero; None before there is one."""
        return None

    @classmethod
    def kept_before(cls, tensors: Mapping[str, Tensor]) -> Iterator[tuple[int, Tensor]]:
        """Client and [d]: what a checkpoint of an old form holds of what is now kept per client."""
        yield from ()
