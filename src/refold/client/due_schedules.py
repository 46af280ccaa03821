"""Starts scheduled runs while a session or a server is open, each in a process of its own.

The starter sleeps until the next run is due. It also checks once a minute whether the file
of schedules was changed, because the clock of sleeping tasks stops while the machine is
suspended. A due run is started as `refold schedule run NUMBER`. That process claims the
run, so it runs once even if several processes and a timer start it. It has no terminal, and
continues after this process has exited. A run in this process could block or crash the
session.

`cli.scheduled_run` defines what a run is and may do; this module only starts runs, and
prints lines about them.
"""

import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from random import random
from threading import Thread
from typing import IO

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from refold import programs
from refold.app.model_connections import NO_BACKGROUND
from refold.app.session_schedules import open_book
from refold.config.paths import paths
from refold.errors import RefoldError
from refold.journal.schedules.schedule_book import ScheduleBook
from refold.views.escape import escape_to_one_line

_MIN_SLEEP_SECONDS = 1.0
_MAX_SLEEP_SECONDS = 60.0  # between two checks of the file
_SPREAD_SECONDS = 1.0  # over which several open processes spread their starts
_MAX_RUNS = 4  # that this process runs at once
_REPORTED_CODES = (0, 1)  # exit codes of runs that have reported their own result
_READ_BYTES = 65_536


async def run_due_schedules(
    environ: Mapping[str, str], script: str | None, say: Callable[[str], None]
) -> None:
    """Start due runs until this is cancelled."""
    if (schedules := due_schedules(environ, script, say)) is not None:
        await schedules.run()


def due_schedules(
    environ: Mapping[str, str], script: str | None, say: Callable[[str], None]
) -> "DueSchedules | None":
    """Return the starter of due runs.

    Return None if `REFOLD_NO_BACKGROUND` is set, or if the schedules are in a database:
    then workers run them. `say` is called with a line for the user when a run begins or
    ends. `script` is a file with model responses for the runs.
    """
    places = paths(environ)
    if environ.get(NO_BACKGROUND) or not sys.executable or places.sessions:
        return None
    return DueSchedules(open_book(places, environ), _program(script), environ, say)


def _program(script: str | None) -> Sequence[str]:
    options = ("--script", os.path.abspath(script)) if script else ()
    # -P: files of a working directory must not be imported as modules.
    return (sys.executable, "-P", "-m", "refold", "schedule", "run", *options)


class DueSchedules:
    """Starts the due runs, each in a process.

    `program` is the command line of a run, to which the number of a schedule is appended.
    """

    def __init__(
        self,
        book: ScheduleBook,
        program: Sequence[str],
        environ: Mapping[str, str],
        say: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._book = book
        self._program = program
        self._environ = environ
        self._say = say
        self._sleep = sleep
        # The stamp of the file when it was last read; None: there was no file, or it must be
        # read again.
        self._stamp: object = None
        self._next_due = 0.0
        self._last_check = 0.0
        # The schedules whose run this process is starting or running.
        self._started = set[int]()
        self._reported_errors = set[str]()
        self._slots = anyio.CapacityLimiter(_MAX_RUNS)
        self._must_check = False  # whether `check_now` was called since the last check
        self._sleep_scope: anyio.CancelScope | None = None  # the sleep between two checks

    async def run(self) -> None:
        """Start due runs until cancelled, with a check at least each `_MAX_SLEEP_SECONDS`."""
        async with anyio.create_task_group() as group:
            while True:
                try:
                    await self._start_due(group)
                except (RefoldError, OSError) as error:
                    self._report_once(f"schedules: {error}")
                    self._next_due = float("inf")  # nothing is due until the file changes
                with anyio.CancelScope() as self._sleep_scope:
                    if not self._must_check:
                        until_due = max(self._next_due - time.time(), _MIN_SLEEP_SECONDS)
                        await self._sleep(min(until_due, _MAX_SLEEP_SECONDS))
                self._must_check = False

    def check_now(self) -> None:
        """Check for due runs now, and not at the next wake-up, because a due run was just
        recorded.
        """
        self._must_check = True
        if self._sleep_scope is not None:
            self._sleep_scope.cancel()

    async def _start_due(self, group: TaskGroup) -> None:
        """Start the due runs, and set `_next_due`, the time of the next check.

        Do nothing before that time, unless the file of schedules or the clock was changed.
        """
        now = time.time()
        stamp = self._book.stamp()
        clock_was_set_back = now < self._last_check  # that changes what is due
        has_changed = stamp != self._stamp or clock_was_set_back
        self._last_check = now
        if not has_changed and now < self._next_due:
            return
        self._stamp = stamp
        self._next_due = now + _MAX_SLEEP_SECONDS
        if stamp is None:  # no file of schedules exists
            self._next_due = float("inf")
            return
        for item in await to_thread.run_sync(self._book.settle):
            self._say(f"schedule {item.id}: its last run was cut off, and is not repeated")
        schedules = await to_thread.run_sync(self._book.list_schedules)
        waiting = [
            item
            for item in schedules
            if item.running is None and item.id not in self._started
        ]
        due = [item.id for item in waiting if item.may_be_due(now)]
        if not due:
            later = [item.next for item in waiting if item.next is not None]
            self._next_due = min(later, default=float("inf"))
        for id_ in due:
            self._started.add(id_)
            group.start_soon(self._run_if_due, id_)

    async def _run_if_due(self, id_: int) -> None:
        """Run the schedule once a slot is free, unless it is running or no longer due."""
        try:
            async with self._slots:
                # Other open processes see that it is due, too: do not all begin at once.
                await self._sleep(random() * _SPREAD_SECONDS)
                entry = await to_thread.run_sync(self._book.find, id_)
                if entry.running is None and entry.may_be_due(time.time()):
                    await self._run(id_)
        except (RefoldError, OSError) as error:
            self._report_once(f"schedule {id_} cannot be started: {error}")
        finally:
            self._started.discard(id_)
            self._stamp = None  # it may be due again: the next check reads the file

    async def _run(self, id_: int) -> None:
        """Start one run in a process, and print its lines until it ends."""
        process = programs.start(
            [*self._program, str(id_)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=self._environ,
            start_new_session=True,  # Ctrl+C in this terminal must not stop it
        )
        # The run may outlive this process, but must not become a zombie while this process
        # lives.
        reaper = Thread(target=process.wait, daemon=True)
        reaper.start()
        assert process.stdout is not None
        with process.stdout as output:
            async for line in _lines(output):
                self._say(escape_to_one_line(line))
        await to_thread.run_sync(reaper.join, abandon_on_cancel=True)
        if process.returncode == 0:  # more calls of its webhook may be queued
            self.check_now()
        if process.returncode not in _REPORTED_CODES:
            self._report_once(
                f"schedule {id_}: its process exited with {process.returncode}"
            )

    def _report_once(self, text: str) -> None:
        """Report an error, unless it was reported before."""
        if text not in self._reported_errors:
            self._reported_errors.add(text)
            self._say(escape_to_one_line(text))


async def _lines(output: IO[bytes]) -> AsyncGenerator[str]:
    """Yield the lines of a process's output; an unfinished last line is dropped.

    No thread is used, because a thread could delay the exit of this process.
    """
    os.set_blocking(output.fileno(), False)
    unfinished = b""
    while True:
        await anyio.wait_readable(output)
        data = os.read(output.fileno(), _READ_BYTES)
        if not data:
            return
        *lines, unfinished = (unfinished + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
