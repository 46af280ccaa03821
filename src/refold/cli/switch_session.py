"""Where a terminal is: the app of that place, and the ways to others.

A session that goes on elsewhere is left, and taken up there as `refold -r` would: with the
settings, rules, instructions and notes of that folder, after the same question whether they
count. What a session has of before is `taking_up`'s business, what is shown of it the
terminal's.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
from msgspec.structs import replace

from refold.app.app import App
from refold.app.memory_worker import leave, note_down
from refold.cli.terminal_session import around
from refold.client.folder_trust import TrustOffer
from refold.client.resume import SessionDirectory, replaced, resumed_in
from refold.client.worktree import WorkingTrees
from refold.config.folder_settings import FolderSettings, load_here
from refold.config.trusted_folders import Folders
from refold.errors import BadInput, RefoldError
from refold.session.session import Session
from refold.terminal.surroundings import Arrived, Asks, Surroundings, Way
from refold.views.escape import on_one_line

_NOT_KEPT = (
    "no journal is kept here, so the session cannot go on elsewhere: leave, and begin one "
    "there"
)
_UNDER_WAY = (
    "a turn of this session is under way, and ends where it began: say /continue first"
)
_ASKED_AGAIN = "allowed for this session until now, and asked about again: {rules}"


class _Site(NamedTuple):
    place: SessionDirectory
    trust: bool  # what lies there counts, this time


class Stay:
    """`flags` are settings of the command line; they hold everywhere."""

    def __init__(self, app: App, flags: Mapping[str, object], trees: WorkingTrees) -> None:
        self.app, self._flags, self._trees = app, flags, trees
        self._trusted = {app.directory} if app.wishes.trust else set[str]()
        self._left = list[App]()
        self._told = set[str]()

    def around(self, session: Session) -> Surroundings:
        """What the terminal may use here."""
        found = around(self.app, session, self._flags, self.go_on)
        self._told.update(found.notices)
        return found

    async def go_on(self, left: Session, way: Way, asks: Asks) -> Arrived:
        """Leave a session, and take one up where the way leads.

        Raises where it leads nowhere; the one that was to be left is then as it was.
        """
        if not self.app.wishes.keep:
            raise BadInput(_NOT_KEPT)
        same = way.session == left.view.session.id
        if same and left.view.turn.seq:
            raise BadInput(_UNDER_WAY)
        site = await anyio.to_thread.run_sync(self._site, way)
        app = await self._app_at(site, asks)
        arrived: Arrived | None = None
        with anyio.CancelScope(shield=True):  # else nobody would close it
            arrived = await self._taken_up(left, way.session, app, site.place.notices)
        assert arrived is not None  # a shield lets every error through
        return arrived

    async def aclose(self) -> None:
        """Leave. What was said is noted and listed by others, whom nobody waits for."""
        await self.app.aclose()
        learned = [each for each in (*self._left, self.app) if each.learns]
        for each in {app.remembering.memory.project: app for app in learned}.values():
            leave(each.remembering, os.environ)
        if self.app.wishes.keep:
            note_down(self.app.home)

    def _site(self, way: Way) -> _Site:
        app = self.app
        stood = resumed_in(app.home.path(way.session), Path(app.directory))
        directory = os.path.realpath(way.directory or stood.directory)
        trust = directory in self._trusted
        if way.tree is not None:
            inside = self._trees.begin(way.tree, directory, "/worktree")
            directory, trust = os.path.realpath(inside.directory), trust or inside.trusted
        if trust:
            self._trusted.add(directory)
        more = (os.path.realpath(each) for each in (*stood.roots, *way.added))
        roots = tuple(Path(each) for each in dict.fromkeys(more) if each != directory)
        notices = () if way.directory else stood.notices
        return _Site(SessionDirectory(Path(directory), roots, notices), trust)

    async def _app_at(self, site: _Site, asks: Asks) -> App:
        """The one that we have, where that is of this place."""
        app, place = self.app, site.place
        if tuple(map(str, (place.directory, *place.roots))) == app.workspace.roots:
            return app
        load = partial(
            load_here, place.directory, app.paths, os.environ, self._flags, trust=site.trust
        )
        here = await anyio.to_thread.run_sync(load)
        # Of a folder that we work in already they have been asked.
        moves = str(place.directory) != app.directory
        if moves and await self._counts(here, asks):
            here = await anyio.to_thread.run_sync(load)
        wishes = replace(
            app.wishes,
            directory=place.directory,
            more_roots=place.roots,
            trust=site.trust,
            notices=(here.unheeded,) if here.unheeded else (),
        )
        return App(here.settings, app.paths, app.environ, wishes, app.models)

    async def _counts(self, here: FolderSettings, asks: Asks) -> bool:
        """Has the person just said yes to what lies there?"""
        offer = TrustOffer(here.project, here.state, here.texts)
        if not offer or not await asks(offer.shown(), offer.question):
            return False
        offer.take(Folders(self.app.paths.folders))
        return True

    async def _taken_up(
        self, left: Session, id_: str, app: App, notices: tuple[str, ...]
    ) -> Arrived:
        same = left.view.session.id == id_
        granted = left.view.rights.granted if same else ()
        try:
            if same:
                await left.record.close()  # it has one pen; who records next takes it again
            session = await app.resume(id_)
        except RefoldError:
            if app is not self.app:
                await app.aclose()
            raise
        await left.close()
        await self._leave_for(app)
        app.put_down(id_)
        told = frozenset(self._told)
        found = self.around(session)
        new = (each for each in found.notices if each not in told)
        asked = (_ASKED_AGAIN.format(rules=", ".join(granted)),) if granted else ()
        said = (*notices, *await replaced(app, session), *asked, *new)
        return Arrived(session, found, tuple(map(on_one_line, said)))

    async def _leave_for(self, app: App) -> None:
        if app is not self.app:
            await self.app.aclose()
            self._left.append(self.app)
            self.app = app
