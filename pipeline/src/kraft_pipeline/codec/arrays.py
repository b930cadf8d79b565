"""Wraps NumPy arrays as Arrow arrays without copies. `pa.array` would import pandas: a third of a second per worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def fixed(kind: pa.DataType, values: NDArray[Any], nulls: NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of `kind`, with the width of `values`; null where `nulls` is true."""
    assert values.itemsize * 8 == kind.bit_width, f"{values.dtype} is no {kind}"
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [validity(nulls), pa.py_buffer(values)])


def lists(kind: pa.DataType, bounds: NDArray[np.int32], items: pa.Array, nulls: NDArray[np.bool_] | None) -> pa.Array:
    """Lists of `items` between consecutive `bounds`; the bounds are one more than the lists."""
    buffers = [validity(nulls), pa.py_buffer(np.ascontiguousarray(bounds))]
    return pa.Array.from_buffers(kind, len(bounds) - 1, buffers, children=[items])


def repeated(text: str, count: int) -> pa.Array:
    """The same string `count` times."""
    raw = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(raw * count)])


def validity(nulls: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """The validity bitmap."""
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
