"""A provider that retries after a temporary failure, with exponential backoff.

It wraps a provider and is one. It retries only what may pass by itself (`Overloaded`,
`Unreachable`), and never once text may have been shown: a second answer would follow
half of the first.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio
from msgspec import Struct

from refold.errors import Overloaded, ProviderError, Unreachable
from refold.provider.port import Closable, Delta, Provider, Request, Retrying, seen
from refold.values.log_level import WriteLog, quiet


class Backoff(Struct, frozen=True):
    """How often and how long to wait, in seconds.

    Full jitter: a random part of a ceiling that doubles, so that many clients that failed
    together do not retry together.
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """

    retries: int = 3
    first: float = 1.0  # the first ceiling
    least: float = 0.1
    longest: float = 60.0  # a provider that wants more is told to the person instead
    first_limited: float = 8.0  # the first ceiling after a rate limit without a time

    def wait(self, retry: int, asked: float, dice: float) -> float:
        """Before the n-th retry, n from 0, at least as long as the provider asked.

        On top of what it asked, not instead: a small number would spend all
        retries at once.
        """
        return asked + max(self.least, dice * min(self.first * 2**retry, self.longest))

    def wait_limited(self, retry: int, dice: float) -> float:
        """After a rate limit that names no time: three waits last up to about a minute.

        At least half of the ceiling: limits are counted by the minute, so a short wait would
        spend a retry for nothing.
        """
        return (0.5 + dice / 2) * min(self.first_limited * 2**retry, self.longest)


class RetryingProvider:
    """`inner`, asked again while it is busy. `sleep` and `dice` can be put in by tests."""

    def __init__(
        self,
        inner: Provider,
        backoff: Backoff | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        dice: Callable[[], float] | None = None,
        tell: WriteLog = quiet,
    ) -> None:
        self.inner, self._backoff = inner, backoff or Backoff()
        self._sleep, self._dice, self._tell = sleep, dice or _dice, tell

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        retry = 0
        while True:
            begun = False
            try:
                async with aclosing(self.inner.stream(request)) as deltas:
                    async for delta in deltas:
                        begun = begun or seen(delta)
                        yield delta
                return
            except (Overloaded, Unreachable) as error:
                if begun or retry >= self._backoff.retries:
                    self._tell("error", f"{request.model}: {error}", request.session)
                    raise
                wait = self._wait(retry, error)
                reason = str(error)
            except ProviderError as error:
                self._tell("error", f"{request.model}: {error}", request.session)
                raise
            self._tell(
                "warning",
                f"{request.model}: {reason}; retrying in {wait:.1f} s",
                request.session,
            )
            yield Retrying(wait, reason)
            await self._sleep(wait)
            retry += 1

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _wait(self, retry: int, error: Overloaded | Unreachable) -> float:
        asked = (error.retry_after or 0.0) if isinstance(error, Overloaded) else 0.0
        if asked > self._backoff.longest:
            raise Overloaded(
                f"{error}; it asks for a wait of {_spoken(asked)}, and refold waits "
                f"{_spoken(self._backoff.longest)} at most: try again then, or choose "
                "another model",
                retry_after=asked,
            ) from error
        if isinstance(error, Overloaded) and error.limited and not asked:
            return self._backoff.wait_limited(retry, self._dice())
        return self._backoff.wait(retry, asked, self._dice())


def _spoken(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes"


def _dice() -> float:
    from random import random  # few sessions wait

    return random()
