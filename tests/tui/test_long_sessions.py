"""A long session: its end is shown first, and frames leave room for keys."""

from msgspec.structs import replace

from refold.client.types import Frame
from refold.journal.events.kinds import Entry
from refold.tui.foreground import FramePacer
from refold.tui.messages import Facts, FactsChanged, Key, Loaded, News, Resized, RowsPrinted
from refold.tui.model import Model
from refold.tui.transcript import Anchor
from refold.tui.update import update
from refold.tui.view import view
from refold.views.screen.screen import screen_of
from refold.views.styled import line
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

        assert max(sum(at <= frame < at + 1 for frame in frames) for at in frames) <= 31
