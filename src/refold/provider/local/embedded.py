"""The embedded model as a provider: sends requests to a server that sessions share.

The server speaks OpenAI's Chat API (`openai_chat`). The first request starts it, unless another
session of the user has; if it crashes during a response, it is started again, once.

Every response of a small model is one JSON object, enforced by a grammar (`call_grammar`, or a JSON
schema if the grammar cannot express it): the server rejects any token that does not lead to a call.
The final answer is also a call, of `finish`. The system prompt has one short line for each tool.
Measured on models of 0.5 to 2 billion parameters, this gets more calls right than the model's own
call syntax, for a third of the tokens. A larger model whose chat template has a format for tools
gets them in that format, and llama.cpp parses its calls.
"""

import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from itertools import islice, zip_longest
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.errors import Unreachable
from refold.provider import openai_chat, openai_chat_stream, sanitize
from refold.provider.api_client import Http
from refold.provider.encoding_cache import Encoded
from refold.provider.error_mapping import Peer
from refold.provider.http import Bounds
from refold.provider.local.call_grammar import call_grammar
from refold.provider.local.models import LocalModel
from refold.provider.local.repetition import stop_repetition
from refold.provider.local.server import Address, Server
from refold.provider.port import CallDelta, Delta, Done, Request, Retrying, TextDelta
from refold.provider.spec import Quirks
from refold.provider.sse import Events
from refold.provider.text_protocol.render import with_spaced_numbers
from refold.provider.wire_stream import Reader, deltas
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text, ToolCall, ToolResult
from refold.values.tools import ToolSpec

PEER_LABEL = "the embedded model"
MAX_OUTPUT_TOKENS = 1024  # a minute on two cores, so that no response runs forever
MAX_TEMPLATE_OUTPUT_TOKENS = 8192  # for a larger model, which may think before it answers
_HTTP_BOUNDS = Bounds(connect=5.0, idle=600.0)  # reading a long prompt produces no output


class Embedded:
    """A provider for a small model on this machine. `aclose` leaves its server running."""

    def __init__(self, model: LocalModel, server: Server) -> None:
        self._model, self._server = model, server
        self._http: Http | None = None
        self._address = Address("", "")

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response, which ends early if the model only repeats itself.

        For a model whose template describes no tools, its JSON is converted to calls.
        """
        answer = stop_repetition(self._answer(request))
        if request.tools and not self._model.calls_tools:
            answer = _convert_to_calls(request, answer)
        async with aclosing(answer) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if self._http:
            await self._http.aclose()

    async def _answer(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response. If the server crashes, it is started and asked again, once.

        At temperature 0 both responses begin alike, so the text that was yielded is skipped. If
        they differ, or more than text was yielded, the crash is raised.
        """
        first_text = ""
        has_only_text = True  # a call that has begun cannot be continued
        try:
            async with aclosing(self._request_answer(request)) as answer:
                async for delta in answer:
                    first_text += delta.text if isinstance(delta, TextDelta) else ""
                    has_only_text = has_only_text and isinstance(
                        delta, TextDelta | Retrying
                    )
                    yield delta
            return
        except Unreachable as error:
            if self._server.running or not has_only_text:
                raise
            crash = error
        notice = f"the server of {self._model.name} crashed; it is started again"
        yield Retrying(wait=0.0, reason=notice)
        second_text = ""
        async with aclosing(self._request_answer(request)) as answer:
            async for delta in answer:
                is_beyond_first = len(second_text) > len(first_text)
                if is_beyond_first or not isinstance(delta, TextDelta):
                    yield delta
                    continue
                second_text += delta.text
                common_chars = min(len(second_text), len(first_text))
                if second_text[:common_chars] != first_text[:common_chars]:
                    raise crash
                if len(second_text) > len(first_text):
                    yield TextDelta(second_text[len(first_text) :])

    async def _request_answer(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response to a request. The server is started if it does not run."""
        if not self._server.running:
            yield Retrying(wait=0.0, reason=f"loading {self._model.name}")
        # The chat template of a model that calls tools describes them. For other models, the
        # request describes them in its text.
        uses_template = self._model.calls_tools
        sent_request = request if uses_template else plain_request(request)
        sent_request = replace(sent_request, model=self._model.name, trace=False)
        # Encoding everything again is cheap, because the window is small.
        messages = Encoded(openai_chat.message_to_wire).join(sent_request.messages)
        encode_body = template_to_wire if uses_template else to_wire
        body = encode_body(request, sent_request, messages)
        reader = Reader(
            splitter=Events,
            event=openai_chat_stream.Chunk,
            start=openai_chat_stream.ChatStreamState(),
            step=openai_chat_stream.from_wire,
            ending=openai_chat_stream.done_if_complete,
            end_mark=b"[DONE]",
            think_tags=True,
        )
        prefix = "" if uses_template else sent_request.system[: sent_request.shared]
        async with self._server.lease(prefix) as address:
            http = await self._connect(address)
            answer = deltas(http, "/v1/chat/completions", body, sent_request, reader)
            async with aclosing(answer) as chunks:
                async for delta in chunks:
                    yield delta

    async def _connect(self, address: Address) -> Http:
        """Return a client for this address. A new address gets a new client."""
        if self._http is None or address != self._address:
            if self._http:
                await self._http.aclose()
            # The server closes idle connections after five seconds, sometimes just when a
            # request is sent.
            headers = {"authorization": f"Bearer {address.key}", "connection": "close"}
            peer = Peer(PEER_LABEL, address.url)
            self._http = Http(peer, headers, secret=address.key, bounds=_HTTP_BOUNDS)
            self._address = address
        return self._http


def to_wire(request: Request, plain: Request, messages: bytes) -> bytes:
    """Return the body of `plain`, with a grammar for the calls that `request` allows."""
    # calls have a schema of their own
    schema = Raw(b"null") if request.tools else plain.schema
    max_tokens = plain.max_output or MAX_OUTPUT_TOKENS
    limited = replace(plain, max_output=max_tokens, schema=schema, effort="")
    body = openai_chat.to_wire(limited, messages, Quirks())
    options: dict[str, Any] = {"temperature": 0, "cache_prompt": True}
    if request.stops:
        options["stop"] = request.stops
    if grammar := call_grammar(_allowed_tools(request)):
        options["grammar"] = grammar
    elif shape := call_schema(request):
        json_schema = {"name": "call", "schema": shape}
        options["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({**options, **fields})


def template_to_wire(_request: Request, plain: Request, messages: bytes) -> bytes:
    """Return the body of `plain`, for a model whose chat template describes tools."""
    limited = replace(
        plain, max_output=plain.max_output or MAX_TEMPLATE_OUTPUT_TOKENS, effort=""
    )
    body = openai_chat.to_wire(limited, messages, Quirks())
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({"cache_prompt": True, **fields})


async def _convert_to_calls(
    request: Request, answer: AsyncGenerator[Delta, None]
) -> AsyncGenerator[Delta, None]:
    """Convert the text of a response, which is one JSON object, to a call or an answer."""
    state = LocalStreamState(request)
    has_begun = False
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(text):
                    if not has_begun:
                        has_begun = True
                        # The first token has arrived, which the user sees. Its kind is known later.
                        yield TextDelta("")
                    for call_delta in state.feed(text):
                        yield call_delta
                case Done(stop=stop):
                    for call_delta in state.end():
                        yield call_delta
                    ends_in_call = stop == "end" and state.is_call
                    yield replace(delta, stop="calls") if ends_in_call else delta
                case _:
                    yield delta


FINISH_TOOL = ToolSpec(
    "finish",
    "end, and tell the person the answer",
    Raw(
        b'{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}'
    ),
)
_REPLY_FORMAT = 'Reply with one JSON object: {"tool": NAME, "arguments": {...}}'
_NEXT_STEP = "If the task is done call finish with the answer, else call the next tool."
_MAX_RESULT_CHARS = 4_000  # reading it takes a hundred seconds on two cores
# The end written as a command: "finish('three')". It begins within this many characters.
_END_AS_ARGUMENT_PATTERN = re.compile(
    r'\s*\{\s*"\w+"\s*:\s*"\s*finish(?:\s*\(|\s*"|\s+(?:\\")?\')'
)
_HELD_BACK_CHARS = 40
_OPENING_PATTERN = re.compile(r'\s*\{\s*"tool"\s*:\s*"([^"]+)"\s*,\s*"arguments"\s*:\s*')


def plain_request(request: Request) -> Request:
    """Return the request as text, for a model without tools.

    The part of the system prompt that differs between sessions comes last.
    """
    if not request.tools:
        return replace(
            request, messages=_plain_messages(request.messages, as_calls=False), shared=0
        )
    tool_lines = "\n".join(_tool_line(tool) for tool in _tools_with_finish(request))
    # The first characters are the same in all sessions, and a server can cache them.
    shared_chars = request.shared or len(request.system)
    shared_prompt = request.system[:shared_chars]
    own_prompt = request.system[shared_chars:]
    shared = f"{shared_prompt}\n\n{_REPLY_FORMAT}\n\nTools:\n{tool_lines}".lstrip()
    return replace(
        request,
        messages=_plain_messages(request.messages),
        system=f"{shared}\n\n{own_prompt.lstrip()}".rstrip(),
        shared=len(shared) if request.shared else 0,
        tools=(),
        tool_choice="auto",
    )


def call_schema(request: Request) -> dict[str, Any] | None:
    """Return the schema of one call, or None if the response should be text."""
    allowed = _allowed_tools(request)
    return {"anyOf": [_call_shape(tool) for tool in allowed]} if allowed else None


class LocalStreamState:
    """Converts a response, which is a call in JSON, to deltas while it arrives.

    A call of `finish` stays a call if the request has that tool and allows calls. Otherwise its
    argument becomes the text of the response, even if the model has written the call as an
    argument of another tool.
    """

    def __init__(self, request: Request) -> None:
        may_call = request.tool_choice != "none"
        has_finish = any(tool.name == FINISH_TOOL.name for tool in request.tools)
        self._finish_is_call = has_finish and may_call
        self._text = ""
        self._name = ""
        self._sent_chars = 0  # characters of the arguments that were passed on
        # Some models write `finish('…')` as an argument of another tool. A call is held back
        # until its first characters show whether they do.
        self._held = False
        self._as_argument = False

    @property
    def is_call(self) -> bool:
        return bool(self._name) and not self._is_text

    @property
    def _is_text(self) -> bool:
        return self._name == FINISH_TOOL.name and not self._finish_is_call

    def feed(self, text: str) -> Iterator[Delta]:
        """Add text of the response, and yield the part of the call that can be passed on.

        The arguments of `finish` that are the text of the response are yielded by `end`.
        """
        self._text += text
        if not self._name:
            opening = _OPENING_PATTERN.match(self._text)
            if opening is None:
                return  # the name of the tool has not arrived completely
            self._name = opening[1]
            self._text = self._text[opening.end() :]
            self._held = not self._is_text
        if self._held and len(self._text) >= _HELD_BACK_CHARS:
            yield from self._release()
        if not (self._held or self._is_text):
            yield from self._new_arguments()

    def end(self) -> Iterator[Delta]:
        """Yield the remaining deltas at the end of the response."""
        if self._held:
            yield from self._release()
            if not self._is_text:
                yield from self._new_arguments()
        if not self._name:
            yield TextDelta(self._text)  # the server did not enforce the schema
        elif self._is_text:
            yield TextDelta(_finish_text(self._text, as_argument=self._as_argument))

    def _release(self) -> Iterator[Delta]:
        """Decide whether the held-back call ends the task, and hold it back no longer.

        If it calls a tool, yield the beginning of that call.
        """
        self._held = False
        if not self._finish_is_call and _END_AS_ARGUMENT_PATTERN.match(self._text):
            self._name, self._as_argument = FINISH_TOOL.name, True
        else:
            yield CallDelta(0, name=self._name)

    def _new_arguments(self) -> Iterator[Delta]:
        """Yield the part of the arguments that has arrived and was not passed on yet."""
        # The last brace closes the whole object, not the arguments, so it is held back.
        end = max(self._sent_chars, len(self._text.rstrip()) - 1)
        if piece := self._text[self._sent_chars : end]:
            yield CallDelta(0, piece)
        self._sent_chars = end


def _tools_with_finish(request: Request) -> tuple[ToolSpec, ...]:
    has_finish = any(tool.name == FINISH_TOOL.name for tool in request.tools)
    return request.tools if has_finish else (*request.tools, FINISH_TOOL)


def _allowed_tools(request: Request) -> tuple[ToolSpec, ...]:
    """Return the tools that may be called next; () if the request has none.

    If the request allows no calls, that is only `finish`: its argument is the response.
    """
    if not request.tools:
        return ()
    offered = _tools_with_finish(request)
    if request.tool_choice == "none":
        return tuple(tool for tool in offered if tool.name == FINISH_TOOL.name)
    return _without_loops(offered, request.messages)


def _tool_line(tool: ToolSpec) -> str:
    about = " ".join(tool.description.split())
    return f"- {tool.name}({', '.join(_parameters(tool))}): {about}"


def _call_shape(tool: ToolSpec) -> dict[str, Any]:
    parameters: dict[str, Any] = msgspec.json.decode(tool.parameters)
    return {
        "type": "object",
        "properties": {"tool": {"const": tool.name}, "arguments": parameters},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def _parameters(tool: ToolSpec) -> list[str]:
    return list(msgspec.json.decode(tool.parameters).get("properties", {}))


def _plain_messages(
    messages: Log[StoredMessage], *, as_calls: bool = True
) -> Log[StoredMessage]:
    """Return the messages as plain text. If `as_calls`, each response is a call."""
    names = {c.id: c.name for stored in messages for c in stored.message.calls}
    plain: list[StoredMessage] = []
    needs_next_step = False  # whether results came after the last response
    for stored, next_stored in zip_longest(messages, islice(messages, 1, None)):
        message = _plain_message(stored.message, names, as_calls=as_calls)
        is_result = stored.message.role == "tool"
        needs_next_step = is_result or (needs_next_step and message.role == "user")
        # The next step comes after the results and the notes that follow them, but before a
        # reminder. Otherwise the model takes a note about files for a task.
        ends_here = (
            next_stored is None
            or next_stored.message.role == "assistant"
            or next_stored.message.text.startswith("<reminder>")
        )
        if needs_next_step and ends_here:
            message = Message("user", (Text(f"{message.text}\n\n{_NEXT_STEP}"),))
            needs_next_step = False
        plain.append(StoredMessage(stored.seq, message))
    return Log(plain)


def _plain_message(message: Message, names: dict[str, str], *, as_calls: bool) -> Message:
    """Return a message as text. `names` are the names of tools by the ids of their calls.

    If `as_calls`, a response without a call is written as a call of `finish`.
    """
    match message.role:
        case "tool":
            results = [p for p in message.parts if isinstance(p, ToolResult)]
            texts = [_result(result, names.get(result.call_id, "")) for result in results]
            return Message("user", (Text("\n\n".join(texts)),))
        case "assistant":
            lines = [_to_call_text(p) for p in message.parts if isinstance(p, ToolCall)]
            if not lines and not as_calls:
                return Message("assistant", (Text(message.text),))
            if not lines:
                answer = Raw(msgspec.json.encode({"answer": message.text}))
                lines = [_to_call_text(ToolCall("", FINISH_TOOL.name, answer))]
            return Message("assistant", (Text("\n".join(lines)),))
        case "user":
            return Message("user", (Text(message.text),))


def _to_call_text(call: ToolCall) -> str:
    """Return a call exactly as the model wrote it, so that the server has it in its cache."""
    arguments_value = json.loads(bytes(sanitize.arguments(call.arguments)))
    arguments = json.dumps(arguments_value, ensure_ascii=False)
    return f'{{"tool": "{sanitize.name(call.name)}", "arguments": {arguments}}}'


def _result(result: ToolResult, name: str) -> str:
    """Return a result as text, without the middle of a long one."""
    text = with_spaced_numbers(result.text, name)
    hidden_chars = len(text) - _MAX_RESULT_CHARS
    if hidden_chars > 0:
        half = _MAX_RESULT_CHARS // 2
        text = f"{text[:half]}\n[{hidden_chars:,} characters are not shown]\n{text[-half:]}"
    return f"{'It failed' if result.failed else 'Result'}:\n{text}"


def _without_loops(
    tools: tuple[ToolSpec, ...], messages: Log[StoredMessage]
) -> tuple[ToolSpec, ...]:
    """Return the tools without those with which the model would only continue a loop.

    A model is in a loop if its last two calls are equal; a message does not stop small models.
    If both calls failed alike, any other tool may be called. If the first succeeded, and the
    second had the same result or was refused, only `finish` may be called.
    """
    # Two calls with their results, and up to two messages of the user between them.
    recent = [s.message for s in messages[-6:] if s.message.role != "user"][-4:]
    if [m.role for m in recent] != ["assistant", "tool", "assistant", "tool"]:
        return tools
    first_response, first_message, second_response, second_message = recent
    calls = _calls(first_response)
    if not calls or calls != _calls(second_response):
        return tools
    first_results, second_results = _results(first_message), _results(second_message)
    same_results = first_results == second_results
    first_failed = any(failed for _, failed in first_results)
    second_was_refused = all(failed for _, failed in second_results)
    if same_results and first_failed:
        looping_tool, _ = calls[0]
        return tuple(tool for tool in tools if tool.name != looping_tool)
    if same_results or (second_was_refused and not first_failed):
        return tuple(tool for tool in tools if tool.name == FINISH_TOOL.name)
    return tools


def _calls(message: Message) -> list[tuple[str, bytes]]:
    return [(call.name, bytes(call.arguments)) for call in message.calls]


def _results(message: Message) -> list[tuple[str, bool]]:
    return [(p.text, p.failed) for p in message.parts if isinstance(p, ToolResult)]


def _finish_text(text: str, *, as_argument: bool = False) -> str:
    """Return the answer in a call of `finish`. `text` has the arguments of the call in JSON.

    If the JSON was cut off, return the text itself. If `as_argument`, the model has called
    another tool, with `finish('…')` as its first argument.
    """
    # The last brace closes the object around the arguments.
    arguments_json = text.rstrip().removesuffix("}")
    try:
        arguments = msgspec.json.decode(arguments_json, type=dict[str, str])
    except msgspec.DecodeError:  # the JSON was cut off
        return text.lstrip()
    if not as_argument:
        return arguments.get("answer", "")
    first_argument = next(iter(arguments.values()), "").strip()
    return first_argument.removeprefix(FINISH_TOOL.name).strip("()'\" ")
