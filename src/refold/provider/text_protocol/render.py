"""Renders a request as plain text: the tools in the system prompt, the calls in the messages.

The text only grows at its end, and each message is rendered once, because wires cache by object
identity. Speakers alternate, as the chat templates of many models require: neighbouring
messages of one speaker are merged.
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
    """Renders tools, calls and results as text.

    `call` returns "" for a call that is already in the text of its response. `ending` returns
    the instruction for how to end a task, and `after_results` a text that follows results and
    may contain that instruction. Both may return "".
    """

    no_calls: str  # the instruction if no call is allowed now

    def system(self, request: Request) -> str: ...
    def ending(self, tools: Iterable[ToolSpec]) -> str: ...
    def call(self, call: ToolCall) -> str: ...
    def result(self, result: ToolResult, call: ToolCall | None) -> str: ...
    def after_results(self, ending: str) -> str: ...


class TagFormat:
    """Renders calls and results as JSON in a tag."""

    no_calls = NO_CALLS

    def system(self, request: Request) -> str:
        return system_text(request)

    def ending(self, tools: Iterable[ToolSpec]) -> str:
        return _closing_instructions(tools)

    def call(self, call: ToolCall) -> str:
        return "" if call.wire == TEXT_WIRE else call_text(call)

    def result(self, result: ToolResult, call: ToolCall | None) -> str:
        """Return the result in a tag. `call` is None if the conversation lacks it."""
        if call and call.wire == TEXT_WIRE:
            # This call was not made. Its text stays in the response, and the result says why.
            result = replace(result, text=msgspec.json.decode(call.data, type=str))
        return result_text(result, call.name if call else "")

    def after_results(self, ending: str) -> str:
        return _NEXT_STEP.format(end=ending)


class RequestRenderer:
    """Renders requests as text, and caches the rendered conversation and tools."""

    def __init__(self, call_format: CallFormat | None = None) -> None:
        self._format = call_format or TagFormat()
        self._groups: list[_Group] = []
        self._last_request = Request(Log())
        self._system = ""  # the system text of the last request, with its tools
        self._ending = ""  # the ending for the tools of the last request

    def plain(self, request: Request) -> Request:
        """Return the request as plain text, for a model without tools."""
        last = self._last_request
        before = last.system, last.schema, last.tools
        if before != (request.system, request.schema, request.tools):
            self._system = self._format.system(request)
            ending = self._format.ending(request.tools)
            if ending != self._ending:  # it is part of the rendered messages
                self._ending = ending
                self._groups.clear()
        self._last_request = request
        messages = self._render_messages(request.messages)
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

    def _render_messages(self, conversation: Log[StoredMessage]) -> Log[StoredMessage]:
        """Return the rendered conversation, with the adjacent messages of a speaker merged.

        Only messages after those in the cached groups are rendered.
        """
        groups = self._groups
        while groups and not groups[-1].is_in(conversation):
            groups.pop()
        if groups and groups[0].stored[0] is not conversation[0]:
            groups.clear()
        cached_count = groups[-1].upto if groups else 0
        new_messages = conversation[cached_count:]
        if groups and new_messages:
            next_speaker = _speaker_role(new_messages[0].message)
            if next_speaker in ("", groups[-1].speaker):  # the last group continues
                new_messages = (*groups.pop().stored, *new_messages)
        for speaker, stored in _group_by_speaker(new_messages):
            before = groups[-1] if groups else _Group("", (), 0, Log[StoredMessage]())
            groups.append(self._render_group(speaker, stored, before))
        return groups[-1].rendered if groups else Log()

    def _render_group(
        self, speaker: str, stored: tuple[StoredMessage, ...], before: "_Group"
    ) -> "_Group":
        """Render the messages `stored` of one speaker, which follow the group `before`."""
        # Results follow directly after the response with their calls. Only its calls are
        # looked up, because an earlier response may have used the same ids.
        calls_by_id = dict[str, ToolCall]()
        for item in before.stored:
            calls_by_id.update((call.id, call) for call in item.message.calls)
        parts = list[Part]()
        for item in stored:
            parts += self._render_parts(item.message, calls_by_id)
        rendered = before.rendered
        if parts:
            role = "assistant" if speaker == "assistant" else "user"
            message = Message(role, _join_texts(parts))
            rendered = rendered.plus(StoredMessage(stored[-1].seq, message))
        return _Group(speaker, stored, before.upto + len(stored), rendered)

    def _render_parts(
        self, message: Message, calls_by_id: Mapping[str, ToolCall]
    ) -> Iterator[Part]:
        """Yield the rendered parts of a message: texts, then images.

        Thinking is left out. `calls_by_id` has the calls to which its results may belong.
        """
        for part in message.parts:
            match part:
                case Text(text) if text.strip():
                    yield Text(text.strip())
                case ToolCall() if words := self._format.call(part):
                    yield Text(words)
                case ToolResult(call_id):
                    yield Text(self._format.result(part, calls_by_id.get(call_id)))
                case _:
                    pass
        advice = self._format.after_results(self._ending)
        if message.role == "tool" and advice:
            yield Text(advice)
        elif message.role == "user" and not (message.text.strip() or message.images):
            yield Text("(no words)")  # otherwise two responses would follow each other
        yield from message.images


class _Group(Struct, frozen=True):
    """Adjacent messages of one speaker, and the rendered conversation up to their end."""

    speaker: str
    stored: tuple[StoredMessage, ...]
    upto: int  # the number of the conversation's messages up to the end of the group
    rendered: Log[StoredMessage]

    def is_in(self, conversation: Log[StoredMessage]) -> bool:
        """Whether the conversation has the same message objects at this group's position."""
        if self.upto > len(conversation):
            return False
        present = conversation[self.upto - len(self.stored) : self.upto]
        return all(old is new for old, new in zip(self.stored, present, strict=True))


def system_text(request: Request) -> str:
    """Return the system text, with the tools and instructions for calling them."""
    if not request.tools:
        return request.system
    instructions = _TOOL_INSTRUCTIONS.format(
        tools="\n".join(line for tool in request.tools for line in tool_lines(tool)),
        example=f'{{"name": "{EXAMPLE_CALL.name}", "arguments": {EXAMPLE_CALL.arguments}}}',
        end=_closing_instructions(request.tools),
    )
    text = f"{request.system}\n\n{instructions}"
    if sanitize.has_schema(request):
        text += f"\n\n{_SCHEMA_INSTRUCTION}{bytes(request.schema).decode()}"
    return text.lstrip()


def _closing_instructions(tools: Iterable[ToolSpec]) -> str:
    """Return the instruction for how a model with these tools ends its task."""
    has_finish = any(tool.name == "finish" for tool in tools)
    return (
        "call finish with the answer" if has_finish else "answer in words, without a call"
    )


def call_text(call: ToolCall) -> str:
    """Return a call in the form that the model should write, in a tag.

    Arguments that are not valid JSON stay as the model wrote them.
    """
    call = sanitize.original_call(call)
    try:
        arguments = msgspec.json.decode(call.arguments, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        arguments = bytes(sanitize.arguments(call.arguments)).decode()
    name = sanitize.name(call.name)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def result_text(result: ToolResult, name: str) -> str:
    """Return a result in a tag, which has the name of its tool unless `name` is ""."""
    # The content of a file must not end the result and then pose as the user.
    text = with_spaced_numbers(result.text, name).replace(
        "</tool_result", "<\\/tool_result"
    )
    text = text.strip("\n")
    if result.failed:
        text = f"{FAILED_PREFIX}{text}"
    name_attribute = f' name="{sanitize.name(name)}"' if name else ""
    return f"<tool_result{name_attribute}>\n{text}\n</tool_result>"


def with_spaced_numbers(text: str, tool: str) -> str:
    """Return a result with ": " after line numbers, if it is that of `read_file`.

    Small models misread "1<tab>4217" as 14217.
    """
    return _LINE_NUMBER_PATTERN.sub(r"\1: ", text) if tool == "read_file" else text


def _speaker_role(message: Message) -> str:
    """Return "user" or "assistant", or "" for a response that has neither calls nor text."""
    if message.role != "assistant":
        return "user"
    return "assistant" if message.calls or message.text.strip() else ""


def _group_by_speaker(
    conversation: Iterable[StoredMessage],
) -> Iterator[tuple[str, tuple[StoredMessage, ...]]]:
    """Yield the role of each speaker in turn, with the adjacent messages of that speaker.

    A message without content belongs to the speaker before it.
    """
    speaker = ""
    group: list[StoredMessage] = []
    for stored in conversation:
        next_speaker = _speaker_role(stored.message)
        if next_speaker and speaker and next_speaker != speaker:
            yield speaker, tuple(group)
            group.clear()
        speaker = next_speaker or speaker
        group.append(stored)
    if group:
        yield speaker, tuple(group)


def _join_texts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts with all texts joined into one, which comes first.

    They are joined here, because some chat templates would join them without a blank.
    """
    texts = [part.text for part in parts if isinstance(part, Text)]
    other_parts = tuple(part for part in parts if not isinstance(part, Text))
    if not texts:
        return other_parts
    return (Text("\n\n".join(texts)), *other_parts)


def _with_note(messages: Log[StoredMessage], text: str) -> Log[StoredMessage]:
    """Return the messages with `text` added at the end, as a text of the user."""
    note = Text(text)
    if messages and messages[-1].message.role == "user":
        last = messages[-1]
        parts = _join_texts((*last.message.parts, note))
        stored = (*messages[:-1], StoredMessage(last.seq, Message("user", parts)))
        return Log(stored)
    return messages.plus(StoredMessage(0, Message("user", (note,))))


def tool_lines(tool: ToolSpec) -> Iterator[str]:
    """Yield the lines that describe a tool, and then a line for each argument."""
    schema: dict[str, Any] = msgspec.json.decode(tool.parameters)
    properties: dict[str, Any] = schema.get("properties", {})
    needed = schema.get("required", [])
    parameters = list[str]()
    for name, property_ in properties.items():
        optional_mark = "" if name in needed else "?"
        parameters.append(f"{name}{optional_mark}: {_kind(property_)}")
    parameter_text = ", ".join(parameters)
    yield f"- {tool.name}({parameter_text}): {_to_one_line(tool.description)}"
    for name, about in properties.items():
        match about:
            case {"description": str(description)}:
                yield f"  {name}: {_to_one_line(description)}"
            case _:
                pass


def _kind(schema: Any) -> str:
    """Return the type that a JSON Schema describes, in a short form for the model."""
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
