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
    parse_order,
)
from refold.client.session import Session
from refold.client.types import Entry, Frame, ImageData, Permission, Questions, events
from refold.errors import BadInput
from refold.headless.output import MAX_WAITING_NEWS, StreamWriter
from refold.headless.stop_signals import StopSignals
from refold.headless.streams import print_error
from refold.headless.task import (
    INTERRUPTED_CODE,
    TIMED_OUT_CODE,
    WAITING_TEXT,
    Task,
    close_launch,
    long_wait_reason,
    longest_wait,
)
from refold.values.modes import Outcome
from refold.views.notices import waiting_commands
from refold.views.stream_json.documents import Error, ForkMade, Result
from refold.views.stream_json.encode import Document
from refold.views.stream_json.turn_result import EXIT_CODES, result

_NO_USER_REASON = "no user is there to answer any more"
_LATE_REASON = "out of time"
_UNANSWERED_REASON = "no answer came within {seconds:g} s"
MAX_LINE_BYTES = 32 * 1024 * 1024  # of one line
_PIECE_BYTES = 65_536


def run(task: Task, writer: StreamWriter, stops: StopSignals) -> int:
    return anyio.run(_run, task, task.images(), writer, stops)


async def _run(
    task: Task, images: Sequence[ImageData], writer: StreamWriter, stops: StopSignals
) -> int:
    stops.hurry = writer.outlet.set_reader_deadline
    async with stops.cancel_on_signal():
        launch = task.launch(True)
        try:
            if not task.resumes:
                launch.check_model()
            session = await task.open(launch)
            writer.bind(session)
            session.check_model()
            for notice in session.protection_notices():
                print_error(notice)
            client = StdioClient(session, writer)
            stops.gently = partial(client.leave, INTERRUPTED_CODE)
            return await client.run(task.text, images, task.timeout)
        finally:
            await close_launch(launch)
    await writer.write_result(
        replace(writer.result(0.0), outcome="interrupted", reason=stops.why)
    )
    return INTERRUPTED_CODE


class StdioClient:
    """One session, and the program at the other end."""

    def __init__(self, session: Session, writer: StreamWriter) -> None:
        self._session, self._writer = session, writer
        writer.make_request = session.request
        self.answer_seconds = session.settings.limits.answer_seconds
        # Stdin has ended; the program must end; a turn was run.
        self._closed = self._leaving = self._ran = False
        self._code, self._began = 0, 0.0
        self._why = ""  # the reason to end
        self._seconds: float | None = None  # the limit of the whole run
        self._waits_for = ""  # the background commands, once stdin has ended
        self._first_error = ""  # the error of the first invalid line
        self._results: dict[int, Result] = {}  # by the seq of their turn's end
        self._news = anyio.Event()  # set and replaced at each change

    async def run(
        self, text: str, images: Sequence[ImageData], seconds: float | None
    ) -> int:
        """Run until stdin has ended and nothing is left to do. Return the exit code."""
        self._seconds = seconds
        watch = self._session.watch(live=MAX_WAITING_NEWS)
        forget = self._session.on_event(self._on_event)
        try:
            async with anyio.create_task_group() as group:
                waiting = await self._session.waiting()
                group.start_soon(self._show, watch.frames(), waiting)
                if text or images:
                    message = SendMessage(text, images=tuple(images))
                    await self._session.send(self._with_named_images(message))
                group.start_soon(self._read)
                group.start_soon(self._end_in_time, seconds)
                group.start_soon(self._deny_late_requests)
                await self._run_turns()
                watch.close()
                await self._writer.finished.wait()
                await self._write_missing_result()
                group.cancel_scope.cancel()
        finally:
            forget()
        self._writer.outlet.raise_write_error()
        return self._code or int(self._writer.reader_left)

    async def leave(self, code: int, reason: str) -> bool:
        """Stop what is running, and end the program."""
        self._leaving, self._code, self._why = True, code, reason
        self._session.forget_orders()
        if code == TIMED_OUT_CODE:
            await self._session.cancel(reason)
        else:
            await self._session.interrupt(reason=reason)
        self._wake()
        return True

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _run_turns(self) -> None:
        session = self._session
        while not (
            (self._leaving or self._writer.reader_left) and not session.view.turn.seq
        ):
            news = self._news
            if await session.step():
                continue
            if self._closed and not session.view.turn.seq:
                if not (waiting := waiting_commands(session.view)):
                    return
                await self._wait_for_background(waiting, news)
            else:
                await news.wait()

    async def _wait_for_background(self, waiting: str, news: anyio.Event) -> None:
        """After stdin ends, wait for a background command that will wake the agent."""
        if waiting != self._waits_for:
            print_error(WAITING_TEXT.format(waiting))
            self._waits_for = waiting
        with anyio.move_on_after(longest_wait(self._seconds)) as patience:
            await news.wait()
        if patience.cancelled_caught:
            late = long_wait_reason(waiting)
            print_error(late)
            await self.leave(TIMED_OUT_CODE, late)

    def _open_requests(self) -> Sequence[Permission | Questions]:
        """The open requests, without plans."""
        requests = self._session.requests
        return [
            request for request in requests if isinstance(request, Permission | Questions)
        ]

    async def _deny_all(self, reason: str) -> None:
        """Deny every waiting call. A plan stays open for another start."""
        for request in self._open_requests():
            await self._session.answer(request.id, False, reason)

    async def _deny_late_requests(self) -> None:
        """Deny a request if no answer arrives in time, or can arrive any more.

        It runs beside the turn, because a turn that waits for a subagent continues while
        the subagent asks.
        """
        while True:
            news = self._news
            if not self._open_requests():
                await news.wait()
            elif self._closed:
                await self._deny_all(_NO_USER_REASON)
            else:
                with anyio.move_on_after(self.answer_seconds) as waited:
                    await news.wait()
                if waited.cancelled_caught:
                    await self._deny_all(
                        _UNANSWERED_REASON.format(seconds=self.answer_seconds)
                    )

    async def _read(self) -> None:
        number = 0
        async for line in read_lines():
            number += 1
            if line is None or line.strip():
                try:
                    if line is None:
                        raise BadInput(f"a line may have {MAX_LINE_BYTES} bytes at most")
                    await self._execute(parse_order(line))
                except BadInput as error:
                    await self._report_bad_line(number, error)
            self._wake()
        self._closed = True
        self._wake()

    async def _execute(self, order: Order) -> None:
        match order:
            case Fork(seq):
                fork_id = await self._session.fork(seq)
                await self._writer.write_documents(
                    [ForkMade(session_id=fork_id, source=self._session.id)]
                )
            case ReportStatus():
                await self._writer.write_documents([self._session.status])
            case ReportSnapshot():
                await self._writer.write_documents([self._session.snapshot])
            case SendMessage():
                await self._session.send(self._with_named_images(order))
            case _:
                await self._session.send(order)

    def _with_named_images(self, order: SendMessage) -> SendMessage:
        """The message with the images that it names."""
        named = self._session.workspace.images_in(order.text)
        for problem in named.problems:
            print_error(problem)
        return replace(order, images=(*order.images, *named.images))

    async def _report_bad_line(self, number: int, error: BadInput) -> None:
        reason = f"line {number} of stdin: {error}"
        self._first_error = self._first_error or reason
        await self._writer.write_documents(
            [Error(kind="BadInput", reason=reason, line=number)]
        )

    async def _show(self, frames: AsyncIterable[Frame], first: Sequence[Document]) -> None:
        await self._writer.follow(frames, self._session, self._result, first)
        self._wake()

    async def _write_missing_result(self) -> None:
        """Print a result if the program ends while no turn runs, or none ran because of
        errors.
        """
        waited = waiting_commands(self._session.view)
        if self._leaving and (self._writer.last_type != "result" or waited):
            outcome = "cancelled" if self._code == TIMED_OUT_CODE else "interrupted"
            await self._write_result(outcome, self._why)
        elif self._first_error and not self._ran:
            self._code = EXIT_CODES["failed"]
            await self._write_result("failed", self._first_error)

    async def _write_result(self, outcome: Outcome, reason: str) -> None:
        document = result(self._session.view, self._session.id, 0.0)
        await self._writer.write_result(replace(document, outcome=outcome, reason=reason))

    def _on_event(self, entry: Entry) -> None:
        match entry.event:
            case events.TurnStarted():
                self._began = entry.at
            case events.TurnEnded():
                view, seconds = self._session.view, entry.at - self._began
                turn_result = result(
                    view, self._session.id, seconds if self._began else 0.0
                )
                self._results[entry.seq], self._ran = turn_result, True
                if not self._leaving:
                    self._code = EXIT_CODES[turn_result.outcome]
            case _:
                pass
        self._wake()

    def _result(self, entry: Entry) -> Result | None:
        return self._results.pop(entry.seq, None)

    async def _end_in_time(self, seconds: float | None) -> None:
        if seconds is None:
            return
        await anyio.sleep(seconds)
        self._writer.outlet.set_reader_deadline()
        await self.leave(TIMED_OUT_CODE, _LATE_REASON)


# The lines of stdin, as they arrive from the program at the other end. `client.protocol`
# decodes them.
async def read_lines() -> AsyncGenerator[bytes | None]:
    """Yield lines without their ends; None for one that is too long."""
    source, left, too_long = sys.stdin.fileno(), bytearray(), False
    while piece := await _read_piece(source):
        first_part, *others = piece.split(b"\n")
        too_long = too_long or len(left) + len(first_part) > MAX_LINE_BYTES
        left += b"" if too_long else first_part
        for line in others:
            yield None if too_long else bytes(left)
            left, too_long = bytearray(line), False
    if too_long or left:
        yield None if too_long else bytes(left)


async def _read_piece(source: int) -> bytes:
    try:
        await anyio.wait_readable(source)
        return os.read(source, _PIECE_BYTES)
    except PermissionError:  # a file is always readable, and cannot be polled
        return await to_thread.run_sync(os.read, source, _PIECE_BYTES)
    except OSError:  # the other end is closed
        return b""
