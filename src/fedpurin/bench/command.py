"""`fedpurin bench`: does fedpurin run on this machine as fast as it can?"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedpurin.files import check_writable, write_atomic, writing

GOOD_SHARE = 0.65


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="repetitions; medians are shown (default 5)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")


def run(args: argparse.Namespace, console: Any) -> int:
    from fedpurin.bench import training

    if args.json:
        check_writable(args.json)  # now, and not when all is measured
    about = training.machine()
    console.print(f"{about['cpu']}, {about['cores']} cores, torch {about['torch']}, load {about['load']:.1f}")
    if about["load"] > 0.5:
        console.print(
            "Other programs are running: figures will be lower and less certain than they could be."
        )
    rates = training.measure(max(1, args.repeats))
    table = summary(rates)
    for line in table:
        console.print(f"{line['what']:52s}{line['value']:>12}")
    console.print(advice(table))
    if args.json:
        figures = {"machine": about, "training": table, "repeats": [asdict(r) for r in rates]}
        with writing(args.json):
            args.json.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(args.json, json.dumps(figures, indent=1) + "\n")
    return 0


def summary(rates: list[Any]) -> list[dict[str, Any]]:
    """Medians over the repetitions; ratios are taken inside each repetition."""
    from statistics import median

    def line(key: str, what: str, values: list[float], form: str) -> dict[str, Any]:
        return {"key": key, "what": what, "median": median(values), "value": form.format(median(values))}

    return [
        line("gemm", "matrix product, all cores, GFLOP/s", [r.gemm for r in rates], "{:.0f}"),
        line("ours", "ResNet-8 training, samples/s", [r.ours for r in rates], "{:.0f}"),
        line("plain", "the same as a plain loop, samples/s", [r.plain for r in rates], "{:.0f}"),
        line("ratio", "ours / plain loop", [r.ours / r.plain for r in rates], "{:.2f}"),
        line("share", "ours / limit of the cores", [r.ours / r.limit for r in rates], "{:.0%}"),
        line("task", "share of a client's task that is training", [r.task / r.ours for r in rates], "{:.0%}"),
    ]


def advice(table: list[dict[str, Any]]) -> str:
    (share,) = (line["median"] for line in table if line["key"] == "share")
    if share >= GOOD_SHARE:
        return "This machine is set up well."
    return (
        f"Training reaches {share:.0%} of the rate of a matrix product; on a quiet machine "
        f"{GOOD_SHARE:.0%} is usual. Close other programs; check that torch was built with oneDNN."
    )
