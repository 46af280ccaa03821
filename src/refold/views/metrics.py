"""Computes metrics from spans, by OpenTelemetry's conventions for generative AI. Pure.

The metrics are histograms: of tokens by type, of the durations of model calls, tool calls and
turns, and of the time until a response began. `traces` makes the spans; `app.otlp` encodes and
sends the metrics.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from refold.views.trace_attributes import Attribute
from refold.views.traces import TraceSpan

_Key: TypeAlias = tuple[str, tuple[tuple[str, Attribute], ...]]

# Attributes that distinguish points. The session is left out, to limit the number of
# points.
_KEY_ATTRIBUTES = (
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model",
    "gen_ai.response.model", "gen_ai.agent.name", "gen_ai.tool.name", "error.type",
)  # fmt: skip
_TOKEN_TYPES = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
}


class Metric(Struct, frozen=True):
    """A kind of histogram. `bounds` are the bucket boundaries that the conventions recommend."""

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...]


DURATION_METRIC = Metric(
    "gen_ai.client.operation.duration",
    "s",
    "GenAI operation duration.",
    tuple(0.01 * 2**n for n in range(14)),
)
TOKENS_METRIC = Metric(
    "gen_ai.client.token.usage",
    "{token}",
    "Number of input and output tokens used.",
    tuple(4.0**n for n in range(14)),
)


FIRST_CHUNK_METRIC = Metric(
    "gen_ai.client.operation.time_to_first_chunk",
    "s",
    "Time to receive the first chunk of a streamed response.",
    DURATION_METRIC.bounds,
)
_ALL_METRICS = (DURATION_METRIC, TOKENS_METRIC, FIRST_CHUNK_METRIC)


class NumberPoint(Struct, frozen=True):
    """One value of a `NumberMetric`, and its attributes."""

    attributes: Mapping[str, Attribute]
    value: float


class NumberMetric(Struct, frozen=True):
    """A metric of single numbers.

    They are current values or, if `counts`, totals that never decrease.
    """

    name: str
    unit: str
    description: str
    points: Sequence[NumberPoint]
    counts: bool = False


class Point(Struct):
    """The values of a histogram that have the same attributes.

    `counts` has the number of values in each bucket; the last bucket is after the last
    boundary.
    """

    attributes: Mapping[str, Attribute]
    counts: list[int]
    total: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")

    def add(self, value: float, bounds: Sequence[float]) -> None:
        """Count the value in its bucket, and in the sum and the extremes."""
        self.counts[bisect_left(bounds, value)] += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)


class Metrics:
    """Adds spans to histograms. `series` returns the histograms."""

    def __init__(self) -> None:
        self._points = dict[_Key, Point]()

    def add(self, spans: Iterable[TraceSpan]) -> None:
        """Add the values of all spans to the points of their metrics."""
        for span in spans:
            for metric, value, extra in _values(span):
                point = self._point(metric, _attributes(span, metric) | extra)
                point.add(value, metric.bounds)

    @property
    def series(self) -> Sequence[tuple[Metric, Sequence[Point]]]:
        """All metrics that have values, each with its points."""
        points = {
            metric.name: [
                point for (name, _), point in self._points.items() if name == metric.name
            ]
            for metric in _ALL_METRICS
        }
        return [
            (metric, points[metric.name]) for metric in _ALL_METRICS if points[metric.name]
        ]

    def _point(self, metric: Metric, attributes: Mapping[str, Attribute]) -> Point:
        """Return the point of a metric with these attributes. If there is none, create it."""
        key = (metric.name, tuple(sorted(attributes.items())))
        empty = Point(attributes, [0] * (len(metric.bounds) + 1))
        return self._points.setdefault(key, empty)


def _values(span: TraceSpan) -> Iterator[tuple[Metric, float, dict[str, Attribute]]]:
    """Yield each value that a span adds: the metric, the value, and further attributes."""
    yield DURATION_METRIC, (span.end - span.start) / 1e9, {}
    for type_, name in _TOKEN_TYPES.items():
        count = span.attributes.get(name)
        if isinstance(count, int):
            yield TOKENS_METRIC, float(count), {"gen_ai.token.type": type_}
    first = span.attributes.get("gen_ai.response.time_to_first_chunk")
    if isinstance(first, float | int):
        yield FIRST_CHUNK_METRIC, float(first), {}


def _attributes(span: TraceSpan, metric: Metric) -> dict[str, Attribute]:
    """Return the attributes by which the values of a metric are distinguished."""
    # Only durations are distinguished by error, the last of the key attributes.
    names = _KEY_ATTRIBUTES if metric is DURATION_METRIC else _KEY_ATTRIBUTES[:-1]
    return {name: span.attributes[name] for name in names if name in span.attributes}
