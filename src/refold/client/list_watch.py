"""Watches the list of all sessions for clients that show it.

One loop for all watchers reads the catalogue, which knows also what other processes wrote, and
compares. It runs while there is a watcher. One that reads slowly gets the newest state of
each session once. What happens within a session is in `feed`.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio
from anyio import to_thread

from refold.client.stored_sessions import ListedSession, StoredSessions
from refold.errors import RefoldError
from refold.views.session_list import SessionDocument, SessionsChanged

_POLL_SECONDS = 1.0
_MAX_WATCHED = (
    1_000  # newest sessions; what happens to others is seen when a list is read again
)
_Listed: TypeAlias = Mapping[str, ListedSession]


class ListWatcher:
    """What one client has not been sent yet."""

    def __init__(self) -> None:
        self._changed = dict[str, SessionDocument]()
        self._gone = dict[str, None]()
        self._news = anyio.Event()

    def add(self, news: SessionsChanged) -> None:
        for document in news.changed:
            self._gone.pop(document.id, None)
            self._changed[document.id] = document
        for id_ in news.gone:
            self._changed.pop(id_, None)
            self._gone[id_] = None
        self._news.set()

    async def next(self) -> SessionsChanged:
        """Wait for changes, and return all since the last call."""
        await self._news.wait()
        news = SessionsChanged(
            changed=tuple(self._changed.values()), gone=tuple(self._gone)
        )
        self._changed.clear()
        self._gone.clear()
        self._news = anyio.Event()
        return news


class ListWatch:
    """The newest sessions of these. `run` must be running."""

    def __init__(self, stored: StoredSessions, limit: int = _MAX_WATCHED) -> None:
        self._stored, self._limit = stored, limit
        self._watchers = list[ListWatcher]()
        self._wanted = anyio.Event()

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator[ListWatcher]:
        """A watcher that gets what changes from now on."""
        watcher = ListWatcher()
        self._watchers.append(watcher)
        self._wanted.set()
        try:
            yield watcher
        finally:
            self._watchers.remove(watcher)

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            known = None
            while self._watchers:
                with suppress(RefoldError, OSError):  # a list that is asked for reports it
                    known = await self._read(known)
                await anyio.sleep(_POLL_SECONDS)
            self._wanted = anyio.Event()

    async def _read(self, before: _Listed | None) -> _Listed:
        """Read the list, and give each watcher what has changed since `before`."""
        listed = await to_thread.run_sync(self._stored.newest, self._limit)
        if before is not None and listed != before:
            news = await to_thread.run_sync(self._compare, before, listed)
            for watcher in self._watchers:
                watcher.add(news)
        return listed

    def _compare(self, before: _Listed, now: _Listed) -> SessionsChanged:
        left = {id_: self._stored.find_listed(id_) for id_ in before.keys() - now.keys()}
        others = {id_: session for id_, session in left.items() if session is not None}
        changed = (
            session
            for id_, session in {**now, **others}.items()
            if before.get(id_) != session
        )
        return SessionsChanged(
            changed=tuple(map(self._stored.document, changed)),
            gone=tuple(left.keys() - others.keys()),
        )
