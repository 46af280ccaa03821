"""Calls whose money is set aside: whether there are any, and when the next one is over.

A call mostly comes to less than what was set aside for it. So who finds nothing left while
others are under way may find something when one of them is over. What is left says
`engine.spending`.
"""

from collections.abc import Generator
from contextlib import contextmanager

import anyio


class UnderWay:
    """Of one session."""

    def __init__(self) -> None:
        self._calls = 0
        self._over = anyio.Event()  # of the next one

    @contextmanager
    def call(self) -> Generator["Call"]:
        """It is under way from its `begin` to the end of this."""
        call = Call(self)
        try:
            yield call
        finally:
            if call.begun:
                self._calls -= 1
                over, self._over = self._over, anyio.Event()
                over.set()

    def began(self) -> None:
        self._calls += 1

    def look(self) -> "Look":
        """Take it before you look what is left: it knows what is over since."""
        return Look(self, self._over)

    def __bool__(self) -> bool:
        return self._calls > 0


class Call:
    def __init__(self, calls: UnderWay) -> None:
        self._calls, self.begun = calls, False

    def begin(self) -> None:
        self.begun = True
        self._calls.began()


class Look:
    def __init__(self, calls: UnderWay, over: anyio.Event) -> None:
        self._calls, self._over = calls, over

    async def worth_another(self) -> bool:
        """Wait until one call is over. False: there is none to wait for."""
        if not self._calls and not self._over.is_set():
            return False
        await self._over.wait()
        return True
