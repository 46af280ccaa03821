"""A session over stdin and stdout, for a program: orders in, documents out.

Words, verdicts and answers come as JSON lines (`orders`); what happens goes out as
with any stream (`told`), and each turn ends with its result. Somebody is there to
ask for as long as stdin is open; what is still asked then is denied.
"""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, AsyncIterable, Sequence

import anyio
from anyio import to_thread

from refold.app import App
from refold.cli.desk import Desk
from refold.cli.opening import app_of, open_session, pictures
from refold.cli.orders import CompactTalk, UserMessage, order_in
from refold.cli.told import Told
from refold.errors import BadInput, JournalError, first
from refold.journal.events import Entry, TurnEnded, TurnStarted
from refold.journal.fold import View
from refold.journal.frame import Frame
from refold.session.patience import LATE
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.views.result import EXIT_CODES, result
from refold.views.stream import Document

TIMED_OUT = 3
INTERRUPTED = 130
LONGEST = 32 * 1024 * 1024  # bytes of one line
_NOBODY = "nobody is there to answer any more"


def run(found: Namespace) -> int:
    if found.output_format != "stream-json":
        raise BadInput(
            "--input-format stream-json is answered in JSON lines: "
            "add --output-format stream-json"
        )
    return anyio.run(_run, found, pictures(found))


async def _run(found: Namespace, shown: Sequence[Picture]) -> int:
    app = app_of(found, attended=True)
    try:
        if found.resume is None and not found.continue_:
            app.models.check(app.model_of(View()))
        id_, session = await open_session(app, found)
        async with session:
            app.models.check(app.model_of(session.view))
            for notice in app.notices():
                sys.stderr.write(f"refold: {notice}\n")
            door = Door(app, id_, session, live=found.include_partial_messages)
            try:
                return await door.run(found.text, shown, found.timeout)
            except (JournalError, BaseExceptionGroup) as error:
                door.told.broken(first(error), session, 0.0)
                raise
    finally:
        await app.aclose()


class Door:
    """One session, and the program at the other end."""

    def __init__(self, app: App, id_: str, session: Session, *, live: bool) -> None:
        self._desk = Desk(app, session)
        self.told = Told("stream-json", id_, live=live, asked=self._desk.request)
        self._id, self._session = id_, session
        self.patience = app.settings.limits.answer  # seconds
        self._closed = self._leaving = False  # stdin has ended; we have to go
        self._code, self._began = 0, 0.0
        self._results: dict[int, Document] = {}  # by the seq of their turn's end
        self._news = anyio.Event()

    async def run(self, words: str, shown: Sequence[Picture], seconds: float | None) -> int:
        """Until stdin has ended and nothing is left to do. The exit code comes back."""
        watch = self._session.hub.watch()
        forget = self._session.hub.heed(self._heed)
        try:
            self.told.begin(self._session)
            async with anyio.create_task_group() as group:
                group.start_soon(self._show, watch.frames())
                if words or shown:
                    await self._desk.say(UserMessage(words), shown)
                group.start_soon(self._read)
                group.start_soon(self._hear_signals)
                group.start_soon(self._end_in_time, seconds)
                await self._work()
                watch.close()
                await self.told.finished.wait()
                group.cancel_scope.cancel()
        finally:
            forget()
        return self._code

    async def _work(self) -> None:
        session, desk = self._session, self._desk
        while True:
            if (self._leaving or self.told.gone) and not session.view.turn.seq:
                return
            if desk.going_on or not session.idle:
                go = session.continue_ if desk.going_on else session.go
                desk.going_on = False
                view = await go()
                if view.turn.seq:
                    await self._answered(view.seq)
            elif desk.shorter is not None:
                await self._tell_shorter(desk.shorter)
            elif desk.mail:
                await desk.say(desk.mail.popleft())
            elif self._closed:
                return
            else:
                await self._news.wait()
                self._news = anyio.Event()

    async def _tell_shorter(self, order: CompactTalk) -> None:
        """Between two turns; an interrupt ends it."""
        with anyio.CancelScope() as self._desk.beside:
            await self._session.compact(order.kind, order.focus)
        self._desk.shorter = self._desk.beside = None

    async def _answered(self, seq: int) -> None:
        """Return when something came since: an answer, as a rule. After the end, deny."""
        while self._session.view.seq <= seq:
            if self._closed:
                await self._desk.deny_all(_NOBODY)
                return
            self._news = anyio.Event()
            with anyio.move_on_after(self.patience) as waited:
                await self._news.wait()
            if waited.cancelled_caught:
                await self._desk.deny_all(LATE.format(seconds=self.patience))

    async def _read(self) -> None:
        number = 0
        async for line in _lines():
            number += 1
            if line.strip():
                try:
                    if len(line) > LONGEST:
                        raise BadInput(f"a line may have {LONGEST} bytes at most")
                    await self._desk.obey(order_in(line))
                except BadInput as error:
                    self._wrong(number, error)
            self._news.set()
        self._closed = True
        self._news.set()

    def _wrong(self, number: int, error: BadInput) -> None:
        said: Document = {"type": "error", "kind": "BadInput", "line": number}
        self.told.lines([said | {"reason": f"line {number} of stdin: {error}"}])

    async def _show(self, frames: AsyncIterable[Frame]) -> None:
        await self.told.follow(frames, self._session, self._result)
        self._news.set()

    def _heed(self, entry: Entry) -> None:
        match entry.event:
            case TurnStarted():
                self._began = entry.at
            case TurnEnded():
                view, seconds = self._session.view, entry.at - self._began
                found = result(view, self._id, seconds if self._began else 0.0)
                self._results[entry.seq] = found
                if not self._leaving:
                    self._code = EXIT_CODES[str(found["outcome"])]
            case _:
                pass
        self._news.set()

    def _result(self, entry: Entry) -> Document | None:
        return self._results.pop(entry.seq, None)

    async def _end_in_time(self, seconds: float | None) -> None:
        if seconds is None:
            return
        await anyio.sleep(seconds)
        self._leave(TIMED_OUT)
        await self._session.inbox.cancel("out of time")

    async def _hear_signals(self) -> None:
        ours = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with anyio.open_signal_receiver(*ours) as news:
            async for number in news:
                self._leave(INTERRUPTED)
                name = signal.Signals(number).name
                await self._session.inbox.interrupt(f"stopped by {name}")

    def _leave(self, code: int) -> None:
        self._leaving, self._code = True, code
        if self._desk.beside is not None:
            self._desk.beside.cancel()
        self._news.set()


async def _lines() -> AsyncGenerator[bytes]:
    """The lines of stdin as they come."""
    closed = sys.stdin is None  # pyright: ignore[reportUnnecessaryComparison] - it can be
    if closed:
        return
    source, left = sys.stdin.fileno(), b""
    while piece := await _piece(source):
        *whole, left = (left + piece).split(b"\n")
        for line in whole:
            yield line
    if left:
        yield left


async def _piece(source: int) -> bytes:
    try:
        await anyio.wait_readable(source)
        return os.read(source, 65_536)
    except PermissionError:  # a file is always readable, and cannot be waited for
        return await to_thread.run_sync(os.read, source, 65_536)
    except OSError:  # whoever held the other end is gone
        return b""
