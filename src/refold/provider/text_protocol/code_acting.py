"""A provider for models that act by writing Python instead of calling tools.

A request presents the tool `python` as the way to act, and all other tools as functions that
the code can call. The fenced code blocks of a response stay in its text and are, together, one
call of `python`. Later requests contain that text, and not the call. `text_protocol.render`
writes the tools as text.
"""

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
from refold.values.python_syntax import parse_module
from refold.values.tools import ToolSpec

_FENCE_END = "\n```\n"  # the end of a block
CODE_WIRE = "code"  # marks a call whose code is in the text of its response
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
    """Wraps `inner` for an agent that acts by writing code.

    A `small` model gets shorter instructions, and its response ends after its first code block,
    because anything after that is only its guess of what the block prints.
    """

    def __init__(self, inner: Provider, *, small: bool = False) -> None:
        self.inner, self._small = inner, small
        self._renderer = RequestRenderer(FenceFormat(small=small))

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the response. Code becomes calls if Python is offered and they are allowed."""
        has_python = any(tool.name == PYTHON_TOOL for tool in request.tools)
        answer = self.inner.stream(self._plain(request, has_python))
        if has_python and request.tool_choice != "none":
            if self._small:
                answer = _first_block(answer)
            answer = _read_calls(answer)
        async with aclosing(answer) as deltas:
            async for delta in deltas:
                yield delta

    def _plain(self, request: Request, has_python: bool) -> Request:
        """Return the request as plain text. `has_python` says that the model can act by code."""
        if has_python:
            plain = self._renderer.plain(request)
            ends_after_block = self._small and request.tool_choice != "none"
            return replace(plain, stops=(_FENCE_END,)) if ends_after_block else plain
        has_calls = any(
            s.message.calls or s.message.role == "tool" for s in request.messages
        )
        if not has_calls:
            return request
        # Without Python, the request is not part of the conversation. With a renderer of its own, it
        # does not evict the conversation from the cache.
        return RequestRenderer(FenceFormat()).plain(request)

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()


async def _read_calls(answer: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
    """Yield a response, and before its end a call of `python` with all its code blocks.

    A response that was cut off gets no call.
    """
    words: list[str] = []
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(text):
                    words.append(text)
                    yield delta
                # A server may parse calls from the text, but these do not count.
                case CallDelta():
                    pass
                case Done(stop="end" | "calls"):
                    code = blocks("".join(words))
                    if code:
                        arguments = msgspec.json.encode({"code": code}).decode()
                        yield CallDelta(
                            index=0,
                            arguments=arguments,
                            name=PYTHON_TOOL,
                            wire=CODE_WIRE,
                            data=Raw(b"null"),
                        )
                    yield replace(delta, stop="calls" if code else "end")
                case _:
                    yield delta


async def _first_block(
    answer: AsyncGenerator[Delta, None],
) -> AsyncGenerator[Delta, None]:
    """Yield a response without the text after its first code block.

    If a stop text has cut off the end of the block, yield that end, too.
    """
    text = ""
    up_to_block_end = ""  # "" until the first block is closed
    async with aclosing(answer) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(more) if not up_to_block_end:
                    text += more
                    up_to_block_end = cut_after_first_block(text)
                    excess_chars = 0  # after the end of the block
                    if up_to_block_end:
                        excess_chars = len(text) - len(up_to_block_end)
                    yield TextDelta(more[: max(0, len(more) - excess_chars)])
                case TextDelta():
                    pass
                case Done(stop="end") if not up_to_block_end and _is_open(text):
                    yield TextDelta("\n```")
                    yield delta
                case _:
                    yield delta


def _is_open(answer: str) -> bool:
    """Whether the response ends inside its first code block."""
    return bool(blocks(answer)) and not cut_after_first_block(f"{answer}\n")


class FenceFormat:
    """Renders a conversation for a model that acts by writing code."""

    no_calls = _NO_CALLS

    def __init__(self, *, small: bool = False) -> None:
        self._small = small

    def system(self, request: Request) -> str:
        """Return the system text and, if tools are offered, the instructions for them."""
        if not request.tools:
            return request.system
        write = _short_instructions if self._small else _instructions
        text = f"{request.system}\n\n{write(request.tools)}"
        if sanitize.has_schema(request):
            text += f"\n\n{_SCHEMA_INSTRUCTION}{bytes(request.schema).decode()}"
        return text.lstrip()

    def ending(self, tools: Iterable[ToolSpec]) -> str:
        return ""

    def call(self, call: ToolCall) -> str:
        """Return a call as code blocks, or "" for a call whose code is in the text already."""
        if call.wire == CODE_WIRE:
            return ""
        return "\n\n".join(f"```python\n{code}\n```" for code in _as_code(call))

    def result(self, result: ToolResult, call: ToolCall | None) -> str:
        """Return the output in tags; for a `small` model, advice on the next step follows."""
        # The content of a file must not end the output block and then pose as the user.
        text = result.text.replace("</output", "<\\/output").strip("\n")
        output = f"<output>\n{text}\n</output>"
        if not self._small:
            return output
        return f"{output}\n\n{_FAILURE_ADVICE if result.failed else _NEXT_STEP}"

    def after_results(self, ending: str) -> str:
        return ""


def _instructions(tools: Iterable[ToolSpec]) -> str:
    """Return the text that describes Python and lists the other tools as functions."""
    python_description = ""
    function_lines: list[str] = []
    for tool in tools:
        if tool.name == PYTHON_TOOL:
            python_description = tool.description
        else:
            function_lines += tool_lines(tool)
    text = _CODE_INSTRUCTIONS.format(about=python_description)
    if function_lines:
        text += _FUNCTION_LIST.format(functions="\n".join(function_lines))
    return text


def _short_instructions(tools: Iterable[ToolSpec]) -> str:
    """Return instructions that list the functions with their required arguments."""
    own = (_signature(tool) for tool in tools if tool.name != PYTHON_TOOL)
    return _SHORT_INSTRUCTIONS.format(functions=", ".join((*_PRIMITIVE_FUNCTIONS, *own)))


def _signature(tool: ToolSpec) -> str:
    schema: Any = msgspec.json.decode(tool.parameters)
    return f"{tool.name}({', '.join(schema.get('required', []))})"


def _as_code(call: ToolCall) -> Iterator[str]:
    """Yield code that does the same as a native tool call."""
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
    """Return the code in each Python block of a response, without empty ones.

    If `whole`, a block that is still open ends with the response; otherwise it is left out.
    """
    return tuple(code for code in _find_blocks(answer.splitlines(), whole) if code.strip())


def cut_after_first_block(answer: str) -> str:
    """Return the response up to the end of its first block, or "" if no block is closed yet.

    A last line without a line end may still change, so it does not count.
    """
    lines = answer.splitlines(keepends=True)
    complete = len(lines) if answer.endswith("\n") else len(lines) - 1
    for end in range(1, complete + 1):
        before = "".join(lines[:end])
        if blocks(before, whole=False):
            return before.rstrip("\r\n")
    return ""


def _find_blocks(lines: list[str], whole: bool) -> Iterator[str]:
    """Yield the code in each Python block. If `whole`, the last line ends an open block."""
    index = 0
    while index < len(lines):
        opened = _FENCE_PATTERN.match(lines[index])
        index += 1
        if opened is None:
            continue
        indent, fence, language = opened.groups()
        is_python = language.lower() in _PYTHON_LANGUAGES
        end = _fence_end(lines, index, fence, indent=len(indent), is_python=is_python)
        is_closed = end < len(lines)
        if is_python and (is_closed or whole):
            yield _code(lines[index:end], len(indent))
        index = end + 1


def _fence_end(
    lines: list[str], first: int, fence: str, *, indent: int, is_python: bool
) -> int:
    """Return the index of the line that closes a block, or the number of lines.

    A fence inside a Python string does not close the block, because code writes Markdown, too.
    """
    closes = re.compile(rf"^[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
    ends = [n for n in range(first, len(lines)) if closes.match(lines[n])]
    for end in ends:
        if not is_python or not _ends_in_string(_code(lines[first:end], indent)):
            return end
    return ends[0] if ends else len(lines)


def _code(lines: list[str], indent: int) -> str:
    """Join the lines of a block without the indentation of its fence."""
    code_lines = (line[indent:] if not line[:indent].strip() else line for line in lines)
    return "\n".join(code_lines)


def _ends_in_string(code: str) -> bool:
    """Whether the code ends inside a string of several lines."""
    if '"""' not in code and "'''" not in code:
        return False
    try:
        parse_module(code)
    except SyntaxError as error:
        return error.msg.startswith(_OPEN_STRING_ERROR)
    except (ValueError, RecursionError, MemoryError):
        return False
    return False
