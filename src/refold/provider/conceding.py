"""Ask once more without what a provider has refused to be sent.

Not every model takes every field of its own API, and a key to what only one
provider can read (a signature, encrypted reasoning) may fit no more after a
change of account. Nobody can list which, so we ask with all of it, and where a
refusal says what it was about, again without that. Waiting and asking the same
again is `retry`'s business; what can be left out each wire knows.
"""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

from refold.errors import Refused, TooLong
from refold.provider.port import Delta

Thing = TypeVar("Thing", bound=str)


class Concessions(Generic[Thing]):
    """What each model was found not to take. `about`: how a refusal names a thing."""

    def __init__(self, about: Mapping[Thing, str]) -> None:
        self._about = about
        self._made: dict[str, frozenset[Thing]] = {}

    def of(self, model: str) -> frozenset[Thing]:
        return self._made.get(model, frozenset())

    def make(self, model: str, refusal: str) -> bool:
        """Leave out what `refusal` is about from now on. Is there such a thing?"""
        made = self.of(model)
        for thing, wording in self._about.items():
            if thing not in made and re.search(wording, refusal, re.IGNORECASE):
                self._made[model] = made | {thing}
                return True
        return False

    async def stream(
        self, model: str, ask: Callable[[], AsyncGenerator[Delta, None]]
    ) -> AsyncGenerator[Delta, None]:
        """The answer that `ask` gets. It is called again after each concession."""
        while True:
            begun = False
            try:
                async with aclosing(ask()) as found:
                    async for delta in found:
                        begun = True
                        yield delta
            except Refused as refusal:
                too_long = isinstance(refusal, TooLong)  # it may quote anything
                if begun or too_long or not self.make(model, str(refusal)):
                    raise
            else:
                return
