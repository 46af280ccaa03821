"""Converts the documents of a session to updates of the protocol.

Nothing is sent or asked here: `open_session` does both. Text arrives in pieces and then
complete; each part of the text is sent once. This is version 1 of the protocol; another
version would get a module of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    ContentToolCallContent,
    CurrentModeUpdate,
    FileEditToolCallContent,
    PlanEntry,
    SessionInfoUpdate,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)
from msgspec import UNSET

from refold.acp.call_display import CallDisplay, edits, first_changed_line
from refold.acp.prompt_content import to_code_block
from refold.values.live import Piece
from refold.views.stream_json import documents, live_documents
from refold.views.stream_json.encode import Document
from refold.views.stream_json.snapshot import TitleChanged

Update: TypeAlias = (
    UserMessageChunk | AgentMessageChunk | AgentThoughtChunk | ToolCallStart
    | ToolCallProgress | AgentPlanUpdate | AvailableCommandsUpdate | CurrentModeUpdate
    | ConfigOptionUpdate | SessionInfoUpdate | UsageUpdate
)  # fmt: skip
Show: TypeAlias = Callable[[str, object], CallDisplay]
_Status: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]

_MAX_TAIL_CHARS = 4_000  # of a running command's output
_TODO_STATES: Mapping[str, Literal["pending", "in_progress", "completed"]] = {
    "pending": "pending", "in_progress": "in_progress", "done": "completed",
    "cancelled": "completed",
}  # fmt: skip


class SessionUpdates:
    """Converts the documents of one session. `show` returns the display of a call.

    Paths of calls are relative to `directory`. With `terminals` the editor draws the output
    of commands like that of a terminal.
    """

    def __init__(self, show: Show, directory: str, *, terminals: bool = False) -> None:
        self._show = show
        self._directory = directory
        self._terminals = terminals
        # For each call that is drawn as a terminal, whether it has printed.
        self._drawn_terminals = dict[str, bool]()
        self._sent = _SeenText()  # of the response that the model is writing
        self._last_response_seq = 0
        # For each running call: the number of characters so far, and the last ones.
        self._printed = dict[str, tuple[int, str]]()
        self._edits = dict[str, list[FileEditToolCallContent]]()  # by call

    def updates_of(self, document: Document) -> Iterator[Update]:
        """Yield the updates for this document."""
        match document:
            case documents.UserMessage():
                text = document.text if document.typed is UNSET else document.typed
                yield user_chunk(text, f"user-{document.seq}")
            case live_documents.TextDelta() | live_documents.ThinkingDelta():
                yield from self._text_updates(document)
            case documents.ModelStart():
                self._sent = _SeenText()
            case documents.AssistantMessage():
                yield from self._answer_updates(document)
            case documents.Error(reason=reason, dropped=True):
                yield answer_chunk(f"\n\n[dropped, the model is asked again: {reason}]\n\n")
            case documents.Notice(text=text):
                yield thinking_chunk(f"refold: {text}\n\n")
            case documents.TodoUpdate(todos=todos):
                yield AgentPlanUpdate(
                    session_update="plan",
                    entries=[
                        PlanEntry(
                            content=todo.subject, priority="medium",
                            status=_TODO_STATES[todo.status],
                        )
                        for todo in todos
                    ],
                )  # fmt: skip
            case TitleChanged(title=title):
                yield SessionInfoUpdate(session_update="session_info_update", title=title)
            case _:
                yield from self._call_updates(document)

    def _call_updates(self, document: Document) -> Iterator[Update]:
        """Yield the updates for a document about a call; none for any other document."""
        match document:
            case documents.ToolCall():
                yield self._call_start(document)
            case documents.ToolStart(call_id=id_):
                # The question about the call has replaced its display in the editor.
                terminal = [_terminal(id_)] if id_ in self._drawn_terminals else None
                yield progress(id_, "in_progress", terminal)
            case live_documents.ToolProgress():
                yield from self._output_updates(document)
            case documents.ToolResult(call_id=id_):
                yield from self._result_updates(document)
                if document.final is not UNSET:
                    yield answer_chunk(document.final)
            case documents.Diff():
                yield self._diff_update(document)
            case _:
                return

    def _call_start(self, document: documents.ToolCall) -> ToolCallStart:
        """Return the first update of a call, which may be drawn as a terminal."""
        id_ = document.call_id
        shown = self._show(document.tool, document.arguments)
        if self._terminals and shown.kind == "execute":
            self._drawn_terminals[id_] = False  # it has printed nothing yet
        is_drawn = id_ in self._drawn_terminals
        metadata = _terminal_metadata("info", id_, cwd=self._directory)
        return ToolCallStart(
            session_update="tool_call",
            tool_call_id=id_,
            title=shown.title,
            kind=shown.kind,
            status="pending",
            raw_input=document.arguments,
            locations=list(shown.locations) or None,
            content=[_terminal(id_)] if is_drawn else None,
            field_meta=metadata if is_drawn else None,
        )

    def _result_updates(self, document: documents.ToolResult) -> Iterator[Update]:
        """Yield the updates for the end of a call.

        If the call is drawn as a terminal, its output was sent before, unless it was empty.
        """
        id_ = document.call_id
        text = document.text
        is_done = document.outcome == "done"
        status = "completed" if is_done else "failed"
        self._printed.pop(id_, None)
        if id_ not in self._drawn_terminals:
            yield progress(id_, status, [content(to_code_block(text))] if text else None)
            return
        has_printed = self._drawn_terminals.pop(id_)
        if is_done and not has_printed:
            yield _metadata_update(id_, _terminal_metadata("output", id_, data=text))
        yield _metadata_update(
            id_, _terminal_metadata("exit", id_, exit_code=None, signal=None)
        )
        reason = [] if is_done else [content(to_code_block(text))]
        yield progress(id_, status, [_terminal(id_), *reason])

    def _text_updates(
        self, document: live_documents.TextDelta | live_documents.ThinkingDelta
    ) -> Iterator[Update]:
        """Yield the new part of live text; nothing if its response is complete already."""
        thinking = isinstance(document, live_documents.ThinkingDelta)
        piece = document.piece
        # Live pieces and events arrive separately: a piece of a complete response is late.
        is_before_response = document.after < self._last_response_seq
        is_of_earlier_call = 0 < piece.message < self._last_response_seq
        if is_before_response or is_of_earlier_call:
            return
        if new := self._sent.take_new(thinking, piece):
            yield _chunk(new, thinking, f"answer-{piece.message}")

    def _answer_updates(self, document: documents.AssistantMessage) -> Iterator[Update]:
        """Yield what was not sent yet of a complete response: its thinking, then its text."""
        message = self._sent.message or document.seq
        # The pairs are: whether it is thinking, and the text.
        for thinking, text in ((True, document.thinking), (False, document.text)):
            whole = Piece(message, offset=0, text=text)
            unsent = self._sent.take_new(thinking, whole)
            if unsent:
                yield _chunk(unsent, thinking, f"answer-{message}")
        self._sent = _SeenText()
        self._last_response_seq = document.seq

    def _output_updates(self, document: live_documents.ToolProgress) -> Iterator[Update]:
        """Yield new output of a call for a terminal, or the end of all its output."""
        id_ = document.call_id
        piece = document.piece
        char_count, last_chars = self._printed.get(id_, (0, ""))
        new = piece.after(char_count)
        last_chars = (last_chars + new)[-_MAX_TAIL_CHARS:]
        self._printed[id_] = max(char_count, piece.end), last_chars
        if id_ not in self._drawn_terminals:
            yield progress(id_, "in_progress", [content(to_code_block(last_chars))])
        elif new:
            self._drawn_terminals[id_] = True
            yield _metadata_update(id_, _terminal_metadata("output", id_, data=new))

    def _diff_update(self, document: documents.Diff) -> Update:
        """Return all changes of a call so far as one update, with the line of the newest
        change.
        """
        call_edits = self._edits.setdefault(document.call_id, [])
        call_edits += edits(document.path, document.kind, document.text, self._directory)
        locations = list[ToolCallLocation]()
        if call_edits:
            newest = call_edits[-1]
            line = first_changed_line(document.text)
            locations.append(ToolCallLocation(path=newest.path, line=line))
        return ToolCallProgress(
            session_update="tool_call_update", tool_call_id=document.call_id,
            content=list(call_edits) or None, locations=locations or None,
        )  # fmt: skip


class _SeenText:
    """How many characters of the newest response were sent to the editor.

    The thinking (key True) and the text (key False) are counted separately.
    """

    def __init__(self) -> None:
        self.message = 0
        self._seen = {True: 0, False: 0}

    def take_new(self, thinking: bool, piece: Piece) -> str:
        """Return the part of this piece that was not sent yet, and count it as sent."""
        if piece.message != self.message:
            self.message = piece.message
            self._seen = {True: 0, False: 0}  # characters of thinking, and of text
        seen_chars = self._seen[thinking]
        new = piece.after(seen_chars)
        self._seen[thinking] = max(seen_chars, piece.end)
        return new


def user_chunk(text: str, id_: str) -> UserMessageChunk:
    return UserMessageChunk(
        session_update="user_message_chunk", content=text_block(text), message_id=id_
    )


def answer_chunk(text: str) -> AgentMessageChunk:
    """Return text that the editor shows as an answer, such as a sentence of refold."""
    return AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text))


def thinking_chunk(text: str) -> AgentThoughtChunk:
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))


def text_block(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


def content(text: str) -> ContentToolCallContent:
    return ContentToolCallContent(type="content", content=text_block(text))


def progress(
    id_: str,
    status: _Status,
    content: Sequence[ContentToolCallContent | TerminalToolCallContent] | None = None,
) -> ToolCallProgress:
    """Return an update of a call. If `content` is None, the editor keeps what it shows."""
    return ToolCallProgress(
        session_update="tool_call_update", tool_call_id=id_, status=status,
        content=list(content) if content is not None else None,
    )  # fmt: skip


def _terminal(id_: str) -> TerminalToolCallContent:
    return TerminalToolCallContent(type="terminal", terminal_id=id_)


def _terminal_metadata(key: str, id_: str, **more: object) -> dict[str, object]:
    """Return metadata about the terminal `id_`, for editors that draw an agent's terminals."""
    return {f"terminal_{key}": {"terminal_id": id_, **more}}


def _metadata_update(id_: str, meta: dict[str, object]) -> ToolCallProgress:
    return ToolCallProgress(
        session_update="tool_call_update", tool_call_id=id_, field_meta=meta
    )


def _chunk(text: str, thinking: bool, id_: str) -> AgentMessageChunk | AgentThoughtChunk:
    if thinking:
        return AgentThoughtChunk(
            session_update="agent_thought_chunk", content=text_block(text), message_id=id_
        )
    return AgentMessageChunk(
        session_update="agent_message_chunk", content=text_block(text), message_id=id_
    )
