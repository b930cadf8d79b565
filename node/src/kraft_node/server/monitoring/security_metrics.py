"""The metrics of authentication and TLS of listeners, under the names of Kafka's socket-server-metrics.

As in Kafka, every listener has them, and a TLS handshake is the authentication of an SSL listener.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kraft_node.server.secure.counts import AuthenticationCounts

if TYPE_CHECKING:
    from kraft_node.server.connections.listener import ServerListener
    from kraft_node.server.monitoring.metrics import Family, Labels
    from kraft_node.server.sasl.login import ListenerSasl

SOFTWARE_MAX: Final = 100
"""Kafka reports at most so many combinations of software name and version."""
_METERS: Final = (
    ("successful_authentication", "succeeded"),
    ("failed_authentication", "failed"),
    ("successful_reauthentication", "succeeded_again"),
    ("failed_reauthentication", "failed_again"),
)
_NONE: Final = AuthenticationCounts()


def labels_of(listener: ServerListener) -> Labels:
    """One loop serves every listener: it corresponds to Kafka's first processor."""
    return (("listener", listener.name), ("networkProcessor", "0"))


def security_metrics(
    listeners: Iterable[ServerListener], sasl: Mapping[str, ListenerSasl], now_ms: int
) -> Iterator[Family]:
    """The families of all listeners. `sasl`: by listener name."""
    prefix = "kafka_server_socket_server_metrics_"
    rows = []
    for one in listeners:
        tls = _NONE if one.security.tls is None else one.security.tls.counts
        logins = sasl[one.name].counts if one.name in sasl else None
        rows.append((one, tls, logins))
    for name, meter in _METERS:
        totals, rates = [], []
        for one, tls, logins in rows:
            parts = [getattr(tls if logins is None else logins, meter)]
            if logins is not None and meter == "failed":
                parts.append(tls.failed)
            totals.append((labels_of(one), float(sum(part.total for part in parts))))
            rates.append((labels_of(one), sum(part.per_second(now_ms) for part in parts)))
        yield f"{prefix}{name}_total", "counter", totals
        yield f"{prefix}{name}_rate", "gauge", rates
    counts = [(one, tls if logins is None else logins) for one, tls, logins in rows]
    by_old = [(labels_of(one), float(found.without_reauth)) for one, found in counts]
    yield prefix + "successful_authentication_no_reauth_total", "counter", by_old
    killed = [(labels_of(one), float(found.expired_killed)) for one, found in counts]
    yield prefix + "expired_connections_killed_count", "gauge", killed
    times = [(labels_of(one), durations) for one, found in counts if (durations := found.again_ms(now_ms))]
    averages = [(labels, sum(found) / len(found)) for labels, found in times]
    yield prefix + "reauthentication_latency_avg", "gauge", averages
    yield prefix + "reauthentication_latency_max", "gauge", [(labels, float(max(found))) for labels, found in times]
    yield from _connections([one for one, _, _ in rows])


def _connections(listeners: Iterable[ServerListener]) -> Iterator[Family]:
    """Open connections by the software of their clients, and by cipher suite and version of TLS."""
    prefix = "kafka_server_socket_server_metrics_"
    software: Counter[Labels] = Counter()
    ciphers: Counter[Labels] = Counter()
    for one in listeners:
        for connection in one.connections:
            name, version = connection.client_software or ("unknown", "unknown")
            labels = (("clientSoftwareName", name), ("clientSoftwareVersion", version), *labels_of(one))
            if labels in software or len(software) < SOFTWARE_MAX:
                software[labels] += 1
        if (tls := one.security.tls) is not None:
            for connection in one.connections:
                cipher = tls.cipher_of(connection.transport)
                if cipher is not None:
                    ciphers[(("cipher", cipher[0]), ("protocol", cipher[1]), *labels_of(one))] += 1
    yield prefix + "connections_software", "gauge", [(labels, float(count)) for labels, count in software.items()]
    yield prefix + "connections_tls_info", "gauge", [(labels, float(count)) for labels, count in ciphers.items()]
