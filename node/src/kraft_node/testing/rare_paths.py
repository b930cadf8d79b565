"""Favours the rare paths of the product (`base.rare`) under a seed, and counts where a run came.

Each place is rare, frequent or as in production, drawn by the seed, so that rare paths meet in ever new combinations.
The draws have a generator of their own: a seed without rare paths gives the same run as ever.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

from kraft_node.base import rare

CHANCES: Final = (0.0, 0.0, 0.02, 0.2)
"""A place of a world has one of these."""


class RarePaths:
    """The rare paths of one world. `end` turns them off: then the nodes must settle as quickly as in production."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"rare paths of {seed}")
        self._chances = {place: self._rng.choice(CHANCES) for place in rare.PLACES}
        self.reached: Counter[str] = Counter()
        """How often a node came to a place."""
        self.taken: Counter[str] = Counter()
        """How often it took the rare path there."""

    def takes(self, place: str) -> bool:
        """For `base.rare`. Raises KeyError if the place is not one of `PLACES`."""
        self.reached[place] += 1
        chance = self._chances[place]
        if not chance or self._rng.random() >= chance:
            return False
        self.taken[place] += 1
        return True

    def end(self) -> None:
        """Take no rare path from now on."""
        self._chances = dict.fromkeys(self._chances, 0.0)

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """The places ask this object."""
        rare.takes = self.takes
        try:
            yield
        finally:
            rare.takes = rare.never
