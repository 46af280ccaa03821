"""The command line as a value: what can be written, what it is for, what it takes.

Completion scripts and the manual page are made from it. Where it comes from is the doors'
business.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

# What a shell must ask for, or find itself; "text": only the person knows.
Kind: TypeAlias = Literal[
    "text", "choices", "files", "directories",
    "sessions", "models", "providers", "agents", "presets", "settings",
]  # fmt: skip
ASKED: tuple[Kind, ...] = (
    "sessions", "models", "providers", "agents", "presets", "settings",
)  # fmt: skip


class Value(Struct, frozen=True):
    """`called` is as in a usage line; `needed` is false where it may be left out."""

    called: str
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    needed: bool = True
    many: bool = False


class Flag(Struct, frozen=True):
    """`value` is None for one that takes none."""

    names: tuple[str, ...]
    about: str
    value: Value | None = None


class Positional(Struct, frozen=True):
    """One that stands at its place, without a flag."""

    value: Value
    about: str = ""


class Command(Struct, frozen=True):
    """`path` is how it is called, as ("refold", "sessions", "list")."""

    path: tuple[str, ...]
    about: str
    flags: tuple[Flag, ...] = ()
    words: tuple[Positional, ...] = ()
    commands: tuple["Command", ...] = ()

    @property
    def name(self) -> str:
        return " ".join(self.path)


def every(command: Command) -> Iterator[Command]:
    """It, and all below it."""
    yield command
    for each in command.commands:
        yield from every(each)


def usage(command: Command) -> str:
    """How it is written, but for --help, which all have."""
    parts = [command.name]
    parts += [
        f"[{_longest(flag)}{_taken(flag)}]"
        for flag in command.flags
        if "--help" not in flag.names
    ]
    parts += [_word(word.value) for word in command.words]
    parts += ["COMMAND …"] if command.commands else []
    return " ".join(parts)


def taken(value: Value) -> str:
    """What a flag's value is called, with its choices where there are few."""
    if value.kind == "choices" and value.choices:
        return f"{{{','.join(value.choices)}}}"
    return value.called


def _longest(flag: Flag) -> str:
    return next((name for name in flag.names if name.startswith("--")), flag.names[0])


def _taken(flag: Flag) -> str:
    if flag.value is None:
        return ""
    called = taken(flag.value)
    return f" {called}" if flag.value.needed else f" [{called}]"


def _word(value: Value) -> str:
    called = taken(value) + ("…" if value.many else "")
    return called if value.needed else f"[{called}]"
