"""Mutate files and messages and read them: only errors of fedpurin.errors may come out.

    python scripts/fuzz.py wire|config|split|run|data --count 1000000 --seed 1

A mutant that is accepted must be what it claims: a configuration has to survive being written and read
again, a split has to fit, a run has to be shown with all that reports read, data must have the agreed shapes.
Checksums stop most mutants at the door, so half of those that have one get it repaired. Messages have a
fuzzer that knows their format: scripts/fuzz_wire.py, which `wire` runs.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
import fuzz_data as forms

from fedpurin.config import Config
from fedpurin.data import Split
from fedpurin.data.catalog import DatasetSpec, FileSpec
from fedpurin.data.official import read as read_official
from fedpurin.data.own import load_own
from fedpurin.errors import FedpurinError, RunError

Check = Callable[[bytes], None]
Repair = Callable[[bytes], bytes]


class Case(NamedTuple):
    """Sound bytes, how they are read, and how a mutant of theirs gets past the first check."""

    sound: bytes
    check: Check
    repair: Repair = bytes


TOKENS = (
    *(b"0", b"-1", b"1e999", b"nan", b"inf", b"99999999999999999999", b"true", b"null", b'""', b"[]", b"{}"),
    *(b"[[]]", b"\xff\xfe", b"\x00", b"\n", b'"', b"=", b"[run]", b"\\u0000", b"1_0", b"2020-01-01"),
    *(b'"a"', b"0.5", b"NaN", b"2147483648", b"[null]", b"[0]", b"[[0]]", b'{"a": 1}'),
)
NESTED = b"[" * 5000
TELL = 10_000  # mutants between two lines that say how far it is


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
            case 4 if random.random() < 0.2:
                del mutant[at:]
            case 5:
                mutant[at:at] = random.choice(TOKENS) if random.random() < 0.99 else NESTED
            case _:
                _replace_word(mutant, at, random)
    return bytes(mutant)


INSIDE = frozenset(b"0123456789.-+eabcdfghijklmnopqrstuvwxyz_")


def _replace_word(mutant: bytearray, at: int, random: Random) -> None:
    """The number, name or text around a place becomes another."""
    lo = hi = at
    while lo > 0 and mutant[lo - 1] in INSIDE:
        lo -= 1
    while hi < len(mutant) and mutant[hi] in INSIDE:
        hi += 1
    mutant[lo:hi] = random.choice(TOKENS)


# What is read, and what must hold of what is accepted


def config_cases(folder: Path) -> list[Case]:
    path = folder / "config.toml"

    def check(mutant: bytes) -> None:
        path.write_bytes(mutant)
        config = Config.from_toml(path)
        assert Config.from_text(config.to_toml()) == config

    texts = [Config.preset(name).to_toml() for name in ("quickstart", "frugal", "paper-cifar10")]
    sections = [f"[{section}" for section in texts[0][1:].split("\n[")]  # alone: read faster than a whole
    return [Case(text.encode(), check) for text in (*texts, *sections)]


def split_cases(folder: Path) -> list[Case]:
    path = folder / "split.json"
    parts = [np.arange(3, dtype=np.int64), np.arange(5, 9, dtype=np.int64)]
    Split(parts, parts).save(path)

    def check(mutant: bytes) -> None:
        path.write_bytes(mutant)
        split = Split.load(path)
        split.check_fits(20, 20)
        assert all(indices.max() < 20 for side in (split.train, split.test) for indices in side)
        split.save(path)
        assert Split.load(path).fingerprint == split.fingerprint

    def repair(mutant: bytes) -> bytes:
        """The fingerprint that fits, where there is a split to take one of."""
        try:
            content = json.loads(mutant)
            sides = [[np.array(i, np.int64) for i in content[side]] for side in ("train", "test")]
            return json.dumps(content | {"fingerprint": Split(*sides).fingerprint}).encode()
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError):
            return mutant

    return [Case(path.read_bytes(), check, repair)]


def data_cases(folder: Path) -> list[Case]:
    """A user's .npz, as it is and array by array, and images; the official idx and archive formats."""
    return [*_own_cases(folder / "own.npz"), *_image_cases(folder / "images"), *_official_cases(folder)]


def _own_cases(path: Path) -> list[Case]:
    x, y = np.zeros((6, 1, 2, 2), np.uint8), np.array([0, 1, 2] * 2)
    four = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}

    def check(mutant: bytes) -> None:
        path.write_bytes(mutant)
        train_x, train_y, test_x, _ = load_own(str(path), num_classes=3, shape=(1, 2, 2))
        assert train_x.shape[1:] == test_x.shape[1:] == (1, 2, 2)
        assert len(train_x) == len(train_y)
        assert 0 <= int(train_y.min()) <= int(train_y.max()) < 3

    cases = []
    for save in (np.savez, np.savez_compressed):
        for arrays in ({"x": x, "y": y}, four):
            buffer = io.BytesIO()
            save(buffer, **arrays)
            cases.append(Case(buffer.getvalue(), check))
    npy = {name: forms.npy(array) for name, array in {"x": x.astype(np.float32), "y": y}.items()}
    for packing in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        cases.append(Case(forms.zipped({"x": forms.npy(x), "y": forms.npy(y)}, packing), check))
    for name in npy:
        cases.append(Case(npy[name], lambda mutant, name=name: check(forms.zipped(npy | {name: mutant}))))
    return cases


def _image_cases(folder: Path) -> list[Case]:
    """One of two images in a folder; what is accepted is PNG or JPEG, whatever it is called."""
    sound = [*forms.pngs(), *forms.jpegs()]
    (folder / "class").mkdir(parents=True)
    (folder / "class" / "1.png").write_bytes(sound[0])

    def check(mutant: bytes) -> None:
        (folder / "class" / "2.png").write_bytes(mutant)
        train_x, train_y, test_x, _ = load_own(str(folder))
        assert len(train_x) == len(train_y) == len(test_x) == 1
        assert train_x.shape[2:] == (4, 4)
        assert mutant.startswith((forms.PNG, forms.JPEG))

    cases = [Case(image, check, forms.with_other_magic) for image in sound]
    return cases + [Case(image, check, forms.repair_png) for image in forms.pngs()]


def _official_cases(folder: Path) -> list[Case]:
    """Of a set of two small idx files, and of one archive; a repaired mutant is the official file."""
    images = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2]) + bytes(range(8))
    labels = bytes([0, 0, 8, 1, 0, 0, 0, 2, 0, 1])
    contents = {"x": images, "y": labels, "tx": images, "ty": labels}
    kinds = [("x.gz", "train", "images"), ("y.gz", "train", "labels")]
    kinds += [("tx.gz", "test", "images"), ("ty.gz", "test", "labels")]
    specs = [FileSpec(n, s, k, 2, _sha(contents[n[:-3]])) for n, s, k in kinds]  # type: ignore[arg-type]
    idx = DatasetSpec("idx", "idx", (1, 2, 2), ("a", "b"), tuple(specs))
    record = bytes([1, *range(4)])
    halves = [("r", "train"), ("s", "test")]
    records = tuple(FileSpec(n, split, "records", 1, _sha(record)) for n, split in halves)  # type: ignore[arg-type]
    cifar = DatasetSpec("cifar", "cifar", (1, 2, 2), ("a", "b"), records, archive="cifar.tar.gz")
    (folder / "idx").mkdir()
    for name, content in contents.items():
        (folder / "idx" / f"{name}.gz").write_bytes(gzip.compress(content))

    def check_idx(mutant: bytes, name: str, *, official: bool) -> None:
        file, sound = folder / "idx" / f"{name}.gz", gzip.compress(contents[name], 1)
        file.write_bytes(gzip.compress(mutant, 1) if official else mutant)
        claimed = tuple(replace(s, sha256=_sha(mutant)) if s.name == file.name else s for s in specs)
        try:
            found = read_official(replace(idx, files=claimed) if official else idx, folder)
        finally:
            file.write_bytes(sound)
        assert found.train_x.shape == (2, 1, 2, 2)
        assert 0 <= found.train_y.min() <= found.train_y.max() < 2

    def check_archive(mutant: bytes) -> None:
        (folder / "cifar.tar.gz").write_bytes(gzip.compress(mutant, 1))
        assert read_official(cifar, folder).train_y.tolist() == [1]

    def check_gzip(mutant: bytes) -> None:
        (folder / "cifar.tar.gz").write_bytes(mutant)
        assert read_official(cifar, folder).train_y.tolist() == [1]

    members = {"cifar/r": record, "cifar/s": record}
    tar = forms.tar(members)
    return [
        Case(images, lambda m: check_idx(m, "x", official=True)),
        Case(labels, lambda m: check_idx(m, "y", official=True)),
        Case(gzip.compress(images), lambda m: check_idx(m, "x", official=False)),
        *(Case(t, check_archive, forms.repair_tar) for t in (tar, *forms.extended_tars(members))),
        Case(gzip.compress(tar), check_gzip),
    ]


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


SHORT = """[run]
clients = 2
rounds = 2
seed = 1
[data]
dataset = "fashion-mnist-mini"
alpha = 0.1
train_samples = 4
test_samples = 4
[model]
name = "mlp"
[train]
epochs = 1
[method]
beta = 6
"""


def run_cases(folder: Path) -> list[Case]:
    """Every file of a run directory, one at a time, read as `show`, `report`, `ledger` and `resume` do.

    A result must follow from what is beside it, which stops most mutants; so each file has its turn in a run
    that is not finished, too.
    """
    import fedpurin
    from fedpurin.runs.checkpoints import read_checkpoint

    run = folder / "run"
    table = {
        "run": {"clients": 2, "rounds": 2, "engine": "inline"},
        "data": {"train_samples": 4, "test_samples": 4},
        "model": {"name": "mlp"},
        "train": {"epochs": 1},
    }
    fedpurin.run(Config().updated(table), run)
    (run / "config.toml").write_text(SHORT)  # only its own mutants are whole: TOML is slow
    kept = sorted((run / "checkpoints").iterdir())[-1]
    logs = {name: run / name for name in ("metrics.jsonl", "ledger.jsonl")}
    whole = read_checkpoint(kept, logs)
    full = Config().updated(table).to_toml().encode()
    result = run / "result.json"
    told, cases = result.read_bytes(), []
    for path, finished in product(sorted(run.rglob("*.*")), (True, False)):
        sound = path.read_bytes()

        def check(mutant: bytes, path: Path = path, sound: bytes = sound, finished: bool = finished) -> None:
            path.write_bytes(mutant)
            if not finished:
                result.unlink()
            try:
                if path.suffix == ".safetensors" or path.parent == kept or path.name in logs:
                    assert _resumed(kept, logs).logs == whole.logs
                if path.parent != kept:
                    _shown(run)
            finally:
                path.write_bytes(sound)
                result.write_bytes(told)

        if path == result and not finished:
            continue
        if path.is_file() and path.suffix in {".toml", ".json", ".jsonl"} and path.parent.parent != kept:
            cases.append(Case(full if path.name == "config.toml" else sound, check))
    return cases


def _resumed(folder: Path, logs: dict[str, Path]) -> Any:
    from fedpurin.runs.checkpoints import DAMAGED, read_checkpoint

    try:
        return read_checkpoint(folder, logs)
    except DAMAGED as problem:
        raise RunError("damaged: the one before is used") from problem


def _shown(path: Path) -> None:
    """All that tables, figures and reports ask of a run."""
    from fedpurin.result import load_result
    from fedpurin.runs.same_setting import labels, setting_key

    run = load_result(path)
    Config.from_stored(run.config)
    json.dumps([run.summary, run.derive_summary(), run.ledger.document(), run.ledger.table_rows()])
    setting_key(run.config), labels([run.config]), run.kept(), str(run), run.seconds(), run.rows()
    for t in range(run.rounds + 1):
        run.collaborators(t), run.overlap(t)


TARGETS = {"config": config_cases, "split": split_cases, "run": run_cases, "data": data_cases}


def fuzz(target: str, count: int, seed: int) -> Counter[str]:
    """Read `count` mutants; raises on the first that does not end well."""
    if target == "wire":
        from fuzz_wire import fuzz as fuzz_wire

        return fuzz_wire(count, seed)
    random, outcomes = Random(seed), Counter[str]()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a file is written for every mutant
    folder = Path(tempfile.mkdtemp(prefix="fedpurin-fuzz-", dir=memory))
    try:
        cases = TARGETS[target](folder)
        for case in cases:
            case.check(case.sound)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(count):
                if number and number % TELL == 0:
                    print(f"{target}: {number} mutants so far, no finding", file=sys.stderr, flush=True)
                case = cases[number % len(cases)]  # in turn
                mutant = mutate(case.sound, random)
                outcomes[_outcome(case, case.repair(mutant) if random.random() < 0.5 else mutant)] += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes


def _outcome(case: Case, mutant: bytes) -> str:
    try:
        case.check(mutant)
    except FedpurinError as error:
        return type(error).__name__
    except BaseException:
        print(f"a mutant that does not end well: {mutant!r}", file=sys.stderr)
        raise
    return "accepted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=["wire", *TARGETS])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    outcomes = fuzz(options.target, options.count, options.seed)
    seconds = time.perf_counter() - began
    rate = options.count / seconds
    print(f"{options.target}: {options.count} mutants in {seconds:.0f} s, {rate:.0f} per second; no finding")
    for name, number in outcomes.most_common():
        print(f"  {name:24s}{number:10d}")


if __name__ == "__main__":
    main()
