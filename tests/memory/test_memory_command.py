"""`refold memory`: showing, editing and forgetting notes."""

import json
import os
import sys
from pathlib import Path

import pytest

from refold.cli.main import main
from tests.memory.workplace import Workplace, note


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.chdir(tmp_path)
    workplace = Workplace(tmp_path)
    session = workplace.run_session("answer in German and use pnpm for packages")
    seqs = workplace.message_numbers(session)
    workplace.learn_from(
        session,
        note("person", "Answer in German", *seqs),
        note("decisions", "Use pnpm for packages", *seqs),
    )
    return workplace


def run_memory(capfd: pytest.CaptureFixture[str], *text: str) -> tuple[int, str, str]:
    capfd.readouterr()
    code = main(["memory", *text])
    output = capfd.readouterr()
    return code, output.out, output.err


def test_memory_show_numbers_notes_and_names_their_session(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    memory = place.remembering.memory
    (session,) = place.remembering.home.sessions()

    code, out, _ = run_memory(capfd, "show")

    sizes = [len(memory.text(whose).encode()) for whose in ("project", "person")]
    assert code == 0
    assert out == (
        f"{memory.file('project')} ({sizes[0]} of 4,096 bytes)\nDecisions\n"
        f"   1  Use pnpm for packages  [{session.id}]\n"
        f"{memory.file('person')} ({sizes[1]} of 4,096 bytes)\nPreferences\n"
        f"   2  Answer in German  [{session.id}]\n"
    )


def test_memory_show_prints_notes_as_json(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run_memory(capfd, "show", "--json", "--profile")

    (result,) = [json.loads(line) for line in out.splitlines()]
    assert (result["whose"], result["section"], result["text"]) == (
        "person",
        "Preferences",
        "Answer in German",
    )
    assert result["events"]


def test_memory_forget_takes_a_number_or_words(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    first = run_memory(capfd, "forget", "pnpm", "for")
    second = run_memory(capfd, "forget", "1")

    assert (first[1], second[1]) == (
        "forgotten: Use pnpm for packages\n",
        "forgotten: Answer in German\n",
    )
    assert place.notes == []


def test_forget_of_an_unknown_note_fails(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_memory(capfd, "forget", "tea")

    assert (code, err) == (
        1,
        "refold: no note contains 'tea' (refold memory show lists them)\n",
    )


def test_memory_forget_names_a_folder_file_with_the_same_note(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    (place.directory / ".agent").mkdir()
    (place.directory / ".agent" / "memory.md").write_text("- use pnpm for packages\n")

    _, _, err = run_memory(capfd, "forget", "pnpm")

    assert ".agent/memory.md in this folder says it too" in err


def test_memory_diff_shows_learned_notes_and_clears_the_notice(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run_memory(capfd, "diff")

    assert [line.split("  ", 1)[1] for line in out.splitlines()] == [
        "+ Decisions: Use pnpm for packages",
        "+ Preferences: Answer in German",
    ]
    assert place.remembering.notice() == ""


def test_memory_path_prints_the_paths_of_the_files(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [run_memory(capfd, "path", *more)[1].strip() for more in ((), ("--profile",))]

    assert paths == [str(place.remembering.memory.file(w)) for w in ("project", "person")]


def test_memory_edit_opens_the_notes_in_the_editor_of_the_user(
    place: Workplace, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys; open(sys.argv[1], 'a').write('## Mine\\n- mine ' + 'x' * 5000)"
    monkeypatch.setenv("EDITOR", f'{sys.executable} -c "{code}"')

    done = run_memory(capfd, "edit", "--profile")

    assert done[0] == 0
    assert "a model gets the first 4,096" in done[2]
    assert place.notes[-1][0] == "Mine"


def test_memory_edit_names_a_missing_editor(
    place: Workplace, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "no-such-editor --wait")

    code, _, err = run_memory(capfd, "edit")

    assert code == 1
    assert "there is no program 'no-such-editor'" in err


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("vim 'unclosed", "$EDITOR is not a command: No closing quotation"),
        ("", "there is no terminal to edit it in: the notes are in "),
    ],
)
def test_memory_edit_without_a_usable_editor_fails_with_one_sentence(
    place: Workplace,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    message: str,
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", named)
    with open(os.devnull, encoding="utf-8") as nobody:
        monkeypatch.setattr("sys.stdin", nobody)

        code, _, err = run_memory(capfd, "edit")

    assert (code, message in err) == (1, True)


def test_memory_show_escapes_control_and_hidden_characters(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    file = place.remembering.memory.file("project")
    file.write_text("## Decisions\n- a\x1b[2Jb\u202e\n## c\x1b]0;x\x07\n- d\n")

    _, out, _ = run_memory(capfd, "show")

    assert "\x1b" not in out
    assert "a\\x1b[2Jb\\u202e" in out


def test_memory_update_does_not_learn_from_scripted_sessions(
    place: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    session = place.run_session("we deploy on Fridays only")
    place.remembering.pending.put(session)

    code, out, _ = run_memory(capfd, "update")

    assert (code, out) == (0, "nothing new to remember\n")
    assert place.remembering.pending.sessions() == []


def test_memory_update_fails_if_memory_is_off(
    place: Workplace, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_MEMORY", "false")

    code, _, err = run_memory(capfd, "update")

    assert code == 1
    assert "memory is off" in err


def test_memory_show_without_notes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_memory(capfd, "show") == (
        0,
        "",
        "nothing is remembered here (docs/guides/memory.md)\n",
    )
    assert run_memory(capfd, "diff")[2] == "no note was added or removed automatically\n"
    assert not os.path.exists(os.environ["REFOLD_HOME"])
