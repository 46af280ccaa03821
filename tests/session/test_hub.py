"""The hub: all watchers see the same, in the same order, late or slow."""

from itertools import groupby, pairwise

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.journal.events.kinds import (
    Ended,
    Entry,
    Event,
    Frame,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Said,
    Stopped,
    TurnEnded,
)
from refold.session.hub import Hub, Subscription
from refold.values.live import (
    CallComing,
    ChildMoved,
    Live,
    PortsChanged,
    Progress,
    TextCame,
    ThinkingCame,
)
from refold.values.messages import Message, Text


def read_frames(watch: Subscription) -> list[Frame]:
    """Everything a watcher gets, once it is closed."""

    async def main() -> list[Frame]:
        return [frame async for frame in watch.frames()]

    watch.close()
    return anyio.run(main)


def collect_texts(frames: list[Frame]) -> dict[str, str]:
    """Return what stands on a screen of what is still being said."""
    texts_by_kind: dict[str, str] = {}
    for frame in frames:
        match frame.item:
            case TextCame(text):
                texts_by_kind["text"] = texts_by_kind.get("text", "") + text
            case ThinkingCame(text):
                texts_by_kind["thinking"] = texts_by_kind.get("thinking", "") + text
            case Progress(call, text):
                texts_by_kind[call] = texts_by_kind.get(call, "") + text
            case Entry(event=ModelAnswered() | ModelFailed() | Stopped()):
                texts_by_kind = {
                    k: v for k, v in texts_by_kind.items() if k not in ("text", "thinking")
                }
            case Entry(event=Ended(call_id=call)):
                texts_by_kind.pop(call, None)
            case Entry(event=TurnEnded()):
                texts_by_kind = {}
            case _:
                pass
    return texts_by_kind


CALLS = st.sampled_from(("call-0", "call-1", "call-2"))
EVENTS = st.one_of(
    st.just(Said("x")),
    st.just(ModelAnswered(Message("assistant", (Text("x"),)))),
    st.just(ModelFailed("x")),
    st.just(Stopped("x")),
    st.just(TurnEnded("answered")),
    st.builds(Ended, CALLS, st.just("done"), st.just("x")),
)
LIVE: st.SearchStrategy[Live] = st.one_of(
    st.builds(TextCame, st.sampled_from("ab")),
    st.builds(ThinkingCame, st.sampled_from("cd")),
    st.builds(Progress, CALLS, st.sampled_from("ef")),
    st.just(CallComing("bash")),
)
NEWS = st.lists(st.one_of(EVENTS, LIVE), max_size=30)


def send(hub: Hub, news: object, seq: int) -> int:
    if isinstance(news, TextCame | ThinkingCame | Progress | CallComing):
        hub.publish_live(news)
        return seq
    hub.publish(Entry(seq + 1, news))  # pyright: ignore[reportArgumentType]
    return seq + 1


@given(NEWS, st.integers(0, 30))
def test_a_watcher_that_joins_late_sees_the_same_frames_as_an_early_one(
    news: list[object], late: int
) -> None:
    hub = Hub()
    first, seq, second = hub.watch(), 0, None
    for n, result in enumerate(news):
        if n == late:
            second = hub.watch()
        seq = send(hub, result, seq)
    second = second or hub.watch()

    assert collect_texts(read_frames(second)) == collect_texts(read_frames(first))


@given(NEWS)
def test_merged_frames_have_the_same_content_in_fewer_frames(news: list[object]) -> None:
    async def collect_merged(watch: Subscription) -> list[Frame]:
        return [frame async for frame in watch.merge_frames()]

    hub, seq = Hub(), 0
    one, all_ = hub.watch(), hub.watch()
    for item in news:
        seq = send(hub, item, seq)
    all_.close()

    rows = [
        (speaker(frame), text_of(frame), frame.seq, frame.n)
        for frame in anyio.run(collect_merged, all_)
    ]

    assert rows == [
        (who, "".join(map(text_of, frames)), frames[-1].seq, frames[-1].n)
        for who, group in groupby(read_frames(one), speaker)
        if (frames := list(group))
    ]


def speaker(frame: Frame) -> object:
    match frame.item:
        case TextCame() | ThinkingCame() as item:
            return type(item)
        case Progress(call):
            return call
        case item:
            return item, frame.n


def text_of(frame: Frame) -> str:
    match frame.item:
        case TextCame(text) | ThinkingCame(text) | Progress(_, text):
            return text
        case _:
            return ""


@given(NEWS, st.lists(st.integers(0, 30), max_size=3))
def test_frames_come_in_order_and_no_event_is_left_out(
    news: list[object], joins: list[int]
) -> None:
    hub = Hub()
    watches, seq = [(0, hub.watch())], 0
    for n, result in enumerate(news):
        watches += [(seq, hub.watch()) for join in joins if join == n]
        seq = send(hub, result, seq)

    for joined, watch in watches:
        frames = read_frames(watch)
        numbers = [(frame.seq, frame.n) for frame in frames]
        events = [frame.seq for frame in frames if isinstance(frame.item, Entry)]
        assert all(one < two for one, two in pairwise(numbers))
        assert events == list(range(joined + 1, seq + 1))


def test_late_watcher_gets_missed_progress_before_new_frames() -> None:
    hub = Hub()
    for call in ("call-0", "call-1"):
        hub.publish_live(Progress(call, "half way"))
    hub.publish(Entry(1, Said("x")))
    late = hub.watch()
    hub.publish_live(TextCame("and on"))

    assert [(frame.seq, frame.n) for frame in read_frames(late)] == [(1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize(
    "end",
    [
        ModelAnswered(Message("assistant", ())), ModelFailed("gone"), Stopped("enough"),
        TurnEnded("failed"),
    ],
)  # fmt: skip
def test_a_watcher_after_an_answer_gets_no_deltas_of_that_answer(end: Event) -> None:
    hub = Hub()
    hub.publish_live(ThinkingCame("Hm"))
    hub.publish_live(TextCame("So"))
    hub.publish(Entry(1, end))

    assert read_frames(hub.watch()) == []


def test_a_late_watcher_gets_the_latest_progress_of_each_subagent_in_order() -> None:
    hub = Hub()
    for node, steps in (("child-1", 1), ("child-2", 1), ("child-1", 2)):
        hub.publish_live(ChildMoved(node, "explore", "", steps, 0, None, ""))

    items = [frame.item for frame in read_frames(hub.watch())]

    assert [(m.node, m.steps) for m in items if isinstance(m, ChildMoved)] == [
        ("child-2", 1),
        ("child-1", 2),
    ]


def test_a_late_watcher_gets_the_newest_ports_also_after_the_turn() -> None:
    hub = Hub()
    hub.publish_live(PortsChanged((8000,)))
    hub.publish_live(PortsChanged((8000, 9000)))
    hub.publish(Entry(1, TurnEnded("answered")))

    assert [frame.item for frame in read_frames(hub.watch())] == [
        PortsChanged((8000, 9000))
    ]


def test_a_slow_watcher_is_cut_off_and_other_watchers_are_not() -> None:
    hub = Hub()
    slow, quick = hub.watch(limit=3), hub.watch()

    for seq in range(1, 6):
        hub.publish(Entry(seq, Said("x")))

    assert (slow.cut_off, quick.cut_off) == (True, False)
    assert [frame.seq for frame in read_frames(slow)] == [1, 2, 3]
    assert [frame.seq for frame in read_frames(quick)] == [1, 2, 3, 4, 5]


def test_a_watcher_above_its_limit_of_deltas_misses_deltas_of_the_current_answer_only() -> (
    None
):
    async def main() -> list[object]:
        hub, frame_items = Hub(), list[object]()
        watch = hub.watch(live=3)
        frames = watch.frames()
        hub.publish(Entry(1, ModelAsked()))
        for piece in "abc":
            hub.publish_live(TextCame(piece))
        hub.publish(Entry(2, Said("x")))
        while len(frame_items) < 4:
            frame_items.append((await anext(frames)).item)
        hub.publish_live(TextCame("d"))
        hub.publish(Entry(3, ModelAsked()))
        hub.publish_live(TextCame("e"))
        watch.close()
        return [*frame_items, *[frame.item async for frame in frames]]

    assert anyio.run(main) == [
        Entry(1, ModelAsked()), TextCame("a"), TextCame("b"), Entry(2, Said("x")),
        Entry(3, ModelAsked()), TextCame("e"),
    ]  # fmt: skip


def test_frames_a_watcher_filters_out_do_not_count_toward_its_limit() -> None:
    hub = Hub()
    hub.publish_live(TextCame("a"))
    watch = hub.watch(limit=2, kinds=(ModelAsked, CallComing))
    for seq in range(1, 6):
        hub.publish(Entry(seq, Said("x")))
    hub.publish(Entry(6, ModelAsked()))
    hub.publish_live(TextCame("b"))
    hub.publish_live(CallComing("bash"))

    assert read_frames(watch) == [
        Frame(6, 0, Entry(6, ModelAsked())),
        Frame(6, 2, CallComing("bash")),
    ]
    assert not watch.cut_off


def test_a_watcher_that_keeps_up_is_never_cut_off() -> None:
    async def main() -> list[int]:
        hub = Hub()
        watch, seqs = hub.watch(limit=2), list[int]()
        frames = watch.frames()
        for seq in range(1, 9):
            hub.publish(Entry(seq, Said("x")))
            seqs.append((await anext(frames)).seq)
        await frames.aclose()
        return seqs

    assert anyio.run(main) == list(range(1, 9))


def test_a_closed_watcher_gets_no_frames_and_is_not_cut_off() -> None:
    async def main() -> tuple[bool, list[int]]:
        hub = Hub()
        watch, other = hub.watch(limit=1), hub.watch()
        frames = watch.frames()
        hub.publish(Entry(1, Said("x")))
        await anext(frames)
        await frames.aclose()
        for seq in (2, 3):
            hub.publish(Entry(seq, Said("x")))
        hub.close()
        return watch.cut_off, [frame.seq async for frame in other.frames()]

    assert anyio.run(main) == (False, [1, 2, 3])


def test_old_output_of_a_call_is_dropped_for_late_watchers() -> None:
    hub = Hub()
    for n in range(5_000):
        hub.publish_live(Progress("call-0", f"{n}\n"))

    (frame,) = read_frames(hub.watch())

    assert isinstance(frame.item, Progress)
    lines = frame.item.text.splitlines()
    assert lines == [str(n) for n in range(5_000 - len(lines), 5_000)]
    assert 1_000 <= len(lines) <= 2_000
