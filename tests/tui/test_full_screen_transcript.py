"""The transcript: blocks as rows, the part that is on the screen, and what scrolling does."""

import msgspec
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from refold.journal.events.child_events import ChildBorn, ChildEnded
from refold.journal.events.kinds import Ended, TurnEnded
from refold.journal.events.setting_events import EffortChosen, ModeChanged, ModelChosen
from refold.tui.transcript import (
    Anchor,
    Memo,
    Transcript,
    code_block,
    find_item,
    item_text,
    scroll_anchor,
    visible_rows,
    with_items,
)
from refold.values.messages import ToolCall
from refold.views.screen.blocks import AnswerBlock
from refold.views.styled import line, plain_text
from refold.views.wrap import wrap_rows
from tests.tui.sessions import DIFF, ENDS, PLAN, Story, model_of, stories


def rows_of(shown: Transcript, width: int = 60) -> list[str]:
    return [
        plain_text([row]) for index in range(len(shown)) for row in shown.rows(index, width)
    ]


def answer_block(text: str, seq: int = 1) -> AnswerBlock:
    return AnswerBlock(seq=seq, at=0.0, text=text)


def test_a_transcript_shows_all_blocks_of_a_session_in_order() -> None:
    story = Story()
    story.turn("Say hello.").tell(*story.call(ENDS[1], "edit_file", '{"path":"a.py"}'))
    story.tell(*story.answer_events("# Done\n\n- one\n- two", "I think."))

    assert rows_of(model_of(story).transcript) == [
        "› Say hello.",
        "",
        "● edit_file a.py",
        "  └ changed a.py +1 -1",
        "    @@ -1,2 +1,2 @@",
        "     same",
        "    -old = 1",
        "    +new = 日本",
        "",
        "∴ I think.",
        "",
        "Done",
        "",
        "• one",
        "• two",
    ]


def test_long_output_is_folded_until_it_is_opened() -> None:
    story = Story()
    story.turn("Go.").tell(*story.call(ENDS[0]))
    folded = model_of(story).transcript
    transcript = Transcript(folded.items, whole=True)

    assert rows_of(folded)[3:] == [
        "  └ 0",
        "    … 36 more lines; Ctrl+O shows them …",
        "    37",
        "    38",
        "    39",
    ]
    assert rows_of(transcript)[-2:] == ["  └ a", "    b"]


def test_an_expanded_plan_is_shown_completely() -> None:
    story = Story()
    story.turn("Plan it.").tell(*story.call(PLAN, "exit_plan_mode", "{}"))
    transcript = model_of(story).transcript

    assert rows_of(Transcript(transcript.items, whole=True))[-3:] == [
        "    ",
        "    1. Look",
        "    2. Do",
    ]


def test_a_finished_subagent_takes_two_rows_and_opens_to_its_whole_report() -> None:
    report = "Two files use it.\n\n" + "\n".join(f"- file {n}" for n in range(30))
    story = Story().turn("Go.")
    before, end = (
        story.call(Ended("", "done", report), "task")[:-2],
        Ended("c1", "done", report),
    )
    story.tell(*before, ChildBorn("child-1", "c1", "explore", "look"))
    story.tell(ChildEnded("child-1", "answered", "done", text=report), end)

    transcript = model_of(story).transcript
    rows = rows_of(transcript)
    result = rows_of(replace(transcript, whole=True))

    assert rows[:2] == ["› Go.", ""]
    assert [row[:33] for row in rows[2:]] == [
        "child-1 (explore) is done · look ",
        "  └ Two files use it. - file 0 - ",
    ]
    assert result[2] == rows[2]
    assert result[3] == "  └ Two files use it."
    assert result[-1] == "    • file 29"


def test_a_mode_or_model_change_adds_a_row_only_during_a_turn() -> None:
    story = Story().turn("Go.").tell(ModeChanged("sandbox"), TurnEnded("answered"))
    rows = rows_of(model_of(story).transcript)

    story.tell(ModeChanged("plan"), EffortChosen("low"), ModelChosen("b/other"))

    assert "The mode is now sandbox." in rows
    assert rows_of(model_of(story).transcript) == rows


@given(stories(), some.integers(20, 120), some.integers(3, 30), some.data())
def test_a_scrolled_screen_shows_consecutive_rows_of_the_transcript(
    story: Story, room: int, height: int, data: some.DataObject
) -> None:
    transcript = model_of(story).transcript
    whole = [
        row for index in range(len(transcript)) for row in transcript.rows(index, room)
    ]
    by = data.draw(some.lists(some.integers(-40, 40), max_size=5))

    anchor = None
    for number in by:
        anchor = scroll_anchor(transcript, anchor, number, room, height)
        rows, _ = visible_rows(transcript, anchor, room, height)
        start = next(
            (n for n in range(len(whole) + 1) if whole[n : n + len(rows)] == rows), None
        )
        assert start is not None
        assert len(rows) == min(height, len(whole))


@given(
    stories(), stories(), some.integers(20, 100), some.integers(3, 20), some.integers(1, 60)
)
def test_a_scrolled_view_stays_in_place_while_text_arrives(
    story: Story, more: Story, room: int, height: int, up: int
) -> None:
    transcript = model_of(story).transcript
    anchor = scroll_anchor(transcript, None, -up, room, height)
    before, _ = visible_rows(transcript, anchor, room, height)
    later = with_items(transcript, list(model_of(more).transcript.items))

    after, _ = visible_rows(later, anchor, room, height)

    if anchor is not None and not transcript.open and not transcript.coming:
        assert after[: len(before)] == before


@given(stories(), some.integers(20, 100), some.integers(3, 20), some.integers(1, 30))
def test_scrolling_up_and_down_again_returns_to_the_same_rows(
    story: Story, room: int, height: int, by: int
) -> None:
    transcript = model_of(story).transcript
    up = scroll_anchor(transcript, None, -by, room, height)

    again = scroll_anchor(
        transcript, scroll_anchor(transcript, up, -3, room, height), 3, room, height
    )

    if up is not None and up != Anchor(0):
        before, _ = visible_rows(transcript, up, room, height)
        now, _ = visible_rows(transcript, again, room, height)
        at_top, _ = visible_rows(transcript, Anchor(0), room, height)
        assert now == before or before == at_top or _near_top(transcript, up, room)


def _near_top(shown: Transcript, anchor: Anchor, width: int) -> bool:
    """Fewer than three rows above: scrolling up stops there, and down goes further."""
    return (
        sum(len(shown.rows(index, width)) for index in range(anchor.item)) + anchor.row < 3
    )


def test_a_block_is_laid_out_once_for_a_width() -> None:
    transcript = with_items(Transcript(), [answer_block("one"), answer_block("two")])
    first = transcript.rows(0, 40)[-1]

    assert transcript.rows(0, 40)[-1] is first
    assert with_items(transcript, [answer_block("three")]).rows(0, 40)[-1] is first
    assert transcript.rows(0, 30)[-1] is not first


def test_search_finds_text_in_any_block_in_both_directions() -> None:
    transcript = with_items(
        Transcript(),
        [answer_block("alpha"), answer_block("Beta"), answer_block("alpha beta")],
    )

    assert find_item(transcript, "beta", 2, -1) == 2
    assert find_item(transcript, "BETA", 1, -1) == 1
    assert find_item(transcript, "alpha", 1, -1) == 0
    assert find_item(transcript, "alpha", 1, 1) == 2
    assert find_item(transcript, "gamma", 2, -1) is None


def test_copying_takes_the_last_code_block_of_a_text() -> None:
    text = "a\n```py\none\n```\nb\n```\ntwo\nthree\n```\nc"

    assert code_block(text) == "two\nthree"
    assert code_block("none") == ""
    story = Story()
    story.turn("Go.").tell(*story.call(ENDS[1], "edit_file", '{"path":"a.py"}'))
    transcript = model_of(story).transcript
    assert DIFF.text in item_text(transcript.item(1))


def test_a_long_message_and_a_long_command_are_shown_whole_when_opened() -> None:
    command = "\n".join(f"echo {n}" for n in range(30))
    story = Story()
    story.turn("\n".join(f"pasted {n}" for n in range(60)))
    story.tell(
        *story.call(ENDS[0], "bash", msgspec.json.encode({"command": command}).decode())
    )

    def label(_: ToolCall) -> str:
        return f"bash {command}"

    folded = replace(model_of(story).transcript, label=label)
    transcript = replace(folded, whole=True, memo=Memo())

    short, full = rows_of(folded), rows_of(transcript)

    assert "  … 49 more lines; Ctrl+O shows them …" in short
    assert "    … 22 more lines; Ctrl+O shows them …" in short
    assert [row for row in full if "pasted" in row][-1] == "  pasted 59"
    assert len([row for row in full if "pasted" in row]) == 60
    assert [row.split()[-1] for row in full if "echo" in row] == [str(n) for n in range(30)]


def test_text_after_a_word_wider_than_the_screen_is_shown() -> None:
    row = line(f"/{'x' * 70}: 1 session")

    assert "".join(plain_text([part]) for part in wrap_rows(row, 60)).endswith(
        ": 1 session"
    )
