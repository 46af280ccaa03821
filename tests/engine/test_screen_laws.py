"""The screen of any session is the same when watched, joined late, cut off or folded."""

import io
from collections.abc import Iterator, Sequence
from itertools import pairwise

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.engine.answer_draft import Draft
from refold.errors import ProviderError
from refold.journal.events.kinds import (
    Delivered,
    Entry,
    Frame,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.store.port import MemoryStore
from refold.provider.port import CallDelta, Delta, Done, TextDelta, ThinkingDelta
from refold.session.hub import Hub
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.testing.providers import Reply
from refold.values.live import Live, Progress, TextCame
from refold.values.messages import Message, Text
from refold.views.escape import visible
from refold.views.screen.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    MessageBlock,
    NoticeBlock,
    ThinkingBlock,
    TurnEndBlock,
    message_rows,
    result_rows,
    turn_rows,
)
from refold.views.screen.screen import Screen, apply_frame, screen_of
from refold.views.screen.transcript import transcript
from refold.views.styled import plain_text
from tests.engine.house import entries, open_session
from tests.engine.test_compaction import world
from tests.engine.test_compaction_laws import LIVES, Life, Wild, run_step

UNHURRIED = [HealthCheck.too_slow]
PLAIN = TerminalCapabilities()


class Run(Struct, frozen=True):
    """One process: the journal at the time that it joined, and all frames that it received."""

    before: tuple[Entry, ...]
    frames: tuple[Frame, ...]


async def watch_runs(life: Life) -> list[Run]:
    """Return a session as a permanent watcher sees it; a crash ends a process."""
    store, model, runs = MemoryStore(), Wild(life.answers, life.summary), list[Run]()
    scripted_world = world(
        model, 12, life.shares, window=life.window, longest_result=life.window
    )  # type: ignore[arg-type]

    async def live() -> None:
        session = model.session = await open_session(store, scripted_world)
        before, watch = tuple(entries(store)), session.hub.watch()
        while steps:
            if steps[0].kind == "crash":
                steps[0] = replace(steps[0], kind="continue")
                break
            await run_step(steps.pop(0), session, model)
            await session.run_turns()
        watch.close()
        runs.append(Run(before, tuple([frame async for frame in watch.frames()])))

    steps = list(life.steps)
    while steps or not runs:
        await live()
        del store.lines[max(1, len(store.lines) - len(runs) % 3) :]
    return runs


def with_thought(answer: Reply | ProviderError, thought: str) -> Reply | ProviderError:
    return replace(answer, thinking=thought) if isinstance(answer, Reply) else answer


def with_thoughts(life: Life, thoughts: Sequence[str]) -> Life:
    answers = (
        with_thought(a, thoughts[n % len(thoughts)]) for n, a in enumerate(life.answers)
    )
    return replace(life, answers=tuple(answers))


THOUGHTS = some.lists(some.sampled_from(["", "Hm.\nSo.", "\n"]), min_size=1, max_size=3)
SEEN = some.builds(with_thoughts, LIVES, THOUGHTS)


def add_progress(run: Run) -> list[Entry | Live]:
    """Return the news of a run, and some that its calls print."""
    frame_items = list[Entry | Live]()
    for frame in run.frames:
        frame_items.append(frame.item)
        if isinstance(frame.item, Entry) and isinstance(frame.item.event, Started):
            id_ = frame.item.event.call_id
            frame_items += [Progress(id_, f"{n} of it\n") for n in range(frame.seq % 4)]
    return frame_items


def split_frames(run: Run, join: int) -> tuple[list[Frame], list[Frame]]:
    """Return what a watcher receives from the start, and one that joins at `join`."""

    async def collect_frames() -> tuple[list[Frame], list[Frame]]:
        hub = Hub()
        first, late = hub.watch(), None
        for n, news in enumerate(add_progress(run)):
            if n == join:
                late = hub.watch()
            if isinstance(news, Entry):
                hub.publish(news)
            else:
                hub.publish_live(news)
        late = late or hub.watch()
        hub.close()
        return [f async for f in first.frames()], [f async for f in late.frames()]

    return anyio.run(collect_frames)


def screen_at(run: Run, join: int) -> Screen:
    """Return the journal folded, as far as it went when a watcher joined at `join`."""
    so_far = (news for news in add_progress(run)[:join] if isinstance(news, Entry))
    return screen_of((*run.before, *so_far))


def apply_frames(frames: Sequence[Frame], start: Screen) -> Screen:
    for frame in frames:
        start = apply_frame(start, frame)
    return start


def without_tails(screen: Screen) -> list[Block]:
    return [replace(b, tail="") if isinstance(b, CallBlock) else b for b in screen.blocks]


@settings(deadline=None, max_examples=4, suppress_health_check=UNHURRIED)
@given(SEEN)
def test_watched_screen_matches_the_journal(life: Life) -> None:
    check_against_the_journal(life)


def check_against_the_journal(life: Life) -> None:
    for run in anyio.run(watch_runs, life):
        frames, _ = split_frames(run, 0)
        now = folded = screen_of(run.before)
        for frame in frames:
            now = apply_frame(now, frame)
            if isinstance(frame.item, Entry):
                folded = apply_frame(folded, frame)
                assert without_tails(now) == without_tails(folded)
        assert now == folded
        assert transcript(now) == transcript(folded)


@settings(deadline=None, max_examples=4, suppress_health_check=UNHURRIED)
@given(SEEN, some.floats(0, 1))
def test_client_that_joins_at_any_moment_gets_the_same_screen(
    life: Life, moment: float
) -> None:
    check_who_joins(life, moment)


def check_who_joins(life: Life, moment: float) -> None:
    for run in anyio.run(watch_runs, life):
        join = round(moment * len(add_progress(run)))

        first, late = split_frames(run, join)

        assert apply_frames(late, screen_at(run, join)) == apply_frames(
            first, screen_of(run.before)
        )


def print_frames(frames: Sequence[Frame], start: Screen) -> str:
    out = io.StringIO()
    showing = TranscriptPrinter(Printer(out, PLAIN), lambda: 0.0)
    showing.begin(start.view)
    for frame in frames:
        showing.show(frame)
    return out.getvalue()


@settings(deadline=None, max_examples=4, suppress_health_check=UNHURRIED)
@given(SEEN)
def test_streamed_run_is_printed_like_an_unstreamed_one(
    life: Life,
) -> None:
    check_pieces(life)


def check_pieces(life: Life) -> None:
    for run in anyio.run(watch_runs, life):
        frames, _ = split_frames(run, 0)
        start = screen_of(run.before)

        live = print_frames(frames, start)
        whole = print_frames([f for f in frames if isinstance(f.item, Entry)], start)

        assert without_thoughts(live) == without_thoughts(whole)
        assert_holds(live, apply_frames(frames, start), start)


def without_thoughts(out: str) -> list[str]:
    """Drop the thoughts of a failed answer: they are printed, but are not in the journal."""
    return [row for row in out.splitlines() if row and not row.startswith("∴")]


@settings(deadline=None, max_examples=4, suppress_health_check=UNHURRIED)
@given(SEEN, some.floats(0, 1))
def test_client_that_reconnects_at_any_moment_gets_all_later_events(
    life: Life, moment: float
) -> None:
    check_who_comes_back(life, moment)


def check_who_comes_back(life: Life, moment: float) -> None:
    for run in anyio.run(watch_runs, life):
        join = round(moment * len(add_progress(run)))
        start = screen_at(run, join)
        first, late = split_frames(run, join)

        before, rest = (
            print_frames(first[:join], screen_of(run.before)),
            print_frames(late, start),
        )

        assert_holds(before, start, screen_of(run.before))
        assert_holds(rest, apply_frames(late, start), start)


def assert_holds(out: str, screen: Screen, since: Screen) -> None:
    """Every block that is `done` since then stands in `out`, in their order.

    A message of the user is printed when it is sent, and `done` where the model got it, so
    messages have their order, and the other blocks theirs.
    """
    ends = {True: 0, False: 0}
    for block in screen.done[len(since.done) :]:
        is_message = isinstance(block, MessageBlock)
        for row in rows(block, screen.view.session.directory):
            start = ends[is_message]
            number = out.find(row, start)
            assert number >= 0, (row, out[start:])
            ends[is_message] = number + len(row)


def rows(block: Block, directory: str) -> Iterator[str]:
    match block:
        case MessageBlock():
            first, *others = message_rows(block, PLAIN.text_width())
            yield f"› {plain_text([first])}"
            yield from (
                plain_text([row]) for row in others if "more lines" not in plain_text([row])
            )
        case AnswerBlock(text=text):
            yield visible(text).strip()
        case ThinkingBlock(text=text):
            yield f"∴ {' '.join(visible(text).split())}"
        case NoticeBlock(line=line):
            yield plain_text([line])
        case CallBlock():
            for row in result_rows(block, 76, directory):
                # Advice about those may be shown, too.
                if "more lines" not in plain_text([row]):
                    yield plain_text([row])
        case TurnEndBlock():
            for row in turn_rows(block):
                yield plain_text([row])


SIGNED = ThinkingDelta("", "acme", Raw(b'"signed"'))
PIECES: some.SearchStrategy[Delta] = some.one_of(
    some.builds(TextDelta, some.sampled_from(["So ", "it is.", "\n\n", " ", "\x1b[2J"])),
    some.builds(ThinkingDelta, some.sampled_from(["Hm", "\n", "? "])),
    some.just(SIGNED),
    some.sampled_from([CallDelta(n, "{}", f"t{n}", "look") for n in range(3)]),
)


@given(some.lists(PIECES, min_size=1, max_size=12))
@example([TextDelta("So "), SIGNED, TextDelta("so ")])
@example(
    [ThinkingDelta("Hm"), TextDelta(" "), SIGNED, ThinkingDelta("? "), TextDelta("No.")]
)
@example(
    [
        TextDelta("So"),
        ThinkingDelta("Hm"),
        TextDelta("\n\nWell "),
        CallDelta(0, "{}", "t", "look"),
    ]
)
@example([TextDelta("it is."), SIGNED, TextDelta("\n\n"), SIGNED, TextDelta("So ")])
def test_streamed_answer_is_printed_like_a_complete_one_for_any_pieces(
    pieces: list[Delta],
) -> None:
    draft = Draft(0, "m", lambda model, usage: None)
    live = [news for piece in pieces if (news := draft.add(piece))]
    draft.add(Done())
    answer = draft.to_answer()
    if answer is None:
        return
    opening = (
        SessionStarted("/"),
        Said("Well?"),
        TurnStarted(2),
        Delivered((2,)),
        ModelAsked(),
    )
    start = screen_of(Entry(seq, event) for seq, event in enumerate(opening, start=1))
    frames = [Frame(5, n, news) for n, news in enumerate(live, start=1)]
    ending = [Frame(6, 0, Entry(6, answer))]
    if not answer.message.calls:
        ending.append(Frame(7, 0, Entry(7, TurnEnded("answered"))))

    came, whole = print_frames([*frames, *ending], start), print_frames(ending, start)

    assert apply_frames([*frames, *ending], start) == apply_frames(ending, start)
    if answer.message.text == draft.text:
        assert came.split() == whole.split()
    else:  # blanks alone between two thoughts were streamed, and are stored nowhere
        assert "".join(came.split()) == "".join(whole.split())
    assert all(one != other or not one for one, other in pairwise(came.splitlines()))


@pytest.mark.slow
@settings(deadline=None, max_examples=24, suppress_health_check=UNHURRIED)
@given(SEEN, some.floats(0, 1))
def test_screen_laws_hold_in_many_random_sessions(life: Life, moment: float) -> None:
    check_against_the_journal(life)
    check_who_joins(life, moment)
    check_pieces(life)
    check_who_comes_back(life, moment)


def test_text_masked_after_it_streamed_is_not_printed_twice() -> None:
    opening = (
        SessionStarted("/"),
        Said("Well?"),
        TurnStarted(2),
        Delivered((2,)),
        ModelAsked(),
    )
    start = screen_of(Entry(seq, event) for seq, event in enumerate(opening, start=1))
    answer = ModelAnswered(Message("assistant", (Text("The key is <secret>."),)))

    out = print_frames(
        [Frame(5, 1, TextCame("The key is hunter2.")), Frame(6, 0, Entry(6, answer))], start
    )

    assert out == "The key is hunter2.\n"
