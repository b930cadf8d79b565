"""Security of a client by the options `kafka.security.protocol`, `kafka.sasl.*` and `kafka.ssl.*`, or by a file.

The result holds Kafka's properties and is pickled as these, so executors read their own files, fetch their own tokens,
and connect as the driver does. No text of it has their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kraft_protocol.client.properties import read_properties, shared_security
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity

PREFIX: Final = "kafka."
FILE: Final = "kafka.properties.file"
"""Names a file of client properties, on the driver and on each executor."""
PREFIXES: Final = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
_LOCATIONS: Final = ("ssl.keystore.location", "ssl.truststore.location")
REDACTED: Final = r"(?i)url|kafka\.sasl\.|kafka\.ssl\..*(key|password)"
"""Names of options whose values Spark hides in plans. Spark's default hides neither a JAAS entry nor a key in PEM."""


def security_of(options: Mapping[str, str]) -> ClientSecurity:
    """The security of the options of a source or a sink, whose names are in lower case.

    Options replace entries of the file that `kafka.properties.file` names. Raises ValueError, OSError.
    """
    file = options.get(FILE)
    own = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIXES)}
    if file is None:
        return shared_security(own, "options kafka.*")
    if not file:
        raise ValueError(f"option {FILE} is empty: give the path of a file of client properties, or remove the option")
    return shared_security({**_properties_of(Path(file)), **own}, file)


def security_of_file(file: str) -> ClientSecurity:
    """The security in a file of client properties; "": none. Raises ValueError, OSError."""
    return shared_security(_properties_of(Path(file)), file) if file else NO_SECURITY


def _properties_of(file: Path) -> dict[str, str]:
    """The client properties of a file. Locations of stores are relative to its folder. Raises ValueError, OSError."""
    found = read_properties(file)
    for key in _LOCATIONS:
        if found.get(key):
            found[key] = str(file.parent / found[key])
    return found
