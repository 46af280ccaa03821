"""Passes a server's requests to the session that has called a tool of the server.

The server is connected in a separate thread: its question goes to the session through the
channel of a call, and the answer comes back. Without a running call, no user can be asked; only
a question of a server that is being connected waits for a call. The number of model calls that
a server may request is limited for all its calls together; a server that continues to ask is
stopped. `questions` and `sampling` handle the requests in the session.

Some servers list other tools to a client with sampling. So sessions, `refold mcp test` and `-p`
all declare the same capabilities: otherwise the user would have to accept the tools of each
separately. Without a user, sampling is refused and a form is cancelled, with the reason.
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

MAX_MODEL_CALLS = 20  # of one server, while refold runs
_MAX_REQUESTS = 2 * MAX_MODEL_CALLS  # for model calls; then the server is stopped
_MAX_WAITING = 5  # questions that wait for a call, while the server is being connected
_UNREPORTED_SECONDS = 1.0  # before the user is notified of such a question
# pages that one call may need, and unfinished pages that are remembered
_MAX_PAGES, _MAX_KNOWN_PAGES = 5, 50
_MAX_URL_CHARS = 1_000

Answer = TypeVar("Answer")


class ServerRequests:
    """Handles the requests of one server. `stop` is called with a reason to end the connection.

    `report` is called with a sentence for the user without its subject, the server.
    """

    def __init__(
        self, server: str, stop: Callable[[str], None], report: Callable[[str], None]
    ) -> None:
        self._server, self._stop, self._report = server, stop, report
        self._channels: list[Channel] = []
        self._limits: list[Limit] = []
        self._sample_count, self._is_sampling = 0, False
        self._open_questions = 0  # that wait for the user, or for a call that can ask them
        self._has_channel = anyio.Event()
        # events that are set when the user has finished pages, by page id
        self._pages = dict[str, Event]()

    @contextmanager
    def send_to_session(self, channel: Channel) -> Generator[None]:
        """Send the server's requests to the session that reads `channel`, within the block."""
        self._channels.append(channel)
        self._has_channel.set()
        try:
            yield
        finally:
            self._channels.remove(channel)
            if not self._channels:
                self._has_channel = anyio.Event()

    @contextmanager
    def limit(self, seconds: float, *, connecting: bool = False) -> Generator["Limit"]:
        """Limit the time of the block like `anyio.fail_after`, but not while the user is asked.

        With `connecting`, a question of the server waits for a call whose user can be asked.
        """
        seconds_left = float("inf") if self._open_questions else seconds
        with anyio.fail_after(seconds_left) as scope:
            limit = Limit(scope, seconds, connecting)
            self._limits.append(limit)
            try:
                yield limit
            finally:
                self._limits.remove(limit)

    def report_progress(self, text: str) -> None:
        """Pass a progress text to the session of the latest call, if there is a call."""
        if self._channels:
            self._channels[-1].put(text)

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the user, and return the answer.

        Without a running call, the question is cancelled, unless the server is being connected:
        then it waits for a call.
        """
        if not self._channels:
            is_connecting = any(limit.connecting for limit in self._limits)
            if not is_connecting or self._open_questions >= _MAX_WAITING:
                return types.ElicitResult(action="cancel")
            await self._wait_for_call()
        if isinstance(params, types.ElicitRequestURLParams):
            return await self._put_page(params)
        return await self._ask_session(
            Elicitation, params, types.ElicitResult(action="cancel")
        )

    async def _wait_for_call(self) -> None:
        """Wait for a call whose user can be asked.

        After a second, report that a question waits.
        """
        with self._pause_limits():
            with anyio.move_on_after(_UNREPORTED_SECONDS):
                await self._has_channel.wait()
            if not self._channels:
                self._report(
                    "asks something before it is ready: the question is shown with the next call of "
                    "one of its tools"
                )
                await self._has_channel.wait()

    async def visit_pages(self, error: MCPError) -> None:
        """Ask the user to visit the pages that an error names, and wait until that is done.

        Raises `ToolFailed` if the user does not open a page, and `error` itself if it names no
        page, or too many.
        """
        try:
            pages = UrlElicitationRequiredError.from_error(error.error).elicitations
        except (ValidationError, AttributeError, TypeError):
            raise error from None
        if not 0 < len(pages) <= _MAX_PAGES:
            raise error
        for page in pages:
            result = await self._put_page(page, wait_for_page=True)
            if result.action != "accept":
                raise ToolFailed(
                    f"The MCP server {self._server} needs this page before the call: "
                    f"{escape_outside(page.url[:_MAX_URL_CHARS])}. It was not opened "
                    f"({result.action}), so the call was not made."
                )

    def note_page_finished(self, page_id: str) -> None:
        """Record that the user has finished a page, which the server has reported."""
        if (finished := self._pages.pop(page_id, None)) is not None:
            finished.set()
            self.report_progress(f"The page of the MCP server {self._server} is done.\n")

    async def _put_page(
        self, page: types.ElicitRequestURLParams, *, wait_for_page: bool = False
    ) -> types.ElicitResult:
        """Ask the user to open a page, and return the answer.

        With `wait_for_page`, wait until the user has finished the page.
        """
        while len(self._pages) >= _MAX_KNOWN_PAGES:  # some pages are never finished
            oldest = next(iter(self._pages))
            del self._pages[oldest]
        finished = self._pages[page.elicitation_id or ""] = Event()
        make_question = partial(
            Elicitation, page_finished=finished, wait_for_page=wait_for_page
        )
        return await self._ask_session(
            make_question, page, types.ElicitResult(action="cancel")
        )

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Let the session call the user's model, and return the response.

        Refuse if the server asks too often, or if none of its tools is running.
        """
        self._sample_count += 1
        if self._sample_count > _MAX_REQUESTS:
            self._stop(
                f"it asked for more than {_MAX_REQUESTS} model calls, and was stopped"
            )
        if self._sample_count > MAX_MODEL_CALLS:
            return Refusal(
                f"a server gets at most {MAX_MODEL_CALLS} model calls"
            ).as_error()
        if not self._channels or self._is_sampling:
            return Refusal("one model call at a time, while a tool runs").as_error()
        self._is_sampling = True
        try:
            ended = Refusal("the session has ended").as_error()
            # The session answers None if its model call raised an error.
            return await self._ask_session(Sampling, params, ended) or ended
        finally:
            self._is_sampling = False

    async def _ask_session(
        self,
        make_request: Callable[[str, Any, Callable[[Answer], None]], News],
        params: object,
        placeholder: Answer,
    ) -> Answer:
        """Send a request to the session of the latest call, and return the session's answer.

        A thread waits for the answer. If this task is cancelled, the thread gets `placeholder`.
        """
        answers: SimpleQueue[Answer] = SimpleQueue()
        self._channels[-1].put(make_request(self._server, params, answers.put))
        try:
            with self._pause_limits():
                return await anyio.to_thread.run_sync(answers.get, abandon_on_cancel=True)
        finally:
            answers.put(placeholder)

    @contextmanager
    def _pause_limits(self) -> Generator[None]:
        """Stop the clocks of all calls within the block, while a question is open."""
        self._open_questions += 1
        self._set_deadlines()
        try:
            yield
        finally:
            self._open_questions -= 1
            self._set_deadlines()

    def _set_deadlines(self) -> None:
        """Remove all deadlines while a question is open; otherwise restart each call's time."""
        for limit in self._limits:
            seconds_left = float("inf") if self._open_questions else limit.seconds
            limit.scope.deadline = anyio.current_time() + seconds_left


class Limit(Struct, eq=False):
    """The time limit of one call, or of connecting."""

    scope: anyio.CancelScope
    seconds: float
    connecting: bool = False

    def lift(self) -> None:
        """Remove the time limit. The call or the connection continues."""
        self.seconds, self.connecting = float("inf"), False
        self.scope.deadline = float("inf")
