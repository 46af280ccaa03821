"""Decides how a model calls tools: natively, or as text.

A few models are known to need text. Ollama reports whether a model supports tools, and
its wire then refuses without a request. `CallProtocolSelector` switches for any other model when a
refusal or a response shows the need. Most responses show with their first word that they
contain no call; the parser, with all its patterns, is loaded only for the others. The
results are stored across sessions.
"""

import hashlib
import os
import re
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from refold.errors import ProviderError, TooLong, ToolRefused
from refold.provider.port import (
    CallDelta,
    Closable,
    Delta,
    Done,
    Provider,
    Request,
    Retrying,
    TextDelta,
    is_response_part,
)
from refold.provider.spec import Wire
from refold.provider.text_protocol.quoting import CALL_BEGINNINGS
from refold.safe_open import open_checked

if TYPE_CHECKING:
    from refold.provider.text_protocol.parse import StreamParser


Tools: TypeAlias = Literal["native", "text", "auto"]

_REMEMBER_SECONDS = 30 * 24 * 3600.0
_MAX_NAME_CHARS = 100  # of a name in the name of a file
_GEMINI_TEXT_MODELS = ("gemma-2", "gemma-3")  # Google serves them without function calling
# The servers of these wires never send a call as text.
_NEVER_IN_WORDS: frozenset[Wire] = frozenset({"anthropic", "openai-responses", "gemini"})


def choose_protocol(model: str, tools: Tools, in_text: Iterable[str]) -> Tools:
    """The setting for `model`; `tools` is the choice for its provider.

    `in_text`: patterns of the names of models that call tools as text. A pattern may leave
    out the part before a slash, as in `google/gemma-2-9b-it`; case does not matter.
    """
    name = model.lower()
    names = {name, name.rpartition("/")[2]}
    patterns = [pattern.lower() for pattern in in_text]
    fit = any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
    return "text" if fit else tools


def needs_text(provider: str, model: str) -> bool:
    """Return True if the provider is known to refuse tools for this model."""
    return provider == "gemini" and model.removeprefix("models/").startswith(
        _GEMINI_TEXT_MODELS
    )


def with_call_protocol(
    provider: Provider,
    name: str,
    wire: Wire,
    model: str,
    tools: Tools = "auto",
    text_call_models: "TextCallModels | None" = None,
) -> Provider:
    """`provider`, with `model` calling tools in the chosen way, or in the way that works.
    `text_call_models` stores which way works. The result belongs inside `retry`: some
    servers that know no tools report a temporary failure.
    """
    if tools == "auto" and (
        needs_text(name, model) or (text_call_models and model in text_call_models)
    ):
        tools = "text"
    match tools:
        case "native":
            return provider
        case "text":
            from refold.provider.text_protocol.protocol import TextProtocol

            return TextProtocol(provider)
        case "auto":
            in_words = wire not in _NEVER_IN_WORDS
            return CallProtocolSelector(
                provider, from_responses=in_words, text_call_models=text_call_models
            )


_TOOL_WORDS = r"(?:tools?|functions?)(?:[ _-]?(?:use|calls?|calling))?"
# Ollama, Bedrock, LiteLLM · OpenAI, Groq, Google, DashScope · OpenRouter · vLLM ·
# llama.cpp · its older relatives · templates without a role for results
_NO_TOOLS_PATTERN = (
    rf"does(?:n['’]t| not) support {_TOOL_WORDS}\b"
    rf"|\b{_TOOL_WORDS}[`'\"]? (?:is|are) (?:not (?:supported|enabled|available)|unsupported)"
    r"|no endpoints found that support (?:tool|the provided 'tool)"
    r"|requires --enable-auto-tool-choice"
    r"|tools? param(?:eter)? requires --jinja"
    r"|unsupported param(?:eter)?s?:? [`'\"]?tools?\b"
    r"|only user,? (?:system,? )?and assistant roles are supported"
)


class CallProtocolSelector:
    """`inner`, with native calls or calls as text, as each of its models needs.

    `from_responses`: a response may show the need, too, not only a refusal.
    `text_call_models` stores the models that have shown it.
    """

    def __init__(
        self,
        inner: Provider,
        *,
        from_responses: bool = True,
        text_call_models: "TextCallModels | None" = None,
    ) -> None:
        self.inner, self._text_call_models = inner, text_call_models
        self._from_responses = from_responses
        self._needs_text: set[str] = set()  # models
        self._native: set[str] = set()  # models that have called natively
        self._in_text: Provider | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        model = request.model
        if model not in self._needs_text:
            has_begun, detector = False, self._detector(request)
            try:
                async with aclosing(self.inner.stream(request)) as deltas:
                    async for delta in deltas:
                        has_begun = has_begun or is_response_part(delta)
                        if isinstance(delta, CallDelta):
                            self._native.add(model)
                        for piece in detector.feed(delta) if detector else (delta,):
                            yield piece
                if detector and detector.has_calls:
                    self._learn(model)
                return
            except ProviderError as error:
                if has_begun or not (request.tools and takes_no_tools(error)):
                    raise
            self._learn(model)
            yield Retrying(0.0, notice(model, "takes no tools"))
        async with aclosing(self._text().stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _detector(self, request: Request) -> "CallDetector | None":
        if not self._from_responses or request.model in self._native:
            return None

        return CallDetector(request, notice(request.model, "writes its tool calls as text"))

    def _learn(self, model: str) -> None:
        self._needs_text.add(model)
        if self._text_call_models is not None:
            self._text_call_models.add(model)

    def _text(self) -> Provider:
        # Most models never need it, and compiling its patterns takes time.
        if self._in_text is None:
            from refold.provider.text_protocol.protocol import TextProtocol

            self._in_text = TextProtocol(self.inner)
        return self._in_text


class TextCallModels:
    """Models of one provider at one address that were found to call tools as text.

    They are stored across sessions, each as an empty file in the state directory; a failure
    to store one is ignored. After a month a model is forgotten, because
    servers and models get better.
    """

    def __init__(self, state: Path, provider: str, address: str) -> None:
        self._directory = state / "models" / "tools-as-text"
        self._provider, self._address = provider, address

    def __contains__(self, model: str) -> bool:
        try:
            modified = self._file(model).lstat().st_mtime
        except OSError:
            return False
        return abs(time.time() - modified) < _REMEMBER_SECONDS

    def add(self, model: str) -> None:
        with suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = open_checked(self._file(model), os.O_WRONLY | os.O_CREAT)
            os.utime(file)
            os.close(file)

    def _file(self, model: str) -> Path:
        name = re.sub(r"[^\w.-]", "_", f"{self._provider}-{model}"[:_MAX_NAME_CHARS])
        key = f"{self._provider} {model} {self._address}".encode()
        return self._directory / f"{name}-{hashlib.sha256(key).hexdigest()[:12]}"


def takes_no_tools(error: ProviderError) -> bool:
    """Return True if the error says that the model or its server takes no tools."""
    return not isinstance(error, TooLong | ToolRefused) and bool(
        re.search(_NO_TOOLS_PATTERN, str(error), re.IGNORECASE)
    )


def notice(model: str, reason: str) -> str:
    return (
        f"{model} {reason}; refold reads its calls from its text from now on "
        "(the setting text_tools does so from the start)"
    )


class CallDetector:
    """Passes a response on, and holds back only what may be a call written as text.

    If the response consists of such calls, `has_calls` is true, and `notice` is yielded.
    """

    def __init__(self, request: Request, notice: str) -> None:
        self._request, self._notice = request, notice
        self._parser: StreamParser | None = None
        self._passes = not request.tools or request.tool_choice == "none"
        self.has_calls = False

    def feed(self, delta: Delta) -> Iterator[Delta]:
        if self._passes:
            yield delta
            return
        match delta:
            case TextDelta(text):
                yield from self._text(text)
            case CallDelta():  # it has native tools
                yield from self._release()
                yield delta
            case Done() if self._parser is not None:
                yield from self._end(delta, self._parser)
            case _:
                yield delta

    def _text(self, text: str) -> Iterator[Delta]:
        first = text.lstrip()[:1]
        if self._parser is None and first and first not in CALL_BEGINNINGS:
            self._passes = True
            yield TextDelta(text)
            return
        self._parser = parser = self._parser or self._new_parser()
        yield from parser.feed(text)
        if parser.has_text:
            yield from self._release()

    def _release(self) -> Iterator[Delta]:
        """Release the held text, and hold nothing back from now on."""
        self._passes = True
        if self._parser is not None:
            yield from self._parser.end(calls=False)

    def _end(self, done: Done, parser: "StreamParser") -> Iterator[Delta]:
        from refold.provider.text_protocol.call_formats import fits_a_tool

        tools = {tool.name: tool for tool in self._request.tools}
        if done.stop in ("end", "calls"):
            parser.close()
            fit = all(fits_a_tool(call, tools) for call in parser.calls)
            self.has_calls = bool(parser.calls) and fit and not parser.has_text
        if self.has_calls:
            yield Retrying(0.0, self._notice)
            done = replace(done, stop="calls")
        yield from parser.end(calls=self.has_calls)
        yield done

    def _new_parser(self) -> "StreamParser":
        from refold.provider.text_protocol.parse import StreamParser

        return StreamParser(self._request.tools, bytes(self._request.schema), native=True)
