"""Runs one task without a terminal: reads a prompt, prints the answer, returns an exit code.

stdout gets only the output in the chosen format (docs/reference/headless.md), and stderr the
notices. No user can be asked, so a call that would need approval is denied.
"""

import select
import sys
import time
from collections.abc import AsyncIterable, Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold.client.launch import Launch
from refold.client.protocol import Continue
from refold.client.session import Session
from refold.client.types import Frame, ImageData
from refold.errors import BadInput, RefoldError, first, reason_of
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
from refold.values.text import escape_own
from refold.views.escape import escape_to_one_line

if TYPE_CHECKING:
    from refold.client.verify import VerifyReport
    from refold.headless.progress_line import ProgressLine
    from refold.views.stream_json.documents import Result

_MAX_STDIN_BYTES = 32 * 2**20  # of text
_STDIN_SECONDS = 3.0  # in which stdin must begin, if the command line has a prompt as well


def run(task: Task, stops: StopSignals | None = None) -> int:
    """Run the task, and return the exit code.

    `stops` has recorded the signals that arrived before this call.
    """
    if task.input_format == "stream-json" and task.output_format != "stream-json":
        raise BadInput(
            "--input-format stream-json is answered in JSON lines: "
            "add --output-format stream-json"
        )
    writer = StreamWriter(task.output_format, live=task.partial_messages)
    stops = stops or StopSignals()
    try:
        stops.raise_interrupts()
        with task.inside():
            if task.input_format == "stream-json":
                from refold.headless.stdio import run as over_stdio

                return over_stdio(task, writer, stops)
            prompt = prompt_text(task)
            return anyio.run(_Run(task, prompt, task.images(), writer, stops).run)
    except BaseException as error:  # after any error the last output on stdout is a result
        writer.report_crash(first(error))
        raise


class _Run:
    """One run of a task whose input is text. `run` returns the exit code."""

    def __init__(
        self,
        task: Task,
        prompt: str,
        images: Sequence[ImageData],
        writer: StreamWriter,
        stops: StopSignals,
    ) -> None:
        self._task, self._prompt, self._images = task, prompt, images
        self._writer, self._stops = writer, stops
        self._began = time.monotonic()

    async def run(self) -> int:
        """Run the task, print its result, and return the exit code."""
        writer, stops = self._writer, self._stops
        # after a signal, a program that does not read the output must not delay the end
        stops.on_signal = writer.stdout.set_reader_deadline
        async with stops.cancel_on_signal():
            launch = self._task.launch(False)  # no user can be asked
            try:
                return await self._run_task(launch)
            finally:
                await close_launch(launch)
                writer.print_session_end_errors()
        # The signal arrived while no turn was running, or it was the second one.
        await writer.write_result(
            replace(self._result(), outcome="interrupted", reason=stops.reason)
        )
        return INTERRUPTED_CODE

    async def _run_task(self, launch: Launch) -> int:
        """Run a turn in a new or resumed session, and print the result. Return the exit code."""
        task, writer = self._task, self._writer
        if not task.resumes:
            # Checked before a session is created, so that -c does not find an empty session.
            launch.check_model()
        prompt, typed = await launch.expand(task.text, self._prompt)
        session = await task.open(launch)
        writer.bind(session)
        session.check_model()
        session.on_event(writer.on_event)
        timeout_reason = await self._run_turn(session, prompt, typed)
        # The module is loaded already.
        from refold.views.stream_json.turn_result import exit_code

        result = self._result()
        code = exit_code(session.view)
        if timeout_reason:
            result = replace(result, outcome="cancelled", reason=timeout_reason)
            code = TIMED_OUT_CODE
            # as text, the result reports the reason itself
            if task.output_format != "text":
                print_error(timeout_reason)
        if task.verify:
            from refold.client.verify import claims_of

            self._stops.interrupt_work = None  # the first signal cancels the verification
            report = await _verify_claims(session)
            result = replace(result, claims=claims_of(report.checked))
            code = code or report.code
        await writer.write_result(result)
        return code or int(writer.reader_left)  # an unwritten answer is a failure

    async def _run_turn(self, session: Session, prompt: str, typed: str | None) -> str:
        """Run a turn, with a progress line. Return why a time limit ended it, or ""."""
        writer = self._writer
        timeout_reason = ""
        progress = self._progress_line(session)
        with progress.keep_below_messages() if progress else nullcontext():
            async with anyio.create_task_group() as group:
                group.start_soon(print_notices, session, print_error, writer.model_asked)
                if progress is not None:
                    group.start_soon(progress.show, session)
                named_images = session.workspace.images_in(prompt)
                for problem in named_images.problems:
                    print_error(problem)
                images = (*self._images, *named_images.images)
                message = HeadlessPrompt(prompt, shown=images, typed=typed)
                timeout_reason = await run_turn(
                    session, message, writer, self._task.timeout, self._stops
                )
                writer.model_asked.set()  # also if no model was called
                if progress is not None:
                    progress.end()
        return timeout_reason

    def _progress_line(self, session: Session) -> "ProgressLine | None":
        """Return the progress line; None if none should be shown."""
        if self._task.output_format == "stream-json" or not sys.stderr.isatty():
            return None
        from refold.headless.progress_line import progress_line_for  # only for a terminal

        return progress_line_for(session.settings.terminal.display)

    def _result(self) -> "Result":
        """Return the result so far, with warnings about background commands."""
        result = self._writer.result(time.monotonic() - self._began)
        warnings = (*result.warnings, *self._writer.background_warnings())
        return replace(result, warnings=warnings)


async def _verify_claims(session: Session) -> "VerifyReport":
    """Verify the claims in the answer, and print an error for each claim that fails."""
    report = await session.reports.verify()
    for checked in report.checked:
        if not checked.is_reliable:
            text = f"{checked.claim.claim}: {checked.state}, {checked.reason}"
            print_error(f"claims that failed: {escape_to_one_line(text)}")
    return report


async def print_notices(
    session: Session, say: Callable[[str], None], asked: anyio.Event | None = None
) -> None:
    """Test the sandbox, and print notices about it.

    With `asked`, the test begins when `asked` is set: after the model was called, or at the
    end of a turn without a call. So the test does not delay the call.
    """
    if asked is not None:
        await asked.wait()
    for notice in await anyio.to_thread.run_sync(session.protection_notices):
        say(notice)


class HeadlessPrompt(Struct, frozen=True):
    """A prompt: the text `words`, and the images `shown`.

    `typed` is the part that the user typed; the rest may come from a pipe.
    """

    words: str
    shown: Sequence[ImageData] = ()
    typed: str | None = None  # None: the user wrote all of it


class TurnOutput(Protocol):
    """Prints what happens in a turn. `finished` is set when everything was printed.

    `printed_types` are the types of news to print; () means all types.
    """

    finished: anyio.Event

    @property
    def printed_types(self) -> tuple[type, ...]: ...

    def begin(self, session: Session) -> None:
        """Print what must precede the news of the turn, if anything."""
        ...

    async def follow(self, frames: AsyncIterable[Frame], session: Session) -> None:
        """Print the news that `frames` yields, and set `finished` when they end."""
        ...


async def run_turn(
    session: Session,
    prompt: HeadlessPrompt,
    output: TurnOutput,
    limit: float | None,
    stops: StopSignals | None = None,
) -> str:
    """Run a turn for `prompt`, and all turns that background commands begin after it.

    `output` prints what happens. Return why a time limit ended the run early, or "". A signal
    stops the turn; a caller that handles signals itself passes `stops`.
    """
    if stops is not None:
        return await _run_turn(session, prompt, output, limit, stops)
    own_stops = StopSignals()
    async with own_stops.cancel_on_signal():
        return await _run_turn(session, prompt, output, limit, own_stops)
    # The block was cancelled: by a second signal, or by one before a turn began.
    raise KeyboardInterrupt(own_stops.reason)


async def _run_turn(
    session: Session,
    prompt: HeadlessPrompt,
    output: TurnOutput,
    limit: float | None,
    stops: StopSignals,
) -> str:
    """Do what `run_turn` does, without handling signals."""
    watch = session.watch(live=MAX_WAITING_NEWS, kinds=output.printed_types)
    clock = _Clock(limit, stops)
    stops.interrupt_work = lambda reason: session.interrupt(reason=reason)
    give_up_reason = ""
    output.begin(session)
    if session.lost_text:
        print_error(f"the journal was damaged at its end; lost: {session.lost_text}")
    if prompt.words:
        await session.say(prompt.words, images=prompt.shown, typed=prompt.typed)
    elif session.idle:  # a session that is resumed without a prompt
        await session.send(Continue())
    async with anyio.create_task_group() as group:
        group.start_soon(output.follow, watch.frames(), session)
        group.start_soon(clock.run, session)
        await session.settle()
        give_up_reason = await _run_background_turns(session, clock, limit)
        watch.close()
        await output.finished.wait()
        group.cancel_scope.cancel()
    if give_up_reason:
        return give_up_reason
    return f"it took longer than {limit:g} s" if clock.stopped_turn else ""


async def _run_background_turns(
    session: Session, clock: "_Clock", limit: float | None
) -> str:
    """Run the turns that background commands begin, until no command can begin another.

    If the wait for a command is given up, return why, otherwise "".
    """
    from refold.views.notices import waiting_commands  # loaded by then

    announced = ""
    while (waiting := waiting_commands(session.view)) and not clock.is_late:
        if waiting != announced:
            print_error(WAITING_TEXT.format(waiting))
            announced = waiting
        with anyio.move_on_after(longest_wait(limit)) as wait, clock.cancel_when_late():
            await session.wait_for_change(after=session.view.seq)
        if wait.cancelled_caught:
            return long_wait_reason(waiting)
        await session.settle()
    if waiting:  # the time limit of the task has passed
        return f"it took longer than {limit:g} s: it waited for {waiting}"
    return ""


class _Clock:
    """Stops the turn when the time limit of the task has passed.

    `is_late` is true once the time has passed. `stopped_turn` is true if a turn was running
    then.
    """

    def __init__(self, seconds: float | None, stops: StopSignals) -> None:
        self._seconds, self._stops = seconds, stops
        self.is_late, self.stopped_turn = False, False
        self._wait_scope = anyio.CancelScope()  # of the block of `cancel_when_late`

    @contextmanager
    def cancel_when_late(self) -> Generator[None]:
        """Cancel the block when the time limit has passed."""
        with anyio.CancelScope() as self._wait_scope:
            yield

    async def run(self, session: Session) -> None:
        """Cancel the turn at the time limit, and the wait for a background command.

        Return at once if there is no limit.
        """
        if self._seconds is None:
            return
        await anyio.sleep(self._seconds)
        self._stops.on_signal()  # a slow reader must not delay this end, either
        self.is_late = True
        self._wait_scope.cancel()
        self.stopped_turn = await session.cancel("out of time")


# The prompt of a task is the text of the command line, followed by that of stdin. A program
# that starts refold may leave it a pipe that is never written to and never closed. So with
# a prompt on the command line, stdin has only some seconds to begin.
def prompt_text(task: Task) -> str:
    """Return the prompt of the task.

    Raises `BadInput` if there is neither a prompt nor a session to continue.
    """
    piped = "" if sys.stdin.isatty() else _read_stdin(task.text)
    if task.text.strip():
        # Beside a prompt, stdin is data, such as a file. It must not look like our own marks.
        piped = escape_own(piped)
    prompt = "\n\n".join(part for part in (task.text, piped) if part.strip())
    if not prompt and not task.resumes:
        raise BadInput('the task is missing: give it as refold -p "…" or on stdin')
    return prompt


def _read_stdin(text: str) -> str:
    """Return the text of stdin; "" if `text` is already a prompt and no data comes in time.

    Raises `RefoldError` if stdin cannot be read, and `BadInput` if it is too long.
    """
    try:
        if text:
            readable, _, _ = select.select([sys.stdin], [], [], _STDIN_SECONDS)
            if not readable:
                print_error(
                    f"stdin had no data for {_STDIN_SECONDS:g} s, so the run continues without it: "
                    "close it with < /dev/null, or give no prompt on the command line to wait for it"
                )
                return ""
        content = sys.stdin.buffer.read(_MAX_STDIN_BYTES + 1)
    except OSError as error:
        raise RefoldError(f"stdin cannot be read: {reason_of(error)}") from error
    if len(content) > _MAX_STDIN_BYTES:
        raise BadInput(
            f"stdin holds more than {_MAX_STDIN_BYTES // 2**20} MiB, which is too long for a model: "
            "put it into a file and name the file"
        )
    # Some systems add a byte order mark.
    return content.decode("utf-8-sig", errors="replace")
