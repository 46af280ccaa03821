"""A sandbox that is set up before its command: who gets it, and what it shows then."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.errors import ToolFailed
from refold.place.port import CommandExtras, Finished
from refold.place.reaper import ENVIRONMENT_NAME, owner_token
from refold.place.sandbox_ahead import SandboxAhead
from refold.place.spawn import SpawnRequest
from refold.testing.providers import ScriptedProvider
from refold.values.tools import Confinement
from tests.place.walled import LONG, Walled, list_marked, needs_bubblewrap, walled

MAX_WAITING = 32  # sandboxes of one process
BORN = f"echo ${ENVIRONMENT_NAME}; "  # its last number says when its sandbox was begun


class TimedOutput:
    """The output of a command, and whether its sandbox was ready before the command was
    ordered.
    """

    def __init__(self, finished: Finished, ordered: int) -> None:
        token, _, self.text = finished.text.partition("\n")
        self.ahead, self.found = int(token.rpartition(".")[2]) < ordered, finished


def prepare_next(ws: Walled, *, writes: bool = False) -> None:
    """A command has run, and another like it may come."""
    ws.run("true", writes=writes)
    wait_for_next_command(ws)


def wait_for_next_command(ws: Walled) -> None:
    """Wait until the shell in the sandbox of a next command is ready."""
    while not waiting_shells(ws):
        time.sleep(0.001)


def waiting_shells(ws: Walled) -> list[str]:
    return [
        words
        for words in own_command_lines(ws.root)
        if "read -r go" in words and words.startswith("/bin/bash")
    ]


def run_timed(ws: Walled, command: str, *, writes: bool = False) -> TimedOutput:
    ordered = time.monotonic_ns()
    return TimedOutput(ws.run(BORN + command, writes=writes), ordered)


@pytest.mark.parametrize("writes", [False, True])
def test_the_next_command_runs_in_the_prepared_sandbox(ws: Walled, writes: bool) -> None:
    first = run_timed(ws, "echo one", writes=writes)
    wait_for_next_command(ws)

    result = run_timed(ws, "echo two; exit 3", writes=writes)

    assert (first.ahead, first.text) == (False, "one\n")
    assert (result.ahead, result.text, result.found.code) == (True, "two\n", 3)


def test_connections_work_after_the_listener_of_an_earlier_command_ended(
    ws: Walled,
) -> None:
    # It asks a listener about each connect, which ends with its command.
    connects = (
        'python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        'socket.create_connection(s.getsockname()); print("connected")\''
    )
    first = run_timed(ws, connects)
    wait_for_next_command(ws)

    result = run_timed(ws, connects)

    assert (first.ahead, first.text) == (False, "connected\n")
    assert (result.ahead, result.text) == (True, "connected\n")


def test_commands_that_hide_files_share_the_prepared_sandbox(ws: Walled) -> None:
    hiding = ws.commands.with_hidden_paths(lambda: ())

    async def main() -> None:
        await hiding.run("true", cwd=str(ws.root), seconds=9)

    anyio.run(main)
    wait_for_next_command(ws)

    assert run_timed(ws, "true").ahead


def test_only_one_of_two_concurrent_commands_gets_the_prepared_sandbox(ws: Walled) -> None:
    prepare_next(ws)
    ordered, finished_commands = time.monotonic_ns(), list[Finished]()

    async def one() -> None:
        finished_commands.append(
            await ws.commands.run(f"{BORN}sleep 0.05", cwd=str(ws.root), seconds=9)
        )

    async def run_both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)

    anyio.run(run_both)

    assert sorted(TimedOutput(item, ordered).ahead for item in finished_commands) == [
        False,
        True,
    ]
    wait_for_next_command(ws)
    assert len(waiting_shells(ws)) == 1


def test_the_next_sandbox_is_set_up_while_a_command_runs(ws: Walled) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(run_in, ws, "sleep 1000")
            while not waiting_shells(ws):  # the time limit of tests ends this
                await anyio.sleep(0.001)
            second = await ws.commands.run("echo two", cwd=str(ws.root), seconds=LONG)
            assert second.text == "two\n"
            group.cancel_scope.cancel()

    anyio.run(main)


async def run_in(ws: Walled, command: str) -> None:
    await ws.commands.run(command, cwd=str(ws.root), seconds=LONG)


@pytest.mark.parametrize("writes", [False, True])
def test_a_sandbox_prepared_before_a_folder_was_renamed_is_not_used(
    ws: Walled, writes: bool
) -> None:
    (ws.root / "sub").mkdir()
    confines = Confinement(writes=writes)

    async def main() -> TimedOutput:
        async with anyio.create_task_group() as group:

            async def go() -> None:
                await ws.commands.run(
                    "until [ -e go ]; do sleep 0.01; done",
                    cwd=str(ws.root), seconds=LONG, confines=confines,
                )  # fmt: skip

            group.start_soon(go)
            while not waiting_shells(ws):  # the time limit of tests ends this
                await anyio.sleep(0.001)
            rename_folder(ws.root)
            (ws.root / "go").touch()
        ordered = time.monotonic_ns()
        return TimedOutput(
            await ws.commands.run(f"{BORN}cat other/.env", cwd=str(ws.root), seconds=LONG),
            ordered,
        )

    after = anyio.run(main)

    assert not after.ahead
    assert "key" not in re.sub("holds? keys", "", after.text)


def test_a_sandbox_is_prepared_for_reading_and_for_writing_commands(ws: Walled) -> None:
    prepare_next(ws, writes=False)
    ws.run("true", writes=True)
    while len(waiting_shells(ws)) < 2:  # the time limit of tests ends this
        time.sleep(0.001)

    reading = run_timed(ws, "true", writes=False)
    writing = run_timed(ws, "true", writes=True)

    assert (reading.ahead, writing.ahead) == (True, True)


def test_two_sandboxes_wait_if_commands_come_faster_than_they_are_set_up(
    ws: Walled,
) -> None:
    while len(waiting_shells(ws)) < 2:  # the time limit of tests ends this
        ws.run("true", writes=False)
    time.sleep(0.1)  # then both are ready
    for _ in range(2):
        run_timed(ws, "true")
        wait_for_next_command(ws)

    assert len(waiting_shells(ws)) == 1


def test_the_oldest_sandbox_ends_if_too_many_wait(ws: Walled) -> None:
    cwd = str(ws.root)
    order = SpawnRequest("", cwd, Confinement(), {"PATH": "/usr/bin:/bin"})
    launch = ws.sandbox.launch_without_guards(cwd, Confinement())
    aheads = [SandboxAhead(order, launch) for _ in range(MAX_WAITING + 1)]

    aheads[0].wait_until_ended()

    assert [ahead for ahead in aheads[1:] if ahead.has_ended] == []
    for ahead in aheads:
        ahead.close()
        ahead.wait_until_ended()


def test_a_timed_out_command_leaves_no_prepared_sandbox(ws: Walled) -> None:
    async def main() -> Finished:
        return await ws.commands.run("sleep 9", cwd=str(ws.root), seconds=0.05)

    assert anyio.run(main).timed_out
    assert own_command_lines(ws.root) == []


def test_a_writing_command_does_not_use_a_prepared_read_only_sandbox(ws: Walled) -> None:
    prepare_next(ws, writes=False)

    result = run_timed(ws, "echo a > a; cat a", writes=True)

    assert (result.ahead, result.text) == (False, "a\n")


def test_an_offline_command_does_not_use_a_prepared_sandbox_with_network(
    ws: Walled,
) -> None:
    ws.run("true", network=True)
    wait_for_next_command(ws)

    result = run_timed(ws, "readlink /proc/self/ns/net", writes=True)

    assert not result.ahead
    assert result.text.strip() != os.readlink("/proc/self/ns/net")


def test_a_prepared_sandbox_looks_like_a_fresh_one(ws: Walled) -> None:
    look = "env | sort | grep -v ^REFOLD_CALLS=; ls /proc/self/fd /; cat; echo $0 $# $-; cat /proc/mounts"
    one = run_timed(ws, look)
    wait_for_next_command(ws)

    other = run_timed(ws, look)

    assert (one.ahead, other.ahead) == (False, True)
    assert other.text == one.text


def test_a_command_with_extra_variables_gets_a_new_sandbox(ws: Walled) -> None:
    prepare_next(ws)
    ordered = time.monotonic_ns()

    async def main() -> Finished:
        extras = CommandExtras(environ={"TOKEN": "t"})
        return await ws.commands.run(
            f"{BORN}echo $TOKEN", cwd=str(ws.root), seconds=9, extras=extras
        )

    result = TimedOutput(anyio.run(main), ordered)

    assert (result.ahead, result.text) == (False, "t\n")


@pytest.mark.parametrize(
    "command",
    [
        "printf '%s|' a\\\\b \"c\td\"  'é😀' $'\\x81'",
        "cat <<'E'\n  two\n\nlines\nE\n",
        "echo 'a\nb' # said\n\n",
        "echo " + "x" * 50_000,
        "echo \udcff\udc81",
    ],
    ids=["quoted", "here", "newlines", "long", "no text"],
)
def test_a_prepared_sandbox_runs_the_exact_command(ws: Walled, command: str) -> None:
    one = run_timed(ws, command)
    wait_for_next_command(ws)

    other = run_timed(ws, command)

    assert (one.ahead, other.ahead) == (False, True)
    assert (other.found.start, other.text) != (b"", "")
    assert other.text == one.text


def test_a_prepared_sandbox_refuses_a_command_that_is_too_long(ws: Walled) -> None:
    prepare_next(ws)

    with pytest.raises(ToolFailed, match="Argument list too long"):
        ws.run("true " + "x" * 200_000, writes=False)


@pytest.mark.parametrize(
    "command", ["echo \ud800", "echo \0"], ids=["half a character", "0"]
)
def test_an_impossible_command_is_refused_as_in_a_fresh_sandbox(
    ws: Walled, command: str
) -> None:
    with pytest.raises(ToolFailed) as without:
        ws.run(command, writes=False)
    prepare_next(ws)

    with pytest.raises(ToolFailed) as error:
        ws.run(command, writes=False)

    assert str(error.value) == str(without.value)


def add_key_file(root: Path) -> None:
    (root / "sub/.env").write_text("key")


def add_second_key_file(root: Path) -> None:
    (root / "new").write_text("key")
    (root / "new").replace(root / ".env")


def rename_folder(root: Path) -> None:
    (root / "sub").rename(root / "other")
    (root / "other/.env").write_text("key")


@pytest.mark.parametrize("change", [add_key_file, add_second_key_file, rename_folder])
def test_a_path_that_became_unreadable_is_hidden_from_the_next_command(
    ws: Walled, change: Callable[[Path], None]
) -> None:
    (ws.root / "sub").mkdir()
    (ws.root / ".env").write_text("old")
    prepare_next(ws)

    change(ws.root)
    result = run_timed(ws, "cat .env sub/.env other/.env; cat < .env")

    assert not result.ahead
    assert "key" not in re.sub("holds? keys", "", result.text)


def test_a_path_that_became_guarded_cannot_be_written_by_the_next_command(
    ws: Walled,
) -> None:
    config = ws.root / ".git/config"
    config.parent.mkdir()
    config.write_text("old")
    prepare_next(ws, writes=True)

    (ws.root / "new").write_text("as it was")
    (ws.root / "new").replace(config)
    result = run_timed(ws, "echo x > .git/config; mv .git g; cat .git/config", writes=True)

    assert not result.ahead
    assert result.text.endswith("as it was")
    assert config.read_text() == "as it was"


def test_the_next_command_runs_in_a_replaced_workspace(ws: Walled) -> None:
    (ws.root / "a").write_text("old")
    prepare_next(ws)

    ws.root.rename(f"{ws.root}-old")
    ws.root.mkdir()
    (ws.root / "a").write_text("new")

    result = run_timed(ws, "cat a")
    assert (result.ahead, result.text) == (False, "new")


def test_a_path_that_a_new_rule_denies_is_hidden_from_the_next_command(
    tmp_path: Path,
) -> None:
    denied = list[str]()
    needs_bubblewrap()
    with walled(tmp_path / "ws", unread=lambda: denied) as ws:
        (ws.root / "a").write_text("secret")
        prepare_next(ws)

        denied.append(str(ws.root / "a"))
        result = run_timed(ws, "cat a")

    assert not result.ahead
    assert "secret" not in result.text


def test_changed_file_content_does_not_invalidate_a_prepared_sandbox(ws: Walled) -> None:
    (ws.root / "a").write_text("old")
    prepare_next(ws)
    (ws.root / "a").write_text("new")

    result = run_timed(ws, "cat a")

    assert (result.ahead, result.text) == (True, "new")


def test_a_prepared_sandbox_ends_with_its_command_and_background_processes(
    ws: Walled,
) -> None:
    prepare_next(ws, writes=True)

    result = run_timed(ws, "setsid sleep 1000 & echo out", writes=True)

    assert (result.ahead, result.text) == (True, "out\n")
    assert not any("sleep\0001000" in words for words in own_command_lines(ws.root))


def test_a_prepared_sandbox_ends_at_the_timeout_of_its_command(ws: Walled) -> None:
    prepare_next(ws)

    async def main() -> Finished:
        return await ws.commands.run("sleep 1000", cwd=str(ws.root), seconds=0.2)

    assert anyio.run(main).timed_out
    assert own_command_lines(ws.root) == []


def test_closing_commands_ends_an_unused_prepared_sandbox(ws: Walled) -> None:
    prepare_next(ws)

    ws.commands.close()

    assert own_command_lines(ws.root) == []


@pytest.mark.parametrize("after", [0, 0.002, 0.005])
def test_closing_commands_ends_a_sandbox_under_preparation(
    ws: Walled, after: float
) -> None:
    ws.run("true", writes=False)
    until = time.monotonic() + after
    while time.monotonic() < until:
        pass

    ws.commands.close()

    assert own_command_lines(ws.root) == []


def test_a_prepared_sandbox_ends_with_a_command_that_cannot_start(ws: Walled) -> None:
    prepare_next(ws)

    async def main() -> None:
        await ws.commands.run("true", cwd=f"{ws.root}/none", seconds=9)

    with pytest.raises(ToolFailed, match="no such directory"):
        anyio.run(main)

    while own_command_lines(ws.root):  # the time limit of tests ends this
        time.sleep(0.001)


def test_closed_commands_prepare_no_sandbox(ws: Walled) -> None:
    ws.commands.close()

    ws.run("true", writes=False)
    ws.commands.with_hidden_paths(lambda: ()).close()

    assert own_command_lines(ws.root) == []


def test_the_end_of_a_session_ends_its_prepared_sandbox(tmp_path: Path) -> None:
    needs_bubblewrap()
    call = [("bash", '{"command": "true"}')]
    folder = tmp_path / "ws"
    folder.mkdir()

    async def main() -> None:
        provider = ScriptedProvider(call, "Done.")
        agent = Agent(
            directory=folder, home=tmp_path / "home", mode="bypass", provider=provider
        )
        async with agent.session() as session:
            assert (await session.run("Go.")).text == "Done."
            while not own_command_lines(
                folder
            ):  # until it is there, and it waits for a minute
                await anyio.sleep(0.01)

    anyio.run(main)
    assert own_command_lines(folder) == []


def test_a_prepared_sandbox_that_timed_out_is_not_used(ws: Walled) -> None:
    order = SpawnRequest("", str(ws.root), Confinement(), {"PATH": "/usr/bin:/bin"})
    cwd, limits = str(ws.root), ws.commands.limits
    ahead = SandboxAhead(
        order, ws.sandbox.launch_without_guards(cwd, Confinement()), seconds=0
    )

    ahead.wait_until_ended()

    command = ahead.run(order, ws.sandbox.launch(cwd, Confinement()), limits)
    ahead.close()

    assert (command, own_command_lines(ws.root)) == (None, [])


def test_a_command_with_piped_input_gets_a_new_sandbox(ws: Walled) -> None:
    prepare_next(ws)
    reading, writing = os.pipe()
    os.write(writing, b"said\n")
    os.close(writing)
    ordered = time.monotonic_ns()

    async def main() -> Finished:
        extras = CommandExtras(stdin=reading)
        return await ws.commands.run(
            f"{BORN}cat", cwd=str(ws.root), seconds=9, extras=extras
        )

    result = TimedOutput(anyio.run(main), ordered)
    os.close(reading)

    assert (result.ahead, result.text) == (False, "said\n")
    assert run_timed(ws, "true").ahead  # it is left for the next


WAITS = """
import os, sys, anyio
from pathlib import Path
from tests.place.walled import walled
with walled(Path(sys.argv[1])) as ws:
    ws.run("true", writes=False)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_prepared_sandbox_ends_with_a_killed_refold(tmp_path: Path) -> None:
    needs_bubblewrap()
    command_line = [sys.executable, "-c", WAITS, str(tmp_path / "ws")]
    here = Path(__file__).parents[2]
    with subprocess.Popen(command_line, cwd=here, stdin=subprocess.PIPE) as killed:
        mark = f"{ENVIRONMENT_NAME}={owner_token().partition('.')[0]}.{killed.pid}."
        while not any("read -r go" in text for text in list_marked(mark)):
            time.sleep(0.01)
        killed.kill()
        killed.wait()

    while list_marked(mark):  # the time limit of tests ends this
        time.sleep(0.01)


def own_command_lines(root: Path) -> list[str]:
    """Return the command lines of what runs for commands in this workspace."""
    texts = list[str]()
    for number in filter(str.isdigit, os.listdir("/proc")):
        about = Path("/proc", number)
        try:
            words, place = (
                (about / "cmdline").read_text(errors="replace"),
                os.readlink(about / "cwd"),
            )
            mark = (
                f"{ENVIRONMENT_NAME}={owner_token()}.".encode()
                in (about / "environ").read_bytes()
            )
        except OSError:  # it has ended
            continue
        if (
            mark
            and int(number) != os.getpid()
            and (place == str(root) or str(root) in words)
        ):
            texts.append(words)
    return texts
