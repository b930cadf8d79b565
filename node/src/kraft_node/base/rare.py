"""Rare paths: marked places at which a simulation may choose what seldom happens.

The product works with large buffers, long pauses and full batches, so some paths are taken once in a thousand hours:
a map of keys that is full, a load of one record a turn, a session that made room for another. At a marked place the
code asks `takes`. In production the answer is always no. A simulation answers by the seed (`testing.rare_paths`), and
reports the places that its runs never reached.

A mark must not change what the code promises: the path that it takes may always be taken, only seldom is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

PLACES: Final[Mapping[str, str]] = {
    "answer of one batch": "a fetch gets one batch, as if it had asked for one byte",
    "batch of one change": "the controller's next append begins a batch of its own",
    "checkpoint late": "a periodic write of the checkpoints is left out",
    "coordinator batch full": "the operations collected by a coordinator are appended before the next",
    "coordinator load short": "a turn of a coordinator's load applies one record",
    "coordinator read small": "a coordinator's load reads one batch",
    "completion alone": "the last record of a transaction does not wait for the next transaction",
    "fetch cannot wait": "a fetch is answered at once, as if very many waited",
    "follower fetch small": "a follower asks for one batch",
    "follower step small": "a follower appends one batch in a step",
    "index gone": "the index of a segment is built again",
    "key map small": "a pass of the cleaner has room for a few keys",
    "one proposal": "a request to the controller has one change of an ISR",
    "produce cannot wait": "a produce is not acknowledged, as if very many waited",
    "quorum fetch small": "a voter or observer gets one batch of the metadata log",
    "quorum snapshot": "a snapshot of the metadata is taken after any commit",
    "request in pieces": "a request of few rows is handled in steps, as a request of very many",
    "segment rolled": "a new segment begins before any batch",
    "session evicted": "a fetch session has made room for another",
    "turn short": "a turn of the loop ends after one step",
}
"""Each place, and what happens there."""


def never(place: str) -> bool:  # noqa: ARG001
    """The answer in production."""
    return False


takes: Callable[[str], bool] = never
"""Whether the path of a place of `PLACES` is taken now. Call it through the module: a simulation replaces it."""
