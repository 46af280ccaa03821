"""Commands in a place elsewhere. Implements `port.Commands` over a pipe.

The place starts, limits and ends them as this machine does its own (`command_starter`). Here
the output is collected, and `commands.run_command` waits: for the event loop a command there is
one like `supervise.Supervisor`.
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

_INPUT_BYTES = 64 * 1024
_MAX_GUARDED = 1_000  # changes of one command


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
    """`on_change` is called when a command may have changed files."""

    def __init__(
        self,
        pipe: Pipe,
        limits: Limits,
        on_change: Callable[[], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._pipe, self.limits, self._on_change = pipe, limits, on_change
        self._environment = environment or {}  # of the place, for commands that may write
        self._unread: Callable[[], Sequence[str]] = tuple
        self._programs = dict[str, bool]()  # shared with the results of `with_hidden_paths`
        self.gate = None

    def has(self, program: str) -> bool:
        if program in self._pipe.greeting.programs:
            return True
        if program not in self._programs:
            self._programs[program] = self._pipe.ask("has", program=program).read(_Has).has
        return self._programs[program]

    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "PlaceCommands":
        hidden, before = copy(self), self._unread
        hidden._unread = lambda: (*before(), *unread())
        return hidden

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
        make = partial(self._begin, command, cwd, seconds, confines, on_output, extras)
        # Connecting takes a while; once it is sent, its end must be waited for.
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
        """Whether the sandbox there keeps a command that only reads from changing files."""
        return not self._pipe.is_broken and self._pipe.greeting.confines

    def close(self) -> None:
        """Do nothing: the pipe ends the commands that run in the place."""

    def _begin(
        self,
        command: str,
        cwd: str,
        seconds: float | None,
        confines: Confinement,
        on_output: Callable[[str], None] | None,
        extras: CommandExtras,
    ) -> "PlaceCommand":
        if extras.environ:
            raise ToolFailed(
                "Variables with values from this machine are not sent to a workspace elsewhere."
            )
        running = PlaceCommand(on_output, extras)
        record: dict[str, object] = to_builtins(confines)
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
    """Output that the event loop has not taken yet: the newest part, and the number of
    bytes before.

    Nothing waits for the event loop, because the same thread reads for all other calls. A listener
    stops receiving at once, so nothing is lost that it would get.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting, self._skipped = bytearray(), 0

    def add(self, piece: bytes) -> None:
        with self._lock:
            self._waiting += piece[-MAX_REPORT_BYTES:]
            over = max(0, len(self._waiting) - MAX_REPORT_BYTES)
            del self._waiting[:over]
            self._skipped += over + max(0, len(piece) - MAX_REPORT_BYTES)

    def take(self) -> tuple[int, bytes]:
        """The number of bytes that were left out, and those that followed."""
        with self._lock:
            taken = self._skipped, bytes(self._waiting)
            self._waiting, self._skipped = bytearray(), 0
        return taken


class PlaceCommand:
    """A command that was started in a place, as `commands.RunningCommand` describes it."""

    broken = ""
    needs_settling = False

    def __init__(
        self, on_output: Callable[[str], None] | None, extras: CommandExtras
    ) -> None:
        self.call: OpenCall | None = None
        self.over = False
        self._printed = extras.printed or Printed()
        self._throttled = ThrottledOutput(on_output) if on_output else None
        self._used, self._used_seconds = extras.used, -1.0
        self._heard = RecentOutput()
        self._stdin = os.dup(extras.stdin) if extras.stdin is not None else -1
        self.news, self._tell_news = os.pipe()
        os.set_blocking(self.news, False)
        os.set_blocking(self._tell_news, False)
        self._closing = threading.Lock()

    def receive(self, answer: PlaceAnswer) -> None:
        """In the reading thread: take a frame."""
        kind = answer.record.get("kind")
        if kind == "output":
            lost = answer.record.get("lost", 0)
            self._printed.add(answer.raw)
            if isinstance(lost, int) and lost > 0:
                self._printed.skip(lost)
            self._heard.add(answer.raw)
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
        with suppress(BlockingIOError):
            self.over = self.over or not os.read(self.news, 4096)
        seconds, self._used_seconds = self._used_seconds, -1.0
        if self._used and seconds >= 0:
            self._used(seconds)
        skipped, output = self._heard.take()
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

    def settle(self) -> None:
        pass

    @property
    def has_ended_by_itself(self) -> bool:
        return True  # the place looks after its sandboxes

    def result(self) -> Finished:
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
        """Close the news pipe last: a reader of `over` sees its end."""
        with self._closing:
            if self._tell_news >= 0:
                os.close(self._tell_news)
                self._tell_news = -1

    def _wake(self) -> None:
        with self._closing, suppress(BlockingIOError):
            if self._tell_news >= 0:
                os.write(self._tell_news, b"!")

    def _copy_input(self) -> None:
        assert self.call is not None  # it was started
        ready = select.poll()
        ready.register(self._stdin, select.POLLIN)
        try:
            while not self.call.done.is_set():
                if ready.poll(250):
                    data = os.read(self._stdin, _INPUT_BYTES)
                    self.call.send_input(data)
                    if not data:
                        break
            self.call.done.wait()
        except (OSError, ToolFailed):
            pass
        finally:
            os.close(self._stdin)

    def _write_answer(self, data: bytes) -> None:
        view = memoryview(data)
        with suppress(OSError):  # a pipe, or the other end is closed
            while view:
                view = view[os.write(self._stdin, view) :]
