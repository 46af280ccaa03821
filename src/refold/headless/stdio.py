"""Connects a session with another program: orders arrive on stdin, documents leave on stdout.

Each line on stdin is an order to the session. Events of the session are printed as JSON
documents, and each turn ends with a document with its result. The program can answer questions
until it closes stdin; then open questions of the session and its subagents are denied.
Questions that were open when a session was left are asked again when it is resumed.
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
    """Run a session that orders on stdin control, and return the exit code."""
    # after a signal, a program that does not read the output must not delay the end
    stops.on_signal = writer.stdout.set_reader_deadline
    async with stops.cancel_on_signal():
        launch = task.launch(True)  # the program at stdin can be asked
        try:
            if not task.resumes:
                launch.check_model()
            session = await task.open(launch)
            writer.bind(session)
            session.check_model()
            for notice in session.protection_notices():
                print_error(notice)
            client = StdioClient(session, writer)
            stops.interrupt_work = partial(client.leave, INTERRUPTED_CODE)
            return await client.run(task.text, images, task.timeout)
        finally:
            await close_launch(launch)
    # A signal has cancelled the block. The duration, 0.0, is not measured then.
    await writer.write_result(
        replace(writer.result(0.0), outcome="interrupted", reason=stops.reason)
    )
    return INTERRUPTED_CODE


class StdioClient:
    """Connects one session with the program that writes to stdin and reads stdout."""

    def __init__(self, session: Session, writer: StreamWriter) -> None:
        self._session, self._writer = session, writer
        writer.make_request = session.request
        self.answer_seconds = session.settings.limits.answer_seconds
        self._stdin_has_ended = False
        self._is_leaving = False  # whether `leave` was called
        self._leave_reason = ""
        self._has_run_turn = False
        self._turn_began_at = 0.0  # of the running turn; 0: before this process
        self._exit_code = 0
        self._limit: float | None = None  # the time limit of the whole run, in seconds
        # The background commands whose wait was announced, once stdin has ended.
        self._announced = ""
        self._first_error = ""  # the error of the first invalid line
        self._results: dict[int, Result] = {}  # by the seq of their turn's end
        self._next_change = anyio.Event()  # set and replaced at each change

    async def run(self, text: str, images: Sequence[ImageData], limit: float | None) -> int:
        """Run until stdin has ended and no work is left. Return the exit code.

        `text` and `images` are the first message; `limit` is the time limit in seconds. Raises
        the error that made a write to stdout fail.
        """
        self._limit = limit
        watch = self._session.watch(live=MAX_WAITING_NEWS)
        stop_listening = self._session.on_event(self._on_event)
        try:
            async with anyio.create_task_group() as group:
                open_questions = await self._session.waiting()
                group.start_soon(self._show, watch.frames(), open_questions)
                if text or images:
                    message = SendMessage(text, images=tuple(images))
                    await self._session.send(self._with_named_images(message))
                group.start_soon(self._read)
                group.start_soon(self._end_in_time, limit)
                group.start_soon(self._deny_late_requests)
                await self._run_turns()
                watch.close()
                await self._writer.finished.wait()
                await self._write_missing_result()
                group.cancel_scope.cancel()
        finally:
            stop_listening()
        self._writer.stdout.raise_write_error()
        return self._exit_code or int(self._writer.reader_left)

    async def leave(self, code: int, reason: str) -> bool:
        """Stop all running work, and make `run` return `code`, because of `reason`.

        Always return True, as `StopSignals.interrupt_work` requires.
        """
        self._is_leaving, self._exit_code, self._leave_reason = True, code, reason
        self._session.forget_orders()
        if code == TIMED_OUT_CODE:
            await self._session.cancel(reason)
        else:
            await self._session.interrupt(reason=reason)
        self._wake()
        return True

    def _wake(self) -> None:
        self._next_change.set()
        self._next_change = anyio.Event()

    async def _run_turns(self) -> None:
        """Run turns until `leave` is called, or until stdin has ended and no work is left."""
        session = self._session
        while True:
            must_end = self._is_leaving or self._writer.reader_left
            if must_end and not session.view.turn.seq:  # seq 0: no turn is running
                return
            # taken before the step, so that a change during the step is not missed
            next_change = self._next_change
            has_worked = await session.step()
            if has_worked:
                continue
            if self._stdin_has_ended and not session.view.turn.seq:
                waiting = waiting_commands(session.view)
                if not waiting:
                    return
                await self._wait_for_background(waiting, next_change)
            else:
                await next_change.wait()

    async def _wait_for_background(self, waiting: str, next_change: anyio.Event) -> None:
        """After stdin has ended, wait for a change by the background commands `waiting`.

        Leave if no change comes for too long.
        """
        if waiting != self._announced:
            print_error(WAITING_TEXT.format(waiting))
            self._announced = waiting
        with anyio.move_on_after(longest_wait(self._limit)) as wait:
            await next_change.wait()
        if wait.cancelled_caught:
            reason = long_wait_reason(waiting)
            print_error(reason)
            await self.leave(TIMED_OUT_CODE, reason)

    def _open_requests(self) -> Sequence[Permission | Questions]:
        """Return the open permission requests and questions, but not plans."""
        requests = self._session.requests
        return [
            request for request in requests if isinstance(request, Permission | Questions)
        ]

    async def _deny_all(self, reason: str) -> None:
        """Deny all open requests. A plan stays open until the session is resumed."""
        for request in self._open_requests():
            await self._session.answer(request.id, allowed=False, reason=reason)

    async def _deny_late_requests(self) -> None:
        """Deny open requests if no answer arrives in time, or if stdin has ended.

        This runs beside the turn, because a turn continues while a subagent asks.
        """
        while True:
            next_change = self._next_change
            if not self._open_requests():
                await next_change.wait()
            elif self._stdin_has_ended:
                await self._deny_all(_NO_USER_REASON)
            else:
                with anyio.move_on_after(self.answer_seconds) as wait:
                    await next_change.wait()
                if wait.cancelled_caught:
                    reason = _UNANSWERED_REASON.format(seconds=self.answer_seconds)
                    await self._deny_all(reason)

    async def _read(self) -> None:
        """Execute the orders on stdin until it ends. Report and skip invalid lines."""
        number = 0
        async for line in read_lines():
            number += 1
            if line is None:
                error = BadInput(f"a line may have {MAX_LINE_BYTES} bytes at most")
                await self._report_bad_line(number, error)
            elif line.strip():
                try:
                    await self._execute(parse_order(line))
                except BadInput as error:
                    await self._report_bad_line(number, error)
            self._wake()
        self._stdin_has_ended = True
        self._wake()

    async def _execute(self, order: Order) -> None:
        """Print what the order asks for, or pass the order to the session."""
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
        """Attach the images that the text of a message names, and return the message.

        Print an error for each image that cannot be used.
        """
        named = self._session.workspace.images_in(order.text)
        for problem in named.problems:
            print_error(problem)
        return replace(order, images=(*order.images, *named.images))

    async def _report_bad_line(self, number: int, error: BadInput) -> None:
        """Print a document about the invalid line `number`, and remember the first error."""
        reason = f"line {number} of stdin: {error}"
        self._first_error = self._first_error or reason
        await self._writer.write_documents(
            [Error(kind="BadInput", reason=reason, line=number)]
        )

    async def _show(self, frames: AsyncIterable[Frame], first: Sequence[Document]) -> None:
        """Print `first`, then the news of the session, with a result after each turn."""
        await self._writer.follow(frames, self._session, self._result, first)
        self._wake()

    async def _write_missing_result(self) -> None:
        """Print a result at the end, unless the result of the last turn is enough.

        After `leave`, a result is missing if no turn was running, or if the run waited for
        background commands. Without `leave`, it is missing if invalid lines prevented every
        turn.
        """
        if self._is_leaving:
            has_result = self._writer.last_type == "result"
            if not has_result or waiting_commands(self._session.view):
                is_late = self._exit_code == TIMED_OUT_CODE
                outcome = "cancelled" if is_late else "interrupted"
                await self._write_result(outcome, self._leave_reason)
                return
        if self._first_error and not self._has_run_turn:
            self._exit_code = EXIT_CODES["failed"]
            await self._write_result("failed", self._first_error)

    async def _write_result(self, outcome: Outcome, reason: str) -> None:
        document = result(self._session.view, self._session.id, seconds=0.0)
        await self._writer.write_result(replace(document, outcome=outcome, reason=reason))

    def _on_event(self, entry: Entry) -> None:
        """Record the result and the exit code of a turn that has ended."""
        match entry.event:
            case events.TurnStarted():
                self._turn_began_at = entry.at
            case events.TurnEnded():
                seconds = entry.at - self._turn_began_at if self._turn_began_at else 0.0
                turn_result = result(self._session.view, self._session.id, seconds)
                self._results[entry.seq] = turn_result
                self._has_run_turn = True
                if not self._is_leaving:
                    self._exit_code = EXIT_CODES[turn_result.outcome]
            case _:
                pass
        self._wake()

    def _result(self, entry: Entry) -> Result | None:
        """Return the result to print after this event; None unless the event ended a turn."""
        return self._results.pop(entry.seq, None)

    async def _end_in_time(self, limit: float | None) -> None:
        """End the run after `limit` seconds. Return at once if there is no time limit."""
        if limit is None:
            return
        await anyio.sleep(limit)
        self._writer.stdout.set_reader_deadline()
        await self.leave(TIMED_OUT_CODE, _LATE_REASON)


# The lines of stdin, as they arrive from the program at the other end. `client.protocol`
# decodes them.
async def read_lines() -> AsyncGenerator[bytes | None]:
    """Yield the lines of stdin without line ends, and None for a line that is too long."""
    source = sys.stdin.fileno()
    line, too_long = bytearray(), False  # the line whose end has not arrived
    while piece := await _read_piece(source):
        rest_of_line, *next_lines = piece.split(b"\n")
        too_long = too_long or len(line) + len(rest_of_line) > MAX_LINE_BYTES
        if not too_long:
            line += rest_of_line
        # the beginning of a next line means that the line before it is complete
        for next_line in next_lines:
            yield None if too_long else bytes(line)
            line, too_long = bytearray(next_line), False
    if too_long or line:  # the last line has no end
        yield None if too_long else bytes(line)


async def _read_piece(source: int) -> bytes:
    """Return the next bytes of the file descriptor `source`; b"" at the end of the input."""
    try:
        await anyio.wait_readable(source)
        return os.read(source, _PIECE_BYTES)
    except PermissionError:  # a file is always readable, and cannot be polled
        return await to_thread.run_sync(os.read, source, _PIECE_BYTES)
    except OSError:  # the other end is closed
        return b""
