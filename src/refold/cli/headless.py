"""One task without a terminal: words in, the answer out, an exit code.

On stdout stands what the chosen format promises (docs/headless.md) and nothing
else; notices go to stderr. Nobody can be asked: what would ask is denied.
"""

import select
import signal
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterable, Callable, Sequence
from typing import NamedTuple, Protocol

import anyio

from refold.app import App
from refold.cli.attached import attached
from refold.cli.opening import app_of, open_session, pictures
from refold.cli.told import Told
from refold.errors import BadInput, JournalError, RefoldError, first
from refold.journal.fold import View
from refold.journal.frame import Frame
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.views.escape import on_one_line
from refold.views.result import EXIT_CODES, result

TIMED_OUT = 3
_SOON = 0.2  # seconds for a pipe beside a task to say something


def run(found: Namespace) -> int:
    if found.input_format == "stream-json":
        from refold.cli.stdio import run as over_stdio

        return over_stdio(found)
    return anyio.run(_run, found, _words(found), pictures(found))


async def _run(found: Namespace, words: str, shown: Sequence[Picture]) -> int:
    began = time.monotonic()
    app = app_of(found, attended=False)
    try:
        if found.resume is None and not found.continue_:
            app.models.check(app.model_of(View()))  # before there is a session to -c
        typed = None if found.text == words else found.text
        if found.text.lstrip().startswith("/"):
            from refold.cli.expanding import expanded

            meant = expanded(found.text, app)
            if meant != found.text:
                words, typed = words.replace(found.text, meant, 1), found.text
        id_, session = await open_session(app, found)
        async with session:
            app.models.check(app.model_of(session.view))
            out = Told(found.output_format, id_, live=found.include_partial_messages)
            timed_out = False
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(tell_notices, app)
                    sent = (*shown, *_named(words, session, app))
                    said = Said(words, sent, typed)
                    timed_out = await turn(session, said, out, found.timeout)
            except (JournalError, BaseExceptionGroup) as error:
                out.broken(first(error), session, time.monotonic() - began)
                raise
            document = result(session.view, id_, time.monotonic() - began)
            if timed_out:
                document["reason"] = f"it took longer than {found.timeout:g} s"
            code = TIMED_OUT if timed_out else EXIT_CODES[str(document["outcome"])]
            if found.verify:
                held = await _verified(app, id_, session, document)
                code = code or held
            out.end(document, session)
            return code
    finally:
        await app.aclose()


async def _verified(
    app: App, id_: str, session: Session, document: dict[str, object]
) -> int:
    """Put what is claimed into the document, each with its verdict. 5: do not rely on it."""
    from refold.claims.claiming import Checking
    from refold.cli.verify import NOT_SUPPORTED, claims_of, told_of

    told = told_of(await session.record.entries())
    path = app.home.path(id_) if app.wishes.keep else None
    checks = Checking(session.record, app.workspace.files, path)
    checked = await checks.check(told.claims)
    document["claims"] = claims_of(checked)
    for each in checked:
        if not each.fine:
            words = on_one_line(f"{each.claim.claim}: {each.state}, {each.reason}")
            sys.stderr.write(f"refold: not borne out: {words}\n")
    return 0 if all(each.fine for each in checked) else NOT_SUPPORTED


def _named(words: str, session: Session, app: App) -> Sequence[Picture]:
    found, problems = attached(words, session.view.about.directory, app.unread)
    for problem in problems:
        sys.stderr.write(f"refold: {problem}\n")
    return found


def complain(words: str) -> None:
    sys.stderr.write(f"refold: {words}\n")


async def tell_notices(app: App, say: Callable[[str], None] = complain) -> None:
    """What the machine can hold a command to is found out while the model is asked."""
    for notice in await anyio.to_thread.run_sync(app.notices):
        say(notice)


class Said(NamedTuple):
    """What is asked. `typed` is the part that a person wrote; a pipe may bring anything."""

    words: str
    shown: Sequence[Picture] = ()
    typed: str | None = None  # None: all


class Out(Protocol):
    """Who tells what happens in a turn. `finished` is set when all was told."""

    finished: anyio.Event

    def begin(self, session: Session) -> None: ...
    async def follow(self, frames: AsyncIterable[Frame], session: Session) -> None: ...


async def turn(session: Session, said: Said, out: Out, limit: float | None) -> bool:
    """Run the turn while its news are printed. True if it took too long."""
    watch, clock = session.hub.watch(), _Clock(limit)
    out.begin(session)
    if session.lost:
        sys.stderr.write(
            f"refold: the journal was damaged at its end; lost: {session.lost}\n"
        )
    if said.words:
        await session.inbox.say(said.words, pictures=said.shown, typed=said.typed)
    async with anyio.create_task_group() as group:
        group.start_soon(out.follow, watch.frames(), session)
        group.start_soon(_heed_signals, session)
        group.start_soon(clock.run, session)
        await (session.go() if said.words else session.continue_())
        watch.close()
        await out.finished.wait()
        group.cancel_scope.cancel()
    return clock.ran_out


class _Clock:
    """Stops the turn when its time is over: as an event first, like any stop."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self.ran_out = seconds, False

    async def run(self, session: Session) -> None:
        if self._seconds is None:
            return
        await anyio.sleep(self._seconds)
        self.ran_out = await session.inbox.cancel("out of time")


async def _heed_signals(session: Session) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as news:
        async for number in news:
            await session.inbox.interrupt(f"stopped by {signal.Signals(number).name}")


def _words(found: Namespace) -> str:
    """The text of the command line, then what stands on stdin, if it is a pipe."""
    closed = sys.stdin is None  # pyright: ignore[reportUnnecessaryComparison] - it can be
    piped = "" if closed or sys.stdin.isatty() else _stdin(found)
    words = "\n\n".join(part for part in (found.text, piped) if part.strip())
    if not words and not found.continue_ and found.resume is None:
        raise BadInput('nothing to do: give the task as refold -p "…" or on stdin')
    return words


def _stdin(found: Namespace) -> str:
    # A script often inherits a pipe that nobody writes to and nobody closes. Who gave
    # the task on the command line is not made to wait for it.
    if found.text and not select.select([sys.stdin], [], [], _SOON)[0]:
        return ""
    try:
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    except OSError as error:
        raise RefoldError(f"stdin cannot be read: {error}") from error
