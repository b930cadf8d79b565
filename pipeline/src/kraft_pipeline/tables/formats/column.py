"""A column of a format with schemas: its type, and how a value is converted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa


class Column(NamedTuple):
    """A type, and a function that converts a format's value to a value that Arrow accepts.

    It raises ValueError, and TypeError for a value of a wrong JSON type.
    """

    kind: pa.DataType
    read: Callable[[Any], Any]
