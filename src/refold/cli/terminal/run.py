"""The line terminal from its first line to its last: prompt, work, prompt.

Everything a person types becomes a word to the inbox or a command; everything
printed comes from the session's view and hub. `work` is what happens between
two prompts.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count

import anyio

from refold.cli.terminal.apart import Apart
from refold.cli.terminal.asking import plans
from refold.cli.terminal.commands.moving import agreed
from refold.cli.terminal.commands.table import at_once, command_in, obey
from refold.cli.terminal.cycling import Cycle
from refold.cli.terminal.display.paper import Paper
from refold.cli.terminal.greeting import can_go_on, greet, way_back
from refold.cli.terminal.offering import offering
from refold.cli.terminal.reading import Key, TerminalReader
from refold.cli.terminal.signals import hearing
from refold.cli.terminal.steering import with_pictures
from refold.cli.terminal.surroundings import Surroundings, Way
from refold.cli.terminal.this import this_terminal
from refold.cli.terminal.work import Work, sentence
from refold.engine.judging import mode_of
from refold.errors import RefoldError
from refold.journal.fold import View
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.views.escape import visible
from refold.views.styled import Line, line


async def run(
    session: Session,
    around: Surroundings,
    first_words: str = "",
    pictures: Sequence[Picture] = (),
    typed: str | None = None,
) -> int:
    """Converse until the person leaves. The exit code comes back."""

    def here() -> Conversation:
        return conversation

    cycle = Cycle()
    paper, reading = this_terminal(
        color=around.color, history=around.history, complete=offering(here),
        cycle=cycle.press, display=around.display, theme=around.theme,
    )  # fmt: skip
    if around.vi:
        reading.vi(on=True)
    conversation = Conversation(session, around, paper, reading, cycle)
    return await conversation.converse(first_words, pictures, typed)


class Conversation:
    """Implements what `commands` may use."""

    def __init__(
        self,
        session: Session,
        around: Surroundings,
        paper: Paper,
        reading: TerminalReader,
        cycle: Cycle | None = None,
    ) -> None:
        self.session, self.around, self.paper = session, around, paper
        self.vi = reading.vi
        self.reading, self._given, self._cycle = reading, session, cycle or Cycle()
        self._plans = plans.Queue()
        self._work: Work | None = None
        self.apart = Apart(paper, reading)
        self._keys = map(f"{os.urandom(8).hex()}-{{}}".format, count(1))
        self._leaving = False
        self._pressed_early = False  # Ctrl+C, after the prompt and before the work

    async def converse(
        self,
        first_words: str,
        pictures: Sequence[Picture] = (),
        typed: str | None = None,
    ) -> int:
        """Until the person leaves, or the terminal is taken away."""

        async def doing() -> None:
            greet(self.session.view, self.around, self.paper)
            await self._take_up()
            if first_words or pictures:
                await self._say(first_words, pictures, typed=typed)
            async with anyio.create_task_group() as group:
                group.start_soon(self._cycle.changing, self, self.reading.redraw)
                group.start_soon(learning, self, lambda: self._work is not None)
                await self._prompts()
                group.cancel_scope.cancel()

        try:
            stopping = self.paper.no_status, self.reading.redraw
            return await hearing(doing, self._interrupt, self._end, stopping)
        finally:
            self.paper.fresh()  # whatever ends us may be told by somebody else
            if self.session is not self._given:
                with anyio.CancelScope(shield=True):
                    await self.session.close()

    async def change(self, session: Session, told: str) -> None:
        left, self.session = self.session, session
        self._plans = plans.Queue()
        await left.close()
        self.paper.say(told, "dim")

    async def go_on(self, way: Way) -> Sequence[str]:
        arrived = await self.around.go_on(self.session, way, partial(agreed, self))
        self.session, self.around = arrived.session, arrived.around
        self._plans = plans.Queue()
        return arrived.notices

    async def say(self, words: str, *, typed: str | None = None) -> None:
        await self._say(words, seen=True, typed=typed)

    async def go(self) -> None:
        await self.through(self.session.go)

    async def continue_(self) -> None:
        await self.through(self.session.continue_)

    async def ask(self, prompt: str, keys: str) -> str:
        found = await self.reading.choice(line(f"{prompt} ", "strong"), keys)
        return found if isinstance(found, str) else ""

    async def ask_words(self, prompt: str) -> str:
        found = await self.reading.brief(line(f"{prompt} ", "strong"))
        words = found if isinstance(found, str) else ""
        if words.strip() and self.reading.lively:  # the line is gone from the screen
            self.paper.say(f"{prompt} {visible(words.strip())}", "dim")
        return words

    def judge(self) -> None:
        self._plans.now()

    def quit(self) -> None:
        self._leaving = True

    async def _take_up(self) -> None:
        """Finish what was under way when the last writer ended."""
        if not self.session.idle:
            self.paper.gap()
            self.paper.say("Going on with what was under way.", "dim")
            await self.through(self.session.go)

    async def _prompts(self) -> None:
        pressed = False  # Ctrl+C, at the prompt before this one
        while not self._leaving:
            try:
                await self._judge_plans()
            except RefoldError as error:  # the disk would not take the answer
                self.paper.line(sentence(error))
            self.paper.gap()
            self._pressed_early = False
            typed = await self.reading.words(self._prompt)
            if typed is Key.CTRL_D or (typed is Key.CTRL_C and pressed):
                break
            pressed = typed is Key.CTRL_C
            if isinstance(typed, Key):
                self.paper.say("Ctrl+C again leaves; so does Ctrl+D.", "dim")
            else:
                await self._typed(typed)
        if self.session.view.about.title:
            self.paper.say(f"To go on later: {way_back(self.session.view)}", "dim")

    async def _judge_plans(self) -> None:
        """The plan that waits, if it was not put off, and each that comes of that."""
        while not self._leaving and (plan := self._plans.next(self.session.view)):
            if not await plans.put(plan, self.session, self.paper, self.reading):
                self._plans.put_off(plan)
                return
            if not self.session.idle:
                await self.through(self.session.go)

    async def _typed(self, typed: str) -> None:
        if not typed.strip():
            if can_go_on(self.session.view):
                await self.continue_()
        elif command := command_in(typed):
            await self._obey(*command)
        else:
            await self._say(typed, seen=True)

    async def _obey(self, name: str, rest: str) -> None:
        try:
            await obey(name, rest, self)
        except RefoldError as error:
            self.paper.line(sentence(error))

    async def _at_once(self, typed: str) -> bool:
        """Do a command while the session works, if it can be done then."""
        command = command_in(typed)
        if command is None or not at_once(command[0]):
            return False
        await self._obey(*command)
        return True

    async def _say(
        self,
        words: str,
        pictures: Sequence[Picture] = (),
        *,
        seen: bool = False,
        typed: str | None = None,
    ) -> None:
        key = next(self._keys)
        found = with_pictures(words, self.session, self.paper, self.around.unread)

        async def said() -> View:
            shown = (*pictures, *found)
            inbox = self.session.inbox
            await inbox.say(words, client_key=key, pictures=shown, typed=typed)
            return await self.session.go()

        await self.through(said, key if seen else "")

    async def through(self, start: Callable[[], Awaitable[View]], own: str = "") -> None:
        self._work = Work(
            self.session, self.around, self.paper, self.reading, self._at_once
        )
        try:
            if self._pressed_early:
                self._pressed_early = False
                await self._work.interrupt()
            failure = await self._work.through(start, own)
            unsaid = self._work.unsaid
        finally:
            self._work = None
        if failure is not None:
            self.paper.line(sentence(failure))
        for typed in unsaid:
            await self._typed(typed)

    async def _end(self, reason: str) -> None:
        """A signal ends us: the turn is stopped, and that is written down."""
        self._leaving = True
        if self._work is not None:
            await self._work.end(reason)

    async def _interrupt(self) -> None:
        if self._work is not None:
            await self._work.interrupt()
        elif not self.apart.stop():
            self._pressed_early = not self.reading.interrupt()

    def _prompt(self) -> Line:
        mode = mode_of(self.around, self.session.view)
        sign = self.paper.look.sign("prompt")
        before: Line = () if mode == "default" else (("warn", f"{mode} "),)
        return (*before, ("person", f"{sign} "))


# What is done while nobody types: notes are made of what was said, as when it is left.
async def learning(here: Conversation, busy: Callable[[], bool]) -> None:
    """After each long silence, until this is cancelled."""
    while True:
        seen = here.session.view.seq
        await anyio.sleep(here.around.idle)
        now, learn = here.session, here.around.learn_idle
        if learn is not None and not busy() and now.idle and now.view.seq == seen:
            with suppress(RefoldError):  # the next silence, or the end, tries again
                await learn(now)
