"""A provider whose model acts by writing Python, and which looks like any other.

Nothing of tools goes to the model but text: the tool `python` as the way to act, the
others as functions that code finds. The blocks of an answer stay in its words, and are
one call of `python` besides; told back, that call is those words. How talk is told in
words is the business of `text_protocol.told`, what is code that of `blocks`.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.provider import sendable
from refold.provider.code_acting.blocks import blocks
from refold.provider.port import (
    CallDelta,
    Closes,
    Delta,
    Done,
    Provider,
    Request,
    TextDelta,
)
from refold.provider.text_protocol.told import Told, tool_lines
from refold.values.messages import ToolCall, ToolResult
from refold.values.tools import ToolSpec

WIRE = "code"  # a call whose code stands in the words of its answer
PYTHON = "python"
_HOW = """\
# How you act

Write Python in fenced blocks, like this:
```python
print(2 + 2)
```
{about} The blocks of an answer run in their order, until one fails. What they print, and \
the value of a last expression, comes in the next message. There is no other way to act. \
When the task is done, FINAL(answer) ends it."""
_SHAPE = "The value that you give to FINAL has to match this JSON schema: "
_FUNCTIONS = """

These functions are there already. Each returns text, and raises where it fails:
{functions}"""
_NO_CALLS = "<reminder>Answer in words now: code is not run.</reminder>"


class CodeActing:
    """`inner`, for agents that act by writing code."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner
        self._told = Told(InFences())

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        acts = any(tool.name == PYTHON for tool in request.tools)
        answer = self.inner.stream(self._plain(request, acts))
        if acts and request.tool_choice != "none":
            answer = _read(answer)
        async with aclosing(answer) as deltas:
            async for delta in deltas:
                yield delta

    def _plain(self, request: Request, acts: bool) -> Request:
        if acts:
            return self._told.plain(request)
        # What is asked beside the talk must not push out what is kept of it.
        called = any(s.message.calls or s.message.role == "tool" for s in request.messages)
        return Told(InFences()).plain(request) if called else request

    async def aclose(self) -> None:
        if isinstance(self.inner, Closes):
            await self.inner.aclose()


async def _read(answer: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    words: list[str] = []
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(text):
                    words.append(text)
                    yield delta
                # A server may hear a call in the words by itself; here nothing is one.
                case CallDelta():
                    pass
                case Done(stop="end" | "calls"):
                    code = blocks("".join(words))
                    if code:
                        given = msgspec.json.encode({"code": code}).decode()
                        yield CallDelta(0, given, "", PYTHON, WIRE, Raw(b"null"))
                    yield replace(delta, stop="calls" if code else "end")
                case _:
                    yield delta


class InFences:
    """How such a talk is written."""

    no_calls = _NO_CALLS

    def system(self, request: Request) -> str:
        if not request.tools:
            return request.system
        wanted = sendable.schema(request)
        shape = f"\n\n{_SHAPE}{bytes(request.schema).decode()}" if wanted else ""
        return f"{request.system}\n\n{_how(request.tools)}{shape}".lstrip()

    def ending(self, tools: Iterable[ToolSpec]) -> str:
        return ""

    def call(self, call: ToolCall) -> str:
        if call.wire == WIRE:
            return ""
        return "\n\n".join(f"```python\n{code}\n```" for code in _as_code(call))

    def result(self, result: ToolResult, call: ToolCall | None) -> str:
        # What a file says must not be able to end it, and then speak for the person.
        text = result.text.replace("</output", "<\\/output").strip("\n")
        return f"<output>\n{text}\n</output>"

    def after_results(self, ending: str) -> str:
        return ""


def _how(tools: Iterable[ToolSpec]) -> str:
    about = next((tool.description for tool in tools if tool.name == PYTHON), "")
    lines = [line for tool in tools if tool.name != PYTHON for line in tool_lines(tool)]
    functions = _FUNCTIONS.format(functions="\n".join(lines)) if lines else ""
    return _HOW.format(about=about) + functions


def _as_code(call: ToolCall) -> Iterator[str]:
    """A call of a talk that was had in another way, as code would make it."""
    arguments: Any = msgspec.json.decode(sendable.arguments(call.arguments))
    match arguments:
        case {"code": str(code)} if call.name == PYTHON:
            yield code
        case {"code": [*cells]} if call.name == PYTHON:
            yield from map(str, cells)
        case _:
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            yield f"print({sendable.name(call.name)}({given}))"
