"""The command line as a value, read off the parsers that read it.

So completion, the manual page and what is really understood cannot differ.
"""

from argparse import SUPPRESS, Action
from collections.abc import Iterator

from refold.cli.flags import whole
from refold.cli.parser import HIDDEN, Parser, subcommands
from refold.views.command_line import Command, Flag, Kind, Positional, Value

_BY_NAME: dict[str, Kind] = {
    "ID": "sessions", "NODE": "sessions", "SESSION": "sessions",
    "PROVIDER/MODEL": "models", "PROVIDER": "providers", "KEY": "settings",
    "FILE": "files", "FILE|DIR": "files", "FILE|JSON": "files", "DIR": "directories",
}  # fmt: skip
_BY_FLAG: dict[str, Kind] = {
    "--agent": "agents", "--preset": "presets", "--context": "files", "--json-schema": "files",
}  # fmt: skip
_ALSO_BY_DEST: dict[str, Kind] = {"id": "sessions", "session": "sessions"}


def described() -> Command:
    """All of it. Loads every door, which takes a while."""
    session, commands = whole()
    root = _command(("refold",), session, "")
    below = tuple(_below(commands, ("refold",)))
    return Command(root.path, root.about, root.flags, root.words, below)


def _command(path: tuple[str, ...], parser: Parser, about: str) -> Command:
    flags, words = list[Flag](), list[Positional]()
    for action in parser.actions():
        if action.help == SUPPRESS or subcommands(action):
            continue
        if action.option_strings:
            value = None if action.nargs == 0 else _value(action)
            flags.append(Flag(tuple(action.option_strings), action.help or "", value))
        else:
            words.append(Positional(_value(action), action.help or ""))
    said = about or (parser.description or "").partition("\n")[0]
    return Command(path, said, tuple(flags), tuple(words), tuple(_below(parser, path)))


def _below(parser: Parser, path: tuple[str, ...]) -> Iterator[Command]:
    for action in parser.actions():
        abouts = _abouts(action)
        for name, each in subcommands(action).items():
            if name != HIDDEN:
                yield _command((*path, name), each, abouts.get(name, ""))


def _abouts(action: Action) -> dict[str, str]:
    """What each subcommand is for; argparse keeps that where only its help looks."""
    told: list[Action] = vars(action).get("_choices_actions", [])
    return {each.dest: each.help or "" for each in told}


def _value(action: Action) -> Value:
    called = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    choices = tuple(map(str, action.choices or ()))
    needed = action.nargs not in ("?", "*")
    many = action.nargs in ("*", "+")
    return Value(called, _kind(action, called, choices), choices, needed, many)


def _kind(action: Action, called: str, choices: tuple[str, ...]) -> Kind:
    if choices:
        return "choices"
    for name in action.option_strings:
        if name in _BY_FLAG:
            return _BY_FLAG[name]
    return _BY_NAME.get(called) or _ALSO_BY_DEST.get(action.dest, "text")
