"""`refold mcp serve --http` in the public conformance suite; `scripts/peers` gets it.

Most of its scenarios need the tools, prompts and resources of its own example server. Each
of them is named here with the reason, so a scenario that is new fails until it is named.
"""

import json
import os
import re
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.task_server.test_task_server_http import Server, serve

PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
NODE = PEERS / "node" / "node_modules" / "node" / "bin" / "node"
SUITE = (
    PEERS / "mcp-conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"
)

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not NODE.exists(), reason=f"node 22 is not in {PEERS}"),
    pytest.mark.skipif(not SUITE.exists(), reason=f"mcp-conformance is not in {PEERS}"),
]

PASSED = {
    "caching", "dns-rebinding-protection", "http-header-validation", "ping", "prompts-list",
    "resources-list", "sep-2164-resource-not-found", "server-initialize",
    "server-session-lifecycle", "server-sse-multiple-streams", "server-stateless",
    "tools-list", "input-required-result-unsupported-methods",
}  # fmt: skip
# Checks of those that need a tool of the example server.
NO_DIAGNOSTIC_TOOL = {
    "sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
}  # fmt: skip
NOT_APPLICABLE = {
    "it calls a tool that only the example server has": {
        "elicitation-sep1034-defaults", "elicitation-sep1330-enums",
        "http-custom-header-server-validation", "input-required-result-basic-elicitation",
        "input-required-result-basic-list-roots", "input-required-result-basic-sampling",
        "input-required-result-capability-check", "input-required-result-ignore-extra-params",
        "input-required-result-missing-input-response", "input-required-result-multi-round",
        "input-required-result-multiple-input-requests",
        "input-required-result-request-state", "input-required-result-result-type",
        "input-required-result-tampered-state", "input-required-result-validate-input",
        "json-schema-2020-12", "server-sse-polling", "tools-call-audio",
        "tools-call-elicitation", "tools-call-embedded-resource", "tools-call-error",
        "tools-call-image", "tools-call-mixed-content", "tools-call-sampling",
        "tools-call-simple-text", "tools-call-with-logging", "tools-call-with-progress",
    },
    "refold offers tools alone: no prompts, resources, completions, log or skills": {
        "completion-complete", "input-required-result-non-tool-request", "logging-set-level",
        "prompts-get-embedded-resource", "prompts-get-simple", "prompts-get-with-args",
        "prompts-get-with-image", "resources-read-binary", "resources-read-text",
        "resources-subscribe", "resources-templates-read", "resources-unsubscribe",
        "sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest",
    },
    "the extension for tasks is not built: follow_task is a tool": {
        "tasks-capability-negotiation", "tasks-dispatch-and-envelope", "tasks-lifecycle",
        "tasks-mrtr-composition", "tasks-mrtr-input", "tasks-request-headers",
        "tasks-request-state-removal", "tasks-required-task-error",
        "tasks-status-notifications", "tasks-wire-fields",
    },
}  # fmt: skip


def test_mcp_server_passes_all_applicable_conformance_scenarios(
    tmp_path: Path,
) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()

    with serve(work, {"text": "x"}) as server:
        anyio.run(_run_suite, server, out)

    checks = {
        re.sub(
            r"^server-|-[0-9]{4}(-[0-9]{2}){2}T[0-9-]*Z$", "", path.parent.name
        ): json.loads(path.read_text())
        for path in out.glob("*/checks.json")
    }
    failed = {
        (name, check["id"])
        for name in PASSED
        for check in checks[name]
        if check["status"] == "FAILURE"
    }
    assert failed == {("server-stateless", text) for text in NO_DIAGNOSTIC_TOOL}
    assert set(checks) == PASSED.union(*NOT_APPLICABLE.values())


async def _run_suite(server: Server, out: Path) -> None:
    async with _with_token(server) as address:
        arguments = [str(NODE), str(SUITE), "server", "--suite", "all", "--url", address]
        await anyio.run_process(
            [*arguments, "-o", str(out)],
            check=False,
            cwd=out.parent,
            stderr=subprocess.STDOUT,
        )


@asynccontextmanager
async def _with_token(server: Server) -> AsyncGenerator[str]:
    """The suite sends no token: this puts it into the requests on their way."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    ours = listener.extra(SocketAttribute.local_port)
    theirs = int(server.netloc.split(":")[1])

    async def forward(suite: ByteStream, there: ByteStream) -> None:
        requests = BufferedByteReceiveStream(suite)
        with suppress(anyio.IncompleteRead, anyio.BrokenResourceError):
            while True:
                head = await requests.receive_until(b"\r\n\r\n", 65536)
                head = head.replace(b":%d\r\n" % ours, b":%d\r\n" % theirs)
                size = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
                body = await requests.receive_exactly(int(size[1]) if size else 0)
                token = f"\r\nauthorization: Bearer {server.token}\r\n\r\n".encode()
                await there.send(head + token + body)

    async def connect(suite: ByteStream) -> None:
        async with (
            suite,
            await anyio.connect_tcp("127.0.0.1", theirs) as there,
            anyio.create_task_group() as group,
        ):
            group.start_soon(forward, suite, there)
            with suppress(anyio.BrokenResourceError):
                async for piece in there:
                    await suite.send(piece)
            group.cancel_scope.cancel()

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, connect)
        yield f"http://127.0.0.1:{ours}/mcp"
        group.cancel_scope.cancel()
