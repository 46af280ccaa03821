"""`refold sessions`: list, search, name and delete."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from refold.cli.main import main
from refold.config.paths import paths
from refold.journal.events.kinds import Event, Said, SessionResumed, SessionStarted
from refold.journal.events.setting_events import Renamed
from refold.journal.journal_directory import JournalDirectory
from refold.place.checkpoints import Checkpoints
from refold.place.snapshot_repository import snapshot_directory
from refold.session.recorder import Recorder

CAPFD = pytest.CaptureFixture[str]
ID = re.compile(r"\d{8}-\d{6}-\w{4}")
EVIL = "safe\r\x1b]52;c;YQ==\x07\x9b2J\u202eevil"


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory to work in, and nothing on stdin."""
    path = tmp_path / "work"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))

    def at_once(*_: object) -> tuple[list[object], list[object], list[object]]:
        return [sys.stdin], [], []

    monkeypatch.setattr("select.select", at_once)
    return path


class Shell:
    """Runs commands, and returns the output of each."""

    def __init__(self, capfd: CAPFD) -> None:
        self._capfd = capfd

    def __call__(self, *text: str) -> tuple[int, str, str]:
        self._capfd.readouterr()
        code = main(text)
        output = self._capfd.readouterr()
        return code, output.out, output.err

    def sessions(self, *text: str) -> tuple[int, str, str]:
        return self("sessions", *text)

    def documents(self, *text: str) -> list[dict[str, Any]]:
        _, out, _ = self("sessions", *text, "--json")
        return [json.loads(line) for line in out.splitlines()]

    def ask(self, text: str, answer: str = "Done.") -> str:
        """Have it said in a session of its own. Its id."""
        script = Path("../script.json")
        script.write_bytes(msgspec.json.encode({"text": answer}))
        assert self("-p", text, "--script", str(script))[0] == 0
        return next(iter(home().sessions())).id


@pytest.fixture
def shell(capfd: CAPFD) -> Shell:
    return Shell(capfd)


def home() -> JournalDirectory:
    return JournalDirectory(paths(os.environ).data / "sessions")


async def _open_and_leave(id_: str, directory: Path) -> None:
    record = Recorder(home().store(id_))
    await record.open()
    await record(SessionStarted(str(directory)))
    await record.close()


def test_a_session_without_a_message_is_counted_and_not_listed(
    shell: Shell, workspace: Path
) -> None:
    full = shell.ask("Fix it.")
    empty = "20260101-000000-aaaa"
    anyio.run(_open_and_leave, empty, workspace)

    _, out, err = shell.sessions("list")

    assert (full in out, empty in out) == (True, False)
    assert "1 session without a message not listed (--json lists all)" in err
    assert {document["id"] for document in shell.documents("list")} == {full, empty}


async def _many_sessions(count: int, directory: Path) -> None:
    for n in range(count):
        record = Recorder(home().store(f"20260101-0000{n:02}-aaaa"))
        await record.open()
        await record(SessionStarted(str(directory)), Said(f"Task {n}."))
        await record.close()


@pytest.mark.slow
def test_a_terminal_gets_the_fifty_newest_sessions_and_a_pipe_all(
    shell: Shell, workspace: Path
) -> None:
    anyio.run(_many_sessions, 53, workspace)

    _, out, err = shell.sessions("list")
    on_terminal = _print_on_a_terminal("sessions", "list")

    assert (len(ID.findall(out)), err) == (53, "")
    assert len(ID.findall(on_terminal)) == 50
    assert "3 more sessions not listed (--json lists all)" in on_terminal
    assert "more sessions" not in _print_on_a_terminal("sessions", "list", "--limit", "2")


def _print_on_a_terminal(*text: str) -> str:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "refold", *text]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs) as program:
        os.close(theirs)
        data = b""
        try:
            while piece := os.read(ours, 10_000):
                data += piece
        except OSError:  # the other side is closed
            pass
    os.close(ours)
    assert program.returncode == 0
    return data.decode()


async def _run_of_a_schedule(id_: str, directory: Path, *events: Event) -> None:
    record = Recorder(home().store(id_))
    await record.open()
    started = SessionStarted(str(directory), schedule=1)
    await record(started, Said("Write the report."), *events)
    await record.close()


def test_list_hides_older_scheduled_runs_unless_a_user_named_or_resumed_them(
    shell: Shell, workspace: Path
) -> None:
    runs = [f"20260101-00000{n}-aaaa" for n in range(4)]
    anyio.run(_run_of_a_schedule, runs[0], workspace, Renamed("the good one"))
    anyio.run(_run_of_a_schedule, runs[1], workspace, Said("And then?"))
    anyio.run(_run_of_a_schedule, runs[2], workspace)
    anyio.run(_run_of_a_schedule, runs[3], workspace)

    _, out, err = shell.sessions("list")

    assert [id_ in out for id_ in runs] == [True, True, False, True]
    assert "1 earlier run of schedules not listed (--json lists all)" in err
    assert {document["id"] for document in shell.documents("list")} == set(runs)


def test_a_scheduled_run_is_not_continued_until_a_user_has_resumed_it(
    shell: Shell, workspace: Path
) -> None:
    mine, run = shell.ask("Fix it."), "20990101-000000-aaaa"
    anyio.run(_run_of_a_schedule, run, workspace)
    before = home().newest_of(workspace)
    anyio.run(_run_of_a_schedule, run, workspace, SessionResumed())
    after = home().newest_of(workspace)

    assert [session and session.id for session in (before, after)] == [mine, run]


def test_sessions_are_listed_with_name_title_and_tags(shell: Shell) -> None:
    first, second = shell.ask("mend the roof"), shell.ask("paint the door")
    sessions = shell.sessions("rename", first, "roof")
    tagged = shell.sessions("tag", "roof", "+house", "old", "-old")

    _, out, _ = shell.sessions("list")

    assert sessions == (0, f"{first} is called 'roof'\n", "")
    assert tagged == (0, "house\n", "")
    rows = [re.sub(r"  \d{4}-\d\d-\d\d \d\d:\d\d  ", " ", row) for row in out.splitlines()]
    assert rows == [
        f"{second} answered     paint the door",
        f"{first} answered     roof: mend the roof #house",
    ]


def test_a_name_or_a_tag_does_not_make_a_session_the_newest(shell: Shell) -> None:
    first, second = shell.ask("mend the roof"), shell.ask("paint the door")

    shell.sessions("rename", first, "roof")
    shell.sessions("tag", first, "x")

    assert [d["id"] for d in shell.documents("list")] == [second, first]
    assert shell("context", "--json")[0] == 0
    assert [d["tags"] for d in shell.documents("list")] == [[], ["x"]]


def test_a_session_is_resumed_by_the_beginning_of_its_name(shell: Shell) -> None:
    first = shell.ask("mend the roof")
    shell.ask("paint the door")
    shell.sessions("rename", first, "roof")

    shell("-p", "and the gutter", "-r", "roo", "--script", "../script.json")

    _, out, _ = shell.sessions("show", "roof")
    assert "and the gutter" in out
    assert shell.sessions("rename", "roof", "") == (0, f"{first} has no name\n", "")


def test_sessions_list_can_be_filtered_and_sorted(shell: Shell, workspace: Path) -> None:
    first, second = shell.ask("mend the roof"), shell.ask("a door")
    shell.sessions("tag", first, "house")
    elsewhere = workspace / "elsewhere"
    elsewhere.mkdir()
    os.chdir(elsewhere)

    there = shell.sessions("list")
    tagged = shell.documents("list", "--all", "--tag", "house")
    titles = shell.documents("list", "--all", "--sort", "title", "--limit", "1")

    assert there == (0, "", "no sessions in this directory (--all: in every one)\n")
    assert [d["id"] for d in tagged] == [first]
    assert [d["id"] for d in titles] == [second]
    assert tagged[0]["directory"] == str(workspace)


def test_sessions_search_finds_a_message_with_session_and_marked_words(
    shell: Shell,
) -> None:
    id_ = shell.ask("mend foo_bar in the roof", "The roof is mended.")

    code, out, err = shell.sessions("search", "roof", "mended")
    documents = shell.documents("search", "foo_bar")

    assert (code, err) == (0, "")
    head, row = out.splitlines()
    assert head.startswith(id_)
    assert head.endswith("mend foo_bar in the roof")
    assert re.fullmatch(r" +\d+  model  The roof is mended\.", row)
    (data,) = documents
    assert (data["session_id"], data["who"], data["title"]) == (
        id_, "person", "mend foo_bar in the roof",
    )  # fmt: skip
    assert [data["text"][a:b] for a, b in data["marked"]] == ["foo_bar"]
    assert shell.sessions("search", "gutter") == (
        1, "", "nothing found in this directory (--all: in every one)\n",
    )  # fmt: skip


@pytest.mark.parametrize("query", ['"', "*", "-", "\x00", "( OR"])
def test_sessions_search_for_punctuation_fails_with_one_line(
    shell: Shell, query: str
) -> None:
    shell.ask("mend the roof")

    code, out, err = shell.sessions("search", "--all", "--", query)

    assert (code, out) == (1, "")
    assert err.count("\n") == 1


def test_titles_names_and_snippets_of_sessions_are_escaped(shell: Shell) -> None:
    id_ = shell.ask(f"{EVIL} roof")
    shell.sessions("tag", id_, "x")

    out = "".join(
        shell.sessions(*words)[1]
        for words in (["list"], ["list", "--all"], ["search", "roof"])
    )

    assert r"safe \x1b]52" in out
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out) == []
    assert shell.sessions("rename", id_, EVIL)[0] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rename", "ID", "--", "-x"], "'-x' is not a valid name: - begins a flag"),
        (["rename", "ID", "last"], "'last' is not a valid name"),
        (
            ["rename", "ID", "a/child-1"],
            "'a/child-1' is not a valid name: /child-1 is the address of a",
        ),
        (["rename", "ID", "x" * 81], "is not a valid name: it has 81 characters"),
        (["rename", "ID", "a\nb"], r"'a\nb' is not a valid name: it contains invisible"),
        (["tag", "ID", "+"], "'+' is not a valid tag: give +TAG or -TAG"),
        (["tag", "ID", "a b"], "'a b' is not a valid tag"),
        (["tag", "ID", "-gone"], "there is no tag 'gone' to remove (there are: none)"),
        (["tag", "ID", *(f"t{n}" for n in range(21))], "at most 20 tags, not 21"),
        (["delete", "ID", "nobody"], "there is no session 'nobody'"),
        (["list", "--limit", "0"], "'0' is not a number: 1 or more"),
        (["requests", "ID", "x"], "'x' is not a number: 1 or more"),
        (["export", "ID", "-o", ""], "-o is empty: give the name of a file"),
        (["import", ""], "'' cannot be read: Is a directory"),
        (["show", "last/child-1"], "has no subagent 'child-1'"),
        (["show", "last/x"], "has no subagent 'x'"),
        (["rename", "ID/child-1", "x"], "has no subagent 'child-1'"),
    ],
)
def test_an_invalid_sessions_command_changes_no_session(
    shell: Shell, words: list[str], message: str
) -> None:
    id_ = shell.ask("mend the roof")
    before = home().path(id_).joinpath("events.jsonl").read_bytes()

    code, out, err = shell.sessions(*(word.replace("ID", id_) for word in words))

    assert (code, out) == (1, "")
    assert message in err
    assert home().path(id_).joinpath("events.jsonl").read_bytes() == before


def test_sessions_delete_without_a_terminal_needs_yes(shell: Shell) -> None:
    id_ = shell.ask("mend the roof")

    sessions = shell.sessions("delete", id_)
    there = home().path(id_).exists()
    code, out, _ = shell.sessions("delete", id_, "--yes")

    assert sessions[0] == 1
    assert sessions[2] == (
        "refold: there is no terminal to ask at: give --yes to delete without asking\n"
    )
    assert there
    assert code == 0
    assert re.fullmatch(
        rf"{id_}  [\d.]+ kB  mend the roof\nDeleted: 1 session, [\d.]+ kB\.\n", out
    )
    assert not home().path(id_).exists()
    assert shell.sessions("search", "--all", "roof")[0] == 1


def test_an_open_session_cannot_be_deleted_or_renamed(shell: Shell) -> None:
    id_ = shell.ask("mend the roof")

    async def run_while_open(*text: str) -> tuple[int, str, str]:
        store = home().store(id_)
        await store.lease()
        try:
            return await anyio.to_thread.run_sync(lambda: shell.sessions(*text))
        finally:
            await store.release()

    deleted = anyio.run(run_while_open, "delete", id_, "--yes")
    renamed = anyio.run(run_while_open, "rename", id_, "roof")

    assert deleted == (
        1, "",
        f"refold: the session {id_} is open in another process: leave it there first\n",
    )  # fmt: skip
    assert renamed[0] == 1
    assert "is being written by process" in renamed[2]


def test_snapshots_are_deleted_with_the_last_session_of_their_workspace(
    shell: Shell, workspace: Path
) -> None:
    first, second = shell.ask("mend the roof"), shell.ask("paint the door")
    store = paths(os.environ).data / "checkpoints"
    (workspace / "a.txt").write_text("one")
    for id_ in (first, second):
        anyio.run(Checkpoints([workspace], store, os.environ, id_).take)
    there = snapshot_directory(store, os.path.realpath(workspace))

    shell.sessions("delete", first, "--yes")
    between = sorted(os.listdir(there / "sessions"))
    _, out, _ = shell.sessions("delete", second, "--yes")

    assert between == [second]
    assert ", and its snapshots of files  paint the door" in out
    assert not there.exists()


def test_snapshots_remain_for_a_session_that_moved_to_another_directory(
    shell: Shell, workspace: Path, tmp_path: Path
) -> None:
    moved, last = shell.ask("mend the roof"), shell.ask("paint the door")
    store = paths(os.environ).data / "checkpoints"
    for id_ in (moved, last):
        anyio.run(Checkpoints([workspace], store, os.environ, id_).take)
    anyio.run(_move_session, moved, tmp_path)

    shell.sessions("delete", last, "--yes")

    there = snapshot_directory(store, os.path.realpath(workspace))
    assert os.listdir(there / "sessions") == [moved]
    assert (there / "objects").is_dir()


def test_snapshots_remain_while_a_damaged_session_may_need_them(
    shell: Shell, workspace: Path
) -> None:
    damaged, last = shell.ask("mend the roof"), shell.ask("paint the door")
    store = paths(os.environ).data / "checkpoints"
    anyio.run(Checkpoints([workspace], store, os.environ, last).take)
    journal = home().path(damaged) / "events.jsonl"
    journal.write_bytes(b"?" + journal.read_bytes())

    shell.sessions("delete", last, "--yes")

    there = snapshot_directory(store, os.path.realpath(workspace))
    assert os.listdir(there / "sessions") == []
    assert (there / "objects").is_dir()


def test_sessions_delete_deletes_none_if_one_of_them_is_a_symlink(shell: Shell) -> None:
    text, stuck = shell.ask("mend the roof"), shell.ask("paint the door")
    elsewhere = home().path(stuck).rename(home().root.parent / "elsewhere")
    home().path(stuck).symlink_to(elsewhere)

    code, out, err = shell.sessions("delete", text, stuck, "--yes")

    assert (code, out) == (1, "")
    assert f"{stuck} is a link" in err
    assert home().path(text).is_dir()


async def _move_session(id_: str, directory: Path) -> None:
    record = Recorder(home().store(id_))
    await record.open()
    await record(SessionResumed("0.1.0", directory=str(directory)))
    await record.close()


def test_sessions_reindex_rebuilds_the_catalogue(shell: Shell) -> None:
    shell.ask("mend the roof")
    before = shell.documents("list")

    code, out, _ = shell.sessions("reindex")
    (built,) = shell.documents("reindex")

    assert code == 0
    assert re.fullmatch(r"1 session, 2 messages, [\d.]+ s, [\d.]+ kB\n", out)
    assert (built["sessions"], built["messages"]) == (1, 2)
    assert shell.documents("list") == before


def test_reindex_repairs_sessions_whose_directory_was_masked(
    shell: Shell, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace.parent))
    shell.ask("mend the roof")  # so that its directory is known
    for id_, stored in (
        ("20260101-000000-aaaa", f"[secret]/{workspace.name}"),
        ("20260101-000000-bbbb", f"[secret:3f2a]/{workspace.name}"),
        ("20260101-000000-cccc", "[secret]/nowhere"),
        ("20260101-000000-dddd", "[secret]"),
    ):
        anyio.run(_open_and_leave, id_, Path(stored))
    times = {p: p.stat().st_mtime_ns for p in home().root.glob("*/events.jsonl")}

    code, out, err = shell.sessions("reindex")

    assert code == 0
    assert out.count(f"it works in {workspace} again") == 2
    assert err.count("was not repaired: which directory that was is not known") == 2
    at = {
        session.id: home().directories(session.id).directory
        for session in home().sessions()
    }
    assert at["20260101-000000-aaaa"] == at["20260101-000000-bbbb"] == str(workspace)
    assert {p: p.stat().st_mtime_ns for p in times} == times
    assert [shell.sessions("check", id_)[0] for id_ in at] == [0] * 5
    assert "stored under" not in shell.sessions("reindex")[1]


@pytest.mark.slow
def test_resume_without_an_id_in_a_script_lists_the_newest_sessions(shell: Shell) -> None:
    nothing = shell("-r")
    ids = [shell.ask(f"say {n}") for n in range(6)]

    code, out, err = shell("-p", "-r")

    assert nothing[2].startswith("refold: no session was started in")
    assert (code, out) == (1, "")
    assert (
        err
        == "refold: -r needs a session in a pipe or a script; the newest here are\n"
        + "".join(f"  {id_} ('say {5 - n}')\n" for n, id_ in enumerate(reversed(ids[1:])))
    )


@pytest.mark.parametrize("text", ["list", "search", "reindex", "delete", "rename", "tag"])
def test_each_sessions_subcommand_has_help(shell: Shell, text: str) -> None:
    with pytest.raises(SystemExit) as left:
        shell.sessions(text, "--help")

    assert left.value.code == 0


def test_sessions_in_files_cannot_be_moved_to_files(shell: Shell) -> None:
    code, out, err = shell.sessions("move", "--all", "--to", "files")

    assert (code, out) == (1, "")
    assert "--to files: REFOLD_SESSIONS names no database to move sessions from" in err
