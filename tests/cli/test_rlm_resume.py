"""`refold rlm -r ID`: the next question, an earlier turn, a copy, and a run that was killed."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold.cli.main import main
from refold.config.paths import paths
from refold.journal.journal_directory import JournalDirectory

CAPFD = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", has_stdin)
    (tmp_path / "notes.txt").write_text("The port is 8080.\n")
    return tmp_path


def has_stdin(*_: object) -> tuple[list[object], list[object], list[object]]:
    return [sys.stdin], [], []


def ask(capfd: CAPFD, *words: str, script: list[str]) -> dict[str, Any]:
    """Return the document of a run whose model answers with these texts."""
    Path("script.jsonl").write_bytes(
        b"\n".join(msgspec.json.encode({"text": text}) for text in script)
    )
    capfd.readouterr()
    main(["rlm", *words, "--script", "script.jsonl", "--json"])
    return json.loads(capfd.readouterr().out)


def cell(*lines: str) -> str:
    return "\n".join(("```python", *lines, "```"))


def journal_of(session: str) -> Path:
    home = JournalDirectory(paths(os.environ).data / "sessions")
    return home.path(session) / "events.jsonl"


@pytest.mark.slow  # it starts Python processes
def test_resumed_rlm_has_the_variables_of_its_last_turn_or_of_the_turn_that_is_named(
    capfd: CAPFD,
) -> None:
    first = ask(capfd, "How long?", "--rlm", "--context", "notes.txt",
                script=[cell("size = len(context)", "FINAL(size)")])  # fmt: skip
    id_ = first["session_id"]
    ask(capfd, "And doubled?", "-r", id_, script=[cell("size *= 2", "FINAL(size)")])

    last = ask(capfd, "Now?", "-r", id_, script=[cell("FINAL(size)")])
    copy = ask(
        capfd, "Now?", "-r", id_, "--turn", "1", "--fork", script=[cell("FINAL(size)")]
    )
    again = ask(capfd, "Now?", "-r", id_, "--turn", "1", script=[cell("FINAL(size)")])

    assert (first["text"], last["text"], copy["text"], again["text"]) == (
        "18", "36", "18", "18",
    )  # fmt: skip
    assert last["route"] == {"way": "recursive", "reason": f"continues {id_}"}
    assert (last["session_id"], again["session_id"]) == (id_, id_)
    assert copy["session_id"] != id_
    assert main(["sessions", "check", copy["session_id"]]) == 0


@pytest.mark.slow  # it starts Python processes
@pytest.mark.parametrize("answers", [0, 2])
def test_killed_rlm_run_is_finished_without_asking_again_what_was_answered(
    capfd: CAPFD, answers: int
) -> None:
    code = cell("found = map_lm(['1', '2', '3'], 'Twice?')", "FINAL(found)")
    whole = ask(capfd, "Well?", "--rlm", "--concurrency", "1", script=[code, "2", "4", "6"])
    journal = journal_of(whole["session_id"])
    lines = journal.read_bytes().splitlines(keepends=True)
    ends = [n for n, line in enumerate(lines) if b'"kind":"Settled"' in line]
    cut = ends[answers - 1] if answers else ends[0] - 1
    journal.write_bytes(b"".join(lines[: cut + 1]))

    rest = ask(capfd, "-r", whole["session_id"], script=["2", "4", "6"][answers:])

    assert (whole["text"], rest["text"]) == ('["2","4","6"]', '["2","4","6"]')
    assert rest["outcome"] == "final"


def test_resumed_flat_session_stays_flat(capfd: CAPFD) -> None:
    first = ask(capfd, "Which port?", "--context", "notes.txt", script=["8080"])

    then = ask(capfd, "As hex?", "-r", first["session_id"], script=["0x1f90"])
    main(["sessions", "show", first["session_id"], "--json"])

    assert (then["text"], then["route"]["way"]) == ("0x1f90", "flat")
    assert "read_file" not in capfd.readouterr().out


def test_a_flat_session_without_material_can_be_resumed(capfd: CAPFD) -> None:
    first = ask(capfd, "Which port?", script=["8080"])

    then = ask(capfd, "As hex?", "-r", first["session_id"], script=["0x1f90"])

    assert (then["text"], then["route"]["way"]) == ("0x1f90", "flat")


def test_rlm_flags_that_do_not_fit_a_resumed_session_are_refused(capfd: CAPFD) -> None:
    id_ = ask(capfd, "Which port?", "--context", "notes.txt", script=["8080"])["session_id"]
    before = journal_of(id_).read_bytes()

    for words, error in (
        (["x", "--fork"], "--fork is about an earlier session: add -r ID"),
        (["x", "--turn", "1"], "--turn is about an earlier session: add -r ID"),
        (["-r", id_], "has no interrupted turn to finish: write the next question"),
        (["-r", id_, "x", "--turn", "7"], "has no turn 7: 1 turn has ended"),
        (["-r", id_, "x", "--rlm"], "--rlm is for a new session"),
        (["-r", id_, "x", "--context", "notes.txt"], "--context is for a new session"),
        (["-r", id_, "x", "--child-model", "gone/m"], "there is no provider 'gone'"),
        (["x", "--leaf-model", "gone/m"], "there is no provider 'gone'"),
    ):
        assert main(["rlm", *words]) == 1
        assert error in capfd.readouterr().err

    assert journal_of(id_).read_bytes() == before


def test_a_session_of_another_agent_is_not_continued_by_rlm(capfd: CAPFD) -> None:
    Path("script.jsonl").write_bytes(msgspec.json.encode({"text": "Hello."}))
    main(["-p", "Hello", "--script", "script.jsonl", "--output-format", "json"])
    id_ = json.loads(capfd.readouterr().out)["session_id"]

    assert main(["rlm", "Well?", "-r", id_]) == 1
    assert f"is not a session of refold rlm: continue it with refold -r {id_}" in (
        capfd.readouterr().err
    )
