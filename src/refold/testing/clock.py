"""A clock for tests: it advances only when code sleeps on it, or when a test moves it.

Pass it to code that takes a clock or a sleep function: `Recorder(clock=clock)`,
`RetryingProvider(inner, sleep=clock.sleep)`. Nothing really waits.
"""

import anyio.lowlevel


class Clock:
    """Returns `now`, in seconds since 1970, when it is called.

    `slept` has the seconds of each sleep. A test may also set the clock back.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def jump(self, seconds: float) -> None:
        """Move the clock by `seconds`; a negative number moves it back."""
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        """Advance the clock by `seconds` at once, without waiting. Like a real sleep, it can be
        cancelled.
        """
        await anyio.lowlevel.checkpoint()
        self.slept.append(seconds)
        self.now += seconds
