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

_FENCE_END = "\n```\n"  # the end of a block
CODE_WIRE = "code"  # a call whose code stands in the words of its answer
PYTHON_TOOL = "python"
_CODE_INSTRUCTIONS = """\
# How you act

Write Python in fenced blocks, like this:
```python
print(2 + 2)
```
{about} The blocks of an answer run in their order, until one fails. What they print, and \
the value of a last expression, comes in the next message. There is no other way to act. \
When the task is done, FINAL(answer) ends it."""
_SCHEMA_INSTRUCTION = "The value that you give to FINAL has to match this JSON schema: "
_SHORT_INSTRUCTIONS = """\
# How you act

Answer with one block of Python and nothing else, like this:
```python
print(2 + 2)
```
It is run. What it prints comes in the next message, and its variables stay. These \
functions are there already: {functions}. FINAL(value) ends the task: call it with the \
answer, once its output has shown you that."""
_NEXT_STEP = "If this shows the answer, call FINAL with it. Else write other code."
_FAILURE_ADVICE = (
    "The code failed, so nothing is known yet. Write it again without the mistake."
)
_PRIMITIVE_FUNCTIONS = ("lm(text, question)", "map_lm(texts, question)")
_FUNCTION_LIST = """

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
        self._renderer = RequestRenderer(FenceFormat(small=small))

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        acts = any(tool.name == PYTHON_TOOL for tool in request.tools)
        answer = self.inner.stream(self._plain(request, acts))
        if acts and request.tool_choice != "none":
            answer = _read_calls(_first_block(answer) if self._small else answer)
        async with aclosing(answer) as deltas:
            async for delta in deltas:
                yield delta

    def _plain(self, request: Request, acts: bool) -> Request:
        if acts:
            plain = self._renderer.plain(request)
            code = self._small and request.tool_choice != "none"
            return replace(plain, stops=(_FENCE_END,)) if code else plain
        # A request outside of the conversation must not evict what is cached of it.
        called = any(s.message.calls or s.message.role == "tool" for s in request.messages)
        return RequestRenderer(FenceFormat()).plain(request) if called else request

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()


async def _read_calls(answer: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    words: list[str] = []
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(text):
                    words.append(text)
                    yield delta
                # A server may parse calls from the text; here none counts.
                case CallDelta():
                    pass
                case Done(stop="end" | "calls"):
                    code = blocks("".join(words))
                    if code:
                        arguments = msgspec.json.encode({"code": code}).decode()
                        yield CallDelta(
                            0, arguments, "", PYTHON_TOOL, CODE_WIRE, Raw(b"null")
                        )
                    yield replace(delta, stop="calls" if code else "end")
                case _:
                    yield delta


async def _first_block(
    answer: AsyncGenerator[Delta, None],
) -> AsyncGenerator[Delta, None]:
    """End the response with its first block; add the end that a stop text has cut off."""
    text = end = ""
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(more) if not end:
                    text += more
                    end = cut_after_first_block(text)
                    over = len(text) - len(end) if end else 0
                    yield TextDelta(more[: max(0, len(more) - over)])
                case TextDelta():
                    pass
                case Done(stop="end") if not end and _is_open(text):
                    yield TextDelta("\n```")
                    yield delta
                case _:
                    yield delta


def _is_open(answer: str) -> bool:
    return bool(blocks(answer)) and not cut_after_first_block(f"{answer}\n")


class FenceFormat:
    """How a conversation is rendered for a model that acts by code."""

    no_calls = _NO_CALLS

    def __init__(self, *, small: bool = False) -> None:
        self._small = small

    def system(self, request: Request) -> str:
        if not request.tools:
            return request.system
        instructions, wanted = (
            _short_instructions if self._small else _instructions,
            sanitize.has_schema(request),
        )
        shape = (
            f"\n\n{_SCHEMA_INSTRUCTION}{bytes(request.schema).decode()}" if wanted else ""
        )
        return f"{request.system}\n\n{instructions(request.tools)}{shape}".lstrip()

    def ending(self, tools: Iterable[ToolSpec]) -> str:
        return ""

    def call(self, call: ToolCall) -> str:
        if call.wire == CODE_WIRE:
            return ""
        return "\n\n".join(f"```python\n{code}\n```" for code in _as_code(call))

    def result(self, result: ToolResult, call: ToolCall | None) -> str:
        # The content of a file must not end it and then pose as the user.
        text = result.text.replace("</output", "<\\/output").strip("\n")
        output = f"<output>\n{text}\n</output>"
        if not self._small:
            return output
        return f"{output}\n\n{_FAILURE_ADVICE if result.failed else _NEXT_STEP}"

    def after_results(self, ending: str) -> str:
        return ""


def _instructions(tools: Iterable[ToolSpec]) -> str:
    about = next((tool.description for tool in tools if tool.name == PYTHON_TOOL), "")
    lines = [
        line for tool in tools if tool.name != PYTHON_TOOL for line in tool_lines(tool)
    ]
    functions = _FUNCTION_LIST.format(functions="\n".join(lines)) if lines else ""
    return _CODE_INSTRUCTIONS.format(about=about) + functions


def _short_instructions(tools: Iterable[ToolSpec]) -> str:
    """Instructions with the functions and their required arguments."""
    own = (_signature(tool) for tool in tools if tool.name != PYTHON_TOOL)
    return _SHORT_INSTRUCTIONS.format(functions=", ".join((*_PRIMITIVE_FUNCTIONS, *own)))


def _signature(tool: ToolSpec) -> str:
    schema: Any = msgspec.json.decode(tool.parameters)
    return f"{tool.name}({', '.join(schema.get('required', []))})"


def _as_code(call: ToolCall) -> Iterator[str]:
    """A call of another protocol, as code."""
    arguments: Any = msgspec.json.decode(sanitize.arguments(call.arguments))
    match arguments:
        case {"code": str(code)} if call.name == PYTHON_TOOL:
            yield code
        case {"code": [*cells]} if call.name == PYTHON_TOOL:
            yield from map(str, cells)
        case _:
            argument_list = ", ".join(
                f"{name}={value!r}" for name, value in arguments.items()
            )
            yield f"print({sanitize.name(call.name)}({argument_list}))"


_FENCE_PATTERN = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^\s`]*)[^`\n]*$")
_PYTHON_LANGUAGES = frozenset({"python", "python3", "py", "repl"})
_OPEN_STRING_ERROR = "unterminated triple-quoted"


def blocks(answer: str, *, whole: bool = True) -> tuple[str, ...]:
    """The code blocks of a response. `whole`: it is complete, so it ends an open block."""
    return tuple(code for code in _find_blocks(answer.splitlines(), whole) if code.strip())


def cut_after_first_block(answer: str) -> str:
    """The answer up to the line that closes its first block; "" if none does, yet.

    A line without its end may still change.
    """
    lines = answer.splitlines(keepends=True)
    over = len(lines) if answer.endswith("\n") else len(lines) - 1
    for end in range(1, over + 1):
        before = "".join(lines[:end])
        if blocks(before, whole=False):
            return before.rstrip("\r\n")
    return ""


def _find_blocks(lines: list[str], whole: bool) -> Iterator[str]:
    index = 0
    while index < len(lines):
        opened = _FENCE_PATTERN.match(lines[index])
        index += 1
        if opened is None:
            continue
        indent, fence, language = opened.groups()
        python = language.lower() in _PYTHON_LANGUAGES
        end = _fence_end(lines, index, fence, len(indent), python)
        closed = end < len(lines)
        if python and (closed or whole):
            yield _code(lines[index:end], len(indent))
        index = end + 1


def _fence_end(lines: list[str], first: int, fence: str, indent: int, python: bool) -> int:
    """The line that closes a fence; or the one after the last.

    Fences inside a Python string close nothing: code writes Markdown, too.
    """
    closes = re.compile(rf"^[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
    ends = [n for n in range(first, len(lines)) if closes.match(lines[n])]
    for end in ends:
        if not (python and _ends_in_string(_code(lines[first:end], indent))):
            return end
    return ends[0] if ends else len(lines)


def _code(lines: list[str], indent: int) -> str:
    code_lines = (line[indent:] if not line[:indent].strip() else line for line in lines)
    return "\n".join(code_lines)


def _ends_in_string(code: str) -> bool:
    """Whether the code ends inside a string that spans lines."""
    if '"""' not in code and "'''" not in code:
        return False
    try:
        ast.parse(code)
    except SyntaxError as error:
        return error.msg.startswith(_OPEN_STRING_ERROR)
    except (ValueError, RecursionError, MemoryError):
        return False
    return False
