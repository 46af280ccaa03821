"""Shows the requests of a session in the editor: each is shown once, and answered once.

`person` words a request and reads the choice. Another client may answer first; then the
editor's answer no longer counts.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup
from msgspec import UNSET, Struct

from refold.acp.call_display import CallDisplay
from refold.acp.person import Person
from refold.client.protocol import ApprovalResponse, Order
from refold.client.session import Session
from refold.views.stream_json import documents

Request = documents.ToolApprovalRequest | documents.Question


class _Shown(Struct, frozen=True):
    scope: anyio.CancelScope
    of_child: bool


class OpenRequests:
    """`send` carries out an order; `show` returns how a call looks."""

    def __init__(
        self,
        session: Session,
        person: Person,
        show: Callable[[str, object], CallDisplay],
        send: Callable[[Order], Awaitable[None]],
        group: TaskGroup,
    ) -> None:
        self._session, self._person, self._show = session, person, show
        self._send, self._group = send, group
        self._shown = dict[str, _Shown]()

    async def put_all(self) -> None:
        """Show the requests that wait for an answer and were not shown yet."""
        for document in await self._session.waiting():
            if isinstance(document, documents.ToolApprovalRequest | documents.Question):
                self.put(document)

    def put(self, document: Request) -> None:
        over = (
            isinstance(document, documents.ToolApprovalRequest) and document.tool is UNSET
        )
        if document.call_id not in self._shown and not over:
            of_child = document.who is not UNSET and bool(document.who)
            self._shown[document.call_id] = _Shown(anyio.CancelScope(), of_child)
            self._group.start_soon(self._show_request, document)

    def settle(self, id_: str) -> bool:
        """Close a request that a client answered. Return True if a subagent had asked."""
        shown = self._shown.pop(id_, None)
        if shown is not None:
            shown.scope.cancel()
        return shown is not None and shown.of_child

    def forget(self) -> None:
        """Close all requests: the turn is over, and no answer counts any more."""
        for id_ in tuple(self._shown):
            self.settle(id_)

    async def _show_request(self, document: Request) -> None:
        shown = self._shown.get(document.call_id)
        if shown is None:
            return
        with shown.scope, suppress(ConnectionError):
            await self._send(await self._order(document))

    async def _order(self, document: Request) -> Order:
        directory = self._session.workspace.directory
        try:
            if isinstance(document, documents.Question):
                return await self._person.ask_questions(document)
            return await self._person.ask_permission(document, self._show, directory)
        except ValueError as error:  # an answer that fits none of the SDK's models
            reason = f"the editor sent an invalid answer: {error}"
            return ApprovalResponse(document.call_id, False, document.hash, reason)
