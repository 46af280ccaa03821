"""`refold --help`: one screen of daily options, and `--help all` for the rest."""

import re

import pytest

from refold.cli import short_help
from refold.cli.flags import parse, session_parser
from refold.cli.parser import Parser, subcommands
from refold.cli.subcommands import SUBCOMMANDS, parser_of
from refold.values.modes import MODE_NAMES

LINES, SHORT_LINES, COLUMNS = 40, 30, 80
FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][A-Za-z-]*")


def help_text(capfd: pytest.CaptureFixture[str], *text: str) -> str:
    with pytest.raises(SystemExit) as end:
        parse(text)
    assert not end.value.code
    return capfd.readouterr().out


def flags_of(parser: Parser) -> set[str]:
    return {name for action in parser.actions() for name in action.option_strings}


def tui() -> Parser:
    [parser] = (
        subcommand_actions["tui"]
        for a in parser_of(("tui",)).actions()
        if (subcommand_actions := subcommands(a))
    )
    return parser


def test_help_of_refold_and_of_every_subcommand_fits_one_screen(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))

    pages = {
        name: help_text(capfd, *name.split(), "--help").splitlines()
        for name in ("", *SUBCOMMANDS)
    }

    assert [name for name, lines in pages.items() if len(lines) > LINES] == []
    assert max(len(pages[name]) for name in ("", "tui")) <= SHORT_LINES
    wide = {name for name, lines in pages.items() if len(max(lines, key=len)) > COLUMNS}
    assert wide == set()


@pytest.mark.parametrize("words", [("--help", "all"), ("help", "all")])
def test_help_all_prints_every_option_and_subcommand(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    text = help_text(capfd, *words)

    assert flags_of(session_parser()) - set(FLAG.findall(text)) == set()
    assert [name for name in SUBCOMMANDS if f"\n  {name} " not in text] == []


def test_short_help_names_only_options_commands_and_modes_that_exist() -> None:
    text = short_help.REFOLD_HELP
    flags = flags_of(session_parser())
    _, options, commands = re.split(r"\n(?:options|commands):\n", text)
    modes = re.search(r"runs without asking: ([\w, \n-]+?)\n +-C", text)
    subcommands = re.findall(r"^  (\w+) ", commands, re.MULTILINE)

    assert set(FLAG.findall(text)) - flags == set()
    assert set(FLAG.findall(short_help.TUI_HELP)) - flags_of(tui()) == set()
    assert {"-m", "--permission-mode", "-C", "--output-format"} <= set(
        FLAG.findall(options)
    )
    assert subcommands
    assert set(subcommands) - set(SUBCOMMANDS) == set()
    assert modes
    assert set(re.split(r",\s+", modes[1])) == {
        mode for mode in MODE_NAMES if mode == mode.lower()
    }


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (("help",), ("--help",)),
        (("--help", "rewind"), ("rewind", "--help")),
        (("help", "rewind"), ("rewind", "--help")),
    ],
)
def test_help_word_and_help_flag_print_the_same_help_of_a_subcommand(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...], same: tuple[str, ...]
) -> None:
    assert help_text(capfd, *words) == help_text(capfd, *same)
