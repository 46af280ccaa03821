"""The background commands of one session: starts and stops them, and records their ends.

Implements `tools.shell.BackgroundRunner`. The commands run in the event loop of a thread of
their own, because they outlive the turn, and the task, that started them. Each end is
recorded in the loop of the session. `place` runs and confines the commands, and
`journal/state/background.py` is what the session knows of them.

A task group for each session would have to be entered and left in one task by every client.
Output stays in memory: a file would survive a crash of refold, but the command ends with
refold anyway.

When a running call moves here, only its waiting task changes (`place.port.Handover`):
process, sandbox and thread stay. It is not judged again, because its confinement is that of
the call.
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

MAX_RUNNING = 16  # that run at once
_KEPT_BYTES = 1024 * 1024  # of the beginning and of the end of the output
_MAX_TAIL_CHARS = 2_000  # of the output in the event of the end
_MAX_KEPT_COMMANDS = 32  # whose output is in memory; the journal has that of older ones
SESSION_CLOSED = "the session was closed"
PLANNING_BEGAN = "plan mode began, in which nothing is changed"
STOP_REQUESTED = "it was asked for"
MATCH_MESSAGE = "{name} ({command}) is still running. New output:\n{line}"
_MAX_LINE_BYTES = 2_000  # of an incomplete line
_EXCERPT_BYTES = 1_000  # shown before and after the start of the match
END_MESSAGE = "{name} ({command}) has {end}.{printed}"


_Listener = Callable[[str], None] | None
_Run = Callable[[_Listener], Awaitable[Finished]]


class _Command:
    """A command whose output (`printed`) is in memory.

    `begin` returns the coroutine that runs it, and `read` is how much the model has read.
    """

    def __init__(
        self,
        name: str,
        request: BackgroundRequest,
        printed: Printed,
        begin: _Run,
        read: int = 0,
    ) -> None:
        self.name, self.request, self._begin = name, request, begin
        self.printed, self.read = printed, read
        self.over, self.told = anyio.Event(), False
        self.stopped = ""  # why its end was requested
        self.watch = OutputWatch(self.printed, request.until) if request.until else None
        self._scope: anyio.CancelScope | None = None

    async def run(self, on_output: _Listener) -> Finished | str:
        """Run the command to its end, in the thread. Return why, if it could not be
        started.
        """
        with anyio.CancelScope() as self._scope:
            if self.stopped:
                self._scope.cancel()
            try:
                return await self._begin(on_output)
            except ToolFailed as error:
                return str(error)
        return Finished(None, b"")

    def stop(self) -> None:
        """Stop the command, in the thread."""
        if self._scope is not None:
            self._scope.cancel()


class OutputWatch:
    """Searches output for the first line that contains one of several texts."""

    def __init__(self, printed: Printed, until: str) -> None:
        self._printed, self._place, self._begun = printed, 0, b""
        self._wanted = [text.encode() for text in until.split("|") if text]

    def find_line(self) -> str:
        """The line, as far as it has been printed, or "" if there is none yet."""
        start, lost, end, self._place = self._printed.since(self._place)
        lines = ((b"" if lost else self._begun + start) + end).split(b"\n")
        self._begun = lines[-1][-_MAX_LINE_BYTES:]
        for line in lines:
            for index in filter(lambda at: at >= 0, map(line.find, self._wanted)):
                around = line[max(0, index - _EXCERPT_BYTES) : index + _EXCERPT_BYTES]
                return mark_invisible(to_text(around)[0])[0]
        return ""


class BackgroundCommands:
    """The commands of the session with the journal `record`. `close` it with the session.

    `above` are the rights of the parent of a subagent, whose plan mode counts for it, too.
    """

    def __init__(self, record: Recorder, above: ParentRights | None = None) -> None:
        self._record, self._above = record, above
        self._known = dict[str, _Command]()
        self._portal: BlockingPortal | None = None
        self._leave = list[Callable[[], None]]()  # each ends `_on_event`
        self._stack = ExitStack()

    async def start(
        self, call_id: str, request: BackgroundRequest, commands: Commands
    ) -> str:
        if full := self.refusal():
            raise ToolFailed(f"{full}. Stop one with background_stop first.")
        printed = Printed(_KEPT_BYTES)

        async def run(on_output: _Listener) -> Finished:
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
        assert so_far.continued is not None  # otherwise there is nothing to take over
        name, going = "", so_far.continued
        with anyio.CancelScope(shield=True):  # or it would run unrecorded
            try:
                name = await self._record_start(call_id, request, moved=True)
            except BaseException:  # nothing else would end the command
                await _end_now(going)
                raise
        printed.keep(_KEPT_BYTES)
        read = so_far.total_bytes
        self._add(_Command(name, request, printed, lambda _: going.end(), read))
        return name

    def refusal(self) -> str:
        """Why no more command may be started; "" if one may."""
        if len(self._running) < MAX_RUNNING:
            return ""
        names = ", ".join(command.name for command in self._running)
        return f"{MAX_RUNNING} commands run in the background, and no more may: {names}"

    async def _record_start(
        self, call_id: str, request: BackgroundRequest, *, moved: bool = False
    ) -> str:
        """Record the start, and return the name of the command."""
        name = ""

        def make_events(view: View) -> Sequence[Event]:
            nonlocal name
            name, directory = view.background.next_name, request.directory
            started = BackgroundStarted(
                name,
                request.command,
                call_id,
                directory,
                request.notify,
                request.confines.network,
                moved,
            )
            return (started,)

        await self._record.append_if(make_events, kept=True)
        return name

    def _add(self, command: _Command) -> None:
        """Run the command in the thread, which starts with the first command."""
        if self._portal is None:
            portal = start_blocking_portal(name="background commands")
            self._portal = self._stack.enter_context(portal)
            self._leave.append(self._record.hub.subscribe(self._on_event))
            if self._above is not None:
                self._leave.append(self._above.subscribe(self._on_event))
        self._known[command.name] = command
        self._portal.start_task_soon(self._run, command, current_token())
        self._on_event()

    async def output(self, name: str, *, all_of_it: bool = False) -> BackgroundOutput:
        known = self._find(name)
        outside = known.started.outside
        command, state = self._known.get(name), end_text(known.end) if known.end else ""
        code = known.end.code if known.end and known.end.outcome != "stopped" else None
        if command is None:  # not in memory: it ended long ago, or before a restart
            assert known.end is not None  # running commands are in memory
            end = known.end
            blob = end.full_blob
            text = (await self._record.get(blob)).decode() if blob else end.text
            return BackgroundOutput(text, state, code, outside=outside)
        start, lost, end, command.read = command.printed.since(
            0 if all_of_it else command.read
        )
        if not lost:
            text = to_text(start + end)[0]
            return BackgroundOutput(text, state, code, outside=outside)
        gap = f"\n[{lost:,} bytes were not kept]\n"
        text = to_text(start)[0] + gap + to_text(end)[0]
        return BackgroundOutput(text, state, code, whole=False, outside=outside)

    async def read_tail(self, name: str, max_bytes: int) -> str:
        """The end of a command's output, at most `max_bytes`, to show to the user.

        The model's read position does not change.
        """
        command = self._known.get(name)
        if command is None:
            return ""
        start, lost, end, _ = command.printed.since(0)
        cut = lost > 0 or len(start) + len(end) > max_bytes
        text = to_text((end if lost else start + end)[-max_bytes:])[0]
        return text.partition("\n")[2] if cut else text

    async def stop(
        self, name: str, *, silent: bool = False, reason: str = STOP_REQUESTED
    ) -> bool:
        """Stop the command, and wait for its end. Return False if it had ended already.
        With `silent` the end is not reported to the model, which requested it.
        """
        self._find(name)
        command = self._known.get(name)
        if command is None or command.over.is_set():
            return False
        command.told, command.stopped = silent, reason
        assert self._portal is not None  # the command runs there
        self._portal.start_task_soon(command.stop)
        await command.over.wait()
        return True

    async def close(self) -> None:
        """Stop all background commands: none outlives its session."""
        for command in self._running:
            await self.stop(command.name, reason=SESSION_CLOSED)
        while self._leave:
            self._leave.pop()()
        await to_thread.run_sync(self._stack.close)
        self._portal = None

    @property
    def _running(self) -> Sequence[_Command]:
        return [command for command in self._known.values() if not command.over.is_set()]

    def _on_event(self, _: Entry | None = None) -> None:
        """End commands that may write files when plan mode begins."""
        above = self._above is not None and self._above.mode == "plan"
        if self._portal is None or not (above or self._record.view.rights.mode == "plan"):
            return
        for command in self._running:
            if command.request.confines.writes and not command.stopped:
                command.stopped = PLANNING_BEGAN
                self._portal.start_task_soon(command.stop)

    def _find(self, name: str) -> BackgroundCommand:
        background = self._record.view.background
        command = background.command(name)
        if command is None or command.foreign:
            names = [item.name for item in background.commands if not item.foreign]
            names_text = f"There are: {', '.join(names)}." if names else "There is none."
            raise ToolFailed(f"There is no background command {name!r}. {names_text}")
        return command

    async def _run(self, command: _Command, session: EventLoopToken) -> None:
        """Run a command, in the thread, and record its end in the loop of the session."""

        async def run_in_session(
            function: Callable[[], Coroutine[None, None, None]],
        ) -> None:
            with anyio.CancelScope(shield=True), suppress(RuntimeError):  # it has ended
                await to_thread.run_sync(partial(from_thread.run, function, token=session))

        result: Finished | str = ""
        async with anyio.create_task_group() as group:

            def watch_output(_: str) -> None:
                if command.watch is not None and (line := command.watch.find_line()):
                    command.watch = None
                    group.start_soon(
                        run_in_session, partial(self._wake_agent, command, line)
                    )

            result = await command.run(watch_output if command.watch else None)
        await run_in_session(partial(self._record_end, command, result))

    async def _wake_agent(self, command: _Command, line: str) -> None:
        """Wake the agent: a text that it waits for was printed."""
        text = " ".join(command.request.command.split())
        words = MATCH_MESSAGE.format(name=command.name, command=text, line=escape_own(line))
        key = f"{command.name} matched"
        net = command.request.confines.network
        message = Said(words, command.name, client_key=key, wakes=True, outside=net)
        with suppress(JournalError):
            await self._record.append_if(
                lambda _: (message,), kept=True, author=command.name
            )

    async def _record_end(self, command: _Command, result: Finished | str) -> None:
        try:
            end = await self._end_event(command, result)
            await self._record.append_if(
                partial(self._news, end, command), kept=True, author=command.name
            )
        except JournalError:
            pass  # the next opening of the journal records it as lost
        finally:
            command.over.set()
            self._forget()

    async def _end_event(
        self, command: _Command, result: Finished | str
    ) -> BackgroundEnded:
        start, lost, end, _ = command.printed.since(0)
        gap = f"\n[{lost:,} bytes were not kept]\n" if lost else ""
        text = mark_invisible(to_text(start)[0] + gap + to_text(end)[0])[0]
        remarks = list[str]()
        if isinstance(result, Finished):
            remarks = [*result.guarded.sentences(escape_name), *host_remarks(result)]
        if remarks:
            text = f"{text.rstrip()}\n({'; '.join(remarks)})"
        blob = await self._record.put(text.encode()) if len(text) > _MAX_TAIL_CHARS else ""
        code = None if isinstance(result, str) else result.code
        why = result if isinstance(result, str) else command.stopped or result.stopped
        outcome: Literal["done", "failed", "stopped"] = (
            "stopped" if command.stopped else "done" if code == 0 else "failed"
        )
        return BackgroundEnded(
            command.name,
            outcome,
            code,
            why,
            text[-_MAX_TAIL_CHARS:],
            blob,
            command.told,
            command.request.confines.network,
        )

    def _news(self, end: BackgroundEnded, command: _Command, view: View) -> Sequence[Event]:
        known = view.background.command(end.name)
        if known is None or not known.runs:
            return ()
        if not command.request.notify or end.outcome == "stopped":
            return (end,)
        last = escape_own(end.text.strip())
        words = END_MESSAGE.format(
            name=end.name,
            command=" ".join(command.request.command.split()),
            end=end_text(end),
            printed=f" It printed last:\n{last}" if last else "",
        )
        key, net = f"{end.name} ended", command.request.confines.network
        return (end, Said(words, end.name, client_key=key, wakes=True, outside=net))

    def _forget(self) -> None:
        ended = [name for name, command in self._known.items() if command.over.is_set()]
        for name in ended[: max(0, len(self._known) - _MAX_KEPT_COMMANDS)]:
            del self._known[name]


async def _end_now(command: Continued) -> None:
    """End a command that cannot be taken over, and wait for its end."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await command.end()
