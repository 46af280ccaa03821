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


def test_map_status_and_refresh_say_how_much_is_known(capfd: CAPFD) -> None:
    main(["map", "status", "--json"])
    before = json.loads(capfd.readouterr().out)
    main(["map", "refresh"])
    said = capfd.readouterr().out
    main(["map", "status"])
    after = capfd.readouterr().out

    assert (before["known"], before["listed"], before["building"]) == (0, 2, False)
    assert "2 of 2 source files known (100 %)" in said
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
def test_a_build_that_is_killed_goes_on_where_it_was(
    repository: Path, capfd: CAPFD
) -> None:
    for number in range(3_000):
        text = "".join(f"def f{number}_{n}(): ...\n" for n in range(60))
        (repository / f"m{number}.py").write_text(text)
    argv = [sys.executable, "-m", "refold", "map", "finish", "build", str(repository)]
    environ = {**os.environ, "REFOLD_NO_BACKGROUND": "1"}
    known = 0
    while known < 400:  # both processes have kept something
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
