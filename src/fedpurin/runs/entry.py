"""The line of ledger.jsonl that a message gets when it is sent.

A message costs what was handed over: header, mask and values as they were encoded, and meta, the sample count
and metrics that go up beside it.

The paper counts 4 bytes for each non-zero value that travels, whatever its type, and for uploads with a
critical mask 1 bit per exchanged parameter; no header, no packaging.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpurin import wire
from fedpurin.messages import Message
from fedpurin.runs.ledger import Direction

PAPER_VALUE_BYTES = 4


def paper_bytes(message: Message, direction: Direction) -> int:
    """The paper's counting rule for one message of one client."""
    values_nd = message.values_nd.numpy()  # which compares and counts many times faster than torch
    travels = values_nd != 0
    if message.support_nd is not None:
        travels &= message.support_nd.numpy()
    has_mask = direction == "up" and message.critical_nd is not None
    mask = -(-values_nd.shape[1] // 8) if has_mask else 0
    return PAPER_VALUE_BYTES * int(np.count_nonzero(travels)) + mask


def ledger_entry(head: wire.Header, message: Message, *, meta: int = 0) -> dict[str, Any]:
    """The ledger line of a message that was encoded or decoded here; `meta` bytes go beside it."""
    return {
        "round": head.round,
        "client": head.client,
        "direction": head.direction,
        "bytes": {
            "header": wire.HEADER_BYTES,
            "mask": head.critical_bytes + head.outside_bytes,
            "values": head.value_bytes,
            "meta": meta,
        },
        "kept": head.kept,
        "critical": None if message.critical_nd is None else head.critical,
        "outside": head.kept_outside,
        "paper_bytes": paper_bytes(message, head.direction),
        "mask_encoding": head.mask_encoding,
        "value_type": head.value_type,
    }
