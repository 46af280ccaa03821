"""A provider that retries after a temporary failure, with exponential backoff.

It wraps a provider and is one. It retries only what may pass by itself (`Overloaded`,
`Unreachable`). A response that fails in the middle is dropped (`Dropped`) before the request
is repeated, unless the provider has called tools of its own in it. `fallback` asks other
models.

The engine records the drop and its cost before it takes the next delta, so no second
request follows in silence. Overloads last for minutes and get three times as many attempts. So
does a network that is lost: the provider has answered before, and nothing of this response came.
A wrong address fails sooner.
A partial answer is not continued by a prefilled message: half a call cannot be continued.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio
from msgspec import Struct

from refold.errors import Overloaded, ProviderError, Unreachable
from refold.provider.port import (
    Attempt,
    Closable,
    Delta,
    Dropped,
    Provider,
    Request,
    Retrying,
)
from refold.values.log_level import WriteLog, discard_line


class Backoff(Struct, frozen=True):
    """How often and how long to wait, in seconds.

    Full jitter: a random part of a ceiling that doubles, so that many clients that failed
    together do not retry together.
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """

    retries: int = 3
    first: float = 1.0  # the first ceiling
    least: float = 0.1
    longest: float = 60.0  # if a provider asks for more, its error is reported instead
    first_overloaded: float = 4.0  # the first ceiling after an overload without a time
    first_limited: float = 8.0  # the first ceiling after a rate limit without a time
    longest_overloaded: float = 60.0  # ceiling after both
    fallback: bool = False  # another model is asked next, so a lost network gets no more
    endless: bool = False  # an overload is waited for until the caller's own limit

    def attempts(self, *, overload: bool, lost: bool = False) -> int:
        """The number of attempts, the first one included; 0: they are not limited.

        `lost`: a provider that has answered before cannot be reached.
        """
        if overload and self.endless:
            return 0
        return 1 + self.retries * (3 if overload or (lost and not self.fallback) else 1)

    def wait_seconds(self, retry: int, wanted_seconds: float, dice: float) -> float:
        """Seconds before retry number `retry`, from 0: the provider's wait plus our own.
        With a small wait from the provider alone, all retries would be spent at once.
        """
        return wanted_seconds + max(
            self.least, dice * min(self.first * 2**retry, self.longest)
        )

    def overload_wait_seconds(self, retry: int, dice: float, *, limited: bool) -> float:
        """Seconds to wait after an overload or a rate limit that names no time.

        At least half of the ceiling: both last for minutes, so a short wait would spend a
        retry for nothing.
        """
        first = self.first_limited if limited else self.first_overloaded
        return (0.5 + dice / 2) * min(
            first * 2**retry, self.longest_overloaded, self.longest
        )


class RetryingProvider:
    """`inner`, with retries while it is busy. Tests can replace `sleep` and `dice`."""

    def __init__(
        self,
        inner: Provider,
        backoff: Backoff | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        dice: Callable[[], float] | None = None,
        write_log: WriteLog = discard_line,
    ) -> None:
        self.inner, self._backoff = inner, backoff or Backoff()
        self._sleep, self._dice, self._write_log = (
            sleep,
            dice or _random_fraction,
            write_log,
        )
        self._answered = False

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        retries = {True: 0, False: 0}  # after overloads, and after other failures
        while True:
            attempt = Attempt()
            try:
                async with aclosing(self.inner.stream(request)) as deltas:
                    async for delta in deltas:
                        yield attempt.take(delta)
                self._answered = True
                return
            except (Overloaded, Unreachable) as error:
                overload = _is_overload(error)
                lost = (
                    isinstance(error, Unreachable) and self._answered and not attempt.begun
                )
                retry = retries[overload]
                attempts = self._backoff.attempts(overload=overload, lost=lost)
                if attempt.hosted or (attempts and retry + 1 >= attempts):
                    self._write_log("error", f"{request.model}: {error}", request.session)
                    raise
                failure, wait = error, self._wait_seconds(retry, error)
            except ProviderError as error:
                self._write_log("error", f"{request.model}: {error}", request.session)
                raise
            retries[overload] = retry + 1
            self._write_log(
                "warning",
                f"{request.model}: {failure}; retrying in {wait:.1f} s",
                request.session,
            )
            if attempt.begun:
                yield Dropped(str(failure), type(failure).__name__)
            yield Retrying(wait, str(failure), retry + 2, attempts)
            await self._sleep(wait)

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _wait_seconds(self, retry: int, error: Overloaded | Unreachable) -> float:
        wanted_seconds = (
            (error.retry_after or 0.0) if isinstance(error, Overloaded) else 0.0
        )
        if wanted_seconds > self._backoff.longest:
            raise Overloaded(
                f"{error}; it asks for a wait of {_format_seconds(wanted_seconds)}, and refold waits "
                f"{_format_seconds(self._backoff.longest)} at most: try again then, or choose "
                "another model",
                retry_after=wanted_seconds,
            ) from error
        if isinstance(error, Overloaded) and _is_overload(error) and not wanted_seconds:
            dice, limited = self._dice(), error.limited
            return self._backoff.overload_wait_seconds(retry, dice, limited=limited)
        return self._backoff.wait_seconds(retry, wanted_seconds, self._dice())


def _is_overload(error: Overloaded | Unreachable) -> bool:
    return isinstance(error, Overloaded) and (error.overload or error.limited)


def _format_seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes"


def _random_fraction() -> float:
    from random import random  # few sessions wait

    return random()
