"""Servers in remote mode: who may choose it, what a turn hands over, and what is recorded."""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from msgspec import Raw

from refold import Agent
from refold.app.remote_servers import blocking_rule, to_hosted
from refold.client.session import Session
from refold.config.paths import paths
from refold.config.project import read_project
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.journal.events.child_events import NestedCallMade
from refold.journal.events.kinds import Ended, Entry, ModelAsked
from refold.mcp.servers import ServerConfig, read
from refold.permissions.rules import parse
from refold.provider.port import HostedServer
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, WireServer, wire_server
from refold.tools.contract import tool
from refold.values.messages import ToolCall
from refold.values.tools import Effect
from refold.views.activity import activity_of
from refold.views.node_detail import call_detail, call_lines
from tests.agents.families import task_call
from tests.provider.hosted_streams import RESULT, anthropic_answer
from tests.views.planted import answer as model_answer
from tests.views.planted import start_events
from tests.views.test_traces import node_of

TOKEN = "a-token-that-no-journal-holds"
URL = "https://docs.example/mcp"
DOCS: dict[str, Any] = {
    "url": URL, "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"}, "remote": True,
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCS_TOKEN", TOKEN)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-nobody-s-key")
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    servers(tmp_path / "home" / "mcp_servers.json")
    return tmp_path / "home"


def servers(file: Path, **changed: object) -> None:
    file.write_text(json.dumps({"mcpServers": {"docs": {**DOCS, **changed}}}))


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with start_blocking_portal() as portal:

        @asynccontextmanager
        async def one(*answers: Answer) -> AsyncGenerator[WireServer]:
            async with wire_server(*answers) as server:
                yield server

        def begin(*answers: Answer) -> WireServer:
            context_manager = portal.wrap_async_context_manager(one(*answers))
            server = context_manager.__enter__()
            closing.append(context_manager)
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            return server

        closing: list[Any] = []
        yield begin
        for item in closing:
            item.__exit__(None, None, None)


class RemoteRun:
    def __init__(self) -> None:
        self.entries: Sequence[Entry] = ()
        self.notices: tuple[str, ...] = ()
        self.status = ""


def run_session(home: Path, *messages: str, **options: Any) -> RemoteRun:
    """Return a session with these messages."""
    options = {"model": "anthropic/claude-x", **options}
    agent = Agent(home=home, directory=home.parent / "work", **options)
    result = RemoteRun()

    async def scenario() -> None:
        async with agent.session() as session:
            result.notices = session.notices()
            for text in messages:
                result.status = (await session.run(text)).outcome
            result.entries = await session.reports.entries()

    anyio.run(scenario)
    return result


def list_servers(server: WireServer) -> list[list[str]]:
    """Return the MCP servers of each request."""
    bodies = (json.loads(request.body) for request in server.heard)
    return [[item["name"] for item in body.get("mcp_servers", ())] for body in bodies]


def yes_answer() -> Answer:
    return answer("anthropic", Reply("Yes."))


@pytest.mark.slow
def test_a_call_made_by_the_provider_is_recorded_and_sent_back_unchanged(
    home: Path, serve: Any
) -> None:
    server = serve(anthropic_answer(), yes_answer())

    result = run_session(home, "Will it rain?", "And now?")

    calls = [e.event.call for e in result.entries if isinstance(e.event, NestedCallMade)]
    ends = [e.event for e in result.entries if isinstance(e.event, Ended)]
    assert [(c.name, bytes(c.arguments)) for c in calls] == [
        ("mcp__docs__search", b'{"query":"rain"}')
    ]
    assert [(e.call_id, e.outcome, e.text, e.outside) for e in ends] == [
        (calls[0].id, "done", "It rains.", True)
    ]
    assert list_servers(server) == [["docs"], ["docs"]]
    again = json.loads(server.heard[1].body)["messages"]
    assert [block["type"] for block in again[1]["content"]] == [
        "mcp_tool_use", "mcp_tool_result", "text",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_token_is_sent_to_the_provider_and_written_to_no_file(
    home: Path, serve: Any
) -> None:
    server = serve(anthropic_answer())

    run_session(home, "Will it rain?", settings={"log_requests": True})

    (result,) = json.loads(server.heard[0].body)["mcp_servers"]
    assert result == {
        "type": "url",
        "name": "docs",
        "url": URL,
        "authorization_token": TOKEN,
    }
    holding = [
        p for p in home.rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()
    ]
    assert holding == []


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "why"), [
    ({"permissions.deny": ["mcp__docs__delete"]}, "the rule mcp__docs__delete (deny)"),
    ({"permissions.deny": ["mcp__docs"]}, "the rule mcp__docs (deny)"),
    ({"permissions.ask": ["mcp__*"]}, "the rule mcp__* (ask)"),
    ({"permissions.deny": ["mcp__d*"]}, "the rule mcp__d* (deny)"),
])  # fmt: skip
def test_a_remote_server_is_not_used_when_a_rule_covers_its_tools(
    home: Path, serve: Any, settings: Mapping[str, object], why: str
) -> None:
    server = serve(yes_answer())

    result = run_session(home, "Hi.", settings=settings)

    assert list_servers(server) == [[]]
    (notice,) = [item for item in result.notices if "docs" in item]
    assert notice == (
        f"the MCP server docs is in remote mode and not used: {why} is about its tools, and the "
        "provider does not ask"
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["plan", "rules-only"])
def test_a_remote_server_is_not_sent_in_a_mode_that_would_refuse_its_calls(
    home: Path, serve: Any, mode: Any
) -> None:
    server = serve(yes_answer(), yes_answer())

    run_session(home, "Hi.", mode=mode)

    assert list_servers(server)[0] == []


@pytest.mark.slow
def test_a_mode_change_during_a_turn_applies_from_the_next_request(
    home: Path, serve: Any
) -> None:
    server = serve(answer("anthropic", Reply("", (("set_plan", "{}"),))), yes_answer())

    @tool(Effect.SELF)
    async def set_plan() -> str:
        """Choose plan mode, as the user would."""
        await sessions[0].set_mode("plan")
        return "Done."

    sessions: list[Session] = []
    agent = Agent(
        home=home,
        directory=home.parent / "work",
        model="anthropic/claude-x",
        tools=[set_plan],
    )

    async def scenario() -> None:
        async with agent.session() as session:
            sessions.append(session)
            await session.run("Go.")

    anyio.run(scenario)

    assert list_servers(server) == [["docs"], []]


@pytest.mark.slow
def test_a_project_file_cannot_choose_remote_mode_even_if_trusted(
    home: Path, serve: Any
) -> None:
    (home / "mcp_servers.json").unlink()
    work = home.parent / "work"
    servers(work / ".mcp.json")
    TrustedFolders(paths({"REFOLD_HOME": str(home)}).folders).trust(
        read_project(work, home / "config.toml")
    )
    server = serve(yes_answer())

    result = run_session(home, "Hi.")

    assert list_servers(server) == [[]]
    assert any("only your own mcp_servers.json can choose it" in n for n in result.notices)


@pytest.mark.slow
def test_a_provider_that_cannot_connect_to_mcp_servers_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "nobody-s-key")

    result = run_session(home, model="gemini/g")

    assert (
        "the MCP server docs is in remote mode and not used: the provider of gemini/g connects "
        "to no MCP servers itself"
    ) in result.notices


@pytest.mark.slow
def test_a_hook_before_the_tools_of_a_server_excludes_it_from_remote_mode(
    home: Path, serve: Any
) -> None:
    hook = {"matcher": "mcp__docs__.*", "hooks": [{"type": "command", "command": "guard"}]}
    (home / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [hook]}}))
    server = serve(yes_answer())

    result = run_session(home, "Hi.")

    assert list_servers(server) == [[]]
    assert any(
        "the hook guard could not be run before its tools" in n for n in result.notices
    )


@pytest.mark.slow
def test_a_subagent_gets_no_remote_server(home: Path, serve: Any) -> None:
    server = serve(
        answer("anthropic", Reply("", (task_call("Look.", "explore"),))),
        yes_answer(),
        yes_answer(),
    )

    run_session(home, "Go.", mode="bypass")

    assert list_servers(server) == [["docs"], [], ["docs"]]


@pytest.mark.slow
def test_a_remote_call_without_a_result_is_recorded_as_unknown(
    home: Path, serve: Any
) -> None:
    serve(anthropic_answer(result=None))

    result = run_session(home, "Go.")

    (end,) = [e.event for e in result.entries if isinstance(e.event, Ended)]
    assert (end.outcome, end.text) == (
        "unknown",
        "The response was cut off before the result of this call came. It may have had its "
        "effect.",
    )


@pytest.mark.slow
def test_a_long_remote_result_is_shortened_and_stored_completely(
    home: Path, serve: Any
) -> None:
    long = {**RESULT, "content": [{"type": "text", "text": "x" * 50_000}]}
    serve(anthropic_answer(result=long))

    result = run_session(home, "Go.")

    (end,) = [e.event for e in result.entries if isinstance(e.event, Ended)]
    assert len(end.text) < 31_000
    assert end.full_blob


def server_of(**fields: object) -> ServerConfig:
    (config,) = read(json.dumps({"docs": {**DOCS, **fields}}), "mcp_servers.json").servers
    return config


def test_the_bearer_token_is_separated_from_other_headers() -> None:
    server = to_hosted(server_of(headers={"authorization": "bearer abc", "X-Team": "7"}))

    assert server == HostedServer("docs", URL, "abc", (("X-Team", "7"),))


def test_a_remote_server_needs_an_https_address() -> None:
    with pytest.raises(BadInput, match="connects to https addresses only"):
        to_hosted(server_of(url="http://127.0.0.1:9/mcp", headers={}))


def test_a_server_started_by_a_command_cannot_be_remote() -> None:
    file = read('{"docs": {"command": "server", "remote": true}}', "mcp_servers.json")

    assert file.servers == ()
    assert "a provider starts no programs" in file.problems[0]


@pytest.mark.parametrize(("rule", "held"), [
    ("mcp__docs__search", True), ("mcp__docs__*", True), ("mcp__docs", True), ("mcp__*", True),
    ("*", True), ("mcp__d*", True), ("*search", True), ("mcp__do__x", False), ("bash", False),
    ("mcp__docs2__search", False), ("mcp__docsearch", False), ("web_fetch", False),
])  # fmt: skip
def test_every_rule_that_could_match_a_server_tool_excludes_the_server(
    rule: str, held: bool
) -> None:
    assert bool(blocking_rule("docs", [parse(rule, "deny")])) is held
    assert blocking_rule("docs", [parse(rule, "allow")]) == ""


def test_a_remote_call_is_shown_as_made_by_the_provider_and_not_judged() -> None:
    nested_call = NestedCallMade(
        ToolCall("hosted-6-0", "mcp__docs__search", Raw(b"{}")), ""
    )
    node = node_of(
        *start_events(),
        ModelAsked(),
        model_answer("Rain."),
        nested_call,
        Ended("hosted-6-0", "done", "x"),
    )
    (call,) = activity_of(node.entries).calls

    lines = call_lines(call_detail(node, call, lambda _: ""))

    texts = ["".join(part for _, part in line) for line in lines]
    assert "called by the provider, in step 1" in texts
    assert "not judged: it had happened already" in texts
