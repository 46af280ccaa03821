"""Everything that runs programs goes through the filter: what is allowed, asked and recorded for each.

One server is named (`good`), the other is not (`inside`). The attacks on the filter itself are in
`test_network_bypasses`, and ways past it in `tests/place/test_named_hosts`.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold import Agent
from refold.client.questions import Question
from refold.journal.events.child_events import HookRan
from refold.journal.events.kinds import BackgroundEnded, Ended, Entry
from refold.testing.providers import Line, ScriptedConversations
from tests.agents.families import task_call, tool_call
from tests.network.filtered import LoopbackServer
from tests.place.walled import needs_bubblewrap

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

FETCH = "for port in {good} {inside}; do curl -s http://localhost:$port/; done"
SERVER = """
import json, sys, urllib.request, urllib.error
def fetch(port):
    try: return urllib.request.urlopen(f"http://localhost:{port}/", timeout=5).read().decode()
    except OSError as error: return f"{error} "
for line in sys.stdin:
    m = json.loads(line); i = m.get("id"); method = m.get("method")
    if i is None: continue
    if method == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "e", "version": "1"}}
    elif method == "tools/list": r = {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        r = {"content": [{"type": "text", "text": "".join(map(fetch, m["params"]["arguments"]["ports"]))}]}
    else: r = {}
    print(json.dumps({"jsonrpc": "2.0", "id": i, "result": r}), flush=True)
"""


class Place:
    """A home and a workspace, in which these scripts are the conversations."""

    def __init__(
        self, directory: Path, good: LoopbackServer, inside: LoopbackServer
    ) -> None:
        self.home, self.work = directory / "home", directory / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.good, self.inside = f"localhost:{good.port}", f"localhost:{inside.port}"
        self.fetch = FETCH.format(good=good.port, inside=inside.port)
        self.asked = list[Question]()

    def run(
        self, *lines: Line, allow: Sequence[str] = (), **scripts: Sequence[Line]
    ) -> list[Any]:
        """Return the events of the session, and of its subagents."""
        agent = Agent(
            provider=ScriptedConversations({"": list(lines), **scripts}),
            directory=self.work,
            home=self.home,
            settings={"permissions.allow": list(allow)},
            approve=self._approve,
        )

        async def use_session() -> list[Entry]:
            async with agent.session() as session:
                await session.run("Go.")
                entries = [*await session.reports.entries()]
                while (
                    background := session.view.background.command("background-1")
                ) and not background.end:
                    await session.wait_for_change(after=session.view.seq)
                return [*entries, *(await session.reports.entries())[len(entries) :]]

        return [entry.event for entry in anyio.run(use_session)]

    async def _approve(self, question: Question) -> bool:
        self.asked.append(question)
        return True

    def check(self, text: str) -> None:
        """Whether this text of the journal says what was reached, and what was refused."""
        assert "good" in text
        assert f"it reached {self.good}" in text
        assert f'refused: "{self.inside}"' in text
        assert "no rule and no answer of the user names it" in text


@pytest.fixture
def place(
    tmp_path: Path, allowed_server: LoopbackServer, internal_server: LoopbackServer
) -> Iterator[Place]:
    needs_bubblewrap()
    yield Place(tmp_path, allowed_server, internal_server)
    assert len(allowed_server.received) == 1
    assert not internal_server.received


def list_ends(events: Sequence[Any]) -> list[Ended]:
    return [event for event in events if isinstance(event, Ended)]


@pytest.mark.parametrize("tool", ["bash", "background_run"])
def test_a_command_reaches_only_the_hosts_that_its_question_names(
    place: Place, tool: str
) -> None:
    """The command builds the host names in a loop, so only the call itself names one."""
    events = place.run([tool_call(tool, command=place.fetch, hosts=[place.good])], "Done.")

    (question,) = place.asked
    assert question.reason.endswith(f"; it would reach {place.good}")
    texts = [end.text for end in events if isinstance(end, Ended | BackgroundEnded)]
    place.check(texts[-1])


def test_a_command_of_a_subagent_reaches_only_the_hosts_of_rules(place: Place) -> None:
    fetch = tool_call("bash", command=place.fetch, network=True)
    events = place.run(
        [task_call("task")], "Done.", allow=["bash", f"net({place.good})"],
        task=[[fetch], "It is fetched."],
    )  # fmt: skip

    (journal,) = place.home.glob("sessions/*/**/child-1/**/*.jsonl")
    place.check(journal.read_text().replace('\\"', '"'))
    assert not place.asked
    assert list_ends(events)


def test_an_mcp_server_reaches_only_its_configured_hosts(place: Place) -> None:
    (place.work / "server.py").write_text(SERVER)
    server = {
        "command": sys.executable, "args": [str(place.work / "server.py")],
        "hosts": [place.good],
    }  # fmt: skip
    (place.home / "mcp_servers.json").write_text(json.dumps({"mcpServers": {"s": server}}))
    ports = [int(host.partition(":")[2]) for host in (place.good, place.inside)]
    search, fetch, again = (
        tool_call("tool_search", query="x"),
        tool_call("tool_call", name="mcp__s__x", arguments={"ports": ports}),
        tool_call("tool_call", name="mcp__s__x", arguments={"ports": []}),
    )

    *_, end, second = list_ends(
        place.run([search], [fetch], [again], "Done.", allow=["mcp__*"])
    )

    place.check(end.text)
    assert f'to permit them, add "{place.inside}" to its "hosts"' in end.text
    assert "reached" not in second.text


def test_hosts_that_an_mcp_server_tries_without_a_call_are_logged(place: Place) -> None:
    ports = [int(host.partition(":")[2]) for host in (place.good, place.inside)]
    program = SERVER.replace(
        "for line in", f"fetch({ports[0]}); fetch({ports[1]})\nfor line in"
    )
    (place.work / "server.py").write_text(program)
    entry = {
        "command": sys.executable, "args": [str(place.work / "server.py")],
        "hosts": [place.good],
    }  # fmt: skip
    (place.home / "mcp_servers.json").write_text(json.dumps({"mcpServers": {"s": entry}}))

    place.run([tool_call("tool_search", query="x")], "Done.")

    logged = "".join(file.read_text() for file in place.home.rglob("*.log*"))
    assert f"MCP server s: it reached {place.good}" in logged
    assert f'MCP server s: refused: "{place.inside}"' in logged.replace('\\"', '"')


def test_a_hook_reaches_only_its_configured_hosts(place: Place) -> None:
    hook = {"command": f"{place.fetch}; echo", "hosts": [place.good]}
    hooks = {"UserPromptSubmit": [{"hooks": [hook]}]}
    (place.home / "hooks.json").write_text(json.dumps({"hooks": hooks}))

    (ran,) = [event for event in place.run("Done.") if isinstance(event, HookRan)]

    assert ran.outcome == "passed"
    assert [
        (f"{a.host}:{a.port}", a.kind, bool(a.refused)) for a in ran.attempts
    ] == [(place.good, "", False), (place.inside, "unnamed", True)]  # fmt: skip
    assert f'to permit them, add "{place.inside}" to its "hosts"' in ran.notice
