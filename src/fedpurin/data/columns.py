"""One client's samples out of whatever holds them: arrays, a torch Dataset, or a table with named columns.

Tables are told by what they can do, so neither pandas nor Hugging Face's datasets need be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpurin.errors import DataError

TARGETS = ("label", "labels", "target", "y")


def is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "iloc")


def is_table(data: Any) -> bool:
    """A DataFrame or a dataset of Hugging Face."""
    return is_frame(data) or all(hasattr(data, name) for name in ("column_names", "select", "features"))


def column_names(table: Any) -> list[str]:
    return list(table.columns) if is_frame(table) else list(table.column_names)


def rows_by(table: Any, column: str) -> dict[Any, Any]:
    """The rows of a table by the value of a column, in the order of the values."""
    if not is_table(table):
        raise DataError(f"client = {column!r} names a column, but data is a {type(table).__name__}: no table")
    _check_column(table, column)
    values = np.asarray(table[column])
    distinct = np.unique(values).tolist()
    rows = {value: np.flatnonzero(values == value) for value in distinct}
    return {value: table.iloc[i] if is_frame(table) else table.select(i) for value, i in rows.items()}


def pair_of(data: Any, what: str, x: Any, y: Any, drop: Sequence[str]) -> tuple[Any, Any]:
    """Inputs and targets."""
    if isinstance(data, tuple | list) and len(data) == 2:
        return data[0], data[1]
    if is_table(data):
        return _from_table(data, what, x, y, drop)
    if isinstance(data, Mapping):
        return _from_table(_Columns(data), what, x, y, drop)
    if (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not isinstance(data, Tensor | np.ndarray)
    ):
        return _from_items(data, what, x, y)
    raise DataError(
        f"{what} is a {type(data).__name__}; give (x, y), (train_x, train_y, test_x, test_y), a Dataset "
        "or a table"
    )


class _Columns(dict[str, Any]):
    """A dict of arrays as a table."""

    @property
    def column_names(self) -> list[str]:
        return list(self)


def _from_table(table: Any, what: str, x: Any, y: Any, drop: Sequence[str]) -> tuple[Any, Any]:
    names = [name for name in column_names(table) if name not in drop]
    if y is None:
        y = next((name for name in TARGETS if name in names), None)
        if y is None:
            raise DataError(f"{what}: which column is the target? Say y=...; there are {', '.join(names)}")
    targets = [y] if isinstance(y, str) else list(y)
    chosen = [n for n in names if n not in targets] if x is None else [x] if isinstance(x, str) else list(x)
    if not chosen:
        raise DataError(f"{what} has no columns beside its target {', '.join(targets)}")
    for name in (*targets, *chosen):
        _check_column(table, name)
    return _columns(table, chosen, what), _columns(table, targets, what, text=True)


def _check_column(table: Any, name: str) -> None:
    if name not in column_names(table):
        raise DataError(f"there is no column {name!r}; there are {', '.join(map(str, column_names(table)))}")


def _columns(table: Any, names: Sequence[str], what: str, text: bool = False) -> Any:
    """One column as it is; several side by side."""
    columns = [_column(table[name], f"{what}, column {name!r}", text) for name in names]
    if len(columns) == 1:
        return columns[0]
    if any(column.ndim != 1 for column in columns):
        raise DataError(
            f"{what}: only columns of plain numbers can stand side by side; choose one with x=..."
        )
    return np.stack(columns, axis=1)


def _column(values: Any, what: str, text: bool) -> np.ndarray:
    column: np.ndarray = np.asarray(values if hasattr(values, "__array__") else _numbers(list(values), what))
    if column.dtype.kind == "O" and len(column) and not isinstance(column[0], str):
        column = np.asarray(_numbers(list(column), what))
    if column.dtype.kind in "USO" and not text:
        raise DataError(f"{what} holds text; make it numbers, or choose the columns with x=...")
    return column


def _numbers(values: list[Any], what: str) -> Any:
    """Cells that are arrays or lists themselves become one array."""
    if not values or np.ndim(values[0]) == 0:
        return values
    cells = [np.asarray(value) for value in values]
    if len({cell.shape for cell in cells}) > 1:
        raise DataError(f"{what}: samples of different lengths; pad or cut them to one")
    return np.stack(cells)


def _from_items(data: Any, what: str, x: Any, y: Any) -> tuple[Any, Any]:
    items = [data[i] for i in range(len(data))]
    if not items:
        raise DataError(f"{what} has no samples; leave it out")
    if isinstance(items[0], Mapping):
        columns = _Columns({name: [as_tensor(i[name], what) for i in items] for name in items[0]})
        return _from_table(columns, what, x, y, ())
    if not isinstance(items[0], tuple | list) or len(items[0]) != 2:
        raise DataError(f"{what}: a Dataset must give (x, y) or a dict for a sample, not {items[0]!r:.80}")
    inputs = [as_tensor(item[0], what) for item in items]
    if len({sample.shape for sample in inputs}) > 1:
        raise DataError(f"{what}: samples of different shapes; pad, cut or resize them to one")
    targets = [item[1] for item in items]
    if isinstance(targets[0], str):
        return torch.stack(inputs), targets
    return torch.stack(inputs), torch.stack([as_tensor(target, what) for target in targets])


def as_tensor(given: Any, what: str) -> Tensor:
    """Floats as float32, pixels as uint8, other whole numbers as int64. No NaN, no Inf, no objects."""
    if hasattr(given, "convert") and hasattr(given, "getbands"):  # a picture of Pillow
        pixels = np.array(given)
        given = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    try:
        tensor = given.detach().cpu() if isinstance(given, Tensor) else torch.from_numpy(_array(given))
    except (TypeError, ValueError, RuntimeError) as problem:
        raise DataError(f"{what}: not an array of numbers of one shape ({problem}); make it one") from None
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        tensor = tensor.float()
        if not torch.isfinite(tensor).all():
            raise DataError(f"{what} hold NaN, Inf or numbers too large for float32; clean them first")
        return tensor.contiguous()
    return (tensor if tensor.dtype == torch.uint8 else tensor.long()).contiguous()


def _array(given: Any) -> np.ndarray:
    array = np.array(given)  # a copy: pandas' are read-only
    if array.dtype.kind == "u" and array.dtype != np.uint8:
        array = array.astype(np.int64)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"values of type {array.dtype}")
    return array
