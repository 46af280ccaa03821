"""A provider that repeats requests after a temporary failure, with exponential backoff.

It wraps another provider. It retries only errors that may pass by themselves (`Overloaded`,
`Unreachable`). After a response that failed in the middle, it yields `Dropped` before it
repeats the request; it does not repeat it if the provider has already called tools itself.
`fallback` asks other models.

The engine records the drop and its cost before it takes the next delta, so each further request
is announced. Overloads last for minutes, so there are three times as many attempts; the same
applies if the network is lost, that is if the provider has answered before and nothing of this
response has arrived. A wrong address fails sooner. A partial answer is not continued by a
prefilled message, because half a call cannot be continued.
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
    """The number of retries, and the time in seconds to wait before each.

    With full jitter, the wait is a random part of a ceiling that doubles, so that many clients
    that failed together do not retry together.
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """

    retries: int = 3
    first: float = 1.0  # the first ceiling
    least: float = 0.1
    longest: float = 60.0  # if a provider asks for more, its error is reported instead
    first_overloaded: float = 4.0  # the first ceiling after an overload that names no time
    first_limited: float = 8.0  # the first ceiling after a rate limit that names no time
    longest_overloaded: float = 60.0  # the highest ceiling after both
    # another model is asked next, so a lost network gets no extra attempts
    fallback: bool = False
    endless: bool = False  # an overload is retried until the caller's own limit

    def attempts(self, *, overload: bool, lost: bool = False) -> int:
        """Return the number of attempts, including the first; 0 means no limit.

        `overload` says that the provider is overloaded, and `lost` that it has answered before
        but can no longer be reached.
        """
        if overload and self.endless:
            return 0
        lasts_long = overload or (lost and not self.fallback)
        return 1 + self.retries * (3 if lasts_long else 1)

    def wait_seconds(self, retry: int, wanted_seconds: float, dice: float) -> float:
        """Return the seconds to wait before retry number `retry`, which counts from 0.

        The result is the wait that the provider asks for, plus a random wait. Without the
        random wait, all retries could be spent at once. `dice` is a random number from 0 to 1.
        """
        ceiling = min(self.first * 2**retry, self.longest)
        return wanted_seconds + max(self.least, dice * ceiling)

    def overload_wait_seconds(self, retry: int, dice: float, *, limited: bool) -> float:
        """Return the seconds to wait after an overload, or after a rate limit if `limited`.

        This is for a provider that asks for no certain wait. The result is at least half of the
        ceiling: both conditions last for minutes, so an early retry would be wasted.
        """
        first = self.first_limited if limited else self.first_overloaded
        ceiling = min(first * 2**retry, self.longest_overloaded, self.longest)
        return (0.5 + dice / 2) * ceiling


class RetryingProvider:
    """Wraps `inner`, and repeats a request after a temporary failure.

    Tests can replace `sleep` and `dice`, a source of random numbers.
    """

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
        self._sleep, self._dice = sleep, dice or _random_fraction
        self._write_log = write_log
        self._answered = False  # whether the provider has completed a response

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response of the first attempt that succeeds. Raises `ProviderError`."""
        # Retries after overloads have other limits than those after other failures.
        overload_retries = other_retries = 0
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
                retry = overload_retries if overload else other_retries
                max_attempts = self._backoff.attempts(overload=overload, lost=lost)
                has_tried_all = max_attempts > 0 and retry + 1 >= max_attempts
                # Calls that the provider made itself must not be repeated.
                if attempt.hosted or has_tried_all:
                    self._write_log("error", f"{request.model}: {error}", request.session)
                    raise
                failure = error  # Python deletes `error` at the end of this clause
                wait = self._wait_seconds(retry, error)
            except ProviderError as error:
                self._write_log("error", f"{request.model}: {error}", request.session)
                raise
            if overload:
                overload_retries += 1
            else:
                other_retries += 1
            self._write_log(
                "warning",
                f"{request.model}: {failure}; retrying in {wait:.1f} s",
                request.session,
            )
            if attempt.begun:
                yield Dropped(str(failure), type(failure).__name__)
            # Attempts are counted from 1, and the first one is not a retry.
            next_attempt = retry + 2
            yield Retrying(wait, str(failure), attempt=next_attempt, attempts=max_attempts)
            await self._sleep(wait)

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _wait_seconds(self, retry: int, error: Overloaded | Unreachable) -> float:
        """Return the seconds to wait before the next attempt.

        Raises `Overloaded` if the provider asks for more than the longest wait.
        """
        wanted_seconds = 0.0
        if isinstance(error, Overloaded) and error.retry_after is not None:
            wanted_seconds = error.retry_after
        if wanted_seconds > self._backoff.longest:
            raise Overloaded(
                f"{error}; it asks for a wait of {_format_seconds(wanted_seconds)}, and refold waits "
                f"{_format_seconds(self._backoff.longest)} at most: try again then, or choose "
                "another model",
                retry_after=wanted_seconds,
            ) from error
        if isinstance(error, Overloaded) and _is_overload(error) and not wanted_seconds:
            return self._backoff.overload_wait_seconds(
                retry, self._dice(), limited=error.limited
            )
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
