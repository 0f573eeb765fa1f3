"""A device of pretence, as there is no GPU to test on: its tensors are computed on the CPU and with its bits,
but refuse to meet tensors that are not there, as those of a GPU do.

    with Pretending():
        model.to(NAME)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretended"
_setup_privateuseone_for_python_backend(NAME)
COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class Elsewhere(Tensor):
    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        own = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        own.held = held
        return own

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class Pretending(TorchDispatchMode):
    """Within, tensors can be made on the device and moved to it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
    if there and func not in COPIES and any(t.dim() for t in tensors if not isinstance(t, Elsewhere)):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device")
    stays = bool(there)
    if func is torch.ops.aten.copy_.default:
        stays = isinstance(args[0], Elsewhere)
    here = dict(kwargs)
    if kwargs.get("device") is not None:
        stays = torch.device(kwargs["device"]).type == NAME
        here["device"] = torch.device("cpu")
    result = func(*tree_map(_held, args), **tree_map(_held, here))
    if not stays:
        return result
    result = tree_map(lambda leaf: Elsewhere(leaf) if isinstance(leaf, Tensor) else leaf, result)
    return return_and_correct_aliasing(func, args, kwargs, result) if there else result


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, Elsewhere) else leaf
