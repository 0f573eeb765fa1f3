"""What is installed, what is found, and whether training works here: the findings of `fedpurin doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from fedpurin.errors import FedpurinError
from fedpurin.version import __version__

EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "report": (("plotly", "matplotlib", "jinja2"), "the HTML report and figures"),
    "flower": (("flwr", "cryptography"), "federations between machines"),
    "ray": (("ray",), "runs on a Ray cluster"),
    "tensorboard": (("tensorboard",), "--tensorboard"),
    "images": (("pillow",), "own data in folders of images"),
}
"""The packages of each extra, by their names on the index, and what they are for."""

TRAINING_SECONDS = 1.0
LEAST_EPOCHS = 5  # also on a slow machine; fewer do not show that the loss falls


@dataclass(frozen=True)
class Finding:
    """One line. `missing` can be lived without, `broken` cannot."""

    group: str
    name: str
    status: Literal["ok", "missing", "broken"]
    text: str
    advice: str = ""


def examine() -> Iterator[Finding]:
    """Every finding, the slowest last."""
    yield from _versions()
    yield from _extras()
    yield from _data_sets()
    yield from _machine()
    yield from _folder()
    yield _training()


def _present(
    group: str, name: str, text: str | None, lack: str, advice: str, status: Literal["missing", "broken"]
) -> Finding:
    """What there is to say of something that is there; without a text it is not, and there is advice."""
    return Finding(group, name, "ok", text) if text else Finding(group, name, status, lack, advice)


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "fedpurin", "ok", __version__)
    yield Finding("versions", "python", "ok", f"{platform.python_version()} at {sys.executable}")
    for package in ("torch", "numpy", "safetensors"):
        advice = f"pip install {package}"
        yield _present("versions", package, installed(package), "not installed", advice, "broken")


def _extras() -> Iterator[Finding]:
    for extra, (packages, purpose) in EXTRAS.items():
        versions = {package: installed(package) for package in packages}
        absent = ", ".join(package for package, number in versions.items() if not number)
        text = "" if absent else ", ".join(f"{package} {number}" for package, number in versions.items())
        advice = f"for {purpose}: pip install 'fedpurin[{extra}]'"
        yield _present("extras", extra, text, f"without {absent}", advice, "missing")
    advice = "for fedpurin federation server: install nginx with your system's packages"
    yield _present("extras", "nginx", shutil.which("nginx"), "not found", advice, "missing")


def installed(package: str) -> str:
    """Its version; "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _data_sets() -> Iterator[Finding]:
    from fedpurin import data

    folder = data.resolve_data_dir(None)
    for name in data.NAMES:
        text = "bundled" if name == data.DEFAULT else f"in {folder}" if data.is_present(name) else ""
        advice = f"fedpurin data get {name}, or name its folder with --data-dir or FEDPURIN_DATA"
        yield _present("data", name, text, f"not in {folder}", advice, "missing")


def _machine() -> Iterator[Finding]:
    from fedpurin.engines.local import available_cores
    from fedpurin.environment import cpu_name

    cores = available_cores()
    text = f"{cores} usable cores, so {cores} worker processes with one torch thread each"
    yield Finding("machine", "threads", "ok", f"{text} (run.workers)")
    limit = os.environ.get("OMP_NUM_THREADS")
    if limit and limit != "1":
        yield Finding("machine", "OMP_NUM_THREADS", "ok", f"{limit}; workers use 1 whatever it says")
    yield Finding("machine", "cpu", "ok", cpu_name())
    yield Finding("machine", "device", "ok", _devices())
    yield Finding("machine", "bfloat16", "ok", _bfloat16())


def _devices() -> str:
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return ", ".join(devices) + "; run.device = cpu is the default, and the only one that repeats to the byte"


def _bfloat16() -> str:
    """Whether the processor computes in bfloat16; without, train.precision = bfloat16 works, but slowly."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return "unknown for this processor"
    fast = [flag for flag in ("amx_bf16", "avx512_bf16", "bf16") if flag in flags]
    return f"the processor has {fast[0]}" if fast else "not in this processor: slow with train.precision"


def _folder() -> Iterator[Finding]:
    from fedpurin.files import check_writable

    here = Path.cwd()
    try:
        check_writable(here / "runs" / "run")
    except FedpurinError:
        advice = "change to a folder that you can write to, or give --out"
        yield Finding("machine", "runs", "missing", f"cannot be written in {here}", advice)
    else:
        free = shutil.disk_usage(here).free / 2**30
        yield Finding("machine", "runs", "ok", f"go to {here / 'runs'}; {free:.1f} GiB free")


def _training() -> Finding:
    """A second of local training on bundled data: the loss must fall."""
    try:
        before, after, rate = train_a_second()
    except Exception as problem:  # whatever is broken here shows itself in its own way
        said = f"{type(problem).__name__}: {problem}"
        return Finding("check", "training", "broken", said, "reinstall fedpurin and torch")
    text = f"{rate:,.0f} samples per second in one process; loss from {before:.2f} to {after:.2f}"
    if not after < before:
        return Finding("check", "training", "broken", text, "training does not learn here: reinstall torch")
    return Finding("check", "training", "ok", text)


def train_a_second() -> tuple[float, float, float]:
    """The training loss of one client before and after, and samples per second."""
    from dataclasses import replace

    from torch.nn import functional as F

    from fedpurin.config import Config
    from fedpurin.job import Job
    from fedpurin.train import ClientData, evaluate, prepare_process, train

    prepare_process()
    config = Config.preset("quickstart")
    job = Job.build(config)
    mine, model = job.client_data(0), job.model(0)
    on_training = ClientData(mine.train_x, mine.train_y, mine.train_x, mine.train_y)
    one_epoch = replace(config.train, epochs=1)
    before, epochs, began = evaluate(model, on_training, "cpu").loss, -1, 0.0
    while epochs < LEAST_EPOCHS or time.perf_counter() - began < TRAINING_SECONDS:
        train(model, mine, one_epoch, lambda m, x, y: F.cross_entropy(m(x), y), epochs + 1, "cpu")
        epochs += 1
        began = began if epochs else time.perf_counter()  # the first epoch warms up
    seconds = time.perf_counter() - began
    return before, evaluate(model, on_training, "cpu").loss, epochs * len(mine.train_y) / seconds
