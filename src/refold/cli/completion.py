"""`refold completion bash|zsh|fish`: prints code that lets the shell complete our commands.

The library argcomplete generates the code. At each Tab, the shell starts refold, which
completes the line with the parsers of the command line (77 ms). Values such as session ids are
read from local files. No provider is contacted and nothing is written. After an error there are
no completions. shtab 1.13 is not used, because it lets the shell expand values: a session named
`my $(touch FILE)` ran the command at Tab.
"""

import os
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from refold.cli.flags import session_parser
from refold.cli.parser import HIDDEN_SUBCOMMAND, Parser, subcommands
from refold.cli.subcommands import SUBCOMMANDS, parser_of
from refold.config.paths import paths
from refold.errors import BadInput, RefoldError
from refold.headless.streams import write
from refold.views.escape import escape_to_one_line

if TYPE_CHECKING:
    from argcomplete.completers import BaseCompleter

SHELLS = ("bash", "zsh", "fish")
_INSTALL_HINTS = """\
In bash, write into ~/.bashrc:    eval "$(refold completion bash)"
In zsh, write into ~/.zshrc:      eval "$(refold completion zsh)"      (after compinit)
In fish, run once:                refold completion fish > ~/.config/fish/completions/refold.fish
"""


def add_arguments(completion: ArgumentParser) -> None:
    completion.add_argument("shell", nargs="?", choices=SHELLS, metavar="SHELL",
        help="bash, zsh or fish")  # fmt: skip


def run(args: Namespace) -> int:
    """Print the script for a shell; on a terminal, without a shell, how to install it."""
    if args.shell:
        write(script(args.shell))
    elif sys.stdout.isatty():
        write(_INSTALL_HINTS)
    else:
        raise BadInput(f"name a shell: refold completion {'|'.join(SHELLS)}")
    return 0


def script(shell: str) -> str:
    """Return the completion code for `shell`, one of `SHELLS`."""
    from argcomplete.shell_integration import shellcode

    return shellcode(["refold"], shell=shell)


def complete_line() -> None:
    """Print the completions that the shell requests at Tab, and exit the process."""
    import argcomplete
    from argcomplete.completers import SuppressCompleter
    from argcomplete.lexers import split_line

    line = os.environ["COMP_LINE"]
    cursor = int(os.environ["COMP_POINT"])
    quote, _, _, words, _ = split_line(line, cursor)

    def begins_with(value: str, prefix: str) -> bool:
        # In double quotes, bash always replaces ! by a line of its history.
        return value.startswith(prefix) and not (quote == '"' and "!" in value)

    argcomplete.autocomplete(
        parser_at(words),
        always_complete_options=False,
        validator=begins_with,
        default_completer=SuppressCompleter(),
    )


def parser_at(words: list[str]) -> Parser:
    """Return a parser, with completers, for a command line that begins with `words`."""
    if len(words) > 1 and words[1] in SUBCOMMANDS:
        parser = parser_of((words[1],))
    else:
        parser = session_parser()
    _add_completers(parser, first=len(words) == 1)
    return parser


def _add_completers(parser: Parser, *, first: bool = False) -> None:
    """Add completers of values to each flag and argument of `parser`.

    `first` is true if the first word is completed, which may be a subcommand.
    """
    for action in parser.actions():
        for name, below in subcommands(action).items():
            if name != HIDDEN_SUBCOMMAND:
                _add_completers(below)
        # argcomplete reads the attribute `completer` of each action
        if first and not action.option_strings:
            vars(action)["completer"] = _subcommands
        elif (completer := _completer(action)) is not None:
            vars(action)["completer"] = completer


def _subcommands(**_: object) -> dict[str, str]:
    return {entry.name: entry.help for entry in SUBCOMMANDS.values()}


ValueFinder: TypeAlias = Callable[[], Iterator[tuple[str, str]]]


def _completer(action: Action) -> "Callable[..., dict[str, str]] | BaseCompleter | None":
    """Return the completer for the values of an action; None if they cannot be listed.

    Return None for an action with choices, too, which argcomplete completes itself.
    """
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    if action.nargs == 0 or action.choices:
        return None
    names = (*action.option_strings, str(action.metavar), action.dest.upper())
    for name in names:
        if name in _VALUE_FINDERS:
            return partial(_values, _VALUE_FINDERS[name])
    if _FILE_VALUES.intersection(names):
        return FilesCompleter()
    return DirectoriesCompleter() if "DIR" in names else None


def _values(find: ValueFinder, **_: object) -> dict[str, str]:
    """Return the values that `find` yields, with descriptions; {} if they cannot be read."""
    try:
        # Skip values that a shell could not show or pass back.
        return {
            value: escape_to_one_line(about)
            for value, about in find()
            if value and value == escape_to_one_line(value)
        }
    except (RefoldError, OSError):
        return {}


_MAX_SESSION_IDS = 100


def _sessions() -> Iterator[tuple[str, str]]:
    """Yield names of all sessions, and ids of the newest, each with a description."""
    from refold.app.session_index import session_index

    index = session_index(paths(os.environ))
    cards = index.catalogue().last_cards()
    for number, session in enumerate(index.sessions()):
        card = cards.get(session.id)
        title = card.about.title if card else ""
        if card and card.about.name:
            yield card.about.name, f"{session.id}  {title}"
        if number < _MAX_SESSION_IDS:
            yield session.id, title


def _models() -> Iterator[tuple[str, str]]:
    """Yield the names of models, and the model of each role, described by the role."""
    from refold.cli.doctor_checks import CheckContext
    from refold.config.paths import current_directory

    context = CheckContext(current_directory(), paths(os.environ), os.environ, offline=True)
    for name in context.models.names():
        yield name, ""
    for role in ("small", "big", "judge"):  # a role can be typed instead of its model
        if model := getattr(context.setting_origins.settings.models, role):
            yield role, model


def _providers() -> Iterator[tuple[str, str]]:
    from refold.provider import catalog

    yield from ((spec.name, spec.label) for spec in catalog.providers())


def _agents() -> Iterator[tuple[str, str]]:
    """Yield the agents that a session may begin with, and their descriptions."""
    from refold.cli.agents import active_agents

    yield from (
        (agent.name, agent.description) for agent in active_agents().profiles_for("main")
    )


def _presets() -> Iterator[tuple[str, str]]:
    """Yield the presets of the system prompt, and their descriptions."""
    from refold.app.system_prompt import SessionGround, SystemPromptBuilder
    from refold.config.paths import current_directory
    from refold.config.settings_report import origins_report

    places, directory = paths(os.environ), current_directory()
    settings = origins_report(directory, places, os.environ).settings
    session_ground = SessionGround(
        roots=(os.path.realpath(directory),),
        trust=False,
        why_unreadable=lambda _: "",  # no rule forbids to read a file
    )
    system_prompt = SystemPromptBuilder(settings, places, os.environ, session_ground)
    presets, _problems = system_prompt.presets()
    yield from ((preset.name, preset.description) for preset in presets)


def _settings() -> Iterator[tuple[str, str]]:
    """Yield the keys of all settings, without descriptions."""
    from refold.config.load import flatten
    from refold.config.settings import Settings

    yield from ((key, "") for key in flatten(Settings()))


def _help_topics() -> Iterator[tuple[str, str]]:
    yield "all", "every option and command"
    yield from _subcommands().items()


_VALUE_FINDERS: dict[str, ValueFinder] = {
    "ID": _sessions, "NODE": _sessions, "SESSION": _sessions, "PROVIDER/MODEL": _models,
    "PROVIDER": _providers, "KEY": _settings, "--agent": _agents, "--preset": _presets,
    "--help": _help_topics,
}  # fmt: skip
_FILE_VALUES = frozenset({"FILE", "FILE|DIR", "FILE|JSON", "--context", "--json-schema"})
