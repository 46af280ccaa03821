"""`refold completion bash|zsh|fish`: print the code that lets a shell complete our command lines.

argcomplete writes that code, which starts refold at each Tab, and answers it from the parser of
the line. Values that change, such as session ids, come from local files: no provider is contacted,
nothing is written, and an error offers nothing.

argcomplete replaces 542 lines of ours, and shtab 1.13 expands values: a session named `my
$(touch FILE)` ran the command at Tab. It starts Python for each Tab (77 ms).
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
    if args.shell:
        write(script(args.shell))
    elif sys.stdout.isatty():
        write(_INSTALL_HINTS)
    else:
        raise BadInput(f"name a shell: refold completion {'|'.join(SHELLS)}")
    return 0


def script(shell: str) -> str:
    """The code for one of `SHELLS`."""
    from argcomplete.shell_integration import shellcode

    return shellcode(["refold"], shell=shell)


def complete_line() -> None:
    """Print the completions at the cursor of a shell's line, and exit."""
    import argcomplete
    from argcomplete.completers import SuppressCompleter
    from argcomplete.lexers import split_line

    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    quote, _, _, words, _ = split_line(line, point)

    def begins_with(value: str, prefix: str) -> bool:
        # In double quotes, nothing keeps bash from replacing ! by a line of its history.
        return value.startswith(prefix) and not (quote == '"' and "!" in value)

    argcomplete.autocomplete(
        parser_at(words),
        always_complete_options=False,
        validator=begins_with,
        default_completer=SuppressCompleter(),
    )


def parser_at(words: list[str]) -> Parser:
    """Return the parser of a line that begins with these words, with completers."""
    if len(words) > 1 and words[1] in SUBCOMMANDS:
        parser = parser_of((words[1],))
    else:
        parser = session_parser()
    _add_completers(parser, first=len(words) == 1)
    return parser


def _add_completers(parser: Parser, *, first: bool = False) -> None:
    """Add to each flag and argument what completes its values. `first`: no word precedes,
    so that the first argument may be a subcommand.
    """
    for action in parser.actions():
        for name, below in subcommands(action).items():
            if name != HIDDEN_SUBCOMMAND:
                _add_completers(below)
        if first and not action.option_strings:
            vars(action)["completer"] = _subcommands
        elif (completer := _completer(action)) is not None:
            vars(action)["completer"] = completer


def _subcommands(**_: object) -> dict[str, str]:
    return {entry.name: entry.help for entry in SUBCOMMANDS.values()}


Find: TypeAlias = Callable[[], Iterator[tuple[str, str]]]


def _completer(action: Action) -> "Callable[..., dict[str, str]] | BaseCompleter | None":
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    if action.nargs == 0 or action.choices:
        return None
    names = (*action.option_strings, str(action.metavar), action.dest.upper())
    if find := next(
        (_VALUE_FINDERS[name] for name in names if name in _VALUE_FINDERS), None
    ):
        return partial(_values, find)
    if _FILE_VALUES.intersection(names):
        return FilesCompleter()
    return DirectoriesCompleter() if "DIR" in names else None


def _values(find: Find, **_: object) -> dict[str, str]:
    """Values and their descriptions."""
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
    from refold.app.session_index import session_index

    index = session_index(paths(os.environ))
    known = index.catalogue().last_cards()
    for number, session in enumerate(index.sessions()):
        card = known.get(session.id)
        title = card.about.title if card else ""
        if card and card.about.name:
            yield card.about.name, f"{session.id}  {title}"
        if number < _MAX_SESSION_IDS:
            yield session.id, title


def _models() -> Iterator[tuple[str, str]]:
    from refold.cli.doctor_checks import CheckContext
    from refold.config.paths import current_directory

    ground = CheckContext(current_directory(), paths(os.environ), os.environ, offline=True)
    for name in ground.models.names():
        yield name, ""
    for role in ("small", "big", "judge"):
        if getattr(ground.setting_origins.settings.models, role):
            yield role, getattr(ground.setting_origins.settings.models, role)


def _providers() -> Iterator[tuple[str, str]]:
    from refold.provider import catalog

    yield from ((spec.name, spec.label) for spec in catalog.providers())


def _agents() -> Iterator[tuple[str, str]]:
    from refold.cli.agents import active_agents

    yield from (
        (agent.name, agent.description) for agent in active_agents().profiles_for("main")
    )


def _presets() -> Iterator[tuple[str, str]]:
    from refold.app.system_prompt import SessionGround, SystemPromptBuilder
    from refold.config.paths import current_directory
    from refold.config.settings_report import origins_report

    places, directory = paths(os.environ), current_directory()
    settings = origins_report(directory, places, os.environ).settings
    ground = SessionGround(
        roots=(os.path.realpath(directory),), trust=False, why_unreadable=lambda _: ""
    )
    system_prompt = SystemPromptBuilder(settings, places, os.environ, ground)
    yield from ((preset.name, preset.description) for preset in system_prompt.presets()[0])


def _settings() -> Iterator[tuple[str, str]]:
    from refold.config.load import flatten
    from refold.config.settings import Settings

    yield from ((key, "") for key in flatten(Settings()))


def _help_topics() -> Iterator[tuple[str, str]]:
    yield "all", "every option and command"
    yield from _subcommands().items()


_VALUE_FINDERS: dict[str, Find] = {
    "ID": _sessions, "NODE": _sessions, "SESSION": _sessions, "PROVIDER/MODEL": _models,
    "PROVIDER": _providers, "KEY": _settings, "--agent": _agents, "--preset": _presets,
    "--help": _help_topics,
}  # fmt: skip
_FILE_VALUES = frozenset({"FILE", "FILE|DIR", "FILE|JSON", "--context", "--json-schema"})
