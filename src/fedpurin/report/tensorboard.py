"""TensorBoard event files of a run, written while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpurin.errors import MissingExtraError
from fedpurin.runs.reading import measurements
from fedpurin.runs.run import MIB, MOMENTS, VALIDATION


def tensorboard_writer(run_dir: Path | str) -> TensorboardWriter:
    """Events go to `run_dir/tensorboard`; look at them with `tensorboard --logdir run_dir`."""
    return TensorboardWriter(Path(run_dir) / "tensorboard")


def need_tensorboard() -> Any:
    """torch's SummaryWriter, where TensorBoard is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "writing TensorBoard event files") from error
    return SummaryWriter


class TensorboardWriter:
    """Takes the lines of metrics.jsonl and ledger.jsonl as they are written."""

    def __init__(self, folder: Path) -> None:
        self._writer = need_tensorboard()(str(folder))

    def round(self, line: dict[str, Any], ledger_lines: Sequence[dict[str, Any]]) -> None:
        """One line of metrics and the messages of its round; the closing line of a run is welcome too."""
        t = int(line["round"])
        for moment in (*MOMENTS, VALIDATION):
            self._moment(line, moment)
        for name, seconds in (line.get("seconds") or {}).items():
            self._add(f"seconds/{name}", seconds, t)
        groups = line.get("collaborators")
        if groups:
            self._add("groups/collaborators_per_client", sum(map(len, groups)) / len(groups), t)
        self._add("groups/threshold", line.get("threshold"), t)
        for layer, share in (line.get("kept") or {}).items():
            self._add(f"critical/{layer}", share, t)
        self._traffic(ledger_lines)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _moment(self, line: dict[str, Any], moment: str) -> None:
        """Mean and lowest over clients. A merged value goes to the round it belongs to."""
        for kind in ("accuracy", "loss"):
            by_round: dict[int, list[float]] = {}
            for _, t, value in measurements(line, moment, kind):
                by_round.setdefault(t, []).append(value)
            for t, values in by_round.items():
                self._add(f"{kind}/{moment}", sum(values) / len(values), t)
                if kind == "accuracy":
                    self._add(f"worst_client/{moment}", min(values), t)

    def _traffic(self, ledger_lines: Sequence[dict[str, Any]]) -> None:
        sums: dict[tuple[str, int], list[int]] = {}
        for entry in ledger_lines:
            key = (entry["direction"], int(entry["round"]))
            sums.setdefault(key, []).append(sum(entry["bytes"].values()))
        for (direction, t), sizes in sums.items():
            self._add(f"mib_per_client/{direction}", sum(sizes) / len(sizes) / MIB, t)

    def _add(self, tag: str, value: float | None, t: int) -> None:
        if value is not None:
            self._writer.add_scalar(tag, float(value), t)
