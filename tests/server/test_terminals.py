"""Terminals in the developer page: a real shell, and what the journal has of it."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from refold.client.host import Host
from refold.journal.events.child_events import (
    TerminalCommandEntered,
    TerminalEnded,
    TerminalEvent,
    TerminalStarted,
)
from refold.journal.events.kinds import Entry, Said
from refold.place.environment import shell_environment
from refold.process_groups import signal_session
from refold.server import terminals
from tests.server.page_terminals import (
    BASH,
    ask_token,
    open_terminal,
    page_headers,
    variables,
)
from tests.server.serving import Client, open_server, read_until, send_order

pytestmark = pytest.mark.anyio


def terminal_events(host: Host, id_: str) -> list[TerminalEvent]:
    return [
        entry.event
        for entry in host.stored.entries(id_)
        if isinstance(entry.event, TerminalStarted | TerminalCommandEntered | TerminalEnded)
    ]


def authors(entries: Sequence[Entry]) -> set[str]:
    return {e.by for e in entries if type(e.event).__name__.startswith("Terminal")}


async def ended_events(client: Client, id_: str) -> list[TerminalEvent]:
    """The events once the end is recorded."""
    while not any(isinstance(e, TerminalEnded) for e in terminal_events(client.host, id_)):
        await anyio.sleep(0.01)
    return terminal_events(client.host, id_)


async def test_start_commands_and_end_of_a_terminal_are_recorded_with_the_person(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("echo $((40+2))\r")
            await terminal.read_until("42\r\n")
            await terminal.type(" echo $((40+3)) # kept out of the history\r")
            await terminal.read_until("43\r\n")
            await terminal.type("exit 3\r")
            end = await terminal.read_end()
        events = await ended_events(client, id_)
        by = authors(client.host.stored.entries(id_))
        conversation = (await client.ask("GET", f"/api/conversations/{id_}/messages")).json
        number = next(
            e.seq
            for e in client.host.stored.entries(id_)
            if isinstance(e.event, TerminalStarted)
        )

    assert end == {"type": "ended", "reason": "exited", "code": 3, "problem": ""}
    assert events == [
        TerminalStarted(BASH, str(tmp_path)),
        TerminalCommandEntered(number, "echo $((40+2))"),
        TerminalCommandEntered(number, " echo $((40+3)) # kept out of the history"),
        TerminalCommandEntered(number, "exit 3"),
        TerminalEnded(number, "exited", 3, reports_commands=True),
    ]
    assert by == {"person:page"}
    assert conversation == []


async def test_a_line_that_the_shell_keeps_out_of_its_history_is_recorded_without_its_text(
    tmp_path: Path,
) -> None:
    (tmp_path / ".bashrc").write_text("HISTCONTROL=ignoreboth\n", "utf-8")
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            for line, printed in ((" echo a$((1+1))", "a2"), ("echo b$((1+1))", "b2")):
                await terminal.type(f"{line}\r")
                await terminal.read_until(f"{printed}\r\n")
            await terminal.type("echo b$((1+1)); exit\r")
            await terminal.read_end()
        events = await ended_events(client, id_)

    assert [e.command for e in events if isinstance(e, TerminalCommandEntered)] == [
        None,
        "echo b$((1+1))",
        "echo b$((1+1)); exit",
    ]


async def test_a_shell_without_integration_records_no_commands(tmp_path: Path) -> None:
    shell = tmp_path / "home/ush"  # not in the workspace of the conversation
    shell.parent.mkdir()
    shell.symlink_to("/bin/dash" if Path("/bin/dash").exists() else "/bin/sh")
    work = tmp_path / "work"
    work.mkdir()
    environ = variables(tmp_path, SHELL=str(shell))
    async with open_server(work, terminal=environ) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("exit 0\r")
            await terminal.read_end()
        events = await ended_events(client, id_)

    assert [type(e).__name__ for e in events] == ["TerminalStarted", "TerminalEnded"]
    assert isinstance(events[-1], TerminalEnded)
    assert events[-1].reports_commands is False


async def test_keystrokes_window_size_and_ctrl_c_reach_the_programs_of_the_shell(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("stty size; echo $TERM\r")
            await terminal.read_until("24 80\r\n")
            await terminal.read_until("xterm-256color\r\n")
            await terminal.send("resize", rows=30, columns=100)
            await terminal.type("stty size; echo grüße €$((1+1))\r")
            await terminal.read_until("30 100\r\n")
            await terminal.read_until("grüße €2\r\n")
            await terminal.type("echo began$((1+1)); sleep 1000\r")
            await terminal.read_until("began2\r\n")
            await terminal.type("\x03")
            await terminal.read_until(
                "^C"
            )  # what is typed earlier may be discarded with it
            await terminal.type("echo after$((1+1))\r")
            await terminal.read_until("after2\r\n")


async def test_a_shell_has_no_api_keys_of_the_server(tmp_path: Path) -> None:
    environ = shell_environment({
        "HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SHELL": BASH, "OPENAI_API_KEY": "sk-1",
        "HTTPS_PROXY": "http://me:secret@proxy", "EDITOR": "vi", "REFOLD_HOME": "/r",
    })  # fmt: skip
    async with open_server(tmp_path, terminal=environ) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("env; echo over$((1+1))\r")
            await terminal.read_until("over2\r\n")

    assert b"EDITOR=vi" in terminal.output
    assert b"TERM=xterm-256color" in terminal.output
    assert not any(
        w in terminal.output for w in (b"sk-1", b"secret", b"REFOLD", b"refold_")
    )


async def test_processes_of_a_terminal_end_with_its_socket(tmp_path: Path) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("trap '' HUP; nohup sleep 1000 & echo pid=$$ up$((1+1))\r")
            await terminal.read_until(" up2\r\n")
            leader = int(terminal.output.rpartition(b"pid=")[2].split()[0])
            alive = signal_session(leader, 0)
        events = await ended_events(client, id_)

    assert alive
    assert not signal_session(leader, 0)
    assert isinstance(events[-1], TerminalEnded)
    assert events[-1].reason == "closed"


async def test_terminals_end_with_the_server_and_their_ends_are_recorded(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("echo up$((1+1))\r")
            await terminal.read_until("up2\r\n")
            os.kill(os.getpid(), signal.SIGTERM)  # as to `refold serve`
            end = await terminal.read_end()
        events = await ended_events(client, id_)

    assert end["reason"] == "stopped"
    assert isinstance(events[-1], TerminalEnded)
    assert events[-1].reason == "stopped"


async def test_terminal_output_waits_until_the_page_has_shown_earlier_output(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("yes | head -c 1000000; echo over$((1+1))\r")
            size = 0
            while size < terminals.WINDOW_BYTES:
                frame = await terminal.socket.recv()
                assert isinstance(frame, bytes)
                size += len(frame)
            with anyio.move_on_after(0.3) as waits:
                await terminal.socket.recv()
            health = await client.ask("GET", "/api/health")
            await terminal.send("shown", bytes=size)
            await terminal.read_until("over2\r\n")

    assert waits.cancelled_caught  # nothing comes until it is shown
    assert health.status == 200
    assert size < terminals.WINDOW_BYTES + 128 * 1024
    assert size + len(terminal.output) > 1_000_000


async def test_unread_keystrokes_do_not_delay_terminal_output(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type(
                "stty raw -echo; echo off$((1+1)); sleep 0.5; echo on$((1+1))\r"
            )
            await terminal.read_until("off2\n")
            for _ in range(10):
                await terminal.type("x" * 60_000)
            await terminal.read_until("on2\n")


async def test_a_selection_goes_to_the_model_with_the_next_message_as_data(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, "Seen.", terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        path = f"/api/conversations/{id_}/terminals/output"
        answer = await client.ask("POST", path, {"text": "2 failed"}, page_headers(client))
        empty = await client.ask("POST", path, {"text": " \n"}, page_headers(client))
        async with client.follow(id_) as socket:
            await send_order(socket, "user_message", text="Why?")
            await read_until(socket, "result")
        texts = [
            e.event for e in client.host.stored.entries(id_) if isinstance(e.event, Said)
        ]
        conversation = (await client.ask("GET", f"/api/conversations/{id_}/messages")).json

    assert (answer.status, empty.status) == (204, 400)
    assert texts[0].typed == "!terminal"
    assert (
        "<shell>\n$ terminal\n2 failed\n(selected by the person" in conversation[0]["text"]
    )


async def test_the_number_of_running_terminals_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "MAX_TERMINALS", 1)
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_):
            second = await ask_token(client, id_, page_headers(client))
        while (third := await ask_token(client, id_, page_headers(client))).status == 429:
            await anyio.sleep(0.01)

    assert (second.status, third.status) == (429, 201)


async def test_an_unused_terminal_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "IDLE_SECONDS", 0.3)
    async with open_server(tmp_path, terminal=variables(tmp_path)) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            end = await terminal.read_end()

    assert end["reason"] == "idle"


async def test_an_open_terminal_keeps_its_conversation_open_and_the_journal_locked(
    tmp_path: Path,
) -> None:
    async with open_server(
        tmp_path, terminal=variables(tmp_path), idle_seconds=0.05
    ) as client:
        id_ = await client.begin()
        async with open_terminal(client, id_) as terminal:
            await terminal.type("sleep 0.5; echo still$((1+1))\r")
            await terminal.read_until("still2\r\n")
            chat = client.host.conversation(id_)
            is_held = chat is not None and chat.session.has_lease
            await terminal.type("exit\r")
            end = await terminal.read_end()

    assert is_held
    assert end["reason"] == "exited"
