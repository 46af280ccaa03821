"""A provider that calls tools natively until its model shows that it cannot.

Two things show it: a refusal that says so, and an answer that is calls written as
words and nothing else. With a word beside them they may be quoted, out of a file that
somebody else wrote; and who has ever called in its own way only quotes. From then on
that model is spoken to in text. The answer that showed it is the first to be read so:
nothing is asked twice for it, and nothing is run twice. How text calls work is
`protocol`'s business.
"""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from msgspec.structs import replace

from refold.errors import ProviderError, TooLong
from refold.provider.port import (
    CallDelta,
    Closes,
    Delta,
    Done,
    Provider,
    Request,
    Retrying,
    TextDelta,
    seen,
)
from refold.provider.text_protocol.heard import Reading
from refold.provider.text_protocol.protocol import TextProtocol
from refold.provider.text_protocol.shapes import fits

_TOOL = r"(?:tools?|functions?)(?:[ _-]?(?:use|calls?|calling))?"
# Ollama, Bedrock, LiteLLM · OpenAI, Groq, Google, DashScope · OpenRouter · vLLM ·
# llama.cpp · its older relatives · templates that know nobody who tells results
_REFUSALS = re.compile(
    rf"does(?:n['’]t| not) support {_TOOL}\b"
    rf"|\b{_TOOL}[`'\"]? (?:is|are) (?:not (?:supported|enabled|available)|unsupported)"
    r"|no endpoints found that support (?:tool|the provided 'tool)"
    r"|requires --enable-auto-tool-choice"
    r"|tools? param(?:eter)? requires --jinja"
    r"|unsupported param(?:eter)?s?:? [`'\"]?tools?\b"
    r"|only user,? (?:system,? )?and assistant roles are supported",
    re.IGNORECASE,
)


class AsNeeded:
    """`inner`, in its own way or in text, each of its models as it needs.

    `from_answers`: may an answer show it, or only a refusal? What never writes
    its calls as words need not be watched for it.
    """

    def __init__(self, inner: Provider, *, from_answers: bool = True) -> None:
        self.inner = inner
        self._from_answers = from_answers
        self._in_text = TextProtocol(inner)
        self._found: set[str] = set()
        self._native: set[str] = set()  # models that have called in their own way

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        refused = False
        if request.model not in self._found:
            may_show = self._from_answers and request.model not in self._native
            watching = _Watching(request, may_show)
            try:
                async with aclosing(self.inner.stream(request)) as deltas:
                    async for delta in deltas:
                        if isinstance(delta, CallDelta):
                            self._native.add(request.model)
                        for told in watching.add(delta):
                            yield told
            except ProviderError as error:
                if watching.begun or not (request.tools and takes_no_tools(error)):
                    raise
                refused = True
            if watching.found or refused:
                self._found.add(request.model)
            if not refused:
                return
            yield Retrying(0.0, notice(request.model, "takes no tools"))
        async with aclosing(self._in_text.stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if isinstance(self.inner, Closes):
            await self.inner.aclose()


def takes_no_tools(error: ProviderError) -> bool:
    """Does a refusal say that the model, or its server, cannot be given tools?"""
    return not isinstance(error, TooLong) and bool(_REFUSALS.search(str(error)))


def notice(model: str, why: str) -> str:
    return (
        f"{model} {why}; from here on refold reads its calls from what it writes "
        "(text_tools in the settings says so beforehand)"
    )


class _Watching:
    """Passes an answer on, and looks whether all of it is calls in words."""

    def __init__(self, request: Request, from_answers: bool) -> None:
        self._request = request
        self._reading = Reading(request.tools, bytes(request.schema), wary=True)
        self._passes = not (from_answers and request.tools)
        self._passes = self._passes or request.tool_choice == "none"
        self.begun = self.found = False

    def add(self, delta: Delta) -> Iterator[Delta]:
        self.begun = self.begun or seen(delta)
        if self._passes:
            yield delta
            return
        match delta:
            case TextDelta(text):
                yield from self._reading.feed(text)
                if self._reading.said:
                    yield from self._reading.end(calls=False)
                    self._passes = True
            case CallDelta():
                yield from self._reading.end(calls=False)
                self._passes = True  # it can do it its own way
                yield delta
            case Done():
                yield from self._ended(delta)
            case _:
                yield delta

    def _ended(self, done: Done) -> Iterator[Delta]:
        tools = {tool.name: tool for tool in self._request.tools}
        if done.stop in ("end", "calls"):
            self._reading.close()
            calls = self._reading.calls
            fit = all(fits(call, tools) for call in calls)
            self.found = bool(calls) and fit and not self._reading.said
        if self.found:
            why = "writes its tool calls as text"
            yield Retrying(0.0, notice(self._request.model, why))
            done = replace(done, stop="calls")
        yield from self._reading.end(calls=self.found)
        yield done
