"""Commands of `bash` that the user moves to the background, run by real processes."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from refold.agents.background_commands import MAX_RUNNING, PLANNING_BEGAN
from refold.client.protocol import MoveToBackground
from refold.client.session import Session
from refold.errors import BadInput
from refold.journal.events.kinds import BackgroundEnded, BackgroundStarted, Frame
from refold.values.display import Note
from refold.values.live import Progress
from tests.agents.test_background_commands import (
    FIRST,
    READ,
    START,
    STOP,
    UNTIL,
    call,
    list_shown_results,
    open_session,
    results,
    running_commands,
    wait_for_end,
    words,
)

MOVED = (
    "(it has not ended: the user moved it to the background, where it continues as background-1, "
    "without a time limit. background_output('background-1') reads what it prints, and "
    "background_stop('background-1') ends it. You are notified at your next step after its end, and it "
    "ends with the session.)"
)


def bash(command: str, **arguments: object) -> Sequence[tuple[str, str]]:
    return [("bash", json.dumps({"command": command, **arguments}))]


async def move_to_background(
    session: Session, message: str, text: str, call_id: str = ""
) -> None:
    """Run a turn, and move its command to the background when it has printed this text."""
    watch = session.watch()
    async with anyio.create_task_group() as group:
        group.start_soon(session.run, message)
        result = ""
        async for frame in watch.frames():
            match frame:
                case Frame(item=Progress(text=piece)):
                    result += piece
                case _:
                    pass
            if text in result:
                break
        watch.close()
        await session.send(MoveToBackground(call_id))


def test_moving_a_command_ends_its_call_and_the_command_keeps_running(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        command = f"echo one; {UNTIL.format(file='go')} echo two"
        lines = (
            bash(command),
            "I go on.",
            call(READ, name=FIRST),
            "So.",
            call(READ, name=FIRST, all=True),
            "So.",
        )
        async with open_session(tmp_path, *lines) as (session, provider):
            await move_to_background(session, "Run it.", "one\n")
            (started,) = [
                e.event
                for e in await session.reports.entries()
                if isinstance(e.event, BackgroundStarted)
            ]
            result = (await list_shown_results(session))[-1]
            (tmp_path / "work/go").touch()
            end = await wait_for_end(session)
            await session.run("And now?")
            await session.run("All of it?")

            workspace = str(tmp_path / "work")
            assert started == BackgroundStarted(
                FIRST, command, started.call_id, workspace, moved=True
            )
            assert results(provider.heard[1]) == [f"one\n{MOVED}"]
            assert result == Note(f"{FIRST} runs in the background: {command}")
            assert end == BackgroundEnded(FIRST, "done", 0, "", "one\ntwo\n")
            assert f"{FIRST} ({command}): ended: exit code 0" in words(provider.heard[2])
            assert results(provider.heard[-1])[1:] == [
                "two\n(ended: exit code 0)", "one\ntwo\n(ended: exit code 0)",
            ]  # fmt: skip

    anyio.run(test)


@pytest.mark.slow
def test_the_time_limit_of_a_call_does_not_apply_to_its_moved_command(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        lines = (bash("echo one; sleep 1.5; echo two", timeout=1), "I go on.")
        async with open_session(tmp_path, *lines) as (session, _):
            await move_to_background(session, "Run it.", "one\n")

            assert await wait_for_end(session) == BackgroundEnded(
                FIRST, "done", 0, "", "one\ntwo\n"
            )

    anyio.run(test)


def test_background_stop_stops_a_moved_command(tmp_path: Path) -> None:
    async def test() -> None:
        command = "setsid sleep 97.1 & echo one; sleep 97.2"
        async with open_session(
            tmp_path, bash(command), call(STOP, name=FIRST), "Done."
        ) as (
            session,
            provider,
        ):
            await move_to_background(session, "Run it.", "one\n")
            await wait_for_end(session)

            assert results(provider.heard[-1])[-1] == f"{FIRST} is stopped."
            assert running_commands("sleep 97[.][12]") == []

    anyio.run(test)


def test_a_moved_command_ends_with_the_session(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_session(tmp_path, bash("echo one; sleep 97.3"), "I go on.") as (
            session,
            _,
        ):
            await move_to_background(session, "Run it.", "one\n")
            before = running_commands("sleep 97[.]3")

        assert len(before) == 1
        assert running_commands("sleep 97[.]3") == []

    anyio.run(test)


def test_plan_mode_stops_a_moved_command_that_may_write(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_session(tmp_path, bash("echo one; sleep 97.4"), "I go on.") as (
            session,
            _,
        ):
            await move_to_background(session, "Run it.", "one\n")
            await session.set_mode("plan")
            end = await wait_for_end(session)

            assert (end.outcome, end.reason) == ("stopped", PLANNING_BEGAN)

    anyio.run(test)


def test_moving_a_call_that_runs_no_command_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        lines = (bash("echo one; sleep 97.5"), "I go on.")
        async with open_session(tmp_path, *lines) as (session, _):
            with pytest.raises(
                BadInput, match="no command of this session is running that"
            ):
                await session.send(MoveToBackground())
            with pytest.raises(ExceptionGroup) as caught:
                await move_to_background(session, "Run it.", "one\n", "call-9")
            with pytest.raises(
                BadInput, match="no command of this session is running that"
            ):
                await session.send(MoveToBackground())

            assert [str(exception) for exception in caught.value.exceptions] == [
                "the call 'call-9' runs no command"
            ]
            assert session.view.background.commands == ()

    anyio.run(test)


@pytest.mark.slow
def test_no_command_is_moved_while_sixteen_run_in_the_background(tmp_path: Path) -> None:
    async def test() -> None:
        starts = [call(START, command="sleep 97.6")] * MAX_RUNNING
        lines = (*starts, "They run.", bash("echo one; sleep 97.6"), "So.")
        async with open_session(tmp_path, *lines) as (session, _):
            await session.run("Start many.")
            with pytest.raises(ExceptionGroup) as caught:
                await move_to_background(session, "And one more.", "one\n")

            assert str(caught.value.exceptions[0]).endswith("background-16: stop one first")
            assert len(session.view.background.running) == MAX_RUNNING

    anyio.run(test)


_KILLED = """
import anyio, sys
from pathlib import Path
from tests.agents.test_moved_commands import bash, move_to_background, open_session

async def main():
    command = "sleep 97.7 & setsid sleep 97.7 & echo one; sleep 97.7"
    profile = {"sandbox.profile": sys.argv[2]}
    async with open_session(Path(sys.argv[1]), bash(command), "I go on.", settings=profile) as (session, _):
        await move_to_background(session, "Run it.", "one")
        print(session.id, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["workspace", "off"])
def test_a_moved_command_does_not_outlive_a_killed_refold(
    tmp_path: Path, profile: str
) -> None:
    program = (sys.executable, "-c", _KILLED, str(tmp_path), profile)
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as refold:
        assert refold.stdout is not None
        id_ = refold.stdout.readline().strip()
        before = running_commands("sleep 97[.]7")
        refold.kill()

    async def test() -> None:
        async with open_session(tmp_path, call(READ), "I see.", id_=id_) as (
            session,
            provider,
        ):
            await session.run("What runs?")
            while running_commands(
                "sleep 97[.]7"
            ):  # the kernel, or this start, is about to end it
                await anyio.sleep(0.01)

            how = "it no longer runs: the session was left while it ran"
            assert len(before) == 3
            assert results(provider.heard[-1])[-1].startswith(f"{FIRST}: {how}: sleep 97.7")

    anyio.run(test)
