"""Starts scheduled runs while a session or a server is open, each in a process of its own.

It sleeps until the next run is due, and checks once a minute whether the file of the schedules
was changed. What is due is started as `refold schedule run NUMBER`, which claims it: if
several processes and a timer start it, one runs it. That process has no terminal and survives
this one. `cli.scheduled_run` defines what a run is and may do; this module only starts runs,
and prints lines about them.

A run in this process could block or crash the session. The check once a minute is needed
because the clock of sleeping tasks stops while the machine is suspended.
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
from refold.config.paths import paths
from refold.config.secret_values import masks_of
from refold.errors import RefoldError
from refold.journal.schedules.schedule_book import ScheduleBook
from refold.views.escape import escape_to_one_line

_MAX_SLEEP_SECONDS = 60.0  # between two checks of the file
_SPREAD_SECONDS = 1.0  # over which several open processes spread their starts
_MAX_RUNS = 4  # runs of this process at once
_REPORTED_CODES = (0, 1)  # of runs that report their own result
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
    """The starter of due runs. `say` gets a line for the user when a run begins or ends.

    `script` is the file that the runs take their responses from. Returns None if
    `REFOLD_NO_BACKGROUND` is set.
    """
    if environ.get(NO_BACKGROUND) or not sys.executable:
        return None
    places = paths(environ)
    book = ScheduleBook(places.data, masks_of(environ, places).mask_event)
    return DueSchedules(book, _program(script), environ, say)


def _program(script: str | None) -> Sequence[str]:
    options = ("--script", os.path.abspath(script)) if script else ()
    # -P: files of a working directory must not be imported as modules.
    return (sys.executable, "-P", "-m", "refold", "schedule", "run", *options)


class DueSchedules:
    """Starts the due runs of one process. `program` gets a schedule's number appended."""

    def __init__(
        self,
        book: ScheduleBook,
        program: Sequence[str],
        environ: Mapping[str, str],
        say: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._book, self._program, self._environ = book, program, environ
        self._say, self._sleep = say, sleep
        self._stamp: object = None  # of the file at the last read
        self._next, self._looked = 0.0, 0.0
        self._started, self._failed = set[int](), set[str]()
        self._slots = anyio.CapacityLimiter(_MAX_RUNS)
        self._hurried = False
        self._rest: anyio.CancelScope | None = None  # the sleep between two checks

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            while True:
                try:
                    await self._start_due(group)
                except (RefoldError, OSError) as error:
                    self._report_once(f"schedules: {error}")
                    self._next = float("inf")  # until the file changes
                with anyio.CancelScope() as self._rest:
                    if not self._hurried:
                        await self._sleep(
                            min(max(self._next - time.time(), 1.0), _MAX_SLEEP_SECONDS)
                        )
                self._hurried = False

    def check_now(self) -> None:
        """Check at once: a due run was just recorded."""
        self._hurried = True
        if self._rest is not None:
            self._rest.cancel()

    async def _start_due(self, group: TaskGroup) -> None:
        now, stamp = time.time(), self._book.stamp()
        # A clock that was set back changes what is due, and is noticed only here.
        if stamp == self._stamp and self._looked <= now < self._next:
            self._looked = now
            return
        self._stamp, self._looked, self._next = stamp, now, now + _MAX_SLEEP_SECONDS
        if stamp is None:  # there is no file of schedules
            self._next = float("inf")
            return
        for item in await to_thread.run_sync(self._book.settle):
            self._say(f"schedule {item.id}: its last run was cut off, and is not repeated")
        waiting = [item for item in await to_thread.run_sync(self._book.list_schedules)
                   if item.running is None and item.id not in self._started]  # fmt: skip
        due = [item.id for item in waiting if item.may_be_due(now)]
        if not due:
            later = [item.next for item in waiting if item.next is not None]
            self._next = min(later, default=float("inf"))
        for id_ in due:
            self._started.add(id_)
            group.start_soon(self._fire, id_)

    async def _fire(self, id_: int) -> None:
        try:
            async with self._slots:
                await self._sleep(random() * _SPREAD_SECONDS)
                entry = await to_thread.run_sync(self._book.find, id_)
                if entry.running is None and entry.may_be_due(time.time()):
                    await self._run(id_)
        except (RefoldError, OSError) as error:
            self._report_once(f"schedule {id_} cannot be started: {error}")
        finally:
            self._started.discard(id_)
            self._stamp = None

    async def _run(self, id_: int) -> None:
        process = programs.start(
            [*self._program, str(id_)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=self._environ,
            start_new_session=True,  # Ctrl+C here must not stop it
        )
        # It may outlive this process, but must not become a zombie before.
        waits = Thread(target=process.wait, daemon=True)
        waits.start()
        assert process.stdout is not None
        with process.stdout as output:
            async for line in _lines(output):
                self._say(escape_to_one_line(line))
        await to_thread.run_sync(waits.join, abandon_on_cancel=True)
        if process.returncode == 0:  # more calls of its webhook may wait
            self.check_now()
        if process.returncode not in _REPORTED_CODES:
            self._report_once(
                f"schedule {id_}: its process exited with {process.returncode}"
            )

    def _report_once(self, text: str) -> None:
        """Report an error once: the next check may find the same."""
        if text not in self._failed:
            self._failed.add(text)
            self._say(escape_to_one_line(text))


async def _lines(output: IO[bytes]) -> AsyncGenerator[str]:
    """The lines of a process's output, without a thread that could delay the exit."""
    os.set_blocking(output.fileno(), False)
    left = b""
    while True:
        await anyio.wait_readable(output)
        if not (data := os.read(output.fileno(), _READ_BYTES)):
            break
        *whole, left = (left + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
