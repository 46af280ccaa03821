"""While the session works: prints what happens, asks what must be asked, hears keys.

One speaks at a time. Whoever asks the person something holds the floor, and what
happens meanwhile is printed afterwards; the work itself goes on. Ctrl+C asks
what to do instead, and again it stops the turn; a key that is typed opens
a line for words into the running turn, or for after it.
"""

import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from refold.cli.terminal.asking.asker import Asker
from refold.cli.terminal.display.aloud import Aloud
from refold.cli.terminal.display.notifying import Bell, ring
from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.display.showing import Showing
from refold.cli.terminal.reading import CTRL_C, TerminalReader
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
        paper: Paper,
        reading: TerminalReader,
        obey: Obey = nothing,
    ) -> None:
        self._session = session
        self._paper, self._reading = paper, reading
        self._showing = Showing(paper, around, anyio.current_time)
        self._floor = Floor(reading.typed)
        self._asker = Asker(session, around, paper, reading)
        self._obey = obey
        self._steering = Steering(session, paper, reading, around.unread, self._obeyed)
        self.under_way, self._over = False, anyio.Event()
        self._patience = Bell(anyio.current_time, around.notify)
        self._pressed_at, self._hears = -math.inf, False
        self._shortening = anyio.CancelScope()
        self._following = Following()

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
        self._following.shown, self.under_way = self._session.view.seq, True
        self._patience.seen()
        watch = self._session.hub.watch()
        leave = self._session.hub.heed(self._heed)
        if own:
            self._showing.own.add(own)
        self._showing.begin(self._session.view)
        failure: RefoldError | None = None
        try:
            with self._reading.quiet():
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
            self._paper.no_status()
            self._over.set()
        self._ring("it is done" if failure is None else str(failure))
        return failure

    async def interrupt(self) -> None:
        """Ctrl+C came as a signal: ask what to do instead, or, if pressed twice, stop."""
        now = anyio.current_time()
        twice = now - self._pressed_at < TWICE
        self._pressed_at = now
        if self._floor.asking and self._reading.interrupt():
            return
        if not (twice and await self._session.inbox.interrupt()):
            self._paper.echoed()
            self._floor.want()

    async def end(self, reason: str) -> None:
        """Stop the turn for good, and wait until that is done."""
        if self._only_shortens:
            self._shortening.cancel()
        await self._session.inbox.interrupt(reason)
        if self._floor.asking:
            self._reading.interrupt()
        await self._over.wait()

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
                while self._session.view.seq <= view.seq:
                    await self._following.more()
                continue
            await self._following.caught_up(view.seq)
            async with self._floor.printing:  # somebody may be typing something
                if self._session.idle and not self._hears:
                    return None

    async def _show(self, watch: Watch) -> None:
        async for frame in watch.gathered():
            async with self._floor.printing:
                drawn = self._paper.has_status
                self._showing.show(frame)
                if drawn and not self._paper.has_status:  # at once, or it would flicker
                    self._paper.status(self._showing.status())
            if isinstance(frame.item, Entry):
                self._following.shown = frame.seq
                self._following.tell()

    async def _tick(self) -> None:
        aloud = Aloud(self._paper, anyio.current_time)
        while True:
            await anyio.sleep(_TICK)
            if not self._floor.asking:
                aloud.show(self._showing.status())

    async def _ask(self) -> None:
        while True:
            if (found := self._asker.waiting()) is None:
                await self._following.more()
                continue
            await self._following.caught_up(found.call.since or self._session.view.seq)
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
                await self._begun()
                async with self._taken():
                    self._floor.heard()  # one that comes from here on is another
                    await self._redirected()
            elif typed == CTRL_C:
                await self.interrupt()
            elif not typed:  # the terminal is gone
                await anyio.sleep_forever()
            elif typed[0].isprintable():
                self._hears = True  # and is not over before that is done
                async with self._taken():
                    self._patience.seen()
                    await self._steering.hear(typed)
                self._hears = False

    async def _begun(self) -> None:
        """A turn that is stopped already, or not begun yet, is not the one that is meant."""
        while not self._session.beside:
            turn = self._session.view.turn
            if turn.seq and not turn.stopped:
                return
            await self._following.more()

    async def _redirected(self) -> None:
        self._patience.seen()
        if self._only_shortens:
            self._shortening.cancel()
        elif not await self._steering.redirect():
            self._pressed_at = -math.inf  # the next Ctrl+C asks again

    async def _obeyed(self, typed: str) -> bool:
        done = await self._obey(typed)
        self._floor.heard()  # a Ctrl+C was meant for the command
        return done

    @property
    def _only_shortens(self) -> bool:
        """Is the talk made shorter, and nothing else done?"""
        return not self._session.view.turn.seq and bool(self._session.beside)

    def _ring(self, said: str) -> None:
        """Tell the person who may look elsewhere by now."""
        if self._patience.over:
            title = self._session.view.about.title
            told = f"{said}: {title}" if title else said
            self._paper.ring(ring(os.environ, told, self._paper.look.display))

    @asynccontextmanager
    async def _taken(self) -> AsyncGenerator[None]:
        """Have the floor for a question, with nothing else on its line."""
        async with self._floor.taken():
            self._paper.no_status()
            try:
                yield
            except RefoldError as error:  # the disk would not take the answer
                self._paper.line(sentence(error))

    def _heed(self, entry: Entry) -> None:
        self._following.tell()
        self._asker.heed(entry)


def sentence(error: RefoldError) -> Line:
    return (("bad", visible(str(error))),)


# Who may speak with the person now: one at a time, be it a printer or a question.
#
# Printing takes `printing` for a moment. A question takes the keyboard too: then
# nobody else reads from it, or two readers would share one terminal and each get
# half of what is typed.
class Floor:
    """`keyboard` gives what is typed while nobody asks anything."""

    def __init__(self, keyboard: Callable[[], Awaitable[str]]) -> None:
        self.printing = anyio.Lock()
        self.asking = False
        self._typed = keyboard
        self._keyboard = anyio.Lock()
        self._listening: anyio.CancelScope | None = None
        self._wish = anyio.Event()

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Have it for a question: nothing else is printed or read."""
        async with self.printing:
            self.asking = True
            self._stop_listening()
            try:
                async with self._keyboard:
                    yield
            finally:
                self.asking = False

    @property
    def wanted(self) -> bool:
        """Has somebody pressed Ctrl+C, and not been asked what they want?"""
        return self._wish.is_set()

    def want(self) -> None:
        self._wish.set()
        self._stop_listening()

    def heard(self) -> None:
        self._wish = anyio.Event()

    async def typed(self) -> str:
        """What is typed while nobody asks anything; "" if a Ctrl+C came."""
        while not self.wanted:
            async with self._keyboard:
                if self.asking:  # it waits for the keyboard, and was here first
                    continue
                with anyio.CancelScope() as self._listening:
                    await checkpoint_if_cancelled()  # a line may be there already
                    return await self._typed()
        return ""

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()


# How much of what happens is printed by now, and waiting for more.
#
# What happens is heard here only as "there was something": who prints it says how far.
class Following:
    """`shown` is the seq of the newest event that is printed."""

    def __init__(self) -> None:
        self.shown = 0
        self._news = anyio.Event()

    def tell(self) -> None:
        """Something has happened, or has been shown."""
        told, self._news = self._news, anyio.Event()
        told.set()

    async def more(self) -> None:
        await self._news.wait()

    async def caught_up(self, seq: int) -> None:
        while self.shown < seq:
            await self.more()
