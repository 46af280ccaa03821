"""Writes the output of a task without a terminal, in each format (docs/reference/headless.md).

The last output on stdout is always the result of the task, even if no session was opened, or if
the journal can no longer be written.
"""

import select
import sys
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio import CancelScope, to_thread
from msgspec.structs import replace

from refold._version import __version__
from refold.client.session import Session
from refold.client.types import Entry, Frame, View, events
from refold.errors import RefoldError
from refold.headless.streams import (
    ReaderGone,
    answer_text,
    print_error,
    report_end,
    write,
    write_bytes,
)
from refold.values.live import Waiting
from refold.values.text import clean

if TYPE_CHECKING:
    from refold.views.stream_json.documents import Result
    from refold.views.stream_json.encode import Document, MakeRequest

STREAM_FORMAT = "stream-json"
MAX_WAITING_NEWS = 1_024  # frames that wait for a slow reader
_MAX_DENIALS_SHOWN = 5  # listed one by one
_MAX_CALL_CHARS = 100  # of a denied call
_ALLOW_HINT = "allow them with --allow, --permission-mode or --yolo; "
_REASONS_HINT = "--output-format json has the reasons"
_UNREAD_REASON = "the program that read the output has ended"
_GOOD_OUTCOMES = ("answered", "final", "plan_ready")
_READER_TIMEOUT_SECONDS = 2.0  # for a stuck reader, once the task must end
# The only kinds of news that are printed in other formats: as documents `Notice` and
# `Retry`.
_NOTICE_TYPES = (Waiting, events.JournalRepaired)
# A pipe that is ready takes at least this much without blocking; POSIX promises 512.
_MAX_WRITE_BYTES = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512


class StreamWriter:
    """Writes the output of a session to stdout, in one format.

    With `live`, pieces of a response are written while the response arrives. `make_request`
    returns the document for a question to the user.
    """

    def __init__(self, format_: str, *, live: bool) -> None:
        self._format, self._live = format_, live
        self.make_request: MakeRequest | None = None
        self.finished = anyio.Event()  # set when `follow` has printed everything
        self.model_asked = anyio.Event()  # set when a model is called first
        self.stdout = StdoutWriter()
        self.last_type = ""  # the type of the document that was printed last
        self._session: Session | None = None
        self._session_id = ""
        self._results: list[Result] = []  # of the turns that ended in this run

    def bind(self, session: Session) -> None:
        """Set the session whose output is printed."""
        self._session, self._session_id = session, session.id

    def on_event(self, entry: Entry) -> None:
        """Record that a model was called, or the result of a turn that has ended."""
        if isinstance(entry.event, events.ModelAsked):
            self.model_asked.set()
        elif isinstance(entry.event, events.TurnEnded):
            # only the combined result has a duration
            self._results.append(self._newest_result(seconds=0.0))

    @property
    def reader_left(self) -> bool:
        """True once the reader has closed the pipe."""
        return self.stdout.reader_left

    @property
    def printed_types(self) -> tuple[type, ...]:
        """The types of news to print; () means all types."""
        return () if self._format == STREAM_FORMAT else _NOTICE_TYPES

    def begin(self, session: Session) -> None:
        """Do nothing, because `follow` prints the beginning of the session."""

    async def follow(
        self,
        frames: AsyncIterable[Frame],
        session: Session,
        after: "Callable[[Entry], Document | None]" = lambda _: None,
        first: "Iterable[Document]" = (),
    ) -> None:
        """Print the news of the session, which `frames` yields.

        Stop the turn if the reader closes the pipe. `after` returns a document to print after
        those of an event, or None. `first` are documents to print before all news: questions
        that were open when the session was left.
        """
        if self._format == STREAM_FORMAT:
            await self._follow_in_stream(frames, session, after, first)
        else:
            # Only news of `printed_types` arrives: notices, and retries, which are live.
            async for frame in frames:
                _print_notices(self._documents(frame, live=True))
        self.finished.set()

    async def _follow_in_stream(
        self,
        frames: AsyncIterable[Frame],
        session: Session,
        after: "Callable[[Entry], Document | None]",
        first: "Iterable[Document]",
    ) -> None:
        """Print the news of the session as documents, as `follow` describes."""
        from refold.views.stream_json.encode import init

        start = init(session.view, self._session_id, __version__)
        await self.write_documents([start, *first])
        is_stopping = False
        async for frame in frames:
            documents = [
                *self._documents(frame, live=self._live),
                *self._estimate_notice(frame),
            ]
            added = after(frame.item) if isinstance(frame.item, Entry) else None
            if added is not None:
                documents.append(added)
            await self.write_documents(documents)
            # This is repeated at each event, because earlier no turn may have been running.
            if self.reader_left and not is_stopping:
                is_stopping = await session.cancel(_UNREAD_REASON)

    def _documents(self, frame: Frame, *, live: bool) -> "Iterable[Document]":
        """Return the documents to print for `frame`.

        If `live` is false, there are none for live news, such as pieces of a response.
        """
        from refold.views.stream_json.encode import approval_request, documents_of

        return documents_of(
            frame, live=live, make_request=self.make_request or approval_request
        )

    def _estimate_notice(self, frame: Frame) -> "list[Document]":
        """Return a notice if `frame` has the first estimated cost of the session, or []."""
        estimated = self._view.account.first_estimated
        if not isinstance(frame.item, Entry) or frame.item.seq != estimated:
            return []
        from refold.views.notices import ESTIMATED_NOTICE
        from refold.views.stream_json.documents import Notice

        return [Notice(seq=frame.seq, text=ESTIMATED_NOTICE)]

    async def write_result(self, document: "Result") -> None:
        """Print the result of the task.

        Raises `ReaderGone` or `RefoldError` if it was not written completely.
        """
        if self._format == "text":
            await self._write_text(document)
        else:
            await self.write_documents([document])
        self.stdout.raise_write_error()

    async def _write_text(self, document: "Result") -> None:
        """Print the answer on stdout, and warnings, denials and a failure on stderr."""
        if text := document.text.rstrip():
            await self.stdout.write(answer_text(text))
        for warning in document.warnings:
            print_error(warning)
        if self._session is not None:
            _report_denials(self._session)
        if document.outcome not in _GOOD_OUTCOMES:
            report_end(document.outcome, document.reason)

    def print_session_end_errors(self) -> None:
        """Print errors of SessionEnd hooks, which run after the result was printed."""
        if self._view.failures.hooks:
            from refold.views.notices import hook_failures

            for warning in hook_failures(self._view, "SessionEnd"):
                print_error(warning)

    def result(self, seconds: float) -> "Result":
        """Return the combined result of all turns of this run."""
        from refold.views.stream_json.turn_result import add_earlier_turns

        newest = self._newest_result(seconds)
        # unless a turn is running, the last item of `_results` is `newest` itself
        is_in_turn = self._view.turn.seq != 0
        earlier = self._results if is_in_turn else self._results[:-1]
        return add_earlier_turns(newest, earlier)

    def _newest_result(self, seconds: float) -> "Result":
        from refold.views.stream_json.turn_result import result

        return result(self._view, self._session_id, seconds)

    def background_warnings(self) -> Sequence[str]:
        """Return warnings about background commands that end with the session."""
        from refold.views.notices import answer_end_warnings

        return answer_end_warnings(self._view)

    def report_crash(self, error: BaseException) -> None:
        """Print a result that reports a crash, unless a result was already printed.

        The result is written without the event loop, which may be closed.
        """
        if self._format == "text":  # the command line prints the error
            return
        if self.last_type == "result" or self.reader_left:
            return
        self.last_type = "result"
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        document = replace(
            self.result(0.0), outcome=outcome, reason=clean(_error_text(error))
        )
        try:
            write(_line(document))
        except (ReaderGone, RefoldError):
            return  # only the first error is reported

    async def write_documents(self, documents: "Iterable[Document]") -> None:
        for document in documents:
            if await self.stdout.write(_line(document)):
                self.last_type = str(document.__struct_config__.tag)

    @property
    def _view(self) -> View:
        return View() if self._session is None else self._session.view


def _line(document: "Document") -> str:
    return msgspec.json.encode(document).decode() + "\n"


def _error_text(error: BaseException) -> str:
    if isinstance(error, RefoldError | KeyboardInterrupt):
        return str(error) or "interrupted"
    return f"refold itself failed: {type(error).__name__}: {error}"


def _report_denials(session: Session) -> None:
    """Print the denied calls of the turn on stderr, with advice how to allow them."""
    turn = session.view.turn
    if not turn.denials or turn.outcome == "plan_ready":  # in plan mode, denials are normal
        return
    from refold.views.call_summary import is_hook_refusal, label
    from refold.views.wrap import cut

    for denied in turn.denials[:_MAX_DENIALS_SHOWN]:
        call_text = cut(label(denied.call, session.tool(denied.call.name)), _MAX_CALL_CHARS)
        print_error(f"denied: {call_text}")
    omitted = len(turn.denials) - _MAX_DENIALS_SHOWN
    omitted_text = f"{omitted} more were denied; " if omitted > 0 else ""
    # No option can allow a call that a hook refuses.
    only_hooks = all(is_hook_refusal(denied.reason) for denied in turn.denials)
    advice = "a hook refused this; " if only_hooks else _ALLOW_HINT
    print_error(f"{omitted_text}{advice}{_REASONS_HINT}")


def _print_notices(documents: "Iterable[Document]") -> None:
    """Print each notice and each retry of a model call on stderr; ignore other documents."""
    from refold.views.stream_json.documents import Notice
    from refold.views.stream_json.live_documents import Retry

    for document in documents:
        if isinstance(document, Notice):
            print_error(document.text)
        elif isinstance(document, Retry):
            retry_text = (
                f"; trying again in {document.seconds:.1f} s" if document.seconds else ""
            )
            print_error(f"{document.reason}{retry_text}")


# Standard output for a task that must continue and end even if its reader does not read. If
# a reader is slow or stuck, a thread writes, so that signals and timeouts still work. A
# closed pipe or a full disk sets `reader_left` instead of raising an error; the code that
# runs the turn then stops it.
class StdoutWriter:
    """Writes to stdout. `reader_left` is true once the reader has closed the pipe."""

    def __init__(self) -> None:
        self.reader_left = False
        self._error: RefoldError | None = None
        self._write_lock = anyio.Lock()
        self._write_scope: CancelScope | None = None  # of the write that is running
        self._has_deadline = False

    def set_reader_deadline(self) -> None:
        """From now on, wait only some seconds for a reader that does not read."""
        self._has_deadline = True
        if self._write_scope is not None:
            self._write_scope.deadline = anyio.current_time() + _READER_TIMEOUT_SECONDS

    def raise_write_error(self) -> None:
        """Raise the error that made a write fail, if one failed."""
        if self._error is not None:
            raise self._error

    async def write(self, text: str) -> bool:
        """Write all of `text`. Return False if it was not written completely."""
        data = text.encode("utf-8", errors="replace")
        async with self._write_lock:
            if self.reader_left:
                return False
            is_written = False
            try:
                with CancelScope() as self._write_scope:
                    if self._has_deadline:
                        self.set_reader_deadline()  # for this write, too
                    is_written = await self._write_out(data)
            finally:
                # Set only now, because a reader that is slow during a write has not left.
                # After a cancelled write it is unknown how much was written.
                self.reader_left = not is_written
                self._write_scope = None
        return is_written

    async def _write_out(self, data: bytes) -> bool:
        """Write all of `data`.

        Return False if the reader has closed the pipe, or if a write failed.
        """
        try:
            if len(data) <= _MAX_WRITE_BYTES and _is_writable():
                write_bytes(data)  # does not block
            else:
                await to_thread.run_sync(write_bytes, data, abandon_on_cancel=True)
        except ReaderGone:
            return False
        except RefoldError as error:
            self._error = error
            return False
        return True


def _is_writable() -> bool:
    """Return whether a short write to stdout would not block; True if it is unknown."""
    with suppress(OSError, ValueError, AttributeError):
        if hasattr(select, "poll"):
            watch = select.poll()
            watch.register(sys.stdout.fileno(), select.POLLOUT)
            return bool(watch.poll(0))
    return True
