"""Before the user is asked, the call runs on a copy: its diff, or its failure."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from refold.engine.world import World
from refold.errors import BadInput
from refold.journal.events.kinds import Answered, Ended, Event, Judged
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.place.files import DiskFiles
from refold.session.pending_requests import Permission, requests
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.apply_patch import apply_patch
from refold.tools.contract import Reply, tool
from refold.tools.edit import edit_file, write_file
from refold.tools.read import read_file
from refold.values.tools import Effect
from tests.engine.house import entries, open_session, world

READ = ("read_file", '{"path": "a"}')


def call(name: str, **arguments: Any) -> tuple[str, str]:
    return name, msgspec.json.encode(arguments).decode()


def edit(old: str, new: str) -> tuple[str, str]:
    return call("edit_file", path="a", old=old, new=new)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    inside = tmp_path / "w"
    inside.mkdir()
    (inside / "a").write_text("one\ntwo\n")
    return inside


def place(directory: Path, *script: Line) -> World:
    files = DiskFiles(directory)

    def facts() -> Facts:
        return Facts(follow=lambda path: str(files.real(path)), roots=(str(directory),))

    return world(
        ScriptedProvider(*script),
        tools=(read_file, write_file, edit_file, apply_patch),
        files=files,
        facts=facts,
        rules=(),
        tool_dependencies={"blobs": None},
    )


def run_with_verdicts(world: World, *verdicts: bool) -> list[Event]:
    """Return all events of a turn in which a person gives these verdicts, one after the
    other.
    """
    store = MemoryStore()

    async def run_story() -> None:
        session = await open_session(store, world)
        await session.inbox.say("go")
        await session.run_turns()
        for allowed in verdicts:
            permissions = [r for r in requests(session.view) if isinstance(r, Permission)]
            await session.inbox.answer(
                permissions[0].id, allowed=allowed, hash_=permissions[0].call.hash
            )
            await session.run_turns()

    anyio.run(run_story)
    return [entry.event for entry in entries(store)]


def list_previews(events: list[Event]) -> list[list[tuple[str, str]]]:
    return [
        [(diff.kind, diff.text) for diff in event.changes]
        for event in events
        if isinstance(event, Judged) and event.verdict == "ask"
    ]


def failures(events: list[Event]) -> list[str]:
    return [e.text for e in events if isinstance(e, Ended) and e.outcome == "failed"]


def test_question_shows_the_diff_that_the_call_then_makes(directory: Path) -> None:
    events = run_with_verdicts(place(directory, [READ], [edit("two", "2")], "Done."), True)

    diff = ("changed", "@@ -1,2 +1,2 @@\n one\n-two\n+2")
    assert list_previews(events) == [[diff]]
    done = [e for e in events if isinstance(e, Ended) and e.shown]
    assert [(d.kind, d.text) for d in done[-1].shown] == [diff]  # type: ignore[union-attr]
    assert (directory / "a").read_text() == "one\n2\n"


def test_nothing_is_written_before_approval_or_after_a_denial(directory: Path) -> None:
    script = [READ], [call("write_file", path="a", content="x\n")], "Pity."

    events = run_with_verdicts(place(directory, *script))
    assert list_previews(events) == [[("changed", "@@ -1,2 +1,1 @@\n-one\n-two\n+x")]]
    assert (directory / "a").read_text() == "one\ntwo\n"
    run_with_verdicts(place(directory, *script), False)
    assert (directory / "a").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (edit("two", "2"), "a was not read in this session. Read it first"),
        (call("edit_file", path="b", old="x", new="y"), "There is no file b"),
        (call("write_file", path="a", content="x"), "a was not read in this session"),
    ],
)
def test_call_that_would_fail_fails_without_a_question(
    directory: Path, made: tuple[str, str], message: str
) -> None:
    events = run_with_verdicts(place(directory, [made], "Then not."))

    assert [text.startswith(message) for text in failures(events)] == [True]
    assert not any(isinstance(event, Judged) for event in events)


def test_edit_of_missing_text_fails_without_a_question(directory: Path) -> None:
    events = run_with_verdicts(place(directory, [READ], [edit("three", "3")], "Then not."))

    assert len(failures(events)) == 1
    assert list_previews(events) == []


def test_edit_of_missing_text_fails_without_a_question_after_a_read_in_the_same_response(
    directory: Path,
) -> None:
    events = run_with_verdicts(place(directory, [READ, edit("three", "3")], "Then not."))

    assert len(failures(events)) == 1
    assert list_previews(events) == []


def test_edit_after_a_read_in_the_same_response_is_previewed(directory: Path) -> None:
    events = run_with_verdicts(place(directory, [READ, edit("two", "2")], "Done."), True)

    assert list_previews(events) == [[("changed", "@@ -1,2 +1,2 @@\n one\n-two\n+2")]]
    assert (directory / "a").read_text() == "one\n2\n"


def test_second_edit_of_a_file_is_previewed_on_top_of_the_first(directory: Path) -> None:
    script = [READ], [edit("two", "2"), edit("2", "II")], "Done."

    events = run_with_verdicts(place(directory, *script), True, True)

    assert list_previews(events) == [
        [("changed", "@@ -1,2 +1,2 @@\n one\n-two\n+2")],
        [("changed", "@@ -1,2 +1,2 @@\n one\n-2\n+II")],
    ]
    assert (directory / "a").read_text() == "one\nII\n"


def test_edit_that_depends_on_a_denied_edit_fails(directory: Path) -> None:
    script = [READ], [edit("two", "2"), edit("2", "II")], "Pity."

    events = run_with_verdicts(place(directory, *script), False, True)

    assert [isinstance(e, Answered) for e in events].count(True) == 2
    assert len(failures(events)) == 1
    assert (directory / "a").read_text() == "one\ntwo\n"


def test_approved_edit_does_not_overwrite_a_change_made_since_the_question(
    directory: Path,
) -> None:
    store, editing_world = (
        MemoryStore(),
        place(directory, [READ], [edit("two", "2")], "Pity."),
    )

    async def run_story() -> None:
        session = await open_session(store, editing_world)
        await session.inbox.say("go")
        await session.run_turns()
        (directory / "a").write_text("one\ntwo\nthree\n")
        (request,) = requests(session.view)
        await session.inbox.answer(request.id, allowed=True)
        await session.run_turns()

    anyio.run(run_story)

    assert failures([e.event for e in entries(store)])[0].startswith("a has changed since")
    assert (directory / "a").read_text() == "one\ntwo\nthree\n"


def test_question_shows_every_file_change_of_a_patch(directory: Path) -> None:
    patch = (
        "*** Begin Patch\n*** Delete File: a\n*** Add File: d/new\n+first\n*** End Patch\n"
    )

    events = run_with_verdicts(
        place(directory, [READ], [call("apply_patch", patch=patch)], "Done.")
    )

    assert list_previews(events) == [
        [("deleted", "@@ -1,2 +0,0 @@\n-one\n-two"), ("created", "@@ -0,0 +1,1 @@\n+first")]
    ]
    assert (directory / "a").exists()
    assert not (directory / "d").exists()


def test_tool_that_raises_in_the_preview_fails_without_a_question(directory: Path) -> None:
    @tool(Effect.CHANGE, path="path", dry_run=True)
    async def broken(path: str, *, files: object) -> Reply:
        """Divide."""
        return Reply(f"{path} {files} {1 // 0}")

    breaking_world = place(directory, [call("broken", path="a")], "Then not.")

    events = run_with_verdicts(replace(breaking_world, tools=(broken,)))

    assert failures(events) == ["ZeroDivisionError: integer division or modulo by zero"]


def test_file_outside_the_workspace_is_not_previewed_before_approval(
    directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("x")
    for name in ("secret", "missing"):
        result = call("edit_file", path=str(tmp_path / name), old="x", new="y")
        events = run_with_verdicts(place(directory, [result], "Then not."))
        assert (failures(events), list_previews(events)) == ([], [[]])


def test_a_tool_with_dry_run_can_take_files_but_no_commands() -> None:
    async def run_both(path: str, *, files: object, commands: object) -> Reply:
        """Call both tools."""
        return Reply(f"{path} {files} {commands}")

    with pytest.raises(BadInput, match="'run_both' takes commands: with dry_run=True"):
        tool(Effect.CHANGE, path="path", dry_run=True)(run_both)
