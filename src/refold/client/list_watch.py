"""Watches the list of all sessions for clients that show it.

While a client watches, one loop reads the catalogue, which also lists what other processes
wrote, and compares it with what was read before. A client that reads slowly gets only the
newest state of each session. `feed` has the events within a session.
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
# The newest sessions are watched; changes of older ones are seen when a list is read again.
_MAX_WATCHED = 1_000
_Listed: TypeAlias = Mapping[str, ListedSession]


class ListWatcher:
    """Collects changes for one client until they are sent."""

    def __init__(self) -> None:
        self._changed = dict[str, SessionDocument]()
        self._gone = dict[str, None]()  # ids, in the order of their deletion
        self._news = anyio.Event()

    def add(self, news: SessionsChanged) -> None:
        """Add changes of the list. Only the newest state of each session is kept."""
        for document in news.changed:
            self._gone.pop(document.id, None)
            self._changed[document.id] = document
        for id_ in news.gone:
            self._changed.pop(id_, None)
            self._gone[id_] = None
        self._news.set()

    async def next(self) -> SessionsChanged:
        """Wait for changes, and return all changes since the last call."""
        await self._news.wait()
        news = SessionsChanged(
            changed=tuple(self._changed.values()), gone=tuple(self._gone)
        )
        self._changed.clear()
        self._gone.clear()
        self._news = anyio.Event()
        return news


class ListWatch:
    """Reports changes in the list of the newest sessions, while `run` runs."""

    def __init__(self, stored: StoredSessions, limit: int = _MAX_WATCHED) -> None:
        self._stored = stored
        self._limit = limit
        self._watchers = list[ListWatcher]()
        self._has_watchers = anyio.Event()

    @asynccontextmanager
    async def watch(self) -> AsyncGenerator[ListWatcher]:
        """Yield a watcher that gets all changes from now on."""
        watcher = ListWatcher()
        self._watchers.append(watcher)
        self._has_watchers.set()
        try:
            yield watcher
        finally:
            self._watchers.remove(watcher)

    async def run(self) -> None:
        """Read the list again and again while a client watches, until this is cancelled."""
        while True:
            await self._has_watchers.wait()
            listed = None
            while self._watchers:
                # A client that reads the list gets the error itself.
                with suppress(RefoldError, OSError):
                    listed = await self._read(listed)
                await anyio.sleep(_POLL_SECONDS)
            self._has_watchers = anyio.Event()

    async def _read(self, before: _Listed | None) -> _Listed:
        """Read the list, give each watcher the differences from `before`, and return what
        was read.

        At the first reading `before` is None, and there are no differences.
        """
        listed = await to_thread.run_sync(self._stored.newest, self._limit)
        if before is not None and listed != before:
            news = await to_thread.run_sync(self._compare, before, listed)
            for watcher in self._watchers:
                watcher.add(news)
        return listed

    def _compare(self, before: _Listed, now: _Listed) -> SessionsChanged:
        """Return the sessions that are new or changed, and the ids of deleted ones."""
        gone = list[str]()
        current = dict(now)
        for id_ in before.keys() - now.keys():
            session = self._stored.find_listed(id_)
            if session is None:
                gone.append(id_)
            else:  # it exists, but is no longer among the newest
                current[id_] = session
        changed = [
            self._stored.document(session)
            for id_, session in current.items()
            if before.get(id_) != session
        ]
        return SessionsChanged(changed=tuple(changed), gone=tuple(gone))
