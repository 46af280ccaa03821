"""Starts and stops the background commands of one session, and records their ends.

Implements `tools.shell.BackgroundRunner`. The commands run in the event loop of a thread of
their own, because they outlive the turn, and the task, that started them. Each end is recorded
in the loop of the session. `place` runs and confines the commands, and
`journal/state/background.py` folds the events about them.

They do not run in a task group of the session, because every client would have to enter and
leave it in the same task.
The output stays in memory: a file would survive a crash of refold, but the command ends
with refold anyway.

When a running call is moved to the background, only the task that waits for it changes
(`place.port.Handover`): process, sandbox and thread stay the same. The command is not judged
again, because its confinement is that of the call.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio
from anyio import from_thread, to_thread
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import EventLoopToken, current_token

from refold.engine.authorize import ParentRights
from refold.errors import JournalError, ToolFailed
from refold.journal.events.kinds import (
    BackgroundEnded,
    BackgroundStarted,
    Entry,
    Event,
    Said,
)
from refold.journal.state.background import BackgroundCommand, end_text
from refold.journal.state.fold import View
from refold.place.command_output import to_text
from refold.place.port import CommandExtras, Commands, Continued, Finished
from refold.session.recorder import Recorder
from refold.tools.shell import BackgroundOutput, BackgroundRequest, host_remarks
from refold.values.kept_output import Printed
from refold.values.printable_names import escape_name
from refold.values.text import escape_own, mark_invisible

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

MAX_RUNNING = 16  # commands that run at once
_KEPT_BYTES = 1024 * 1024  # bytes of the output in memory: of its beginning, and of its end
_MAX_TAIL_CHARS = 2_000  # characters of the output in the event of the end
# Commands whose output is in memory. Of an older command, the journal has the end.
_MAX_KEPT_COMMANDS = 32
SESSION_CLOSED = "the session was closed"
PLANNING_BEGAN = "plan mode began, in which nothing is changed"
STOP_REQUESTED = "it was asked for"
MATCH_MESSAGE = "{name} ({command}) is still running. New output:\n{line}"
_MAX_LINE_BYTES = 2_000  # bytes of an incomplete line that are searched again
_EXCERPT_BYTES = 1_000  # bytes of a line before and after the text that was searched
END_MESSAGE = "{name} ({command}) has {end}.{printed}"


_Listener = Callable[[str], None] | None
_Run = Callable[[_Listener], Awaitable[Finished]]


class _Command:
    """A background command, whose output (`printed`) is in memory.

    `begin` returns the coroutine that runs the command. `read` is the number of bytes of output
    that the model has read.
    """

    def __init__(
        self,
        name: str,
        request: BackgroundRequest,
        printed: Printed,
        begin: _Run,
        read: int = 0,
    ) -> None:
        self.name = name
        self.request = request
        self.printed = printed
        self._begin = begin
        self.read = read
        self.over = anyio.Event()  # set when the end was recorded
        self.told = False  # whether the model needs no message about the end
        self.stopped = ""  # the reason why its end was requested
        self.watch = OutputWatch(self.printed, request.until) if request.until else None
        self._scope: anyio.CancelScope | None = None

    async def run(self, on_output: _Listener) -> Finished | str:
        """Run the command to its end, in the thread of background commands.

        Return how it ended, or the reason why it could not be started.
        """
        with anyio.CancelScope() as self._scope:
            if self.stopped:
                self._scope.cancel()
            try:
                return await self._begin(on_output)
            except ToolFailed as error:
                return str(error)
        return Finished(None, b"")  # the scope was cancelled: the command was stopped

    def stop(self) -> None:
        """Stop the command. Call it in the thread of background commands."""
        if self._scope is not None:
            self._scope.cancel()


class OutputWatch:
    """Searches output for the first line that contains one of several texts."""

    def __init__(self, printed: Printed, until: str) -> None:
        self._printed = printed
        self._position = 0  # up to which the output was searched
        self._open_line = b""  # the end of the last line, which is not complete yet
        self._texts = [text.encode() for text in until.split("|") if text]

    def find_line(self) -> str:
        """Return an excerpt of the first new line with one of the texts; "" without such a
        line.
        """
        start, lost_bytes, end, self._position = self._printed.since(self._position)
        # If bytes between `start` and `end` were not kept, the lines around them are unknown.
        new = end if lost_bytes else self._open_line + start + end
        lines = new.split(b"\n")
        self._open_line = lines[-1][-_MAX_LINE_BYTES:]
        for line in lines:
            for text in self._texts:
                index = line.find(text)
                if index != -1:
                    around = line[max(0, index - _EXCERPT_BYTES) : index + _EXCERPT_BYTES]
                    return _visible(around)
        return ""


class BackgroundCommands:
    """The background commands of the session with the journal `record`.

    Call `close` when the session is closed. In a subagent, `above` has the rights of its
    parent: the parent's plan mode applies to the subagent, too.
    """

    def __init__(self, record: Recorder, above: ParentRights | None = None) -> None:
        self._record = record
        self._above = above
        self._in_memory = dict[str, _Command]()  # by name; also commands that have ended
        self._portal: BlockingPortal | None = None  # to the thread in which commands run
        self._unsubscribe = list[Callable[[], None]]()  # each ends calls of `_on_event`
        self._stack = ExitStack()  # it closes the portal

    async def start(
        self, call_id: str, request: BackgroundRequest, commands: Commands
    ) -> str:
        """Start a background command, and return its name. Raises `ToolFailed` if too many
        run.
        """
        refusal = self.refusal()
        if refusal:  # too many run
            raise ToolFailed(f"{refusal}. Stop one with background_stop first.")
        printed = Printed(_KEPT_BYTES)

        async def run(on_output: _Listener) -> Finished:
            """Run the command until it ends, without a time limit."""
            return await commands.run(
                request.command,
                cwd=request.directory,
                seconds=None,
                confines=request.confines,
                on_output=on_output,
                extras=CommandExtras(printed=printed),
            )

        name = await self._record_start(call_id, request)
        self._add(_Command(name, request, printed, run))
        return name

    async def adopt(
        self, call_id: str, request: BackgroundRequest, so_far: Finished, printed: Printed
    ) -> str:
        """Move the running command of a call to the background, and return its name there."""
        running = so_far.continued
        assert running is not None  # otherwise the command could not be taken over
        name = ""
        # A cancellation would leave the command running without a record.
        with anyio.CancelScope(shield=True):
            try:
                name = await self._record_start(call_id, request, moved=True)
            except BaseException:  # nothing else would end the command
                await _end_now(running)
                raise
        printed.limit_ends(_KEPT_BYTES)
        already_read = so_far.total_bytes  # the result of the call has it
        command = _Command(
            name, request, printed, lambda _: running.end(), read=already_read
        )
        self._add(command)
        return name

    def refusal(self) -> str:
        """Return why no more commands may be started; "" if another command may be."""
        if len(self._running) < MAX_RUNNING:
            return ""
        names = ", ".join(command.name for command in self._running)
        return f"{MAX_RUNNING} commands run in the background, and no more may: {names}"

    async def _record_start(
        self, call_id: str, request: BackgroundRequest, *, moved: bool = False
    ) -> str:
        """Record the start of a background command, and return its new name."""
        name = ""

        def make_events(view: View) -> Sequence[Event]:
            """Return the start of the command, under the next free name."""
            nonlocal name
            name = view.background.next_name
            started = BackgroundStarted(
                name,
                request.command,
                call_id,
                request.directory,
                notify=request.notify,
                outside=request.confines.network,
                moved=moved,
            )
            return (started,)

        await self._record.append_if(make_events, kept=True)
        return name

    def _add(self, command: _Command) -> None:
        """Run the command in the thread of background commands, which the first command
        starts.
        """
        if self._portal is None:
            portal = start_blocking_portal(name="background commands")
            self._portal = self._stack.enter_context(portal)
            self._unsubscribe.append(self._record.hub.subscribe(self._on_event))
            if self._above is not None:
                self._unsubscribe.append(self._above.subscribe(self._on_event))
        self._in_memory[command.name] = command
        self._portal.start_task_soon(self._run, command, current_token())
        self._on_event()

    async def output(self, name: str, *, all_of_it: bool = False) -> BackgroundOutput:
        """Return what a command printed since the model last read its output.

        With `all_of_it`, return the whole output.
        """
        recorded = self._find(name)
        outside = recorded.started.outside
        state = ""
        code: int | None = None
        if recorded.end is not None:
            state = end_text(recorded.end)
            if recorded.end.outcome != "stopped":
                code = recorded.end.code
        command = self._in_memory.get(name)
        if command is None:  # not in memory: it ended long ago, or before a restart
            assert recorded.end is not None  # running commands are in memory
            text = recorded.end.text
            if recorded.end.full_blob:
                text = (await self._record.get(recorded.end.full_blob)).decode()
            return BackgroundOutput(text, state, code, outside=outside)
        position = 0 if all_of_it else command.read
        start, lost_bytes, end, command.read = command.printed.since(position)
        if not lost_bytes:
            text, _ = to_text(start + end)
            return BackgroundOutput(text, state, code, outside=outside)
        beginning, _ = to_text(start)
        ending, _ = to_text(end)
        text = f"{beginning}\n[{lost_bytes:,} bytes were not kept]\n{ending}"
        return BackgroundOutput(text, state, code, whole=False, outside=outside)

    async def read_tail(self, name: str, max_bytes: int) -> str:
        """Return the end of a command's output, at most `max_bytes`, for the user.

        The model's read position does not change.
        """
        command = self._in_memory.get(name)
        if command is None:
            return ""
        start, lost_bytes, end, _ = command.printed.since(0)
        is_cut = lost_bytes > 0 or len(start) + len(end) > max_bytes
        connected = end if lost_bytes else start + end
        text, _ = to_text(connected[-max_bytes:])
        if not is_cut:
            return text
        _, _, whole_lines = text.partition("\n")  # the first line is incomplete
        return whole_lines

    async def stop(
        self, name: str, *, silent: bool = False, reason: str = STOP_REQUESTED
    ) -> bool:
        """Stop the command, and wait for its end. Return False if it had ended already.

        If `silent`, the end is not reported to the model, because the model requested the stop.
        """
        self._find(name)
        command = self._in_memory.get(name)
        if command is None or command.over.is_set():
            return False
        command.told = silent
        command.stopped = reason
        assert self._portal is not None  # the command runs there
        self._portal.start_task_soon(command.stop)
        await command.over.wait()
        return True

    async def close(self) -> None:
        """Stop all background commands: none outlives its session."""
        for command in self._running:
            await self.stop(command.name, reason=SESSION_CLOSED)
        while self._unsubscribe:
            unsubscribe = self._unsubscribe.pop()
            unsubscribe()
        await to_thread.run_sync(self._stack.close)
        self._portal = None

    @property
    def _running(self) -> Sequence[_Command]:
        return [
            command for command in self._in_memory.values() if not command.over.is_set()
        ]

    def _on_event(self, _: Entry | None = None) -> None:
        """Stop commands that may write files, if plan mode applies to this session."""
        is_planning = self._record.view.rights.mode == "plan"
        if self._above is not None and self._above.mode == "plan":
            is_planning = True
        if self._portal is None or not is_planning:
            return
        for command in self._running:
            if command.request.confines.writes and not command.stopped:
                command.stopped = PLANNING_BEGAN
                self._portal.start_task_soon(command.stop)

    def _find(self, name: str) -> BackgroundCommand:
        """Return the state of a command. Raises `ToolFailed` for an unknown name."""
        background = self._record.view.background
        command = background.command(name)
        if command is None or command.foreign:
            names = [item.name for item in background.commands if not item.foreign]
            names_text = f"There are: {', '.join(names)}." if names else "There is none."
            raise ToolFailed(f"There is no background command {name!r}. {names_text}")
        return command

    async def _run(self, command: _Command, session: EventLoopToken) -> None:
        """Run a command in the thread of background commands, and record its end in the loop of
        the session.
        """
        result: Finished | str = ""
        async with anyio.create_task_group() as group:

            def watch_output(_: str) -> None:
                """Wake the agent, once, if the output now has a line for which it waits."""
                if command.watch is None:
                    return
                line = command.watch.find_line()
                if line:
                    command.watch = None
                    wake = partial(self._wake_agent, command, line)
                    group.start_soon(_run_in_session, wake, session)

            result = await command.run(watch_output if command.watch else None)
        await _run_in_session(partial(self._record_end, command, result), session)

    async def _wake_agent(self, command: _Command, line: str) -> None:
        """Wake the agent with a message: a text for which the agent waits was printed."""
        one_line = " ".join(command.request.command.split())
        text = MATCH_MESSAGE.format(
            name=command.name, command=one_line, line=escape_own(line)
        )
        message = Said(
            text,
            command.name,
            client_key=f"{command.name} matched",
            wakes=True,
            outside=command.request.confines.network,
        )
        with suppress(JournalError):
            await self._record.append_if(
                lambda _: (message,), kept=True, author=command.name
            )

    async def _record_end(self, command: _Command, result: Finished | str) -> None:
        """Record the end of a command, and wake the tasks that wait for it."""
        try:
            end = await self._end_event(command, result)
            await self._record.append_if(
                partial(self._with_message, end, command), kept=True, author=command.name
            )
        except JournalError:
            pass  # the next opening of the journal records the command as lost
        finally:
            command.over.set()
            self._forget()

    async def _end_event(
        self, command: _Command, result: Finished | str
    ) -> BackgroundEnded:
        """Return the event for the end of a command, and store a long output as a blob.

        `result` is how the command ended, or why it could not be started.
        """
        start, lost_bytes, end, _ = command.printed.since(0)
        gap = f"\n[{lost_bytes:,} bytes were not kept]\n" if lost_bytes else ""
        beginning, _ = to_text(start)
        ending, _ = to_text(end)
        text, _ = mark_invisible(beginning + gap + ending)
        code: int | None = None
        reason = ""
        if isinstance(result, str):
            reason = result
        else:
            code = result.code
            reason = command.stopped or result.stopped
            remarks = [*result.guarded.sentences(escape_name), *host_remarks(result)]
            if remarks:
                text = f"{text.rstrip()}\n({'; '.join(remarks)})"
        full_blob = ""
        if len(text) > _MAX_TAIL_CHARS:
            full_blob = await self._record.put(text.encode())
        outcome: Literal["done", "failed", "stopped"] = "done" if code == 0 else "failed"
        if command.stopped:
            outcome = "stopped"
        return BackgroundEnded(
            name=command.name,
            outcome=outcome,
            code=code,
            reason=reason,
            text=text[-_MAX_TAIL_CHARS:],
            full_blob=full_blob,
            told=command.told,
            outside=command.request.confines.network,
        )

    def _with_message(
        self, end: BackgroundEnded, command: _Command, view: View
    ) -> Sequence[Event]:
        """Return the end of a command, and a message that wakes the agent if that was
        requested.

        Return () if the end is recorded already.
        """
        recorded = view.background.command(end.name)
        if recorded is None or not recorded.runs:
            return ()
        if not command.request.notify or end.outcome == "stopped":
            return (end,)
        last_output = escape_own(end.text.strip())
        message = END_MESSAGE.format(
            name=end.name,
            command=" ".join(command.request.command.split()),
            end=end_text(end),
            printed=f" It printed last:\n{last_output}" if last_output else "",
        )
        said = Said(
            message,
            end.name,
            client_key=f"{end.name} ended",
            wakes=True,
            outside=command.request.confines.network,
        )
        return (end, said)

    def _forget(self) -> None:
        """Remove the oldest ended commands from memory, if too many are in it."""
        ended = [name for name, command in self._in_memory.items() if command.over.is_set()]
        surplus = max(0, len(self._in_memory) - _MAX_KEPT_COMMANDS)
        for name in ended[:surplus]:
            del self._in_memory[name]


async def _run_in_session(
    function: Callable[[], Coroutine[None, None, None]], session: EventLoopToken
) -> None:
    """Run `function` in the session's event loop, even if this task is cancelled."""
    # RuntimeError: the session's event loop has ended.
    with anyio.CancelScope(shield=True), suppress(RuntimeError):
        await to_thread.run_sync(partial(from_thread.run, function, token=session))


def _visible(output: bytes) -> str:
    """Return output as text, in which invisible characters are marked."""
    text, _ = to_text(output)
    marked, _ = mark_invisible(text)
    return marked


async def _end_now(command: Continued) -> None:
    """Stop a command that could not be moved to the background, and wait for its end."""
    with anyio.CancelScope() as scope:
        scope.cancel()  # a cancelled wait kills the command
        await command.end()
