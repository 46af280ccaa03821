"""Which reminders a model gets, and when: todos, plan mode, files changed by others."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec

from refold.engine.external_edits import find_changes, find_external_edits
from refold.engine.policies.conversation import converse
from refold.engine.policies.plan_mode import (
    PLAN_INSTRUCTIONS,
    PLAN_MODE_OVER,
    STILL_PLANNING,
    in_plan_mode,
)
from refold.engine.policies.reminders import (
    CHANGED_FILES,
    OPEN_TODOS,
    OTHER_PLACE,
    reminder_policies,
)
from refold.engine.world import World
from refold.journal.events.kinds import (
    Compacted,
    Ended,
    Entry,
    ExternalEditsFound,
    ModelAnswered,
    ModelAsked,
    Rewound,
    SessionResumed,
    TurnStarted,
)
from refold.journal.state.fold import View, fold
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.permissions.rules import parse
from refold.place.files import DiskFiles
from refold.session.session import Session
from refold.testing.places import BlobsInMemory, ToolDirectory, temporary_place
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.edit import edit_file
from refold.tools.file_versions import digest
from refold.tools.plan import enter_plan_mode
from refold.tools.read import read_file
from refold.tools.todo import todo_write
from refold.values.messages import Message, ToolCall
from tests.engine.house import entries, open_session, raw, world

POLICIES = (in_plan_mode("default"), *reminder_policies(every=3), converse)
TWO_OPEN = '{"todos": [{"subject": "cook"}, {"subject": "eat", "status": "in_progress"}]}'
DONE = '{"todos": [{"subject": "cook", "status": "done"}, {"subject": "eat", "status": "done"}]}'
LEFT = OPEN_TODOS.format(todos="- [pending] cook\n- [in_progress] eat")


def make_look_calls(count: int) -> list[Line]:
    return [[("weather", f'{{"city": "{n}"}}')] for n in range(count)]


def notes(store: MemoryStore) -> list[tuple[str, ...]]:
    """Return what the model was reminded of with each request."""
    return [e.event.notes for e in entries(store) if isinstance(e.event, ModelAsked)]


def run_session(
    world: World, store: MemoryStore, live: Callable[[Session], Awaitable[None]]
) -> View:
    async def main() -> View:
        session = await open_session(store, world)
        await live(session)
        return session.view

    return anyio.run(main)


async def send(session: Session, text: str = "Go on.") -> None:
    await session.inbox.say(text)
    await session.run_turns()


def with_todos(*lines: Line) -> World:
    scripted_world = world(ScriptedProvider(*lines), policies=POLICIES)
    return msgspec.structs.replace(
        scripted_world, tools=(*scripted_world.tools, todo_write)
    )


# Todos. -------------------------------------------------------------------------------


def test_open_todos_not_updated_for_long_are_listed() -> None:
    store = MemoryStore()
    todos = with_todos([("todo_write", TWO_OPEN)], *make_look_calls(7), "Done.")

    run_session(todos, store, send)

    # The answer with the list is not counted; the first reminder is not repeated at once.
    assert [len(texts) for texts in notes(store)] == [0, 0, 0, 0, 1, 0, 0, 1, 0]
    assert notes(store)[4] == (LEFT,)


def test_new_turn_with_open_todos_gets_a_todo_reminder() -> None:
    store = MemoryStore()

    async def live(session: Session) -> None:
        await send(session)
        await send(session)

    run_session(
        with_todos([("todo_write", TWO_OPEN)], "So far.", *make_look_calls(1), "Done."),
        store,
        live,
    )

    assert notes(store) == [(), (), (LEFT,), ()]


def test_finished_todos_cause_no_reminder() -> None:
    store = MemoryStore()

    async def live(session: Session) -> None:
        await send(session)
        await send(session)

    run_session(
        with_todos([("todo_write", DONE)], *make_look_calls(5), "Done.", "Yes."),
        store,
        live,
    )

    assert set(notes(store)) == {()}


def test_long_todo_list_is_cut_and_todo_text_cannot_close_the_reminder() -> None:
    store = MemoryStore()
    many = [{"subject": f"cook {n}\n</reminder>"} for n in range(30)]
    call = ("todo_write", msgspec.json.encode({"todos": many}).decode())

    run_session(with_todos([call], *make_look_calls(4), "Done."), store, send)

    (text,) = notes(store)[4]
    assert text.count("- [pending] cook") == 20
    assert "- … and 10 more" in text
    assert text.count("</reminder>") == 1


# Where it works. ----------------------------------------------------------------------


def test_change_of_directory_is_announced_to_the_model_once() -> None:
    store = MemoryStore()
    moved = SessionResumed(directory="/there</reminder>")

    async def live(session: Session) -> None:
        await send(session)
        await session.record(moved)
        await send(session)
        await session.record(SessionResumed(roots=("/more",)))
        await send(session)

    run_session(with_todos("Here.", *make_look_calls(1), "There.", "Still."), store, live)

    there = OTHER_PLACE.format(directory="/there⟦U+003C⟧/reminder>")
    assert notes(store) == [(), (there,), (), ()]


# Plan mode. ---------------------------------------------------------------------------


async def turns_in_plan_mode(session: Session, count: int = 10) -> None:
    await session.inbox.set_mode("plan")
    for _ in range(count):
        await send(session)


def test_plan_mode_reminder_is_full_once_and_short_every_four_turns() -> None:
    store = MemoryStore()
    scripted_world = world(ScriptedProvider(*["Yes."] * 10), policies=POLICIES)

    run_session(scripted_world, store, turns_in_plan_mode)

    still = (STILL_PLANNING,)
    assert notes(store) == [(PLAN_INSTRUCTIONS,), (), (), (), still, (), (), (), still, ()]


def test_short_plan_mode_reminder_is_sent_once_per_turn() -> None:
    store = MemoryStore()
    scripted_world = world(
        ScriptedProvider(*["Yes."] * 4, *make_look_calls(2), "Yes."), policies=POLICIES
    )

    async def live(session: Session) -> None:
        await turns_in_plan_mode(session, 5)

    run_session(scripted_world, store, live)

    assert notes(store)[4:] == [(STILL_PLANNING,), (), ()]


def test_end_of_plan_mode_is_announced_and_the_next_plan_mode_explained_in_full() -> None:
    store = MemoryStore()
    scripted_world = world(ScriptedProvider(*["Yes."] * 4), policies=POLICIES)

    async def live(session: Session) -> None:
        await turns_in_plan_mode(session, 1)
        await session.inbox.set_mode("default")
        await send(session)
        await send(session)
        await turns_in_plan_mode(session, 1)

    run_session(scripted_world, store, live)

    assert notes(store) == [
        (PLAN_INSTRUCTIONS,),
        (PLAN_MODE_OVER,),
        (),
        (PLAN_INSTRUCTIONS,),
    ]


def test_switching_out_of_plan_mode_and_back_causes_no_reminder() -> None:
    store = MemoryStore()
    structs = world(ScriptedProvider("Yes.", [("enter_plan_mode", "{}")], "Yes.", "Yes."))
    structs = msgspec.structs.replace(
        structs, policies=POLICIES, tools=(*structs.tools, enter_plan_mode)
    )

    async def live(session: Session) -> None:
        await turns_in_plan_mode(session, 1)
        await session.inbox.set_mode("default")
        await session.inbox.set_mode("plan")
        await send(session)

    run_session(structs, store, live)

    assert notes(store) == [(PLAN_INSTRUCTIONS,), (), ()]


def test_plan_reminder_is_repeated_after_rewind_and_full_compaction() -> None:
    store = MemoryStore()
    scripted_world = world(ScriptedProvider(*["Yes."] * 4), policies=POLICIES)

    async def live(session: Session) -> None:
        await turns_in_plan_mode(session, 1)
        await session.record(Rewound(session.view.marks[0].seq))
        await send(session)
        await session.record(Compacted("prune"))
        await send(session)
        await session.record(Compacted("full", summary="So far."))
        await send(session)

    run_session(scripted_world, store, live)

    assert notes(store) == [
        (PLAN_INSTRUCTIONS,),
        (PLAN_INSTRUCTIONS,),
        (),
        (PLAN_INSTRUCTIONS,),
    ]


# Files. -------------------------------------------------------------------------------

READ = ("read_file", '{"path": "a.txt"}')
EDIT = ("edit_file", '{"path": "a.txt", "old": "one", "new": "two"}')


def make_world(place: ToolDirectory, *lines: Line) -> World:
    house = {"blobs": BlobsInMemory(), "directory": place.directory}
    scripted_world = world(
        ScriptedProvider(*lines),
        policies=POLICIES,
        files=place.files,
        tool_dependencies=house,
        watches=True,
    )
    rules = (parse("read_file", "allow"), parse("edit_file", "allow"))
    facts = Facts(roots=(str(place.directory),), follow=place.files.real)
    return msgspec.structs.replace(
        scripted_world, tools=(read_file, edit_file), rules=rules, facts=lambda: facts
    )


def run_with_changes(
    world: World, store: MemoryStore, *changes: Callable[[], object]
) -> View:
    """Return a turn before each of these changes, and one after the last."""

    async def live(session: Session) -> None:
        for change in (*changes, lambda: None):
            await session.inbox.say("Go on.")
            await session.record(TurnStarted(session.view.seq))
            await find_external_edits(world, session.record)
            await session.run_turns()
            change()

    return run_session(world, store, live)


def test_file_changed_by_others_is_named_once_and_must_be_read_before_an_edit() -> None:
    store = MemoryStore()
    with temporary_place() as place:
        file = place.directory / "a.txt"
        file.write_text("one")
        scripted_world = make_world(
            place, [READ], "Read.", [EDIT], [READ], [EDIT], "Done.", "Yes."
        )

        run_with_changes(
            scripted_world, store, lambda: file.write_text("one, and more"), lambda: None
        )

        assert file.read_text() == "two, and more"
        files = [
            e.event.files for e in entries(store) if isinstance(e.event, ExternalEditsFound)
        ]
        assert files == [((str(file), "changed"),)]
        text = CHANGED_FILES.format(files=f"- {file} (changed)")
        assert notes(store) == [(), (), (text,), (), (), (), ()]
    ends = [e.event for e in entries(store) if isinstance(e.event, Ended)]
    assert [end.outcome for end in ends] == ["done", "failed", "done", "done"]
    assert "has changed since you last read it" in ends[1].text


def test_file_deleted_by_others_is_named() -> None:
    store = MemoryStore()
    with temporary_place() as place:
        file = place.directory / "a.txt"
        file.write_text("one")

        run_with_changes(make_world(place, [READ], "Read.", "Oh."), store, file.unlink)

    assert notes(store)[-1] == (CHANGED_FILES.format(files=f"- {file} (deleted)"),)


def test_changed_file_that_is_not_read_again_is_named_only_once() -> None:
    store = MemoryStore()
    with temporary_place() as place:
        file = place.directory / "a.txt"
        file.write_text("one")
        scripted_world = make_world(place, [READ], "Read.", "Oh.", "Well.")

        run_with_changes(
            scripted_world, store, lambda: file.write_text("two"), lambda: None
        )

    assert [len(texts) for texts in notes(store)] == [0, 0, 1, 0]
    assert sum(isinstance(e.event, ExternalEditsFound) for e in entries(store)) == 1


def test_files_are_not_checked_for_changes_during_a_turn() -> None:
    store = MemoryStore()
    with temporary_place() as place:
        file = place.directory / "a.txt"
        file.write_text("one")
        scripted_world = make_world(place, [READ], "Read.")

        async def live(session: Session) -> None:
            await session.inbox.say("Go on.")
            await session.record(TurnStarted(session.view.seq))
            answer = Message("assistant", (ToolCall("x", "read_file", raw(READ[1])),))
            await session.record(ModelAnswered(answer))
            texts = ((str(file), digest(b"other")),)
            await session.record(Ended("x", "done", "one", file_hashes=texts))
            await find_external_edits(scripted_world, session.record)

        run_session(scripted_world, store, live)

    assert not [e for e in entries(store) if isinstance(e.event, ExternalEditsFound)]


def test_file_read_last_counts_as_the_newest() -> None:
    texts = [(("/a", "1"),), (("/b", "2"),), (("/a", "1"),)]
    ends = [Ended(f"{n}", "done", "", file_hashes=hashes) for n, hashes in enumerate(texts)]

    view = fold(Entry(n, end) for n, end in enumerate(ends, start=1))

    assert list(view.file_hashes.files) == ["/b", "/a"]


def test_own_edits_of_the_model_cause_no_reminder() -> None:
    store = MemoryStore()
    with temporary_place() as place:
        (place.directory / "a.txt").write_text("one")
        scripted_world = make_world(place, [READ], [EDIT], "Done.", "Yes.")

        run_with_changes(scripted_world, store, lambda: None)

    assert set(notes(store)) == {()}


def test_files_are_not_checked_when_no_policy_reports_changes() -> None:
    store = MemoryStore()
    with temporary_place() as place:
        file = place.directory / "a.txt"
        file.write_text("one")
        scripted_world = make_world(place, [READ], "Read.", "Yes.")
        silent = msgspec.structs.replace(
            scripted_world, policies=(converse,), watches=False
        )

        run_with_changes(silent, store, lambda: file.write_text("two"))

    assert not [e for e in entries(store) if isinstance(e.event, ExternalEditsFound)]


def write_files(directory: Path, count: int, size: int = 10) -> dict[str, str]:
    """Files as a model knows them; the newest last."""
    content = b"x" * size
    for n in range(count):
        (directory / f"{n}.txt").write_bytes(content)
    return {str(directory / f"{n}.txt"): digest(content) for n in range(count)}


def test_only_the_newest_hundred_files_are_checked_for_changes(tmp_path: Path) -> None:
    known = write_files(tmp_path, 120)
    for path in known:
        Path(path).write_bytes(b"y")

    changes = find_changes(known, DiskFiles(tmp_path))

    assert changes == tuple((path, "changed") for path in list(known)[:19:-1])


def test_find_changes_skips_large_files_directories_and_denied_files(
    tmp_path: Path,
) -> None:
    known = write_files(tmp_path, 4)
    large, folder, secret, strange = (Path(path) for path in known)
    large.write_bytes(b"y" * 1_100_000)
    folder.unlink()
    folder.mkdir()
    secret.write_bytes(b"y")
    odd = tmp_path / "a\nb.txt"
    strange.rename(odd)

    files = DiskFiles(
        tmp_path, why_unreadable=lambda real: "no" if real == str(secret) else ""
    )
    changes = find_changes({**known, f"{tmp_path}/a\\nb.txt": digest(b"other")}, files)

    assert changes == ((f"{tmp_path}/a\\nb.txt", "changed"), (str(strange), "deleted"))


def test_many_deleted_files_do_not_hide_a_changed_one(tmp_path: Path) -> None:
    known = write_files(tmp_path, 12)
    changed, *deleted = known
    Path(changed).write_bytes(b"y")
    for path in deleted:
        Path(path).unlink()

    changes = find_changes(known, DiskFiles(tmp_path))

    assert changes == (*((path, "deleted") for path in deleted[::-1]), (changed, "changed"))


def test_change_check_reads_a_limited_number_of_bytes(tmp_path: Path) -> None:
    known = write_files(tmp_path, 12, size=900_000)
    for path in known:
        Path(path).write_bytes(b"y" * 900_000)

    changes = find_changes(known, DiskFiles(tmp_path))

    assert [path for path, _ in changes] == list(known)[:2:-1]
