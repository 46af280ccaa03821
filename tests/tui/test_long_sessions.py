"""A long session: its end is shown first, and frames leave room for keys."""

import anyio
import pytest
from msgspec.structs import replace

from refold.client.types import Frame
from refold.journal.events.kinds import Entry
from refold.tui.foreground import FramePacer
from refold.tui.layout_queue import LayoutQueue
from refold.tui.messages import Facts, FactsChanged, Key, Loaded, News, Resized, RowsPrinted
from refold.tui.model import Model
from refold.tui.transcript import Anchor, Item, Memo, Transcript, with_items
from refold.tui.update import update
from refold.tui.view import view
from refold.values.growing import Growing
from refold.views.screen.blocks import AnswerBlock, MessageBlock, StreamingBlock
from refold.views.screen.screen import screen_of
from refold.views.styled import Line, line, plain_text
from tests.tui.sessions import Story


def entries() -> list[Entry]:
    story = Story()
    for n in range(6):
        story.turn(f"question {n}", story.answer_events(f"answer {n}"))
    return [frame.item for frame in story.frames if isinstance(frame.item, Entry)]


def make_model() -> Model:
    model = Model()
    for message in (Resized(60, 12), FactsChanged(Facts("s", "a/m", directory="/w"))):
        model, _ = update(model, message)
    return model


def test_a_loaded_session_looks_the_same_as_one_that_was_watched_live() -> None:
    result = entries()

    loaded, _ = update(make_model(), Loaded(screen_of(result)))
    model, _ = update(
        make_model(), News(tuple(Frame(entry.seq, 0, entry) for entry in result))
    )

    assert loaded.screen == model.screen
    assert list(loaded.transcript.items) == list(model.transcript.items)
    assert view(loaded) == view(model)


def test_the_view_at_the_end_stays_when_earlier_entries_arrive() -> None:
    whole = screen_of(entries())
    end = replace(screen_of(entries()[-9:]), view=whole.view)
    model, _ = update(make_model(), Loaded(end))
    model, _ = update(model, RowsPrinted((line("a command has printed this"),)))
    model = replace(model, anchor=Anchor(1), selected=1, focus="transcript")
    rows = view(model).rows

    model, _ = update(model, Loaded(whole))

    more = len(whole.done) - len(end.done)
    assert more > 0
    assert (model.anchor, model.selected) == (Anchor(1 + more), 1 + more)
    assert (
        view(model).rows[1:] == rows[1:]
    )  # the first may be set off from one above by now
    top, _ = update(model, Key("ctrl+home"))
    assert "question 0" in str(view(top).rows[0])


def test_frames_after_a_key_are_painted_at_once_and_others_20_times_a_second() -> None:
    pace = FramePacer()
    pace.note_frame(100.0)

    assert pace.wait(100.01, keyed=True) == 0
    assert round(pace.wait(100.01, keyed=False), 3) == 0.04


def test_no_more_than_thirty_frames_are_painted_in_a_second() -> None:
    for news_too in (False, True):
        pace, now, frames = FramePacer(), 50.0, list[float]()
        while now < 60:
            if (wait := pace.wait(now, keyed=not news_too or len(frames) % 2 == 0)) > 0:
                now += wait + 1e-6
                continue
            frames.append(now)
            pace.note_frame(now)
            now += 0.001

        assert (
            max(sum(second <= frame < second + 1 for frame in frames) for second in frames)
            <= 31
        )


def make_long_answer() -> str:
    part = "## Part\n\nSome *text* of `code`.\n\n```python\nx = 1\n```\n\n- one\n- two\n\n"
    return part * 300 + "The end."


def make_transcript(*items: Item, queue: LayoutQueue | None = None) -> Transcript:
    return with_items(Transcript(memo=Memo(queue)), items)


def make_answer(text: str) -> AnswerBlock:
    return AnswerBlock(seq=1, at=0.0, text=text)


async def lay_out_all(queue: LayoutQueue, jobs: int = 1) -> None:
    """Lay out what was requested, as the runtime of the screen does."""
    ended = list[None]()
    async with anyio.create_task_group() as group:

        def note_end() -> None:
            ended.append(None)
            if len(ended) == jobs:
                group.cancel_scope.cancel()

        group.start_soon(queue.run, note_end)


@pytest.mark.anyio
async def test_the_end_of_a_large_answer_is_shown_until_a_thread_has_laid_it_out() -> None:
    answer, queue = make_answer(make_long_answer()), LayoutQueue()
    transcript = make_transcript(answer, queue=queue)

    at_first = transcript.rows(0, 60)
    await lay_out_all(queue)

    whole = make_transcript(answer).rows(0, 60)
    assert len(at_first) < len(whole) / 4
    assert plain_text(at_first[:1]).endswith("characters above …")
    assert at_first[-20:] == whole[-20:]
    assert transcript.rows(0, 60) == whole


@pytest.mark.anyio
async def test_rows_that_were_laid_out_for_another_width_are_not_shown() -> None:
    answer, queue = make_answer(make_long_answer()), LayoutQueue()
    transcript = make_transcript(answer, queue=queue)

    transcript.rows(0, 60)
    transcript.rows(0, 40)
    await lay_out_all(queue, jobs=2)

    assert transcript.rows(0, 40) == make_transcript(answer).rows(0, 40)


@pytest.mark.anyio
async def test_a_large_streaming_text_is_laid_out_by_a_thread_and_then_continues() -> None:
    text, queue = Growing(make_long_answer()), LayoutQueue()
    memo = Memo(queue)

    def rows(text: Growing) -> list[Line]:
        coming = (StreamingBlock(kind="words", text=text),)
        return Transcript(coming=coming, memo=memo).rows(0, 60)

    at_first = rows(text)
    await lay_out_all(queue)

    assert at_first == []
    assert rows(text.plus(" More.")) == make_transcript(
        make_answer(f"{make_long_answer()} More.")
    ).rows(0, 60)


def test_small_answers_and_folded_messages_are_laid_out_at_once() -> None:
    message = MessageBlock(seq=1, at=0.0, words=make_long_answer())
    items = (message, make_answer("Short."))

    deferring = make_transcript(*items, queue=LayoutQueue())

    assert deferring.rows(0, 60) == make_transcript(*items).rows(0, 60)
    assert deferring.rows(1, 60) == make_transcript(*items).rows(1, 60)
