"""The line terminal, the full screen and the export say the same things in the same order."""

import io
import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as some

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.journal.events.kinds import Ended, TurnEnded
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.tui.view import view
from refold.values.display import Diff, Output
from refold.views.screen.transcript import transcript
from refold.views.styled import plain_text
from tests.tui.sessions import Story, model_of

_MARK = re.compile(r"mark\d+")
_STEPS = some.lists(some.sampled_from(["command", "edit", "failure", "text"]), max_size=5)


def story_of(turns: list[list[str]]) -> Story:
    """Return a session in which each message, call and result has a word of its own."""
    marks = (f"mark{n}" for n in range(1_000))
    story = Story()
    for steps in turns:
        story.turn(f"please {next(marks)}")
        for step in steps:
            story.tell(*_step(story, step, marks))
        story.tell(
            *story.answer_events(f"That was all of it, {next(marks)}."),
            TurnEnded("answered"),
        )
    return story


def _step(story: Story, step: str, marks: Iterator[str]) -> list[object]:
    called, result = next(marks), next(marks)
    match step:
        case "command":
            end = Ended("", "done", result, (Output(called, f"{result}\n", 0),))
            return story.call(end, arguments=f'{{"command":"{called}"}}')
        case "edit":
            diff = Diff(f"/w/{called}.py", "changed", f"@@ -1 +1 @@\n-old\n+{result}")
            arguments = f'{{"path":"{called}.py","old":"old","new":"{result}"}}'
            return story.call(Ended("", "done", "ok", (diff,)), "edit_file", arguments)
        case "failure":
            end = Ended("", "failed", f"no such file: {result}")
            return story.call(end, arguments=f'{{"command":"{called}"}}')
        case _:
            return story.answer_events(f"I say {called} and {result}, and go on.")


def marks_in(text: str) -> list[str]:
    """Return the words in the order in which each is shown first."""
    return list(dict.fromkeys(_MARK.findall(text)))


def print_by_line(story: Story) -> str:
    out = io.StringIO()
    showing = TranscriptPrinter(Printer(out, TerminalCapabilities()), lambda: 0.0)
    for frame in story.frames:
        showing.show(frame)
    return out.getvalue()


@given(some.lists(_STEPS, min_size=1, max_size=4))
def test_all_displays_show_the_same_blocks_in_the_same_order(
    turns: list[list[str]],
) -> None:
    story = story_of(turns)
    model = model_of(story, width=120, height=800)

    full = marks_in(plain_text(view(model).rows))
    assert full == marks_in(print_by_line(story))
    assert full == marks_in(transcript(model.screen))
    assert len(full) == sum(2 + 2 * len(steps) for steps in turns)
