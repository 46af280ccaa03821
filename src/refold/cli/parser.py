"""How a command line is read: argparse, with our errors and our way to print.

What can be written there is said in `flags`, and by each subcommand.
"""

import re
from argparse import Action, ArgumentParser
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from refold.cli.out import write
from refold.cli.subparsers import Subparsers
from refold.errors import BadInput

HIDDEN = "finish"  # of `refold memory`: no person types it
_NO_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
_MISSING = "the following arguments are required: "
_UNKNOWN = "unrecognized arguments: "
_UNKNOWN_FLAG = re.compile(rf"{_UNKNOWN}(?:.*? )?(--?\w[^ =]*)")


class Parser(ArgumentParser):
    """Errors of the command line are ours, like any other bad input."""

    def actions(self) -> list[Action]:
        """Each flag and word that it knows, for those who tell of them."""
        return list(self._actions)

    def print_help(self, file: object = None) -> None:
        """On stdout, whole: argparse goes over to stderr, or says nothing."""
        write(self.format_help())

    def unknown(self, left: Sequence[str], arguments: Sequence[str]) -> NoReturn:
        """Say what is left of the arguments, by the parser of the subcommand they name."""
        for action in self._actions:
            there = subcommands(action)
            for at, word in enumerate(arguments if there else ()):
                if word in there:
                    there[word].unknown(left, arguments[at + 1 :])
        self.error(f"{_UNKNOWN}{' '.join(left)}")

    def error(self, message: str) -> NoReturn:
        raise BadInput(
            f"{self._with_near(message)} ({self.prog} --help shows what there is)"
        )

    def _with_near(self, message: str) -> str:
        """The message, and what may have been meant."""
        from difflib import get_close_matches

        if message.startswith(_MISSING):
            return f"{message}{self._to_choose_from(message)}"
        if found := _NO_CHOICE.search(message):
            there = [name for name in re.findall(r"'([^']*)'", found[2]) if name != HIDDEN]
            near = get_close_matches(found[1], there, n=1)
            said = f"invalid choice: '{found[1]}' (there are {', '.join(there)})"
            message = message[: found.start()] + said
        else:
            typed = _UNKNOWN_FLAG.match(message)
            near = (
                get_close_matches(typed[1], self._option_string_actions, n=1)
                if typed
                else []
            )
        return f"{message}; did you mean {near[0]}?" if near else message

    def _to_choose_from(self, message: str) -> str:
        for action in self._actions:
            name = action.metavar or action.dest
            if action.choices and message == f"{_MISSING}{name}":
                return f": {', '.join(each for each in action.choices if each != HIDDEN)}"
        return ""


def subcommands(action: Action) -> dict[str, Parser]:
    """The parsers of the subcommands, where it stands for such."""
    found: Any = action.choices
    if not isinstance(found, dict):
        return {}
    named = cast("dict[str, object]", found)  # of some flags the choices are one, too
    return {n: each for n, each in named.items() if isinstance(each, Parser)}


class Described:
    """Commands that say in their own --help, too, what they are for."""

    def __init__(self, inner: Subparsers) -> None:
        self._inner = inner

    def add_parser(self, name: str, *, help: str) -> ArgumentParser:
        parser = self._inner.add_parser(name, help=help)
        end = "" if help.endswith("?") else "."
        parser.description = parser.description or f"{help[:1].upper()}{help[1:]}{end}"
        return parser
