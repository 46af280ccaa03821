"""Orders of a program about conversation, budget and agent, and the documents it gets."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.launch import Launch
from refold.client.protocol import Interrupt, SendMessage, parse_order
from refold.client.session import Session as Handle
from refold.config.load import load
from refold.config.paths import paths
from refold.errors import BadInput
from refold.journal.events.child_events import (
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildStopped,
    TerminalEnded,
    TerminalStarted,
)
from refold.journal.events.kinds import (
    Compacted,
    CompactionRequested,
    Delivered,
    Ended,
    Entry,
    Event,
    ExternalEditsFound,
    FileUploaded,
    Frame,
    Granted,
    MemoryExtracted,
    ModelAsked,
    ModelFailed,
    Reserved,
    Said,
    Settled,
    Started,
    TurnStarted,
)
from refold.journal.events.setting_events import AgentChosen, BudgetSet
from refold.session.session import Session
from refold.testing.providers import ScriptedProvider
from refold.values.control import BoardTask, Final, TasksChanged, Todo, Todos
from refold.values.messages import Image, ToolCall
from refold.values.usage import Budget
from refold.views.stream_json.encode import documents_of


@asynccontextmanager
async def stdio_session(directory: Path) -> AsyncGenerator[tuple[Handle, Session]]:
    """Yield the handle on a new session, and the session inside."""
    places = paths(os.environ)
    settings = load(places.settings, os.environ, {}).settings
    options = LaunchOptions(directory=directory, provider=ScriptedProvider("Hi."))
    launch = Launch(App(settings, places, os.environ, options))
    try:
        start = await launch.start()
        yield Handle(launch, start), start.engine
    finally:
        await launch.aclose()


def run_orders(directory: Path, *orders: bytes) -> list[Event]:
    """Send these orders, and return the journal without its first entries."""

    async def run_story() -> list[Event]:
        async with stdio_session(directory) as (client, session):
            before = session.view.seq
            for order in orders:
                await client.send(parse_order(order))
            return [entry.event for entry in await session.record.entries()][before:]

    return anyio.run(run_story)


@pytest.mark.parametrize(
    ("order", "event"),
    [
        (b'{"type":"steer","text":"this"}', Said("this", "person", "now")),
        (b'{"type":"queue","text":"that","client_key":"k"}',
         Said("that", "person", "next", "k")),
        (b'{"type":"budget","dollars":2.5,"calls":9}', BudgetSet(Budget(2.5, None, 9))),
        (b'{"type":"budget"}', BudgetSet(Budget())),
        (b'{"type":"set_agent","agent":"review"}', AgentChosen("review")),
    ],
)  # fmt: skip
def test_an_order_is_recorded_as_an_event(
    tmp_path: Path, order: bytes, event: Event
) -> None:
    assert run_orders(tmp_path, order) == [event]


@pytest.mark.parametrize(
    "order",
    [
        b'{"type":"message","content":"this","by":"ann","client_key":"k"}',
        b'{"type":"interrupt","content":"this","by":"ann","client_key":"k"}',
        b'{"type":"interrupt","instead":"this","by":"ann","client_key":"k"}',
    ],
)
def test_an_order_in_another_format_keeps_its_person_and_its_key(order: bytes) -> None:
    parsed = parse_order(order)

    assert isinstance(parsed, SendMessage | Interrupt)
    assert (parsed.by, parsed.client_key) == ("ann", "k")
    assert (parsed.text if isinstance(parsed, SendMessage) else parsed.instead) == "this"


def test_a_compact_order_is_executed_by_the_next_step_between_turns(
    tmp_path: Path,
) -> None:
    """The order is recorded before it is acknowledged, and withdrawn if the session stops
    before that step.
    """
    request = CompactionRequested("prune")

    async def run_story() -> tuple[bool, bool]:
        async with stdio_session(tmp_path) as (client, _):
            await client.run("hello")
            for order in (b'{"type":"compact","kind":"prune"}', b'{"type":"interrupt"}'):
                await client.send(parse_order(order))
            assert (client.view.conversation.compaction, await client.step()) == (
                None,
                False,
            )
            await client.send(parse_order(b'{"type":"compact","kind":"prune"}'))
            assert client.view.conversation.compaction == request
            return await client.step(), await client.step()

    assert anyio.run(run_story) == (True, False)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (b'{"type":"compact"}', "there are no messages to compact"),
        (
            b'{"type":"compact","kind":"half"}',
            "this is not an order: there is no kind 'half'; there are prune, full",
        ),
        (b'{"type":"budget","dollars":0}', "this is not an order: Expected `float` > 0"),
        (b'{"type":"budget","tokens":"many"}', "this is not an order: Expected `int"),
        (b'{"type":"set_agent"}', "missing required field `agent`"),
        (b'{"type":"set_agent","agent":"nobody"}', "nobody"),
        (b'{"type":"user_message","text":" "}', "it contains no text"),
        (b'{"type":"steer","text":""}', "it contains no text"),
        (b'{"type":"queue","text":"\\n"}', "it contains no text"),
    ],
)
def test_an_order_that_cannot_be_executed_is_refused_with_the_reason(
    tmp_path: Path, order: bytes, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        run_orders(tmp_path, order)


Plain = dict[str, Any]  # a document as it goes over the wire


def documents_about(event: Event) -> list[Plain]:
    documents = documents_of(Frame(7, 0, Entry(7, event)), live=False)
    return [msgspec.to_builtins(document) for document in documents]


@pytest.mark.parametrize(
    ("event", "document"),
    [
        (CompactionRequested("prune"), {"type": "compact_asked", "kind": "prune", "focus": ""}),
        (Compacted("full", "80% were full", (), 5, "carried", "sum", 9, 4000, 700),
         {"type": "compact", "kind": "full", "reason": "80% were full", "dropped": 9,
          "kept_from": 5, "summary": "sum", "before": 4000, "after": 700}),
        (Reserved("summary", "m/s", None, 900),
         {"type": "side_call", "purpose": "summary", "model": "m/s", "dollars": None,
          "tokens": 900}),
        (Settled(3, None, "m/s", None, "no line"),
         {"type": "usage", "side_call": 3, "model": "m/s", "usage": None, "cost": None,
          "failed": "no line"}),
        (MemoryExtracted(5, 2, "m/s"), {"type": "memory", "upto": 5, "kept": 2, "model": "m/s"}),
        (BudgetSet(Budget(1.0)),
         {"type": "budget", "dollars": 1.0, "tokens": None, "calls": None, "seconds": None}),
        (AgentChosen("review"), {"type": "agent_changed", "agent": "review"}),
        (ExternalEditsFound((("/a", "deleted"),)),
         {"type": "files_changed_elsewhere", "files": [{"path": "/a", "kind": "deleted"}]}),
        (FileUploaded("/a", 3, "0" * 64), {"type": "file_uploaded", "path": "/a", "size": 3}),
        (TerminalStarted("/bin/zsh", "/w"),
         {"type": "notice", "text": "Terminal /bin/zsh opened in /w."}),
        (TerminalEnded(3, "exited", 2), {"type": "notice", "text": "The terminal exited with code 2."}),
        (Delivered((1, 3)), {"type": "delivered", "messages": (1, 3)}),
        (ModelAsked(), {"type": "model_start"}),
        (ModelFailed("gone", "Unreachable", "So f"),
         {"type": "error", "kind": "Unreachable", "reason": "gone", "partial": "So f"}),
        (Started("c1"), {"type": "tool_start", "call_id": "c1"}),
        (Said("Do: it", "person", "next", "k", (Image("b1", "image/png", "a.png"),), "it"),
         {"type": "user_message", "text": "Do: it", "sender": "person", "when": "next",
          "images": ["a.png"], "image_blobs": ["b1"], "typed": "it", "client_key": "k"}),
        (Ended("c1", "done", "Given.", images=(Image("b2", "image/png"),), control=Final("7")),
         {"type": "tool_result", "call_id": "c1", "outcome": "done", "text": "Given.",
          "whole": "", "image_blobs": ["b2"], "final": "7"}),
    ],
)  # fmt: skip
def test_events_outside_the_conversation_are_sent_as_documents(
    event: Event, document: Plain
) -> None:
    assert documents_about(event) == [{"seq": 7, **document}]


def test_a_todo_update_document_follows_the_tool_result() -> None:
    end = Ended("c", "done", "1 todo", control=Todos((Todo("look", "done"),)))

    result, update = documents_about(end)

    assert result["type"] == "tool_result"
    assert update == {
        "seq": 7, "type": "todo_update", "todos": ({"subject": "look", "status": "done"},),
    }  # fmt: skip


def test_a_task_update_document_follows_the_tool_result() -> None:
    task = BoardTask(3, "look", blocked_by=(1,))

    result, update = documents_about(
        Ended("c", "done", "Added", control=TasksChanged((task,)))
    )

    assert result["type"] == "tool_result"
    assert update == {
        "seq": 7,
        "type": "task_update",
        "tasks": (msgspec.to_builtins(task),),
    }


EDIT = ToolCall("child-1/c7", "write_file", Raw(b'{"path": "a.txt", "content": "x"}'))
ASK = ToolCall("child-1/c7", "ask_user", Raw(b'{"questions": [{"question": "Why?"}]}'))
BORN = ChildBorn("child-1", "c0", "code", "Do it.")


def of_a_child(call: ToolCall) -> ChildAsked:
    return ChildAsked("child-1/c7", "child-1", "code", call, "no rule allows it", "h1")


def ask_child(directory: Path, call: ToolCall, *orders: bytes) -> tuple[Plain, list[Event]]:
    """Return the documents about a child's question, and the journal after it."""

    async def run_story() -> tuple[Plain, list[Event]]:
        async with stdio_session(directory) as (client, session):
            asks = of_a_child(call)
            await session.record(TurnStarted(0), BORN, asks)
            before = session.view.seq
            builtins: Plain = msgspec.to_builtins(client.request(asks, 7))
            for order in orders:
                await client.send(parse_order(order))
            return builtins, [e.event for e in await session.record.entries()][before:]

    return anyio.run(run_story)


def test_an_approval_request_names_the_subagent_and_accepts_a_session_grant(
    tmp_path: Path,
) -> None:
    yes = (
        b'{"type":"tool_approval_response","call_id":"child-1/c7","allowed":true,'
        b'"grant":"session"}'
    )

    data, events = ask_child(tmp_path, EDIT, yes)

    assert data == {
        "type": "tool_approval_request", "seq": 7, "call_id": "child-1/c7", "hash": "h1",
        "tool": "write_file", "arguments": {"path": "a.txt", "content": "x"},
        "reason": "no rule allows it", "once": False, "rules": ["write_file(./a.txt)"],
        "who": "child-1 (code)",
    }  # fmt: skip
    assert events == [
        Granted("write_file(./a.txt)"),
        ChildAnswered("child-1/c7", True, hash="h1"),
    ]


def test_questions_of_a_subagent_are_answered_by_its_call_id(tmp_path: Path) -> None:
    answers = b'{"type":"question_response","call_id":"child-1/c7","answers":["so"]}'

    data, events = ask_child(tmp_path, ASK, answers)

    assert (data["type"], data["who"]) == ("question", "child-1 (code)")
    assert events == [ChildAnswered("child-1/c7", True, "", ("so",), hash="h1")]


def test_an_approval_of_an_unknown_subagent_call_is_refused(tmp_path: Path) -> None:
    verdict = b'{"type":"tool_approval_response","call_id":"child-2/c7","allowed":true}'

    with pytest.raises(BadInput, match="no call 'child-2/c7' waits"):
        ask_child(tmp_path, EDIT, verdict)


def test_a_question_read_from_the_session_handle_names_its_subagent(tmp_path: Path) -> None:
    async def run_story() -> list[tuple[str, str, str]]:
        async with stdio_session(tmp_path) as (client, session):
            await session.record(TurnStarted(0), BORN, of_a_child(EDIT))
            return [(q.call_id, q.tool, q.who) for q in client.questions]

    assert anyio.run(run_story) == [("child-1/c7", "write_file", "child-1 (code)")]


def test_stop_child_stops_a_running_subagent_and_refuses_a_stopped_one(
    tmp_path: Path,
) -> None:
    stop = b'{"type":"stop_child","child":"child-1"}'

    _, events = ask_child(tmp_path, EDIT, stop)

    assert events == [ChildStopped("child-1")]
    with pytest.raises(BadInput, match="no subagent 'child-1' is running"):
        ask_child(tmp_path, EDIT, stop, stop)
    with pytest.raises(BadInput, match="no subagent is running"):
        run_orders(tmp_path, b'{"type":"stop_child"}')


def test_mail_to_an_unknown_teammate_or_without_text_is_refused(
    tmp_path: Path,
) -> None:
    mail = b'{"type":"mail_teammate","teammate":"ann","text":"Look at b.txt."}'
    empty = b'{"type":"mail_teammate","teammate":"ann","text":" "}'

    with pytest.raises(BadInput, match="no teammate 'ann' is at work; there are no teamm"):
        run_orders(tmp_path, mail)
    with pytest.raises(BadInput, match="the message is empty"):
        run_orders(tmp_path, empty)
