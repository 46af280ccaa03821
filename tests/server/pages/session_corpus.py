"""Makes random sessions that can really happen: events and live news, and their documents.

Each id is new, a call ends once, and only open questions are answered, as the engine and the inbox
ensure. Tests compare readers of the documents with the fold of the events.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from refold.journal.events import kinds as news
from refold.journal.events.child_events import (
    BackgroundEnded,
    BackgroundStarted,
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildStopped,
    MailSent,
    NestedCallMade,
    TeammateIdled,
    TeamsSwitched,
    TerminalCommandEntered,
    TerminalEnded,
    TerminalStarted,
    TracingSwitched,
)
from refold.journal.events.kinds import Entry, Event, Frame
from refold.journal.state.fold import View, apply
from refold.values.control import (
    BoardTask,
    Control,
    EnterPlan,
    Final,
    PlanReady,
    TasksChanged,
    Todo,
    Todos,
)
from refold.values.display import Diff
from refold.values.live import (
    CallComing,
    ChildMoved,
    Live,
    PortsChanged,
    Progress,
    TextCame,
    ThinkingCame,
    Waiting,
)
from refold.values.messages import Image, Message, Part, Text, Thinking, ToolCall
from refold.values.usage import Usage
from refold.views.stream_json.encode import documents_of

Plain: TypeAlias = dict[str, Any]
WORDS = ("Look.", "So *far*", "für 文 😀", "\n", "and\n\nthen", " ")


class Session:
    """A session of `steps` random choices, made by `random`."""

    def __init__(self, random: Random, steps: int) -> None:
        self._random, self._ids = random, 0
        self.view, self.frames = View(), list[Frame]()
        self._started = set[str]()
        self._add(news.SessionStarted("/w"))
        for _ in range(steps):
            random.choice(self._possible())()

    def _add(self, item: Event | Live) -> None:
        if isinstance(
            item,
            TextCame
            | ThinkingCame
            | CallComing
            | Progress
            | Waiting
            | ChildMoved
            | PortsChanged,
        ):
            self.frames.append(Frame(self.view.seq, 1, item))
            return
        entry = Entry(self.view.seq + 1, item, at=float(self.view.seq + 1))
        self.view = apply(self.view, entry)
        self.frames.append(Frame(entry.seq, 0, entry))

    def _id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}{self._ids}"

    def _possible(self) -> list[Any]:
        turn = self.view.turn
        ways = [self._add_message, self._add_message, self._choose]
        if not turn.seq:
            ways += [self._begin] * 3
            if self.view.plans.waiting:
                ways.append(self._judge_plan)
            if len(self.view.marks) > 1 and not self.view.conversation.calls:
                ways.append(self._rewind)
            return ways
        if turn.stopped:
            ways += [self._end] * 4
        else:
            ways += [self._end, self._child, self._stop, self._team]
            ways += [self._change_background] * 2
        if turn.open_request:
            return [*ways, *[self._stream] * 8, *[self._answer] * 4, self._fail]
        if self._open():
            return [*ways, *[self._advance] * 10, self._news]
        return [*ways, *[self._ask] * 6, self._news, self._deliver]

    def _open(self) -> list[Any]:
        calls = (*self.view.conversation.calls, *self.view.conversation.nested)
        return [call for call in calls if call.result is None]

    def _add_message(self) -> None:
        r = self._random
        images = (Image("b" * 64, "image/png", "a.png"),) if r.random() < 0.1 else ()
        result = news.Said(
            r.choice(WORDS), r.choice(["person", "person", "child-1"]),
            r.choice(["now", "next"]), self._id("key"), images,
            r.choice([None, None, "typed"]),
        )  # fmt: skip
        self._add(result)

    def _begin(self) -> None:
        self._add(news.TurnStarted(self.view.seq))
        self._deliver()
        self._ask()

    def _deliver(self) -> None:
        if waits := [item.seq for item in self.view.conversation.undelivered]:
            self._add(news.Delivered(tuple(waits)))

    def _ask(self) -> None:
        self._add(news.ModelAsked())

    def _stream(self) -> None:
        r, text = self._random, self._random.choice(WORDS)
        self._add(r.choice([
            TextCame(text), ThinkingCame(text), CallComing("bash"), Waiting(1.5, "busy"),
        ]))  # fmt: skip

    def _answer(self) -> None:
        r, parts = self._random, list[Part]()
        if r.random() < 0.5:
            parts.append(Thinking(r.choice(WORDS)))
        if r.random() < 0.7:
            parts.append(Text(r.choice(WORDS)))
        for _ in range(r.choice([0, 1, 1, 3])):
            parts.append(ToolCall(self._id("c"), "bash", Raw(b'{"command":"ls"}')))
        partial = bool(self.view.turn.stopped)
        parts = [p for p in parts if not (partial and isinstance(p, ToolCall))]
        self._add(news.ModelAnswered(
            Message("assistant", tuple(parts)), Usage(5, output=2),
            r.choice(["end", "length"]), "a/m", partial, 0.25,
        ))  # fmt: skip

    def _fail(self) -> None:
        self._add(
            news.ModelFailed("no line", "Unreachable", self._random.choice(["", "So f"]))
        )

    def _advance(self) -> None:
        r, call = self._random, self._random.choice(self._open())
        id_ = call.call.id
        match call.stage:
            case "called":
                verdict = r.choice(["allow", "ask", "ask", "deny"])
                changes = (Diff("/w/a", "changed", "-a\n+b"),) if verdict == "ask" else ()
                self._add(
                    news.Judged(id_, verdict, "rule", "so", hash="h", changes=changes)
                )
            case "asked":
                if r.random() < 0.2:  # the files that it would change have changed
                    self._add(news.Judged(id_, "ask", "", "again", hash="i"))
                else:
                    reason = r.choice(["", "later"])
                    self._add(news.Answered(id_, r.random() < 0.6, reason))
            case "denied":
                self._add(news.Ended(id_, "refused", "Refused."))
            case "allowed":
                self._add(news.Started(id_))
            case _:
                self._run(id_)

    def _run(self, id_: str) -> None:
        r = self._random
        if r.random() < 0.4:
            self._add(Progress(id_, r.choice(WORDS) * 300))
        elif r.random() < 0.2 and "." not in id_:
            call = ToolCall(f"{id_}.{self._id('n')}", "read_file", Raw(b"{}"))
            self._add(NestedCallMade(call, id_))
        else:
            controls: list[Control | None] = [
                None, None, Final("It is 7."), PlanReady("T", "1. Do"), EnterPlan(),
                Todos((Todo("look", "done"), Todo("act"))),
            ]  # fmt: skip
            diffs = (Diff("/w/a", "changed", "+x"),) if r.random() < 0.4 else ()
            self._add(news.Ended(
                id_, r.choice(["done", "done", "failed"]), r.choice(WORDS), diffs, (),
                r.choice(["", "f" * 64]), r.choice(controls),
                (Image("c" * 64, "image/png"),) if r.random() < 0.1 else (),
            ))  # fmt: skip

    def _stop(self) -> None:
        self._add(news.Stopped("enough"))

    def _end(self) -> None:
        for call in (*self.view.conversation.nested, *self.view.conversation.calls):
            if call.result is None:
                self._add(news.Ended(call.call.id, "stopped", "Stopped."))
        if self.view.turn.open_request and self.view.turn.stopped:
            self._answer()
        outcome = "plan_ready" if self.view.plans.waiting else "answered"
        self._add(news.TurnEnded("interrupted" if self.view.turn.stopped else outcome))

    def _judge_plan(self) -> None:
        plan = self.view.plans.waiting
        assert plan
        self._add(news.PlanAnswered(plan.seq, self._random.random() < 0.5))

    def _rewind(self) -> None:
        self._add(news.Rewound(self._random.choice(list(self.view.marks)).seq))

    def _choose(self) -> None:
        self._add(self._random.choice([
            news.ModeChanged("plan"), news.ModelChosen("a/n"), news.EffortChosen("high"),
            news.AgentChosen("plan"), news.StepLimitSet(3), TeamsSwitched(on=True), TracingSwitched(on=True), news.Checkpointed(()),
        ]))  # fmt: skip

    def _news(self) -> None:
        seq = self.view.seq
        self._add(self._random.choice([
            news.Compacted("full", dropped=2, size_before=9, size_after=3),
            news.Reserved("summary", "a/s", 0.1), news.Settled(seq, Usage(1), "a/s", 0.1),
            news.Settled(seq, None, "a/s", None, "no line"), news.AnswerRejected(("no",)),
            news.HookRan("PostToolUse", "tidy", outcome="failed", reason="it ended with status 1"),
            news.MessageEdited(2, "x"), news.MessageEdited(2), news.MessageWithdrawn(2), news.ExternalEditsFound((("/w/a", "changed"),)), news.FilesRestored(3, 4, 2),
            news.FileUploaded("/w/a", 3, "0" * 64, 2), TerminalStarted("/bin/bash", "/w"),
            TerminalCommandEntered(seq, "make"), TerminalEnded(seq, "exited", 2),
        ]))  # fmt: skip

    def _child(self) -> None:
        born = self._id("child-")
        self._add(ChildBorn(born, "c", "code", "Do it."))
        self._add(ChildMoved(born, "code", "Do it", 1, 20, 0.1, "reads"))
        self._add(PortsChanged((8000, 8000 + self._ids)))
        if self._random.random() < 0.6:
            call = ToolCall(f"{born}/c7", "bash", Raw(b"{}"))
            self._add(ChildAsked(f"{born}/c7", born, "code", call, "no rule", "h"))
            if self._random.random() < 0.6:
                self._add(ChildAnswered(f"{born}/c7", True))
                self._add(ChildEnded(born, "answered", "done"))

    def _team(self) -> None:
        """Start a teammate, or let something happen to a teammate."""
        r, team = self._random, self.view.children.team
        if not team or r.random() < 0.2:
            name = self._id("child-")
            self._add(
                ChildBorn(name, "c", "code", "Do.", teammate=f"t{name}", background=True)
            )
            return
        child = r.choice(team)
        mate = child.born.teammate
        self._add(r.choice([
            TeammateIdled(child.name), TeammateIdled(child.name), ChildStopped(child.name, "asked"),
            MailSent("lead", mate, "Hello."), MailSent(mate, "lead", "Here.", "plan"),
            ChildEnded(child.name, "answered", "done"), self._task_added(),
        ]))  # fmt: skip

    def _task_added(self) -> Event:
        return news.Ended("", "done", "", control=TasksChanged((BoardTask(1, "Mend it"),)))

    def _change_background(self) -> None:
        """Start a command in the background, or end one."""
        r, beside = self._random, self.view.background
        if not beside.running or r.random() < 0.4:
            self._add(BackgroundStarted(beside.next_name, "make serve", "c", "/w"))
            return
        name = r.choice(beside.running).name
        self._add(r.choice([
            BackgroundEnded(name, "done", 0, text="up"), BackgroundEnded(name, "failed", 2),
            BackgroundEnded(name, "stopped", reason="asked"), news.Forked("s", 3),
        ]))  # fmt: skip


def documents_with_ends(frames: Sequence[Frame]) -> Iterator[tuple[Frame, list[Plain]]]:
    """Yield each frame with its documents, as they go over a socket."""
    for frame in frames:
        texts = [
            msgspec.json.decode(msgspec.json.encode(document))
            for document in documents_of(frame, live=True)
        ]
        at = frame.item.at if isinstance(frame.item, Entry) else 0.0
        yield frame, [{**item, "at": at} for item in texts]
