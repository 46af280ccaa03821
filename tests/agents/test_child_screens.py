"""A session with subagents as watchers see it: from the start, joining late, and again."""

import io
from typing import Any

import anyio
import pytest

from refold.console.capabilities import TerminalCapabilities
from refold.console.printer import Printer
from refold.journal.events.kinds import Entry, Frame
from refold.session.hub import Hub
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.testing.providers import ScriptedConversations
from refold.values.live import Live
from refold.views.screen.screen import Screen, apply_frame, screen_of
from refold.views.screen.transcript import transcript
from tests.agents.families import Tree, task_call, tool_call

SYNC = {
    "Go": [[task_call("Work", "worker"), task_call("Also", "worker")], "Done."],
    "Work": [[tool_call("weather", city="Oslo")], "Rain."],
    "Also": ["Yes."],
}
DEEP = {
    "Go": [[task_call("Middle", "worker")], "Done."],
    "Middle": [[task_call("Work", "worker")], "Passed on."],
    "Work": [[tool_call("weather", city="Oslo")], "Rain."],
}
BESIDE = {
    "Go": [[task_call("Work", "worker", background=True)], "I wait.", "Done."],
    "Work": [[tool_call("weather", city="Oslo")], "Rain."],
}
Seen = tuple[list[Entry], list[Entry | Live]]


async def watch_tree(tree: Tree) -> Seen:
    """Return the journal when the watcher joined, and the frames it received from then on."""
    session = await tree.open_session()
    before, watch = tree.entries("root"), session.hub.watch()
    if (
        not session.view.conversation.user_messages
        and not session.view.conversation.undelivered
    ):
        await session.inbox.say("Go.")
    await session.run_turns()
    watch.close()
    return before, [frame.item async for frame in watch.frames()]


async def split_frames(
    news: list[Entry | Live], join: int
) -> tuple[list[Frame], list[Frame]]:
    """Return the frames of who watched from the start, and of who joined there."""
    hub = Hub()
    first, late = hub.watch(), None
    for n, result in enumerate(news):
        if n == join:
            late = hub.watch()
        if isinstance(result, Entry):
            hub.publish(result)
        else:
            hub.publish_live(result)
    late = late or hub.watch()
    hub.close()
    return [f async for f in first.frames()], [f async for f in late.frames()]


def apply_frames(frames: list[Frame], start: Screen) -> Screen:
    for frame in frames:
        start = apply_frame(start, frame)
    return start


@pytest.mark.parametrize("scripts", [SYNC, DEEP, BESIDE], ids=["sync", "deep", "beside"])
def test_a_watcher_that_joins_late_sees_the_same_subagents_as_one_from_the_start(
    scripts: Any,
) -> None:
    before, news = anyio.run(watch_tree, Tree(ScriptedConversations(scripts)))
    start = screen_of(before)
    for join in range(0, len(news) + 1, 7):
        first, late = anyio.run(split_frames, news, join)
        known = screen_of((e for e in news[:join] if isinstance(e, Entry)), start)

        assert apply_frames(late, known) == apply_frames(first, start)
        assert (
            apply_frames(first[:join], start).moved
            == apply_frames(late[: len(late) - len(news) + join], known).moved
        )


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scripts", [SYNC, BESIDE], ids=["sync", "beside"])
def test_after_a_crash_at_any_event_the_screen_matches_the_journal(
    scripts: Any, step: int
) -> None:
    whole = Tree(ScriptedConversations(scripts))
    anyio.run(watch_tree, whole)
    for cut in range(step, len(whole.log), step):
        tree = whole.after(cut, ScriptedConversations(scripts))

        before, news = anyio.run(watch_tree, tree)

        frames, _ = anyio.run(split_frames, news, 0)
        assert apply_frames(frames, screen_of(before)) == screen_of(tree.entries("root"))


def test_report_of_a_child_is_shown_under_its_name_without_tags() -> None:
    tree = Tree(ScriptedConversations(BESIDE))
    before, news = anyio.run(watch_tree, tree)
    frames, _ = anyio.run(split_frames, news, 0)
    out = io.StringIO()
    showing = TranscriptPrinter(Printer(out, TerminalCapabilities()), lambda: 0.0)

    showing.begin(screen_of(before).view)
    for frame in frames:
        showing.show(frame)

    result = transcript(screen_of(tree.entries("root")))
    for text in (out.getvalue(), result):
        assert "child-1 (worker) begins: Work" in text
        assert "child-1 reports:\n  Rain." in text
        assert "child-1 (worker) is done · " in text
        assert "<child" not in text
        assert "Done." in text.split("child-1 reports:")[1]
