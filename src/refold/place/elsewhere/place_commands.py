"""Runs commands in a place elsewhere, over a pipe. Implements `port.Commands`.

The place starts, limits and stops the commands, as `command_starter` does on this machine. This
module collects their output. `commands.run_command` waits for a command, as it does for a
`supervise.Supervisor` of this machine.
"""

import os
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Literal

import anyio
from msgspec import Struct, to_builtins

from refold.errors import ToolFailed
from refold.place.command_output import MAX_REPORT_BYTES, ThrottledOutput
from refold.place.commands import run_command
from refold.place.elsewhere.pipe import OpenCall, Pipe, PlaceAnswer
from refold.place.limits import Limits
from refold.place.port import (
    NOTHING_MORE,
    READ_ONLY,
    CommandExtras,
    Finished,
    GuardChange,
    GuardReport,
)
from refold.values.kept_output import Printed
from refold.values.tools import Confinement

_POLL_MILLISECONDS = 250  # between two checks whether a command without input is over
_INPUT_BYTES = 64 * 1024
_MAX_GUARDED = 1_000  # the changes of guarded paths reported for one command


class _End(Struct, frozen=True):
    code: int | None
    timed_out: bool
    stopped: str
    undone: list[tuple[str, str, Literal["moved", "restored", "lost", "followed"]]]
    accepted: list[str]
    by_others: list[str]
    offline: bool
    looking: bool
    no_namespaces: bool


class _Has(Struct, frozen=True):
    has: bool


class PlaceCommands:
    """Runs commands in a place.

    `on_change` is called after each command that may have changed files. `environ` are the
    place's variables for commands that may write.
    """

    def __init__(
        self,
        pipe: Pipe,
        limits: Limits,
        on_change: Callable[[], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._pipe, self.limits, self._on_change = pipe, limits, on_change
        self._environment = environment or {}
        # Returns the paths that commands cannot read: none before `with_hidden_paths`.
        self._unread: Callable[[], Sequence[str]] = lambda: ()
        # also used by the objects that `with_hidden_paths` returns
        self._programs = dict[str, bool]()
        self.gate = None  # no editor on this machine writes files of the place

    def has(self, program: str) -> bool:
        """Whether the place has a program. The place is asked at most once per program."""
        if program in self._pipe.greeting.programs:
            return True
        if program not in self._programs:
            self._programs[program] = self._pipe.ask("has", program=program).read(_Has).has
        return self._programs[program]

    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "PlaceCommands":
        """Return a copy whose commands also cannot read the paths that `unread` returns."""
        commands = copy(self)
        unread_before = self._unread
        commands._unread = lambda: (*unread_before(), *unread())
        return commands

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        confines: Confinement = READ_ONLY,
        on_output: Callable[[str], None] | None = None,
        extras: CommandExtras = NOTHING_MORE,
    ) -> Finished:
        """Run a command, and call `on_change` afterwards if it could change files."""
        make = partial(self._begin, command, cwd, seconds, confines, on_output, extras)
        # Connecting takes a while; once the request is sent, the command's end must be
        # awaited.
        running: PlaceCommand | None = None
        with anyio.CancelScope(shield=True):
            running = await anyio.to_thread.run_sync(make)
        assert running is not None  # the scope is never cancelled
        try:
            return await run_command(running, extras)
        finally:
            if confines.writes or not self._keeps_from_writing:
                self._on_change()

    @property
    def _keeps_from_writing(self) -> bool:
        """Whether the place's sandbox keeps read-only commands from changing files."""
        return not self._pipe.is_broken and self._pipe.greeting.confines

    def close(self) -> None:
        """Do nothing, because commands in the place are stopped with the pipe."""

    def _begin(
        self,
        command: str,
        cwd: str,
        seconds: float | None,
        confines: Confinement,
        on_output: Callable[[str], None] | None,
        extras: CommandExtras,
    ) -> "PlaceCommand":
        """Send the request to run a command, and return the running command."""
        if extras.environ:
            raise ToolFailed(
                "Variables with values from this machine are not sent to a workspace elsewhere."
            )
        running = PlaceCommand(on_output, extras)
        record: dict[str, object] = to_builtins(confines)
        # The place only needs to know that hosts are named: it refuses the command then.
        record["hosts"] = confines.hosts is not None
        try:
            running.call = self._pipe.begin(
                "run",
                on_frame=running.receive,
                command=command,
                cwd=cwd,
                seconds=seconds,
                confines=record,
                input=extras.stdin is not None,
                limits=to_builtins(extras.limits) if extras.limits else None,
                seen=extras.seen,
                own_tmp=extras.own_tmp,
                environ=self._environment if confines.writes else {},
                used=extras.used is not None,
                hidden=tuple(self._unread()),
            )
        except BaseException:
            running.end_news()
            running.close()
            raise
        running.begin_input()
        return running


class RecentOutput:
    """The output that the event loop has not read yet: its last bytes, and a count of the rest.

    The thread that reads the pipe serves all requests, so it never waits for the event loop.
    Instead, the oldest bytes beyond `MAX_REPORT_BYTES` are dropped. `ThrottledOutput`, which
    gets the output, would drop them, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting, self._skipped = bytearray(), 0

    def add(self, piece: bytes) -> None:
        """Add output. If too much waits, drop the oldest bytes and count them."""
        with self._lock:
            kept_piece = piece[-MAX_REPORT_BYTES:]
            self._skipped += len(piece) - len(kept_piece)
            self._waiting += kept_piece
            excess = max(0, len(self._waiting) - MAX_REPORT_BYTES)
            self._skipped += excess
            del self._waiting[:excess]

    def take(self) -> tuple[int, bytes]:
        """Return the number of dropped bytes, and the bytes after them. Forget both."""
        with self._lock:
            taken = self._skipped, bytes(self._waiting)
            self._waiting, self._skipped = bytearray(), 0
        return taken


class PlaceCommand:
    """A running command in a place. Implements `commands.RunningCommand`."""

    broken = ""
    needs_settling = False

    def __init__(
        self, on_output: Callable[[str], None] | None, extras: CommandExtras
    ) -> None:
        self.call: OpenCall | None = None
        self.over = False
        self._printed = extras.printed or Printed()
        self._throttled = ThrottledOutput(on_output) if on_output else None
        self._used = extras.used
        self._used_seconds = -1.0  # negative: nothing new for `used`
        self._recent = RecentOutput()
        self._stdin = os.dup(extras.stdin) if extras.stdin is not None else -1
        self.news, self._tell_news = os.pipe()
        os.set_blocking(self.news, False)
        os.set_blocking(self._tell_news, False)
        self._closing = threading.Lock()

    def receive(self, answer: PlaceAnswer) -> None:
        """Process one frame about the command, in the thread that reads the pipe."""
        kind = answer.record.get("kind")
        if kind == "output":
            lost = answer.record.get("lost", 0)
            self._printed.add(answer.raw)
            if isinstance(lost, int) and lost > 0:
                self._printed.skip(lost)
            self._recent.add(answer.raw)
        elif kind == "clear":
            self._printed.clear()
        elif kind == "answered":
            self._write_answer(answer.raw)
        elif kind == "used":
            seconds = answer.record.get("seconds")
            self._used_seconds = seconds if isinstance(seconds, float) else 0.0
        if kind in ("end", "failed", "lost"):
            self.end_news()
        else:
            self._wake()

    def deliver(self) -> None:
        """Call the listeners with new CPU seconds and output. Set `over` at the end."""
        with suppress(BlockingIOError):
            self.over = self.over or not os.read(self.news, 4096)  # the end of `news`
        seconds, self._used_seconds = self._used_seconds, -1.0
        if self._used and seconds >= 0:
            self._used(seconds)
        skipped, output = self._recent.take()
        if self._throttled:
            self._throttled.skip(skipped)
            if output:
                self._throttled.add(output)
        if self._throttled and (self.over or self._throttled.seconds_until_due == 0):
            self._throttled.pass_on(last=self.over)

    def stop(self) -> None:
        if self.call is not None:
            self.call.stop()

    def detach(self) -> None:
        self._throttled = None
        if self.call is not None:
            self.call.remove_limit()

    def settle(self) -> None:
        pass

    @property
    def has_ended_by_itself(self) -> bool:
        return True  # the place cleans up its own sandboxes

    def result(self) -> Finished:
        """Return how the command ended. Long lists from the place are cut off."""
        assert self.call is not None  # it was started
        end = self.call.result().read(_End)
        undone = tuple(
            GuardChange(path, goal, fate) for path, goal, fate in end.undone[:_MAX_GUARDED]
        )
        report = GuardReport(
            undone, tuple(end.accepted[:_MAX_GUARDED]), tuple(end.by_others[:_MAX_GUARDED])
        )
        printed = self._printed
        return Finished(
            end.code,
            printed.start,
            printed.end,
            printed.dropped,
            timed_out=end.timed_out,
            stopped=end.stopped,
            guarded=report,
            offline=end.offline,
            looking=end.looking,
            no_namespaces=end.no_namespaces,
        )

    def close(self) -> None:
        os.close(self.news)

    def begin_input(self) -> None:
        if self._stdin >= 0:
            threading.Thread(target=self._copy_input, daemon=True).start()

    def end_news(self) -> None:
        """Close the writing end of `news`: the reader sees that the command is over."""
        with self._closing:
            if self._tell_news >= 0:
                os.close(self._tell_news)
                self._tell_news = -1

    def _wake(self) -> None:
        """Make `news` readable, so that the event loop calls `deliver`."""
        with self._closing, suppress(BlockingIOError):
            if self._tell_news >= 0:
                os.write(self._tell_news, b"!")

    def _copy_input(self) -> None:
        """Send the command's input to the place until it ends or the command is over."""
        assert self.call is not None  # it was started
        ready = select.poll()
        ready.register(self._stdin, select.POLLIN)
        try:
            while not self.call.done.is_set():
                if ready.poll(_POLL_MILLISECONDS):
                    data = os.read(self._stdin, _INPUT_BYTES)
                    self.call.send_input(data)
                    if not data:
                        break
            self.call.done.wait()  # answers are still written to the descriptor
        except (OSError, ToolFailed):
            pass
        finally:
            os.close(self._stdin)

    def _write_answer(self, data: bytes) -> None:
        """Write all of `data` to our end of the command's stdin, if that is a socket."""
        unwritten = memoryview(data)
        with suppress(OSError):  # the descriptor is a pipe, or the other end is closed
            while unwritten:
                written_count = os.write(self._stdin, unwritten)
                unwritten = unwritten[written_count:]
