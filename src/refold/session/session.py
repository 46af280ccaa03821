"""A session: one journal, its writer and its inbox, and one turn at a time.

Opening one takes the pen, follows the chain and folds; there is no other kind
of resuming. Which store, tools and provider these are was decided elsewhere:
`outfit` gives the world for each turn, so that a model chosen between two turns
holds for the second.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio

from refold.engine.loop import run_turn
from refold.engine.world import World
from refold.errors import BadInput, first
from refold.journal.events import (
    Entry,
    Event,
    ModeChanged,
    Rewound,
    SessionResumed,
    SessionStarted,
    Stopped,
    TurnStarted,
)
from refold.journal.fold import View
from refold.session.hub import Hub
from refold.session.inbox import Inbox
from refold.session.recorder import Recorder

Outfit = Callable[[View], World]


class Session:
    """Open it with `Session.open`; leave it with `close`, or use it in `async with`."""

    def __init__(self, record: Recorder, outfit: Outfit) -> None:
        self.record, self.inbox = record, Inbox(record)
        self._outfit = outfit
        self._one_turn = anyio.Lock()
        self._step = anyio.CancelScope()

    @classmethod
    async def open(
        cls, record: Recorder, outfit: Outfit, *, directory: str = "", version: str = ""
    ) -> Self:
        """Take the pen. `directory` is where a new session works."""
        view = await record.open()
        began: list[Event] = [SessionStarted(directory, version)]
        if view.seq:
            # Whoever takes a session up may not know that everything runs unasked in it.
            careful = [ModeChanged("default")] if view.rights.mode == "bypass" else []
            began = [SessionResumed(version), *careful]
        await record(*began, by="journal")
        return cls(record, outfit)

    @property
    def view(self) -> View:
        return self.record.view

    @property
    def lost(self) -> str:
        """What was found missing from the journal's end when it was opened here."""
        seq, lost = self.view.about.mended
        return lost if seq > self.record.since else ""

    @property
    def hub(self) -> Hub:
        return self.record.hub

    @property
    def running(self) -> bool:
        return self._one_turn.locked()

    async def go(self) -> View:
        """Do what is to be done: finish the open turn, then answer waiting words.

        Returns when there is nothing to do, or when a person has to be asked.
        """
        if self._one_turn.locked():
            raise BadInput("a turn of this session is running already: wait, or stop it")
        async with self._one_turn:
            await self.record.open()  # after a failure of the disk the view is stale
            await self._turn()
            while not self.view.turn.seq and self.view.talk.unheard:
                await self.record(TurnStarted(self.view.talk.unheard[0].seq))
                await self._turn()
        return self.view

    async def continue_(self) -> View:
        """Go on where the last turn ended, without new words."""
        await self.record.open()
        if not self.view.turn.seq and not self.view.talk.unheard:
            await self.record(TurnStarted(self.view.seq, "continue"), by="person")
        return await self.go()

    async def rewind(self, mark: int) -> bool:
        """Take the talk back to a mark. False if it is none or a turn is under way."""

        def news(view: View) -> tuple[Event, ...]:
            return (Rewound(mark),) if view.marked(mark) and not view.turn.seq else ()

        return await self.record.weigh(news, kept=True, by="person")

    async def close(self) -> None:
        await self.record.close()
        self.hub.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _turn(self) -> None:
        if not self.view.turn.seq:
            return
        world = self._outfit(self.view)
        if (briefing := world.briefing()) != self.view.talk.briefed:
            await self.record(briefing)
        if not world.attended:
            await self._refuse_questions()
        leave = self.hub.heed(self._stop_step)
        try:
            await run_turn(world, self.record, self._stand_on)
        except BaseExceptionGroup as group:
            raise first(group) from group
        finally:
            leave()

    async def _refuse_questions(self) -> None:
        """Questions that were put when somebody was there, and now nobody is."""
        for call in self.view.talk.calls:
            if call.stage == "asked":
                await self.inbox.answer(
                    call.call.id, allowed=False, reason="nobody is there to ask"
                )

    def _stand_on(self, step: anyio.CancelScope) -> None:
        self._step = step

    def _stop_step(self, entry: Entry) -> None:
        if isinstance(entry.event, Stopped):
            self._step.cancel()
