"""Decides how a model calls tools: natively, or as text.

A few models are known to need text. Ollama reports whether a model supports tools; if it does
not, Ollama's wire raises the refusal without a request. For any other model
`CallProtocolSelector` changes to text when a refusal or a response shows the need. Most
responses show with their first word that they contain no call; the parser, with all its
patterns, is loaded only for the others. The results are stored across sessions.
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
_MAX_NAME_CHARS = 100  # the part of a model's name used in a file name
_GEMINI_TEXT_MODELS = ("gemma-2", "gemma-3")  # Google serves these without function calling
# The servers of these wires never send a call as text.
_NEVER_IN_WORDS: frozenset[Wire] = frozenset({"anthropic", "openai-responses", "gemini"})


def choose_protocol(model: str, tools: Tools, in_text: Iterable[str]) -> Tools:
    """Return "text" if a pattern in `in_text` matches the name of `model`, else `tools`.

    The result says how the model calls tools. A pattern need not contain the part of the name
    before the last slash. Case does not matter.
    """
    name = model.lower()
    names = {name, name.rpartition("/")[2]}
    patterns = [pattern.lower() for pattern in in_text]
    is_listed = any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
    return "text" if is_listed else tools


def needs_text(provider: str, model: str) -> bool:
    """Whether the provider is known to refuse native tool calls of this model."""
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
    """Wrap a provider so that `model` calls tools natively or as text, as `tools` says.

    With "auto", the way that works is found, and stored in `text_call_models`. `retry` must
    wrap the result, because some servers without tool support report a temporary failure.
    """
    if tools == "auto":
        was_found = text_call_models is not None and model in text_call_models
        if was_found or needs_text(name, model):
            tools = "text"
    match tools:
        case "native":
            return provider
        case "text":
            from refold.provider.text_protocol.protocol import TextProtocol

            return TextProtocol(provider)
        case "auto":
            may_write_calls = wire not in _NEVER_IN_WORDS
            return CallProtocolSelector(
                provider, from_responses=may_write_calls, text_call_models=text_call_models
            )


_TOOL_WORDS = r"(?:tools?|functions?)(?:[ _-]?(?:use|calls?|calling))?"
# Each line matches messages of: Ollama, Bedrock and LiteLLM; OpenAI, Groq, Google and DashScope;
# OpenRouter; vLLM; llama.cpp; older programs with llama.cpp; templates without a role for results.
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
    """Wraps a provider, and lets each of its models call tools natively or, if needed, as text.

    `from_responses` says that not only a refusal but also a response may show the need.
    `text_call_models` stores the models that need text.
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
        self._needs_text: set[str] = set()  # models that need calls as text
        self._native: set[str] = set()  # models that have called natively
        self._in_text: Provider | None = None

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield a response with native calls, or with calls as text if the model needs them.

        If the model refuses tools, the request is repeated with calls as text.
        """
        model = request.model
        if model not in self._needs_text:
            has_begun = False
            detector = self._detector(request)
            try:
                async with aclosing(self.inner.stream(request)) as deltas:
                    async for delta in deltas:
                        has_begun = has_begun or is_response_part(delta)
                        if isinstance(delta, CallDelta):
                            self._native.add(model)
                        if detector is None:
                            yield delta
                            continue
                        for piece in detector.feed(delta):
                            yield piece
                if detector is not None and detector.has_calls:
                    self._learn(model)
                return
            except ProviderError as error:
                refuses_tools = request.tools and takes_no_tools(error)
                if has_begun or not refuses_tools:
                    raise
            self._learn(model)
            yield Retrying(wait=0.0, reason=notice(model, "takes no tools"))
        async with aclosing(self._text_protocol().stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if isinstance(self.inner, Closable):
            await self.inner.aclose()

    def _detector(self, request: Request) -> "CallDetector | None":
        """Return a detector of calls in the text of a response.

        Return None if only a refusal counts, or if the model has already called natively.
        """
        if not self._from_responses or request.model in self._native:
            return None
        return CallDetector(request, notice(request.model, "writes its tool calls as text"))

    def _learn(self, model: str) -> None:
        """Use calls as text for this model from now on, also in later processes."""
        self._needs_text.add(model)
        if self._text_call_models is not None:
            self._text_call_models.add(model)

    def _text_protocol(self) -> Provider:
        """Return the wrapper that reads calls from text. The first call makes it."""
        # Most models never need it, and compiling its patterns takes time.
        if self._in_text is None:
            from refold.provider.text_protocol.protocol import TextProtocol

            self._in_text = TextProtocol(self.inner)
        return self._in_text


class TextCallModels:
    """Stores which models of one provider, at one address, need to call tools as text.

    Each model is an empty file in the state directory, so that later sessions know the model. A
    failure to store the file is ignored. After a month a model is forgotten, because servers
    and models improve.
    """

    def __init__(self, state: Path, provider: str, address: str) -> None:
        self._directory = state / "models" / "tools-as-text"
        self._provider, self._address = provider, address

    def __contains__(self, model: str) -> bool:
        """Whether the model was added recently. After a month it is tested again."""
        try:
            modified = self._file(model).lstat().st_mtime
        except OSError:
            return False
        return abs(time.time() - modified) < _REMEMBER_SECONDS

    def add(self, model: str) -> None:
        """Store that the model needs calls as text, as an empty file. Errors are ignored."""
        with suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = open_checked(self._file(model), os.O_WRONLY | os.O_CREAT)
            os.utime(file)
            os.close(file)

    def _file(self, model: str) -> Path:
        """Return the path of a model's file: a readable name with a hash to make it unique."""
        name = re.sub(r"[^\w.-]", "_", f"{self._provider}-{model}"[:_MAX_NAME_CHARS])
        key = f"{self._provider} {model} {self._address}".encode()
        return self._directory / f"{name}-{hashlib.sha256(key).hexdigest()[:12]}"


def takes_no_tools(error: ProviderError) -> bool:
    """Whether an error says that the model or its server does not support tools."""
    return not isinstance(error, TooLong | ToolRefused) and bool(
        re.search(_NO_TOOLS_PATTERN, str(error), re.IGNORECASE)
    )


def notice(model: str, reason: str) -> str:
    """Return the notice for the user. `reason` is the rest of a sentence about `model`."""
    return (
        f"{model} {reason}; refold reads its calls from its text from now on "
        "(the setting text_tools does so from the start)"
    )


class CallDetector:
    """Passes the deltas of a response on, but holds back text that may be a call.

    If the text of the response is nothing but calls of offered tools, these calls are passed on
    at the end of the response, after `notice`. `has_calls` is then true.
    """

    def __init__(self, request: Request, notice: str) -> None:
        self._request, self._notice = request, notice
        self._parser: StreamParser | None = None
        self._passes_everything = not request.tools or request.tool_choice == "none"
        self.has_calls = False

    def feed(self, delta: Delta) -> Iterator[Delta]:
        """Yield a delta of the response, unless its text is held back."""
        if self._passes_everything:
            yield delta
            return
        match delta:
            case TextDelta(text):
                yield from self._feed_text(text)
            case CallDelta():  # the model has native tools
                yield from self._release()
                yield delta
            case Done() if self._parser is not None:
                yield from self._end(delta, self._parser)
            case _:
                yield delta

    def _feed_text(self, text: str) -> Iterator[Delta]:
        """Yield the text that cannot be a call, and hold back the rest."""
        if self._parser is None:
            first_char = text.lstrip()[:1]
            if first_char and first_char not in CALL_BEGINNINGS:
                # a response that begins with words has no calls
                self._passes_everything = True
                yield TextDelta(text)
                return
            self._parser = self._new_parser()
        parser = self._parser
        yield from parser.feed(text)
        if parser.has_text:
            yield from self._release()

    def _release(self) -> Iterator[Delta]:
        """Yield the text that was held back, and hold back nothing more."""
        self._passes_everything = True
        if self._parser is not None:
            yield from self._parser.end(calls=False)

    def _end(self, done: Done, parser: "StreamParser") -> Iterator[Delta]:
        """Yield what was held back, as calls or as text, and the end of the response."""
        from refold.provider.text_protocol.call_formats import fits_a_tool

        tools = {tool.name: tool for tool in self._request.tools}
        if done.stop in ("end", "calls"):
            parser.close()
            all_fit = all(fits_a_tool(call, tools) for call in parser.calls)
            self.has_calls = bool(parser.calls) and all_fit and not parser.has_text
        if self.has_calls:
            yield Retrying(wait=0.0, reason=self._notice)
            done = replace(done, stop="calls")
        yield from parser.end(calls=self.has_calls)
        yield done

    def _new_parser(self) -> "StreamParser":
        from refold.provider.text_protocol.parse import StreamParser

        return StreamParser(self._request.tools, bytes(self._request.schema), native=True)
