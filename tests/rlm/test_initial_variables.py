"""Initial variables are in the journal: they survive a crash, and count as read."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.claims.check import check
from refold.claims.observed import SessionRecord, collect_facts
from refold.claims.sources import CurrentFiles
from refold.journal.events.child_events import (
    VariableInjected,
    VariablesRestored,
    VariablesSaved,
)
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.blobs import blobs_of
from refold.journal.store.port import MemoryBlobs, MemoryStore
from refold.place.files import DiskFiles
from refold.rlm import initial_variables as initial_variables_module
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.other_sessions import OtherSessions
from refold.testing.providers import ScriptedProvider
from refold.values.claims import Claim, Evidence
from tests.place.walled import needs_bubblewrap
from tests.rlm.acting_by_code import CodeSession, Leaf, as_code, material
from tests.rlm.walled_python import workers

ECHO = Leaf(str)
LINE = "this stands in the file, word for word"


def make_run(*answers: Any, **options: Any) -> CodeSession:
    return CodeSession(ScriptedProvider(*answers), ECHO, **options)


def test_initial_variables_are_restored_after_a_crash_before_the_first_snapshot() -> None:
    first = make_run(
        as_code("die('the machine is gone')"),
        "It broke.",
        repl_options=material(context="hay"),
    )
    first.run()
    second = make_run(as_code("FINAL(context)"), store=first.store)

    assert second.run("Go on.").turn.answer == "hay"
    assert [event.name for event in second.events(VariableInjected)] == ["context"]


class CountingBlobs(MemoryBlobs):
    """Blobs that count their reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read = list[str]()

    async def get(self, name: str) -> bytes:
        self.read.append(name)
        return await super().get(name)


def test_a_resumed_session_reads_its_material_only_for_code() -> None:
    blobs = CountingBlobs()
    store = MemoryStore(blobs=blobs)
    make_run(as_code("FINAL(1)"), store=store, repl_options=material(context="hay")).run()
    (material_blob,) = (blob for event in make_run(store=store).events(VariableInjected)
                        for blob in blobs_of(event))  # fmt: skip
    first = blobs.read[:]
    make_run("No code is needed.", store=store).run("Go on.")
    without_code = blobs.read[len(first) :]
    make_run(as_code("FINAL(context)"), store=store).run("Go on.")

    assert first == [material_blob]  # to set the variable, once
    assert without_code == []


def test_material_is_not_held_in_memory_once_it_is_recorded() -> None:
    variables = material(context="hay")
    run = make_run(as_code("FINAL(context)"), repl_options=variables)

    assert run.run().turn.answer == "hay"
    assert variables["initial_variables"].values == {}


def test_initial_variables_are_restored_after_a_rewind_to_the_start() -> None:
    run = make_run(as_code("FINAL(context)"), repl_options=material(context="hay"))
    again = make_run(as_code("FINAL(context)"), store=run.store)

    async def rewind_and_continue() -> str:
        session = await again.session()
        assert await session.rewind(session.view.marks[0].seq)
        await session.inbox.say("Go.")
        return (await session.run_turns()).turn.answer

    run.run()

    assert anyio.run(rewind_and_continue) == "hay"


@pytest.mark.parametrize("most", [initial_variables_module.MAX_NAMED_FILES, 1])
def test_files_of_initial_variables_count_as_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(initial_variables_module, "MAX_NAMED_FILES", most)
    place = Path(os.path.realpath(tmp_path))
    for name in ("a", "b", "c"):
        (place / name).write_text(f"{name}\n{LINE}")
    data = {name: (place / name).read_text() for name in ("a", "b")}
    files = tuple(
        (str(place / name), sha256(text.encode()).hexdigest())
        for name, text in data.items()
    )
    initial_variables = InitialVariables({"context": data}, files={"context": files})
    run = make_run(
        as_code("FINAL(1)"), repl_options={"initial_variables": initial_variables}
    )
    run.run()
    (place / "b").write_text("something else")
    (event,) = run.events(VariableInjected)
    blobs = {name: anyio.run(run.store.blobs.get, name) for name in blobs_of(event)}
    started = [entry for entry in run.entries if isinstance(entry.event, VariableInjected)]
    record = SessionRecord(started, blob=blobs.get)
    today = CurrentFiles(DiskFiles(place))

    def state(name: str, lines: str) -> str:
        evidence = Evidence(path=str(place / name), lines=lines, quote=LINE)
        return check([Claim("So.", (evidence,))], collect_facts([record]), today)[0].state

    assert state("a", "2") == "supported"
    assert state("a", "1") == "contradicted"
    assert state("b", "2") == "stale"
    assert state("c", "2") == "unknown"
    assert (event.files == (), len(blobs)) == ((False, 1) if most > 1 else (True, 2))


def test_attached_session_stores_its_own_copy_of_large_variables(tmp_path: Path) -> None:
    needs_bubblewrap()
    home = JournalDirectory(tmp_path / "sessions")
    (tmp_path / "ws").mkdir()
    with workers(tmp_path / "ws") as real:
        other = make_run(
            as_code("x = ['a' * 300_000]\nFINAL(1)"), store=home.store("one"), workers=real
        )
        other.run()
        initial_variables = InitialVariables(attached="one")
        data = {
            "initial_variables": initial_variables,
            "snapshots": OtherSessions(home, "two", ""),
        }
        run = make_run(as_code("FINAL(len(x[0]))"), workers=real, repl_options=data)
        view = run.run()

    (restored,), (result,) = run.events(VariablesRestored), run.events(VariablesSaved)
    assert view.turn.answer == "300000"
    assert restored.parts == result.parts
    assert anyio.run(run.store.blobs.get, *result.parts)
