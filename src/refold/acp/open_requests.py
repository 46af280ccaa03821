"""Shows the requests of a session in the editor. Each request is shown once, and answered once.

`user_questions` formulates a request and reads the choice. If another client answers first, the
editor's answer no longer counts.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup
from msgspec import UNSET, Struct

from refold.acp.call_display import CallDisplay
from refold.acp.user_questions import Person
from refold.client.protocol import ApprovalResponse, Order
from refold.client.session import Session
from refold.views.stream_json import documents

Request = documents.ToolApprovalRequest | documents.Question


class _Shown(Struct, frozen=True):
    """A request that the editor shows, until its scope is cancelled."""

    scope: anyio.CancelScope
    of_child: bool


class OpenRequests:
    """The requests of a session that wait for an answer.

    `send` carries out an order; `show` returns the display of a call.
    """

    def __init__(
        self,
        session: Session,
        person: Person,
        show: Callable[[str, object], CallDisplay],
        send: Callable[[Order], Awaitable[None]],
        group: TaskGroup,
    ) -> None:
        self._session = session
        self._person = person
        self._show = show
        self._send = send
        self._group = group
        self._shown = dict[str, _Shown]()  # the requests that the editor shows, by call

    async def show_waiting(self) -> None:
        """Show the requests that wait for an answer and were not shown yet."""
        for document in await self._session.waiting():
            if isinstance(document, documents.ToolApprovalRequest | documents.Question):
                self.put(document)

    def put(self, document: Request) -> None:
        """Show a request, unless the editor shows it already or its call is over."""
        if document.call_id in self._shown:
            return
        is_approval = isinstance(document, documents.ToolApprovalRequest)
        if is_approval and document.tool is UNSET:  # then the call is over
            return
        of_child = document.who is not UNSET and bool(document.who)
        self._shown[document.call_id] = _Shown(anyio.CancelScope(), of_child)
        self._group.start_soon(self._show_request, document)

    def settle(self, id_: str) -> bool:
        """Close the request with this id, which a client has answered.

        Return True if the editor showed the request and a subagent had made it.
        """
        shown = self._shown.pop(id_, None)
        if shown is not None:
            shown.scope.cancel()
        return shown is not None and shown.of_child

    def forget(self) -> None:
        """Close all requests, because the turn is over and answers no longer count."""
        for id_ in tuple(self._shown):
            self.settle(id_)

    async def _show_request(self, document: Request) -> None:
        """Ask the user in the editor, and send the answer, unless the request was settled."""
        shown = self._shown.get(document.call_id)
        if shown is None:
            return
        with shown.scope, suppress(ConnectionError):
            await self._send(await self._ask(document))

    async def _ask(self, document: Request) -> Order:
        """Ask the user, and return the answer; a refusal if the editor's answer is invalid."""
        directory = self._session.workspace.directory
        try:
            if isinstance(document, documents.Question):
                return await self._person.ask_questions(document)
            return await self._person.ask_permission(document, self._show, directory)
        except ValueError as error:  # an answer that matches none of the SDK's models
            reason = f"the editor sent an invalid answer: {error}"
            return ApprovalResponse(
                document.call_id, allowed=False, hash=document.hash, reason=reason
            )
