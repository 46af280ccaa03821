"""Writes trees of sessions to the disk from events, without running anything."""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Raw

from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.events.kinds import (
    ChildBorn,
    ChildEnded,
    Delivered,
    Ended,
    Entry,
    Event,
    Judged,
    ModelAnswered,
    ModelAsked,
    NestedCallMade,
    Reserved,
    Said,
    SessionStarted,
    Settled,
    Started,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.store import writer_lock
from refold.journal.store.disk import Disk
from refold.values.messages import Message, Text, ToolCall
from refold.values.usage import Spent, Usage

HOSTILE = "\x1b]0;owned\x07 look\n\u202egnp.exe \u200b\x9b2J"


def write_journal(path: Path, events: Sequence[Event], *, began: float = 100.0) -> bytes:
    """Write a journal of these events, a second apart. Return its bytes."""
    head, data, turn = Head(), b"", 0
    for event in events:
        seq = head.seq + 1
        turn = seq if isinstance(event, TurnStarted) else turn
        line, head = codec.encode(Entry(seq, event, began + seq, turn=turn), head)
        data += line + b"\n"
    path.mkdir(parents=True, exist_ok=True)
    (path / "events.jsonl").write_bytes(data)
    return data


def hold(path: Path) -> None:
    """Sign the lock of the session, as if this process held it."""
    writer_lock.LockFile(path, Disk()).sign(writer_lock.current_writer(1), (0, ""), 0)


def answer(
    text: str = "",
    *calls: tuple[str, str, str],
    usage: Usage = Usage(100, 0, 0, 10),  # noqa: B008 - frozen
    cost: float | None = 0.25,
    model: str = "m/big",
) -> ModelAnswered:
    """Return a response. Each of `calls` is an id, a tool and the arguments."""
    parts = (*((Text(text),) if text else ()), *(
        ToolCall(id_, tool, Raw(arguments.encode())) for id_, tool, arguments in calls
    ))  # fmt: skip
    return ModelAnswered(Message("assistant", parts), usage, model=model, cost=cost)


def start_events(text: str = "look", agent: str = "main") -> list[Event]:
    return [
        SessionStarted("/work/place", id="s"),
        Said(text),
        TurnStarted(2),
        SystemPromptSet("You are one.", model="m/big", window=10_000, agent=agent),
        Delivered((2,)),
    ]


def leaf_events(first: int, count: int, failed: Sequence[int] = ()) -> list[Event]:
    """Return the events of `count` leaves of the call `call-0`, which cost 0.01 each."""
    events: list[Event] = []
    for number in range(first, first + count):
        seq = 11 + len(events)  # after the events of `with_leaves`
        leaf = Reserved(
            "leaf", "m/small", 0.02, 300, number, "call-0", "k", 0, f"what is {number}"
        )
        why = "the model was away" if number in failed else ""
        text = "" if why else f"it is {number}"
        cost = None if why else 0.01
        usage = None if why else Usage(30, 0, 0, 3)
        events += [leaf, Settled(seq, usage, "m/small", cost, why, text)]
    return events


def with_leaves(count: int, failed: Sequence[int] = ()) -> list[Event]:
    """Return the events of a turn whose only call asked this number of leaves."""
    return [
        *start_events("ask them all", "rlm"),
        ModelAsked(),
        answer("", ("call-0", "python", '{"code": "map_lm(x)"}')),
        Judged("call-0", "allow", "python"),
        Started("call-0"),
        NestedCallMade(
            ToolCall("call-0.1", "read_file", Raw(b'{"path": "a.txt"}')), "call-0"
        ),
        *leaf_events(1, count, failed),
        Ended("call-0.1", "done", "hello"),
        Ended("call-0", "done", "[...]"),
        ModelAsked(),
        answer("All asked."),
        TurnEnded("answered"),
    ]


def make_spent(dollars: float, answers: int, usage: Usage) -> Spent:
    return Spent(usage, dollars, answers)


def child(name: str, task: str = "find it", agent: str = "explore") -> ChildBorn:
    return ChildBorn(name, "call-0", agent, task)


def family(path: Path) -> Path:
    """Write a finished session with two children, and return its path.

    The first child has a child of its own, the second one asked leaves.
    """
    write_journal(path, [
        *start_events("find the bug"),
        ModelAsked(),
        answer("I send two.", ("call-0", "task", '{"prompt": "find it"}')),
        Started("call-0"),
        child("child-1"),
        child("child-2", "ask them all", "rlm"),
        ChildEnded("child-2", "answered", "partial", "All asked.",
                   spent=make_spent(0.53, 5, Usage(290, 0, 0, 29))),
        ChildEnded("child-1", "answered", "done", "Found.",
                   spent=make_spent(0.5, 2, Usage(200, 0, 0, 20))),
        Ended("call-0", "done", "Found."),
        Reserved("summary", "m/small", 0.1, 50),
        Settled(14, Usage(7), "m/small", 0.125),
        ModelAsked(),
        answer("It is in parse()."),
        TurnEnded("answered"),
    ])  # fmt: skip
    one = path / "children/child-1"
    write_journal(one, [
        *start_events("find it", "explore"),
        child("child-1", "find it deeper"),
        ChildEnded("child-1", "failed", "failed", "", "no model"),
        ModelAsked(),
        answer("Found."),
        TurnEnded("answered"),
    ], began=120)  # fmt: skip
    write_journal(one / "children/child-1", [
        *start_events("find it deeper", "explore"), ModelAsked(), answer("Deep."), TurnEnded("failed", "no model"),
    ], began=125)  # fmt: skip
    write_journal(path / "children/child-2", with_leaves(4, failed=(3,)), began=130)
    return path


def session_path(name: str = "20260101-000000-abcd") -> Path:
    return Path(os.environ["REFOLD_HOME"]) / "sessions" / name
