"""Makes consistent sessions from small parts, as frames for tests of the full screen."""

from collections.abc import Sequence

from hypothesis import strategies as some
from msgspec import Raw

from refold.journal.events.kinds import (
    Answered,
    Delivered,
    Ended,
    Entry,
    Event,
    Frame,
    Judged,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.events.setting_events import ModelChosen
from refold.tui.messages import Facts, FactsChanged, News, Resized, Tick
from refold.tui.model import Model
from refold.tui.update import update
from refold.values.control import PlanReady, Todo
from refold.values.display import Checklist, Diff, Note, Output
from refold.values.live import CallComing, Live, Progress, TextCame, ThinkingCame
from refold.values.messages import Message, Text, Thinking, ToolCall
from refold.values.usage import Usage

WORDS = some.text(
    some.sampled_from("ab c\n\t*`#|-1.日本👨‍👩‍👧é\u0301ש\u202e\x1b\x00é…"), max_size=60
)
DIFF = Diff("/w/a.py", "changed", "@@ -1,2 +1,2 @@\n same\n-old = 1\n+new = 日本")


class Story:
    """A session. `frames` has its frames in their order; each turn adds some."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._seq = self._calls = 0
        self.tell(SessionStarted("/w"))

    def tell(self, *news: Event | Live) -> "Story":
        for item in news:
            if isinstance(item, TextCame | ThinkingCame | CallComing | Progress):
                self.frames.append(Frame(self._seq, 1, item))
            else:
                self._seq += 1
                entry = Entry(self._seq, item, at=10.0 * self._seq)
                self.frames.append(Frame(self._seq, 0, entry))
        return self

    def turn(self, text: str, *steps: Event | Live | Sequence[Event | Live]) -> "Story":
        self.tell(Said(text))
        seq = self._seq
        self.tell(TurnStarted(seq), Delivered((seq,)), ModelAsked())
        for step in steps:
            self.tell(*(step if isinstance(step, list | tuple) else [step]))
        return self

    def call(self, end: Ended, name: str = "bash", arguments: str = '{"command":"ls"}'):
        self._calls += 1
        call = ToolCall(f"c{self._calls}", name, Raw(arguments.encode()))
        answer = ModelAnswered(
            Message("assistant", (call,)), Usage(9, output=3), model="a/m"
        )
        return [
            answer, Judged(call.id, "ask", reason="no rule"), Answered(call.id, True),
            Started(call.id), Progress(call.id, "so far\n"),
            Ended(call.id, end.outcome, end.text, end.shown, control=end.control), ModelAsked(),
        ]  # fmt: skip

    def answer_events(self, text: str, thought: str = "") -> list[Event | Live]:
        parts = (*([Thinking(thought)] if thought else []), Text(text))
        message = Message("assistant", parts)
        return [
            *([ThinkingCame(thought)] if thought else []), TextCame(text[:20]), TextCame(text[20:]),
            ModelAnswered(message, Usage(90, output=30), model="a/m"),
        ]  # fmt: skip


ENDS = (
    Ended("", "done", "a\nb\n", (Output("ls", "\n".join(map(str, range(40))), 0),)),
    Ended("", "done", "ok", (DIFF,)),
    Ended("", "done", "ok", (Note("read a.py, 3 lines"),)),
    Ended("", "done", "ok", (Checklist((Todo("Mend it", "in_progress"), Todo("Try", "pending"))),)),
    Ended("", "failed", "no such file: x.py"),
    Ended("", "refused", "Refused: no."),
)  # fmt: skip


@some.composite
def stories(draw: some.DrawFn) -> Story:
    story = Story()
    for _ in range(draw(some.integers(1, 4))):
        story.turn(draw(WORDS))
        for _ in range(draw(some.integers(0, 3))):
            story.tell(*story.call(draw(some.sampled_from(ENDS))))
        if draw(some.booleans()):
            story.tell(ModelChosen("b/other"))
        if text := draw(WORDS):
            story.tell(*story.answer_events(text, draw(WORDS)))
        if draw(some.integers(0, 3)):
            story.tell(TurnEnded("answered"))
    return story


def model_of(story: Story, width: int = 80, height: int = 24) -> Model:
    """Return the model of the full screen after this story."""
    model = Model()
    for message in (
        Resized(width, height), FactsChanged(Facts("s", "a/m", directory="/w", branch="main")),
        Tick(500.0), News(tuple(story.frames)),
    ):  # fmt: skip
        model, _ = update(model, message)
    return model


PLAN = Ended(
    "", "done", "The plan waits.", control=PlanReady("Mend", "# Mend\n\n1. Look\n2. Do")
)
