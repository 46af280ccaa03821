"""What one server asks of the client, on its way to the session whose call is running.

The server is connected in a thread of its own, so a question goes through the channel of a
call and its answer comes back from another thread. Without a running call there is no one
to ask; a question that comes while the server is being connected waits for one. The number of model calls that a server may ask for is limited, for all its calls
together; one that continues to ask is stopped. `questions` and `sampling` handle the
requests where the session runs.

All starts offer the same capabilities: some servers list other tools to a client with
sampling, so a session with a user saw tools that `refold mcp test` and `-p` never saw.
Without a user, sampling is refused and a form is cancelled, each with the reason. Pins for
each set of capabilities would ask for the same tools twice.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Event
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from msgspec import Struct
from pydantic import ValidationError

from refold.errors import ToolFailed
from refold.mcp.channel import Channel, Elicitation, News, Sampling
from refold.mcp.sampling import Refusal
from refold.values.text import escape_outside

MAX_MODEL_CALLS = 20  # model calls of one server, while refold runs
_MAX_REQUESTS = 2 * MAX_MODEL_CALLS  # requests for them, after which it is stopped
_MAX_WAITING = 5  # questions that wait for a call, while the server is being connected
_UNREPORTED_SECONDS = 1.0  # that such a question waits before the user reads of it
_MAX_PAGES, _MAX_KNOWN_PAGES = 5, 50  # that one call needs, and whose end is awaited
_MAX_URL_CHARS = 1_000

Answer = TypeVar("Answer")


class ServerRequests:
    """The requests of one server. `stop` ends the connection, with the reason.

    `report` is called with a sentence for the user, without its subject.
    """

    def __init__(
        self, server: str, stop: Callable[[str], None], report: Callable[[str], None]
    ) -> None:
        self._server, self._stop, self._report = server, stop, report
        self._channels: list[Channel] = []
        self._limits: list[Limit] = []
        self._samples, self._waits = 0, False
        self._open = 0  # questions that wait for the user, or for a call that can put them
        self._listened = anyio.Event()  # whether there is a channel
        self._pages = dict[str, Event]()  # whether they are done, by their ids

    @contextmanager
    def send_to_session(self, channel: Channel) -> Generator[None]:
        """Send what the server asks to the session of this call, while it runs."""
        self._channels.append(channel)
        self._listened.set()
        try:
            yield
        finally:
            self._channels.remove(channel)
            if not self._channels:
                self._listened = anyio.Event()

    @contextmanager
    def limit(self, seconds: float, *, connecting: bool = False) -> Generator["Limit"]:
        """Like `anyio.fail_after`, but the time while the user is asked does not count.

        With `connecting`, a question that comes before the limit is lifted waits for a
        call, whose user is then asked.
        """
        with anyio.fail_after(float("inf") if self._open else seconds) as scope:
            limit = Limit(scope, seconds, connecting)
            self._limits.append(limit)
            try:
                yield limit
            finally:
                self._limits.remove(limit)

    def report_progress(self, text: str) -> None:
        """Pass on the progress of the running call, if there is one."""
        if self._channels:
            self._channels[-1].put(text)

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        if not self._channels:
            if self._open >= _MAX_WAITING or not any(e.connecting for e in self._limits):
                return types.ElicitResult(action="cancel")  # the user started nothing
            await self._wait_for_call()
        if isinstance(params, types.ElicitRequestURLParams):
            return await self._put_page(params)
        return await self._ask_session(
            Elicitation, params, types.ElicitResult(action="cancel")
        )

    async def _wait_for_call(self) -> None:
        """Wait for a call whose user can be asked. After a second, report that a question waits."""
        with self._pause_limits():
            with anyio.move_on_after(_UNREPORTED_SECONDS):
                await self._listened.wait()
            if not self._channels:
                self._report(
                    "asks something before it is ready: the question is shown with the next call of "
                    "one of its tools"
                )
                await self._listened.wait()

    async def visit_pages(self, error: MCPError) -> None:
        """Put the pages to the user that the server needs before a call, and wait until they are done.

        Raises `ToolFailed` if one is not opened, or the error if it names none.
        """
        try:
            pages = UrlElicitationRequiredError.from_error(error.error).elicitations
        except (ValidationError, AttributeError, TypeError):
            raise error from None
        if not 0 < len(pages) <= _MAX_PAGES:
            raise error
        for page in pages:
            result = await self._put_page(page, finish=True)
            if result.action != "accept":
                raise ToolFailed(
                    f"The MCP server {self._server} needs this page before the call: "
                    f"{escape_outside(page.url[:_MAX_URL_CHARS])}. It was not opened "
                    f"({result.action}), so the call was not made."
                )

    def note_page_done(self, page_id: str) -> None:
        """The server says that a page is done."""
        if (done := self._pages.pop(page_id, None)) is not None:
            done.set()
            self.report_progress(f"The page of the MCP server {self._server} is done.\n")

    async def _put_page(
        self, page: types.ElicitRequestURLParams, *, finish: bool = False
    ) -> types.ElicitResult:
        while len(self._pages) >= _MAX_KNOWN_PAGES:  # not all are ever done
            del self._pages[next(iter(self._pages))]
        done = self._pages[page.elicitation_id or ""] = Event()
        make_question = partial(Elicitation, page_done=done, finish=finish)
        return await self._ask_session(
            make_question, page, types.ElicitResult(action="cancel")
        )

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
            return await self._ask_session(Sampling, params, ended) or ended
        finally:
            self._waits = False

    async def _ask_session(
        self,
        kind: Callable[[str, Any, Callable[[Answer], None]], News],
        params: object,
        otherwise: Answer,
    ) -> Answer:
        answers: SimpleQueue[Answer] = SimpleQueue()
        self._channels[-1].put(kind(self._server, params, answers.put))
        try:
            with self._pause_limits():
                return await anyio.to_thread.run_sync(answers.get, abandon_on_cancel=True)
        finally:
            answers.put(otherwise)  # the thread must end

    @contextmanager
    def _pause_limits(self) -> Generator[None]:
        """Stop the clocks of all calls while a question is open, then start them again."""
        self._open += 1
        self._set_deadlines()
        try:
            yield
        finally:
            self._open -= 1
            self._set_deadlines()

    def _set_deadlines(self) -> None:
        for limit in self._limits:
            now = anyio.current_time()
            limit.scope.deadline = float("inf") if self._open else now + limit.seconds


class Limit(Struct, eq=False):
    """The time limit of one call, or of a connection."""

    scope: anyio.CancelScope
    seconds: float
    connecting: bool = False

    def lift(self) -> None:
        """Remove the time limit. The call or the connection continues."""
        self.seconds, self.connecting = float("inf"), False
        self.scope.deadline = float("inf")
