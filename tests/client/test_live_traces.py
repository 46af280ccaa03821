"""Spans and metrics of sessions at work: what a collector on loopback receives, and when."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given, settings

from refold.app.live_traces import LiveTraces, TraceTargets, trace_targets
from refold.app.otlp import Collector, encode_spans
from refold.config.settings import Otel
from refold.errors import BadInput
from refold.journal.events.kinds import Entry
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state.fold import View
from refold.journal.state.session_tree import Node
from refold.journal.store.port import MemoryStore
from refold.journal.store.tree_reader import tree
from refold.session.recorder import Recorder
from refold.testing.wire_server import Answer, ReceivedRequest, WireServer, wire_server
from refold.views.metrics import DURATION_METRIC, FIRST_CHUNK_METRIC, TOKENS_METRIC
from refold.views.traces import traces
from tests.agents.families import AgentFamily, task_call, tool_call
from tests.agents.test_teams_at_work import team
from tests.cli.running import LONG, command, script
from tests.tui.sessions import Story, stories

Spans = dict[str, dict[str, Any]]
TAKEN = Answer(b"{}")


@contextmanager
def run_collector(answer: Answer = TAKEN) -> Generator[WireServer]:
    def answering(_: ReceivedRequest) -> Answer:
        return answer

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(wire_server(answering)) as server,
    ):
        yield server


def spans_in(*bodies: bytes) -> Spans:
    """Return the spans by their ids."""
    return {
        span["spanId"]: span
        for body in bodies
        for resource in json.loads(body)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    }


def request_bodies(server: WireServer, path: str = "/v1/traces") -> Sequence[bytes]:
    return [request.body for request in server.heard if request.path == path]


def points(body: bytes) -> Mapping[str, list[dict[str, Any]]]:
    (resource,) = json.loads(body)["resourceMetrics"]
    return {
        metric["name"]: metric["histogram"]["dataPoints"]
        for metric in resource["scopeMetrics"][0]["metrics"]
    }


def make_family(root: Path, endpoint: str, **options: Any) -> AgentFamily:
    scripts = {
        "Go": [
            [task_call("Look.", "explore"), tool_call("list_files", path=".")],
            [tool_call("read_file", path="none.txt")],
            "Done.",
        ],
        "Look.": [[tool_call("list_files", path=".")], "Seen."],
        "Again": ["Nothing new."],
    }
    return AgentFamily(root, scripts, settings={"otel.endpoint": endpoint, **options})


def collect_spans(family: AgentFamily, session: str, *, content: bool = False) -> Spans:
    path = JournalDirectory(family.home / "sessions").path(session)
    return spans_in(encode_spans(traces(tree(path, session), content=content)))


@pytest.mark.parametrize("content", [False, True])
def test_live_spans_of_a_session_equal_the_spans_computed_from_its_journal(
    tmp_path: Path, content: bool
) -> None:
    """The session has two turns, a subagent, and a second start that resumes it."""
    with run_collector() as server:
        family = make_family(tmp_path, server.url, **{"otel.content": content})

        async def scenario() -> str:
            async with family.session() as session:
                await session.run("Go")
                await session.run("Go")
            async with family.session(session.id) as again:
                await again.run("Again")
            return session.id

        id_ = anyio.run(scenario)

    assert len(request_bodies(server)) == 3
    assert spans_in(*request_bodies(server)) == collect_spans(family, id_, content=content)
    assert sum(len(spans_in(data)) for data in request_bodies(server)) == len(
        collect_spans(family, id_)
    )


def test_a_key_in_messages_and_results_is_masked_in_spans_with_content(
    tmp_path: Path,
) -> None:
    key = f"ghp_{'aB3dE6gH9' * 4}"
    (tmp_path / "work").mkdir()
    (tmp_path / "work/notes.txt").write_text(f"token {key}\n")
    with run_collector() as server:
        scripts = {"Go": [[tool_call("read_file", path="notes.txt")], f"It is {key}."]}
        family = AgentFamily(
            tmp_path, scripts, settings={"otel.endpoint": server.url, "otel.content": True}
        )

        async def scenario() -> None:
            async with family.session() as session:
                await session.run("Go")
                await session.run(f"Is it {key}?")

        anyio.run(scenario)

    received = b"".join(request.body for request in server.heard)
    assert b"[secret:" in received
    assert b"notes.txt" in received
    assert key.encode() not in received


@pytest.mark.slow
def test_live_spans_of_teammates_equal_the_spans_computed_from_their_journals(
    tmp_path: Path,
) -> None:
    """The teammates work over two turns of the lead, and after a restart."""
    with run_collector() as server:
        set_ = {"otel.endpoint": server.url, "subagents.teams": True}
        family = AgentFamily(tmp_path, team(), settings=set_)

        async def scenario() -> str:
            async with family.session() as session:
                await session.run("Go")
                await session.run("Go")
            async with family.session(session.id) as again:
                await again.run("Go")
            return session.id

        id_ = anyio.run(scenario)

    names = [data["name"] for data in collect_spans(family, id_).values()]
    assert sum(name.startswith("invoke_agent") for name in names) > 3
    assert spans_in(*request_bodies(server)) == collect_spans(family, id_)


@pytest.mark.slow
@settings(max_examples=40)
@given(stories())
def test_live_spans_of_generated_sessions_equal_those_computed_from_the_journal(
    story: Story,
) -> None:
    events = [frame.item.event for frame in story.frames if isinstance(frame.item, Entry)]

    async def check() -> None:
        async with wire_server(lambda _: TAKEN) as server:
            to = Collector(f"{server.url}/v1/traces")
            lost = list[str]()
            live = LiveTraces(
                TraceTargets(to, Collector(f"{server.url}/v1/metrics"), delta=False),
                content=True,
                log=lambda level, what, session="": lost.append(what),
            )
            record = Recorder(MemoryStore())
            live.listen("s", record)
            for event in events:
                await record(event)
            entries = await record.entries()
            await live.aclose()
            node = Node("root", "s", entries, View(), written=True)
            assert spans_in(*request_bodies(server)) == spans_in(
                encode_spans(traces(node, content=True))
            )
            assert lost == []

    anyio.run(check)


def test_metrics_are_the_sums_over_the_spans_since_the_start_of_the_process(
    tmp_path: Path,
) -> None:
    with run_collector() as server:
        family = make_family(tmp_path, server.url)

        async def scenario() -> str:
            async with family.session() as session:
                await session.run("Go")
                await session.run("Again")
                return session.id

        spans = collect_spans(family, anyio.run(scenario)).values()

    first, last = (points(item) for item in request_bodies(server, "/v1/metrics"))
    operations = {
        (
            *(
                {a["key"]: a["value"]["stringValue"] for a in item["attributes"]}.get(
                    key, ""
                )
                for key in ("gen_ai.operation.name", "gen_ai.tool.name", "error.type")
            ),
            item["count"],
        )
        for item in last[DURATION_METRIC.name]
    }
    assert ("execute_tool", "list_files", "", "2") in operations
    assert ("execute_tool", "read_file", "failed", "1") in operations
    assert sum(int(item["count"]) for item in last[DURATION_METRIC.name]) == len(spans)
    assert sum(int(item["count"]) for item in first[DURATION_METRIC.name]) < len(spans)
    for type_ in ("input", "output"):
        total = sum(
            int(a["value"]["intValue"])
            for span in spans
            for a in span["attributes"]
            if a["key"] == f"gen_ai.usage.{type_}_tokens"
        )
        assert total == sum(
            item["sum"]
            for item in last[TOKENS_METRIC.name]
            if {"key": "gen_ai.token.type", "value": {"stringValue": type_}}
            in item["attributes"]
        )
    for data in (*last[DURATION_METRIC.name], *last[TOKENS_METRIC.name]):
        assert len(data["bucketCounts"]) == len(data["explicitBounds"]) + 1
        assert sum(map(int, data["bucketCounts"])) == int(data["count"])


def test_an_unreachable_collector_is_logged_once_and_turns_continue(
    tmp_path: Path,
) -> None:
    family = make_family(tmp_path, "http://127.0.0.1:9")

    async def scenario() -> Sequence[str]:
        async with family.session() as session:
            return [(await session.run("Go")).text, (await session.run("Go")).outcome]

    assert anyio.run(scenario) == ["Done.", "failed"]  # there is no second line for it
    (log,) = family.home.rglob("*.log")
    lines = [line for line in log.read_text().splitlines() if "OpenTelemetry" in line]
    assert len(lines) == 1
    assert "cannot reach http://127.0.0.1:9/v1/traces" in lines[0]


@pytest.mark.slow
def test_a_collector_that_never_answers_does_not_keep_a_session_open(
    tmp_path: Path, home: Path
) -> None:
    """The process ends though the collector has not answered, and says that it waited."""
    listener = anyio.run(_unanswering_socket)
    with listener:
        port = listener.getsockname()[1]
        (home / "refold").mkdir(exist_ok=True)
        (home / "refold" / "config.toml").write_text(
            f'[otel]\nendpoint = "http://127.0.0.1:{port}"\n'
        )
        script_path = script(tmp_path, {"text": "Good."})
        ended = subprocess.run(
            command("-p", "Go", "--script", script_path),
            capture_output=True,
            timeout=LONG,
            cwd=tmp_path,
        )
    logged = subprocess.run(command("logs"), capture_output=True, text=True)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"Good.\n", b"")
    assert "not all was sent within 2 s of leaving" in logged.stdout


async def _unanswering_socket() -> Any:
    import socket

    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.slow
def test_without_the_endpoint_setting_no_trace_module_is_imported_and_no_span_sent(
    tmp_path: Path,
) -> None:
    script_path = script(tmp_path, {"text": "Good."})
    code = (
        "import sys; from refold.cli.main import main; "
        f"main(['-p', 'Go', '--script', {script_path!r}]); "
        "known = ('refold.app.otlp', 'refold.app.live_traces', 'refold.views.traces'); "
        "sys.exit(any(n in known or n.split('.')[0] == 'opentelemetry' for n in sys.modules))"
    )
    with run_collector() as server:
        environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": server.url}
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=environ, cwd=tmp_path
        )

    assert (ended.returncode, ended.stdout) == (0, b"Good.\n")
    assert server.heard == []


def test_the_endpoint_setting_environment_reads_the_otel_variables() -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:2/mine",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
    }

    assert trace_targets(Otel(endpoint="environment"), environ) == TraceTargets(
        Collector("http://127.0.0.1:1/v1/traces", (("a", "b"),), environ),
        Collector("http://127.0.0.1:2/mine", (("a", "b"),), environ),
        delta=True,
    )
    only_traces = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:3/t"}
    assert trace_targets(Otel(endpoint="environment"), only_traces) == TraceTargets(
        Collector("http://127.0.0.1:3/t", environ=only_traces), None, delta=False
    )
    assert trace_targets(Otel(endpoint="environment"), {}) is None
    with pytest.raises(BadInput):
        trace_targets(Otel(endpoint="no address"), {})


@pytest.mark.peer
def test_metrics_are_readable_by_the_official_protobuf_package(tmp_path: Path) -> None:
    why = "opentelemetry-proto is not installed: make test-peers installs it"
    service = pytest.importorskip(
        "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2", reason=why
    )
    json_format = pytest.importorskip("google.protobuf.json_format", reason=why)
    with run_collector() as server:
        make_family(tmp_path, server.url).run("Go")
    (body,) = request_bodies(server, "/v1/metrics")

    read = json_format.Parse(body, service.ExportMetricsServiceRequest())

    metrics = read.resource_metrics[0].scope_metrics[0].metrics
    assert [(item.name, item.unit) for item in metrics] == [
        (DURATION_METRIC.name, "s"), (TOKENS_METRIC.name, "{token}"), (FIRST_CHUNK_METRIC.name, "s"),
    ]  # fmt: skip
    for metric in metrics:
        assert metric.histogram.aggregation_temporality == 2  # cumulative
        for point in metric.histogram.data_points:
            assert sum(point.bucket_counts) == point.count > 0


@pytest.mark.peer
def test_names_and_units_of_metrics_follow_the_semantic_conventions() -> None:
    known = pytest.importorskip(
        "opentelemetry.semconv._incubating.metrics.gen_ai_metrics",
        reason="opentelemetry-semantic-conventions is not installed: make test-peers installs it",
    )

    assert DURATION_METRIC.name == known.GEN_AI_CLIENT_OPERATION_DURATION
    assert TOKENS_METRIC.name == known.GEN_AI_CLIENT_TOKEN_USAGE
    assert FIRST_CHUNK_METRIC.name == known.GEN_AI_CLIENT_OPERATION_TIME_TO_FIRST_CHUNK
