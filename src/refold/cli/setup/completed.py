"""What a shell offers where only we know: sessions, models, agents and the like.

A person waits for it with a finger on the key: it reads what is at hand, asks no
provider, writes nothing, and where something is wrong it offers nothing.
"""

import os
from collections.abc import Callable, Iterator

from refold.config.paths import paths
from refold.errors import RefoldError
from refold.views.escape import on_one_line

_MOST = 100  # ids of sessions; nobody looks through more of them


def completed(what: str) -> tuple[str, ...]:
    """Lines of a value and, after a tab, what it is."""
    find = _FINDERS.get(what)
    if find is None:
        return ()
    found = list[str]()
    try:
        for value, about in find():
            # A value that a shell could not show or hand back is none.
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
    from refold.cli.setup.checks.ground import CheckContext
    from refold.cli.standing import here

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
    from refold.cli.standing import here
    from refold.config.told import told
    from refold.hall.briefing import Briefing, SessionGround

    places, directory = paths(os.environ), here()
    settings = told(directory, places, os.environ).settings
    ground = SessionGround(
        roots=(os.path.realpath(directory),), trust=False, unread=lambda _: ""
    )
    briefing = Briefing(settings, places, os.environ, ground)
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
