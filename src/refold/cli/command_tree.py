"""Describes the command line as data: every command with its flags and arguments.

The data is computed from the argparse parsers. The manual page is generated from it, so it
always agrees with the parsers.
"""

from argparse import SUPPRESS, Action
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from refold.cli.flags import session_parser
from refold.cli.parser import HIDDEN_SUBCOMMAND, Parser, subcommand_helps, subcommands
from refold.cli.subcommands import SUBCOMMANDS, parser_of


class Value(Struct, frozen=True):
    """The value of a flag or positional argument. `called` is its name in a usage line.

    `needed` is false if the value may be omitted, and `many` is true if several are possible.
    """

    called: str
    choices: tuple[str, ...] = ()
    needed: bool = True
    many: bool = False


class Flag(Struct, frozen=True):
    """A flag. `value` is None if the flag takes no value."""

    names: tuple[str, ...]
    about: str
    value: Value | None = None


class Positional(Struct, frozen=True):
    """A positional argument."""

    value: Value
    about: str = ""


class Command(Struct, frozen=True):
    """A command. `path` are its words, such as ("refold", "sessions", "list")."""

    path: tuple[str, ...]
    about: str
    flags: tuple[Flag, ...] = ()
    words: tuple[Positional, ...] = ()
    commands: tuple["Command", ...] = ()

    @property
    def name(self) -> str:
        return " ".join(self.path)


def walk_commands(command: Command) -> Iterator[Command]:
    """Yield the command and all its subcommands."""
    yield command
    for child in command.commands:
        yield from walk_commands(child)


def usage(command: Command) -> str:
    """Return the usage line of a command, without --help."""
    parts = [command.name]
    parts += [
        f"[{_longest_name(flag)}{_value_form(flag)}]"
        for flag in command.flags
        if "--help" not in flag.names
    ]
    parts += [_placeholder(word.value) for word in command.words]
    if command.commands:
        parts.append("COMMAND …")
    return " ".join(parts)


def value_name(value: Value) -> str:
    """Return the name of a value in a usage line: its choices, or its metavar."""
    if value.choices:
        return f"{{{','.join(value.choices)}}}"
    return value.called


def _longest_name(flag: Flag) -> str:
    return next((name for name in flag.names if name.startswith("--")), flag.names[0])


def _value_form(flag: Flag) -> str:
    """Return a space and the value of a flag, as in a usage line; "" if it takes no value."""
    if flag.value is None:
        return ""
    name = value_name(flag.value)
    return f" {name}" if flag.value.needed else f" [{name}]"


def _placeholder(value: Value) -> str:
    called = value_name(value) + ("…" if value.many else "")
    return called if value.needed else f"[{called}]"


def command_tree() -> Command:
    """Return the tree of all commands. This imports every subcommand."""
    session = session_parser()
    commands = parser_of(SUBCOMMANDS)
    root = _command(("refold",), session, about="")
    top_commands = tuple(_subcommands(commands, ("refold",)))
    return replace(root, commands=top_commands)


def _command(path: tuple[str, ...], parser: Parser, about: str) -> Command:
    """Return the command `path` with all that `parser` accepts. `about` is its help text."""
    flags = list[Flag]()
    words = list[Positional]()
    for action in parser.actions():
        if action.help == SUPPRESS or subcommands(action):
            continue
        if action.option_strings:
            value = None if action.nargs == 0 else _value(action)
            flags.append(Flag(tuple(action.option_strings), action.help or "", value))
        else:
            words.append(Positional(_value(action), action.help or ""))
    summary = about or (parser.description or "").partition("\n")[0]
    return Command(
        path, summary, tuple(flags), tuple(words), tuple(_subcommands(parser, path))
    )


def _subcommands(parser: Parser, path: tuple[str, ...]) -> Iterator[Command]:
    """Yield the subcommands of `parser`, except the hidden one."""
    for action in parser.actions():
        abouts = subcommand_helps(action)
        for name, child in subcommands(action).items():
            if name != HIDDEN_SUBCOMMAND:
                yield _command((*path, name), child, abouts.get(name, ""))


def _value(action: Action) -> Value:
    """Return the name of an action's value, its choices, and how many values it may have."""
    name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    choices = tuple(map(str, action.choices or ()))
    is_needed = action.nargs not in ("?", "*")
    may_be_repeated = action.nargs in ("*", "+")
    return Value(name, choices, needed=is_needed, many=may_be_repeated)
