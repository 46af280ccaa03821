"""Sends spans and metrics to a collector by OTLP over HTTP, as JSON, or encodes spans for a file.

`views.traces` makes the spans, `views.metrics` the metrics; `live_traces` sends them while
sessions run. The addresses and headers come from the command line, the settings or the
variables that every OpenTelemetry program reads. No SDK is used: it makes spans as things
happen, but these are made from a journal.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from msgspec import Raw, Struct

from refold._version import __version__
from refold.errors import BadInput, RefoldError, Unreachable
from refold.provider.connect import Broken, Unconnected, server_address
from refold.provider.error_mapping import ResponseStart
from refold.provider.http import Bounds, HttpClient, HttpRequest
from refold.views.escape import escape_to_one_line
from refold.views.metrics import Metric, Point
from refold.views.traces import Attribute, TraceSpan

_Json: TypeAlias = dict[str, object]

_MAX_SPANS, _MAX_REQUEST_BYTES = 512, 1_000_000  # spans and bytes of one request, about
_STEP_SECONDS = 10.0  # for each step of it
_MAX_ANSWER_BYTES, _MAX_QUOTED_CHARS = (
    64 * 1024,
    200,
)  # bytes of an answer that are read and shown
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2  # numbers of the protocol
_CUMULATIVE, _DELTA = 2, 1
_SIGNAL_PATTERN = re.compile("/v1/(traces|metrics)$")
_HEADER_NAME_PATTERN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # of a header


Signal: TypeAlias = Literal["traces", "metrics"]


class Collector(Struct, frozen=True):
    """An address for spans or metrics."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    environ: Mapping[str, str] = {}  # variables for proxies and certificates

    @property
    def display_address(self) -> str:
        """The address without its query, which may hold a key."""
        return self.url.partition("?")[0]


def find_collector(
    endpoint: str, environ: Mapping[str, str], signal: Signal = "traces"
) -> Collector:
    """The collector at `endpoint`, or the one in the environment. Raises `BadInput`."""
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
    whole = environ.get(f"{own}_ENDPOINT", "").strip()
    base = endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    url = _with_path(base, signal) if endpoint or not whole else whole
    if not url:
        raise BadInput(
            "--otlp needs a collector: give --endpoint URL, set "
            "OTEL_EXPORTER_OTLP_ENDPOINT, or write a file with -o FILE"
        )
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise BadInput(
            "the address of the collector holds a name or a password: give them in "
            "OTEL_EXPORTER_OTLP_HEADERS, as authorization=Basic%20…"
        )
    server_address(url)
    headers = _headers(environ, f"{own}_HEADERS")
    return Collector(url, tuple(headers.items()), environ)


def is_collector_configured(environ: Mapping[str, str], signal: Signal) -> bool:
    """Whether the environment names a collector for this signal."""
    names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return any(environ.get(name, "").strip() for name in names)


def encode_spans(spans: Sequence[TraceSpan]) -> bytes:
    """An `ExportTraceServiceRequest` in the JSON of OTLP."""
    return _request([_encode_span(span) for span in spans])


async def send(spans: Sequence[TraceSpan], to: Collector) -> list[str]:
    """Send the spans. Return what the collector refused. Raises `RefoldError`."""
    refused = list[str]()
    for some in _requests(spans):
        answer = await _post(_request(some), to)
        if refusal := _refusal(answer):
            refused.append(f"{to.display_address} {refusal}")
    return refused


class MetricSums(Struct, frozen=True):
    """Metrics from `start` to `end`, in nanoseconds since 1970, of this process.

    `whole`: since its start; otherwise since the last metrics.
    """

    found: Sequence[tuple[Metric, Sequence[Point]]]
    start: int
    end: int
    instance: str  # identifies the process
    whole: bool = True


def encode_metrics(sums: MetricSums) -> bytes:
    """An `ExportMetricsServiceRequest` in the JSON of OTLP."""
    temporality = _CUMULATIVE if sums.whole else _DELTA
    metrics: list[_Json] = [
        {
            "name": metric.name, "unit": metric.unit, "description": metric.description,
            "histogram": {
                "aggregationTemporality": temporality,
                "dataPoints": [_point(metric, point, sums) for point in points],
            },
        }
        for metric, points in sums.found
    ]  # fmt: skip
    resource = {
        "resource": _resource(sums.instance),
        "scopeMetrics": [{"scope": _scope(), "metrics": metrics}],
    }
    return msgspec.json.encode({"resourceMetrics": [resource] if metrics else []})


async def send_metrics(sums: MetricSums, to: Collector) -> list[str]:
    """Send the metrics. Return what the collector refused. Raises `RefoldError`."""
    refusal = _refusal(await _post(encode_metrics(sums), to))
    return [f"{to.display_address} {refusal}"] if refusal else []


def _point(metric: Metric, point: Point, sums: MetricSums) -> _Json:
    return {
        "attributes": _attributes(point.attributes),
        "startTimeUnixNano": str(sums.start), "timeUnixNano": str(sums.end),
        "count": str(sum(point.counts)), "sum": point.total,
        "min": point.least, "max": point.most,
        "bucketCounts": [str(count) for count in point.counts],
        "explicitBounds": list(metric.bounds),
    }  # fmt: skip


def _requests(spans: Sequence[TraceSpan]) -> Iterator[list[Raw]]:
    some, size = list[Raw](), 0
    for span in spans:
        data = _encode_span(span)
        length = len(memoryview(data))
        if some and (len(some) == _MAX_SPANS or size + length > _MAX_REQUEST_BYTES):
            yield some
            some, size = [], 0
        some.append(data)
        size += length
    if some:
        yield some


def _encode_span(span: TraceSpan) -> Raw:
    return Raw(msgspec.json.encode(_span(span)))


def _request(spans: Sequence[Raw]) -> bytes:
    resource = {
        "resource": _resource(),
        "scopeSpans": [{"scope": _scope(), "spans": spans}],
    }
    return msgspec.json.encode({"resourceSpans": [resource] if spans else []})


def _scope() -> _Json:
    return {"name": "refold", "version": __version__}


def _resource(instance: str = "") -> _Json:
    attributes: dict[str, Attribute] = {
        "service.name": "refold", "service.version": __version__,
    }  # fmt: skip
    if instance:
        attributes["service.instance.id"] = instance
    return {"attributes": _attributes(attributes)}


def _with_path(url: str, signal: Signal) -> str:
    """The address for this signal below that of a collector."""
    if not url:
        return ""
    parts = urlsplit(url)
    path = _SIGNAL_PATTERN.sub("", parts.path.rstrip("/"))
    return urlunsplit(parts._replace(path=f"{path}/v1/{signal}"))


def _headers(environ: Mapping[str, str], text: str) -> dict[str, str]:
    name = "OTEL_EXPORTER_OTLP_HEADERS"
    name = text if environ.get(text, "").strip() else name
    headers = dict[str, str]()
    for pair in filter(None, map(str.strip, environ.get(name, "").split(","))):
        key, sign, value = pair.partition("=")
        value = unquote(value).strip()
        if not (
            sign
            and _HEADER_NAME_PATTERN.fullmatch(key.strip())
            and value.isascii()
            and value.isprintable()
        ):
            raise BadInput(f"{name} should look like name=value,name=value")
        headers[key.strip()] = value
    return headers


def _span(span: TraceSpan) -> _Json:
    status: _Json = {"code": _ERROR} if span.error else {}
    if span.message:
        status["message"] = span.message
    document: _Json = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": _CLIENT if span.remote else _INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
        "status": status,
    }
    return document | ({"parentSpanId": span.parent_id} if span.parent_id else {})


def _attributes(attributes: Mapping[str, Attribute]) -> list[_Json]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Attribute) -> _Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(min(max(value, -(2**63)), 2**63 - 1))}
        case float():
            return {"doubleValue": value}
        case tuple():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case _:
            return {"stringValue": value}


async def _post(body: bytes, to: Collector) -> bytes:
    headers = (
        ("user-agent", f"refold/{__version__}"), ("content-type", "application/json"),
        ("accept-encoding", "identity"), *to.headers,
    )  # fmt: skip
    request = HttpRequest(server_address(to.url), headers, body)
    client = HttpClient(to.environ, Bounds(_STEP_SECONDS, _STEP_SECONDS, _STEP_SECONDS))
    try:
        async with aclosing(await client.open(request)) as answer:
            start, (data, _) = answer.reply, await answer.content(_MAX_ANSWER_BYTES)
    except Unconnected as error:
        advice = "" if error.lasting else "; check that a collector listens there"
        raise Unreachable(
            f"cannot reach {to.display_address}: {error.why}{advice}"
        ) from error
    except Broken as error:
        raise Unreachable(f"{to.display_address} {error}") from error
    _check(start, data, to)
    return data


def _check(start: ResponseStart, answer: bytes, to: Collector) -> None:
    if 200 <= start.status < 300:
        return
    text = escape_to_one_line(answer[:_MAX_QUOTED_CHARS].decode("utf-8", "replace")).strip()
    ending = f": {text!r}" if text else ""
    raise RefoldError(
        f"{to.display_address} refused what was sent ({start.status}){ending}"
    )


class _PartialSuccess(Struct, rename="camel"):
    rejected_spans: int | str = 0  # JSON has a 64-bit number as text
    rejected_data_points: int | str = 0
    error_message: str = ""


class _Answer(Struct, rename="camel"):
    partial_success: _PartialSuccess | None = None


def _refusal(answer: bytes) -> str:
    """The refusal in an answer of the collector; "" if the answer is not JSON."""
    try:
        partly = msgspec.json.decode(answer, type=_Answer).partial_success
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    if partly is None:
        return ""
    spans, points = str(partly.rejected_spans), str(partly.rejected_data_points)
    if not partly.error_message and (spans, points) == ("0", "0"):
        return ""
    message = escape_to_one_line(partly.error_message[:_MAX_QUOTED_CHARS])
    amount = f"{points} data points" if points != "0" else f"{spans} spans"
    return f"rejected {amount}: {message!r}"
