"""/expand: the whole text of what the conversation shows only the start and the end of."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.console.capabilities import TerminalCapabilities, supports_links
from refold.console.pager import pager_command
from refold.console.printer import Printer
from refold.errors import RefoldError
from refold.views.styled import Link
from tests.terminal.stage import EDIT, READ
from tests.terminal.test_conversation import ScriptedTerminal

OpenScriptedTerminal = Callable[..., ScriptedTerminal]
MANY = ("bash", '{"command": "cat many.txt"}')
LONG = ("bash", '{"command": "cat long.txt"}')
HUGE = ("bash", '{"command": "cat huge.txt"}')


@pytest.fixture
def scripted_terminal(tmp_path: Path) -> OpenScriptedTerminal:
    (tmp_path / "many.txt").write_text("".join(f"row {n}\n" for n in range(60)))
    (tmp_path / "huge.txt").write_text("".join(f"row {n}\n" for n in range(20_000)))
    (tmp_path / "long.txt").write_text("".join(f"row {n}\n" for n in range(3000)))
    return lambda *lines, **more: ScriptedTerminal(tmp_path, *lines, **more)


def test_folded_output_names_the_expand_command(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    rows = scripted_terminal([MANY], "Done.").tell("go", "y")

    assert "    … 41 more lines; /expand shows all …" in rows


def test_expand_shows_the_newest_result_and_older_ones_by_number(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([MANY], [READ], "Done.")

    rows = terminal.tell("go", "y", "/expand 2", "/expand")

    whole = rows.index("bash cat many.txt")
    assert rows[whole + 1 : whole + 61] == [f"row {n}" for n in range(60)]
    assert rows[whole + 61 : whole + 63] == [
        "read_file hello.py",
        "1\tdef greet():".expandtabs(4),
    ]


def test_expand_shows_saved_output_that_was_cut_for_the_model(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([HUGE], "Done.")

    rows = terminal.tell("go", "y", "/expand")

    assert [row for row in rows if row.startswith("row ")][-20_000:] == [
        f"row {n}" for n in range(20_000)
    ]


def test_folded_output_counts_lines_that_its_display_data_lacks(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal([LONG], "Done.")

    rows = terminal.tell("go", "y", "/expand")

    assert "    … 2981 more lines; /expand shows all …" in rows
    whole = rows.index("bash cat long.txt")
    assert rows[whole + 1 : whole + 3001] == [f"row {n}" for n in range(3000)]


def test_expand_shows_an_edit_as_a_diff(scripted_terminal: OpenScriptedTerminal) -> None:
    rows = scripted_terminal([READ], [EDIT], "Done.").tell("go", "y", "/expand")

    whole = rows.index("edit_file hello.py")
    assert rows[whole + 1] == "changed hello.py +1 -1"
    assert '-    return "hi"' in rows[whole:]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("/expand", "there is no result 1 in this session: there is none yet"),
        ("/expand 0", "/expand thinking or /expand message, not '0'"),
        ("/expand me", "/expand thinking or /expand message, not 'me'"),
        ("/expand thinking", "there is no thinking in this session"),
    ],
)  # fmt: skip
def test_expand_rejects_invalid_arguments(
    scripted_terminal: OpenScriptedTerminal, typed: str, message: str
) -> None:
    rows = scripted_terminal("Hello.").tell("hi", typed)

    assert message in " ".join(rows)


@pytest.mark.parametrize(
    ("pager", "command"),
    [
        ("more", ("more",)),
        ("less -S '-P x'", ("less", "-S", "-P x")),
        ("  ", ("less", "-R")),
    ],
)
def test_the_pager_comes_from_the_pager_variable(
    pager: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    less = tmp_path / "less"
    less.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert pager_command({"PAGER": pager}) == command


def test_a_pager_variable_that_cannot_be_parsed_is_reported() -> None:
    with pytest.raises(RefoldError, match="PAGER is not a command"):
        pager_command({"PAGER": "less '"})


@pytest.mark.parametrize(
    ("environ", "opened"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4602"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "x"}, False),
        ({"TERM": "screen-256color", "VTE_VERSION": "7600"}, False),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x,1,0"}, False),
        ({"TERM": "xterm", "TERM_PROGRAM": "iTerm.app"}, True),
        ({"TERM": "xterm", "TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"TERM": "xterm", "WT_SESSION": "1-2"}, True),
        ({}, False),
    ],
)
def test_links_are_written_only_to_terminals_that_support_them(
    environ: dict[str, str], opened: bool
) -> None:
    assert supports_links(environ) is opened


def test_a_link_is_written_with_escape_sequences_around_its_text() -> None:
    out = io.StringIO()
    paper = Printer(out, TerminalCapabilities(color=True, moves=True, links=True))

    paper.print_line(((Link("https://a.b"), "two words"), ("plain", ".")))

    begin, end = "\x1b]8;id=5d22a1b5;https://a.b\x1b\\", "\x1b]8;;\x1b\\"
    assert out.getvalue() == f"{begin}\x1b[4mtwo words\x1b[0m{end}.\n"


def test_expand_shows_the_newest_message_in_full(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    message = "\n".join(f"pasted {n}" for n in range(60))

    rows = scripted_terminal("Hello.").tell(message, "/expand message")

    assert [row for row in rows if row.startswith("pasted")] == message.split("\n")
