"""What goes wrong between bytes and messages."""


class WireError(ValueError):
    """A message and its bytes do not fit together."""


class DecodeError(WireError):
    """The bytes are not such a message: too short, too long, a null where none may be, broken UTF-8, …"""


class TooManyItems(DecodeError):  # noqa: N818
    """The message has more items than may be decoded at once, or at all."""


class EncodeError(WireError):
    """The message cannot be written so: no such version, a field that the version lacks, a bad value."""
