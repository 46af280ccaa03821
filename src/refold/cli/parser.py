"""argparse as refold uses it: errors are `BadInput`, help goes to stdout, types of values.

`flags` and the module of each subcommand define the flags.
"""

import re
from argparse import Action, ArgumentParser, ArgumentTypeError, HelpFormatter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol, cast

from refold.errors import BadInput
from refold.headless.streams import write

HIDDEN_SUBCOMMAND = "finish"  # of `refold memory`: started by refold itself
_MARGIN_COLUMNS = 2  # beside the help, as argparse has it
_UNWRAPPED_COLUMNS = 1_000
_NO_CHOICE = r"invalid choice: '(.*?)' \(choose from (.*)\)"
_MISSING_MESSAGE = "the following arguments are required: "
_UNKNOWN_MESSAGE = "unrecognized arguments: "
_UNKNOWN_FLAG = rf"{_UNKNOWN_MESSAGE}(?:.*? )?(--?\w[^ =]*)"

# They remove protection or a request: suggested only if one character is wrong.
_RISKY_FLAGS = frozenset({"--yolo", "--no-approval", "--dangerously-skip-permissions", "--trust",
                    "--no-session", "--allow", "--allowedTools"})  # fmt: skip
# Options of other agents that are something else here.
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
    """Raises `BadInput` for a bad command line, with the nearest name as a suggestion."""

    short_help = ""  # what --help prints instead of the list of every option

    def __init__(
        self,
        *,
        formatter_class: Callable[..., HelpFormatter] = HelpFormatter,
        **options: Any,
    ) -> None:
        self._help = formatter_class
        # argparse makes one for each flag, and would ask how wide the terminal is.
        super().__init__(
            formatter_class=partial(formatter_class, width=_UNWRAPPED_COLUMNS), **options
        )

    def actions(self) -> list[Action]:
        """Every flag and positional argument."""
        return list(self._actions)

    def print_help(self, file: object = None) -> None:
        """Write to stdout, in full: argparse would switch to stderr, or lose the rest."""
        if self.short_help:
            write(self.short_help)
        else:
            self.print_every_option()

    def print_every_option(self) -> None:
        from shutil import get_terminal_size

        width = get_terminal_size().columns - _MARGIN_COLUMNS
        self.formatter_class = partial(self._help, width=width)
        write(self.format_help())

    def report_unknown(
        self, remaining: Sequence[str], arguments: Sequence[str]
    ) -> NoReturn:
        """Report the arguments that are left by the parser of the subcommand they follow."""
        for action in self._actions:
            parsers = subcommands(action)
            for index, word in enumerate(arguments if parsers else ()):
                if word in parsers:
                    parsers[word].report_unknown(remaining, arguments[index + 1 :])
        self.error(f"{_UNKNOWN_MESSAGE}{' '.join(remaining)}")

    def error(self, message: str) -> NoReturn:
        way = "--help all" if self.prog == "refold" else "--help"
        raise BadInput(f"{self._add_suggestion(message)} (see {self.prog} {way})")

    def _add_suggestion(self, message: str) -> str:
        """The message, with the nearest name that exists."""
        from refold.values.similar_names import similar

        if message.startswith(_MISSING_MESSAGE):
            return f"{message}{self._list_choices(message)}"
        if match := re.search(_NO_CHOICE, message):
            names = [
                name
                for name in re.findall(r"'([^']*)'", match[2])
                if name != HIDDEN_SUBCOMMAND
            ]
            suggestions = similar(match[1], names, 1)
            text = f"invalid choice: '{match[1]}' (there are {', '.join(names)})"
            message = message[: match.start()] + text
        else:
            typed = re.match(_UNKNOWN_FLAG, message)
            suggestions = (
                similar(typed[1], self._flags_to_suggest(typed[1]), 1) if typed else []
            )
            if typed and (instead := _FOREIGN_FLAGS.get(typed[1])):
                return f"unknown option {typed[1]}: {instead}"
            message = f"unknown option {typed[1]}" if typed else message
        return f"{message}; did you mean {suggestions[0]}?" if suggestions else message

    def _flags_to_suggest(self, typed: str) -> list[str]:
        """Return the flags to suggest for `typed`.

        A flag that takes protection away is only suggested if a single character is wrong.
        """
        from rapidfuzz.distance import OSA

        return [
            flag
            for flag in self._option_string_actions
            if flag not in _RISKY_FLAGS or OSA.distance(flag, typed) <= 1
        ]

    def _list_choices(self, message: str) -> str:
        for action in self._actions:
            name = action.metavar or action.dest
            if action.choices and message == f"{_MISSING_MESSAGE}{name}":
                return f": {', '.join(item for item in action.choices if item != HIDDEN_SUBCOMMAND)}"
        return ""


class Subparsers(Protocol):
    """What argparse's `add_subparsers` returns, as far as it is used."""

    def add_parser(self, name: str, *, help: str) -> ArgumentParser: ...


def subcommands(action: Action) -> dict[str, Parser]:
    """The parsers of the subcommands, if the action adds any."""
    choices: Any = action.choices
    if not isinstance(choices, dict):
        return {}
    named = cast("dict[str, object]", choices)  # some flags have a dict of choices, too
    return {n: parser for n, parser in named.items() if isinstance(parser, Parser)}


def subcommand_helps(action: Action) -> dict[str, str]:
    """The help of each subcommand, which argparse keeps only for its own help."""
    actions: list[Action] = vars(action).get("_choices_actions", [])
    return {choice.dest: choice.help or "" for choice in actions}


def describe_subcommands(parser: Parser) -> None:
    """Show each subcommand's help at the top of its own --help, too."""
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
    """A whole number from 1 to `maximum`."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= maximum):
        article = "an" if kind[0] in "aeiou" else "a"
        raise ArgumentTypeError(f"{text!r} is not {article} {kind}")
    return int(text)


def listen_port(text: str) -> int:
    """A port to listen on; 0 is a free one."""
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def _positive_number(text: str, kind: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of {kind} above 0")
    return value
