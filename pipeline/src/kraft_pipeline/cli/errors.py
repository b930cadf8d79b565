"""Output of a failed command: a single line with the cause last; the traceback only with `--debug`."""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, NoReturn

LINE_CHARACTERS: Final = 300
"""Maximum characters of a message. The middle is omitted, because the cause comes last."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def print_error(program: str, error: BaseException, *, debug: bool) -> None:
    """Print a failure."""
    if debug:
        trace = getattr(getattr(error, "failure", None), "trace", "")  # from the process of a task
        print(trace or "".join(traceback.format_exception(error)), file=sys.stderr)
    print(f"{program}: {line(error)}", file=sys.stderr)


def line(error: BaseException) -> str:
    """The error with the causes that its text lacks; the first cause comes last."""
    found: list[str] = []
    at: BaseException | None = error
    while at is not None and len(found) < 5:
        text = " ".join(_COLOURS.sub("", _text(at)).split()) or type(at).__name__
        if not any(text in one for one in found):
            found.append(text)
        at = at.__cause__
    whole = ": ".join(found)
    half = LINE_CHARACTERS // 2
    return whole if len(whole) <= LINE_CHARACTERS else f"{whole[: half - 3]} ... {whole[-half:]}"


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean …?" with the most similar name, or ""."""
    by_lower = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), by_lower, 1, 0.7)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""


class Parser(argparse.ArgumentParser):
    """A parser that refuses abbreviated and misspelt options, and names the nearest option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Print usage and the message, with the nearest option if one is unknown, and exit with code 2."""
        wrong = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        super().error(message + (nearest(wrong[1], set(_options(self))) if wrong else ""))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """All options of a parser and of its commands."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _options(inner)
