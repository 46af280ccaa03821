"""`refold completion bash|zsh|fish`: print a completion script.

A script contains commands, flags and choices. For values that change, such as session ids,
it calls `refold completion --complete KIND`, which reads only local files, contacts no
provider, writes nothing, and prints nothing on an error.
"""

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterator

from refold.cli import completion_scripts
from refold.cli.command_tree import described
from refold.cli.completion_scripts import SHELLS
from refold.config.paths import paths
from refold.errors import BadInput, RefoldError
from refold.headless.streams import write
from refold.views.escape import on_one_line

_HOW = """\
In bash, write into ~/.bashrc:    eval "$(refold completion bash)"
In zsh, write into ~/.zshrc:      eval "$(refold completion zsh)"      (after compinit)
In fish, run once:                refold completion fish > ~/.config/fish/completions/refold.fish
"""


def add_arguments(completion: ArgumentParser) -> None:
    completion.add_argument("shell", nargs="?", choices=SHELLS, metavar="SHELL",
        help="bash, zsh or fish")  # fmt: skip
    completion.add_argument("--complete", metavar="WHAT", help=SUPPRESS)


def run(found: Namespace) -> int:
    if found.complete:
        write("".join(f"{line}\n" for line in completed(found.complete)))
    elif found.shell:
        write(script(found.shell))
    elif sys.stdout.isatty():
        write(_HOW)
    else:
        raise BadInput(f"name a shell: refold completion {'|'.join(SHELLS)}")
    return 0


def script(shell: str) -> str:
    """The script for a shell. Imports every subcommand."""
    return completion_scripts.script(shell, described())


_MOST = 100  # session ids that are offered


def completed(what: str) -> tuple[str, ...]:
    """Lines of a value and, after a tab, its description."""
    find = _FINDERS.get(what)
    if find is None:
        return ()
    found = list[str]()
    try:
        for value, about in find():
            # Skip values that a shell could not show or pass back.
            if value and value == on_one_line(value):
                found.append(f"{value}\t{on_one_line(about)}" if about else value)
    except (RefoldError, OSError):
        pass
    return tuple(found)


def _sessions() -> Iterator[tuple[str, str]]:
    from refold.journal.home import Home

    home = Home(paths(os.environ).data / "sessions")
    known = home.catalogue().known()
    for number, session in enumerate(home.sessions()):
        card = known.get(session.id)
        title = card.about.title if card else ""
        if card and card.about.name:
            yield card.about.name, f"{session.id}  {title}"
        if number < _MOST:
            yield session.id, title


def _models() -> Iterator[tuple[str, str]]:
    from refold.cli.installation_checks import CheckContext
    from refold.config.paths import here

    ground = CheckContext(here(), paths(os.environ), os.environ, offline=True)
    for name in ground.models.names():
        yield name, ""
    for role in ("small", "big", "judge"):
        if getattr(ground.told.settings.models, role):
            yield role, getattr(ground.told.settings.models, role)


def _providers() -> Iterator[tuple[str, str]]:
    from refold.provider import catalog

    yield from ((spec.name, spec.label) for spec in catalog.providers())


def _agents() -> Iterator[tuple[str, str]]:
    from refold.cli.agents import here_are

    yield from ((each.name, each.description) for each in here_are().every("main"))


def _presets() -> Iterator[tuple[str, str]]:
    from refold.app.system_prompt import SessionGround, SystemPromptBuilder
    from refold.config.paths import here
    from refold.config.settings_report import told

    places, directory = paths(os.environ), here()
    settings = told(directory, places, os.environ).settings
    ground = SessionGround(
        roots=(os.path.realpath(directory),), trust=False, unread=lambda _: ""
    )
    briefing = SystemPromptBuilder(settings, places, os.environ, ground)
    yield from ((each.name, each.description) for each in briefing.presets()[0])


def _settings() -> Iterator[tuple[str, str]]:
    from refold.config.load import flat
    from refold.config.settings import Settings

    yield from ((key, "") for key in flat(Settings()))


_FINDERS: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "sessions": _sessions,
    "models": _models,
    "providers": _providers,
    "agents": _agents,
    "presets": _presets,
    "settings": _settings,
}
