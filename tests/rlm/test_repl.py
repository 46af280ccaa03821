"""Cells of a session's Python: what the model sees of them, and which variables exist."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.errors import BadInput, JournalError
from refold.journal.events.child_events import VariablesRestored, VariablesSaved
from refold.journal.events.kinds import Ended
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.port import MemoryBlobs, MemoryStore
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.other_sessions import OtherSessions
from refold.testing.providers import ScriptedProvider
from refold.values.control import Final
from tests.rlm.acting_by_code import (
    CodeSession,
    Leaf,
    as_code,
    material,
    observations,
    shape,
)

ECHO = Leaf(lambda words: words)


def make_run(*answers: Any, **options: Any) -> CodeSession:
    return CodeSession(ScriptedProvider(*answers), ECHO, **options)


def test_code_searches_the_material_and_final_ends_the_turn() -> None:
    run = make_run(
        as_code("print(len(context))"),
        "The needle is on a line of its own.\n\n"
        + as_code("found = [line for line in context.splitlines() if 'needle' in line]")
        + "\n"
        + as_code("FINAL(found)"),
        repl_options=material(context="hay\n" * 500 + "a needle\n" + "hay\n" * 500),
    )

    view = run.run()

    assert (view.turn.outcome, view.turn.answer) == ("final", '["a needle"]')
    assert observations(view) == ["4009", "[1] (nothing was printed)\n[2] FINAL"]


def test_cells_after_one_that_failed_are_not_run() -> None:
    run = make_run(as_code("x = 1", "1 / 0", "x = 2"), as_code("FINAL(x)"))

    view = run.run()

    assert view.turn.answer == "1"
    assert observations(view)[0] == (
        "[1] (nothing was printed)\n[2] ZeroDivisionError: division by zero\n[3] not run"
    )
    assert run.events(Ended)[0].outcome == "failed"


def test_variables_are_restored_for_the_next_turn_in_a_new_process() -> None:
    run = make_run(
        as_code("import math\nx = [1]"), "It is there.", "It is.", as_code("FINAL(x)")
    )

    run.run()
    view = run.run("And now?")

    assert view.turn.answer == "[1]"
    assert len(run.workers.made) == 2
    assert "Not kept for later: math (a module cannot be kept)" in observations(view)[0]
    (restored,) = run.events(VariablesRestored)
    assert restored.blob == run.events(VariablesSaved)[0].blob


def test_unchanged_variables_are_saved_once() -> None:
    run = make_run(as_code("x = 1"), as_code("print(x)"), as_code("FINAL(x)"))

    run.run()

    assert len(run.events(VariablesSaved)) == 1


def test_a_rewound_session_has_the_variables_of_that_point() -> None:
    run = make_run(
        as_code("x = 1\nFINAL(x)"), as_code("x = 2\nFINAL(x)"), as_code("FINAL(x)")
    )

    async def rewind_and_continue() -> str:
        session = await run.session()
        await session.inbox.say("One.")
        await session.run_turns()
        await session.inbox.say("Two.")
        view = await session.run_turns()
        mark = view.marks[-1].seq
        assert await session.rewind(mark)
        await session.inbox.say("Three.")
        return (await session.run_turns()).turn.answer

    assert anyio.run(rewind_and_continue) == "1"


def test_a_lost_process_keeps_the_variables_of_the_previous_step() -> None:
    run = make_run(
        as_code("x = 1"), as_code("x = 2", "die('killed after 120 s')"), as_code("FINAL(x)")
    )

    view = run.run()

    assert view.turn.answer == "1"
    assert observations(view)[1].splitlines()[1] == (
        "[2] Python was stopped: killed after 120 s. The variables are as before this call."
    )


class NoRoom(MemoryBlobs):
    """A disk with room for lines and none for blobs."""

    async def put(self, blob: bytes) -> str:
        raise JournalError("no space is left")


def test_a_full_disk_loses_variables_but_no_output_or_answer() -> None:
    run = make_run(
        as_code("x = 1\nprint(x)"), as_code("FINAL(2)"), store=MemoryStore(blobs=NoRoom())
    )

    view = run.run()

    assert view.turn.answer == "2"
    assert observations(view)[0] == (
        "1\nWhat code did could not be kept: no space is left. The variables are as before "
        "this call."
    )


def test_variables_that_cannot_be_restored_are_reported_to_the_model() -> None:
    run = make_run(as_code("FINAL(1)"), as_code("print('here')\nFINAL(2)"))

    async def broken() -> str:
        session = await run.session()
        await session.inbox.say("One.")
        await session.run_turns()
        blob = await session.record.put_bytes(b"bomb")
        await session.record(VariablesSaved("call-0", blob))
        await session.inbox.say("Two.")
        view = await session.run_turns()
        return observations(view)[-1]

    assert anyio.run(broken).splitlines() == [
        "Not restored: all variables (it ran out of memory)", "here",
    ]  # fmt: skip


def test_a_final_value_that_violates_the_schema_is_refused_and_the_turn_continues() -> None:
    run = make_run(
        as_code("FINAL({'n': 'three'})"),
        as_code("FINAL({'n': 3})"),
        schema=shape('{"type": "object", "properties": {"n": {"type": "integer"}}}'),
    )

    view = run.run()

    assert view.turn.answer == '{"n":3}'
    assert "FINAL was refused" in observations(view)[0]
    assert [e.control for e in run.events(Ended)] == [None, Final('{"n":3}', as_json=True)]


def test_the_second_answer_without_code_ends_the_turn() -> None:
    run = make_run("I think it is 3.", "It is 3.")

    view = run.run()

    assert (view.turn.outcome, view.turn.answer) == ("answered", "It is 3.")
    assert len(run.model.heard) == 2


def test_variables_of_an_attached_session_are_available_at_the_start(
    tmp_path: Path,
) -> None:
    home = JournalDirectory(tmp_path)
    other = make_run(
        as_code("x = [1]\nFINAL(x)"), as_code("x = [2]\nFINAL(x)"), store=home.store("one")
    )
    other.run()
    other.run("More.")
    others = OtherSessions(home, "two", "")
    data = {"initial_variables": InitialVariables(attached="one@1"), "snapshots": others}
    run = make_run(as_code("FINAL(x)"), repl_options=data)

    view = run.run()

    assert view.turn.answer == "[1]"
    assert observations(view) == ["These variables are of the session one: x\nFINAL"]
    assert [event.source for event in run.events(VariablesRestored)] == ["one"]


def test_a_session_of_another_directory_cannot_be_attached(tmp_path: Path) -> None:
    home = JournalDirectory(tmp_path)
    make_run(as_code("x = 1\nFINAL(x)"), store=home.store("one")).run()
    others = OtherSessions(home, "two", "/another/project")

    with pytest.raises(BadInput, match="works in another directory"):
        anyio.run(others.find_variables, "one")


def test_interrupting_code_restores_the_variables_before_that_call() -> None:
    run = make_run(
        as_code("x = 1"),
        as_code("x = 2\nlm('a', 'q')"),
        as_code("print(x)"),
        as_code("FINAL(x)"),
    )
    run.leaf = Leaf(str, seconds=60)

    async def stop_and_continue() -> list[str]:
        session = await run.session()
        await session.inbox.say("Go.")

        async def stop() -> None:
            while not session.view.children.leaves:
                await session.record.wait_for_event(after=session.view.seq)
            await session.inbox.interrupt()

        async with anyio.create_task_group() as group:
            group.start_soon(stop)
            assert (await session.run_turns()).turn.outcome == "interrupted"
        await session.inbox.say("Go on.")
        return observations(await session.run_turns())

    _, second, *_, third, last = anyio.run(stop_and_continue)

    assert second.startswith("Interrupted while running.")
    assert third.splitlines() == [
        "The previous call was stopped; its variable changes were discarded.", "1",
    ]  # fmt: skip
    assert last == "FINAL"


def test_two_python_calls_in_one_answer_run_in_order() -> None:
    cells = [
        ("python", '{"code": "x = 1"}'),
        ("python", '{"code": ["x += 1", "FINAL(x)"]}'),
    ]
    run = make_run(cells)
    run.native = True

    assert run.run().turn.answer == "2"
