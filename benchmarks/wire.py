"""Speed of encoding and decoding on one core, as dense-equivalent bytes (4 per parameter), beside memcpy.

    python benchmarks/wire.py [--json FILE] [--parameters 1232586] [--tau 0.5]

The default is a ResNet-8 for CIFAR-10. Every figure is the median of several calls in this process, in
processor time, so that other processes on the machine disturb it little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from fedpurin import wire
from fedpurin.core.bits import pack_bits
from fedpurin.messages import Message

REPEATS = 15
Row = dict[str, str | float | int]


def median_seconds(call: Callable[[], object]) -> float:
    call()  # warm-up
    seconds = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def messages(d: int, tau: float) -> dict[str, tuple[Message, str, wire.Reference | None]]:
    """Name -> message, direction, mask that the receiver has."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1, d, generator=generator) * 0.05
    critical = torch.rand(1, d, generator=generator) < tau
    before = critical ^ (torch.rand(1, d, generator=generator) < 0.1)
    support = critical | (torch.rand(1, d, generator=generator) < 0.9)
    sparse = torch.where(critical, values, 0.0)
    merged = torch.where(support, values, 0.0)
    echo = wire.Reference(1, pack_bits(critical)[0])
    return {
        "FedPURIN upload": (Message(sparse, critical, critical), "up", None),
        "FedPURIN upload, last mask known": (
            Message(sparse, critical, critical),
            "up",
            wire.Reference(1, pack_bits(before)[0]),
        ),
        "FedPURIN reply": (Message(merged, critical, support), "down", echo),
        "FedPURIN reply, own values left out": (
            Message(torch.where(critical, 0.0, merged), critical, support & ~critical),
            "down",
            echo,
        ),
        "FedAvg": (Message(values), "up", None),
    }


def measure(d: int, tau: float) -> tuple[float, list[Row]]:
    dense_mb = 4 * d / 1e6
    source = torch.randn(d)
    target = torch.empty(d)
    memcpy = dense_mb / median_seconds(lambda: target.copy_(source))
    rows: list[Row] = []
    for name, (message, direction, reference) in messages(d, tau).items():
        to = wire.Address(b"benchmrk", d, 2, 0, direction)  # type: ignore[arg-type]
        known = [reference] if reference else []
        for value_type in wire.VALUE_TYPES:
            for pack in (False, True):
                row = _measure_one(message, to, value_type, pack, reference, known, dense_mb)
                rows.append({"message": name, **row})
    return memcpy, rows


def _measure_one(
    message: Message,
    to: wire.Address,
    value_type: str,
    pack: bool,
    reference: wire.Reference | None,
    known: list[wire.Reference],
    dense_mb: float,
) -> Row:
    def encode() -> wire.Encoded:
        return wire.encode(message, to, values=value_type, pack=pack, reference=reference)

    encoded = encode()
    return {
        "values": value_type + (" packed" if pack else ""),
        "mask": encoded.mask_encoding,
        "bytes": len(encoded.data),
        "share of dense float32": len(encoded.data) / (dense_mb * 1e6),
        "encode MB/s": dense_mb / median_seconds(encode),
        "decode MB/s": dense_mb / median_seconds(lambda: wire.decode(encoded.data, to, known=known)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=int, default=1_232_586)
    parser.add_argument("--tau", type=float, default=0.5)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    memcpy, rows = measure(options.parameters, options.tau)
    print(f"{options.parameters} parameters, tau {options.tau}, one core; memcpy {memcpy:.0f} MB/s")
    columns = f"{'bytes':>9s}{'share':>8s}{'encode':>8s}{'decode':>8s}  MB/s"
    print(f"{'message':36s}{'values':17s}{'mask':12s}{columns}")
    for row in rows:
        print(
            f"{row['message']:36s}{row['values']:17s}{row['mask']:12s}{row['bytes']:9d}"
            f"{row['share of dense float32']:8.1%}{row['encode MB/s']:8.0f}{row['decode MB/s']:8.0f}"
        )
    if options.json:
        found = {"parameters": options.parameters, "tau": options.tau, "memcpy MB/s": memcpy, "rows": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
