"""A provider that asks a chain of models: if one is unavailable, the next gets the request.

A model is unavailable if it raises `Overloaded` or `Unreachable`, or is not configured. A
response that failed in the middle is dropped. A refusal counts as an answer, so no other model
is asked. Each model of the chain should be wrapped in `retry` by itself, so that it has all of
its retries.
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

# For so long, a failed model is not tried first. A turn has many steps, and an unavailable
# model must not cost all its retries in each of them.
REST_SECONDS = 30.0


class Fallback:
    """Asks the models of `chain`, each a name (provider/model) and a function that connects.

    After a failure, a model rests for `rest_seconds`, or longer if it asked for that. While it
    rests, the other models are asked before it. Afterwards the original order applies again. A
    model is connected when it is needed; one that cannot be connected (`BadInput`, for example
    without a key) is skipped with a notice.
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
        self._rest_seconds, self._clock = rest_seconds, clock

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response of the first model that is available. Raises `ProviderError`."""
        failed: list[tuple[_Link, ProviderError | BadInput]] = []
        now = self._clock()
        # Links that rest come last; the sort keeps the order of all others.
        links_left = sorted(self._links, key=lambda link: link.rests_until > now)
        while links_left:
            link, *links_left = links_left
            attempt = Attempt()
            try:
                async with aclosing(self._ask(link, request)) as deltas:
                    async for delta in deltas:
                        yield attempt.take(delta)
            except (Overloaded, Unreachable, BadInput) as error:
                # Calls that the provider made itself must not be repeated, and a response that has
                # begun is dropped only if another model follows.
                if attempt.hosted or (attempt.begun and not links_left):
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
            if links_left:
                failure = _describe_failures([failed[-1]])
                reason = f"{failure}: asking {links_left[0].name} instead"
                yield Retrying(wait=0.0, reason=reason)
        raise _join_errors(failed)

    async def aclose(self) -> None:
        """Close the connections of all models."""
        for link in self._links:
            if isinstance(link.connected, Closable):
                await link.connected.aclose()

    async def _ask(self, link: "_Link", request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response of one model. `Done.by` names any model except the first."""
        is_first = link is self._links[0]
        link_request = request
        if not is_first:
            _, _, model = link.name.partition("/")
            link_request = replace(request, model=model)
        async with aclosing(link.provider().stream(link_request)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Done):
                    link.rests_until = float("-inf")
                    if not is_first:
                        delta = replace(delta, by=delta.by or link.name)
                yield delta

    def _pause(self, link: "_Link", error: ProviderError | BadInput) -> None:
        """Let a model rest after an error, so that the other models are asked first."""
        wait = 0.0
        if isinstance(error, Overloaded) and error.retry_after is not None:
            wait = error.retry_after
        link.rests_until = self._clock() + max(self._rest_seconds, wait)


class _Link:
    """A model of the chain, which is connected when it is first needed."""

    def __init__(self, name: str, make: Callable[[], Provider]) -> None:
        self.name, self._connect = name, make
        self.connected: Provider | None = None
        self.rests_until = float("-inf")  # on the clock of the chain

    def provider(self) -> Provider:
        """Return the provider of the model. The first call connects it."""
        if self.connected is None:
            self.connected = self._connect()
        return self.connected


def _describe_failures(failed: Sequence[tuple[_Link, ProviderError | BadInput]]) -> str:
    """Say of each model that failed whether it is down or could not be set up, and why."""
    sentences = list[str]()
    for link, error in failed:
        state = "is not available" if isinstance(error, BadInput) else "is down"
        sentences.append(f"{link.name} {state} ({error})")
    return "; ".join(sentences)


def _join_errors(
    failed: Sequence[tuple[_Link, ProviderError | BadInput]],
) -> ProviderError:
    """Return one error for all models. It allows a retry if the error of any model does."""
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
