"""Decides how a model calls tools: natively, or as text.

A few models are known to need text. Ollama reports whether a model supports tools, and
its wire then refuses without a request. `AsNeeded` switches for any other model when a
refusal or a response shows the need.
"""

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeAlias

from refold.errors import ProviderError, TooLong
from refold.provider.port import CallDelta, Closes, Delta, Provider, Request, Retrying, seen
from refold.provider.spec import Wire

if TYPE_CHECKING:
    from refold.provider.text_protocol.detect import Watching


Tools: TypeAlias = Literal["native", "text", "auto"]

_GEMINI = ("gemma-2", "gemma-3")  # Google serves them without function calling
# What these wires hear is never a call in words: their servers see to that.
_NEVER_IN_WORDS: frozenset[Wire] = frozenset({"anthropic", "openai-responses", "gemini"})


def chosen(model: str, tools: Tools, in_text: Iterable[str]) -> Tools:
    """What a person chose for `model`, where `tools` is for all of its provider's.

    `in_text`: patterns of the names of those that call in text. They may leave out
    the folder of a name, as in `google/gemma-2-9b-it`; capitals do not matter.
    """
    name = model.lower()
    names = {name, name.rpartition("/")[2]}
    patterns = [pattern.lower() for pattern in in_text]
    fit = any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
    return "text" if fit else tools


def needs_text(provider: str, model: str) -> bool:
    """Is it known that this provider takes no tools for this model?"""
    return provider == "gemini" and model.removeprefix("models/").startswith(_GEMINI)


def calling(
    provider: Provider, name: str, wire: Wire, model: str, tools: Tools = "auto"
) -> Provider:
    """`provider`, so that `model` calls tools in the way chosen, or in one that works.

    Put it inside of what asks again (`retry`): some servers say "broken" where they
    mean that they know no tools.
    """
    if tools == "auto" and needs_text(name, model):
        tools = "text"
    match tools:
        case "native":
            return provider
        case "text":
            from refold.provider.text_protocol.protocol import TextProtocol

            return TextProtocol(provider)
        case "auto":
            return AsNeeded(provider, from_answers=wire not in _NEVER_IN_WORDS)


_TOOL = r"(?:tools?|functions?)(?:[ _-]?(?:use|calls?|calling))?"
# Ollama, Bedrock, LiteLLM · OpenAI, Groq, Google, DashScope · OpenRouter · vLLM ·
# llama.cpp · its older relatives · templates that know nobody who tells results
_REFUSALS = (
    rf"does(?:n['’]t| not) support {_TOOL}\b"
    rf"|\b{_TOOL}[`'\"]? (?:is|are) (?:not (?:supported|enabled|available)|unsupported)"
    r"|no endpoints found that support (?:tool|the provided 'tool)"
    r"|requires --enable-auto-tool-choice"
    r"|tools? param(?:eter)? requires --jinja"
    r"|unsupported param(?:eter)?s?:? [`'\"]?tools?\b"
    r"|only user,? (?:system,? )?and assistant roles are supported"
)


class AsNeeded:
    """`inner`, in its own way or in text, each of its models as it needs.

    `from_answers`: may an answer show it, or only a refusal? What never writes
    its calls as words need not be watched for it.
    """

    def __init__(self, inner: Provider, *, from_answers: bool = True) -> None:
        self.inner = inner
        self._from_answers = from_answers
        self._found: set[str] = set()
        self._native: set[str] = set()  # models that have called in their own way
        self._in_text: Provider | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        model = request.model
        if model not in self._found:
            begun, watching = False, self._watching(request)
            try:
                async with aclosing(self.inner.stream(request)) as deltas:
                    async for delta in deltas:
                        begun = begun or seen(delta)
                        if isinstance(delta, CallDelta):
                            self._native.add(model)
                        for told in watching.add(delta) if watching else (delta,):
                            yield told
                if watching and watching.found:
                    self._found.add(model)
                return
            except ProviderError as error:
                if begun or not (request.tools and takes_no_tools(error)):
                    raise
            self._found.add(model)
            yield Retrying(0.0, notice(model, "takes no tools"))
        async with aclosing(self._text().stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if isinstance(self.inner, Closes):
            await self.inner.aclose()

    def _watching(self, request: Request) -> "Watching | None":
        if not self._from_answers or request.model in self._native:
            return None
        from refold.provider.text_protocol.detect import Watching

        return Watching(request, notice(request.model, "writes its tool calls as text"))

    def _text(self) -> Provider:
        # Most models never need it, and every start would pay for its patterns.
        if self._in_text is None:
            from refold.provider.text_protocol.protocol import TextProtocol

            self._in_text = TextProtocol(self.inner)
        return self._in_text


def takes_no_tools(error: ProviderError) -> bool:
    """Does a refusal say that the model, or its server, cannot be given tools?"""
    return not isinstance(error, TooLong) and bool(
        re.search(_REFUSALS, str(error), re.IGNORECASE)
    )


def notice(model: str, why: str) -> str:
    return (
        f"{model} {why}; from here on refold reads its calls from what it writes "
        "(text_tools in the settings says so beforehand)"
    )
