"""An open terminal: its session, its printer and reader, and the operations for commands.

It sends a message and shows the work until it ends. `run` reads the prompts; `commands` has the
commands.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

import anyio

from refold.client.folder_trust import NAMESPACES_QUESTION
from refold.client.launch import ResumeTarget
from refold.client.protocol import Continue
from refold.client.session import Session
from refold.client.session_socket import SessionSocket
from refold.client.types import ImageData, Subscription
from refold.console.printer import Printer
from refold.console.prompts import plan as plans
from refold.console.reader import Key, TerminalReader
from refold.errors import BadInput
from refold.terminal.steering import Commands, NoCommands, with_images
from refold.terminal.work import Work, sentence
from refold.views.escape import visible
from refold.views.styled import line

T = TypeVar("T")


class Terminal:
    """`commands` makes what runs the commands that are typed here."""

    def __init__(
        self,
        session: Session,
        printer: Printer,
        reader: TerminalReader,
        commands: Callable[["Terminal"], Commands] = lambda _: NoCommands(),
    ) -> None:
        # Where the turns run somewhere else, that process has the socket.
        self.socket = SessionSocket(session, os.environ) if session.owns_turns else None
        self.session, self.printer, self.reader = session, printer, reader
        self.job = CancellableJob(printer, reader)
        self.plans = plans.PlanQueue()
        self.leaving = False
        self.commands = commands(self)
        self._work = None
        self._keys = map(f"{os.urandom(8).hex()}-{{}}".format, count(1))
        self._pressed_early = False  # Ctrl+C, after the prompt and before the work

    _work: Work | None

    @property
    def working(self) -> bool:
        return self._work is not None

    async def switch(self, target: ResumeTarget) -> Sequence[str]:
        """Close this session and open that of the target. Notices come back.

        Raises where it leads nowhere; then this session stays open.
        """
        switched = await self.session.switch(target, partial(trusted, self))
        self._show(switched.session)
        return switched.notices

    async def new_session(self) -> None:
        """Close this session, and open a new one in the same directory."""
        self._show(await self.session.new())

    def _show(self, session: Session) -> None:
        self.reader.switch_draft(self.session.id, session.id)
        self.session, self.plans = session, plans.PlanQueue()
        if self.socket is not None:
            self.socket.follow(session)

    async def say(
        self,
        text: str,
        images: Sequence[ImageData] = (),
        *,
        typed: str | None = None,
        seen: bool = True,
    ) -> None:
        """Send a message, and show the work until it is over.

        `typed` is what the person wrote of it, if not all; `seen`: it is on the screen already.
        """
        key = next(self._keys)
        found = with_images(text, self.session, self.printer)

        async def said() -> None:
            shown = (*images, *found)
            await self.session.say(text, client_key=key, images=shown, typed=typed)
            await self.session.settle()

        await self.through(said, key if seen else "")

    async def settle(self, watch: Subscription | None = None) -> None:
        """Run turns until nothing is left to do. What `watch` has is shown, too."""
        await self.through(self.session.settle, watch=watch)

    async def continue_(self) -> None:
        """Continue where the last turn ended."""

        async def continued() -> None:
            elsewhere = not self.session.owns_turns and not self.session.running
            if self.session.idle or elsewhere:
                await self.session.send(Continue())
            await self.session.settle()

        await self.through(continued)

    async def end_turn(self) -> None:
        """End a turn that was cut off, without asking the model again."""

        async def ended() -> None:
            await self.session.interrupt()
            await self.session.settle()

        await self.through(ended)

    async def through(
        self,
        start: Callable[[], Awaitable[object]],
        own: str = "",
        watch: Subscription | None = None,
    ) -> None:
        """Call `start`, and show what happens until the work is over."""
        self._work = Work(self.session, self.printer, self.reader, self.commands)
        try:
            if self._pressed_early:
                self._pressed_early = False
                await self._work.interrupt()
            failure = await self._work.through(start, own, watch)
            delayed = self._work.delayed
        finally:
            self._work = None
        if failure is not None:
            self.printer.line(sentence(failure))
            if self.socket is not None:
                self.socket.tell(failure)
        for typed in delayed:
            await self.commands.run(typed)

    async def ask(self, prompt: str, keys: str) -> str:
        """The key of `keys` that was pressed, or ""."""
        found = await self.reader.choice(line(f"{prompt} ", "strong"), keys)
        return found if isinstance(found, str) else ""

    async def ask_text(self, prompt: str) -> str:
        """What was typed, or ""."""
        found = await self.reader.brief(line(f"{prompt} ", "strong"))
        text = found if isinstance(found, str) else ""
        if text.strip() and self.reader.lively:  # the line is gone from the screen
            self.printer.say(f"{prompt} {visible(text.strip())}", "dim")
        return text

    def show_plan(self) -> None:
        """Ask about the plan that waits before the next prompt."""
        self.plans.now()

    def quit(self) -> None:
        self.leaving = True

    def at_prompt(self) -> None:
        """A prompt is about to be read."""
        self._pressed_early = False

    async def interrupt(self) -> None:
        """Ctrl+C came as a signal."""
        if self._work is not None:
            await self._work.interrupt()
        elif not self.job.stop():
            self._pressed_early = not self.reader.interrupt()

    async def end(self, reason: str) -> None:
        """A signal ends the process: stop the turn, and record that."""
        self.leaving = True
        if self._work is not None:
            await self._work.end(reason)


class CancellableJob:
    """What a command does beside the turn, until it is done or Ctrl+C ends it."""

    def __init__(self, printer: Printer, reader: TerminalReader) -> None:
        self._printer, self._reader = printer, reader
        self._scope: anyio.CancelScope | None = None

    async def do(self, work: Callable[[], T]) -> T | None:
        """Do it in a thread. If it was stopped, say so, and return None.

        The work notices where it calls `anyio.from_thread.check_cancelled`, and is waited
        for until then.
        """
        return await self.wait(partial(anyio.to_thread.run_sync, work))

    async def wait(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Wait for it. If it was stopped, say so, and return None."""
        try:
            with self._reader.quiet(), anyio.CancelScope() as self._scope:
                return await work()
        finally:
            self._scope = None
        self._printer.echoed()
        self._printer.say("stopped", "dim")
        return None

    def stop(self) -> bool:
        """Ctrl+C came. False: no job runs."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True


async def trusted(here: Terminal, rows: Sequence[str], question: str) -> bool:
    """Show the rows and ask whether that folder is trusted. Raises if there is no answer."""
    here.printer.gap()
    for row in rows:
        here.printer.say(row)
    found = await here.reader.choice(line(f"{question} y/n ", "strong"), "yn")
    if isinstance(found, Key):
        raise BadInput("Cancelled: the session stays where it is.")
    if found == "y":
        return True
    namespaces = question == NAMESPACES_QUESTION
    here.printer.say(
        "Its commands make none."
        if namespaces
        else "Its settings and instructions are ignored.",
        "dim",
    )
    return False
