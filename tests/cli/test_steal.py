"""`--steal`: a session is taken from a process that hangs, and from no other.

The holders are real processes, and so are those that take the session from them.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from refold.client.session_holder import end_holder, explain_held, find_holder
from refold.client.session_socket import socket_path
from refold.config.paths import paths
from refold.errors import BadInput, Held
from refold.journal.events.kinds import Ended, Entry, HolderEnded
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store import writer_lock
from tests.cli.running import LONG, call, command, script, start_refold
from tests.journal.journals import append_as_next_writer
from tests.terminal.pty_terminal import CTRL_C, ENTER, STAGE, Terminal

WAIT = call("bash", command="touch begun; sleep 300")
DONE = {"text": "Done."}
TASK = ("-p", "wait", "--yolo", "--script")
# Holds the lock of the session whose directory it gets. "deaf" ignores SIGTERM, and any other
# word is a socket on which it listens and never answers.
HOLDER = """
import signal, socket, sys, anyio
from pathlib import Path
from refold.journal.store.file import FileStore
listener = socket.socket(socket.AF_UNIX)
if sys.argv[2:] == ["deaf"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif sys.argv[2:]:
    listener.bind(sys.argv[2])
    listener.listen()
store = FileStore(Path(sys.argv[1]))
anyio.run(store.lease)
print("leased", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def project_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFOLD_SANDBOX__PROFILE", "off")
    return tmp_path


def index() -> JournalDirectory:
    return JournalDirectory(paths(os.environ).data / "sessions")


def only_session() -> str:
    (session,) = index().sessions()
    return session.id


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def run_refold(project_directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a process that has a session open, whose call runs."""
    with start_refold(*TASK, script(project_directory, WAIT, DONE)) as process:
        wait_until((project_directory / "begun").exists)
        yield process


@contextmanager
def lock_holder(directory: Path, *text: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), *text],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "leased\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def steal(project_directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    answers = script(project_directory, DONE, name="steal.jsonl")
    return subprocess.run(
        command("-p", "go on", "--script", answers, "-c", *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


def entries() -> list[Entry]:
    return index().entries(only_session())[0]


def ended_holders() -> list[HolderEnded]:
    return [e.event for e in entries() if isinstance(e.event, HolderEnded)]


@pytest.mark.slow
def test_steal_kills_a_suspended_process_and_does_not_repeat_its_call(
    project_directory: Path,
) -> None:
    with run_refold(project_directory) as holder:
        holder.send_signal(signal.SIGSTOP)

        completed_process = steal(project_directory)
        alive = holder.poll()
        stolen = steal(project_directory, "--steal")

        code = holder.wait(LONG)
    assert (completed_process.returncode, alive) == (1, None)
    assert (
        "is stopped (Ctrl+Z or SIGSTOP): add --steal to end it" in completed_process.stderr
    )
    assert (stolen.returncode, stolen.stdout) == (0, "Done.\n"), stolen.stderr
    assert code != 0
    (event,) = ended_holders()
    assert (event.pid, event.host) == (holder.pid, os.uname().nodename)
    assert event.command.startswith("refold -p wait --yolo")
    (end,) = [e.event for e in entries() if isinstance(e.event, Ended)]
    assert end.outcome != "done"


@pytest.mark.slow
def test_steal_does_not_kill_a_process_that_responds(project_directory: Path) -> None:
    with run_refold(project_directory) as holder:
        completed_process, again = (
            steal(project_directory),
            steal(project_directory, "--steal"),
        )

        assert holder.poll() is None
    assert (completed_process.returncode, again.returncode) == (1, 1)
    assert "--steal" not in completed_process.stderr
    assert f"if it hangs, end it with `kill {holder.pid}`" in again.stderr
    assert ended_holders() == []


@pytest.mark.slow
def test_steal_resumes_a_session_of_a_dead_process_without_killing_any(
    project_directory: Path,
) -> None:
    with run_refold(project_directory) as holder:
        holder.kill()
        holder.wait()

        stolen = steal(project_directory, "--steal")

    assert stolen.returncode == 0, stolen.stderr
    assert ended_holders() == []
    (end,) = [e.event for e in entries() if isinstance(e.event, Ended)]
    assert end.outcome == "unknown"


@pytest.mark.slow
def test_exactly_one_of_two_concurrent_steals_gets_the_session(
    project_directory: Path,
) -> None:
    with run_refold(project_directory) as holder:
        holder.send_signal(signal.SIGSTOP)
        (project_directory / "begun").unlink()
        wish = (
            "-p",
            "on",
            "--yolo",
            "-c",
            "--steal",
            "--script",
            script(project_directory, WAIT),
        )

        with start_refold(*wish) as first, start_refold(*wish) as second:
            wait_until(lambda: first.poll() is not None or second.poll() is not None)
            wait_until((project_directory / "begun").exists)
            loser, winner = (first, second) if first.poll() is not None else (second, first)
            assert (loser.returncode, winner.poll()) == (1, None)
            winner.kill()
            _, notes = winner.communicate()

    # The winner killed nothing if it looked when the loser had already killed the holder.
    assert len(ended_holders()) == notes.count(b"was killed")


def store_session(project_directory: Path) -> tuple[str, Path]:
    """Return a session that no process has open, and its directory."""
    assert subprocess.run(
        command("-p", "hi", "--script", script(project_directory, DONE)),
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    ).returncode == 0  # fmt: skip
    return only_session(), index().path(only_session())


@pytest.mark.slow
def test_a_session_holder_that_ignores_sigterm_is_killed(project_directory: Path) -> None:
    session, directory = store_session(project_directory)
    with lock_holder(directory, "deaf") as holder:
        holder.send_signal(signal.SIGSTOP)
        wait_until(lambda: (f := find_holder(index(), session)) is not None and f.hangs)
        result = find_holder(index(), session)
        assert result is not None
        assert result.pid == holder.pid

        end_holder(index(), result, seconds=0.3)

        assert holder.wait(LONG) == -signal.SIGKILL
    assert anyio.run(append_as_next_writer, directory, b"on")[0] == b""


@pytest.mark.slow
def test_a_session_holder_whose_socket_does_not_answer_counts_as_hanging(
    project_directory: Path,
) -> None:
    session, directory = store_session(project_directory)
    with tempfile.TemporaryDirectory(prefix="r") as runtime:
        environ = {"XDG_RUNTIME_DIR": runtime}
        path = socket_path(directory, environ)
        path.parent.mkdir()
        with lock_holder(directory, str(path)):
            holder = find_holder(index(), session, environ)

    assert holder is not None
    assert (holder.state, holder.hangs) == ("silent", True)
    assert holder.state_text == "has not answered for 5 s"


@pytest.mark.slow
def test_steal_does_not_kill_a_process_that_reuses_the_pid_of_the_holder(
    project_directory: Path,
) -> None:
    session, directory = store_session(project_directory)
    with lock_holder(directory) as holder:
        old = find_holder(index(), session)
        assert old is not None
        holder.kill()
        holder.wait()
        with subprocess.Popen(["sleep", "300"]) as foreign:
            reused = msgspec.structs.replace(old, pid=foreign.pid)

            with pytest.raises(BadInput, match="does not hold"):
                end_holder(index(), reused)
            _name_as_writer(directory, foreign.pid, os.uname().nodename)
            result = find_holder(index(), session)
            stolen = steal(project_directory, "--steal")

            alive = foreign.poll()
            foreign.kill()
    assert (result, alive) == (None, None)
    assert stolen.returncode == 0, stolen.stderr
    assert ended_holders() == []


@pytest.mark.slow
def test_steal_is_refused_when_the_holder_is_on_another_host(
    project_directory: Path,
) -> None:
    session, directory = store_session(project_directory)
    with lock_holder(directory) as holder:
        _name_as_writer(directory, holder.pid, "far.example")
        holder.send_signal(signal.SIGSTOP)

        completed_process = steal(project_directory, "--steal")
        result = explain_held(index(), session, Held("held"))

        alive = holder.poll()
    assert (completed_process.returncode, alive) == (1, None)
    assert f"process {holder.pid} on far.example" in completed_process.stderr
    assert "a process of another machine cannot be stopped from here" in str(result)


def _name_as_writer(directory: Path, pid: int, host: str) -> None:
    """Write the note of the writer for this process, whichever process has the lock."""
    file = directory / writer_lock.FILE_NAME
    data = file.read_bytes()
    writer = writer_lock.Writer(99, pid, host, time.time())
    file.write_bytes(data[: writer_lock.HEAD_WIDTH] + msgspec.json.encode(writer) + b"\n")


def test_steal_needs_a_session_to_resume(project_directory: Path) -> None:
    for arguments, reason in (
        (("--steal",), "--steal takes a session over: say which, with -c or -r ID"),
        (("--steal", "--fork", "-c"), "leave --steal out"),
    ):
        done = subprocess.run(
            command("-p", "hi", *arguments), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, reason in done.stderr) == (1, True), done.stderr


@pytest.mark.slow
def test_steal_asks_before_killing_and_offers_to_join_a_responding_process(
    project_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compiled = tmp_path_factory.mktemp("c")
    program = STAGE.with_name("stage_program.py")
    answers = ("--script", script(project_directory, DONE, DONE))
    owner = Terminal(
        program, *answers, "hi", directory=project_directory, compiled=compiled
    )
    terminals = [owner]
    try:
        owner.until("Done.")
        asking = Terminal(
            program,
            *answers,
            "-c",
            "--steal",
            directory=project_directory,
            compiled=compiled,
        )
        terminals.append(asking)
        asking.until("answers. Join it? [y/N]")
        asking.type("n" + ENTER)
        asking.until("was not ended: join it with")

        os.kill(owner.child.pid, signal.SIGSTOP)
        thief = Terminal(
            program,
            *answers,
            "-c",
            "--steal",
            directory=project_directory,
            compiled=compiled,
        )
        terminals.append(thief)
        thief.until("End it and continue here? [y/N]")
        thief.type("y" + ENTER)
        thief.until("had this session open and was killed:")
        owner.child.wait()
        thief.type(CTRL_C)
    finally:
        for terminal in terminals:
            terminal.child.close(force=True)
    (event,) = ended_holders()
    assert event.pid == owner.child.pid


@pytest.mark.slow
def test_continuing_a_session_that_a_terminal_has_open_offers_to_join_it(
    project_directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compiled = tmp_path_factory.mktemp("c")
    program = STAGE.with_name("stage_program.py")
    answers = ("--script", script(project_directory, DONE, DONE))
    terminals = [
        Terminal(program, *answers, "hi", directory=project_directory, compiled=compiled)
    ]
    try:
        terminals[0].until("Done.")
        refused = Terminal(
            program, *answers, "-c", directory=project_directory, compiled=compiled
        )
        terminals.append(refused)
        refused.until("which answers. Join it? [y/N]")
        refused.type("n" + ENTER)
        refused.until("is being written by process")

        joined = Terminal(
            program, *answers, "-c", directory=project_directory, compiled=compiled
        )
        terminals.append(joined)
        joined.until("which answers. Join it? [y/N]")
        joined.type("y" + ENTER)
        joined.until("Done.")
    finally:
        for terminal in terminals:
            terminal.child.close(force=True)
