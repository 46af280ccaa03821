"""Adapts argparse: errors are `BadInput`, help is printed on stdout, and values have types.

`flags` and the modules of the subcommands define the flags.
"""

import re
from argparse import Action, ArgumentParser, ArgumentTypeError, HelpFormatter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol, cast

from refold.errors import BadInput
from refold.headless.streams import write

# a subcommand of `refold memory` that only refold itself starts
HIDDEN_SUBCOMMAND = "finish"
_MARGIN_COLUMNS = 2  # beside the help, as in argparse
_UNWRAPPED_COLUMNS = 1_000
_CHOICE_ERROR_PATTERN = r"invalid choice: '(.*?)' \(choose from (.*)\)"
_MISSING_MESSAGE = "the following arguments are required: "
_UNKNOWN_MESSAGE = "unrecognized arguments: "
# the first flag in argparse's list of unknown arguments
_UNKNOWN_FLAG_PATTERN = rf"{_UNKNOWN_MESSAGE}(?:.*? )?(--?\w[^ =]*)"

# These remove protection or a request, so they are suggested only if one character is
# wrong.
_RISKY_FLAGS = frozenset({"--yolo", "--no-approval", "--dangerously-skip-permissions", "--trust",
                    "--no-session", "--allow", "--allowedTools"})  # fmt: skip
# Options of other agents that have another name here.
_FOREIGN_FLAGS = {
    "--verbose": "--log-level debug writes more to the log; the terminal shows each call",
    "--settings": "settings are in config.toml (refold config show)",
    "--mcp-config": "use refold mcp add, or write .mcp.json",
    "-y": "to run everything without asking, write --yolo",
    "--full-auto": "use --permission-mode sandbox",
    "--sandbox": "commands always run in the sandbox; see also --permission-mode sandbox",
    "--ask-for-approval": "use --permission-mode",
    "--profile": "use --security-profile, --model and --agent",
    "--oss": "use -m local/qwen2.5-coder-1.5b, or -m ollama/NAME",
    "--output-schema": "use --json-schema",
    "--include-directories": "use --add-dir",
    "--approval-mode": "use --permission-mode",
    "--session-id": "use -r ID",
    "--prompt": "use -p",
}


class Parser(ArgumentParser):
    """A parser that raises `BadInput` for an invalid command line, with a suggestion."""

    short_help = ""  # what --help prints instead of the list of all options

    def __init__(
        self,
        *,
        formatter_class: Callable[..., HelpFormatter] = HelpFormatter,
        **options: Any,
    ) -> None:
        self._help = formatter_class
        # argparse creates a formatter for each flag, and would ask for the terminal's width
        # each time.
        super().__init__(
            formatter_class=partial(formatter_class, width=_UNWRAPPED_COLUMNS), **options
        )

    def actions(self) -> list[Action]:
        """Return all flags and positional arguments of this parser."""
        return list(self._actions)

    def print_help(self, file: object = None) -> None:
        """Write the complete help to stdout. Unlike argparse, do not ignore write errors."""
        if self.short_help:
            write(self.short_help)
        else:
            self.print_every_option()

    def print_every_option(self) -> None:
        """Write the help with all options to stdout, fitted to the width of the terminal."""
        from shutil import get_terminal_size

        width = get_terminal_size().columns - _MARGIN_COLUMNS
        self.formatter_class = partial(self._help, width=width)
        write(self.format_help())

    def report_unknown(
        self, remaining: Sequence[str], arguments: Sequence[str]
    ) -> NoReturn:
        """Raise `BadInput` for the arguments `remaining`, which no parser recognized.

        The parser of the last subcommand in `arguments` raises the error, with its flags as
        suggestions.
        """
        for action in self._actions:
            parsers = subcommands(action)
            for index, word in enumerate(arguments):
                if word in parsers:
                    parsers[word].report_unknown(remaining, arguments[index + 1 :])
        self.error(f"{_UNKNOWN_MESSAGE}{' '.join(remaining)}")

    def error(self, message: str) -> NoReturn:
        help_flag = "--help all" if self.prog == "refold" else "--help"
        raise BadInput(f"{self._add_suggestion(message)} (see {self.prog} {help_flag})")

    def _add_suggestion(self, message: str) -> str:
        """Return an error message of argparse, with a similar name or the choices added."""
        from refold.values.similar_names import similar

        if message.startswith(_MISSING_MESSAGE):
            return f"{message}{self._list_choices(message)}"
        if match := re.search(_CHOICE_ERROR_PATTERN, message):
            typed, quoted_names = match[1], match[2]
            names = [
                name
                for name in re.findall(r"'([^']*)'", quoted_names)
                if name != HIDDEN_SUBCOMMAND
            ]
            suggestions = similar(typed, names, limit=1)
            text = f"invalid choice: '{typed}' (there are {', '.join(names)})"
            message = message[: match.start()] + text
        elif match := re.match(_UNKNOWN_FLAG_PATTERN, message):
            flag = match[1]
            message = f"unknown option {flag}"
            if advice := _FOREIGN_FLAGS.get(flag):
                return f"{message}: {advice}"
            suggestions = similar(flag, self._flags_to_suggest(flag), limit=1)
        else:
            suggestions = []
        return f"{message}; did you mean {suggestions[0]}?" if suggestions else message

    def _flags_to_suggest(self, typed: str) -> list[str]:
        """Return the flags to suggest for the unknown flag `typed`.

        A flag that removes protection is suggested only if a single character differs.
        """
        from rapidfuzz.distance import OSA

        return [
            flag
            for flag in self._option_string_actions
            if flag not in _RISKY_FLAGS or OSA.distance(flag, typed) <= 1
        ]

    def _list_choices(self, message: str) -> str:
        """Return ": " and the choices of the missing argument; "" if it has no choices."""
        for action in self._actions:
            name = action.metavar or action.dest
            if action.choices and message == f"{_MISSING_MESSAGE}{name}":
                return f": {', '.join(item for item in action.choices if item != HIDDEN_SUBCOMMAND)}"
        return ""


class Subparsers(Protocol):
    """The part of the result of argparse's `add_subparsers` that refold uses."""

    def add_parser(self, name: str, *, help: str) -> ArgumentParser:
        """Add the subcommand `name`, and return its parser."""
        ...


def subcommands(action: Action) -> dict[str, Parser]:
    """Return the parsers of the subcommands of `action`, by name; {} for other actions."""
    choices: Any = action.choices
    if not isinstance(choices, dict):
        return {}
    named = cast("dict[str, object]", choices)  # some flags also have a dict of choices
    return {name: parser for name, parser in named.items() if isinstance(parser, Parser)}


def subcommand_helps(action: Action) -> dict[str, str]:
    """Return the help text of each subcommand of `action`, by name."""
    actions: list[Action] = vars(action).get("_choices_actions", [])
    return {choice.dest: choice.help or "" for choice in actions}


def describe_subcommands(parser: Parser) -> None:
    """Use the help text of each subcommand also as the description in its --help."""
    for action in parser.actions():
        texts = subcommand_helps(action)
        for name, child in subcommands(action).items():
            if text := texts.get(name):
                child.description = child.description or f"{text[:1].upper()}{text[1:]}."
            describe_subcommands(child)


def seconds(text: str) -> float:
    return _positive_number(text, "seconds")


def dollars(text: str) -> float:
    return _positive_number(text, "dollars")


def count(text: str, kind: str = "number: 1 or more", maximum: int = 2**63 - 1) -> int:
    """Return `text` as a whole number from 1 to `maximum`.

    `kind` is the name of the expected value in an error.
    """
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= maximum):
        article = "an" if kind[0] in "aeiou" else "a"
        raise ArgumentTypeError(f"{text!r} is not {article} {kind}")
    return int(text)


def listen_port(text: str) -> int:
    """Return `text` as the number of a port to listen on; 0 means any free port."""
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def _positive_number(text: str, kind: str) -> float:
    """Return `text` as a number above 0. `kind` is what the number counts, for the error."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0  # fails the check below
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of {kind} above 0")
    return value
