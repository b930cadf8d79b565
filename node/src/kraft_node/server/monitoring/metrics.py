"""Counters and histograms of requests, and the registry that prints all metrics for Prometheus.

Names follow Kafka's JMX beans under the usual exporter rules: lower case, domain, type and name joined by underscores,
tags as labels. The registry is our own: the text format is simple, and a client library would add 14 MiB to an idle
node.

The hot path costs one or two additions per request; all other figures are computed on reading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.histogram import Histogram
from kraft_node.server.monitoring.error_counts import codes_of, iterate_codes_of
from kraft_protocol.errors import error_name

if TYPE_CHECKING:
    from kraft_node.server.monitoring.error_counts import Codes
    from kraft_protocol.wire.classes import Message

Labels: TypeAlias = "tuple[tuple[str, str], ...]"
Sample: TypeAlias = "tuple[Labels, float]"
Family: TypeAlias = "tuple[str, str, Iterable[Sample]]"
"""Name, type (counter, gauge), samples."""
Collector: TypeAlias = Callable[[], Iterable[Family]]


CODES_A_STEP: Final = 2_000
"""Error codes of a large response that are counted in one step: 0.3 ms."""


class ApiMetrics:
    """The metrics of one API. `burst` counts the requests of the current burst; it is added at the burst's end."""

    __slots__ = ("_codes", "burst", "bytes_in", "errors", "latency_ms", "name", "successes", "versions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.burst = 0
        self.bytes_in = 0
        self._codes: Codes | None = None
        self.errors: Counter[int] = Counter()
        """By code."""
        self.successes = 0
        """Kafka's count of the error NONE."""
        self.latency_ms = Histogram()
        self.versions: dict[int, int] = {}

    def answered(self, response: Message) -> None:
        """Count the errors in a response."""
        if self._codes is None:
            self._codes = codes_of(type(response))
        self._count(self._codes(response))

    def answered_in_steps(self, response: Message) -> Generator[None, None, None]:
        """Count the errors in a large response, some in each step."""
        codes = iterate_codes_of(type(response))(response)
        while some := list(islice(codes, CODES_A_STEP)):
            self._count(some)
            yield

    def _count(self, codes: list[int]) -> None:
        if any(codes):
            self.errors.update(filter(None, codes))
            self.successes += codes.count(0)
        else:
            self.successes += len(codes)


class RequestMetrics:
    """The metrics of all APIs of a node."""

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}

    def api(self, key: int, name: str) -> ApiMetrics:
        """The metrics of one API, created on first use."""
        found = self.apis.get(key)
        if found is None:
            found = self.apis[key] = ApiMetrics(name)
        return found

    def collect(self, now_ms: int) -> Iterable[Family]:
        """kafka.network:type=RequestMetrics."""
        apis = sorted((a for a in self.apis.values() if a.versions), key=lambda a: a.name)
        times: list[Sample] = []
        for a in apis:
            a.latency_ms.turn(now_ms)
            times += [
                ((("request", a.name), ("quantile", name)), float(value)) for name, value in a.latency_ms.quantiles()
            ]
        prefix = "kafka_network_requestmetrics_"
        requests = [
            ((("request", a.name), ("version", str(v))), float(count))
            for a in apis
            for v, count in sorted(a.versions.items())
        ]
        yield prefix + "requests_total", "counter", requests
        yield prefix + "totaltimems", "gauge", times
        yield prefix + "totaltimems_count", "counter", [((("request", a.name),), a.latency_ms.count) for a in apis]
        yield (
            "kraft_network_request_time_ms_total",
            "counter",
            [((("request", a.name),), a.latency_ms.total) for a in apis],
        )
        yield "kraft_network_request_bytes_total", "counter", [((("request", a.name),), a.bytes_in) for a in apis]
        errors = [
            ((("request", a.name), ("error", error_name(code))), float(count))
            for a in apis
            for code, count in sorted([(0, a.successes), *a.errors.items()])
            if count
        ]
        yield prefix + "errors_total", "counter", errors


class MetricsRegistry:
    """Prints the families of its collectors in Prometheus' text format 0.0.4."""

    CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Add `collector`; each reading calls it for its families."""
        self._collectors.append(collector)

    def gauge(self, name: str, read: Callable[[], float], labels: Labels = ()) -> None:
        """Add a single number that `read` returns."""
        self._collectors.append(lambda: ((name, "gauge", ((labels, read()),)),))

    def text(self) -> str:
        """All metrics; families with the same name are printed together."""
        families: dict[str, tuple[str, list[str]]] = {}
        for collector in self._collectors:
            for name, kind, samples in collector():
                lines = families.setdefault(name, (kind, []))[1]
                lines += [f"{name}{_label_text(labels)} {_number_text(value)}" for labels, value in samples]
        parts: list[str] = []
        for name, (kind, lines) in families.items():
            if lines:
                parts += [f"# TYPE {name} {kind}", *lines]
        return "\n".join(parts) + "\n"


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number_text(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(float(value))
