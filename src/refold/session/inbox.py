"""The one way in: whatever comes from outside a turn becomes an event here.

Each method returns once its event is kept, so an acknowledged word is never
lost; False means that there was nothing to do. Nobody waits in here: a turn
under way finds the news in its view at its next step, and a stop cuts the step
short (`Session` watches for it). Doors call these and read; they do no more.
"""

from collections.abc import Sequence
from typing import Literal

from refold.journal.events import (
    Answered,
    EffortChosen,
    Event,
    Granted,
    ModeChanged,
    ModelChosen,
    Said,
    Stopped,
)
from refold.journal.fold import View
from refold.session.recorder import Recorder
from refold.tools.contract import Picture
from refold.values.effort import Effort
from refold.values.messages import Image
from refold.values.rights import Mode


class Inbox:
    def __init__(self, record: Recorder, by: str = "person") -> None:
        self._record, self._by = record, by

    async def say(
        self,
        words: str,
        *,
        when: Literal["now", "next"] = "now",
        client_key: str = "",
        pictures: Sequence[Picture] = (),
    ) -> bool:
        """Words for the model: into the running turn, or for the next one."""
        shown = tuple([await self._kept(picture) for picture in pictures])

        def news(view: View) -> Sequence[Event]:
            if client_key and client_key in view.account.client_keys:
                return ()
            return (Said(words, self._by, when, client_key, shown),)

        return await self._record.weigh(news, kept=True, by=self._by)

    async def interrupt(self, reason: str = "interrupted", *, instead: str = "") -> bool:
        """Stop the turn at once. `instead` is what the model should hear next."""
        words = (Said(instead, self._by, "next"),) if instead else ()
        return await self._stop(Stopped(reason), *words)

    async def cancel(self, reason: str = "cancelled") -> bool:
        """Stop the turn at once, for a program rather than for a person."""
        return await self._stop(Stopped(reason, "cancelled"))

    async def _stop(self, *events: Event) -> bool:
        def news(view: View) -> Sequence[Event]:
            # Words that wait are about to become a turn; that one is stopped, too.
            under_way = view.turn.seq or view.talk.unheard
            return events if under_way and not view.turn.stopped else ()

        return await self._record.weigh(news, kept=True, by=self._by)

    async def answer(
        self, call_id: str, *, allowed: bool, reason: str = "", grant: str = ""
    ) -> bool:
        """A verdict on a call that waits for one. The first one wins.

        `grant` is a rule that holds for the rest of the session.
        """

        def news(view: View) -> Sequence[Event]:
            call = view.talk.call(call_id)
            if call is None or call.stage != "asked":
                return ()
            more = (Granted(grant),) if grant and allowed else ()
            return (*more, Answered(call_id, allowed, reason))

        return await self._record.weigh(news, kept=True, by=self._by)

    async def set_mode(self, mode: Mode) -> bool:
        """How much may run unasked, from the next call on."""

        def news(view: View) -> Sequence[Event]:
            return () if view.rights.mode == mode else (ModeChanged(mode),)

        return await self._record.weigh(news, kept=True, by=self._by)

    async def choose_effort(self, effort: Effort) -> bool:
        """How hard the model thinks from the next turn on; "": as it is set."""

        def news(view: View) -> Sequence[Event]:
            return () if view.about.effort == effort else (EffortChosen(effort),)

        return await self._record.weigh(news, kept=True, by=self._by)

    async def _kept(self, picture: Picture) -> Image:
        name = await self._record.put_picture(picture.content)
        return Image(name, picture.kind, picture.name)

    async def choose_model(self, model: str) -> bool:
        """The model from the next turn on, as provider/model."""

        def news(view: View) -> Sequence[Event]:
            return () if view.about.model == model else (ModelChosen(model),)

        return await self._record.weigh(news, kept=True, by=self._by)
