"""One session that is open in an editor: sends its updates to the editor, and runs prompts.

An `OpenSession` follows the documents of the session as any client does. `session_updates`
converts documents to updates, and `user_questions` asks the user. `editor_agent` has the
sessions by their ids.
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
from refold.acp.prompt_content import PromptMessage
from refold.acp.session_updates import (
    SessionUpdates,
    Update,
    answer_chunk,
    progress,
    thinking_chunk,
)
from refold.acp.user_questions import Person
from refold.client.event_documents import Cursor, parse_cursor
from refold.client.feed import Follower
from refold.client.host import Conversation, Host
from refold.client.protocol import Cancel, Order, SendMessage
from refold.client.types import ImageData
from refold.commands.table import find_command
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
    """The position of a document in the journal; "" for a document without a position."""

    id: str = ""


_DOCUMENT_DECODER = msgspec.json.Decoder(Document)
_PLACE_DECODER = msgspec.json.Decoder(_Place)
_TURN_RUNNING = "a turn of this session is running: wait for its end, or cancel it"
_SESSION_CLOSED = "the session was closed"
_INTERNAL_ERROR = -32603
_STOP_REASONS_BY_OUTCOME = {
    "interrupted": "cancelled", "cancelled": "cancelled", "step_limit": "max_turn_requests",
}  # fmt: skip
_STOP_REASONS_BY_RESPONSE = {"length": "max_tokens", "refused": "refusal"}
# Outcomes whose reason is shown to the user.
_REPORTED_OUTCOMES = ("stuck", "budget", "step_limit")


class EditorFeatures(Struct, frozen=True):
    """The optional features of the protocol that the editor supports."""

    forms: bool = False
    draws: bool = False  # terminals of an agent, by metadata that several editors support


class _Turn:
    """A prompt of the editor, from its message to the end of its turn."""

    def __init__(self) -> None:
        self.key = f"acp-{uuid4().hex}"
        self.message = 0  # the number of the event of its message, once it is recorded
        self.begun = False  # whether a turn has the message
        self.cancelled = False  # whether it is being stopped
        self.dropped = False  # whether it was stopped before it began
        self.empty = False  # whether the command had no turn to run
        self.response_stop = ""  # the reason why the newest response stopped
        self.result: documents.Result | None = None
        self.error = ""
        self.over = anyio.Event()

    def end(self, result: documents.Result | None, error: str = "") -> None:
        self.result, self.error = result, error
        self.over.set()


class OpenSession:
    """A session that is open in an editor.

    Run `follow` in a task, and wait for `started` before anything else.
    """

    def __init__(
        self,
        conversation: Conversation,
        editor: Client,
        group: TaskGroup,
        features: EditorFeatures,
    ) -> None:
        self.conversation = conversation
        self.session = conversation.session
        self.id = self.session.id
        self._editor = editor
        self._person = Person(editor, self.id, forms=features.forms)
        self._updates = SessionUpdates(
            self._display_of, self._directory, terminals=features.draws
        )
        self._follower = Follower()
        self._requests = OpenRequests(
            self.session, self._person, self._display_of, self._send_order, group
        )
        self._turn: _Turn | None = None
        self._own_keys = set[str]()  # the keys of messages that the editor already shows
        self.started = anyio.Event()  # set when the editor has all earlier documents
        self.closed = False

    async def follow(self, after: Cursor | None) -> None:
        """Send all updates after the position `after` until the session is closed.

        If `after` is None, send only new updates.
        """
        try:
            while True:
                last = await self._follow(after)
                if not self._follower.cut_off:
                    return
                if last is not None:
                    after = last
        except Exception as error:  # a bug in one session must not stop the others
            if self._turn is not None:
                text = f"refold itself failed: {type(error).__name__}: {error}"
                self._turn.end(None, error=text)
            logging.exception("updates no longer reach the editor's session")
        finally:
            self.closed = True
            self.started.set()
            if self._turn is not None and not self._turn.over.is_set():
                self._turn.end(None, error=_SESSION_CLOSED)

    async def leave(self) -> None:
        """Stop sending updates. The session stays open."""
        self._follower.close()

    async def prompt(self, message: PromptMessage, host: Host) -> PromptResponse:
        """Run a command, or send a message and wait for the end of its turn."""
        looks_like_command = is_command(message.typed)
        if looks_like_command:
            first_word, *_ = message.typed.split()
            is_command_of_refold = find_command(first_word.removeprefix("/")) is not None
            if is_command_of_refold:
                return await run_command(message.typed, self, self._person, host)
        # Templates, skills and prompts of servers are expanded to text.
        launch = self.conversation.launch
        text, typed = await launch.expand(message.typed, message.text)
        is_expanded = text != message.text
        if looks_like_command and not is_expanded:
            # `run_command` reports that there is no such command
            return await run_command(message.typed, self, self._person, host)
        return await self._run(partial(self._send, text, message.images, typed))

    async def say(self, text: str, typed: str | None) -> PromptResponse:
        return await self._run(partial(self._send, text, (), typed))

    async def carry_out(
        self, start: Callable[[], Awaitable[object]] | None
    ) -> PromptResponse:
        """Run the turn that `start` begins; if `start` is None, run the turn that is
        waiting.
        """

        async def begin(turn: _Turn) -> None:
            """Begin the turn; if the session has nothing to run, end it as empty."""
            turn.begun = True
            if start is not None:
                await start()
            self.conversation.continue_turn()
            if not (self.session.has_work or self.session.running):
                turn.empty = True
                turn.end(None)

        return await self._run(begin)

    async def _run(self, begin: Callable[[_Turn], Awaitable[None]]) -> PromptResponse:
        """Begin a turn, show what happens, and return the response at its end."""
        if self._turn is not None:
            raise BadInput(_TURN_RUNNING)
        turn = self._turn = _Turn()
        self._own_keys.add(turn.key)
        try:
            for notice in await self.conversation.notices():
                await self.send_update(thinking_chunk(f"refold: {notice}\n\n"))
            await begin(turn)
            await self._requests.show_waiting()
            while True:
                await turn.over.wait()
                result = turn.result
                if turn.empty and result is None:
                    return PromptResponse(stop_reason="end_turn")
                if turn.dropped:
                    return PromptResponse(stop_reason="cancelled")
                if result is None:
                    raise RequestError(_INTERNAL_ERROR, turn.error)
                plan = result.plan
                if plan is UNSET or not await self._decide_plan(plan, turn):
                    await self._report_outcome(result)
                    return _response(result, turn)
                # the plan was approved, and the turn that carries it out has begun
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
        """Send documents until the connection is cut off.

        Return the position of the last document.
        """
        last: Cursor | None = None
        follower = await self.conversation.join(after)
        self._follower = follower
        try:
            async for batch in follower.batches():
                for data in batch:
                    position = _PLACE_DECODER.decode(data).id
                    if position:  # "": the document belongs to no event
                        last = parse_cursor(position)
                    await self._on_document(_DOCUMENT_DECODER.decode(data))
        finally:
            self.conversation.leave(follower)
        return last

    async def _on_document(self, document: Document) -> None:
        """Send the updates for a document.

        The first status shows that all earlier documents have been sent.
        """
        if isinstance(document, Status):
            is_first = not self.started.is_set()
            self.started.set()
            if is_first and self.session.running:
                await self._requests.show_waiting()
        elif self.started.is_set():
            await self._handle_live(document)
        if not self._is_own(document):
            for update in self._updates.updates_of(document):
                await self.send_update(update)
        if isinstance(document, documents.Result):
            await self._end_turn(document)

    async def _handle_live(self, document: Document) -> None:
        """Handle a document of an event that happened after the session was opened here.

        Documents that repeat earlier events from the journal are not passed to this method.
        """
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
        """Note in the prompt's turn what the document says about it."""
        match document:
            case documents.UserMessage(client_key=key, seq=seq) if key == turn.key:
                turn.message = seq
            case documents.Delivered(messages=messages) if turn.message in messages:
                turn.begun = True
            case documents.TurnStart():
                turn.begun = turn.begun or bool(turn.message)
            case documents.Interrupted() if turn.message and not turn.begun:
                turn.dropped = True  # no turn will begin with that message
                turn.end(None)
            case documents.AssistantMessage(stop=stop):
                turn.response_stop = stop
            case documents.Error(reason=reason) if document.seq is UNSET:
                key = "" if document.client_key is UNSET else document.client_key
                # other keys belong to answers, or to a cancellation
                if key in ("", turn.key):
                    turn.end(None, error=reason)
            case _:
                return

    def _is_own(self, document: Document) -> bool:
        """Return whether the document is a message that the editor sent, and so shows."""
        return (
            isinstance(document, documents.UserMessage)
            and document.client_key in self._own_keys
        )

    async def _end_turn(self, result: documents.Result) -> None:
        """End the editor's turn with this result, unless the editor has begun none."""
        turn = self._turn
        if turn is None or not turn.begun:
            return
        self._requests.forget()
        await self._tell_usage()
        turn.end(result)

    async def _decide_plan(self, plan: documents.WaitingPlan, turn: _Turn) -> bool:
        """Ask the user about the plan.

        Return True if the plan was approved, so that its turn has begun.
        """
        order = await self._person.ask_about_plan(plan)
        if order is None or turn.cancelled:
            return False
        turn.over = anyio.Event()
        await self._send_order(order)
        return order.approved

    async def _send(
        self, text: str, images: tuple[ImageData, ...], typed: str | None, turn: _Turn
    ) -> None:
        """Send the message of the turn; stop the turn if it was cancelled meanwhile."""
        order = SendMessage(text, images=images, typed=typed, client_key=turn.key)
        await self._send_order(order)
        if turn.cancelled:
            await self._send_order(Cancel())

    async def _send_order(self, order: Order) -> None:
        """Send an order. Problems are reported in documents with the order's key."""
        if not order.client_key:
            order = msgspec.structs.replace(order, client_key=f"acp-{uuid4().hex}")
        await self.conversation.receive(msgspec.json.encode(order), self._follower)

    async def _report_outcome(self, result: documents.Result) -> None:
        """Tell the user why the turn stopped, unless it ended in a usual way.

        Raises `RequestError` if the turn failed.
        """
        if result.outcome == "failed":
            raise RequestError(_INTERNAL_ERROR, result.reason or "the turn failed")
        if result.outcome in _REPORTED_OUTCOMES:
            await self.send_update(answer_chunk(f"{result.outcome}: {result.reason}"))

    async def _tell_usage(self) -> None:
        """Show the used context and the cost in the editor; no cost if a price is unknown."""
        context = self.session.reports.context()
        spent = self.session.status.cost
        cost = None
        if spent is not None and math.isfinite(spent):  # every price is known
            cost = Cost(amount=spent, currency="USD")
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

    def _display_of(self, tool: str, arguments: object) -> CallDisplay:
        return call_display(tool, arguments, self.session.tool(tool), self._directory)


def _response(result: documents.Result, turn: _Turn) -> PromptResponse:
    """Return the response to a prompt, with the reason why its turn stopped.

    The reason is that of the turn's outcome, or else that of the newest response of the
    model.
    """
    stop = _STOP_REASONS_BY_OUTCOME.get(result.outcome)
    if stop is None:
        stop = _STOP_REASONS_BY_RESPONSE.get(turn.response_stop, "end_turn")
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
