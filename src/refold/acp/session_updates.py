"""The documents of a session as updates of the protocol.

Nothing is sent or asked here: `open_session` does both. Text arrives in pieces and then
complete; each part of it is sent once. This is version 1 of the protocol; another version
would be another module like this one.
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

_MAX_TAIL_CHARS = 4_000  # of what a running command has printed
_TODO_STATES: Mapping[str, Literal["pending", "in_progress", "completed"]] = {
    "pending": "pending", "in_progress": "in_progress", "done": "completed",
    "cancelled": "completed",
}  # fmt: skip


class SessionUpdates:
    """Updates of one session. `show` returns how a call looks, for `directory`.

    With `terminals` the editor draws the output of commands as that of a terminal.
    """

    def __init__(self, show: Show, directory: str, *, terminals: bool = False) -> None:
        self._show, self._directory, self._terminals = show, directory, terminals
        # Calls drawn as terminals, and whether one has printed.
        self._drawn = dict[str, bool]()
        self._said, self._answered = _SeenText(), 0
        # Characters so far and the last one, of running calls.
        self._printed = dict[str, tuple[int, str]]()
        self._edits = dict[str, list[FileEditToolCallContent]]()

    def updates_of(self, document: Document) -> Iterator[Update]:
        """Yield the updates for this document."""
        match document:
            case documents.UserMessage():
                yield user_chunk(
                    document.text if document.typed is UNSET else document.typed,
                    f"user-{document.seq}",
                )
            case live_documents.TextDelta() | live_documents.ThinkingDelta():
                yield from self._text_updates(document)
            case documents.ModelStart():
                self._said = _SeenText()
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
        match document:
            case documents.ToolCall(call_id=id_, tool=tool, arguments=arguments):
                shown = self._show(tool, arguments)
                if self._terminals and shown.kind == "execute":
                    self._drawn[id_] = False
                drawn = id_ in self._drawn
                yield ToolCallStart(
                    session_update="tool_call", tool_call_id=id_, title=shown.title,
                    kind=shown.kind, status="pending", raw_input=arguments,
                    locations=list(shown.locations) or None,
                    content=[_terminal(id_)] if drawn else None,
                    field_meta=_terminal_metadata("info", id_, cwd=self._directory) if drawn else None,
                )  # fmt: skip
            case documents.ToolStart(call_id=id_):
                # The question about the call has replaced what the editor shows.
                yield progress(
                    id_, "in_progress", [_terminal(id_)] if id_ in self._drawn else None
                )
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

    def _result_updates(self, document: documents.ToolResult) -> Iterator[Update]:
        id_, text, done = document.call_id, document.text, document.outcome == "done"
        status = "completed" if done else "failed"
        self._printed.pop(id_, None)
        if id_ not in self._drawn:
            yield progress(id_, status, [content(to_code_block(text))] if text else None)
            return
        printed = self._drawn.pop(id_)
        if done and not printed:
            yield _progress(id_, _terminal_metadata("output", id_, data=text))
        yield _progress(id_, _terminal_metadata("exit", id_, exit_code=None, signal=None))
        why = [] if done else [content(to_code_block(text))]
        yield progress(id_, status, [_terminal(id_), *why])

    def _text_updates(
        self, document: live_documents.TextDelta | live_documents.ThinkingDelta
    ) -> Iterator[Update]:
        thinking = isinstance(document, live_documents.ThinkingDelta)
        piece = document.piece
        late = document.after < self._answered or 0 < piece.message < self._answered
        if late:  # live pieces and events arrive by two ways
            return
        if new := self._said.take_new(thinking, piece):
            yield _chunk(new, thinking, f"answer-{piece.message}")

    def _answer_updates(self, document: documents.AssistantMessage) -> Iterator[Update]:
        message = self._said.message or document.seq
        for thinking, text in ((True, document.thinking), (False, document.text)):
            if rest := self._said.take_new(thinking, Piece(message, 0, text)):
                yield _chunk(rest, thinking, f"answer-{message}")
        self._said, self._answered = _SeenText(), document.seq

    def _output_updates(self, document: live_documents.ToolProgress) -> Iterator[Update]:
        id_, piece = document.call_id, document.piece
        offset, tail = self._printed.get(id_, (0, ""))
        new = piece.after(offset)
        whole = (tail + new)[-_MAX_TAIL_CHARS:]
        self._printed[id_] = max(offset, piece.end), whole
        if id_ not in self._drawn:
            yield progress(id_, "in_progress", [content(to_code_block(whole))])
        elif new:
            self._drawn[id_] = True
            yield _progress(id_, _terminal_metadata("output", id_, data=new))

    def _diff_update(self, document: documents.Diff) -> Update:
        all_ = self._edits.setdefault(document.call_id, [])
        all_ += edits(document.path, document.kind, document.text, self._directory)
        places = [
            ToolCallLocation(path=change.path, line=first_changed_line(document.text))
            for change in all_[-1:]
        ]
        return ToolCallProgress(
            session_update="tool_call_update", tool_call_id=document.call_id,
            content=list(all_) or None, locations=places or None,
        )  # fmt: skip


class _SeenText:
    """How much of one response was sent: of its text, and of its thinking."""

    def __init__(self) -> None:
        self.message, self._seen = 0, {True: 0, False: 0}

    def take_new(self, thinking: bool, piece: Piece) -> str:
        """Return the part of this piece that was not sent yet."""
        if piece.message != self.message:
            self.message, self._seen = piece.message, {True: 0, False: 0}
        new = piece.after(self._seen[thinking])
        self._seen[thinking] = max(self._seen[thinking], piece.end)
        return new


def user_chunk(text: str, id_: str) -> UserMessageChunk:
    return UserMessageChunk(
        session_update="user_message_chunk", content=text_block(text), message_id=id_
    )


def answer_chunk(text: str) -> AgentMessageChunk:
    """Return a sentence of refold, not of the model."""
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
    return ToolCallProgress(
        session_update="tool_call_update", tool_call_id=id_, status=status,
        content=list(content) if content is not None else None,
    )  # fmt: skip


def _terminal(id_: str) -> TerminalToolCallContent:
    return TerminalToolCallContent(type="terminal", terminal_id=id_)


def _terminal_metadata(key: str, id_: str, **more: object) -> dict[str, object]:
    """Return metadata for editors that draw an agent's terminals."""
    return {f"terminal_{key}": {"terminal_id": id_, **more}}


def _progress(id_: str, meta: dict[str, object]) -> ToolCallProgress:
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
