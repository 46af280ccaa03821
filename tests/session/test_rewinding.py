"""Rewinding the conversation, the files or both; refusals, and undo."""

import subprocess
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw

from refold.errors import BadInput
from refold.journal.events.kinds import (
    Checkpointed,
    Delivered,
    Ended,
    Entry,
    Event,
    FilesRestored,
    ModelAnswered,
    ModelAsked,
    Rewound,
    Said,
    SessionStarted,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import fold
from refold.journal.store.port import MemoryStore
from refold.place.checkpoints import Checkpoints
from refold.place.port import FileChange
from refold.session.recorder import Recorder
from refold.session.rewind import plan_rewind, preview, rewind, rewind_points
from refold.session.session import Session
from refold.testing.providers import ScriptedProvider
from refold.values.live import Waiting
from refold.values.messages import Message, Text, ToolCall
from refold.views.rewind_points import (
    RewindPlan,
    RewindPreview,
    point_lines,
    preview_lines,
    report_text,
)
from refold.views.styled import plain_text
from tests.engine.house import world
from tests.place.repositories import checkpoints, files, git, repository


class Agent:
    """A session in `root` that acts as a test orders, and records what an engine would
    record.
    """

    def __init__(self, root: Path, session: Session, checkpoints: Checkpoints) -> None:
        self.root, self.session, self.kept = root, session, checkpoints
        self.said = list[int]()

    async def turn(self, text: str, function: Callable[[], object] | None = None) -> None:
        """The user sends a message, and a call does `function`. The event of the message is
        `said`."""
        record, id_ = self.session.record, f"c{len(self.said)}"
        await record(Said(text), author="person")
        self.said.append(record.view.seq)
        call = ToolCall(id_, "bash", Raw(b"{}"))
        await record(TurnStarted(self.said[-1]), Delivered((self.said[-1],)), ModelAsked())
        await record(ModelAnswered(Message("assistant", (call,)), stop="calls"))
        await record(Started(id_))
        if function:
            await self.take()
            function()
        await record(Ended(id_, "done", "done"), ModelAsked())
        await record(ModelAnswered(Message("assistant", (Text(f"did {text}"),))))
        if function:
            await self.take()
        await record(TurnEnded("answered"))

    async def take(self) -> None:
        self.kept.note_change()
        result = await self.kept.take()
        saved = self.session.view.checkpoints
        if result.trees != saved.trees or saved.disturbed:
            await self.session.record(Checkpointed(result.trees, result.left_out))

    def talk(self) -> str:
        return " ".join(
            message.message.text
            for message in self.session.view.conversation.messages
            if message.message.text
        )

    def write_later(self, name: str, text: str) -> Callable[[], object]:
        return lambda: (self.root / name).write_text(text)

    def now(self) -> Mapping[str, object]:
        return {name: file[1] for name, file in files(self.root).items()}  # type: ignore[index]


Story = Callable[[Agent], Coroutine[Any, Any, None]]


@pytest.fixture
def play_story(tmp_path: Path) -> Callable[[Story], None]:
    """Run a story in an empty workspace."""

    async def play(story: Story) -> None:
        root = tmp_path / "work"
        root.mkdir()
        scripted_world = world(ScriptedProvider([]))
        record = Recorder(MemoryStore(), clock=lambda: 0.0)
        async with await Session.open(
            record, lambda _: scripted_world, directory=str(root)
        ) as session:
            await story(Agent(root, session, checkpoints(root)))

    return lambda story: anyio.run(play, story)


async def run_three_turns(agent: Agent) -> None:
    await agent.turn("make a", agent.write_later("a", "one"))
    await agent.turn("only look")
    await agent.turn(
        "change a, make b",
        lambda: (agent.write_later("a", "two")(), agent.write_later("b", "new")()),
    )


def test_rewind_restores_files_and_conversation_before_the_message(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)

        report = await rewind(agent.session, agent.kept, agent.said[2], "both")

        assert (agent.now(), report.files) == ({"a": b"one"}, 2)
        assert agent.talk() == "make a did make a only look did only look"

    play_story(run_story)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_rewind_to_each_message_restores_the_files_of_that_time(
    play_story: Callable[[Story], None], which: int
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)

        await rewind(agent.session, agent.kept, agent.said[which], "files")

        assert agent.now() == [{}, {"a": b"one"}, {"a": b"one"}][which]
        assert "change a" in agent.talk()

    play_story(run_story)


def test_rewind_keeps_changes_made_before_the_message(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await agent.turn("make a", agent.write_later("a", "one"))
        agent.write_later("mine", "mine")()
        await agent.turn("change a", agent.write_later("a", "two"))

        await rewind(agent.session, agent.kept, agent.said[1], "both")

        assert agent.now() == {"a": b"one", "mine": b"mine"}

    play_story(run_story)


def test_rewind_detects_changes_of_other_programs_after_a_read_only_turn(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await agent.turn("make a", agent.write_later("a", "one"))
        await agent.turn("only look")
        agent.write_later("a", "mine")()

        with pytest.raises(BadInput, match="another program changed these files since"):
            await rewind(agent.session, agent.kept, agent.said[0], "both")

    play_story(run_story)


def test_rewind_restores_the_right_files_after_a_call_without_changes(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await agent.turn("make a", agent.write_later("a", "one"))
        await agent.turn("write the same", agent.write_later("a", "one"))
        await agent.turn("change it", agent.write_later("a", "two"))

        await rewind(agent.session, agent.kept, agent.said[2], "files")

        assert agent.now() == {"a": b"one"}

    play_story(run_story)


@pytest.mark.parametrize("text", ["both", "files", "conversation"])
def test_a_rewind_and_its_undo_can_each_be_undone(
    play_story: Callable[[Story], None], text: Any
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        at_the_end = agent.now(), agent.talk()

        first = await rewind(agent.session, agent.kept, agent.said[1], text)
        gone_back = agent.now(), agent.talk()
        undone = await rewind(agent.session, agent.kept, first.undo, text)
        undo = agent.now(), agent.talk()
        await rewind(agent.session, agent.kept, undone.undo, text)

        assert (undo, (agent.now(), agent.talk())) == (at_the_end, gone_back)
        assert gone_back != at_the_end

    play_story(run_story)


def test_rewind_points_stay_correct_after_a_rewind_and_more_turns(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        await rewind(agent.session, agent.kept, agent.said[2], "both")
        await agent.turn("make c", agent.write_later("c", "c"))

        await rewind(agent.session, agent.kept, agent.said[3], "both")
        before_c = agent.now()
        await rewind(agent.session, agent.kept, agent.said[0], "both")

        assert (before_c, agent.now(), agent.talk()) == ({"a": b"one"}, {}, "")

    play_story(run_story)


def test_rewind_refuses_to_overwrite_changes_of_other_programs(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        agent.write_later("a", "mine")()
        agent.write_later("notes", "mine")()
        seq = agent.session.view.seq

        with pytest.raises(
            BadInput, match=r"another program changed these files since: .*/a, .*/notes\."
        ):
            await rewind(agent.session, agent.kept, agent.said[2], "both")

        assert agent.now() == {"a": b"mine", "b": b"new", "notes": b"mine"}
        assert agent.session.view.seq == seq

    play_story(run_story)


def test_a_forced_rewind_overwrites_changes_of_others_and_can_be_undone(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        agent.write_later("a", "mine")()

        report = await rewind(
            agent.session, agent.kept, agent.said[2], "files", drift="overwrite"
        )
        back = agent.now()
        await rewind(agent.session, agent.kept, report.undo, "files")

        assert (back, agent.now()) == ({"a": b"one"}, {"a": b"mine", "b": b"new"})

    play_story(run_story)


def test_a_rewind_that_keeps_changes_of_others_restores_the_other_files(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        agent.write_later("a", "mine")()

        report = await rewind(
            agent.session, agent.kept, agent.said[2], "files", drift="keep"
        )
        restored = agent.now()
        await rewind(agent.session, agent.kept, report.undo, "files")

        assert (restored, agent.now()) == ({"a": b"mine"}, {"a": b"mine", "b": b"new"})

    play_story(run_story)


def test_a_rewind_that_keeps_all_changes_of_others_rewinds_the_conversation_alone(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        agent.write_later("a", "mine")()
        agent.write_later("b", "mine")()

        report = await rewind(
            agent.session, agent.kept, agent.said[2], "both", drift="keep"
        )

        assert (report.files, agent.now()) == (0, {"a": b"mine", "b": b"mine"})
        assert report.preview.plan.mark

    play_story(run_story)


def test_rewind_accepts_files_that_another_program_already_restored(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        agent.write_later("a", "one")()

        await rewind(agent.session, agent.kept, agent.said[2], "files")

        assert agent.now() == {"a": b"one"}

    play_story(run_story)


def test_rewind_is_refused_while_a_turn_runs(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        await agent.session.record(TurnStarted(1))

        with pytest.raises(BadInput, match="is running: end it"):
            await rewind(agent.session, agent.kept, agent.said[0], "both")

        assert agent.now() == {"a": b"two", "b": b"new"}

    play_story(run_story)


def test_a_rewind_preview_lists_the_changes_and_makes_none(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        agent.write_later("b", "mine")()
        seq, then = agent.session.view.seq, agent.now()

        result = await preview(agent.session.view, agent.kept, agent.said[2], "both")

        assert (agent.session.view.seq, agent.now()) == (seq, then)
        assert plain_text(preview_lines(result, str(agent.root), 80)) == (
            f"This rewinds the conversation to before event {agent.said[2]}.\n"
            "  a  modified    +1 -1 +-\n"
            "  b  deleted     +0 -1 -\n"
            "2 files change, +1 -2 lines\n"
            "Changed outside refold since: b"
        )

    play_story(run_story)


def test_a_change_of_one_line_has_a_bar_beside_a_very_large_change() -> None:
    one, many = (
        FileChange(name, "changed", added, 0) for name, added in (("a", 1), ("b", 50_000))
    )
    plan = RewindPlan(9, "files")

    text = plain_text(preview_lines(RewindPreview(plan, (one, many)), "/", 80))

    assert "+1 -0 +\n" in text
    assert f"+50000 -0 {'+' * 12}\n" in text


def test_rewind_points_are_listed_with_their_changed_files_and_status(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        await rewind(agent.session, agent.kept, agent.said[2], "both")
        await agent.turn("make\x1b[31m c", agent.write_later("c", "c"))

        points = rewind_points(agent.session.view, agent.kept)
        parts = plain_text(point_lines(points, 80)).split("\n")

        assert [(s.kind, s.files, s.in_conversation) for s in points] == [
            ("said", 1, True),
            ("said", 0, True),
            ("said", 2, False),
            ("rewound", 2, True),
            ("said", 1, True),
        ]
        assert parts[0].endswith("make a  1 file changed")
        assert parts[2].endswith("change a, make b  2 files changed  rewound")
        assert parts[4].endswith(r"make\x1b[31m c  1 file changed")

    play_story(run_story)


def test_undoing_a_rewind_restores_all_messages(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        report = await rewind(agent.session, agent.kept, agent.said[0], "both")
        await rewind(agent.session, agent.kept, report.undo, "both")

        assert [
            s.in_conversation
            for s in rewind_points(agent.session.view, None)
            if s.kind == "said"
        ] == [True] * 3

    play_story(run_story)


def test_the_rewind_report_names_the_command_that_undoes_it(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)

        report = await rewind(agent.session, agent.kept, agent.said[2], "both")

        assert report_text(report, f"/rewind {report.undo}") == (
            f"The conversation was rewound, 2 files restored. To undo this: /rewind {report.undo}"
        )

    play_story(run_story)


def test_rewind_leaves_the_git_status_of_the_user_unchanged(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        repository(agent.root)
        agent.write_later("a", "zero")()
        git(agent.root, "add", "a")
        before = git(agent.root, "--no-optional-locks", "status", "--porcelain")
        await run_three_turns(agent)

        await rewind(agent.session, agent.kept, agent.said[0], "both")

        assert git(agent.root, "--no-optional-locks", "status", "--porcelain") == before
        assert agent.now() == {"a": b"zero"}

    play_story(run_story)


@pytest.mark.parametrize("seq", [0, -1, 99])
def test_rewind_to_a_missing_event_is_refused(seq: int) -> None:
    view = fold_events(SessionStarted("/w"), Said("hello"))

    with pytest.raises(
        BadInput, match=f"there is no event {seq}: this session has 2 events"
    ):
        plan_rewind(view, seq, "both")


def test_rewind_to_before_the_first_message_is_refused() -> None:
    with pytest.raises(BadInput, match="there was no message yet at event 1"):
        plan_rewind(fold_events(SessionStarted("/w"), Said("hello")), 1, "conversation")


def test_without_checkpoints_only_the_conversation_can_be_rewound() -> None:
    view = fold_events(SessionStarted("/w"), Said("hello"))

    with pytest.raises(BadInput, match="this session has no checkpoint of files"):
        plan_rewind(view, 2, "files")
    assert plan_rewind(view, 2, "both").mark == 2


def test_files_of_a_crashed_call_do_not_count_as_changed_by_others(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await agent.turn("make a", agent.write_later("a", "one"))
        record = agent.session.record
        await record(Started("c9"))
        agent.write_later("a", "half")()  # and then it crashed
        await record(Ended("c9", "unknown", "nobody knows"))

        await rewind(agent.session, agent.kept, agent.said[0], "files")

        assert agent.now() == {}

    play_story(run_story)


def test_rewind_records_checkpoints_before_and_after(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        seq = agent.session.view.seq
        news = list[Event]()
        agent.session.hub.subscribe(lambda entry: news.append(entry.event))

        await rewind(agent.session, agent.kept, agent.said[1], "both")

        view = agent.session.view
        one = view.checkpoints.at(agent.said[1])
        assert one is not None
        assert [type(event) for event in news] == [
            Checkpointed,
            Rewound,
            FilesRestored,
            Checkpointed,
        ]
        assert news[2] == FilesRestored(one.seq, seq + 1, 2)
        assert view.checkpoints.trees == one.trees

    play_story(run_story)


def test_an_interrupted_rewind_can_be_completed_and_undone(
    play_story: Callable[[Story], None],
) -> None:
    names = [f"{number:03}" for number in range(400)]

    async def run_story(agent: Agent) -> None:
        session, root = agent.session, agent.root
        await agent.turn("make", lambda: [(root / name).write_text(name) for name in names])
        await agent.turn("remove", lambda: [(root / name).unlink() for name in names])
        seq, watch = session.view.seq, session.hub.watch(kinds=(Waiting,))

        async with anyio.create_task_group() as group:
            group.start_soon(rewind, session, agent.kept, agent.said[1], "files")
            while not any(root.iterdir()):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

        partly = len(agent.now())
        completed = await rewind(session, agent.kept, agent.said[1], "files")
        whole = len(agent.now())
        await rewind(session, agent.kept, seq + 1, "files")
        async with aclosing(watch.frames()) as frames:
            news = (await anext(frames)).item
        way = f"rewind to event {agent.said[1]} again to complete it, or to {seq + 1}"
        assert news == Waiting(0, f"the rewind was interrupted: {way} to undo it")
        assert (completed.files, whole) == (len(names) - partly, len(names))
        assert (0 < partly < len(names), agent.now()) == (True, {})

    play_story(run_story)


def test_rewind_of_one_file_leaves_the_others_as_they_are(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        only = [str(agent.root / "a")]
        seq = agent.session.view.seq
        before = agent.session.view.checkpoints.at(agent.said[2])
        assert before is not None

        report = await rewind(agent.session, agent.kept, agent.said[2], "files", paths=only)

        assert (agent.now(), report.files) == ({"a": b"one", "b": b"new"}, 1)
        entries = await agent.session.record.entries(seq)
        assert FilesRestored(before.seq, seq + 1, 1, tuple(only)) in [
            e.event for e in entries
        ]
        await rewind(agent.session, agent.kept, report.undo, "files")
        assert agent.now() == {"a": b"two", "b": b"new"}

    play_story(run_story)


def test_rewind_of_one_file_asks_only_about_changes_to_that_file(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        agent.write_later("b", "by somebody else")()
        a, b = str(agent.root / "a"), str(agent.root / "b")

        with pytest.raises(BadInput, match="another program changed these files since"):
            await rewind(agent.session, agent.kept, agent.said[2], "files", paths=[b])
        await rewind(agent.session, agent.kept, agent.said[2], "files", paths=[a])
        with pytest.raises(BadInput, match="a is as it was before event"):
            await rewind(agent.session, agent.kept, agent.said[2], "files", paths=[a])

        assert agent.now() == {"a": b"one", "b": b"by somebody else"}

    play_story(run_story)


def test_rewind_of_a_new_nested_repository_alone_says_that_it_is_not_deleted(
    play_story: Callable[[Story], None],
) -> None:
    async def run_story(agent: Agent) -> None:
        await run_three_turns(agent)
        nested = agent.root / "nested"
        subprocess.run(["git", "init", "-q", str(nested)], check=True)
        (nested / "file").write_text("x")
        subprocess.run(["git", "-C", str(nested), "add", "."], check=True)

        for path in (f"{nested}/", str(nested), str(nested / "file")):
            with pytest.raises(BadInput, match="nested is a git repository that is new"):
                await rewind(
                    agent.session, agent.kept, agent.said[2], "files", drift="overwrite",
                    paths=[path],
                )  # fmt: skip

        assert (nested / "file").read_text() == "x"

    play_story(run_story)


def fold_events(*events: Event) -> Any:
    return fold(Entry(seq, event) for seq, event in enumerate(events, start=1))
