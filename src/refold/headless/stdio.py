"""A session over stdin and stdout, for a program: orders in, documents out.

Each line is decoded to an order and sent to the session. Events become documents, as in any
stream, and each turn ends with its result. The user can be asked as long as stdin is open;
questions that are still open then, of the session or of a subagent, are denied. Questions
that were open when a session was left are asked again when it is resumed.
"""

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from functools import partial

import anyio
from anyio import to_thread
from msgspec.structs import replace

from refold.client.protocol import (
    Fork,
    Order,
    ReportSnapshot,
    ReportStatus,
    SendMessage,
    order_in,
)
from refold.client.session import Session
from refold.client.types import Entry, Frame, ImageData, Permission, Questions, events
from refold.errors import BadInput
from refold.headless.output import WAITING, StreamWriter
from refold.headless.stop_signals import StopSignals
from refold.headless.streams import print_error
from refold.headless.task import (
    INTERRUPTED,
    TIMED_OUT,
    WAITS,
    Task,
    closed,
    longest_wait,
    waited_too_long,
)
from refold.values.modes import Outcome
from refold.views.notices import waiting_commands
from refold.views.stream_json.documents import Error, ForkMade, Result
from refold.views.stream_json.encode import Document
from refold.views.stream_json.turn_result import EXIT_CODES, result

_NOBODY = "no user is there to answer any more"
_LATE = "out of time"
_UNANSWERED = "no answer came within {seconds:g} s"
LONGEST = 32 * 1024 * 1024  # bytes of one line
_PIECE = 65_536


def run(task: Task, out: StreamWriter, stops: StopSignals) -> int:
    return anyio.run(_run, task, task.images(), out, stops)


async def _run(
    task: Task, images: Sequence[ImageData], out: StreamWriter, stops: StopSignals
) -> int:
    stops.hurry = out.outlet.hurry
    async with stops.heard():
        launch = task.launch(True)
        try:
            if not task.resumes:
                launch.check_model()
            session = await task.open(launch)
            out.of(session)
            session.check_model()
            for notice in session.protection_notices():
                print_error(notice)
            door = StdioClient(session, out)
            stops.gently = partial(door.leave, INTERRUPTED)
            return await door.run(task.text, images, task.timeout)
        finally:
            await closed(launch)
    await out.end(replace(out.result(0.0), outcome="interrupted", reason=stops.why))
    return INTERRUPTED


class StdioClient:
    """One session, and the program at the other end."""

    def __init__(self, session: Session, out: StreamWriter) -> None:
        self._session, self._out = session, out
        out.asked = session.request
        self.answer_seconds = session.settings.limits.answer_seconds
        # Stdin has ended; we have to go; a turn was run.
        self._closed = self._leaving = self._ran = False
        self._code, self._began = 0, 0.0
        self._why = ""  # we have to go
        self._seconds: float | None = None  # the limit of all of it
        self._waits_for = ""  # the background commands, once stdin has ended
        self._senseless = ""  # what was wrong with the first line that made no sense
        self._results: dict[int, Result] = {}  # by the seq of their turn's end
        self._news = anyio.Event()  # set, and another one, with each thing that happens

    async def run(
        self, text: str, images: Sequence[ImageData], seconds: float | None
    ) -> int:
        """Until stdin has ended and nothing is left to do. The exit code comes back."""
        self._seconds = seconds
        watch = self._session.watch(live=WAITING)
        forget = self._session.on_event(self._on_event)
        try:
            async with anyio.create_task_group() as group:
                waiting = await self._session.waiting()
                group.start_soon(self._show, watch.frames(), waiting)
                if text or images:
                    message = SendMessage(text, images=tuple(images))
                    await self._session.send(self._with_named(message))
                group.start_soon(self._read)
                group.start_soon(self._end_in_time, seconds)
                group.start_soon(self._attend)
                await self._work()
                watch.close()
                await self._out.finished.wait()
                await self._last_word()
                group.cancel_scope.cancel()
        finally:
            forget()
        self._out.outlet.settle()
        return self._code or int(self._out.gone)

    async def leave(self, code: int, why: str) -> bool:
        """Stop what is running, and end."""
        self._leaving, self._code, self._why = True, code, why
        self._session.forget_orders()
        if code == TIMED_OUT:
            await self._session.cancel(why)
        else:
            await self._session.interrupt(reason=why)
        self._stir()
        return True

    def _stir(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _work(self) -> None:
        session = self._session
        while not ((self._leaving or self._out.gone) and not session.view.turn.seq):
            news = self._news
            if await session.step():
                continue
            if self._closed and not session.view.turn.seq:
                if not (waiting := waiting_commands(session.view)):
                    return
                await self._await(waiting, news)
            else:
                await news.wait()

    async def _await(self, waiting: str, news: anyio.Event) -> None:
        """Wait for a background command that is to wake the agent, after stdin has ended."""
        if waiting != self._waits_for:
            print_error(WAITS.format(waiting))
            self._waits_for = waiting
        with anyio.move_on_after(longest_wait(self._seconds)) as patience:
            await news.wait()
        if patience.cancelled_caught:
            late = waited_too_long(waiting)
            print_error(late)
            await self.leave(TIMED_OUT, late)

    def _put(self) -> Sequence[Permission | Questions]:
        """What waits for a decision or an answer, and is no plan."""
        found = self._session.requests
        return [each for each in found if isinstance(each, Permission | Questions)]

    async def _deny_all(self, reason: str) -> None:
        """No to every call that waits; a plan can still be judged in another start."""
        for each in self._put():
            await self._session.answer(each.id, False, reason)

    async def _attend(self) -> None:
        """Deny a request if no answer comes in time, or can come any more.

        It runs beside the turn, because a turn that waits for a subagent continues while
        the subagent asks.
        """
        while True:
            news = self._news
            if not self._put():
                await news.wait()
            elif self._closed:
                await self._deny_all(_NOBODY)
            else:
                with anyio.move_on_after(self.answer_seconds) as waited:
                    await news.wait()
                if waited.cancelled_caught:
                    await self._deny_all(_UNANSWERED.format(seconds=self.answer_seconds))

    async def _read(self) -> None:
        number = 0
        async for line in lines():
            number += 1
            if line is None or line.strip():
                try:
                    if line is None:
                        raise BadInput(f"a line may have {LONGEST} bytes at most")
                    await self._obey(order_in(line))
                except BadInput as error:
                    await self._wrong(number, error)
            self._stir()
        self._closed = True
        self._stir()

    async def _obey(self, order: Order) -> None:
        match order:
            case Fork(at):
                made = await self._session.fork(at)
                await self._out.lines([ForkMade(session_id=made, source=self._session.id)])
            case ReportStatus():
                await self._out.lines([self._session.status])
            case ReportSnapshot():
                await self._out.lines([self._session.snapshot])
            case SendMessage():
                await self._session.send(self._with_named(order))
            case _:
                await self._session.send(order)

    def _with_named(self, order: SendMessage) -> SendMessage:
        """The message with the images that it names."""
        named = self._session.workspace.named_images(order.text)
        for problem in named.problems:
            print_error(problem)
        return replace(order, images=(*order.images, *named.images))

    async def _wrong(self, number: int, error: BadInput) -> None:
        reason = f"line {number} of stdin: {error}"
        self._senseless = self._senseless or reason
        await self._out.lines([Error(kind="BadInput", reason=reason, line=number)])

    async def _show(self, frames: AsyncIterable[Frame], first: Sequence[Document]) -> None:
        await self._out.follow(frames, self._session, self._result, first)
        self._stir()

    async def _last_word(self) -> None:
        """If the program ends while no turn runs, or none ran because of errors, a result
        says so.
        """
        waited = waiting_commands(self._session.view)
        if self._leaving and (self._out.last != "result" or waited):
            how = "cancelled" if self._code == TIMED_OUT else "interrupted"
            await self._end(how, self._why)
        elif self._senseless and not self._ran:
            self._code = EXIT_CODES["failed"]
            await self._end("failed", self._senseless)

    async def _end(self, how: Outcome, why: str) -> None:
        document = result(self._session.view, self._session.id, 0.0)
        await self._out.end(replace(document, outcome=how, reason=why))

    def _on_event(self, entry: Entry) -> None:
        match entry.event:
            case events.TurnStarted():
                self._began = entry.at
            case events.TurnEnded():
                view, seconds = self._session.view, entry.at - self._began
                found = result(view, self._session.id, seconds if self._began else 0.0)
                self._results[entry.seq], self._ran = found, True
                if not self._leaving:
                    self._code = EXIT_CODES[found.outcome]
            case _:
                pass
        self._stir()

    def _result(self, entry: Entry) -> Result | None:
        return self._results.pop(entry.seq, None)

    async def _end_in_time(self, seconds: float | None) -> None:
        if seconds is None:
            return
        await anyio.sleep(seconds)
        self._out.outlet.hurry()
        await self.leave(TIMED_OUT, _LATE)


# The lines of stdin, as they come, for a program at the other end. What stands in one
# is read in `client.protocol`.
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
