"""Errors of encoding and decoding."""


class WireError(ValueError):
    """A message and its bytes do not match."""


class DecodeError(WireError):
    """The bytes are not a valid message: too short, too long, an invalid null, broken UTF-8, …"""


class TooManyItems(DecodeError):  # noqa: N818
    """The message has more items than may be decoded at once, or at all."""


class EncodeError(WireError):
    """The message cannot be written: an unknown version, a field that the version lacks, a bad value."""
