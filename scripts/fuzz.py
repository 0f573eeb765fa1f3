"""Mutate files and messages and read them: only errors of fedpurin.errors may come out.

    python scripts/fuzz.py wire|config|split|run|data --count 1000000 --seed 1

A mutant that is accepted must be what it claims: a configuration has to survive being written and read
again, a split has to fit, a run has to be shown, data must have the agreed shapes. Messages have a fuzzer
that knows their format: scripts/fuzz_wire.py, which `wire` runs.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from fedpurin.config import Config
from fedpurin.data import Split
from fedpurin.data.own import load_own
from fedpurin.errors import FedpurinError

Check = Callable[[bytes], None]
TOKENS = (
    *(b"0", b"-1", b"1e999", b"nan", b"inf", b"99999999999999999999", b"true", b"null", b'""', b"[]", b"{}"),
    *(
        b"[[]]",
        b"\xff\xfe",
        b"\x00",
        b"\n",
        b'"',
        b"=",
        b"[run]",
        b"\\u0000",
        b"[" * 5000,
        b"1_0",
        b"2020-01-01",
    ),
)


def mutate(data: bytes, random: Random) -> bytes:
    """One to four changes: bits, bytes, cuts, copies, numbers in the place of numbers, whole tokens."""
    mutant = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(mutant) + 1)
        match random.randrange(8):
            case 0 if at < len(mutant):
                mutant[at] ^= 1 << random.randrange(8)
            case 1 if at < len(mutant):
                mutant[at] = random.randrange(256)
            case 2:
                del mutant[at : at + random.choice((1, 2, 8, 64))]
            case 3:
                piece = mutant[at : at + random.choice((1, 4, 16, 64))]
                where = random.randrange(len(mutant) + 1)
                mutant[where:where] = piece
            case 4:
                del mutant[at:]
            case 5:
                mutant[at:at] = random.choice(TOKENS)
            case _:
                _replace_word(mutant, at, random)
    return bytes(mutant)


def _replace_word(mutant: bytearray, at: int, random: Random) -> None:
    """The number, name or text around a place becomes another."""
    inside = b"0123456789.-+eabcdfghijklmnopqrstuvwxyz_"
    lo = hi = at
    while lo > 0 and mutant[lo - 1] in inside:
        lo -= 1
    while hi < len(mutant) and mutant[hi] in inside:
        hi += 1
    mutant[lo:hi] = random.choice(TOKENS)


# What is read, and what must hold of what is accepted


def config_target(folder: Path) -> tuple[list[bytes], Check]:
    seeds = [Config.preset(name).to_toml().encode() for name in ("quickstart", "frugal", "paper-cifar10")]
    path = folder / "config.toml"

    def check(mutant: bytes) -> None:
        path.write_bytes(mutant)
        config = Config.from_toml(path)
        assert Config.from_text(config.to_toml()) == config

    return seeds, check


def split_target(folder: Path) -> tuple[list[bytes], Check]:
    path = folder / "split.json"
    parts = [np.arange(3, dtype=np.int64), np.arange(5, 9, dtype=np.int64)]
    Split(parts, parts).save(path)
    seeds = [path.read_bytes()]

    def check(mutant: bytes) -> None:
        path.write_bytes(mutant)
        split = Split.load(path)
        split.check_fits(20, 20)
        assert all(indices.max() < 20 for side in (split.train, split.test) for indices in side)
        split.save(path)
        assert Split.load(path).fingerprint == split.fingerprint

    return seeds, check


def data_target(folder: Path) -> tuple[list[bytes], Check]:
    path = folder / "own.npz"
    x, y = np.zeros((6, 1, 2, 2), np.uint8), np.array([0, 1, 2] * 2)
    seeds = []
    for save in (np.savez, np.savez_compressed):
        for arrays in ({"x": x, "y": y}, {"x_train": x, "y_train": y, "x_test": x, "y_test": y}):
            buffer = io.BytesIO()
            save(buffer, **arrays)
            seeds.append(buffer.getvalue())

    def check(mutant: bytes) -> None:
        path.write_bytes(mutant)
        train_x, train_y, test_x, _ = load_own(str(path), num_classes=3, shape=(1, 2, 2))
        assert train_x.shape[1:] == test_x.shape[1:] == (1, 2, 2)
        assert len(train_x) == len(train_y)
        assert 0 <= int(train_y.min()) <= int(train_y.max()) < 3

    return seeds, check


def run_target(folder: Path) -> tuple[list[bytes], Check]:
    """One file of a run directory at a time."""
    import fedpurin
    from fedpurin.runs.directory import RunDirectory
    from fedpurin.runs.run import load_run

    run = folder / "run"
    table = {
        "run": {"clients": 2, "rounds": 2, "engine": "inline"},
        "data": {"train_samples": 4, "test_samples": 4},
        "model": {"name": "mlp"},
        "train": {"epochs": 1},
    }
    fedpurin.run(Config().updated(table), run)
    files = [path for path in sorted(run.rglob("*.*")) if path.suffix in {".toml", ".json", ".jsonl"}]
    sound = {path: path.read_bytes() for path in files}
    turn = iter(itertools.cycle(files))

    def check(mutant: bytes) -> None:
        path = next(turn)
        path.write_bytes(mutant)
        try:
            json.dumps(load_run(run).summary)
            with RunDirectory.open(run) as directory:
                directory.config()
        finally:
            path.write_bytes(sound[path])

    return [sound[path] for path in files], check


TARGETS = {"config": config_target, "split": split_target, "run": run_target, "data": data_target}


def fuzz(target: str, count: int, seed: int) -> Counter[str]:
    """Read `count` mutants; raises on the first that does not end well."""
    if target == "wire":
        from fuzz_wire import fuzz as fuzz_wire

        return fuzz_wire(count, seed)
    random, outcomes = Random(seed), Counter[str]()
    folder = Path(tempfile.mkdtemp(prefix="fedpurin-fuzz-"))
    try:
        seeds, check = TARGETS[target](folder)
        for sound in seeds:
            check(sound)
        for number in range(count):
            mutant = mutate(seeds[number % len(seeds)], random)  # in turn
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    check(mutant)
                outcomes["accepted"] += 1
            except FedpurinError as error:
                outcomes[type(error).__name__] += 1
            except Exception:
                print(f"mutant {number} of seed {seed}: {mutant!r}", file=sys.stderr)
                raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=["wire", *TARGETS])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    outcomes = fuzz(options.target, options.count, options.seed)
    seconds = time.perf_counter() - began
    rate = options.count / seconds
    print(f"{options.target}: {options.count} mutants in {seconds:.0f} s, {rate:.0f} per second; no finding")
    for name, number in outcomes.most_common():
        print(f"  {name:24s}{number:10d}")


if __name__ == "__main__":
    main()
