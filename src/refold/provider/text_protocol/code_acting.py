"""A provider for models that act by writing Python instead of calling tools.

The request presents the tool `python` as the way to act, and all other tools as
functions that the code can call. The fenced code blocks of a response stay in its text
and are, together, one call of `python`; in later requests that call is the text again.
`text_protocol.render` writes the tools as text.
"""

import ast
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.provider import sanitize
from refold.provider.port import (
    CallDelta,
    Closable,
    Delta,
    Done,
    Provider,
    Request,
    TextDelta,
)
from refold.provider.text_protocol.render import RequestRenderer, tool_lines
from refold.values.messages import ToolCall, ToolResult
from refold.values.tools import ToolSpec

_CLOSED = "\n```\n"  # the end of a block
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
_HOW_SHORT = """\
# How you act

Answer with one block of Python and nothing else, like this:
```python
print(2 + 2)
```
It is run. What it prints comes in the next message, and its variables stay. These \
functions are there already: {functions}. FINAL(value) ends the task: call it with the \
answer, once its output has shown you that."""
_NEXT = "If this shows the answer, call FINAL with it. Else write other code."
_FAILED = "The code failed, so nothing is known yet. Write it again without the mistake."
_PRIMITIVES = ("lm(text, question)", "map_lm(texts, question)")
_FUNCTIONS = """

These functions are there already. Each returns text, and raises where it fails:
{functions}"""
_NO_CALLS = "<reminder>Answer in words now: code is not run.</reminder>"


class CodeActing:
    """`inner`, for agents that act by writing code.

    A `small` model gets shorter instructions, and its response ends with its first code
    block: what it would write after that is what it expects the block to print.
    """

    def __init__(self, inner: Provider, *, small: bool = False) -> None:
        self.inner, self._small = inner, small
        self._told = RequestRenderer(FenceFormat(small=small))

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        acts = any(tool.name == PYTHON for tool in request.tools)
        answer = self.inner.stream(self._plain(request, acts))
        if acts and request.tool_choice != "none":
            answer = _read(_first_block(answer) if self._small else answer)
        async with aclosing(answer) as deltas:
            async for delta in deltas:
                yield delta

    def _plain(self, request: Request, acts: bool) -> Request:
        if acts:
            plain = self._told.plain(request)
            code = self._small and request.tool_choice != "none"
            return replace(plain, stops=(_CLOSED,)) if code else plain
        # A request outside of the conversation must not evict what is cached of it.
        called = any(s.message.calls or s.message.role == "tool" for s in request.messages)
        return RequestRenderer(FenceFormat()).plain(request) if called else request

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
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


async def _first_block(
    answer: AsyncGenerator[Delta, None],
) -> AsyncGenerator[Delta, None]:
    """Up to the end of the first block, which is closed where a stop has cut that off."""
    text = upto = ""
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(more) if not upto:
                    text += more
                    upto = through_first_block(text)
                    over = len(text) - len(upto) if upto else 0
                    yield TextDelta(more[: max(0, len(more) - over)])
                case TextDelta():
                    pass
                case Done(stop="end") if not upto and _is_open(text):
                    yield TextDelta("\n```")
                    yield delta
                case _:
                    yield delta


def _is_open(answer: str) -> bool:
    return bool(blocks(answer)) and not through_first_block(f"{answer}\n")


class FenceFormat:
    """How a conversation is rendered for a model that acts by code."""

    no_calls = _NO_CALLS

    def __init__(self, *, small: bool = False) -> None:
        self._small = small

    def system(self, request: Request) -> str:
        if not request.tools:
            return request.system
        how, wanted = _how_short if self._small else _how, sanitize.has_schema(request)
        shape = f"\n\n{_SHAPE}{bytes(request.schema).decode()}" if wanted else ""
        return f"{request.system}\n\n{how(request.tools)}{shape}".lstrip()

    def ending(self, tools: Iterable[ToolSpec]) -> str:
        return ""

    def call(self, call: ToolCall) -> str:
        if call.wire == WIRE:
            return ""
        return "\n\n".join(f"```python\n{code}\n```" for code in _as_code(call))

    def result(self, result: ToolResult, call: ToolCall | None) -> str:
        # What a file says must not be able to end it, and then speak for the person.
        text = result.text.replace("</output", "<\\/output").strip("\n")
        told = f"<output>\n{text}\n</output>"
        if not self._small:
            return told
        return f"{told}\n\n{_FAILED if result.failed else _NEXT}"

    def after_results(self, ending: str) -> str:
        return ""


def _how(tools: Iterable[ToolSpec]) -> str:
    about = next((tool.description for tool in tools if tool.name == PYTHON), "")
    lines = [line for tool in tools if tool.name != PYTHON for line in tool_lines(tool)]
    functions = _FUNCTIONS.format(functions="\n".join(lines)) if lines else ""
    return _HOW.format(about=about) + functions


def _how_short(tools: Iterable[ToolSpec]) -> str:
    """The functions by their names, and what they have to be given."""
    own = (_called(tool) for tool in tools if tool.name != PYTHON)
    return _HOW_SHORT.format(functions=", ".join((*_PRIMITIVES, *own)))


def _called(tool: ToolSpec) -> str:
    schema: Any = msgspec.json.decode(tool.parameters)
    return f"{tool.name}({', '.join(schema.get('required', []))})"


def _as_code(call: ToolCall) -> Iterator[str]:
    """A call of another protocol, as code would make it."""
    arguments: Any = msgspec.json.decode(sanitize.arguments(call.arguments))
    match arguments:
        case {"code": str(code)} if call.name == PYTHON:
            yield code
        case {"code": [*cells]} if call.name == PYTHON:
            yield from map(str, cells)
        case _:
            given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            yield f"print({sanitize.name(call.name)}({given}))"


_OPENS = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`]*)[^`\n]*$")
_PYTHON = frozenset({"python", "python3", "py", "repl"})
_IN_A_STRING = "unterminated triple-quoted"


def blocks(answer: str, *, whole: bool = True) -> tuple[str, ...]:
    """`whole`: the response ended properly, so a block that is still open ends with it."""
    return tuple(code for code in _found(answer.splitlines(), whole) if code.strip())


def through_first_block(answer: str) -> str:
    """The answer up to the line that closes its first block; "" if none does, yet.

    A line without an end may still become another.
    """
    lines = answer.splitlines(keepends=True)
    over = len(lines) if answer.endswith("\n") else len(lines) - 1
    for upto in range(1, over + 1):
        before = "".join(lines[:upto])
        if blocks(before, whole=False):
            return before.rstrip("\r\n")
    return ""


def _found(lines: list[str], whole: bool) -> Iterator[str]:
    at = 0
    while at < len(lines):
        opened = _OPENS.match(lines[at])
        at += 1
        if opened is None:
            continue
        indent, fence, language = opened.groups()
        python = language.lower() in _PYTHON
        end = _end(lines, at, fence, len(indent), python)
        closed = end < len(lines)
        if python and (closed or whole):
            yield _code(lines[at:end], len(indent))
        at = end + 1


def _end(lines: list[str], first: int, fence: str, indent: int, python: bool) -> int:
    """The line that closes a fence; or the one after the last.

    Marks inside of a string of Python's close nothing: code writes Markdown, too.
    """
    closes = re.compile(rf"^[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
    ends = [n for n in range(first, len(lines)) if closes.match(lines[n])]
    for end in ends:
        if not (python and _in_a_string(_code(lines[first:end], indent))):
            return end
    return ends[0] if ends else len(lines)


def _code(lines: list[str], indent: int) -> str:
    kept = (line[indent:] if not line[:indent].strip() else line for line in lines)
    return "\n".join(kept)


def _in_a_string(code: str) -> bool:
    """Does the code end in the middle of a string that spans lines?"""
    if '"""' not in code and "'''" not in code:
        return False
    try:
        ast.parse(code)
    except SyntaxError as error:
        return error.msg.startswith(_IN_A_STRING)
    except (ValueError, RecursionError, MemoryError):
        return False
    return False
