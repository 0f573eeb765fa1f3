"""What receivers decode, without the way through bytes: the oracle of the round-trip tests."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpurin.messages import Message
from fedpurin.wire import quantize


def decoded_values(message: Message, value_type: str) -> Tensor:
    """float32 [n, d]: what the receivers of these rows decode, without the way through bytes."""
    if value_type == "float32":
        return message.values_nd
    decoded = torch.zeros_like(message.values_nd)
    for i in range(len(decoded)):
        if message.support_nd is None:
            decoded[i] = quantize(message.values_nd[i], value_type)
        else:
            positions = message.support_nd[i].nonzero().squeeze(1)
            decoded[i, positions] = quantize(message.values_nd[i, positions], value_type)
    return decoded
