"""A provider that calls tools natively until its model shows that it cannot.

Two things show it: a refusal that says so, and an answer that is calls written as
words and nothing else. With a word beside them they may be quoted, out of a file that
somebody else wrote; and who has ever called in its own way only quotes. From then on
that model is spoken to in text. The answer that showed it is the first to be read so:
nothing is asked twice for it, and nothing is run twice. How text calls work is
`protocol`'s business.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from refold.errors import ProviderError, TooLong
from refold.provider.port import (
    CallDelta,
    Closes,
    Delta,
    Provider,
    Request,
    Retrying,
    seen,
)

if TYPE_CHECKING:
    from refold.provider.text_protocol.watching import Watching

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
        from refold.provider.text_protocol.watching import Watching

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
