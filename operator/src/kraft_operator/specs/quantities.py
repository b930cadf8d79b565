"""Conversion of Kubernetes' quantities to bytes."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

_FACTORS: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** n for n, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{f"{unit}i": Decimal(1024) ** n for n, unit in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
}


def as_bytes(quantity: str) -> int:
    """Convert a quantity such as `10Gi` to bytes, rounded up. Raises ValueError if it is malformed."""
    number = quantity.rstrip("mkKMGTPEi")
    unit = quantity[len(number) :]
    if unit not in _FACTORS or not number.replace(".", "", 1).isdigit():
        raise ValueError(f"not a quantity: {quantity!r}")
    return math.ceil(Decimal(number) * _FACTORS[unit])
