"""`refold sessions export` and `import`: files, formats and messages."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from refold.cli.main import main
from tests.views.planted import family, session_path

ID = "20260101-000000-abcd"
Output = pytest.CaptureFixture[str]


def export(capsys: Output, *flags: str, code: int = 0) -> str:
    assert main(["sessions", "export", ID, *flags]) == code
    return capsys.readouterr().out


def test_export_refuses_to_print_a_tar_to_a_terminal(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    family(session_path())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    assert main(["sessions", "export", ID, "--format", "tar"]) == 1

    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "",
        "refold: a tar is binary: give -o FILE, or write to a pipe\n",
    )


def test_export_prints_markdown_unless_another_format_is_named(capsys: Output) -> None:
    family(session_path())

    forms = [
        export(capsys, *more) for more in ((), ("--format", "html"), ("--format", "text"))
    ]

    assert [form.partition("\n")[0] for form in forms] == [
        "# find the bug",
        "<!doctype html>",
        "find the bug",
    ]


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.html", "<!doctype"), ("a.HTM", "<!doctype"), ("a.tar", "session.json"), ("a.txt", "find"), ("a", "# find")],
)  # fmt: skip
def test_export_chooses_the_format_by_the_file_extension(
    capsys: Output, tmp_path: Path, name: str, begins: str
) -> None:
    family(session_path())

    assert export(capsys, "-o", str(tmp_path / name)) == ""

    assert (tmp_path / name).read_text("utf-8").startswith(begins)
    assert os.listdir(tmp_path) == [name]


def test_export_overwrites_an_existing_file_only_with_force(
    capsys: Output, tmp_path: Path
) -> None:
    family(session_path())
    file = tmp_path / "a.md"
    file.write_text("mine", "utf-8")

    code = main(["sessions", "export", ID, "-o", str(file)])
    errors, text = capsys.readouterr().err, file.read_text("utf-8")
    export(capsys, "-o", str(file), "--force")

    assert (code, text) == (1, "mine")
    assert errors == f"refold: {file} already exists: choose another name, or use --force\n"
    assert file.read_text("utf-8").startswith("# find the bug")
    assert os.listdir(tmp_path) == ["a.md"]


@pytest.mark.parametrize("file", ["/dev/full", "/proc/none/a.md", "/"])
def test_export_reports_a_path_that_cannot_be_written(capsys: Output, file: str) -> None:
    family(session_path())

    assert main(["sessions", "export", ID, "-o", file]) == 1

    assert file in capsys.readouterr().err


def test_export_with_no_children_omits_subagents(capsys: Output) -> None:
    family(session_path())

    every = [
        export(capsys, "--format", f, "--no-children")
        for f in ("md", "html", "tar", "text")
    ]

    assert [text.count("Deep.") for text in every] == [0, 0, 0, 0]


def test_an_exported_subagent_is_imported_as_a_session_that_can_be_resumed(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    family(session_path())
    file, script = tmp_path / "s.tar", tmp_path / "answers.jsonl"
    script.write_text('{"text": "Deeper still."}')
    main(["sessions", "export", f"{ID}/child-1", "-o", str(file)])
    capsys.readouterr()

    assert main(["sessions", "import", str(file), "--directory", str(tmp_path)]) == 0

    output = capsys.readouterr()
    new = output.out.partition(":")[0]
    assert output.out == f"{new}: 2 sessions, 18 events\n"
    assert (
        f"the id {ID}/child-1 is the id of a subagent, so this has a new one" in output.err
    )
    main(["sessions", "export", new, "--format", "tar"])
    assert capsys.readouterr().out == file.read_text("utf-8")
    assert main(["-p", "go on", "-r", new, "--script", str(script)]) == 0
    assert main(["sessions", "export", f"{ID}/child-1"]) == 0
    assert "Deeper still." not in capsys.readouterr().out.partition("# find it")[2]


def test_an_imported_session_exports_the_same_bytes(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family(session_path())
    file = tmp_path / "s.tar"
    export(capsys, "-o", str(file))
    before = export(capsys, "--format", "tar")
    os.rename(session_path(), tmp_path / "away")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))

    assert main(["sessions", "import", "-"]) == 0

    assert capsys.readouterr().out == f"{ID}: 4 sessions, 59 events\n"
    assert main(["sessions", "check", ID]) == 0
    capsys.readouterr()
    assert export(capsys, "--format", "tar") == before == file.read_text("utf-8")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["nowhere.tar"], "nowhere.tar cannot be read"),
        (["."], ". cannot be read"),
        (["/dev/null"], "/dev/null is not an exported session"),
        (["/dev/null", "--directory", "nowhere"], "there is no such directory"),
    ],
)
def test_import_refuses_an_invalid_file_with_one_sentence(
    capsys: Output, value: list[str], message: str
) -> None:
    assert main(["sessions", "import", *value]) == 1

    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("form", ["md", "html", "tar", "text"])
def test_export_reports_a_journal_that_is_a_directory(capsys: Output, form: str) -> None:
    (session_path() / "events.jsonl").mkdir(parents=True)

    assert main(["sessions", "export", ID, "--format", form]) == 1

    assert capsys.readouterr().err.endswith(": Is a directory\n")


def test_export_reports_damaged_lines_and_exports_the_rest(capsys: Output) -> None:
    path = family(session_path())
    lines = (path / "events.jsonl").read_bytes().split(b"\n")
    (path / "events.jsonl").write_bytes(b"\n".join([*lines[:6], b"{}", b""]))

    for form in ("md", "html", "tar", "text"):
        assert main(["sessions", "export", ID, "--format", form]) == 1
        output = capsys.readouterr()
        assert "find the bug" in output.out
        assert "not exported: " in output.err
        assert "line 7" in output.err


@pytest.mark.slow
@pytest.mark.parametrize("form", ["md", "tar"])
def test_export_ends_without_an_error_when_the_pipe_is_closed(form: str) -> None:
    family(session_path())
    words = f"{sys.executable} -m refold sessions export {ID} --format {form} | head -c 10"

    done = subprocess.run(
        ["bash", "-c", words], capture_output=True, timeout=60, check=False
    )

    assert (len(done.stdout), done.stderr) == (10, b"")
