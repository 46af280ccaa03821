"""`refold sessions export --otlp`: what a collector receives, and the error if it does
not."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from msgspec.structs import replace

from refold.app.otlp import Collector, encode_spans, find_collector, send
from refold.cli.main import main
from refold.errors import BadInput
from refold.journal.events.kinds import ModelAsked
from refold.journal.store.tree_reader import tree
from refold.testing.wire_server import Answer, WireServer, wire_server
from refold.values.usage import Usage
from refold.views.traces import TraceSpan, traces
from tests.cli.running import LONG, script, start_refold
from tests.views.planted import (
    HOSTILE,
    answer,
    family,
    session_path,
    start_events,
    write_journal,
)

ID = "20260101-000000-abcd"
Output = pytest.CaptureFixture[str]


@contextmanager
def serve(*answers: Answer) -> Iterator[WireServer]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(wire_server(*answers)) as server,
    ):
        yield server


def export(*flags: str) -> int:
    return main(["sessions", "export", ID, *flags])


def read_spans(body: bytes) -> list[dict[str, Any]]:
    resources = json.loads(body)["resourceSpans"]
    return [
        span for one in resources for item in one["scopeSpans"] for span in item["spans"]
    ]


def spans_here() -> Sequence[TraceSpan]:
    return traces(tree(session_path(), ID))


def test_a_collector_receives_every_span_of_the_session(capsys: Output) -> None:
    family(session_path())

    with serve(Answer(b"{}")) as server:
        code = export("--otlp", "--endpoint", server.url)

    request = server.heard[0]
    assert (code, request.method, request.path) == (0, "POST", "/v1/traces")
    assert request.headers["content-type"] == "application/json"
    assert request.body == encode_spans(spans_here())
    assert len(read_spans(request.body)) == 18
    assert capsys.readouterr().err == f"{server.url}/v1/traces: 18 spans of {ID}\n"


def test_a_second_export_sends_the_same_bytes() -> None:
    family(session_path())

    with serve(Answer(b"{}"), Answer(b"{}")) as server:
        for _ in range(2):
            export("--otlp", "--endpoint", f"{server.url}/v1/traces")

    assert server.heard[0].body == server.heard[1].body
    assert [request.path for request in server.heard] == ["/v1/traces"] * 2


def test_otlp_export_reads_collector_and_headers_from_otel_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family(session_path())

    with serve(Answer(b"{}")) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{server.url}/in")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc, x-a=b")
        code = export("--otlp")

    request = server.heard[0]
    assert (code, request.path) == (0, "/in/v1/traces")
    assert (request.headers["authorization"], request.headers["x-a"]) == ("Basic abc", "b")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(b"who are you", 401), "refused what was sent (401): 'who are you'"),
        (Answer(b"", 404), "refused what was sent (404)"),
        (
            Answer(raw=b"SSH-2.0-x\r\n\r\n"),
            "sent something that is not HTTP (illegal status line: bytearray(b'SSH-2.0-x'))",
        ),
    ],
)
def test_otlp_export_reports_a_failing_collector_with_its_reason(
    capsys: Output, answer: Answer, message: str
) -> None:
    family(session_path())

    with serve(answer) as server:
        code = export("--otlp", "--endpoint", server.url)

    output = capsys.readouterr()
    assert (code, output.out) == (1, "")
    assert output.err == f"refold: {server.url}/v1/traces {message}\n"


def test_otlp_export_reports_rejected_spans_with_exit_code_1(
    capsys: Output,
) -> None:
    family(session_path())
    partly = b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}'

    with serve(Answer(partly)) as server:
        code = export("--otlp", "--endpoint", server.url)

    assert code == 1
    assert "rejected 2 spans: 'too old'\n" in capsys.readouterr().err


def test_otlp_export_without_a_collector_is_refused(capsys: Output) -> None:
    family(session_path())

    code = main(["sessions", "export", ID, "--otlp"])

    assert (code, capsys.readouterr().err) == (
        1,
        "refold: --otlp needs a collector: give --endpoint URL, set "
        "OTEL_EXPORTER_OTLP_ENDPOINT, or write a file with -o FILE\n",
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--content"], "--endpoint and --content are for --otlp"),
        (["--endpoint", "http://127.0.0.1:9"], "--endpoint and --content are for --otlp"),
        (["--otlp", "--format", "md", "-o", "-"], "--otlp cannot be combined with --format"),
        (["--otlp", "-o", "-", "--endpoint", "http://a"], "--endpoint sends and -o writes"),
        (["--otlp", "-o", ""], "-o is empty"),
        (["--otlp", "--endpoint", "localhost:4318"], "'localhost:4318/v1/traces' is not a web address"),
    ],
)  # fmt: skip
def test_otlp_export_refuses_contradictory_flags(
    capsys: Output, flags: list[str], message: str
) -> None:
    family(session_path())

    assert main(["sessions", "export", ID, *flags]) == 1

    assert message in capsys.readouterr().err


def test_otlp_export_to_a_file_writes_the_bytes_that_would_be_sent(
    capsys: Output, tmp_path: Path
) -> None:
    family(session_path())
    file = tmp_path / "spans.json"

    assert main(["sessions", "export", ID, "--otlp", "-o", str(file)]) == 0
    assert main(["sessions", "export", ID, "--otlp", "-o", str(file)]) == 1

    assert file.read_bytes() == encode_spans(spans_here())
    assert "spans.json: 18 spans, " in capsys.readouterr().err


def test_otlp_export_with_no_children_omits_spans_of_subagents(capsys: Output) -> None:
    family(session_path())

    assert main(["sessions", "export", ID, "--otlp", "-o", "-", "--no-children"]) == 0

    names = [data["name"] for data in read_spans(capsys.readouterr().out.encode())]
    assert names == [
        "invoke_agent main", "chat big", "execute_tool task", "chat small", "chat big",
    ]  # fmt: skip


def test_otlp_export_splits_many_or_large_spans_into_several_requests() -> None:
    family(session_path())
    one = spans_here()[0]
    many = [replace(one, span_id=f"{n:016x}") for n in range(1100)]
    large = [replace(one, span_id=f"{n:016x}", name="x" * 600_000) for n in range(3)]

    with serve(*[Answer(b"{}")] * 6) as server:
        anyio.run(send, [*many, *large], Collector(server.url))

    ids = [
        [data["spanId"] for data in read_spans(request.body)] for request in server.heard
    ]
    assert [len(item) for item in ids] == [512, 512, 77, 1, 1]
    assert [one for some in ids for one in some] == [
        span.span_id for span in (*many, *large)
    ]


@pytest.mark.parametrize("wrong", ["secret", "a=b\x00c", "=secret", "a secret=b"])
def test_otlp_export_refuses_invalid_headers_without_quoting_them(wrong: str) -> None:
    with pytest.raises(BadInput) as error:
        find_collector("http://127.0.0.1:9", {"OTEL_EXPORTER_OTLP_HEADERS": wrong})

    text = "OTEL_EXPORTER_OTLP_HEADERS should look like name=value,name=value"
    assert str(error.value) == text


def test_otlp_endpoint_with_a_password_is_refused_and_a_key_in_it_not_shown() -> None:
    with pytest.raises(BadInput) as error:
        find_collector("https://me:secret@127.0.0.1/", {})

    assert "secret" not in str(error.value)
    assert (
        find_collector("http://127.0.0.1:9/?key=secret", {}).display_address
        == "http://127.0.0.1:9/v1/traces"
    )


def test_otlp_traces_endpoint_variable_is_used_unchanged() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:2/mine",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "c=d",
    }

    assert find_collector("", environ) == Collector(
        "http://127.0.0.1:2/mine", (("c", "d"),), environ
    )
    assert (
        find_collector("http://127.0.0.1:3/", environ).url == "http://127.0.0.1:3/v1/traces"
    )


@pytest.mark.slow
def test_otlp_export_imports_no_opentelemetry_package() -> None:
    family(session_path())
    code = (
        "import sys; from refold.cli.main import main; "
        f"main(['sessions', 'export', '{ID}', '--otlp', '-o', '-']); "
        "sys.exit(any(name.split('.')[0] == 'opentelemetry' for name in sys.modules))"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_hook_of_the_tracing_page_exports_a_session_at_its_end(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/guides/tracing.md").read_text("utf-8")
    hook = page.partition("```json\n")[2].partition("```")[0]
    home = Path(os.environ["REFOLD_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin/refold"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m refold "$@"\n', "utf-8")
    wrapper.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    flags = ("-p", "hello", "--script", script(tmp_path, {"text": "Good."}))

    with serve(Answer(b"{}")) as server:
        (home / "hooks.json").write_text(hook.replace("http://127.0.0.1:4318", server.url))
        with start_refold(
            *flags, cwd=tmp_path, env={**os.environ, "PATH": path}
        ) as process:
            out, err = process.communicate(timeout=LONG)

    assert (out, err) == (b"Good.\n", b"")
    assert [data["name"] for data in read_spans(server.heard[0].body)] == [
        "invoke_agent main", "chat script.jsonl",
    ]  # fmt: skip


@pytest.mark.peer
def test_otlp_export_is_readable_by_the_official_protobuf_package() -> None:
    why = "opentelemetry-proto is not installed: make test-peers installs it"
    service = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason=why
    )
    json_format = pytest.importorskip("google.protobuf.json_format", reason=why)
    family(session_path())
    write_journal(
        session_path("hostile"),
        [*start_events(HOSTILE), ModelAsked(), answer(usage=Usage(2**70))],
        began=1e300,
    )
    spans = [
        *traces(tree(session_path(), ID), content=True),
        *traces(tree(session_path("hostile"), "hostile"), content=True),
    ]
    document = json.loads(encode_spans(spans))
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        # OTLP writes ids as hex digits, the JSON of protobuf all bytes as base64.
        for name in {"traceId", "spanId", "parentSpanId"} & set(span):
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()

    read = json_format.ParseDict(document, service.ExportTraceServiceRequest())

    read_spans = read.resource_spans[0].scope_spans[0].spans
    assert [
        (s.trace_id.hex(), s.span_id.hex(), s.parent_span_id.hex(), s.name,
         s.start_time_unix_nano, s.end_time_unix_nano, s.status.code == 2)
        for s in read_spans
    ] == [
        (s.trace_id, s.span_id, s.parent_id, s.name, s.start, s.end, bool(s.error))
        for s in spans
    ]  # fmt: skip
    assert [len(s.attributes) for s in read_spans] == [len(s.attributes) for s in spans]


@pytest.mark.peer
def test_span_attributes_are_semantic_conventions_or_begin_with_refold() -> None:
    names = pytest.importorskip(
        "opentelemetry.semconv._incubating.attributes.gen_ai_attributes",
        reason="opentelemetry-semantic-conventions is not installed: make test-peers installs it",
    )
    family(session_path())

    used = {
        key for s in traces(tree(session_path(), ID), content=True) for key in s.attributes
    }

    known = {value for name, value in vars(names).items() if name.startswith("GEN_AI_")}
    assert {key for key in used - known if not key.startswith("refold.")} == {"error.type"}
