"""A session as plain text: who said what, what was done, and no control sequences."""

import re

from hypothesis import given
from hypothesis import strategies as some
from msgspec import Raw

from refold.journal.events.kinds import (
    Answered,
    Delivered,
    Ended,
    Judged,
    ModelAnswered,
    ModelAsked,
    Said,
    Started,
    Stopped,
    TurnEnded,
)
from refold.journal.events.setting_events import ModelChosen
from refold.values.display import Diff, Output
from refold.values.live import CallComing, TextCame, ThinkingCame
from refold.values.messages import Image, Message, Text, Thinking, ToolCall
from refold.views.screen.transcript import transcript
from tests.views.test_screen import CALL, OTHER, answer, apply_news, start_screen

REPORT = (
    '<child name="child-1" agent="x" status="done">\nchild-1 is done.\n\nTwo.\n</child>'
)


def test_every_text_has_a_mark_of_its_author() -> None:
    screen = start_screen(
        answer(Thinking("Hm.\nSo."), Text("I look.\n› not a person\n\nAnd do."), CALL, OTHER),
        Judged("c1", "ask", reason="no rule"), Answered("c1", True), Started("c1"),
        Started("c2"), Ended("c1", "done", "", (Output("ls", "a\nb\n", 2),)),
        Ended("c2", "refused", "Refused: no."), Said("Also\nthis.", images=(Image("b", "image/png", "x.png"),)),
        Said(REPORT, "child-1"), Said("Then that.", when="next"), ModelChosen("b/m"), Delivered((13, 14)), ModelAsked(("<reminder>Think.</reminder>",)),
        answer(Text("Done.")), TurnEnded("answered"),
    )  # fmt: skip

    assert (
        transcript(screen)
        == """\
› Go.

∴ Hm.
  So.

‹ I look.
  › not a person

  And do.

● bash ls
  ? no rule: yes
  └ a
    b
    exit code 2
● bash pwd
  └ Refused: no.

› child-1 reports:
  Two.

· The model is now b/m.

› Also
  this.
  [image x.png]

‹ Done.

· the last command failed with code 2: ls
· 18 in · 2 out · 2 min 40 s

› Then that.
  (queued for the next turn)"""
    )


def test_transcript_shows_unfinished_calls_and_text() -> None:
    running = start_screen(
        answer(CALL, OTHER), Started("c1"), Judged("c2", "ask", reason="no rule")
    )
    thinking = start_screen(ThinkingCame("Hm"), TextCame("I lo"), CallComing("bash"))

    assert transcript(running).split("\n")[2:] == [
        "● bash ls", "  └ running", "● bash pwd", "  ? it waits for a person: no rule",
    ]  # fmt: skip
    assert transcript(thinking).split("\n")[2:] == [
        "∴ Hm …", "", "‹ I lo …", "", "● bash …",
    ]  # fmt: skip


def test_a_stopped_response_is_marked_and_a_nested_call_names_its_parent() -> None:
    partial = ModelAnswered(Message("assistant", (Text("One, two"),)), partial=True)
    stopped = start_screen(Stopped("enough"), partial, TurnEnded("interrupted", "enough"))

    assert transcript(stopped).split("\n")[2:5] == ["‹ One, two", "  (cut off here)", ""]
    assert "· stopped: enough" in transcript(stopped)


def test_file_paths_are_relative_and_call_labels_can_be_customized() -> None:
    diff = Diff("/w/a.py", "changed", "@@ -1 +1 @@\n-x\n+y")
    screen = start_screen(answer(CALL), Started("c1"), Ended("c1", "done", "", (diff,)))

    parts = transcript(screen, lambda call: f"<{call.name}>").split("\n")

    assert parts[2:] == [
        "● <bash>", "  └ changed a.py +1 -1", "    @@ -1 +1 @@", "    -x", "    +y",
    ]  # fmt: skip


HOSTILE = some.text(some.sampled_from("a\n\x1b[2J\x9b\r\x07\u202e\u200b\t "), max_size=8)


@given(HOSTILE)
def test_control_sequences_in_transcripts_are_escaped(text: str) -> None:
    call = ToolCall("c1", text or "x", Raw(b'{"command":"\\u001b[2J"}'))
    screen = apply_news(
        start_screen(answer(Thinking(text), Text(text), call), Started("c1"), Ended("c1", "done", text)),
        Said(text, sender="child-1"), Said(text, sender=text or "x"),
        TurnEnded("failed", text), TextCame(text), ThinkingCame(text), CallComing(text),
    )  # fmt: skip

    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]", transcript(screen)) == []
