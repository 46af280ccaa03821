"""Sends spans and metrics to a collector by OTLP over HTTP, as JSON, or encodes spans for a
file.

`views.traces` makes the spans, and `views.metrics` the metrics; `live_traces` sends them while
sessions run. The addresses and headers come from the command line, the settings or the
variables that every OpenTelemetry program reads. No SDK is used, because an SDK makes spans
while events happen, and these spans are made from a journal later.
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
from refold.views.metrics import Metric, NumberMetric, Point
from refold.views.trace_attributes import Attribute
from refold.views.traces import TraceSpan

_Json: TypeAlias = dict[str, object]

# Approximate spans and bytes of one request.
_MAX_SPANS, _MAX_REQUEST_BYTES = 512, 1_000_000
_STEP_SECONDS = 10.0  # for each step of a request
_MAX_ANSWER_BYTES = 64 * 1024  # of a response that are read
_MAX_QUOTED_CHARS = 200  # of a response that are shown
_INTERNAL, _CLIENT, _ERROR = 1, 3, 2  # numbers of the protocol
_CUMULATIVE, _DELTA = 2, 1
_SIGNAL_PATTERN = re.compile("/v1/(traces|metrics)$")
_HEADER_NAME_PATTERN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # of a header


Signal: TypeAlias = Literal["traces", "metrics"]


class Collector(Struct, frozen=True):
    """The address of a collector of spans or metrics, and the headers for its requests."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    environ: Mapping[str, str] = {}  # variables for proxies and certificates

    @property
    def display_address(self) -> str:
        """The address without its query, which may contain a key."""
        return self.url.partition("?")[0]


def find_collector(
    endpoint: str, environ: Mapping[str, str], signal: Signal = "traces"
) -> Collector:
    """Return the collector at `endpoint`; "" means the endpoint in the environment.

    Raises `BadInput` if there is no endpoint, or if its address is invalid or has a password.
    """
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
    signal_url = environ.get(f"{own}_ENDPOINT", "").strip()
    if signal_url and not endpoint:
        url = signal_url
    else:
        base = endpoint or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
        url = _with_path(base, signal)
    if not url:
        raise BadInput(
            "--otlp needs a collector: give --endpoint URL, set "
            "OTEL_EXPORTER_OTLP_ENDPOINT, or write a file with -o FILE"
        )
    host = url.partition("://")[2].partition("/")[0]
    if "@" in host:
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
    """Return the spans as an `ExportTraceServiceRequest` in the JSON of OTLP."""
    return _encode_request([_encode_span(span) for span in spans])


async def send(spans: Sequence[TraceSpan], to: Collector) -> list[str]:
    """Send the spans. Return what the collector refused, in words. Raises `RefoldError`."""
    refused = list[str]()
    for batch in _batches(spans):
        answer = await _post(_encode_request(batch), to)
        if refusal := _refusal(answer):
            refused.append(f"{to.display_address} {refusal}")
    return refused


class MetricSums(Struct, frozen=True):
    """Metrics of this process from `start` to `end`, in nanoseconds since 1970.

    If `is_cumulative`, the metrics count from the start of the process, otherwise from the end
    of the metrics that were sent before.
    """

    histograms: Sequence[tuple[Metric, Sequence[Point]]]
    start: int
    end: int
    instance: str  # identifies the process
    is_cumulative: bool = True
    numbers: Sequence[NumberMetric] = ()


def encode_metrics(sums: MetricSums) -> bytes:
    """Return the metrics as an `ExportMetricsServiceRequest` in the JSON of OTLP."""
    temporality = _CUMULATIVE if sums.is_cumulative else _DELTA
    metrics: list[_Json] = [
        {
            "name": metric.name, "unit": metric.unit, "description": metric.description,
            "histogram": {
                "aggregationTemporality": temporality,
                "dataPoints": [_point(metric, point, sums) for point in points],
            },
        }
        for metric, points in sums.histograms
    ]  # fmt: skip
    metrics += [_number_metric(metric, sums) for metric in sums.numbers]
    resource = {
        "resource": _resource(sums.instance),
        "scopeMetrics": [{"scope": _scope(), "metrics": metrics}],
    }
    return msgspec.json.encode({"resourceMetrics": [resource] if metrics else []})


async def send_metrics(sums: MetricSums, to: Collector) -> list[str]:
    """Send the metrics. Return what the collector refused, in words. Raises `RefoldError`."""
    refusal = _refusal(await _post(encode_metrics(sums), to))
    return [f"{to.display_address} {refusal}"] if refusal else []


def _number_metric(metric: NumberMetric, sums: MetricSums) -> _Json:
    """Return a counter or a gauge in the JSON of OTLP."""
    data: _Json = {
        "dataPoints": [
            {
                "attributes": _attributes(point.attributes), "asDouble": point.value,
                "startTimeUnixNano": str(sums.start), "timeUnixNano": str(sums.end),
            }
            for point in metric.points
        ]
    }  # fmt: skip
    kind = "gauge"
    if metric.counts:
        kind = "sum"
        temporality = _CUMULATIVE if sums.is_cumulative else _DELTA
        data |= {"isMonotonic": True, "aggregationTemporality": temporality}
    about = {"name": metric.name, "unit": metric.unit, "description": metric.description}
    return {**about, kind: data}


def _point(metric: Metric, point: Point, sums: MetricSums) -> _Json:
    """Return a point of a histogram in the JSON of OTLP."""
    return {
        "attributes": _attributes(point.attributes),
        "startTimeUnixNano": str(sums.start), "timeUnixNano": str(sums.end),
        "count": str(sum(point.counts)), "sum": point.total,
        "min": point.least, "max": point.most,
        "bucketCounts": [str(count) for count in point.counts],
        "explicitBounds": list(metric.bounds),
    }  # fmt: skip


def _batches(spans: Sequence[TraceSpan]) -> Iterator[list[Raw]]:
    """Yield the encoded spans in lists that are small enough for one request."""
    batch, size = list[Raw](), 0
    for span in spans:
        data = _encode_span(span)
        length = len(memoryview(data))
        if batch and (len(batch) == _MAX_SPANS or size + length > _MAX_REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(data)
        size += length
    if batch:
        yield batch


def _encode_span(span: TraceSpan) -> Raw:
    return Raw(msgspec.json.encode(_span(span)))


def _encode_request(spans: Sequence[Raw]) -> bytes:
    """Return the body of a request with these spans, in JSON."""
    resource = {
        "resource": _resource(),
        "scopeSpans": [{"scope": _scope(), "spans": spans}],
    }
    return msgspec.json.encode({"resourceSpans": [resource] if spans else []})


def _scope() -> _Json:
    return {"name": "refold", "version": __version__}


def _resource(instance: str = "") -> _Json:
    """Return refold as a resource. `instance` is the id of this process; "" leaves it out."""
    attributes: dict[str, Attribute] = {
        "service.name": "refold", "service.version": __version__,
    }  # fmt: skip
    if instance:
        attributes["service.instance.id"] = instance
    return {"attributes": _attributes(attributes)}


def _with_path(url: str, signal: Signal) -> str:
    """Return the address for this signal, which is below the address `url` of a collector."""
    if not url:
        return ""
    parts = urlsplit(url)
    path = _SIGNAL_PATTERN.sub("", parts.path.rstrip("/"))
    return urlunsplit(parts._replace(path=f"{path}/v1/{signal}"))


def _headers(environ: Mapping[str, str], signal_variable: str) -> dict[str, str]:
    """Return the headers in the variable for this signal, or else in that for all signals."""
    has_own = bool(environ.get(signal_variable, "").strip())
    name = signal_variable if has_own else "OTEL_EXPORTER_OTLP_HEADERS"
    headers = dict[str, str]()
    pairs = [pair.strip() for pair in environ.get(name, "").split(",")]
    for pair in filter(None, pairs):
        key, sign, quoted_value = pair.partition("=")
        header_name = key.strip()
        value = unquote(quoted_value).strip()
        is_valid_name = _HEADER_NAME_PATTERN.fullmatch(header_name)
        is_valid_value = value.isascii() and value.isprintable()
        if not (sign and is_valid_name and is_valid_value):
            raise BadInput(f"{name} should look like name=value,name=value")
        headers[header_name] = value
    return headers


def _span(span: TraceSpan) -> _Json:
    """Return a span in the JSON of OTLP."""
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
    if span.parent_id:
        document["parentSpanId"] = span.parent_id
    return document


def _attributes(attributes: Mapping[str, Attribute]) -> list[_Json]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Attribute) -> _Json:
    """Return the value of an attribute in the JSON of OTLP."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            bounded = min(max(value, -(2**63)), 2**63 - 1)  # OTLP has 64-bit integers
            return {"intValue": str(bounded)}
        case float():
            return {"doubleValue": value}
        case tuple():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case _:
            return {"stringValue": value}


async def _post(body: bytes, to: Collector) -> bytes:
    """Send a body to a collector, and return its answer. Raises `RefoldError`."""
    headers = (
        ("user-agent", f"refold/{__version__}"), ("content-type", "application/json"),
        ("accept-encoding", "identity"), *to.headers,
    )  # fmt: skip
    request = HttpRequest(server_address(to.url), headers, body)
    client = HttpClient(to.environ, Bounds(_STEP_SECONDS, _STEP_SECONDS, _STEP_SECONDS))
    try:
        async with aclosing(await client.open(request)) as answer:
            reply_start = answer.reply
            data, _ = await answer.content(_MAX_ANSWER_BYTES)
    except Unconnected as error:
        advice = "" if error.lasting else "; check that a collector listens there"
        raise Unreachable(
            f"cannot reach {to.display_address}: {error.why}{advice}"
        ) from error
    except Broken as error:
        raise Unreachable(f"{to.display_address} {error}") from error
    _check_status(reply_start, data, to)
    return data


def _check_status(start: ResponseStart, answer: bytes, to: Collector) -> None:
    """Raise `RefoldError`, with the beginning of the answer, unless the status is a success."""
    if 200 <= start.status < 300:
        return
    text = escape_to_one_line(answer[:_MAX_QUOTED_CHARS].decode("utf-8", "replace")).strip()
    ending = f": {text!r}" if text else ""
    raise RefoldError(
        f"{to.display_address} refused what was sent ({start.status}){ending}"
    )


class _PartialSuccess(Struct, rename="camel"):
    rejected_spans: int | str = 0  # JSON has 64-bit numbers as text
    rejected_data_points: int | str = 0
    error_message: str = ""


class _Answer(Struct, rename="camel"):
    partial_success: _PartialSuccess | None = None


def _refusal(answer: bytes) -> str:
    """Return what the collector refused, according to its response.

    Return "" if it refused nothing, or if the response is not JSON.
    """
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
