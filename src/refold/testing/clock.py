"""A clock that advances only when something sleeps on it, or when a test moves it.

Pass it to whatever takes the time as a value: `Recorder(clock=clock)`,
`RetryingProvider(inner, sleep=clock.sleep)`. Nothing really waits.
"""

import anyio.lowlevel


class Clock:
    """Seconds since 1970. It may be set back, as clocks of laptops are."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def jump(self, seconds: float) -> None:
        """Move by so much; a negative number goes back."""
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        """Advance the clock at once, instead of waiting. Can be cancelled."""
        await anyio.lowlevel.checkpoint()
        self.slept.append(seconds)
        self.now += seconds
