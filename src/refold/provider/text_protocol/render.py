"""A request as plain text: tools in the system prompt, calls as text in the messages.

It only ever grows at its end, and each message is rendered once, because wires cache by
object identity. Speakers alternate, as the chat templates of many models require:
neighbouring messages of one speaker are merged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.provider import sanitize
from refold.provider.port import Request
from refold.provider.text_protocol.call_formats import EXAMPLE_CALL, TEXT_WIRE
from refold.values.growing import Log
from refold.values.messages import (
    Message,
    Part,
    StoredMessage,
    Text,
    ToolCall,
    ToolResult,
)
from refold.values.tools import ToolSpec

FAILED_PREFIX = "It failed:\n"
_NEXT_STEP = "If the task is done {end}, else call the next tool."
_LINE_NUMBER_PATTERN = re.compile(r"^(\d+)\t", re.MULTILINE)
NO_CALLS = "<reminder>Answer in words now: calls are not read.</reminder>"
_TOOL_INSTRUCTIONS = """\
# Tools

{tools}

To use a tool, reply with a call and nothing else, like this, with the name of a tool \
and its arguments:
<tool_call>
{example}
</tool_call>
Its result comes in the next message. There are no other tools. When the task is done, \
{end}."""
_SCHEMA_INSTRUCTION = "The words of your last answer are JSON that matches this schema: "


class CallFormat(Protocol):
    """How tools, calls and their results are written.

    `ending` is the part of the tools that the text of a conversation depends on. `call`
    gives "" for a call that is already in the text of its response.
    """

    no_calls: str  # the instruction if no call is allowed now

    def system(self, request: Request) -> str: ...
    def ending(self, tools: Iterable[ToolSpec]) -> str: ...
    def call(self, call: ToolCall) -> str: ...
    def result(self, result: ToolResult, call: ToolCall | None) -> str: ...
    def after_results(self, ending: str) -> str: ...


class TagFormat:
    """Calls are JSON in a tag, and so are results."""

    no_calls = NO_CALLS

    def system(self, request: Request) -> str:
        return system_text(request)

    def ending(self, tools: Iterable[ToolSpec]) -> str:
        return _closing_instructions(tools)

    def call(self, call: ToolCall) -> str:
        return "" if call.wire == TEXT_WIRE else call_text(call)

    def result(self, result: ToolResult, call: ToolCall | None) -> str:
        if call and call.wire == TEXT_WIRE:
            # Only part of the text: the result is the reason why it was not made as a call.
            result = replace(result, text=msgspec.json.decode(call.data, type=str))
        return result_text(result, call.name if call else "")

    def after_results(self, ending: str) -> str:
        return _NEXT_STEP.format(end=ending)


class RequestRenderer:
    """Renders requests. Caches the rendered conversation and tools."""

    def __init__(self, call_format: CallFormat | None = None) -> None:
        self._format = call_format or TagFormat()
        self._groups: list[_Group] = []
        self._last_request = Request(Log())
        self._system = self._end = ""

    def plain(self, request: Request) -> Request:
        """The same request for a model without tools, only text."""
        last = self._last_request
        same = last.system == request.system and last.schema == request.schema
        if not (same and last.tools == request.tools):
            self._system = self._format.system(request)
            end = self._format.ending(request.tools)
            if end != self._end:
                self._end = end
                self._groups.clear()
        self._last_request = request
        messages = self._messages(request.messages)
        if request.tools and request.tool_choice == "none":
            messages = _with_note(messages, self._format.no_calls)
        may_call = request.tools and request.tool_choice == "auto"
        return replace(
            request,
            messages=messages,
            system=self._system,
            tools=(),
            tool_choice="auto",
            # A server that enforces the schema would make calls impossible.
            schema=Raw(b"null") if may_call else request.schema,
        )

    def _messages(self, conversation: Log[StoredMessage]) -> Log[StoredMessage]:
        groups = self._groups
        while groups and not groups[-1].is_in(conversation):
            groups.pop()
        if groups and groups[0].spoken[0] is not conversation[0]:
            groups.clear()
        end = groups[-1].upto if groups else 0
        new = conversation[end:]
        if groups and new and _speaker_role(new[0].message) in ("", groups[-1].side):
            new = (*groups.pop().spoken, *new)
            end = groups[-1].upto if groups else 0
        for side, spoken in _group_by_speaker(new):
            rendered = groups[-1].rendered if groups else Log[StoredMessage]()
            end += len(spoken)
            # Results come directly after the answer that called. Ids are not kept for
            # longer: another conversation may have the same.
            calls = (
                c for s in (groups[-1].spoken if groups else ()) for c in s.message.calls
            )
            before = {call.id: call for call in calls}
            parts = tuple(part for s in spoken for part in self._parts(s.message, before))
            if parts:
                role = "assistant" if side == "assistant" else "user"
                rendered = rendered.plus(
                    StoredMessage(spoken[-1].seq, Message(role, _join_texts(parts)))
                )
            groups.append(_Group(side, spoken, end, rendered))
        return groups[-1].rendered if groups else Log()

    def _parts(self, message: Message, before: Mapping[str, ToolCall]) -> Iterator[Part]:
        for part in message.parts:
            match part:
                case Text(text) if text.strip():
                    yield Text(text.strip())
                case ToolCall() if words := self._format.call(part):
                    yield Text(words)
                case ToolResult(call_id):
                    yield Text(self._format.result(part, before.get(call_id)))
                case _:
                    pass
        next_ = self._format.after_results(self._end)
        if message.role == "tool" and next_:
            yield Text(next_)
        elif message.role == "user" and not (message.text.strip() or message.images):
            yield Text("(no words)")  # or two answers would follow each other
        yield from message.images


class _Group(Struct, frozen=True):
    """Adjacent messages of one speaker, and everything rendered up to them."""

    side: str
    spoken: tuple[StoredMessage, ...]
    upto: int  # messages of the conversation
    rendered: Log[StoredMessage]

    def is_in(self, conversation: Log[StoredMessage]) -> bool:
        return self.upto <= len(conversation) and all(
            mine is theirs
            for mine, theirs in zip(
                self.spoken,
                conversation[self.upto - len(self.spoken) : self.upto],
                strict=True,
            )
        )


def system_text(request: Request) -> str:
    """The system text, with the tools and how to call them."""
    if not request.tools:
        return request.system
    instructions = _TOOL_INSTRUCTIONS.format(
        tools="\n".join(line for tool in request.tools for line in tool_lines(tool)),
        example=f'{{"name": "{EXAMPLE_CALL.name}", "arguments": {EXAMPLE_CALL.arguments}}}',
        end=_closing_instructions(request.tools),
    )
    wanted = sanitize.has_schema(request)
    shape = f"\n\n{_SCHEMA_INSTRUCTION}{bytes(request.schema).decode()}" if wanted else ""
    return f"{request.system}\n\n{instructions}{shape}".lstrip()


def _closing_instructions(tools: Iterable[ToolSpec]) -> str:
    finish = any(tool.name == "finish" for tool in tools)
    return "call finish with the answer" if finish else "answer in words, without a call"


def call_text(call: ToolCall) -> str:
    """A call as the model should write it, or as it wrote it if that is not JSON."""
    call = sanitize.original_call(call)
    try:
        arguments = msgspec.json.decode(call.arguments, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        arguments = bytes(sanitize.arguments(call.arguments)).decode()
    name = sanitize.name(call.name)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def result_text(result: ToolResult, name: str) -> str:
    # The content of a file must not end the result and then pose as the user.
    text = with_spaced_numbers(result.text, name).replace(
        "</tool_result", "<\\/tool_result"
    )
    text = text.strip("\n")
    of = f' name="{sanitize.name(name)}"' if name else ""
    return (
        f"<tool_result{of}>\n{FAILED_PREFIX if result.failed else ''}{text}\n</tool_result>"
    )


def with_spaced_numbers(text: str, tool: str) -> str:
    """A result for small models, which read "1<tab>4217" as 14217."""
    return _LINE_NUMBER_PATTERN.sub(r"\1: ", text) if tool == "read_file" else text


def _speaker_role(message: Message) -> str:
    """The role of the speaker; "" for an empty message."""
    if message.role != "assistant":
        return "user"
    return "assistant" if message.calls or message.text.strip() else ""


def _group_by_speaker(
    conversation: Iterable[StoredMessage],
) -> Iterator[tuple[str, tuple[StoredMessage, ...]]]:
    side, group = "", list[StoredMessage]()
    for spoken in conversation:
        next_side = _speaker_role(spoken.message)
        if next_side and side and next_side != side:
            yield side, tuple(group)
            group.clear()
        side = next_side or side
        group.append(spoken)
    if group:
        yield side, tuple(group)


def _join_texts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Join the texts: some chat templates join several without a blank."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    others = tuple(part for part in parts if not isinstance(part, Text))
    return (*((Text("\n\n".join(texts)),) if texts else ()), *others)


def _with_note(messages: Log[StoredMessage], text: str) -> Log[StoredMessage]:
    note = Text(text)
    if messages and messages[-1].message.role == "user":
        last = messages[-1]
        parts = _join_texts((*last.message.parts, note))
        spoken = (*messages[:-1], StoredMessage(last.seq, Message("user", parts)))
        return Log(spoken)
    return messages.plus(StoredMessage(0, Message("user", (note,))))


def tool_lines(tool: ToolSpec) -> Iterator[str]:
    """The description of a tool: a line, and one for each argument."""
    schema: dict[str, Any] = msgspec.json.decode(tool.parameters)
    properties: dict[str, Any] = schema.get("properties", {})
    needed = schema.get("required", [])
    parameter_text = ", ".join(
        f"{name}{'' if name in needed else '?'}: {_kind(about)}"
        for name, about in properties.items()
    )
    yield f"- {tool.name}({parameter_text}): {_to_one_line(tool.description)}"
    for name, about in properties.items():
        match about:
            case {"description": str(description)}:
                yield f"  {name}: {_to_one_line(description)}"
            case _:
                pass


def _kind(schema: Any) -> str:
    match schema:
        case {"enum": [*values]}:
            return "|".join(msgspec.json.encode(value).decode() for value in values)
        case {"anyOf": [*kinds]} | {"oneOf": [*kinds]}:
            return "|".join(map(_kind, kinds))
        case {"type": "array", "items": {**items}}:
            return f"array of {_kind(items)}"
        case {"type": "object", "properties": {**inner}}:
            fields = ", ".join(f"{name}: {_kind(about)}" for name, about in inner.items())
            return f"{{{fields}}}"
        case {"type": str(kind)}:
            return kind
        case {"type": [*kinds]}:
            return "|".join(map(str, kinds))
        case _:
            return "any"


def _to_one_line(text: str) -> str:
    return " ".join(text.split())
