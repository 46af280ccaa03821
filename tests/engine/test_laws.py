"""Properties of every journal, whatever is in it."""

import sys
from collections.abc import AsyncGenerator
from functools import reduce
from itertools import pairwise
from types import FrameType
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from msgspec import Raw
from msgspec.structs import replace

from refold.engine.model_call import build_request
from refold.journal.events import kinds as news
from refold.journal.events.codec import KINDS_BY_NAME
from refold.journal.events.kinds import Entry, Event
from refold.journal.state.fold import View, apply, fold
from refold.journal.state.view_codec import EncodedView, ListTable, decode_view
from refold.journal.store.port import MemoryStore
from refold.provider.encoding_cache import Encoded, EncodedPiece
from refold.provider.port import Delta, Pictures, Request
from refold.testing.providers import Line, ScriptedProvider, as_reply, check_history, deltas
from refold.values.control import EnterPlan, Final, PlanReady, TasksChanged, Todos
from refold.values.display import Diff, Output
from refold.values.messages import Message, Text, ToolCall
from refold.values.usage import Budget, Usage
from tests.engine.house import (
    BOOK,
    POLICIES,
    WEATHER,
    open_session,
    raw,
    run,
    weather,
    world,
)
from tests.engine.worlds import world_with

CALLS = Message("assistant", (ToolCall("a", "t", raw("{}")), ToolCall("b", "t", raw("{}"))))
YES = Message("assistant", (Text("yes"),))
IDS = some.sampled_from("ab")
NEWS: list[some.SearchStrategy[Any]] = [
    some.builds(news.Said, some.text(max_size=3)),
    some.builds(news.TurnStarted, some.just(1)),
    some.builds(news.Delivered, some.lists(some.integers(1, 9), max_size=2).map(tuple)),
    some.builds(news.ModelAsked, some.just(("hurry",))),
    some.just(news.ModelAnswered(CALLS)),
    some.just(news.ModelAnswered(YES)),
    some.just(news.ModelAnswered(Message("assistant", ()), stop="length")),
    some.just(news.ModelAnswered(YES, first_piece=0.25)),
    some.builds(
        news.ModelFailed, some.just("no"), partial_text=some.sampled_from(["", "so"])
    ),
    some.builds(news.Judged, IDS, some.sampled_from(["allow", "ask", "deny"])),
    some.builds(news.Answered, IDS, some.booleans()),
    some.builds(news.Started, IDS),
    some.builds(news.Ended, IDS, some.just("done"), some.text(max_size=2)),
    some.builds(news.Rewound, some.integers(1, 20)),
    some.builds(news.Stopped, some.just("enough")),
    some.builds(news.TurnEnded, some.just("answered")),
]
JOURNALS = some.lists(some.one_of(NEWS), max_size=30)
WRITES = ToolCall("a", "write_file", raw('{"path":"/f"}'))
FURTHER: list[some.SearchStrategy[Any]] = [
    some.just(news.ModelAnswered(Message("assistant", (WRITES, CALLS.calls[1])))),
    some.builds(
        news.Ended,
        IDS,
        some.sampled_from(["done", "failed", "refused"]),
        some.just("so"),
        some.sampled_from([(), (Diff("/f", "changed", "+x"),), (Output("make", "", 1),)]),
        control=some.sampled_from([
            None, Final("2"), PlanReady("T", "1."), EnterPlan(), Todos(()), TasksChanged(()),
        ]),
    ),
    some.builds(news.Judged, IDS, some.just("allow"), real_path=some.just("/real/f")),
    some.builds(news.NestedCallMade, some.just(CALLS.calls[1]), some.just("a")),
    some.builds(news.Reserved, some.just("summary"), some.just("a/b"), some.just(0.5)),
    some.builds(news.Settled, some.integers(1, 9), some.just(Usage(1))),
    some.builds(news.BackgroundStarted, some.just("background-1"), some.just("make"), notify=some.booleans()),
    some.builds(
        news.BackgroundEnded, some.just("background-1"),
        some.sampled_from(["done", "failed", "stopped", "lost"]), told=some.booleans(),
    ),
    some.builds(news.ModelAsked, policies=some.just(("ended_commands",))),
    some.builds(news.WorktreeEntered, some.just("/tree"), some.just("/tree"), some.just("refold/t")),
    some.builds(news.WorktreeLeft, some.just("/w"), some.just("/tree"), some.sampled_from(["kept", "gone"])),
    some.builds(news.PlaceRebuilt, some.just("ssh://h/w"), some.booleans()),
    some.builds(news.ChildBorn, some.just("child-1"), *map(some.just, ("a", "b", "c"))),
    some.builds(news.ChildEnded, some.just("child-1"), *map(some.just, ("answered", "done"))),
    some.sampled_from([
        news.Checkpointed((), changed=(("/f", "changed"),)), news.Compacted("full"),
        news.Imported("s"), news.Forked("s", 9), news.AnswerRejected(("no",)), news.SessionResumed(),
        news.HolderEnded(7, "h", "refold"),
        news.HookRan("PreToolUse", "h", "k", 0, "a", arguments=raw("{}")), news.HookRan("UserPromptSubmit", "h", "k", 1, outcome="blocked"),
        news.HookRan("Stop", "h", "k", 2, outcome="blocked", reason="no"), news.HookRan("PreCompact", "h", outcome="blocked"),
    ]),
]  # fmt: skip
# A fold of all entries at once is quicker for turns, and every journal has several.
TURNS = some.lists(
    some.one_of(*NEWS, *FURTHER, some.just(news.TurnStarted(1))), max_size=40
)


def numbered_entries(events: list[Event]) -> list[Entry]:
    return [Entry(seq, event) for seq, event in enumerate(events, start=1)]


@given(JOURNALS, some.integers(0, 30))
def test_folding_in_two_parts_equals_folding_at_once(events: list[Event], cut: int) -> None:
    entries = numbered_entries(events)

    assert fold(entries[cut:], start=fold(entries[:cut])) == fold(entries)


@given(JOURNALS, TURNS)
@example([], [news.TurnStarted(1), news.Imported("s"), news.TurnStarted(1)])
def test_fold_applies_one_event_after_another(
    before: list[Event], events: list[Event]
) -> None:
    start = fold(numbered_entries(before))
    entries = [
        Entry(seq, event, at=float(seq))
        for seq, event in enumerate(events, start=len(before) + 1)
    ]

    assert fold(entries, start) == reduce(apply, entries, start)


@given(JOURNALS, some.integers(0, 30))
def test_folding_further_events_never_changes_an_earlier_view(
    events: list[Event], cut: int
) -> None:
    entries = numbered_entries(events)
    early = fold(entries[:cut])

    fold(entries[cut:], start=early)

    assert early == fold(entries[:cut])


@given(JOURNALS, TURNS, some.lists(some.integers(0, 70), max_size=6))
def test_view_decoded_from_pieces_and_the_later_events_equals_folding_all(
    before: list[Event], events: list[Event], cuts: list[int]
) -> None:
    entries = numbered_entries([*before, *events])
    view, table, pieces, views = View(), ListTable(), list[bytes](), list[View]()
    ends = sorted({min(cut, len(entries)) for cut in cuts})
    for start, end in pairwise([0, *ends]):
        view = fold(entries[start:end], view)
        encoded = EncodedView(view, table)
        if end % 5:  # else it could not be stored
            encoded.commit()
            pieces.append(encoded.piece)
            views.append(view)
            decoded = decode_view(pieces)
            assert [*decoded.earlier, decoded.view] == views[-3:]
            assert fold(entries[end:], decoded.view) == fold(entries)
        if end % 3 == 0 and pieces:  # another process continues
            decoded = decode_view(pieces)
            view, table = fold(entries[decoded.view.seq : end], decoded.view), decoded.table


def encode_alternating(message: Message, _: Pictures) -> list[EncodedPiece]:
    """Return a wire on which two messages of one side become one."""
    role = b"a" if message.role == "assistant" else b"u"
    body = b",".join(msgspec.json.encode(part) for part in message.parts)
    return [EncodedPiece(body, b'{"role":"' + role + b'","content":[', b"]}")]


@given(some.lists(JOURNALS, max_size=3))
def test_incrementally_encoded_request_equals_a_fresh_encoding(
    items: list[list[Event]],
) -> None:
    encoded, view, seq = Encoded(encode_alternating), View(), 0
    for piece in items:
        entries = [Entry(seq + n, event) for n, event in enumerate(piece, start=1)]
        view, seq = fold(entries, start=view), seq + len(piece)
        messages = build_request(view).messages

        joined = encoded.join(messages)

        assert joined == Encoded(encode_alternating).join(messages)
        roles = [m["role"] for m in msgspec.json.decode(b"[" + joined + b"]")]
        assert all(one != other for one, other in pairwise(roles))


def test_every_event_kind_except_the_listed_ones_changes_the_view() -> None:
    opening = [news.Said("a"), news.TurnStarted(1), news.ModelAnswered(CALLS)]
    plan = news.Ended("c", "done", "", control=PlanReady("T", "1. Think."))
    verdict = news.Judged("b", "ask")
    diff = Diff("/f", "created", "+x", after="00")
    born = news.ChildBorn("child-1", "a", "explore", "look")
    wants = news.ChildAsked(
        "child-1/a", "child-1", "explore", ToolCall("a", "book", Raw(b"{}"))
    )
    samples: list[Event] = [
        *opening, news.SessionStarted("/"), news.SessionResumed("2"), news.SystemPromptSet("be kind"),
        news.Delivered((1,)), news.ModelAsked(), news.ModelFailed("no"), verdict,
        news.Answered("b", True), news.Granted("book"), news.Started("a"),
        news.Ended("a", "done", "", (diff,)), news.Rewound(1), news.Stopped("enough"),
        news.TurnEnded("answered"), news.ModeChanged("bypass"), news.ModelChosen("a/b"), news.JournalRepaired("half a line"), news.HolderEnded(7, "h", "refold"),
        news.EffortChosen("high"), news.MessageEdited(1, "Stay."), news.MessageWithdrawn(2), news.AnswerRejected(("Not that shape.",)),
        news.PlanAnswered(4, True), news.Checkpointed((("/w", "t1"),)), news.FilesRestored(5, 6), news.FileUploaded("/w/a", 3, "0" * 64, 5),
        news.CompactionRequested(), news.Compacted("full", preserved="what was said"),
        news.Reserved("summary", "a/b"), news.Settled(4, Usage(1)), news.BudgetSet(Budget(2.0)), news.StepLimitSet(5),
        news.AgentChosen("explore"), news.ExternalEditsFound((("/f", "changed"),)), news.InstructionsFound((("/d/AGENTS.md", "be brief"),)), news.MemoryExtracted(3),
        news.ChildBorn("child-2", "a", "explore", "look"), news.ChildGranted("child-1", Budget(1.0)),
        wants, news.ChildAnswered("child-1/a"), news.ChildStopped("child-1"),
        news.TeamsSwitched(True), news.TracingSwitched(True), news.MailSent("ann", "lead", "hello"), news.TeammateIdled("child-1"),
        news.ChildEnded("child-1", "answered", "done"), news.Forked("s", 9),
        news.BackgroundStarted("background-2", "make"), news.BackgroundEnded("background-1", "done", 0),
        news.NestedCallMade(ToolCall("a.1", "book", Raw(b"{}")), "a"), news.VariablesSaved("a", "0" * 64),
        news.VariableInjected("context", "0" * 64), news.Imported("s"), news.Renamed("walk"), news.Tagged(("rain",)), news.Titled("A walk"),
        news.HookRan("Stop", "check", "k", 2, context="more"),
        news.WorktreeEntered("/t", "/t", "refold/t", "c"), news.WorktreeLeft("/w", "/t"), news.PlaceRebuilt("ssh://h/w"),
    ]  # fmt: skip
    beside = news.BackgroundStarted("background-1", "make")
    view = fold(numbered_entries([*opening, plan, verdict, born, wants, beside]))

    unchanged = {
        type(e).__name__
        for e in samples
        if msgspec.structs.replace(fold([Entry(6, e)], start=view), seq=5) == view
        and e not in (verdict, wants)
    }

    assert unchanged == set()
    assert {type(e).__name__ for e in samples} == set(KINDS_BY_NAME) - {
        "Noted",
        "RequestLogged",
        "TerminalStarted",
        "TerminalCommandEntered",
        "TerminalEnded",
        "VariablesRestored",
    }  # for readers


LINES = some.sampled_from(
    ["", "Yes.", [WEATHER], [BOOK, WEATHER], [("fly", "{}")], [("book", "[1"), BOOK]]
)


@given(some.lists(LINES, max_size=7), some.booleans())
def test_turn_ends_with_a_valid_outcome_for_any_model_output(
    script: list[Line], may_book: bool
) -> None:
    rules = world(ScriptedProvider()).rules if may_book else ()
    scripted_world = world(ScriptedProvider(*script), rules=rules, attended=False)
    view = run(MemoryStore(), scripted_world, "Well?")

    check_history(spoken.message for spoken in view.conversation.messages)
    assert view.turn.outcome in {"answered", "failed", "step_limit", "stuck", "denied"}


class Endless:
    """Calls a tool without end, and counts the lines of our code between two requests."""

    def __init__(self, steps: int, traced: tuple[int, ...]) -> None:
        self.steps, self.traced, self.counts = steps, traced, list[int]()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        step = len(self.counts)
        self.counts.append(0)
        call = [("weather", f'{{"city": "{step}"}}')]
        answer = as_reply(call if step < self.steps else "Done.")
        sys.settrace(self._count if step in self.traced else None)
        reply = replace(answer, usage=Usage(fresh=10 + 20 * step, output=9))
        for delta in deltas(reply, step):
            yield delta

    def _count(self, frame: FrameType, event: str, _: object) -> Any:
        if "/refold/" not in frame.f_code.co_filename:
            return None
        self.counts[-1] += event == "line"
        return self._count


@pytest.mark.slow
def test_step_2000_runs_as_many_lines_of_code_as_step_1010() -> None:
    """The test counts the lines of our code that run from one request to the next, and
    measures no time.
    """
    provider = Endless(2001, traced=(1010, 2000))
    policies = tuple(p for p in POLICIES if p.__name__ != "step_limit")

    async def long_turn() -> View:
        scripted_world = world(provider, tools=(weather,), policies=policies)

        session = await open_session(
            MemoryStore(), world_with(scripted_world, provider=provider)
        )
        await session.inbox.say("Everywhere?")
        return await session.run_turns()

    view = anyio.run(long_turn)

    assert len(view.conversation.messages) == 2 + 2 * 2001
    assert 100 < provider.counts[2000] <= provider.counts[1010] + 2
    check_history(spoken.message for spoken in view.conversation.messages)
