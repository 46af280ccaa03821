"""Commands in the background, run by real processes in real sessions."""

import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from urllib.error import URLError
from urllib.request import urlopen

import anyio
import pytest
from anyio import to_thread

from refold import Agent
from refold.agents.background_commands import MAX_RUNNING, PLANNING_BEGAN, OutputWatch
from refold.client.session import Session
from refold.errors import BadInput
from refold.journal.events.kinds import BackgroundEnded, Ended, Said
from refold.journal.state.background import MAX_WAKES
from refold.provider.port import Request
from refold.testing.providers import Line, ScriptedProvider
from refold.values.display import Note, Output, Shown
from refold.values.kept_output import Printed
from refold.values.messages import Text, ToolResult
from refold.views.notices import warnings
from tests.agents.families import AgentFamily, events, task_call, tool_call

FIRST = "background-1"
UNTIL = "until test -e {file}; do sleep 0.01; done;"  # a command ends when a file is there


def call(tool: str, **arguments: object) -> Sequence[tuple[str, str]]:
    """Return a call of a deferred tool, as a model makes it."""
    wanted = json.dumps({"name": tool, "arguments": arguments})
    return [("tool_call", wanted)]


def results(request: Request) -> list[str]:
    """Return the results of calls in a request, oldest first."""
    parts = (part for message in request.messages for part in message.message.parts)
    return [part.text for part in parts if isinstance(part, ToolResult)]


def words(request: Request) -> str:
    """Return all text that the model is sent, without results."""
    parts = (part for message in request.messages for part in message.message.parts)
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def test_a_single_run_waits_for_a_command_that_wakes_the_agent(
    tmp_path: Path,
) -> None:
    build = call("background_run", command="sleep 0.1; echo built", notify=True)
    family = AgentFamily(tmp_path, {"Go": [build, "I wait.", "Built."]}, mode="bypass")

    assert family.run("Go").text == "Built."


@asynccontextmanager
async def open_session(
    directory: Path,
    *lines: Line,
    id_: str = "",
    settings: Mapping[str, object] = MappingProxyType({}),
) -> AsyncGenerator[tuple[Session, ScriptedProvider]]:
    provider = ScriptedProvider(*lines)
    agent = Agent(
        provider=provider,
        directory=directory / "work",
        home=directory / "home",
        mode="bypass",
        settings={"sandbox.profile": "off", **settings},
    )
    (directory / "work").mkdir(exist_ok=True)
    async with agent.session(id_) as session:
        yield session, provider


async def wait_for_file(file: Path, *, content: bool = False) -> None:
    """Wait for a file that a command makes, or until something is in it."""
    while not file.exists() or (content and not file.read_bytes().endswith(b"\n")):
        await anyio.sleep(0.01)


def running_commands(pattern: str) -> list[str]:
    completed_process = subprocess.run(
        ("pgrep", "-f", f"^{pattern}"), capture_output=True, text=True
    )
    return completed_process.stdout.split()


async def wait_for_end(session: Session, name: str = FIRST) -> BackgroundEnded:
    """Wait for the end of a background command."""
    while True:
        seq, command = session.view.seq, session.view.background.command(name)
        if command and command.end:
            return command.end
        await session.wait_for_change(after=seq)


async def wait_until_read(session: Session, text: str) -> None:
    """Wait until refold has read this text from the first command; a file would be too early."""
    while text not in await session.reports.background_output(FIRST):
        await anyio.sleep(0.01)


async def list_shown_results(session: Session) -> list[Shown]:
    """Return what a person was shown of the results of calls."""
    events = [entry.event for entry in await session.reports.entries()]
    return [part for event in events if isinstance(event, Ended) for part in event.shown]


START, READ, STOP = "background_run", "background_output", "background_stop"


def test_a_background_command_continues_after_its_turn(tmp_path: Path) -> None:
    async def test() -> None:
        command = f"echo one; {UNTIL.format(file='go')} echo two"
        lines = (call(START, command=command), "It runs.", call(READ, name=FIRST), "So.")
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Start it.")
            running = [item.name for item in session.view.background.running]
            (tmp_path / "work/go").touch()
            end = await wait_for_end(session)
            await session.run("And now?")

            assert running == [FIRST]
            assert end == BackgroundEnded(FIRST, "done", 0, "", "one\ntwo\n")
            assert results(provider.heard[-1])[-1] == "one\ntwo\n(ended: exit code 0)"

    anyio.run(test)


@pytest.mark.parametrize("network", [True, False])
def test_output_of_a_command_with_network_counts_as_outside_text(
    tmp_path: Path, network: bool
) -> None:
    async def test() -> None:
        start = call(START, command="echo a page", network=network)
        lines = (start, "It runs.", "Yes.", call(READ, name=FIRST), "So.")
        async with open_session(tmp_path, *lines) as (session, _):
            after = list[bool]()
            await session.run("Start it.")
            end = await wait_for_end(session)
            after.append(session.view.outside_text.since > 0)
            for words in ("Is it over?", "What does it say?"):
                await session.run(words)
                after.append(session.view.outside_text.since > 0)

            assert end.outside == network
            assert after == [network, False, network]

    anyio.run(test)


def test_output_that_the_user_has_viewed_still_reaches_the_model(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        command = f"echo one; echo two > said; {UNTIL.format(file='go')} echo three"
        lines = (call(START, command=command), "It runs.", call(READ, name=FIRST), "So.")
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Start it.")
            await wait_for_file(tmp_path / "work/said", content=True)
            while not (early := await session.reports.background_output(FIRST)):
                await anyio.sleep(0.01)
            (tmp_path / "work/go").touch()
            await wait_for_end(session)
            await session.run("And now?")
            late = await session.reports.background_output(FIRST)

            assert (early, late) == ("one\n", "one\nthree\n")
            assert results(provider.heard[-1])[-1] == "one\nthree\n(ended: exit code 0)"
            with pytest.raises(BadInput, match="no background command 'background-2'"):
                await session.reports.background_output("background-2")

    anyio.run(test)


def test_the_user_sees_the_last_lines_of_a_long_output(tmp_path: Path) -> None:
    async def test() -> None:
        command = f"seq 1 9000; touch said; {UNTIL.format(file='go')}"
        async with open_session(tmp_path, call(START, command=command), "It runs.") as (
            session,
            _,
        ):
            await session.run("Start it.")
            while (part := await session.reports.background_output(FIRST, 15)) != (
                "8999\n9000\n"
            ):
                await anyio.sleep(0.01)
            (tmp_path / "work/go").touch()
            await wait_for_end(session)
            whole = await session.reports.background_output(FIRST)

            assert part == "8999\n9000\n"
            assert whole == "".join(f"{n}\n" for n in range(1, 9001))

    anyio.run(test)


def test_the_model_is_notified_of_an_exit_once_and_no_turn_starts(tmp_path: Path) -> None:
    async def test() -> None:
        command = f"{UNTIL.format(file='go')} echo oh; exit 3"
        lines = (call(START, command=command), "It runs.", "I see.", "Yes.")
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Start it.")
            (tmp_path / "work/go").touch()
            await wait_for_end(session)
            work = session.has_work
            await session.run("And now?")
            await session.run("And then?")

            note = f"{FIRST} ({command}): ended: exit code 3; it printed last: oh"
            counts = [words(request).count(note) for request in provider.heard]
            assert (work, counts) == (False, [0, 0, 1, 1])

    anyio.run(test)


def test_the_exit_of_a_command_wakes_the_agent_if_requested(tmp_path: Path) -> None:
    async def test() -> None:
        command = f"{UNTIL.format(file='go')} echo built"
        lines = (call(START, command=command, notify=True), "It runs.", "It is built.")
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Build it.")
            (tmp_path / "work/go").touch()
            await wait_for_end(session)
            await session.settle()

            woken = f"{FIRST} ({command}) has ended: exit code 0. It printed last:\nbuilt"
            events = [e.event for e in await session.reports.entries()]
            assert Said(woken, FIRST, client_key=f"{FIRST} ended", wakes=True) in events
            assert woken in words(provider.heard[-1])
            assert session.result.text == "It is built."

    anyio.run(test)


def test_a_monitored_command_wakes_the_agent_at_a_match_and_keeps_running(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        command = f"echo begun; {UNTIL.format(file='go')} printf 'now re'; sleep 0.1; echo ady; sleep 60"
        lines = (
            call("monitor", command=command, until="Error|ready"),
            "I wait.",
            "It is up.",
        )
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Tell me when it is up.")
            idle = session.has_work
            (tmp_path / "work/go").touch()
            while not session.has_work:
                await session.wait_for_change(after=session.view.seq)
            await session.settle()

            woken = f"{FIRST} ({command}) is still running. New output:\nnow ready"
            assert not idle
            assert woken in words(provider.heard[-1])
            assert session.result.text == "It is up."
            assert session.view.background.running[0].name == FIRST

    anyio.run(test)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["one\nready\n"], ["ready"]),
        (["rea", "dy now\n"], ["", "ready now"]),
        (["read\ny"], [""]),
        (["Err", "or"], ["", "Error"]),
        (["x" * 5000 + "rea", "dy"], ["", "x" * 1000 + "ready"]),
    ],
)
def test_a_monitor_finds_a_matching_line_however_its_output_is_split(
    pieces: Sequence[str], expected: Sequence[str]
) -> None:
    printed_output = Printed()
    watch = OutputWatch(printed_output, "ready|Error")
    texts = list[str]()
    for piece in pieces:
        printed_output.add(piece.encode())
        texts.append(watch.find_line())

    assert texts == expected


def test_each_read_returns_only_the_output_since_the_last_read(tmp_path: Path) -> None:
    async def test() -> None:
        command = f"echo one; {UNTIL.format(file='go')} echo two; sleep 60"
        lines = (call(START, command=command), "It runs.", call(READ, name=FIRST), "One.")
        later = (
            call(READ, name=FIRST),
            call(READ, name=FIRST),
            call(READ, name=FIRST, all=True),
            "So.",
        )
        async with open_session(tmp_path, *lines, *later) as (session, provider):
            await session.run("Start it.")
            await wait_until_read(session, "one\n")
            await session.run("Look.")
            (tmp_path / "work/go").touch()
            await wait_until_read(session, "two\n")
            await session.run("Look again.")

            assert results(provider.heard[-1])[1:] == [
                "one\n(it runs)", "two\n(it runs)", "(nothing new)\n(it runs)", "one\ntwo\n(it runs)",
            ]  # fmt: skip

    anyio.run(test)


def test_the_user_sees_a_running_command_and_later_its_exit_code(tmp_path: Path) -> None:
    async def test() -> None:
        command = f"echo one; touch said; {UNTIL.format(file='go')} echo two; exit 3"
        lines = (call(START, command=command), "It runs.", call(READ, name=FIRST), "One.")
        async with open_session(tmp_path, *lines, call(READ, name=FIRST), "So.") as (
            session,
            _,
        ):
            await session.run("Start it.")
            await wait_for_file(tmp_path / "work/said")
            await session.run("Look.")
            while_it_runs = (await list_shown_results(session))[-1], warnings(session.view)
            (tmp_path / "work/go").touch()
            await wait_for_end(session)
            await session.run("Look again.")

            assert while_it_runs == (Note(f"{FIRST}: it runs; its last line: one"), ())
            assert (await list_shown_results(session))[-1] == Output(FIRST, "two", 3)
            assert warnings(session.view) == (
                f"the last command failed with code 3: {FIRST}",
            )

    anyio.run(test)


def test_background_stop_ends_all_processes_of_the_command(tmp_path: Path) -> None:
    async def test() -> None:
        command = "setsid sleep 987 & sleep 986 & echo $! >pid; wait"
        lines = (call(START, command=command), "It runs.", call(STOP, name=FIRST), "Done.")
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Start it.")
            await wait_for_file(tmp_path / "work/pid")
            await session.run("Stop it.")

            assert results(provider.heard[-1])[-1] == f"{FIRST} is stopped."
            assert await wait_for_end(session) == BackgroundEnded(
                FIRST, "stopped", None, "it was asked for", told=True
            )
            assert running_commands("sleep 98[67]") == []

    anyio.run(test)


def test_the_model_is_notified_when_the_user_stops_a_command(tmp_path: Path) -> None:
    async def test() -> None:
        lines = (call(START, command="sleep 985"), "It runs.", "I see.")
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Start it.")
            await session.stop(FIRST)
            with pytest.raises(BadInput, match="no command is running in the background"):
                await session.stop(FIRST)
            await session.run("And now?")

            assert f"{FIRST} (sleep 985): stopped: it was asked for" in words(
                provider.heard[-1]
            )

    anyio.run(test)


def test_after_a_compaction_the_model_sees_the_running_commands(tmp_path: Path) -> None:
    async def test() -> None:
        lines = (call(START, command="true"), call(START, command="sleep 981"), "They run.")
        later = ("A summary.", "Yes.")
        async with open_session(tmp_path, *lines, *later) as (session, provider):
            await session.run("Start it.")
            await wait_for_end(session)
            await session.compact()
            await session.run("Go on.")

            text = words(provider.heard[-1])
            assert "Commands that run in the background:\n- background-2: sleep 981" in text
            assert "- background-1" not in text.split("</reminder>")[0]

    anyio.run(test)


def test_closing_a_session_stops_its_commands(tmp_path: Path) -> None:
    async def test() -> None:
        lines = (call(START, command="echo so; touch said; exec sleep 984"), "It runs.")
        async with open_session(tmp_path, *lines) as (session, _):
            await session.run("Start it.")
            await wait_for_file(tmp_path / "work/said")
            id_ = session.id
        lines = (call(READ, name=FIRST), call(READ), "I see.")
        async with open_session(tmp_path, *lines, id_=id_) as (session, provider):
            await session.run("And now?")

            how = "stopped: the session was closed"
            text = f"{FIRST}: {how}: echo so; touch said; exec sleep 984"
            assert results(provider.heard[-1])[1:] == [f"so\n({how})", text]
            assert running_commands("sleep 984") == []

    anyio.run(test)


def test_an_unknown_command_name_is_refused_with_the_existing_names(tmp_path: Path) -> None:
    async def test() -> None:
        lines = (
            call(READ, name="no"),
            call(START, command="true"),
            call(STOP, name="no"),
            "So.",
        )
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Look.")

            texts = results(provider.heard[-1])
            assert texts[0] == "There is no background command 'no'. There is none."
            assert texts[2] == f"There is no background command 'no'. There are: {FIRST}."

    anyio.run(test)


@pytest.mark.slow
def test_at_most_sixteen_commands_run_in_the_background(tmp_path: Path) -> None:
    async def test() -> None:
        starts = [call(START, command="sleep 983")] * (MAX_RUNNING + 1)
        async with open_session(tmp_path, *starts, "So.") as (session, provider):
            await session.run("Start many.")

            names = ", ".join(f"background-{n + 1}" for n in range(MAX_RUNNING))
            assert results(provider.heard[-1])[-1] == (
                f"16 commands run in the background, and no more may: {names}. Stop one with "
                "background_stop first."
            )

    anyio.run(test)


@pytest.mark.slow
def test_a_background_web_server_is_used_by_three_turns_and_stopped(tmp_path: Path) -> None:
    async def test() -> None:
        serve = (
            "import http.server as h; s = h.ThreadingHTTPServer(('127.0.0.1', 0), "
            "h.SimpleHTTPRequestHandler); open('port', 'w').write(f'{s.server_port}\\n'); "
            "s.serve_forever()"
        )
        command = f'{sys.executable} -c "{serve}"'
        get = (
            "bash",
            json.dumps({"command": "curl -s http://127.0.0.1:$(cat port)/a.txt"}),
        )
        lines = (
            call(START, command=command),
            "It runs.",
            *([get], "I see.") * 3,
            call(STOP, name=FIRST),
            "So.",
        )
        (tmp_path / "work").mkdir()
        (tmp_path / "work/a.txt").write_text("tea\n")
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Serve.")
            await wait_for_file(tmp_path / "work/port", content=True)
            for _ in range(3):
                await session.run("Fetch it.")
            port = (tmp_path / "work/port").read_text().strip()
            await session.run("Stop.")

            assert results(provider.heard[-1])[1:] == [
                "tea",
                "tea",
                "tea",
                f"{FIRST} is stopped.",
            ]
            with pytest.raises(URLError):
                await to_thread.run_sync(urlopen, f"http://127.0.0.1:{port}/")

    anyio.run(test)


@pytest.mark.slow
def test_only_the_beginning_and_end_of_a_gigabyte_of_output_are_stored(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        command = "echo first; head -c 1G /dev/zero | tr '\\0' x; echo; echo last"
        lines = (call(START, command=command), "It runs.", call(READ, name=FIRST), "So.")
        async with open_session(tmp_path, *lines) as (session, provider):
            await session.run("Print.")
            end = await wait_for_end(session)
            await session.run("Look.")

            files = [f.stat() for f in (tmp_path / "home").rglob("*") if f.is_file()]
            total = sum({f.st_ino: f.st_size for f in files}.values())  # links count once
            text = results(provider.heard[-1])[-1]
            assert (end.outcome, end.text[-5:]) == ("done", "last\n")
            assert total < 5 * 1024 * 1024
            assert text.startswith("first\n")
            assert text.endswith("last\n(ended: exit code 0)")

    anyio.run(test)


@pytest.mark.slow
def test_a_fork_bomb_is_stopped_by_the_process_limit(tmp_path: Path) -> None:
    async def test() -> None:
        lines = (call(START, command="bash bomb.sh"), "It runs.")
        more: dict[str, object] = {"limits.command_processes": 60}
        (tmp_path / "work").mkdir()
        (tmp_path / "work/bomb.sh").write_text("bomb() { bomb | bomb & }; bomb; sleep 60")
        async with open_session(tmp_path, *lines, settings=more) as (session, _):
            await session.run("Go.")

            assert await wait_for_end(session) == BackgroundEnded(
                FIRST, "failed", None, "it ran more than 60 processes at a time"
            )

    anyio.run(test)


_KILLED = """
import anyio, json, sys
from pathlib import Path
from tests.agents.test_background_commands import START, call, open_session

async def main():
    command = "sleep 98.2 & setsid sleep 98.2 & touch said; sleep 98.2"
    profile = {"sandbox.profile": sys.argv[2]}
    lines = (call(START, command=command), "It runs.")
    async with open_session(Path(sys.argv[1]), *lines, settings=profile) as (session, _):
        await session.run("Start it.")
        print(session.id, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["workspace", "off"])
def test_no_background_process_survives_a_killed_refold(
    tmp_path: Path, profile: str
) -> None:
    program = (sys.executable, "-c", _KILLED, str(tmp_path), profile)
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as refold:
        assert refold.stdout is not None
        id_ = refold.stdout.readline().strip()
        anyio.run(wait_for_file, tmp_path / "work/said")
        while (
            len(running_commands("sleep 98.2")) < 3
        ):  # its shells and their child processes
            time.sleep(0.01)
        refold.kill()

    async def test() -> None:
        async with open_session(tmp_path, call(READ), "I see.", id_=id_) as (
            session,
            provider,
        ):
            await session.run("What runs?")
            # The kernel, or the next start, is about to end it.
            while running_commands("sleep 98.2"):
                await anyio.sleep(0.01)

            how = "it no longer runs: the session was left while it ran"
            assert results(provider.heard[-1])[-1].startswith(f"{FIRST}: {how}: sleep 98.2")
            assert how in words(provider.heard[0])

    async def wait_until_gone() -> None:
        while running_commands("sleep 98.2"):
            await anyio.sleep(0.01)

    if profile == "workspace":
        anyio.run(wait_until_gone)  # the kernel ends the processes in the sandbox
    anyio.run(test)


@pytest.mark.parametrize("enter", ["person", "agent"])
def test_plan_mode_stops_background_commands_that_may_write_and_no_others(
    tmp_path: Path, enter: str
) -> None:
    async def test() -> None:
        start = call(START, command="sleep 98.3")
        lines = (start, "It runs.", [("enter_plan_mode", "{}")], "I plan.")
        async with open_session(tmp_path, *lines) as (session, _):
            await session.run("Start it.")
            if enter == "person":
                await session.set_mode("plan")
            else:
                await session.run("Plan.")
            end = await wait_for_end(session)

            assert (end.outcome, end.reason) == ("stopped", PLANNING_BEGAN)

    anyio.run(test)


def test_the_agent_is_woken_at_most_a_limited_number_of_times(tmp_path: Path) -> None:
    async def test() -> None:
        command = "until rm go; do sleep 0.01; done 2>&-; echo ready"
        watching = (call("monitor", command=command, until="nothing"), "I wait.")
        async with open_session(tmp_path, *watching * (2 * MAX_WAKES)) as (
            session,
            provider,
        ):
            await session.run("Watch it.")
            for number in range(MAX_WAKES + 1):
                while len(session.view.background.commands) <= number or session.has_work:
                    await session.settle()
                    await anyio.sleep(0.001)  # nothing waits, and the wake-up is a task
                (tmp_path / "work/go").touch()  # the command ends after its turn
                await wait_for_end(session, session.view.background.commands[-1].name)
            await anyio.sleep(0.001)
            await session.settle()
            woken = len(provider.heard)
            await session.run("Once more.")

            assert woken == 2 * (MAX_WAKES + 1)
            assert session.view.background.wakes < MAX_WAKES  # counted again

    anyio.run(test)


@pytest.mark.slow
def test_plan_mode_of_a_parent_stops_background_commands_of_its_subagent(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        start = tool_call(START, command="sleep 98.4")
        wait = tool_call("bash", command="sleep 30")
        family = AgentFamily(
            tmp_path,
            {"Go": [[task_call("Work", "code")], "Ok."], "Work": [[start], [wait], "Ok."]},
            mode="bypass",
        )

        def list_background_ends() -> list[BackgroundEnded]:
            return events(family.nodes(session.id)["root/child-1"], BackgroundEnded)

        async with family.session() as session:
            async with anyio.create_task_group() as group:
                group.start_soon(session.run, "Go.")
                while not running_commands("sleep 98.4"):
                    await anyio.sleep(0.01)
                await session.set_mode("plan")
                while running_commands("sleep 98.4") or not list_background_ends():
                    await anyio.sleep(0.01)
                await session.cancel()
            (end,) = list_background_ends()
            assert (end.outcome, end.reason) == ("stopped", PLANNING_BEGAN)

    anyio.run(test)
