"""`refold mcp`: add, list, remove and test servers from the shell."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.running import command
from tests.mcp import fake_server


def refold(*arguments: str, cwd: Path, answer: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        command("mcp", *arguments), cwd=cwd, input=answer, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def file(home: Path) -> Path:
    return home / "refold" / "mcp_servers.json"


@pytest.mark.slow
def test_a_server_is_added_listed_and_removed(tmp_path: Path, file: Path) -> None:
    added = refold(
        "add", "x", "--no-start", "--env", "A=b=c", "--", "run", "--it", cwd=tmp_path
    )
    web = refold(
        "add", "y", "--no-start", "https://y.example", "--header", "K: v:w", cwd=tmp_path
    )
    data = json.loads(file.read_text())
    result = refold("list", cwd=tmp_path)
    removed = refold("remove", "x", cwd=tmp_path)

    assert (added[0], web[0], removed[0]) == (0, 0, 0)
    assert data == {
        "mcpServers": {
            "x": {"command": "run", "args": ["--it"], "env": {"A": "b=c"}},
            "y": {"type": "http", "url": "https://y.example", "headers": {"K": "v:w"}},
        }
    }
    assert "x  run --it\n    not connected yet" in result[1]
    assert list(json.loads(file.read_text())["mcpServers"]) == ["y"]


@pytest.mark.slow
def test_mcp_without_a_subcommand_lists_the_servers(tmp_path: Path, file: Path) -> None:
    refold("add", "s", "--no-start", "--", "server-of-mine", cwd=tmp_path)

    assert refold(cwd=tmp_path) == refold("list", cwd=tmp_path)
    assert "s  server-of-mine" in refold(cwd=tmp_path)[1]


@pytest.mark.slow
def test_adding_a_server_starts_it_and_reports_whether_it_works(
    tmp_path: Path, file: Path
) -> None:
    program = (sys.executable, fake_server.__file__)

    works = refold("add", "s", "--", *program, cwd=tmp_path)
    fails = refold("add", "f", "--", *program, "crash", cwd=tmp_path)

    assert "It works: 1 tool, 1 prompt, 1 resource." in works[1]
    assert "it does not work: its process exited with code 7: out of luck" in fails[2]
    assert "It may reach every host; --host HOST lets it reach only that one." in works[1]
    assert (works[0], fails[0]) == (0, 1)
    assert list(json.loads(file.read_text())["mcpServers"]) == ["s", "f"]


def answer_forms(*arguments: str, cwd: Path, answers: Sequence[str]) -> tuple[int, str]:
    """Run at a terminal, and type one of the answers whenever a form is there."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(
        command("mcp", *arguments), cwd=cwd, env=environ,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as program:  # fmt: skip
        os.close(theirs)
        screen, waiting = b"", list(answers)
        with suppress(OSError):  # the other side is closed
            while piece := os.read(ours, 1000):
                screen += piece
                if waiting and screen.endswith(b"form > "):
                    time.sleep(
                        0.6
                    )  # keys that were typed before the question do not answer it
                    os.write(ours, f"{waiting.pop(0)}\n".encode())
    os.close(ours)
    return program.returncode, screen.decode()


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("home")
def test_questions_of_a_server_being_added_or_tested_are_answered_at_the_terminal(
    tmp_path: Path,
) -> None:
    program = (sys.executable, fake_server.__file__, "ask-first")

    added = answer_forms("add", "s", "--", *program, cwd=tmp_path, answers=["1=red", ""])
    tested = answer_forms("test", "s", cwd=tmp_path, answers=["d"])

    assert "The MCP server s asks" in added[1]
    assert "sent: colour: red" in added[1]
    assert "It works" in added[1]
    assert "declined" in tested[1]
    assert "s (fake 1) is connected" in tested[1]
    assert (added[0], tested[0]) == (0, 0)


@pytest.mark.slow
def test_hosts_of_a_server_are_added_with_its_entry(tmp_path: Path, file: Path) -> None:
    hosts = ("--host", "api.example.org", "--host", "preset:pypi")

    added = refold("add", "s", "--no-start", *hosts, "--", "serve", cwd=tmp_path)
    wrong = refold("add", "w", "--no-start", "--host", "*", "--", "serve", cwd=tmp_path)

    assert added[0] == 0
    assert json.loads(file.read_text())["mcpServers"] == {
        "s": {"command": "serve", "args": [], "hosts": ["api.example.org", "preset:pypi"]}
    }
    assert (wrong[0], "--host: '*' names no host" in wrong[2]) == (1, True)


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_output_of_a_server_being_added_or_tested_is_logged_without_secrets(
    tmp_path: Path,
) -> None:
    code = "import os, sys; sys.exit('no ' + os.environ['API_TOKEN'])"
    program = (sys.executable, "-c", code)
    secret = "q8Zk3vT1xW5bN7mR"

    refold("add", "f", "--env", f"API_TOKEN={secret}", "--", *program, cwd=tmp_path)
    added = log_lines(tmp_path)
    refold("test", "f", cwd=tmp_path)
    tested = log_lines(tmp_path)

    assert any("MCP server f: no " in line for line in added)
    assert len(tested) > len(added)
    assert not [line for line in tested if secret in line]


def log_lines(directory: Path) -> list[str]:
    done = subprocess.run(
        command("logs", "-n", "100"), cwd=directory, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_started_server_leaves_nothing_in_tmp(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))

    added = refold("add", "s", "--", sys.executable, fake_server.__file__, cwd=tmp_path)

    assert "It works" in added[1]
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_server_may_not_write_to_a_directory_with_keys(
    tmp_path: Path, home: Path
) -> None:
    program = (sys.executable, fake_server.__file__)

    added = refold("add", "s", "--writable", str(home), "--", *program, cwd=tmp_path)

    assert f"cannot change files in {home}: there are keys or settings in it" in added[2]


@pytest.mark.slow
def test_a_project_server_may_write_to_a_directory_once_the_user_allows_it(
    tmp_path: Path,
) -> None:
    notes = tmp_path / "notes"
    data = {"command": "serve", "writable": [str(notes)]}
    work = tmp_path / "work"
    work.mkdir()
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"s": data}}))
    trusted = subprocess.run(
        command("trust", "add", "--yes"),
        cwd=work,
        capture_output=True,
        text=True,
        check=True,
    )

    before = refold("list", cwd=work)
    refold("allow", "s", str(notes), cwd=work)
    after = refold("list", cwd=work)

    assert f"and may change files in {notes}" in trusted.stdout
    assert f"it would change files in {notes}; to allow it: refold mcp allow s" in before[2]
    assert "s  serve" in after[1]


def test_a_server_is_added_at_the_top_of_a_file_without_an_mcpservers_object(
    tmp_path: Path, file: Path
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"old": {"command": "o", "other": 1}}')

    refold("add", "new", "--no-start", "--", "n", cwd=tmp_path)

    assert json.loads(file.read_text()) == {
        "old": {"command": "o", "other": 1},
        "new": {"command": "n", "args": []},
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "a__b", "x"), "'a__b' cannot be the name of an MCP server"),
        (("add", "a", "--env", "x", "y"), "'x' is not --env NAME=VALUE"),
        (("remove", "nope"), "has no MCP server 'nope'"),
        (
            ("test", "nope"),
            "there is no MCP server 'nope' here: refold mcp add adds one",
        ),
        (("add", "a", "ftp://x"), "'ftp://x' is not an http or https address"),
        (
            ("add", "a", "--env", "A=b", "https://x.example"),
            "--env is for a server that is a program: leave it out",
        ),
        (
            ("add", "a", "--header", "A: b", "--", "x"),
            "--header is for a server that is an address: leave it out",
        ),
    ],
)
def test_invalid_mcp_commands_are_refused_with_the_reason(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = refold(*arguments, cwd=tmp_path)

    assert (code, out) == (1, "")
    assert words in err


@pytest.mark.slow
def test_list_and_test_start_no_server_of_an_untrusted_folder(
    tmp_path: Path, file: Path
) -> None:
    started = tmp_path / "started"
    data = {"command": "touch", "args": [str(started)], "writes": True}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"s": data}}))
    (tmp_path / ".refold").mkdir()
    (tmp_path / ".refold" / "config.toml").write_text("[permissions]\nallow = ['mcp__s']\n")

    result = refold("list", cwd=tmp_path)
    tested = refold("test", "s", cwd=tmp_path)

    assert result[1] == "There are no MCP servers here. refold mcp add NAME adds one.\n"
    assert ".mcp.json" in result[2]
    assert "not trusted, so these settings are ignored" in result[2]
    assert tested[0] == 1
    assert not started.exists()


@pytest.mark.slow
def test_mcp_test_shows_changed_tools_and_accepts_them_only_on_request(
    tmp_path: Path, file: Path
) -> None:
    state = tmp_path / "tools.json"
    state.write_text(json.dumps([fake_server.ECHO]))
    program = tmp_path / "server.py"
    program.write_text(Path(fake_server.__file__).read_text())
    server = (sys.executable, str(program), "state", str(state))
    refold("add", "s", "--no-start", "--", *server, cwd=tmp_path)

    first = refold("test", "s", cwd=tmp_path)
    state.write_text(json.dumps([{**fake_server.ECHO, "description": "Other words."}]))
    changed = refold("test", "s", cwd=tmp_path, answer="y\n")
    result = refold("list", cwd=tmp_path)
    accepted = refold("test", "s", "--yes", cwd=tmp_path)
    again = refold("test", "s", cwd=tmp_path)

    assert first[1] == (
        "s (fake 1) is connected: 1 tool, 1 prompt, 1 resource.\n  echo  Say it again.\n"
    )
    assert changed[0] == 1  # a pipe has seen nothing
    assert "-Say it again.\n+Other words.\n" in changed[1]
    assert "0 tools, 1 blocked" in result[1]
    assert accepted[0] == 0
    assert "echo  Other words." in again[1]
