"""Conversion of Kubernetes' quantities to bytes."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

_FACTORS: Final = {
    "": Decimal(1),
    **{unit: Decimal(1000) ** -n for n, unit in enumerate(("m", "u", "n"), 1)},
    **{unit: Decimal(1000) ** n for n, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{f"{unit}i": Decimal(1024) ** n for n, unit in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
}
_FORM: Final = re.compile(
    rf"(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?:(?P<exponent>[eE][+-]?[0-9]{{1,2}})|(?P<unit>{'|'.join(_FACTORS)}))"
)
"""A unit or an exponent: `1E` has a unit, `1E3` an exponent."""


def as_bytes(quantity: str) -> int:
    """Convert a quantity such as `10Gi` or `12e9` to bytes, rounded up. Raises ValueError if it is malformed."""
    found = _FORM.fullmatch(quantity)
    if found is None:
        raise ValueError(f"not a quantity: {quantity!r}")
    return math.ceil(Decimal(f"{found['number']}{found['exponent'] or ''}") * _FACTORS[found["unit"] or ""])
