"""Runs as the user of the Python interface has them in hand: what `runs.Run` knows, figures, models."""

from __future__ import annotations

import base64
import html
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from fedpurin.config import Config
from fedpurin.errors import MissingExtraError, ModelError, ObjectsError, RunError
from fedpurin.given import Given, Model
from fedpurin.job import Job
from fedpurin.runs.reading import MOMENTS, read_run
from fedpurin.runs.run import Floats, Run, check_result
from fedpurin.task import metric_text


class Results:
    """What one run and a comparison have in common: they can be drawn, reported and tabulated."""

    @property
    def _all(self) -> list[RunResult]:
        raise NotImplementedError

    def figure(self, name: str, **choices: Any) -> Any:
        """A plotly figure for a notebook: see `fedpurin.report.figures.FIGURES`."""
        from fedpurin.report.figures import figure

        return figure(self._all, name, **choices)

    def save_figure(self, name: str, path: Path | str, **choices: Any) -> Path:
        """A figure as a PNG, SVG or PDF file, with the choices of `figure`."""
        from fedpurin.report.figures import save_figure

        return save_figure(self._all, name, path, **choices)

    def report(self, path: Path | str) -> Path:
        """The HTML page."""
        from fedpurin.report.page import write_report

        return write_report([run.path for run in self._all], path)

    def rows(self) -> list[dict[str, Any]]:
        """A dict per run, round, client and moment; `accuracy` is the metric of the run."""
        return [row for run in self._all for row in _rows(run)]

    def to_dataframe(self) -> Any:
        """`rows` as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise MissingExtraError("pandas", "to_dataframe") from None
        return pandas.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        """With the accuracy figure, unless there is none, or matplotlib is not installed."""
        text = f"<p>{'<br>'.join(html.escape(str(run)) for run in self._all)}</p>"
        with tempfile.TemporaryDirectory() as folder:
            try:
                file = self.save_figure("accuracy", Path(folder) / "accuracy.png")
            except (MissingExtraError, RunError):
                return text
            picture = base64.b64encode(file.read_bytes()).decode()
        return f'{text}<img alt="accuracy" src="data:image/png;base64,{picture}">'


@dataclass(frozen=True)
class RunResult(Results, Run):
    """A run directory in memory that can draw itself and give the clients' models back."""

    given: Given | None = field(default=None, repr=False, compare=False)

    @property
    def _all(self) -> list[RunResult]:
        return [self]

    def client(self, which: int | str) -> ClientResult:
        """One client, by its number or by its name."""
        if isinstance(which, str):
            if which not in self.names:
                names = ", ".join(self.names) or f"only numbers, 0 to {self.clients - 1}"
                raise RunError(f"there is no client {which!r}; there are {names}")
            which = self.names.index(which)
        if not 0 <= which < self.clients:
            raise RunError(f"there is no client {which}; they are numbered 0 to {self.clients - 1}")
        return ClientResult(self, which)

    def __str__(self) -> str:
        settings = self.config.get("train", {})
        last = (self.summary["accuracy"].get("trained") or {}).get("last")
        said = metric_text(settings.get("loss", "cross_entropy"), settings.get("metric", "auto"), last)
        state = "" if self.complete else f" of {self.planned_rounds} (not finished)"
        about = f"{self.clients} clients, {self.rounds} rounds{state}, {' '.join(said.split())}"
        return f"{self.label}: {about}, in {self.path}"


@dataclass(frozen=True)
class ClientResult:
    """What a run knows of one client."""

    run: RunResult
    id: int

    @property
    def name(self) -> str:
        return self.run.names[self.id] if self.run.names else str(self.id)

    def accuracy(self, moment: str = "trained") -> Floats:
        """[T]: the metric over the rounds at a moment: trained, upload or merged."""
        return self.run.accuracy(moment)[:, self.id]

    def loss(self, moment: str = "trained") -> Floats:
        return self.run.loss(moment)[:, self.id]

    def collaborators(self, t: int) -> list[int]:
        """With whom it shared its critical parameters in round t."""
        return (self.run.collaborators(t) or {}).get(self.id, [])

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers of its final personal model, by name."""
        from fedpurin.runs.models import read_model

        return read_model(self.run.path, self.id, self.run.result)

    def model(self, model: Model | None = None) -> nn.Module:
        """Its final personal model, as the user's own module, ready to predict.

        A run that was given a Python object for its model, and is read again later, needs it here once more.
        """
        tensors = self.state_dict()
        own = self._empty(model)
        named = {**dict(own.named_parameters()), **dict(own.named_buffers())}
        if named.keys() != tensors.keys() or any(named[k].shape != v.shape for k, v in tensors.items()):
            raise ModelError(f"this module is not the model of {self.run.path}: its parameters are others")
        with torch.no_grad():
            for name, tensor in tensors.items():
                named[name].copy_(tensor)
        return own.eval()

    def _empty(self, model: Model | None) -> nn.Module:
        config = Config.from_stored(self.run.config)
        given = self.run.given
        if model is not None:
            held = given.clients if given else None
            shape, outputs = (held.shape, held.outputs) if held else ((), len(self.run.classes))
            return Given(model=model).build_model(shape, outputs)
        try:
            own = Job.build(config, given).model(0)
            return own.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]
        except ObjectsError as problem:
            raise ModelError(
                f"{self.run.path} was given its model as a Python object; pass it again: "
                "client(...).model(make_model)"
            ) from problem


class Comparison(Results, Sequence[RunResult]):
    """The runs of a comparison: a sequence, and what can be said of all of them together."""

    def __init__(self, runs: Sequence[RunResult]) -> None:
        self.runs = list(runs)

    @property
    def _all(self) -> list[RunResult]:
        return self.runs

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[RunResult]:
        return iter(self.runs)

    @overload
    def __getitem__(self, index: int | str) -> RunResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[RunResult]: ...
    def __getitem__(self, index: int | str | slice) -> RunResult | list[RunResult]:
        """By position, or the first of a method by its name."""
        if not isinstance(index, str):
            return self.runs[index]
        for run in self.runs:
            if index in (run.method, run.label):
                return run
        raise RunError(f"no run of {index!r} here; there are {', '.join(run.method for run in self.runs)}")

    def __str__(self) -> str:
        return "\n".join(str(run) for run in self.runs)

    def __repr__(self) -> str:
        return f"Comparison({[run.path.name for run in self.runs]})"


def load_result(path: Path | str, given: Given | None = None) -> RunResult:
    """Read a run directory, finished or not. Raises RunError for anything that is not one."""
    result = RunResult(**read_run(Path(path)), given=given)
    check_result(result)
    return result


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    for moment in MOMENTS:
        accuracy, loss = run.accuracy(moment), run.loss(moment)
        for t, client in product(range(run.rounds), range(run.clients)):
            yield {
                "method": run.method,
                "seed": run.seed,
                "round": t + 1,
                "client": run.names[client] if run.names else client,
                "moment": moment,
                "accuracy": float(accuracy[t, client]),
                "loss": float(loss[t, client]),
            }
