"""What the line terminal may use of an app: its surroundings, filled in.

Nothing is opened or looked up here before the terminal asks for it. Going over to another
session is `staying`'s business.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import anyio

from refold.agents.profile import OfferedTools
from refold.app.app import App
from refold.app.memory_worker import aide_for
from refold.app.policies import budget
from refold.app.project_memory import Learned
from refold.errors import BadInput
from refold.journal.state.fold import View
from refold.session.session import Session
from refold.terminal.commands.table import names
from refold.terminal.surroundings import Arrived, Asks, Surroundings, Way, only_here

MENDED = "the journal was damaged at its end; lost: {lost}"
GoOn: TypeAlias = Callable[[Session, Way, Asks], Awaitable[Arrived]]


def around(
    app: App,
    session: Session,
    flags: Mapping[str, object] = MappingProxyType({}),
    go_on: GoOn = only_here,
) -> Surroundings:
    """What the terminal may use of the app. `flags` are settings of the command line."""

    async def choose(name: str) -> str:
        # A key may have to be fetched, or a person asked for it.
        return await anyio.to_thread.run_sync(app.models.check, name)

    async def another() -> Session:
        id_, session = await app.start()
        app.put_down(id_)
        return session

    async def fork(view: View, at: int | None) -> Session:
        made = await app.fork(view.session.id, at)
        session = await app.resume(made.id)
        app.put_down(made.id)
        return session

    async def learn(session: Session) -> Learned:
        aide = aide_for(app, session.view, asked=True)
        if aide is None:
            raise BadInput("no model can be asked for notes: set models.small")
        return await app.remembering.learn(session.view.session.id, session.record, aide)

    async def learn_idle(session: Session) -> None:
        if (aide := aide_for(app, session.view)) is not None:
            id_ = session.view.session.id
            await app.remembering.learn(id_, session.record, aide)

    def presets() -> list[tuple[str, str]]:
        return [(each.name, each.description) for each in app.briefing.presets()[0]]

    shortcuts = app.shortcuts(names())
    lost = (MENDED.format(lost=session.lost),) if session.lost else ()
    return Surroundings(
        model=app.model_of(session.view),
        models=app.models.names(),
        choose_model=choose,
        remember=partial(_remember, app),
        settings=partial(_settings, app, flags),
        new_session=another,
        go_on=go_on,
        home=app.home if app.wishes.keep else None,
        files=app.workspace.files,
        given=lambda session: _given(app, session),
        fork=fork,
        tools=app.tools,
        rules=app.rules,
        effort=app.settings.effort,
        mode=app.settings.permission_mode,
        budget=budget(app.settings),
        steps=app.settings.limits.steps,
        window=app.settings.context.default_window_tokens,
        notify=app.settings.notify_seconds,
        display=app.settings.terminal.display,
        theme=app.settings.terminal.theme,
        vi=app.settings.terminal.vi,
        facts=app.facts,
        unread=app.unread,
        always=app.workspace.always,
        saved_in=str(app.paths.folders),
        snapshots=lambda view: app.snapshots(view.session.id),
        history=app.paths.state / "history",
        sessions=partial(_sessions, app),
        agents=app.agents,
        agent=app.settings.agent,
        preset=app.settings.preset,
        presets=presets,
        skills=app.skills if app.settings.skills else None,
        shortcuts=shortcuts,
        remembering=app.remembering if app.settings.memory and app.wishes.keep else None,
        learn=learn,
        learn_idle=learn_idle if app.learns else None,
        notices=(*app.notices(), *shortcuts.notices(), *_learned(app), *lost),
    )


# A start does without what these three import.


def _sessions(app: App) -> Sequence[tuple[str, str, str]]:
    from refold.cli.sessions.picker import offered

    return offered(app.home, app.directory)


async def _settings(
    app: App, flags: Mapping[str, object], keys: tuple[str, ...]
) -> Sequence[str]:
    from refold.config.settings_report import in_words

    return await in_words(Path(app.directory), app.paths, app.environ, flags, keys)


def _remember(app: App, key: str, value: str) -> None:
    from refold.config.set_setting import remember

    remember(app.paths, key, value)


def _given(app: App, session: Session) -> OfferedTools:
    """The tools of the next turn, as they would be now."""
    world = app.outfit(session.record, session.view.session.id)(session.view)
    return OfferedTools(tuple(world.tools), world.deferred)


def _learned(app: App) -> tuple[str, ...]:
    """What was learned from earlier sessions, and was not told yet."""
    told = app.remembering.notice() if app.settings.memory and app.wishes.keep else ""
    return (told,) if told else ()
