"""What one server asks of the client, on its way to the session whose call is running.

The server is connected in a thread of its own, so a question goes through the channel of a
call and its answer comes back from another thread. Without a running call there is no one
to ask. The number of model calls that a server may ask for is limited, for all its calls
together; one that continues to ask is stopped. `questions` and `sampling` handle the
requests where the session runs.

All starts offer the same capabilities: some servers list other tools to a client with
sampling, so a session with a user saw tools that `refold mcp test` and `-p` never saw.
Without a user, sampling is refused and a form is cancelled, each with the reason. Pins for
each set of capabilities would ask for the same tools twice.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.client.session import ClientRequestContext
from msgspec import Struct

from refold.mcp.channel import Channel, Elicitation, News, Sampling
from refold.mcp.sampling import Refusal

MAX_MODEL_CALLS = 20  # model calls of one server, while refold runs
_MAX_REQUESTS = 2 * MAX_MODEL_CALLS  # requests for them, after which it is stopped

Answer = TypeVar("Answer")


class ServerRequests:
    """The requests of one server. `stop` ends the connection, with the reason."""

    def __init__(self, server: str, stop: Callable[[str], None]) -> None:
        self._server, self._stop = server, stop
        self._channels: list[Channel] = []
        self._limits: list[_Limit] = []
        self._samples, self._waits = 0, False
        self._open = 0  # questions that wait for the user

    @contextmanager
    def during(self, channel: Channel) -> Generator[None]:
        """Send what the server asks to the session of this call, while it runs."""
        self._channels.append(channel)
        try:
            yield
        finally:
            self._channels.remove(channel)

    @contextmanager
    def limit(self, seconds: float) -> Generator[None]:
        """Like `anyio.fail_after`, but the time while the user is asked does not count."""
        with anyio.fail_after(seconds) as scope:
            limit = _Limit(scope, seconds)
            self._limits.append(limit)
            try:
                yield
            finally:
                self._limits.remove(limit)

    def tell(self, text: str) -> None:
        """Pass on the progress of the running call, if there is one."""
        if self._channels:
            self._channels[-1].put(text)

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        if not self._channels:  # no call runs, so the user started nothing
            return types.ElicitResult(action="cancel")
        return await self._put(Elicitation, params, types.ElicitResult(action="cancel"))

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        self._samples += 1
        if self._samples > _MAX_REQUESTS:
            self._stop(
                f"it asked for more than {_MAX_REQUESTS} model calls, and was stopped"
            )
        if self._samples > MAX_MODEL_CALLS:
            return Refusal(
                f"a server gets at most {MAX_MODEL_CALLS} model calls"
            ).as_error()
        if not self._channels or self._waits:
            return Refusal("one model call at a time, while a tool runs").as_error()
        self._waits = True
        try:
            ended = Refusal("the session has ended").as_error()
            return await self._put(Sampling, params, ended) or ended
        finally:
            self._waits = False

    async def _put(
        self,
        kind: Callable[[str, Any, Callable[[Answer], None]], News],
        params: object,
        otherwise: Answer,
    ) -> Answer:
        answers: SimpleQueue[Answer] = SimpleQueue()
        self._channels[-1].put(kind(self._server, params, answers.put))
        self._pause(1)
        try:
            return await anyio.to_thread.run_sync(answers.get, abandon_on_cancel=True)
        finally:
            self._pause(-1)
            answers.put(otherwise)  # the thread must end

    def _pause(self, questions: int) -> None:
        """Stop the clocks of all calls while a question is open, then start them again."""
        self._open += questions
        for limit in self._limits:
            now = anyio.current_time()
            limit.scope.deadline = float("inf") if self._open else now + limit.seconds


class _Limit(Struct, eq=False):
    """The time limit of one call."""

    scope: anyio.CancelScope
    seconds: float
