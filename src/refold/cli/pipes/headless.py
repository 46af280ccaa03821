"""One task without a terminal: words in, the answer out, an exit code.

On stdout stands what the chosen format promises (docs/headless.md) and nothing
else; notices go to stderr. Nobody can be asked: what would ask is denied.
"""

import os
import select
import stat
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import anyio

from refold.cli.attached import attached
from refold.cli.expanding import meant
from refold.cli.flags import PICK
from refold.cli.opening import app_of, open_session, pictures
from refold.cli.out import complain
from refold.cli.pipes.stopping import Stops
from refold.cli.pipes.told import WAITING, StreamWriter, exit_code
from refold.cli.worktree import in_a_worktree
from refold.errors import BadInput, RefoldError, first, said_by
from refold.hall.app import App
from refold.journal.fold import View
from refold.journal.frame import Frame
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.views.escape import on_one_line
from refold.views.stream import Document

TIMED_OUT = 3
INTERRUPTED = 130
_CLOSING = 5.0  # seconds to close what is open, at most
_MOST = 32 * 2**20  # bytes of words
_SOON = 0.2  # seconds in which a pipe has said something, as a rule
_IDLE = 1.0  # seconds for those that started us to write something
_LONG = 3.0  # seconds after which somebody should know what is waited for
_PROCESSES = "/proc"
_WRITES = (os.O_WRONLY, os.O_RDWR)


def run(found: Namespace, stops: Stops | None = None) -> int:
    """The task. `stops` may have heard already that it is to end."""
    if found.input_format == "stream-json" and found.output_format != "stream-json":
        raise BadInput(
            "--input-format stream-json is answered in JSON lines: "
            "add --output-format stream-json"
        )
    told, stops = (
        StreamWriter(found.output_format, live=found.include_partial_messages),
        stops or Stops(),
    )
    try:
        stops.aloud()
        if found.resume is PICK:
            from refold.cli.sessions.resuming import nobody_picks

            raise nobody_picks()
        with in_a_worktree(found):
            if found.input_format == "stream-json":
                from refold.cli.pipes.stdio import run as over_stdio

                return over_stdio(found, told, stops)
            task = _Task(found, words_of(found), pictures(found), told, stops)
            return anyio.run(task.run)
    except BaseException as error:  # whatever it is, the last word on stdout is ours
        told.broken(first(error))
        raise


class _Task:
    def __init__(
        self,
        found: Namespace,
        words: str,
        shown: Sequence[Picture],
        told: StreamWriter,
        stops: Stops,
    ) -> None:
        self._found, self._words, self._shown = found, words, shown
        self._told, self._stops = told, stops
        self._began = time.monotonic()

    async def run(self) -> int:
        told, stops = self._told, self._stops
        stops.hurry = told.outlet.hurry
        async with stops.heard():
            app = app_of(self._found, attended=False)
            try:
                return await self._in(app)
            finally:
                await closed(app)
        # It was stopped where there was no turn to stop, or for the second time.
        await told.end(self._document() | {"outcome": "interrupted", "reason": stops.why})
        return INTERRUPTED

    async def _in(self, app: App) -> int:
        found, told, stops = self._found, self._told, self._stops
        if found.resume is None and not found.continue_:
            app.models.check(app.model_of(View()))  # before there is a session to -c
        words, typed = meant(found.text, self._words, app)
        id_, session = await open_session(app, found)
        async with session:
            told.of(session, id_)
            app.models.check(app.model_of(session.view))
            timed_out = False
            async with anyio.create_task_group() as group:
                group.start_soon(tell_notices, app)
                sent = (*self._shown, *_named(words, session, app))
                timed_out = await turn(
                    session, HeadlessPrompt(words, sent, typed), told, found.timeout, stops
                )
            document = self._document()
            if timed_out:
                document["reason"] = f"it took longer than {found.timeout:g} s"
            code = TIMED_OUT if timed_out else exit_code(document, unread=told.gone)
            if found.verify:
                stops.gently = None
                held = await _verified(app, id_, session, document)
                code = code or held
            await told.end(document)
            return code or int(told.gone)

    def _document(self) -> Document:
        return self._told.result(time.monotonic() - self._began)


async def closed(app: App) -> None:
    """Close what it has open, also where we are stopped, and in a bounded time."""
    with anyio.move_on_after(_CLOSING, shield=True):
        await app.aclose()


async def _verified(app: App, id_: str, session: Session, document: Document) -> int:
    """Put what is claimed into the document, each with its verdict. 5: do not rely on it."""
    from refold.claims.claiming import Checking
    from refold.cli.reading.verify import NOT_SUPPORTED, claims_of, told_of

    told = told_of(await session.record.entries())
    path = app.home.path(id_) if app.wishes.keep else None
    checks = Checking(session.record, app.workspace.files, path)
    checked = await checks.check(told.claims)
    document["claims"] = claims_of(checked)
    for each in checked:
        if not each.fine:
            words = on_one_line(f"{each.claim.claim}: {each.state}, {each.reason}")
            complain(f"not borne out: {words}")
    return 0 if all(each.fine for each in checked) else NOT_SUPPORTED


def _named(words: str, session: Session, app: App) -> Sequence[Picture]:
    found, problems = attached(words, session.view.about.directory, app.unread)
    for problem in problems:
        complain(problem)
    return found


async def tell_notices(app: App, say: Callable[[str], None] = complain) -> None:
    """What the machine can hold a command to is found out while the model is asked."""
    for notice in await anyio.to_thread.run_sync(app.notices):
        say(notice)


class HeadlessPrompt(NamedTuple):
    """What is asked. `typed` is the part that a person wrote; a pipe may bring anything."""

    words: str
    shown: Sequence[Picture] = ()
    typed: str | None = None  # None: all


class Out(Protocol):
    """Who tells what happens in a turn. `finished` is set when all was told."""

    finished: anyio.Event

    def begin(self, session: Session) -> None: ...
    async def follow(self, frames: AsyncIterable[Frame], session: Session) -> None: ...


async def turn(
    session: Session,
    said: HeadlessPrompt,
    out: Out,
    limit: float | None,
    stops: Stops | None = None,
) -> bool:
    """Run the turn while its news are printed. True if it took too long.

    Signals stop it, if nobody else hears them: who does gives `stops`.
    """
    if stops is None:
        stops = Stops()
        async with stops.heard():
            return await turn(session, said, out, limit, stops)
        raise KeyboardInterrupt(stops.why)  # for the second time, or too early
    watch, clock = session.hub.watch(live=WAITING), _Clock(limit, stops)
    stops.gently = session.inbox.interrupt
    out.begin(session)
    if session.lost:
        complain(f"the journal was damaged at its end; lost: {session.lost}")
    if said.words:
        await session.inbox.say(said.words, pictures=said.shown, typed=said.typed)
    async with anyio.create_task_group() as group:
        group.start_soon(out.follow, watch.frames(), session)
        group.start_soon(clock.run, session)
        await (session.go() if said.words else session.continue_())
        watch.close()
        await out.finished.wait()
        group.cancel_scope.cancel()
    return clock.ran_out


class _Clock:
    """Stops the turn when its time is over: as an event first, like any stop."""

    def __init__(self, seconds: float | None, stops: Stops) -> None:
        self._seconds, self._stops, self.ran_out = seconds, stops, False

    async def run(self, session: Session) -> None:
        if self._seconds is None:
            return
        await anyio.sleep(self._seconds)
        self._stops.hurry()
        self.ran_out = await session.inbox.cancel("out of time")


# The words of a task: those of the command line, and below them what stands on stdin.
#
# Who gave the task on the command line may have left stdin as it was: a pipe that nobody
# writes to and nobody closes, as services and CI hand it down. It is read to its end if
# there is somebody who may write; else a moment is waited for it, and it is left alone.
def words_of(found: Namespace) -> str:
    """Raises `BadInput` where there are none, and nothing to go on with either."""
    piped = "" if sys.stdin.isatty() else _stdin(found.text)
    words = "\n\n".join(part for part in (found.text, piped) if part.strip())
    if not words and not found.continue_ and found.resume is None:
        raise BadInput('nothing to do: give the task as refold -p "…" or on stdin')
    return words


def _stdin(text: str) -> str:
    try:
        if text and not _comes():
            return ""
        found = sys.stdin.buffer.read(_MOST + 1)
    except OSError as error:
        raise RefoldError(f"stdin cannot be read: {said_by(error)}") from error
    if len(found) > _MOST:
        raise BadInput(
            f"stdin holds more than {_MOST // 2**20} MiB, which no model reads: "
            "put it into a file and name that"
        )
    return found.decode("utf-8-sig", errors="replace")  # some systems put a mark before it


def _comes() -> bool:
    """Is there something to read, or somebody who will write it?"""
    if _ready(_SOON):
        return True
    if _of_a_pipeline():
        if not _ready(_LONG):
            complain("waiting for what comes through the pipe")
        return True
    if _ready(_IDLE - _SOON):
        return True
    complain(
        f"nothing came through stdin in {_IDLE:g} s, so it goes on without: "
        "close it with < /dev/null, or give no words on the command line to wait for it"
    )
    return False


def _ready(seconds: float) -> bool:
    return bool(select.select([sys.stdin], [], [], seconds)[0])


def _of_a_pipeline() -> bool:
    """Has another program than those that started us our pipe open to write?

    `make test | refold -p "why?"`: make does, and we are to wait for it. Those that
    started us would rather wait for us. Only Linux lets us look.
    """
    try:
        pipe = os.fstat(sys.stdin.fileno())
        if not stat.S_ISFIFO(pipe.st_mode):
            return False
        above = set(_above(os.getpid()))
        return any(
            _writes(process, (pipe.st_dev, pipe.st_ino))
            for process in map(int, filter(str.isdecimal, os.listdir(_PROCESSES)))
            if process not in above
        )
    except (OSError, ValueError):
        return False


def _above(process: int) -> Iterator[int]:
    """This process, and those that started it."""
    while process > 1:
        yield process
        with open(
            f"{_PROCESSES}/{process}/stat", encoding="utf-8", errors="replace"
        ) as file:
            # The name of a program stands in brackets, and may hold anything.
            process = int(file.read().rpartition(")")[2].split()[1])
    yield process


def _writes(process: int, pipe: tuple[int, int]) -> bool:
    folder = f"{_PROCESSES}/{process}/fd"
    with suppress(OSError):  # it has ended, or is somebody else's
        for number in os.listdir(folder):
            with suppress(OSError):
                found = os.stat(f"{folder}/{number}")
                if (found.st_dev, found.st_ino) == pipe and _may_write(process, number):
                    return True
    return False


def _may_write(process: int, number: str) -> bool:
    with open(f"{_PROCESSES}/{process}/fdinfo/{number}", encoding="utf-8") as file:
        flags = next(line for line in file if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE in _WRITES
