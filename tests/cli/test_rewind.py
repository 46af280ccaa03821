"""`refold rewind`: the list of points, the preview, the rewind, and its undo."""

import json
import os
from argparse import ArgumentParser
from pathlib import Path

import anyio
import pytest

from refold.cli.rewind import add_arguments, run
from refold.errors import BadInput, Held
from refold.journal.events.kinds import Checkpointed, Said, Started
from refold.journal.journal_directory import JournalDirectory
from refold.place.checkpoints import Checkpoints
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import ScriptedProvider
from tests.engine.house import world

ID = "20260101-000000-abcd"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a workspace, and a session in it that made a.txt after event 3 and changed it
    after 6.
    """
    path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    anyio.run(run_turns, path)
    return path


def recorder() -> Recorder:
    home = JournalDirectory(Path(os.environ["REFOLD_HOME"]) / "sessions")
    return Recorder(home.store(ID), clock=lambda: 0.0)


async def run_turns(root: Path) -> None:
    store = Path(os.environ["REFOLD_HOME"]) / "checkpoints"
    checkpoints, record = Checkpoints([root], store, os.environ, ID), recorder()
    scripted_world = world(ScriptedProvider([]))
    async with await Session.open(
        record, lambda _: scripted_world, directory=str(root), id_=ID
    ):
        for words, content in (("make a.txt", "one\n"), ("change it", "two\n")):
            await record(Said(words), author="person")
            checkpoints.note_change()
            await record(Checkpointed((await checkpoints.take()).trees), Started("c"))
            (root / "a.txt").write_text(content)
        checkpoints.note_change()
        await record(Checkpointed((await checkpoints.take()).trees))


def rewind(*arguments: str) -> int:
    parser = ArgumentParser()
    add_arguments(parser.add_subparsers(dest="command").add_parser("rewind"))
    return run(parser.parse_args(["rewind", *arguments]))


def read_output(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_rewind_without_an_event_lists_the_points_to_rewind_to(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = rewind(ID[:10])

    rows = [line.split("  ") for line in read_output(capsys).splitlines()]
    assert code == 0
    assert [(row[0], *row[2:]) for row in rows] == [
        ("2", "make a.txt", "1 file changed"),
        ("5", "change it", "1 file changed"),
    ]


def test_rewind_list_json_has_one_line_for_each_point(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewind("last", "--json")

    assert [json.loads(line) for line in read_output(capsys).splitlines()] == [
        {"seq": 2, "at": 0.0, "kind": "said", "text": "make a.txt", "to": 0, "files": 1,
         "in_conversation": True},
        {"seq": 5, "at": 0.0, "kind": "said", "text": "change it", "to": 0, "files": 1,
         "in_conversation": True},
    ]  # fmt: skip


def test_rewind_restores_files_and_prints_the_command_that_undoes_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = rewind(ID, "5")
    text, back = read_output(capsys), (root / "a.txt").read_text()
    command = text.rpartition("To undo this: refold rewind ")[2].split()
    rewind(*command)

    assert (code, back, (root / "a.txt").read_text()) == (0, "one\n", "two\n")
    assert text.startswith(
        "This rewinds the conversation to before event 5.\n  a.txt  modified    +1 -1"
    )
    assert command[0] == ID


def test_rewind_preview_reports_a_change_of_the_executable_bit(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "a.txt").chmod(0o755)

    rewind(ID, "5", "--files", "--dry-run")

    assert "  a.txt  modified    +1 -1" in read_output(capsys)
    (root / "a.txt").write_text("one\n")
    rewind(ID, "5", "--files", "--dry-run")
    assert "  a.txt  modified    only whether it can be run\n" in read_output(capsys)


def test_rewind_dry_run_previews_changes_and_writes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = recorder().view.seq
    before = (
        Path(os.environ["REFOLD_HOME"]) / "sessions" / ID / "events.jsonl"
    ).read_bytes()

    code = rewind(ID, "2", "--files", "--dry-run")

    assert (code, read_output(capsys)) == (
        0,
        "  a.txt  deleted     +0 -1 -\n1 file changes, +0 -1 lines\n",
    )
    assert (root / "a.txt").read_text() == "two\n"
    after = (
        Path(os.environ["REFOLD_HOME"]) / "sessions" / ID / "events.jsonl"
    ).read_bytes()
    assert (events, after) == (0, before)


def test_rewind_json_reports_changed_files_and_the_undo_command(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewind(ID, "2", "--files", "--json")

    data = json.loads(read_output(capsys))
    assert (data["seq"], data["what"], data["files"], data["drift"]) == (
        2,
        "files",
        1,
        [],
    )
    assert data["changes"] == [
        {"path": str(root / "a.txt"), "kind": "deleted", "added": 0, "removed": 1}
    ]
    assert data["command"] == f"refold rewind {ID} {data['undo']} --files"


def test_a_file_changed_by_another_program_is_rewound_only_by_force(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "a.txt").write_text("mine\n")

    with pytest.raises(
        BadInput, match=r"another program changed these files since: .*a\.txt"
    ):
        rewind(ID, "5")
    text = (root / "a.txt").read_text()
    rewind(ID, "5", "--force")

    assert (text, (root / "a.txt").read_text()) == ("mine\n", "one\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["20991231"], "there is no session"),
        ([ID, "99"], "there is no event 99"),
        ([ID, "1", "--conversation"], "there was no message yet"),
    ],
)
def test_an_invalid_rewind_is_refused_with_one_sentence(
    root: Path, arguments: list[str], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        rewind(*arguments)


def test_rewind_fails_when_the_workspace_no_longer_exists(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root.parent)
    root.rename(root.parent / "elsewhere")

    with pytest.raises(BadInput, match=r"works in '.*work', which is gone"):
        rewind(ID)


def test_rewind_is_refused_while_another_process_has_the_session_open(root: Path) -> None:
    async def hold_session() -> None:
        record = recorder()
        await record.open()
        with pytest.raises(Held):
            await anyio.to_thread.run_sync(rewind, ID, "5")
        await record.close()

    anyio.run(hold_session)

    assert (root / "a.txt").read_text() == "two\n"
