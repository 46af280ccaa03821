"""While the session works: prints what happens, asks what must be asked, hears keys.

One speaks at a time. Whoever asks the person something holds the floor, and what
happens meanwhile is printed afterwards; the work itself goes on. Ctrl+C asks
what to do instead, and again it stops the turn; a key that is typed opens
a line for words into the running turn, or for after it.
"""

import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext

import anyio

from refold.cli.terminal.asker import Asker
from refold.cli.terminal.floor import Floor
from refold.cli.terminal.keys import one_by_one
from refold.cli.terminal.notifying import Patience, ring
from refold.cli.terminal.reading import Reading
from refold.cli.terminal.screen import Screen
from refold.cli.terminal.showing import Showing
from refold.cli.terminal.steering import Obey, Steering, nothing
from refold.cli.terminal.surroundings import Surroundings
from refold.errors import RefoldError
from refold.journal.events import Entry
from refold.journal.fold import View
from refold.session.hub import Watch
from refold.session.session import Session
from refold.views.escape import visible
from refold.views.styled import Line

TWICE = 2.0  # seconds in which a second Ctrl+C means it
_TICK = 0.1


class Work:
    """One stretch of work: until the session has nothing left to do.

    `obey` does a command that need not wait; false for one that has to.
    """

    def __init__(
        self,
        session: Session,
        around: Surroundings,
        screen: Screen,
        reading: Reading,
        obey: Obey = nothing,
    ) -> None:
        self._session = session
        self._screen, self._reading = screen, reading
        self._showing = Showing(screen, around, lambda: session.view, anyio.current_time)
        self._floor = Floor(lively=reading.lively)
        self._asker = Asker(session, around, screen, reading)
        self._steering = Steering(session, screen, reading, around.unread, obey)
        self.under_way = False
        self._patience = Patience(anyio.current_time, around.notify)
        self._pressed_at = -math.inf
        self._news = anyio.Event()
        self._shortening = anyio.CancelScope()
        self._shown = 0

    @property
    def unsaid(self) -> Sequence[str]:
        """Commands that were typed too early."""
        return self._steering.unsaid

    async def through(
        self, start: Callable[[], Awaitable[View]], own: str = ""
    ) -> RefoldError | None:
        """Work until nothing is left to do. What went wrong, if anything, comes back.

        `own` is the key of words that the person sees already.
        """
        self._shown, self.under_way = self._session.view.seq, True
        self._patience.seen()
        watch = self._session.hub.watch()
        leave = self._session.hub.heed(self._heed)
        if own:
            self._showing.own.add(own)
        self._showing.resumed(self._session.view)
        quiet = one_by_one(0) if self._reading.lively else nullcontext()
        failure: RefoldError | None = None
        try:
            with quiet:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._show, watch)
                    group.start_soon(self._tick)
                    group.start_soon(self._ask)
                    group.start_soon(self._listen)
                    failure = await self._go(start)
                    group.cancel_scope.cancel()
        finally:
            self.under_way = False
            leave()
            watch.close()
            self._screen.no_status()
        self._ring("it is done" if failure is None else str(failure))
        return failure

    async def interrupt(self) -> None:
        """Ctrl+C came as a signal: ask what to do instead, or, if pressed twice, stop."""
        now = anyio.current_time()
        twice = now - self._pressed_at < TWICE
        self._pressed_at = now
        if twice and (self._floor.wanted or not self._floor.asking):
            await self._session.inbox.interrupt()
        if self._floor.asking:
            self._reading.interrupt()
        elif not twice:
            self._floor.want()

    async def _go(self, start: Callable[[], Awaitable[View]]) -> RefoldError | None:
        go = start
        while True:
            view = self._session.view
            try:
                with anyio.CancelScope() as self._shortening:
                    view = await go()
            except RefoldError as error:
                return error
            if self._shortening.cancelled_caught:
                return None
            go = self._session.go
            if view.turn.seq:  # it waits for the person
                await self._beyond(view.seq)
                continue
            await self._caught_up(view.seq)
            async with self._floor.printing:  # somebody may be typing something
                idle = self._session.idle
            if idle:
                return None

    async def _show(self, watch: Watch) -> None:
        async for frame in watch.frames():
            async with self._floor.printing:
                self._showing.show(frame)
            if isinstance(frame.item, Entry):
                self._shown = frame.seq
                self._tell()

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(_TICK)
            if not self._floor.asking:
                if status := self._showing.status():
                    self._screen.status(status)
                else:
                    self._screen.no_status()

    async def _ask(self) -> None:
        while True:
            if (found := self._asker.waiting()) is None:
                await self._next_news()
                continue
            await self._caught_up(found.call.since or self._session.view.seq)
            async with self._taken():
                if self._asker.is_open(found.id):
                    self._ring("it asks you something")
                    await self._asker.put(found)
                    self._showing.asked(found.id)
                    self._patience.seen()

    async def _listen(self) -> None:
        while True:
            typed = await self._floor.typed()
            if self._floor.wanted or typed == "\x1b":
                async with self._taken():
                    await self._redirected()
                    self._floor.heard()
            elif not typed:  # the terminal is gone
                await anyio.sleep_forever()
            elif typed[0].isprintable():
                async with self._taken():
                    self._patience.seen()
                    await self._steering.hear(typed)

    async def _redirected(self) -> None:
        self._patience.seen()
        view = self._session.view
        if not view.turn.seq and self._session.beside:
            self._shortening.cancel()  # it makes the talk shorter, and nothing else
        elif not await self._steering.redirect():
            self._pressed_at = -math.inf  # the next Ctrl+C asks again

    def _ring(self, said: str) -> None:
        """Tell the person who may look elsewhere by now."""
        if self._patience.over:
            title = self._session.view.about.title
            self._screen.ring(ring(os.environ, f"{said}: {title}" if title else said))

    @asynccontextmanager
    async def _taken(self) -> AsyncGenerator[None]:
        """Have the floor for a question, with nothing else on its line."""
        async with self._floor.taken():
            self._screen.no_status()
            try:
                yield
            except RefoldError as error:  # the disk would not take the answer
                self._screen.line(sentence(error))

    def _heed(self, entry: Entry) -> None:
        self._tell()
        self._asker.heed(entry)

    async def _caught_up(self, seq: int) -> None:
        while self._shown < seq:
            await self._next_news()

    async def _beyond(self, seq: int) -> None:
        while self._session.view.seq <= seq:
            await self._next_news()

    async def _next_news(self) -> None:
        await self._news.wait()

    def _tell(self) -> None:
        told, self._news = self._news, anyio.Event()
        told.set()


def sentence(error: RefoldError) -> Line:
    return (("bad", visible(str(error))),)
