"""One session that an editor has open: sends the editor its updates, and runs its prompts.

It follows the documents of the session as any client does. `session_updates` makes updates
of them, `person` asks; `editor_agent` has the sessions by their ids.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from uuid import uuid4

import anyio
import msgspec
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    PromptResponse,
    Usage,
    UsageUpdate,
)
from anyio import to_thread
from anyio.abc import TaskGroup
from msgspec import UNSET, Struct

from refold.acp import session_choices
from refold.acp.call_display import CallDisplay, call_display
from refold.acp.commands import available_commands, is_command, run_command
from refold.acp.open_requests import OpenRequests
from refold.acp.person import Person
from refold.acp.prompt_content import PromptMessage
from refold.acp.session_updates import (
    SessionUpdates,
    Update,
    answer_chunk,
    progress,
    thinking_chunk,
)
from refold.client.event_documents import Cursor, parse_cursor
from refold.client.feed import Follower
from refold.client.host import Conversation, Host
from refold.client.protocol import Cancel, Order, SendMessage
from refold.client.types import ImageData
from refold.commands.table import find
from refold.errors import BadInput
from refold.views.stream_json import documents
from refold.views.stream_json.encode import Document
from refold.views.stream_json.snapshot import (
    EffortChanged,
    ModeChanged,
    ModelChanged,
    Status,
)


class _Place(Struct, frozen=True):
    """The position of a document in the journal; "" for one without."""

    id: str = ""


_DOCUMENT, _PLACE = msgspec.json.Decoder(Document), msgspec.json.Decoder(_Place)
_TURN_RUNNING = "a turn of this session is running: wait for its end, or cancel it"
_SESSION_CLOSED = "the session was closed"
_INTERNAL_ERROR = -32603
_STOP_REASONS = {
    "interrupted": "cancelled", "cancelled": "cancelled", "step_limit": "max_turn_requests",
}  # fmt: skip
_OF_ANSWER = {"length": "max_tokens", "refused": "refusal"}
# Outcomes whose reason the person sees.
_REPORTED_OUTCOMES = ("stuck", "budget", "step_limit")


class EditorCan(Struct, frozen=True):
    """The options of the protocol that the editor supports."""

    forms: bool = False
    draws: bool = False  # terminals of an agent, from metadata, as several editors do


class _Turn:
    """A prompt, from its message to the end of its turn."""

    def __init__(self) -> None:
        self.key, self.message = f"acp-{uuid4().hex}", 0
        # A turn has the message; it is being stopped; it was stopped before it began.
        self.begun = self.cancelled = self.dropped = False
        self.empty = False  # there was nothing to do
        self.answer = ""  # why the newest response stopped
        self.result: documents.Result | None = None
        self.error = ""
        self.over = anyio.Event()

    def end(self, result: documents.Result | None, error: str = "") -> None:
        self.result, self.error = result, error
        self.over.set()


class OpenSession:
    """An open session. Run `follow` in a task, and wait for `started` before you use it."""

    def __init__(
        self,
        conversation: Conversation,
        editor: Client,
        group: TaskGroup,
        can: EditorCan,
    ) -> None:
        self.conversation, self.session = conversation, conversation.session
        self.id = self.session.id
        self._editor = editor
        self._person = Person(editor, self.id, forms=can.forms)
        self._updates = SessionUpdates(self._show, self._directory, terminals=can.draws)
        self._follower = Follower()
        self._requests = OpenRequests(
            self.session, self._person, self._show, self._send_order, group
        )
        self._turn: _Turn | None = None
        self._own = set[str]()  # the keys of messages that the editor shows already
        self.started = anyio.Event()
        self.closed = False

    async def follow(self, after: Cursor | None) -> None:
        """Send what follows `after` (None: only new events), until the session is closed."""
        try:
            while True:
                last = await self._follow(after)
                if not self._follower.cut_off:
                    return
                after = last or after
        except Exception as error:  # a bug in one session must not end the others
            if self._turn is not None:
                text = f"refold itself failed: {type(error).__name__}: {error}"
                self._turn.end(None, text)
            logging.exception("updates no longer reach the editor's session")
        finally:
            self.closed = True
            self.started.set()
            if self._turn is not None and not self._turn.over.is_set():
                self._turn.end(None, _SESSION_CLOSED)

    async def leave(self) -> None:
        """Send no more updates; the session stays open."""
        self._follower.close()

    async def prompt(self, message: PromptMessage, host: Host) -> PromptResponse:
        """Run a command, or send a message and wait for the end of its turn."""
        launch = self.conversation.launch
        text, typed = message.text, None
        if not (is_command(message.typed) and find(message.typed.split()[0][1:])):
            text, typed = await launch.expand(message.typed, message.text)
        if is_command(message.typed) and text == message.text:
            return await run_command(message.typed, self, self._person, host)
        return await self._run(partial(self._send, text, message.images, typed))

    async def say(self, text: str, typed: str | None) -> PromptResponse:
        return await self._run(partial(self._send, text, (), typed))

    async def carry_out(
        self, start: Callable[[], Awaitable[object]] | None
    ) -> PromptResponse:
        async def begin(turn: _Turn) -> None:
            turn.begun = True
            if start is not None:
                await start()
            self.conversation.continue_turn()
            if not (self.session.has_work or self.session.running):
                turn.empty = True
                turn.end(None)

        return await self._run(begin)

    async def _run(self, begin: Callable[[_Turn], Awaitable[None]]) -> PromptResponse:
        if self._turn is not None:
            raise BadInput(_TURN_RUNNING)
        turn = self._turn = _Turn()
        self._own.add(turn.key)
        try:
            for notice in await self.conversation.notices():
                await self.send_update(thinking_chunk(f"refold: {notice}\n\n"))
            await begin(turn)
            await self._requests.put_all()
            while True:
                await turn.over.wait()
                result = turn.result
                if turn.empty and turn.result is None:
                    return PromptResponse(stop_reason="end_turn")
                if turn.dropped:
                    return PromptResponse(stop_reason="cancelled")
                if result is None:
                    raise RequestError(_INTERNAL_ERROR, turn.error)
                if result.plan is UNSET or not await self._decide_plan(result.plan, turn):
                    break
            await self._report_outcome(result)
            return _response(result, turn)
        finally:
            self._turn = None

    async def cancel(self) -> None:
        """Stop the turn, even one that has not begun yet."""
        if self._turn is not None:
            self._turn.cancelled = True
        await self._send_order(Cancel())

    async def send_update(self, update: Update) -> None:
        with suppress(ConnectionError):  # the editor disconnected
            await self._editor.session_update(session_id=self.id, update=update)

    async def tell_commands(self) -> None:
        commands = await to_thread.run_sync(available_commands, self.session)
        await self.send_update(
            AvailableCommandsUpdate(
                session_update="available_commands_update", available_commands=commands
            )
        )

    async def _follow(self, after: Cursor | None) -> Cursor | None:
        """Send documents until cut off. Return the place of the last one."""
        last = None
        follower = self._follower = await self.conversation.join(after)
        try:
            async for batch in follower.batches():
                for data in batch:
                    place = _PLACE.decode(data).id
                    last = parse_cursor(place) if place else last
                    await self._on_document(_DOCUMENT.decode(data))
        finally:
            self.conversation.leave(follower)
        return last

    async def _on_document(self, document: Document) -> None:
        if isinstance(document, Status):
            first = not self.started.is_set()
            self.started.set()
            if first and self.session.running:
                await self._requests.put_all()
        elif self.started.is_set():
            await self._handle_live(document)
        if not self._is_own(document):
            for update in self._updates.updates_of(document):
                await self.send_update(update)
        if isinstance(document, documents.Result):
            await self._end_turn(document)

    async def _handle_live(self, document: Document) -> None:
        """Handle a document of a new event, not one repeated from the journal."""
        match document:
            case documents.ToolApprovalRequest() | documents.Question():
                self._requests.put(document)
            case documents.ToolApprovalResult(call_id=id_, verdict=verdict):
                if self._requests.settle(id_):  # nothing else is sent about that call
                    status = "completed" if verdict == "allow" else "failed"
                    await self.send_update(progress(id_, status))
            case ModeChanged(mode=mode):
                update = CurrentModeUpdate(
                    session_update="current_mode_update", current_mode_id=mode
                )
                await self.send_update(update)
                await self._tell_options()
            case ModelChanged() | EffortChanged():
                await self._tell_options()
            case _:
                if self._turn is not None:
                    self._update_turn(document, self._turn)

    def _update_turn(self, document: Document, turn: _Turn) -> None:
        match document:
            case documents.UserMessage(client_key=key, seq=seq) if key == turn.key:
                turn.message = seq
            case documents.Delivered(messages=messages) if turn.message in messages:
                turn.begun = True
            case documents.TurnStart():
                turn.begun = turn.begun or bool(turn.message)
            case documents.Interrupted() if turn.message and not turn.begun:
                turn.dropped = True  # no turn begins with that message any more
                turn.end(None)
            case documents.AssistantMessage(stop=stop):
                turn.answer = stop
            case documents.Error(reason=reason) if document.seq is UNSET:
                key = "" if document.client_key is UNSET else document.client_key
                if key in ("", turn.key):  # others are about answers, or a cancellation
                    turn.end(None, reason)
            case _:
                return

    def _is_own(self, document: Document) -> bool:
        return (
            isinstance(document, documents.UserMessage) and document.client_key in self._own
        )

    async def _end_turn(self, result: documents.Result) -> None:
        turn = self._turn
        if turn is None or not turn.begun:
            return
        self._requests.forget()
        await self._tell_usage()
        turn.end(result)

    async def _decide_plan(self, plan: documents.WaitingPlan, turn: _Turn) -> bool:
        """Ask about the plan. Return True if it is carried out: its turn has begun."""
        order = await self._person.ask_about_plan(plan)
        if order is None or turn.cancelled:
            return False
        turn.over = anyio.Event()
        await self._send_order(order)
        return order.approved

    async def _send(
        self, text: str, images: tuple[ImageData, ...], typed: str | None, turn: _Turn
    ) -> None:
        order = SendMessage(text, images=images, typed=typed, client_key=turn.key)
        await self._send_order(order)
        if turn.cancelled:
            await self._send_order(Cancel())

    async def _send_order(self, order: Order) -> None:
        """Send an order. Problems come back as documents with its key."""
        if not order.client_key:
            order = msgspec.structs.replace(order, client_key=f"acp-{uuid4().hex}")
        await self.conversation.receive(msgspec.json.encode(order), self._follower)

    async def _report_outcome(self, result: documents.Result) -> None:
        if result.outcome == "failed":
            raise RequestError(_INTERNAL_ERROR, result.reason or "the turn failed")
        if result.outcome in _REPORTED_OUTCOMES:
            await self.send_update(answer_chunk(f"{result.outcome}: {result.reason}"))

    async def _tell_usage(self) -> None:
        context = self.session.reports.context()
        spent = self.session.status.cost
        known = spent is not None and math.isfinite(spent)
        cost = Cost(amount=spent or 0.0, currency="USD") if known else None
        await self.send_update(
            UsageUpdate(
                session_update="usage_update",
                used=context.used_tokens,
                size=context.window,
                cost=cost,
            )
        )

    async def _tell_options(self) -> None:
        await self.send_update(
            ConfigOptionUpdate(
                session_update="config_option_update",
                config_options=session_choices.options(self.session),
            )
        )

    @property
    def _directory(self) -> str:
        return self.session.workspace.directory

    def _show(self, tool: str, arguments: object) -> CallDisplay:
        return call_display(tool, arguments, self.session.tool(tool), self._directory)


def _response(result: documents.Result, turn: _Turn) -> PromptResponse:
    stop = _STOP_REASONS.get(result.outcome) or _OF_ANSWER.get(turn.answer, "end_turn")
    used = result.usage
    return PromptResponse.model_validate(
        {
            "stopReason": stop,
            "usage": Usage(
                input_tokens=used.fresh, output_tokens=used.output,
                cached_read_tokens=used.cached, cached_write_tokens=used.cache_write,
                thought_tokens=used.reasoning, total_tokens=used.input + used.output,
            ),
        }
    )  # fmt: skip
