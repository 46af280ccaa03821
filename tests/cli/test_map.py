"""`refold map`: the map of a repository, on the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refold.cli.main import main

CAPFD = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    (folder / "tests").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "tea.py").write_text("class Pot:\n    def pour(self): ...\n")
    (folder / "tests" / "test_tea.py").write_text(
        "from tea import Pot\n\n\ndef test_pouring():\n    Pot().pour()\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REFOLD_NO_BACKGROUND", "1")
    return folder


def test_map_show_prints_the_lines_of_the_best_definitions(capfd: CAPFD) -> None:
    assert main(["map", "show"]) == 0

    assert capfd.readouterr().out == ("tea.py\n  1: class Pot:\n  2: def pour(self): ...\n")


def test_map_show_of_a_symbol_prints_definitions_and_tests(capfd: CAPFD) -> None:
    assert main(["map", "show", "Pot.pour"]) == 0

    assert capfd.readouterr().out.splitlines() == [
        "defined (1):",
        "  tea.py:2: def pour(self): ...",
        "tested (1):",
        "  tests/test_tea.py:5 in test_pouring: Pot().pour()",
    ]


def test_map_show_of_a_file_prints_what_it_defines_and_its_tests(
    capfd: CAPFD, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "tests")  # the map is that of the repository around
    assert main(["map", "show", "tea.py"]) == 0

    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("tea.py: number ")
    assert lines[1:] == [
        "defines (2):", "  1: class Pot", "  2: method Pot.pour",
        "imported by (1):", "  tests/test_tea.py",
        "tests (1):", "  tests/test_tea.py",
        "related (1):", "  tests/test_tea.py",
    ]  # fmt: skip


def test_map_show_prints_documents_for_programs(capfd: CAPFD) -> None:
    main(["map", "show", "Pot", "--json"])
    symbol = json.loads(capfd.readouterr().out)
    main(["map", "show", "tea.py", "--json"])
    file = json.loads(capfd.readouterr().out)

    assert symbol["definitions"][0]["definition"]["line"] == 1
    assert {use["caller"] for use in symbol["tests"]} == {"", "test_pouring"}
    assert symbol["coverage"]["whole"]
    assert (file["path"], file["tests"]) == ("tea.py", ["tests/test_tea.py"])


def test_map_status_and_refresh_print_how_many_source_files_are_known(capfd: CAPFD) -> None:
    main(["map", "status", "--json"])
    before = json.loads(capfd.readouterr().out)
    main(["map", "refresh"])
    output = capfd.readouterr().out
    main(["map", "status"])
    after = capfd.readouterr().out

    assert (before["known"], before["listed"], before["building"]) == (0, 2, False)
    assert "2 of 2 source files known (100 %)" in output
    assert "2 of 2 source files known (100 %)" in after
    assert "ranked" in after


def test_map_show_of_a_file_names_who_changed_it(capfd: CAPFD, repository: Path) -> None:
    git = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    (repository / ".git").rmdir()
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "tea.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "Make tea"], check=True)

    main(["map", "show", "tea.py"])

    assert "changed by Ada (1)" in capfd.readouterr().out


def test_map_show_of_an_unknown_name_says_so(capfd: CAPFD) -> None:
    assert main(["map", "show", "Kettle"]) == 0

    assert capfd.readouterr().out == "Kettle is not defined and not used here\n"


def test_map_leaves_the_repository_as_it_was(repository: Path) -> None:
    before = sorted(path for path in repository.rglob("*"))
    main(["map", "refresh"])

    assert sorted(path for path in repository.rglob("*")) == before


@pytest.mark.slow  # it starts processes
def test_a_killed_map_build_continues_where_it_stopped(
    repository: Path, capfd: CAPFD
) -> None:
    for number in range(3_000):
        text = "".join(f"def f{number}_{n}(): ...\n" for n in range(60))
        (repository / f"m{number}.py").write_text(text)
    argv = [sys.executable, "-m", "refold", "map", "finish", "build", str(repository)]
    environ = {**os.environ, "REFOLD_NO_BACKGROUND": "1"}
    known = 0
    while known < 400:  # both processes have stored something
        process = subprocess.Popen(argv, env=environ, start_new_session=True)
        time.sleep(0.8)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        main(["map", "status", "--json"])
        known = json.loads(capfd.readouterr().out)["known"]

    main(["map", "refresh", "--json"])
    coverage = json.loads(capfd.readouterr().out)

    assert coverage["whole"]
    assert coverage["ranked"]
    main(["map", "show", "f2999_59", "--json"])
    assert json.loads(capfd.readouterr().out)["definitions"][0]["path"] == "m2999.py"


def write_script(path: Path, *answers: object) -> str:
    path.write_text("".join(json.dumps({"text": json.dumps(a)}) + "\n" for a in answers))
    return str(path)


READ = {"statements": [
    {"text": "A `Pot` pours.", "lines": "1", "quote": "def pour(self)"},
    {"text": "It boils.", "lines": "1", "quote": "def boil(self)"},
]}  # fmt: skip


def test_map_init_reads_once_and_ask_prints_claims_with_their_lines(
    capfd: CAPFD, repository: Path, tmp_path: Path
) -> None:
    answer = {
        "claims": [{"claim": "A `Pot` pours.", "from": [1]}, {"claim": "x", "from": [9]}]
    }
    read, answer_script = (
        write_script(tmp_path / "r", READ),
        write_script(tmp_path / "a", answer),
    )

    first = main(["map", "init", "--yes", "--script", read, "--json"])
    built = json.loads(capfd.readouterr().out)
    main(["map", "init", "--script", read])
    again = capfd.readouterr().out
    code = main(["map", "ask", "What pours?", "--script", answer_script])
    captured = capfd.readouterr()

    assert (first, built["asked"], built["fresh"], built["files_to_read"]) == (0, 1, 1, 0)
    assert built["estimate"]["pieces"] == 1
    assert again.splitlines()[0] == "nothing has changed"
    assert "1 dropped: with a quote that is not there" in again
    assert (code, captured.out) == (0, "A `Pot` pours.\n  tea.py:2  def pour(self)\n")
    assert "1 dropped: that follow from no fact" in captured.err


def test_map_export_and_status_mark_stale_statements_and_refresh_reads_them(
    capfd: CAPFD, repository: Path, tmp_path: Path
) -> None:
    read = write_script(tmp_path / "r", READ)
    main(["map", "init", "--yes", "--script", read])
    (repository / "tea.py").write_text("class Pot:\n    def pour(self): return 1\n")
    capfd.readouterr()

    main(["map", "status", "--json"])
    status = json.loads(capfd.readouterr().out)["statements"]
    main(["map", "export"])
    exported = capfd.readouterr().out
    code = main(["map", "ask", "Is it warm?", "--script", read])
    refused = capfd.readouterr().err
    main(["map", "refresh", "--yes", "--script", read])
    after = capfd.readouterr().out

    assert (status["fresh"], status["stale"], status["files_to_read"]) == (0, 1, 1)
    assert "- **stale:** A `Pot` pours.\n  - tea.py:2  def pour(self)\n" in exported
    assert code == 1
    assert "nothing that is known is fresh: refold map refresh --yes" in refused
    assert after.startswith("1 statement about 1 of 1 file\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["init"], "There is no terminal to answer at: repeat the command with --yes"),
        (["init", "..", "--yes"], "'..' is not in the repository"),
        (["init", "none", "--yes"], "'none' has no source files that can be read"),
        (["init", "--max-cost", "1"], "limit the tokens with --max-tokens"),
        (["ask", " "], 'write refold map ask "QUESTION"'),
        (["ask", "Why?"], "refold map init does that"),
        (["refresh", "--yes"], "refold map init does that"),
    ],
)
def test_map_refuses_an_incomplete_command_with_what_is_missing(
    arguments: list[str], problem: str, capfd: CAPFD, tmp_path: Path
) -> None:
    code = main(["map", *arguments, "--script", write_script(tmp_path / "s", READ)])

    assert code == 1
    assert problem in capfd.readouterr().err


def test_map_ask_without_a_supported_claim_exits_with_5(
    capfd: CAPFD, tmp_path: Path
) -> None:
    read = write_script(tmp_path / "r", READ)
    main(["map", "init", "--yes", "--script", read])
    answer_script = write_script(tmp_path / "a", {"claims": [{"claim": "x", "from": [7]}]})

    code = main(["map", "ask", "Why?", "--script", answer_script])

    assert code == 5
    assert "no claim that the files bear out" in capfd.readouterr().err
