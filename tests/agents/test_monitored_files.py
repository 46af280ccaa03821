"""`monitor` of a file: real logs that are rotated, cut short and made late, and no others."""

import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.client.questions import Question
from refold.client.session import Session
from refold.errors import ToolFailed
from refold.testing.providers import ScriptedProvider
from refold.tools.shell import monitor
from refold.values.messages import Text, ToolResult
from refold.values.modes import Mode

FIRST = "background-1"
TAIL = "tail -n 0 -F -- {name} 2>/dev/null"


@asynccontextmanager
async def run_monitor(
    workspace: Path, file: str, until: str = "ready|Error", *, mode: Mode = "bypass",
    deny: Sequence[str] = (), put: list[Question] | None = None,
) -> AsyncGenerator[tuple[Session, ScriptedProvider]]:  # fmt: skip
    """Yield a session in which the agent has asked for that file to be watched."""
    wanted = {"name": "monitor", "arguments": {"file": file, "until": until}}
    provider = ScriptedProvider([("tool_call", json.dumps(wanted))], "I wait.", "I saw it.")
    settings = {"permissions.deny": tuple(deny), "sandbox.profile": "off"}

    async def approve(question: Question) -> bool:
        assert put is not None
        put.append(question)
        return False

    agent = Agent(
        provider=provider, directory=workspace, mode=mode, settings=settings,
        approve=approve if put is not None else None,
    )  # fmt: skip
    async with agent.session() as session:
        await session.run("Watch it.")
        yield session, provider


async def wait_for_wake(session: Session, provider: ScriptedProvider) -> str:
    """Return the message that wakes the agent."""
    while not session.has_work:
        await session.wait_for_change(after=session.view.seq)
    await session.settle()
    parts = [
        part for message in provider.heard[-1].messages for part in message.message.parts
    ]
    return [part.text for part in parts if isinstance(part, Text)][-1]


def result(provider: ScriptedProvider) -> str:
    """Return the result of the call, as the model has it."""
    parts = [
        part for message in provider.heard[-1].messages for part in message.message.parts
    ]
    (text,) = [part.text for part in parts if isinstance(part, ToolResult)]
    return text


def rotate(log: Path) -> None:
    log.rename(log.with_suffix(".1"))
    log.write_text("Error after the rotation\n")


def truncate(log: Path) -> None:
    log.write_text("Error\n")


def recreate(log: Path) -> None:
    log.unlink()
    log.write_text("Error in a new file\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "change", "line"),
    [
        ("ready before\n", rotate, "Error after the rotation"),
        ("ready before, and more of it\n", truncate, "Error"),
        ("", recreate, "Error in a new file"),
        (None, truncate, "Error"),
    ],
)
def test_a_new_line_of_a_monitored_file_wakes_the_agent(
    tmp_path: Path, before: str | None, change: Callable[[Path], None], line: str
) -> None:
    async def test() -> None:
        log = tmp_path / "app.log"
        if before is not None:
            log.write_text(before)
        async with run_monitor(tmp_path, "app.log") as (session, provider):
            assert not session.has_work
            running = session.view.background.running[0]
            assert running.started.command == TAIL.format(name="app.log")
            wait_for_tail(log)
            change(log)

            command = TAIL.format(name="app.log")
            text = f"{FIRST} ({command}) is still running. New output:\n{line}"
            assert await wait_for_wake(session, provider) == text

    anyio.run(test)


def wait_for_tail(log: Path) -> None:
    """Wait until `tail` has looked for that file, and sleeps."""
    while not any(
        map(partial(is_waiting_for, log), filter(str.isdecimal, os.listdir("/proc")))
    ):
        time.sleep(0.01)


def is_waiting_for(log: Path, process: str) -> bool:
    about = Path("/proc", process)
    try:
        tails = about.joinpath("comm").read_text() == "tail\n"
        here = tails and os.path.samefile(about / "cwd", log.parent)
        waits = here and " S " in about.joinpath("stat").read_text()
        files = (
            [os.readlink(path) for path in about.joinpath("fd").iterdir()] if waits else []
        )
    except OSError:
        return False
    return waits and (str(log) in files or not log.exists())


@pytest.mark.slow
def test_monitor_reports_no_messages_of_tail(tmp_path: Path) -> None:
    async def test() -> None:
        log = tmp_path / "Error.log"
        async with run_monitor(tmp_path, "Error.log") as (session, provider):
            wait_for_tail(log)
            log.write_text("ready\n")

            assert (await wait_for_wake(session, provider)).endswith("New output:\nready")

    anyio.run(test)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "deny", "message"),
    [
        ("pipe", (), "Cannot watch pipe: it is no regular file."),
        ("folder", (), "Cannot watch folder: it is a directory."),
        ("/dev/zero", (), "/dev/zero lies outside the workspace"),
        ("../other.log", (), "lies outside the workspace"),
        ("app.log", ("read_file(app.log)",), "app.log"),
        (".env", (), ".env"),
    ],
)
def test_monitor_refuses_paths_that_are_not_readable_files(
    tmp_path: Path, name: str, deny: Sequence[str], message: str
) -> None:
    async def test() -> None:
        work = tmp_path / "work"
        (work / "folder").mkdir(parents=True)
        os.mkfifo(work / "pipe")
        for file in ("app.log", ".env", "../other.log"):
            (work / file).write_text("KEY=1\n")
        async with run_monitor(work, name, deny=deny) as (session, provider):
            assert session.view.background.commands == ()
            assert message in result(provider)

    anyio.run(test)


def test_no_permission_is_requested_for_a_path_that_cannot_be_monitored(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "app.log").touch()
        for file, number in (("folder", 0), ("app.log", 1)):
            put = list[Question]()
            async with run_monitor(tmp_path, file, mode="default", put=put) as (
                _,
                provider,
            ):
                assert len(put) == number
        assert result(provider).startswith("Refused")

    anyio.run(test)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"command": "make", "file": "a.log"}, {"file": "a.log", "cwd": "src"}],
)
def test_monitor_needs_either_a_command_or_a_file(arguments: dict[str, str]) -> None:
    with pytest.raises(ToolFailed, match="Nothing was done"):
        monitor.parse(json.dumps({"until": "ready", **arguments}).encode())


def test_a_hostile_file_name_is_quoted_as_one_shell_word() -> None:
    arguments = monitor.parse(json.dumps({"until": "x", "file": "-f a'; touch b"}).encode())

    assert arguments["command"] == """tail -n 0 -F -- '-f a'"'"'; touch b' 2>/dev/null"""
