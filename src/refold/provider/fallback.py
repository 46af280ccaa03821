"""A chain of models: if one is unavailable, the next gets the same request.

The chain is a provider itself. It moves on only if the model is unavailable
(`Overloaded`, `Unreachable`, or not configured), and drops what came of a response that
failed in the middle. A refusal is an answer: no other model is asked. `retry` belongs inside
the links, so that each has all of its retries.
"""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from refold.errors import BadInput, Overloaded, ProviderError, Refused, Unreachable
from refold.provider.port import (
    Attempt,
    Closable,
    Delta,
    Done,
    Dropped,
    Provider,
    Request,
    Retrying,
)

# Seconds for which a failed model is not tried first. A turn has many steps, and an
# unavailable model must not cost each of them all its retries.
REST_SECONDS = 30.0


class Fallback:
    """The models of `chain` (provider/model, and how to get it), in this order.

    After a failure a link rests for `rest_seconds`, or as long as it asked for: requests go
    to the others at once, and to it only if they have failed, too. Then the order is the
    old one again. A link is made when it is needed; one that cannot be made (`BadInput`,
    for example without a key) is skipped with a notice.
    """

    def __init__(
        self,
        chain: Sequence[tuple[str, Callable[[], Provider]]],
        *,
        rest_seconds: float = REST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not chain:
            raise BadInput(
                "a chain of models needs at least one: name it as provider/model"
            )
        self._links = tuple(_Link(name, make) for name, make in chain)
        self._rest, self._clock = rest_seconds, clock

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        failed: list[tuple[_Link, ProviderError | BadInput]] = []
        now = self._clock()
        waiting = sorted(self._links, key=lambda link: link.rests_until > now)
        while waiting:
            link, *waiting = waiting
            attempt = Attempt()
            try:
                async with aclosing(self._ask(link, request)) as deltas:
                    async for delta in deltas:
                        yield attempt.take(delta)
            except (Overloaded, Unreachable, BadInput) as error:
                if attempt.hosted or (attempt.begun and not waiting):
                    raise
                self._pause(link, error)
                failed.append((link, error))
                if attempt.begun:
                    yield Dropped(str(error), type(error).__name__)
            except Refused as error:
                if attempt.begun or not failed:
                    raise
                why = f"{link.name} was asked because {_describe_failures(failed)}"
                raise type(error)(f"{error} ({why})") from error
            else:
                return
            if waiting:
                reason = (
                    f"{_describe_failures(failed[-1:])}: asking {waiting[0].name} instead"
                )
                yield Retrying(0.0, reason)
        raise _join_errors(failed)

    async def aclose(self) -> None:
        """Close the links that were made."""
        for link in self._links:
            if isinstance(link.provider_made, Closable):
                await link.provider_made.aclose()

    async def _ask(self, link: "_Link", request: Request) -> AsyncGenerator[Delta, None]:
        first = link is self._links[0]
        link_request = (
            request if first else replace(request, model=link.name.partition("/")[2])
        )
        async with aclosing(link.provider().stream(link_request)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Done):
                    link.rests_until = float("-inf")
                    if not first:
                        delta = replace(delta, by=delta.by or link.name)
                yield delta

    def _pause(self, link: "_Link", error: ProviderError | BadInput) -> None:
        wait = (error.retry_after or 0.0) if isinstance(error, Overloaded) else 0.0
        link.rests_until = self._clock() + max(self._rest, wait)


class _Link:
    def __init__(self, name: str, make: Callable[[], Provider]) -> None:
        self.name, self._make = name, make
        self.provider_made: Provider | None = None
        self.rests_until = float("-inf")  # by the clock of the chain

    def provider(self) -> Provider:
        if self.provider_made is None:
            self.provider_made = self._make()
        return self.provider_made


def _describe_failures(failed: Sequence[tuple[_Link, ProviderError | BadInput]]) -> str:
    return "; ".join(
        f"{link.name} {'is not available' if isinstance(error, BadInput) else 'is down'} "
        f"({error})"
        for link, error in failed
    )


def _join_errors(
    failed: Sequence[tuple[_Link, ProviderError | BadInput]],
) -> ProviderError:
    """One error for all links; it may be retried if any of them may."""
    errors = [error for _, error in failed]
    if len(errors) == 1 and isinstance(errors[0], ProviderError):
        return errors[0]
    text = f"no model is available: {_describe_failures(failed)}"
    busy = [error for error in errors if isinstance(error, Overloaded)]
    if busy:
        waits = [error.retry_after for error in busy if error.retry_after is not None]
        return Overloaded(
            text,
            retry_after=min(waits, default=None),
            limited=any(error.limited for error in busy),
            overload=any(error.overload for error in busy),
        )
    if any(isinstance(error, Unreachable) for error in errors):
        return Unreachable(text)
    return Refused(text)
