"""A session in a terminal: open it, hand it to the line terminal, and come back."""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import anyio

from refold.agents.given import Given
from refold.cli.confirming import said_yes
from refold.cli.expanding import meant
from refold.cli.finishing import aide_for, leave, note_down
from refold.cli.opening import app_of, as_settings, open_session, pictures, settings_of
from refold.cli.taking_up import mended, same_place
from refold.cli.terminal.commands import names
from refold.cli.terminal.run import run as converse
from refold.cli.terminal.surroundings import Surroundings
from refold.cli.trusting import Offer
from refold.cli.worktree import in_a_worktree
from refold.config.folders import Folders
from refold.config.paths import paths
from refold.errors import BadInput
from refold.hall.app import App
from refold.hall.policies import budget
from refold.hall.remembering import Learned
from refold.journal.fold import View
from refold.session.session import Session

_SINCE = {"changed": ", changed since you saw them"}
MENDED = "the journal was damaged at its end; lost: {lost}"


def run(found: Namespace) -> int:
    """Open what the command line names; on the first run, ask for a model first."""
    with in_a_worktree(found):
        return _opened(found)


def _opened(found: Namespace) -> int:
    _ask_about_the_folder(found)
    app = app_of(found, attended=True)
    if not app.models.default():
        from refold.cli.begin import first_run

        if not first_run(app.paths, app.settings.terminal):
            return 0
        app = app_of(found, attended=True)
    return anyio.run(_run, found, app)


def _ask_about_the_folder(found: Namespace) -> None:
    """Show the settings of the folder and what tells the model what to do, and ask."""
    here = settings_of(found)
    offer = Offer(here.project, here.state, here.texts)
    if not offer:
        return
    if offer.settings:
        sys.stdout.write(f"Settings of this folder{_SINCE.get(here.state, '')}:\n\n")
    sys.stdout.write("".join(f"  {line}\n" for line in offer.lines()))
    sys.stdout.write(f"\n{_question(offer)} [y/N] ")
    sys.stdout.flush()
    if said_yes():
        offer.take(Folders(paths(os.environ).folders))
    else:
        sys.stdout.write("They do not count.\n")


def _question(offer: Offer) -> str:
    if not offer.settings:
        return "Trust this folder? What it tells the model counts from then on."
    if not offer.texts.found:
        return "Trust these settings? They count until they change."
    return "Trust these? The settings count until they change."


async def _run(found: Namespace, app: App) -> int:
    try:
        if app.learns:
            leave(app.remembering, os.environ)  # what an earlier one could not finish
        words, typed = meant(found.text, found.text, app)
        id_, session = await open_session(app, found)
        async with session:
            here = around(app, id_, session.view, session.lost, as_settings(found))
            return await converse(session, here, words, pictures(found), typed)
    finally:
        await app.aclose()
        if app.learns:
            leave(app.remembering, os.environ)
        if app.wishes.keep:
            note_down(app.home)


def around(
    app: App,
    id_: str,
    view: View,
    lost: str = "",
    flags: Mapping[str, object] = MappingProxyType({}),
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
        made = await app.fork(view.about.id, at)
        session = await app.resume(made.id)
        app.put_down(made.id)
        return session

    async def resume(id_: str) -> tuple[Session, tuple[str, ...]]:
        same_place(app, id_)
        session = await app.resume(id_)
        app.put_down(id_)
        return session, await mended(app, session)

    async def learn(session: Session) -> Learned:
        aide = aide_for(app, session.view, asked=True)
        if aide is None:
            raise BadInput("no model can be asked for notes: set models.small")
        return await app.remembering.learn(session.view.about.id, session.record, aide)

    async def learn_idle(session: Session) -> None:
        if (aide := aide_for(app, session.view)) is not None:
            id_ = session.view.about.id
            await app.remembering.learn(id_, session.record, aide)

    def presets() -> list[tuple[str, str]]:
        return [(each.name, each.description) for each in app.briefing.presets()[0]]

    shortcuts = app.shortcuts(names())
    lost_words = (MENDED.format(lost=lost),) if lost else ()
    return Surroundings(
        model=app.model_of(view),
        models=app.models.names(),
        choose_model=choose,
        remember=partial(_remember, app),
        settings=partial(_settings, app, flags),
        new_session=another,
        resume=resume,
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
        window=app.settings.context.window,
        notify=app.settings.notify,
        display=app.settings.terminal.display,
        theme=app.settings.terminal.theme,
        vi=app.settings.terminal.vi,
        facts=app.facts,
        unread=app.unread,
        always=app.workspace.always,
        saved_in=str(app.paths.folders),
        snapshots=lambda view: app.snapshots(view.about.id),
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
        notices=(*app.notices(), *shortcuts.notices(), *_learned(app), *lost_words),
        come_back=f"refold -c   (or refold -r {id_})",
    )


# A start does without what these three import.


def _sessions(app: App) -> Sequence[tuple[str, str, str]]:
    from refold.cli.resuming import offered

    return offered(app.home, app.directory)


async def _settings(
    app: App, flags: Mapping[str, object], keys: tuple[str, ...]
) -> Sequence[str]:
    from refold.cli.settings import in_words

    return await in_words(Path(app.directory), app.paths, app.environ, flags, keys)


def _remember(app: App, key: str, value: str) -> None:
    from refold.config.writing import remember

    remember(app.paths, key, value)


def _given(app: App, session: Session) -> Given:
    """The tools of the next turn, as they would be now."""
    world = app.outfit(session.record, session.view.about.id)(session.view)
    return Given(tuple(world.tools), world.deferred)


def _learned(app: App) -> tuple[str, ...]:
    """What was learned from earlier sessions, and was not told yet."""
    told = app.remembering.notice() if app.settings.memory and app.wishes.keep else ""
    return (told,) if told else ()
