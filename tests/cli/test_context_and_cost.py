"""`refold context` and `refold cost`: read a session that is being written."""

import json
import os
from pathlib import Path

import anyio
import pytest

from refold.cli.main import main
from refold.journal.journal_directory import JournalDirectory
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import Reply, ScriptedProvider
from refold.values.usage import Usage
from tests.engine.house import WEATHER, world

ID = "20260101-000000-abcd"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def journal() -> Path:
    return Path(os.environ["REFOLD_HOME"]) / "sessions" / ID / "events.jsonl"


def while_it_runs(place: Path, *arguments: str) -> int:
    """Return what the command prints about a session whose lock is held here."""
    script = ScriptedProvider([WEATHER], Reply("Rain.", usage=Usage(300, 0, 0, 7)))
    scripted_world = world(script, name="m/one", system="You are one. " * 40, window=2_000)

    async def run_story() -> int:
        home = JournalDirectory(Path(os.environ["REFOLD_HOME"]) / "sessions")
        record = Recorder(home.store(ID), clock=lambda: 0.0)
        async with await Session.open(
            record, lambda _: scripted_world, directory=str(place), id_=ID
        ) as it:
            await it.inbox.say("Will it rain?")
            await it.run_turns()
            before = journal().read_bytes()
            code = main(arguments)
            assert journal().read_bytes() == before
            return code

    return anyio.run(run_story)


def test_context_shows_tokens_by_part_of_the_newest_session_of_the_directory(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert while_it_runs(place, "context") == 0

    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("m/one · about 3")
    parts = [row.split()[0] for row in rows[2:-1]]
    assert parts == ["prompt", "tools", "messages", "responses", "tool", "tool", "free"]
    assert rows[-1] == "counted by the provider at its last answer: 307"


def test_context_json_prints_one_document_with_the_tokens_of_each_part(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert while_it_runs(place, "context", ID[:17], "--json") == 0

    document = json.loads(capsys.readouterr().out)
    assert document["session_id"] == ID
    assert (document["window"], document["counted"]) == (2_000, 307)
    assert document["used"] == sum(part["tokens"] for part in document["parts"])
    assert document["used"] == pytest.approx(307, rel=0.1)
    assert [tool["name"] for tool in document["tools"]] == ["weather", "book"]


def test_cost_is_shown_by_model_and_by_turn(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert while_it_runs(place, "cost", "--turns") == 0

    assert capsys.readouterr().out == (
        "  1  Will it rain?\n"
        "     310 in · 23 out · price unknown\n"
        "\n"
        "m/one  310 in · 23 out · price unknown\n"
    )


def test_cost_json_has_null_for_an_unknown_price(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert while_it_runs(place, "cost", "--json") == 0

    document = json.loads(capsys.readouterr().out)
    assert (document["cost"], document["unpriced"], document["answers"]) == (None, 2, 2)
    assert document["purposes"][0]["purpose"] == "main"
    assert "turns" not in document


@pytest.mark.parametrize("door", ["context", "cost"])
def test_context_and_cost_report_a_damaged_journal_and_show_the_intact_part(
    place: Path, capsys: pytest.CaptureFixture[str], door: str
) -> None:
    while_it_runs(place, door)
    whole = capsys.readouterr().out
    lines = journal().read_bytes().splitlines(keepends=True)
    journal().write_bytes(
        b"".join([*lines[:-1], lines[-1].replace(b"answered", b"Answered")])
    )

    code = main([door, ID])

    output = capsys.readouterr()
    assert (code, output.out) == (1, whole)
    assert output.err.startswith("refold: ")


@pytest.mark.parametrize("door", ["context", "cost"])
def test_context_and_cost_fail_in_a_folder_without_sessions(
    place: Path, capsys: pytest.CaptureFixture[str], door: str
) -> None:
    assert main([door]) == 1
    assert "no session was started in" in capsys.readouterr().err
