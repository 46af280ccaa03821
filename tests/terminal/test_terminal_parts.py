"""The small parts of the line terminal, one by one."""

import io
import os
import pty
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.cli import flags, subcommands
from refold.client.permissions import rules_to_offer
from refold.commands.table import command_in, commands
from refold.console.capabilities import TerminalCapabilities, detect_capabilities
from refold.console.keyboard_modes import canonical_mode, cbreak_mode
from refold.console.printer import Printer
from refold.console.reader import Key
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule, parse
from refold.terminal.input.line_reader import LineReader
from refold.terminal.screen.status_line import StatusLine
from refold.tools.builtin import builtin
from refold.values.messages import ToolCall
from refold.values.modes import Mode
from refold.views.styled import line, plain_text


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("/model two", ("model", "two")),
        ("  /HELP ", ("help", "")),
        ("exit", ("exit", "")),
        ("clear", ("clear", "")),
        ("/etc/hosts is wrong", None),
        ("/", ("help", "")),
        ("?", ("help", "")),
        ("? why", None),
        ("/ and more", None),
        ("exit the loop", None),
        ("/two\nlines", None),
        ("!ls -l", ("shell", "ls -l")),
        (" ! for x in a\ndo y; done", ("shell", "for x in a\ndo y; done")),
        ("!", ("shell", "")),
        ("#remember", ("note", "remember")),
        ("# A heading\nwith words", None),
    ],
)
def test_a_slash_command_is_distinguished_from_a_message(
    typed: str, expected: tuple[str, str] | None
) -> None:
    assert command_in(typed) == expected


def test_every_command_has_a_description_and_a_unique_name() -> None:
    table = commands()
    names = [name for command in table for name in (command.name, *command.aliases)]

    assert len(names) == len(set(names))
    assert all(command.about for command in table)


def test_help_of_the_command_line_names_every_subcommand(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        flags.parse(["--help", "all"])

    parts = capfd.readouterr().out.split("subcommands (")[1].split("\n")[1:]
    assert [row.split()[0] for row in parts if row] == list(subcommands.SUBCOMMANDS)


class Grounds(Struct, frozen=True):
    """Implements `engine.authorize.PolicyContext`."""

    rules: Sequence[Rule] = (parse("bash(rm *)", "ask"),)
    mode: Mode = "default"
    facts: Callable[[], Facts] = lambda: Facts(
        ("/work",), follow=lambda p: f"/real{p}" if p.startswith("/") else f"/work/{p}"
    )


@pytest.mark.parametrize(
    ("name", "arguments", "rules"),
    [
        ("bash", {"command": "git status"}, ["bash(git status)"]),
        ("bash", {"command": "git status; rm x"}, []),
        ("bash", {"command": "rm x"}, []),
        ("bash", {"command": "git add a"}, ["bash(git add *)", "bash(git add a)"]),
        ("edit_file", {"path": "a.py", "old": "x", "new": "y"}, ["edit_file(./a.py)"]),
        ("write_file", {"path": "/out/a", "content": ""}, ["write_file(/real/out/a)"]),
        ("write_file", {"path": "/out/*", "content": ""}, [r"write_file(/real/out/\*)"]),
        ("bash", {"no": "command"}, []),
        ("unknown", {"x": 1}, []),
    ],
)
def test_only_rules_that_allow_the_call_are_offered(
    name: str, arguments: dict[str, Any], rules: list[str]
) -> None:
    grounds = Grounds()
    call = ToolCall("call-0", name, Raw(msgspec.json.encode(arguments)))
    secret = replace(call, arguments=Raw(b'{"command": "git \\u2026"}'))

    tool = next((item for item in builtin() if item.name == name), None)
    offers = rules_to_offer(OpenCall(call), call, tool, grounds, View())
    assert list(offers) == [(rule,) for rule in rules]
    assert not rules_to_offer(OpenCall(call, once=True), call, tool, grounds, View())
    assert not rules_to_offer(OpenCall(secret), call, tool, grounds, View())


@pytest.fixture
def pipe() -> Iterator[tuple[int, Callable[[bytes], None]]]:
    reading, writing = os.pipe()
    yield reading, lambda data: (os.write(writing, data), None)[1]
    os.close(reading)
    os.close(writing)


def test_piped_input_is_not_read_during_a_turn(
    pipe: tuple[int, Callable[[bytes], None]],
) -> None:
    script, (screen, keyboard) = pipe[0], os.openpty()

    readers = [
        LineReader(Printer(io.StringIO(), TerminalCapabilities()), source)
        for source in (script, keyboard)
    ]
    os.close(screen)
    os.close(keyboard)

    assert [reader.reads_input for reader in readers] == [False, True]


def test_a_plain_terminal_reads_input_line_by_line(
    pipe: tuple[int, Callable[[bytes], None]],
) -> None:
    source, write = pipe
    out = io.StringIO()
    plain = LineReader(Printer(out, TerminalCapabilities()), source)

    async def read() -> list[str | Key]:
        write("one\\\ntw\u00f6\n".encode() + b"maybe\nYES\n\nrest \xff\r\n")
        return [
            await plain.read_message(lambda: (("person", "> "),)),
            await plain.read_choice((("plain", "? "),), "yn"),
            await plain.read_choice((("plain", "? "),), "yn"),
            await plain.read_choice((("plain", "? "),), "yn"),
            await plain.read_line(()),
        ]

    assert anyio.run(read) == ["one\ntw\u00f6", "", "y", "", "rest \ufffd"]
    assert out.getvalue() == "> \n  \n? \n? \n? \n"


def test_ctrl_c_and_end_of_input_are_read_as_keys(
    pipe: tuple[int, Callable[[bytes], None]],
) -> None:
    source, write = pipe
    plain = LineReader(Printer(io.StringIO(), TerminalCapabilities()), source)

    async def read_key() -> str | Key:
        read_keys: list[str | Key] = []

        async def read() -> None:
            read_keys.append(await plain.read_message(tuple))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            plain.interrupt()
        return read_keys[0]

    assert anyio.run(read_key) is Key.CTRL_C
    write(b"after\n")
    assert anyio.run(plain.read_message, tuple) == "after"
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        reader = LineReader(
            Printer(io.StringIO(), TerminalCapabilities()), nothing.fileno()
        )
        assert anyio.run(reader.read_message, tuple) is Key.CTRL_D


def test_ctrl_c_right_after_enter_does_not_drop_the_line() -> None:
    keyboard, source = os.openpty()
    plain = LineReader(Printer(io.StringIO(), TerminalCapabilities()), source)
    lines, interrupts = list[str | Key](), list[bool]()

    async def read() -> None:
        lines.append(await plain.read_message(tuple))

    async def run_story() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            os.write(keyboard, b"words\n")
            interrupts.append(plain.interrupt())
        interrupts.append(plain.interrupt())  # no prompt is open

    try:
        anyio.run(run_story)
    finally:
        os.close(keyboard)
        os.close(source)

    assert (lines, interrupts) == (["words"], [False, False])


def test_text_after_ctrl_d_is_printed_on_a_new_line() -> None:
    out = io.StringIO()
    paper = Printer(out, TerminalCapabilities())
    keyboard, source = os.openpty()
    try:
        os.write(keyboard, b"words\n\x04")
        plain = LineReader(paper, source)

        typed = [anyio.run(plain.read_message, lambda: line("> ")) for _ in range(2)]
        paper.print_text("Bye.")
    finally:
        os.close(keyboard)
        os.close(source)

    assert typed == ["words", Key.CTRL_D]
    assert out.getvalue() == "> > \nBye.\n"  # the terminal shows typed keys


def test_the_status_line_is_erased_before_text_is_printed() -> None:
    out = io.StringIO()
    paper = Printer(out, TerminalCapabilities(moves=True, text_width=lambda: 12))

    paper.show_status((("dim", "thinking a long time"),))
    paper.show_status((("dim", "thinking a long time"),))
    paper.print_text("done")
    paper.print_pieces([("plain", "half a line")])
    paper.show_status((("dim", "never drawn"),))

    assert out.getvalue() == ("\r\x1b[Kthinking a…\r\x1b[Kdone\nhalf a line")


def test_a_line_in_two_columns_is_wrapped_within_its_second_column() -> None:
    out = io.StringIO()
    paper = Printer(out, TerminalCapabilities(moves=True, text_width=lambda: 20))

    paper.print_text("* /mode   how much runs unasked")
    paper.print_text("                sun rain")
    paper.print_text("  a long name  and what it means")
    paper.print_text("It ends.  Another sentence.")

    assert out.getvalue() == (
        "* /mode   how much\n          runs\n          unasked\n"
        "                sun\n                rain\n"
        "  a long name  and\n    what it means\nIt ends.  Another\nsentence.\n"
    )


def test_a_list_line_is_wrapped_with_a_hanging_indent() -> None:
    out = io.StringIO()
    paper = Printer(out, TerminalCapabilities(moves=True, text_width=lambda: 16))

    paper.print_text("  /mode  how much runs")
    paper.print_text("how much runs unasked")

    assert out.getvalue() == "  /mode  how\n    much runs\nhow much runs\nunasked\n"


def test_repeated_gaps_print_one_empty_line() -> None:
    out = io.StringIO()
    paper = Printer(out, TerminalCapabilities())

    paper.ensure_blank_line()
    paper.print_text("one")
    paper.ensure_blank_line()
    paper.ensure_blank_line()
    paper.print_pieces([("plain", "two")])
    paper.ensure_blank_line()
    paper.print_text("three\n")
    paper.ensure_blank_line()
    paper.print_text("four")

    assert out.getvalue() == "one\n\ntwo\n\nthree\n\nfour\n"


def test_a_terminal_without_utf_8_gets_a_replacement_for_every_character() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="latin-1")
    paper = Printer(out, detect_capabilities(out, {"TERM": "xterm"}))

    paper.print_text("naïve 中文")
    paper.print_nested_lines([(("plain", "x"),)])

    assert raw.getvalue().decode("latin-1") == "naïve \\u4e2d\\u6587\n  | x\n"


@pytest.mark.parametrize(
    ("environ", "color", "expected"),
    [
        ({"TERM": "xterm"}, None, (True, True)),
        ({"TERM": "xterm", "NO_COLOR": "1"}, None, (False, True)),
        ({"TERM": "dumb"}, None, (False, False)),
        ({}, None, (False, False)),
        ({"TERM": "xterm"}, False, (False, True)),
    ],
)
def test_colours_and_movement_follow_the_terminal(
    environ: dict[str, str], color: bool | None, expected: tuple[bool, bool]
) -> None:
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]

    capabilities = detect_capabilities(out, environ, color)

    assert (capabilities.color, capabilities.moves) == expected


def test_the_status_line_shows_the_activity_and_the_last_line_of_output() -> None:
    times = iter([0.0, 1.5, 2.0, 3.0])
    doing = StatusLine(lambda: next(times), "|/")

    doing.set_activity("running")
    first = plain_text([doing.line()])
    doing.set_output("call-0", "10%\r20%\rold\n\x1b[2Jnew\n\n")
    second = plain_text([doing.line()])
    doing.forget_output("call-0")
    doing.clear()

    assert (
        first
        == "/ running 1.5 s  type a message for the next step · ctrl+c to stop or redirect"
    )
    assert second == "| running 2.0 s  \\x1b[2Jnew"
    assert doing.line() == ()


@pytest.mark.parametrize("mode", [cbreak_mode, canonical_mode])
def test_ctrl_c_discards_no_output(
    mode: Callable[[int], AbstractContextManager[None]],
) -> None:
    keyboard, screen = pty.openpty()
    os.set_blocking(screen, False)
    os.set_blocking(keyboard, False)

    with mode(screen):
        number = os.write(screen, b"x" * 60_000)  # more than a terminal takes at once
        os.write(keyboard, b"\x03a\n")
        select.select([screen], [], [], 60)  # Ctrl+C has been handled
        count = 0
        while count < number and select.select([keyboard], [], [], 10)[0]:
            count += os.read(keyboard, 65_536).count(b"x")

    os.close(keyboard)
    os.close(screen)
    assert count == number
