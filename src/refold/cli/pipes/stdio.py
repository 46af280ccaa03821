"""A session over stdin and stdout, for a program: orders in, documents out.

Words, verdicts and answers come as JSON lines (`orders`); what happens goes out as
with any stream (`told`), and each turn ends with its result. Somebody is there to
ask for as long as stdin is open; what is still asked then, by the session or by a child
of it, is denied. What waited when a session was left is put again when it is resumed.
"""

import os
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from functools import partial

import anyio
from anyio import to_thread

from refold.cli.opening import app_of, open_session, pictures
from refold.cli.out import complain
from refold.cli.pipes.desk import Desk
from refold.cli.pipes.headless import INTERRUPTED, TIMED_OUT, closed
from refold.cli.pipes.orders import CompactTalk, UserMessage, order_in
from refold.cli.pipes.stopping import Stops
from refold.cli.pipes.told import WAITING, StreamWriter
from refold.errors import BadInput
from refold.hall.app import App
from refold.journal.events import Entry, TurnEnded, TurnStarted
from refold.journal.fold import View
from refold.journal.frame import Frame
from refold.session.patience import LATE
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.views.result import EXIT_CODES, result
from refold.views.stream import Document

_NOBODY = "nobody is there to answer any more"
_LATE = "out of time"
LONGEST = 32 * 1024 * 1024  # bytes of one line
_PIECE = 65_536


def run(found: Namespace, told: StreamWriter, stops: Stops) -> int:
    return anyio.run(_run, found, pictures(found), told, stops)


async def _run(
    found: Namespace, shown: Sequence[Picture], told: StreamWriter, stops: Stops
) -> int:
    stops.hurry = told.outlet.hurry
    async with stops.heard():
        app = app_of(found, attended=True)
        try:
            if found.resume is None and not found.continue_:
                app.models.check(app.model_of(View()))
            id_, session = await open_session(app, found)
            async with session:
                told.of(session, id_)
                app.models.check(app.model_of(session.view))
                for notice in app.notices():
                    complain(notice)
                door = Door(app, id_, session, told)
                stops.gently = partial(door.leave, INTERRUPTED)
                return await door.run(found.text, shown, found.timeout)
        finally:
            await closed(app)
    await told.end(told.result(0.0) | {"outcome": "interrupted", "reason": stops.why})
    return INTERRUPTED


class Door:
    """One session, and the program at the other end."""

    def __init__(self, app: App, id_: str, session: Session, told: StreamWriter) -> None:
        self._desk, self._told = Desk(app, session), told
        told.asked = self._desk.request
        self._id, self._session = id_, session
        self.patience = app.settings.limits.answer  # seconds
        # Stdin has ended; we have to go; a turn was run.
        self._closed = self._leaving = self._ran = False
        self._code, self._began = 0, 0.0
        self._why = ""  # we have to go
        self._senseless = ""  # what was wrong with the first line that made no sense
        self._results: dict[int, Document] = {}  # by the seq of their turn's end
        self._news = anyio.Event()  # set, and another one, with each thing that happens

    async def run(self, words: str, shown: Sequence[Picture], seconds: float | None) -> int:
        """Until stdin has ended and nothing is left to do. The exit code comes back."""
        watch = self._session.hub.watch(live=WAITING)
        forget = self._session.hub.heed(self._heed)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._show, watch.frames(), await self._desk.waiting())
                if words or shown:
                    await self._desk.say(UserMessage(words), shown)
                group.start_soon(self._read)
                group.start_soon(self._end_in_time, seconds)
                group.start_soon(self._attend)
                await self._work()
                watch.close()
                await self._told.finished.wait()
                await self._last_word()
                group.cancel_scope.cancel()
        finally:
            forget()
        self._told.outlet.settle()
        return self._code or int(self._told.gone)

    async def leave(self, code: int, why: str) -> bool:
        """Stop what is under way, and go."""
        self._leaving, self._code, self._why = True, code, why
        if self._desk.beside is not None:
            self._desk.beside.cancel()
        stop = self._session.inbox
        await (stop.cancel(why) if code == TIMED_OUT else stop.interrupt(why))
        self._stir()
        return True

    def _stir(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _work(self) -> None:
        session, desk = self._session, self._desk
        while True:
            if (self._leaving or self._told.gone) and not session.view.turn.seq:
                return
            if desk.going_on or not session.idle:
                go = session.continue_ if desk.going_on else session.go
                desk.going_on = False
                view = await go()
                if view.turn.seq:
                    await self._moved(view.seq)
            elif desk.shorter is not None:
                await self._tell_shorter(desk.shorter)
            elif desk.mail:
                await desk.say(desk.mail.popleft())
            elif self._closed:
                return
            else:
                await self._news.wait()

    async def _tell_shorter(self, order: CompactTalk) -> None:
        """Between two turns; an interrupt ends it."""
        with anyio.CancelScope() as self._desk.beside:
            await self._session.compact(order.kind, order.focus)
        self._desk.shorter = self._desk.beside = None

    async def _moved(self, seq: int) -> None:
        """Return when something came since: an answer, as a rule."""
        while self._session.view.seq <= seq:
            await self._news.wait()

    async def _attend(self) -> None:
        """No to what waits, where nobody answers in time or can answer any more.

        Beside the turn, for one that waits for a child goes on while the child asks.
        """
        while True:
            news = self._news
            if not self._desk.put():
                await news.wait()
            elif self._closed:
                await self._desk.deny_all(_NOBODY)
            else:
                with anyio.move_on_after(self.patience) as waited:
                    await news.wait()
                if waited.cancelled_caught:
                    await self._desk.deny_all(LATE.format(seconds=self.patience))

    async def _read(self) -> None:
        number = 0
        async for line in lines():
            number += 1
            if line is None or line.strip():
                try:
                    if line is None:
                        raise BadInput(f"a line may have {LONGEST} bytes at most")
                    await self._desk.obey(order_in(line))
                except BadInput as error:
                    await self._wrong(number, error)
            self._stir()
        self._closed = True
        self._stir()

    async def _wrong(self, number: int, error: BadInput) -> None:
        reason = f"line {number} of stdin: {error}"
        self._senseless = self._senseless or reason
        said: Document = {"type": "error", "kind": "BadInput", "line": number}
        await self._told.lines([said | {"reason": reason}])

    async def _show(self, frames: AsyncIterable[Frame], first: Sequence[Document]) -> None:
        await self._told.follow(frames, self._session, self._result, first)
        self._stir()

    async def _last_word(self) -> None:
        """Whoever is sent away while no turn runs, or had none for their slips, is told so."""
        if self._leaving and self._told.last != "result":
            how = "cancelled" if self._code == TIMED_OUT else "interrupted"
            await self._end(how, self._why)
        elif self._senseless and not self._ran:
            self._code = EXIT_CODES["failed"]
            await self._end("failed", self._senseless)

    async def _end(self, how: str, why: str) -> None:
        document = result(self._session.view, self._id, 0.0)
        await self._told.end(document | {"outcome": how, "reason": why})

    def _heed(self, entry: Entry) -> None:
        match entry.event:
            case TurnStarted():
                self._began = entry.at
            case TurnEnded():
                view, seconds = self._session.view, entry.at - self._began
                found = result(view, self._id, seconds if self._began else 0.0)
                self._results[entry.seq], self._ran = found, True
                if not self._leaving:
                    self._code = EXIT_CODES[str(found["outcome"])]
            case _:
                pass
        self._stir()

    def _result(self, entry: Entry) -> Document | None:
        return self._results.pop(entry.seq, None)

    async def _end_in_time(self, seconds: float | None) -> None:
        if seconds is None:
            return
        await anyio.sleep(seconds)
        self._told.outlet.hurry()
        await self.leave(TIMED_OUT, _LATE)


# The lines of stdin, as they come, for a program at the other end. What stands in one
# is the business of `orders`.
async def lines() -> AsyncGenerator[bytes | None]:
    """Each without its end; None for one that is too long. The last may have no end."""
    source, left, too_long = sys.stdin.fileno(), bytearray(), False
    while piece := await _piece(source):
        begun, *others = piece.split(b"\n")
        too_long = too_long or len(left) + len(begun) > LONGEST
        left += b"" if too_long else begun
        for line in others:
            yield None if too_long else bytes(left)
            left, too_long = bytearray(line), False
    if too_long or left:
        yield None if too_long else bytes(left)


async def _piece(source: int) -> bytes:
    try:
        await anyio.wait_readable(source)
        return os.read(source, _PIECE)
    except PermissionError:  # a file is always readable, and cannot be waited for
        return await to_thread.run_sync(os.read, source, _PIECE)
    except OSError:  # whoever held the other end is gone
        return b""
