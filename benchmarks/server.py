"""One FedPURIN round of the server with ResNet-8: time against plain pairwise loops, and peak memory.

    python -m benchmarks.server [--clients 20 100 300 1000] [--repeats 5] [--json FILE]

Masks are random, half of the parameters each: every pair overlaps alike and about four in ten collaborate,
the worst case for averaging; "groups of 5" are masks that make small groups. The plain loops take one pair
and one client after the other, vector by vector, on all cores: with masks of integers 0 and 1, as a first
program would ("plain"), and with masks of floats ("float"), the fastest plain loops we know. They are run up
to 20 clients. Each size is measured in a process of its own; its peak includes the interpreter and torch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedpurin import models
from fedpurin.core.bits import pack_bits, unpack_bits
from fedpurin.layout import Layout, Selection
from fedpurin.messages import Uploads
from fedpurin.methods.fedpurin import FedPURIN
from fedpurin.train import prepare_process

PLAIN_CLIENTS = 20
ROUND, BETA = 10, 100


def selection() -> Selection:
    layout = Layout.of(models.build("resnet8", (3, 32, 32), 10, seed=0))
    return layout.select(FedPURIN().exchanged(layout))


def uploads(n: int, chosen: Selection, groups_of: int) -> Uploads:
    """Random values and masks; with `groups_of`, that many clients share most of their mask."""
    d = chosen.d
    random = torch.Generator().manual_seed(0)
    values_nd = torch.empty(n, d)
    packed_nb = torch.empty(n, -(-d // 8), dtype=torch.uint8)
    common = torch.rand(d, generator=random)
    for i in range(n):
        values_nd[i] = torch.rand(d, generator=random)
        own = torch.rand(d, generator=random)
        if groups_of and i % groups_of == 0:
            common = torch.rand(d, generator=random)
        mask = torch.where(own < 0.8, common, own) < 0.5 if groups_of else own < 0.5
        packed_nb[i] = pack_bits(mask)
    samples_n = torch.full((n,), 500)
    return Uploads(list(range(n)), values_nd, packed_nb, samples_n, chosen, n, lambda reply: reply.values_nd)


def ours(up: Uploads) -> tuple[float, float]:
    """Seconds, and the mean number of collaborators."""
    method = FedPURIN(beta=BETA)
    before = method.server(up.selection, len(up.clients), torch.zeros(up.selection.d))
    start = time.perf_counter()
    server = method.aggregate(before, up, ROUND)
    seconds = time.perf_counter() - start
    assert server.groups is not None
    return seconds, float(server.groups.sum(1).float().mean()) - 1


def plain(values: list[Tensor], masks: list[Tensor]) -> float:
    """Seconds of overlap, groups, means and merging, one pair and one client after the other."""
    start = time.perf_counter()
    n = len(values)
    overlaps = {
        (i, j): 1 - float((masks[i] - masks[j]).abs().sum()) / (2 * float(masks[i].sum()))
        for i in range(n)
        for j in range(n)
        if i != j
    }
    mean, most = statistics.fmean(overlaps.values()), max(overlaps.values())
    limit = mean + ROUND / BETA * (most - mean)
    bar = sum(values[i] * masks[i] for i in range(n)) / n
    merged = []
    for i in range(n):
        group = [i] + [j for j in range(n) if j != i and overlaps[i, j] >= limit]
        critical = sum(values[j] * masks[j] for j in group) / len(group)
        merged.append(critical * masks[i] + bar * (1 - masks[i]))
    return time.perf_counter() - start


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(n: int, repeats: int, groups_of: int) -> dict[str, Any]:
    prepare_process()
    chosen = selection()
    up = uploads(n, chosen, groups_of)
    bearable = n <= PLAIN_CLIENTS and not groups_of
    original = list(up.values_nd.clone()) if bearable else []
    seconds: dict[str, list[float]] = {"ours": [], "plain": [], "float": []}
    peak = 0
    for _ in range(repeats):
        spent, partners = ours(up)
        seconds["ours"].append(spent)
        peak = peak or peak_bytes()  # before the plain loops take theirs
        if bearable:
            masks = unpack_bits(up.packed_nb, chosen.d)  # type: ignore[arg-type]
            torch.set_num_threads(len(os.sched_getaffinity(0)))
            seconds["plain"].append(plain(original, list(masks.int())))
            seconds["float"].append(plain(original, list(masks.float())))
            torch.set_num_threads(1)
    values = 4 * n * chosen.d
    row: dict[str, Any] = {
        "clients": n,
        "masks": f"groups of {groups_of}" if groups_of else "random",
        "collaborators": round(partners, 1),
        "seconds": statistics.median(seconds["ours"]),
        "value matrix MB": values / 1e6,
        "peak / value matrix": peak / values,
    }
    for name in ("plain", "float") if bearable else ():
        ratios = [p / o for p, o in zip(seconds[name], seconds["ours"], strict=True)]
        row |= {
            f"{name} seconds": statistics.median(seconds[name]),
            f"{name} / ours": statistics.median(ratios),
        }
    return row


def in_own_process(n: int, repeats: int, groups_of: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.server", "--one", str(n), str(repeats), str(groups_of)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout))


def table(rows: list[dict[str, Any]]) -> None:
    print("clients         masks  partners   seconds   plain  ratio   float  ratio   peak")
    for row in rows:
        loops = "".join(
            f"{row[f'{name} seconds']:8.2f}{row[f'{name} / ours']:7.1f}"
            if f"{name} / ours" in row
            else " " * 15
            for name in ("plain", "float")
        )
        print(
            f"{row['clients']:7d}{row['masks']:>14s}{row['collaborators']:10.1f}{row['seconds']:10.3f}"
            f"{loops}{row['peak / value matrix']:7.2f}",
            flush=True,
        )


def run(clients: list[int], repeats: int) -> list[dict[str, Any]]:
    rows = []
    for n in clients:
        rows.append(in_own_process(n, repeats))
        if n >= 100:
            rows.append(in_own_process(n, repeats, groups_of=5))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[20, 100, 300, 1000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    rows = run(options.clients, options.repeats)
    table(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
