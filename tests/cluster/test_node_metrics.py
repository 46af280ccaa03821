"""Figures of workers and web nodes, as a collector on loopback receives and parses them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from refold.client.nodes.node_metrics import (
    FAILOVERS_METRIC,
    OLDEST_ORDER_METRIC,
    OPEN_DURATION_METRIC,
    OPEN_ORDERS_METRIC,
    OPEN_SESSIONS_METRIC,
    RUNNING_TURNS_METRIC,
    NodeMetrics,
    metrics_export,
)
from refold.cluster.database import Database
from refold.config.settings import Otel
from refold.errors import BadInput
from refold.testing.wire_server import Answer, ReceivedRequest, WireServer, wire_server
from tests.cluster.nodes import Page, Servers, model_of, nodes
from tests.cluster.postgresql import Server

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
_LIMIT_SECONDS = 90


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def take(_: ReceivedRequest) -> Answer:
    return Answer(b"{}")


class Figures:
    """What a collector received, parsed by OpenTelemetry's own types."""

    def __init__(self, collector: WireServer) -> None:
        self._collector = collector
        why = "opentelemetry-proto is not installed: make test-peers installs it"
        module = "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2"
        self._service: Any = pytest.importorskip(module, reason=why)

    def values(self, name: str, node: str) -> Sequence[float]:
        """The values of a metric from nodes of this kind, in the order in which they came."""
        return [point.as_double for point in self._points(name, node)]

    def histograms(self, node: str) -> Sequence[Any]:
        return self._points(OPEN_DURATION_METRIC.name, node)

    def _points(self, name: str, node: str) -> list[Any]:
        from google.protobuf import json_format

        found = list[Any]()
        for request in self._collector.heard:
            if request.path != "/v1/metrics":
                continue
            message = self._service.ExportMetricsServiceRequest()
            json_format.Parse(request.body, message)
            for metric in message.resource_metrics[0].scope_metrics[0].metrics:
                data = getattr(metric, metric.WhichOneof("data"))
                found += [
                    point
                    for point in data.data_points
                    if metric.name == name
                    and any(a.value.string_value == node for a in point.attributes)
                ]
        return found


async def wait_for(condition: Any) -> None:
    while not condition():
        await anyio.sleep(0.1)


async def test_a_collector_receives_the_metrics_of_all_nodes_and_a_failover(
    server: Server, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    async with wire_server(take) as collector, wire_server(model_of(effects, 2)) as model:
        servers = Servers(server.url, model.url, collector=collector.url)
        figures = Figures(collector)
        with anyio.fail_after(_LIMIT_SECONDS):
            async with (
                nodes(tmp_path, servers, workers=1, web_nodes=1) as started,
                anyio.create_task_group() as group,
            ):
                page = Page(started, Random(1))
                await page.begin()
                group.start_soon(page.say, "key-0")
                await wait_for(effects.exists)
                await wait_for(lambda: 1 in figures.values(RUNNING_TURNS_METRIC, "worker"))
                started.workers["worker-0"].kill()
                await anyio.to_thread.run_sync(started.start_worker, "worker-1")
                await wait_for(lambda: 1 in figures.values(FAILOVERS_METRIC, "worker"))
                await wait_for(
                    lambda: figures.histograms("worker") and figures.histograms("web")
                )
                await wait_for(lambda: 1 in figures.values(OPEN_SESSIONS_METRIC, "web"))
                await wait_for(lambda: figures.values(OLDEST_ORDER_METRIC, "web"))

    assert set(figures.values(FAILOVERS_METRIC, "worker")) == {0, 1}
    assert figures.values(OPEN_ORDERS_METRIC, "web")
    assert not figures.values(RUNNING_TURNS_METRIC, "web")
    histogram = figures.histograms("worker")[-1]
    assert histogram.count == sum(histogram.bucket_counts)
    assert histogram.count >= 1  # more often if the lock of the dead worker is still there
    assert histogram.sum > 0


async def test_the_metric_of_the_oldest_order_grows_while_no_worker_runs(
    server: Server, tenant: str, database: Database
) -> None:
    async with wire_server(take) as collector:
        export = metrics_export(
            Otel(endpoint=collector.url), {"OTEL_METRIC_EXPORT_INTERVAL": "50"}, print
        )
        assert export is not None
        metrics, figures = NodeMetrics(export, database, "worker"), Figures(collector)
        place = "select refold.place_order($1, 'k', 'x'::bytea, '', '')"
        with anyio.fail_after(_LIMIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(metrics.run, lambda: ())
                await wait_for(lambda: figures.values(OLDEST_ORDER_METRIC, "worker"))
                await database.run(lambda db: db.execute(place, "20260101-000000-aaaa"))
                await wait_for(
                    lambda: len(set(figures.values(OLDEST_ORDER_METRIC, "worker"))) > 3
                )
                group.cancel_scope.cancel()

    ages = figures.values(OLDEST_ORDER_METRIC, "worker")
    assert ages[0] == 0
    assert sorted(ages) == ages
    assert figures.values(OPEN_ORDERS_METRIC, "worker")[-1] == 1


async def test_an_unreachable_collector_is_reported_once_and_the_node_keeps_measuring(
    server: Server, database: Database
) -> None:
    problems = list[str]()
    async with wire_server(take) as collector:
        address = collector.url
    otel = Otel(endpoint=address)
    export = metrics_export(otel, {"OTEL_METRIC_EXPORT_INTERVAL": "1"}, problems.append)
    assert export is not None
    rounds = 0

    def count() -> Sequence[Any]:
        nonlocal rounds
        rounds += 1
        return ()

    with anyio.fail_after(_LIMIT_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(NodeMetrics(export, database, "web").run, count)
            await wait_for(lambda: rounds > 3)
            group.cancel_scope.cancel()

    assert len(problems) == 1
    assert problems[0].startswith(f"OpenTelemetry: cannot reach {address}/v1/metrics")


async def test_a_collector_that_works_again_is_reported_once(
    server: Server, database: Database
) -> None:
    problems = list[str]()
    busy = [Answer(b"busy", 503)] * 3
    async with wire_server(*busy, take) as collector:
        otel = Otel(endpoint=collector.url)
        export = metrics_export(otel, {"OTEL_METRIC_EXPORT_INTERVAL": "1"}, problems.append)
        assert export is not None
        with anyio.fail_after(_LIMIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(NodeMetrics(export, database, "web").run, lambda: ())
                await wait_for(lambda: len(collector.heard) > len(busy) + 2)
                group.cancel_scope.cancel()

    address = f"OpenTelemetry: {collector.url}/v1/metrics"
    assert problems[1:] == [f"{address} can be reached again"]
    assert "503" in problems[0]


def test_a_metric_export_interval_that_is_not_a_number_is_refused() -> None:
    otel = Otel(endpoint="http://127.0.0.1:1")
    with pytest.raises(BadInput, match="OTEL_METRIC_EXPORT_INTERVAL is '1 s'"):
        metrics_export(otel, {"OTEL_METRIC_EXPORT_INTERVAL": "1 s"}, print)


def test_the_modules_of_a_node_do_not_import_the_metrics_module() -> None:
    code = (
        "import sys, refold.client.nodes.worker_host, refold.client.nodes.web_host, refold.cli.nodes; "
        "sys.exit(any('node_metrics' in n or n == 'refold.app.otlp' for n in sys.modules))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode
        == 0
    )
