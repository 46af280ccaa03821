"""A question stays one question when its worker is killed: the user answers once, and the answer counts."""

import json
import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from refold.cluster.database import Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.events.child_events import ChildAnswered, ChildAsked
from refold.journal.events.kinds import Answered, Event, Judged
from refold.provider.script import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server
from tests.cluster.nodes import Page, Servers, nodes
from tests.cluster.postgresql import Server

pytestmark = [pytest.mark.anyio, pytest.mark.peer]
_LIMIT_SECONDS = 120


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def model_of(effects: Path) -> Any:
    """A model that calls one command, which must be approved and names a file of the
    workspace. With "child", a subagent calls it.
    """
    command = f"true approved > seen.txt; echo done >> {effects}"
    bash = Reply(calls=(("bash", json.dumps({"command": command})),))
    task = {"prompt": "As a subagent, do it", "agent": "code"}

    def answer_request(request: ReceivedRequest) -> Answer:
        messages = json.loads(request.body)["messages"]
        is_done = any(message["role"] == "tool" for message in messages)
        users = str([message for message in messages if message["role"] == "user"])
        reply = bash
        if is_done:
            reply = Reply("It is done.")
        elif "child" in users and "subagent" not in users:
            reply = Reply(calls=(("task", json.dumps(task)),))
        return answer("openai-chat", reply)

    return answer_request


async def read_until(page: Page, kind: str, order: dict[str, Any]) -> list[dict[str, Any]]:
    """Send an order on a new page, and return what it is shown up to a document of this kind."""
    documents = list[dict[str, Any]]()
    with anyio.fail_after(_LIMIT_SECONDS):
        async with page.connect("?after=0") as socket:
            await socket.send(json.dumps(order))
            while not documents or documents[-1]["type"] != kind:
                documents.append(json.loads(await socket.recv()))
    return documents


@pytest.mark.parametrize(
    ("key", "answers_first"),
    [("key-own", True), ("key-own", False), ("key-child", False)],
    ids=["no-worker-yet", "another-worker", "subagent"],
)
async def test_a_question_is_answered_once_although_its_worker_was_killed(
    server: Server, tmp_path: Path, key: str, answers_first: bool
) -> None:
    effects = tmp_path / "effects"
    database = Database(server.url)
    sessions = PostgreSQLSessions(database, tmp_path / "none")
    async with wire_server(model_of(effects)) as model:
        servers = Servers(server.url, model.url)
        async with nodes(tmp_path, servers, workers=1, web_nodes=1) as started:
            page = Page(started, random.Random(1))
            await page.begin()
            message = {"type": "user_message", "text": f"do {key}", "client_key": key}
            question = (await read_until(page, "tool_approval_request", message))[-1]
            first = started.workers["worker-0"]
            first.kill()
            first.wait()
            answer_order = {
                "type": "tool_approval_response", "call_id": question["call_id"],
                "hash": question["hash"], "allowed": True, "client_key": "yes",
            }  # fmt: skip

            async def start_another() -> None:
                """Have it take the session over, in a directory with another path."""
                await to_thread.run_sync(started.start_worker, "worker-1")
                holder = await to_thread.run_sync(sessions.writer, page.id)
                with anyio.fail_after(_LIMIT_SECONDS):
                    while holder is None or holder.pid == first.pid:
                        await anyio.sleep(0.1)
                        holder = await to_thread.run_sync(sessions.writer, page.id)

            async with anyio.create_task_group() as group:
                if answers_first:
                    group.start_soon(start_another)
                else:
                    await start_another()
                documents = await read_until(page, "result", answer_order)

    entries, _ = await to_thread.run_sync(sessions.entries, page.id)
    events = [entry.event for entry in entries]
    questions = [event for event in events if _asks(event)]
    answers = [event for event in events if isinstance(event, Answered | ChildAnswered)]
    shown = [d for d in documents if d["type"] == "tool_approval_request"]
    assert effects.read_text() == "done\n"
    assert (len(questions), len(answers), len(shown)) == (1, 1, 1)
    assert not [d for d in documents if d["type"] == "error"]
    await to_thread.run_sync(database.close)


def _asks(event: Event) -> bool:
    return isinstance(event, ChildAsked) or (
        isinstance(event, Judged) and event.verdict == "ask"
    )
