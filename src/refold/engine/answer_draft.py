"""Collects the deltas of a streamed model response, and makes one `ModelAnswered` of them.

A call that the model made through `tool_call` becomes a call of the tool that it names, so
later code sees only that tool. `model_call` records the response.

The size of a response is limited in this module and not in the wires, because plug-ins have
wires of their own. A time limit would stop slow but correct models first.
"""

import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.engine.call_cost import Charge, MeasuredCall, charge
from refold.errors import ProviderError
from refold.journal.events.kinds import ModelAnswered, ModelFailed
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    HostedCall,
    HostedResult,
    TextDelta,
    ThinkingDelta,
)
from refold.values.json_check import find_repeated_key
from refold.values.live import CallComing, Live, TextCame, ThinkingCame
from refold.values.messages import Message, Part, Text, Thinking, ToolCall
from refold.values.text import clean
from refold.values.tools import CALLER_TOOL
from refold.values.usage import Usage

# Several times the length of the longest real responses.
MAX_RESPONSE_CHARS = 2 * 1024 * 1024
ENDLESS_RESPONSE = (
    f"refold ended the response: it has more than {MAX_RESPONSE_CHARS:,} characters"
)
MAX_HOSTED_CALLS = 256  # calls that the provider executes itself in one response
TOO_MANY_HOSTED_CALLS = f"the answer was cut off by refold: it has more than {MAX_HOSTED_CALLS} calls of its own"
EMPTY_RESPONSE = "the model's answer was empty"
MAX_EMPTY_RESPONSES = 2  # empty responses in a row, after which the model is asked again
_MAX_FAILED_TEXT_CHARS = 100_000


class _Text:
    def __init__(self) -> None:
        # Joined once at the end, because a response may have many thousands of pieces.
        self.pieces: list[str] = []


class _Call:
    def __init__(self, id_: str) -> None:
        self.id = id_
        self.name = ""
        self.arguments: list[str] = []
        self.wire, self.data = "", Raw(b"null")  # what the provider needs back


class HostedUse(Struct, frozen=True):
    """A tool call that the provider executed itself.

    `result` is None if the response was cut off before the result arrived.
    """

    name: str
    arguments: Raw = Raw(b"{}")
    result: HostedResult | None = None


class Draft:
    """A response in progress.

    `next_call` is the number in the id of the first call of the response; `model` is the
    requested model; `price` computes dollars. `reachable` returns whether the model may call a
    tool through `tool_call`. `measured` is the size of the request. The time to the first piece
    is counted from the creation of the draft.
    """

    def __init__(
        self,
        next_call: int,
        model: str,
        price: Callable[[str, Usage], float | None],
        reachable: Callable[[str], bool] = lambda _: False,
        measured: MeasuredCall = MeasuredCall(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._next_call, self._model, self._price = next_call, model, price
        self._reachable, self._measured = reachable, measured
        self._parts: list[Part | _Text | _Call] = []  # in the order in which they began
        self._calls: dict[int, _Call] = {}  # by their index in the response
        # The pieces of a thinking part that is not complete.
        self._thinking: list[str] | None = None
        self._hosted: dict[str, HostedUse] = {}  # calls that the provider executes, by id
        self._written_chars = 0  # characters that the model wrote
        self._result_chars = 0  # characters of the results of hosted calls
        self._done: Done | None = None
        self._clock, self._began = clock, clock()
        self._pieces = 0
        self._first_piece = 0.0  # seconds until the first piece

    @property
    def text(self) -> str:
        """The text received so far."""
        texts = (p.pieces for p in self._parts if isinstance(p, _Text))
        return "".join(piece for pieces in texts for piece in pieces)

    @property
    def provider_calls(self) -> tuple[HostedUse, ...]:
        """The calls that the provider has executed itself so far."""
        return tuple(self._hosted.values())

    def add(self, delta: Delta) -> Live | None:
        """Add a delta, and return the live news for watchers, or None if there is none.

        Raises `ProviderError` if the response exceeds the maximum size.
        """
        if not isinstance(delta, Done):
            self._pieces += 1
            if self._pieces == 1:
                self._first_piece = round(self._clock() - self._began, 3)
        match delta:
            case TextDelta(text):
                self._count_chars(text)
                self._close_thinking()
                return self._add_text(text)
            case ThinkingDelta(text, wire, data):
                self._count_chars(text)
                return self._add_thinking(text, wire, data)
            case CallDelta():
                self._count_chars(delta.arguments)
                self._close_thinking()
                return self._add_call(delta)
            case HostedCall() | HostedResult():
                self._close_thinking()
                return self._add_provider_call(delta)
            case Done():
                self._close_thinking()
                self._done = delta
            case _:
                pass
        return None

    def to_answer(self, *, calls: bool = True) -> ModelAnswered | None:
        """Return the response, or None if it stopped before its end or is empty.

        The result has calls only if the response ended properly and `calls` is true: a call
        that was cut off is never repaired.
        """
        end = self._done
        if end is None:
            return None
        is_incomplete = end.stop in ("length", "refused")
        has_calls = calls and not is_incomplete
        parts = tuple(self._build_parts(has_calls))
        # A response whose calls are left out does not wait for their results.
        stop = "end" if end.stop == "calls" and not has_calls else end.stop
        has_content = any(
            isinstance(part, ToolCall) or (isinstance(part, Text) and part.text)
            for part in parts
        )
        if not has_content and not is_incomplete:
            return None
        # Thinking alone is dropped, unless it has what the provider needs of its own calls.
        content = parts if has_content or self._hosted else ()
        charged = self._charge(end)
        requested_name = charged.model.partition("/")[2]  # of provider/name
        return ModelAnswered(
            Message("assistant", content),
            usage=charged.usage,
            stop=stop,
            model=charged.model,
            cost=charged.cost,
            refusal=end.why,
            served_by=end.model if end.model != requested_name else "",
            first_piece=self._first_piece if self._pieces > 1 else None,
            paused=end.paused,
            warning=end.warning,
            refused_tools=end.refused_tools,
        )

    def to_failure(self, reason: str, kind: str, *, dropped: bool = False) -> ModelFailed:
        """Return the event for a failed response, with the charge for the part that was
        received.
        """
        shown = _part_to_record(self.text) if self.text.strip() else ""
        if self._done is None and not self._pieces:
            return ModelFailed(reason, kind, shown, dropped=dropped)
        charged = self._charge(self._done or Done())
        return ModelFailed(
            reason,
            kind,
            shown,
            usage=charged.usage,
            model=charged.model,
            cost=charged.cost,
            dropped=dropped,
        )

    def to_partial_answer(self) -> ModelAnswered | None:
        """Return the text that was received before a stop; None if there is no text.

        Calls are left out, because they may be incomplete.
        """
        if not self.text.strip():
            return None
        results = [use.result for use in self.provider_calls if use.result is not None]
        # Later requests must contain what the provider needs of its own calls.
        thinking = tuple(
            Thinking(text="", wire=result.wire, data=result.data)
            for result in results
            if bytes(result.data)
        )
        message = Message("assistant", (*thinking, Text(self.text)))
        # Without reported usage the cost is unknown, except that a free model costs
        # nothing.
        is_free = self._price(self._model, Usage(fresh=1, output=1)) == 0
        cost = 0.0 if is_free else None
        return ModelAnswered(message, model=self._model, partial=True, cost=cost)

    def _count_chars(self, text: str, result_text: str = "") -> None:
        """Count text that the model wrote, and the result of a call by the provider.

        Raises `ProviderError` if the response exceeds the maximum size.
        """
        self._written_chars += len(text)
        self._result_chars += len(result_text)
        if self._written_chars + self._result_chars > MAX_RESPONSE_CHARS:
            raise ProviderError(ENDLESS_RESPONSE)

    def _charge(self, done: Done) -> Charge:
        call = replace(self._measured, received_chars=self._written_chars)
        return charge(done, call, self._model, self._price)

    def _add_text(self, text: str) -> Live | None:
        """Add a piece to the last text, or begin a new one. Return None for an empty piece."""
        if not text:
            return None
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Text):
            last = _Text()
            self._parts.append(last)
        last.pieces.append(text)
        return TextCame(text)

    def _add_thinking(self, text: str, wire: str, data: Raw) -> Live | None:
        """Add a piece of thinking. A piece with `data` of the provider ends the thinking."""
        if self._thinking is None:
            self._thinking = []
        self._thinking.append(text)
        if bytes(data):  # only the last piece has data of the provider
            whole = "".join(self._thinking)
            self._parts.append(Thinking(whole, wire, data))
            self._thinking = None
        return ThinkingCame(text) if text else None

    def _close_thinking(self) -> None:
        """Add open thinking to the parts, if it has text. It has no data of the provider."""
        if self._thinking is not None and any(self._thinking):
            self._parts.append(Thinking("".join(self._thinking)))
        self._thinking = None

    def _add_call(self, delta: CallDelta) -> Live | None:
        """Add a piece of the call `delta.index`.

        Return the live news of the call if this piece is its first and has a name.
        """
        call = self._calls.get(delta.index)
        is_new = call is None
        if call is None:
            call = self._calls[delta.index] = _Call(delta.id)
            self._parts.append(call)
        call.name += delta.name
        call.arguments.append(delta.arguments)
        if bytes(delta.data):
            call.wire, call.data = delta.wire, delta.data
        return CallComing(call.name) if is_new and call.name else None

    def _add_provider_call(self, delta: HostedCall | HostedResult) -> Live | None:
        """Add a call that the provider executes, or the result of such a call.

        Return the live news of a new call, and None for a result.
        """
        if isinstance(delta, HostedCall):
            if len(self._hosted) >= MAX_HOSTED_CALLS:
                raise ProviderError(TOO_MANY_HOSTED_CALLS)
            self._hosted[delta.id] = HostedUse(delta.name)
            return CallComing(delta.name)
        self._count_chars(delta.arguments, result_text=delta.text)
        if (use := self._hosted.get(delta.id)) is not None:
            arguments = _to_json(delta.arguments)
            self._hosted[delta.id] = replace(use, arguments=arguments, result=delta)
        if bytes(delta.data):
            self._parts.append(Thinking(text="", wire=delta.wire, data=delta.data))
        return None

    def _build_parts(self, with_calls: bool) -> list[Part]:
        """Return the parts of the message, without empty texts, and with calls if
        `with_calls`.
        """
        parts: list[Part] = []
        next_call = self._next_call
        for part in self._parts:
            match part:
                case _Call() if with_calls:
                    call = ToolCall(
                        f"call-{next_call}",
                        part.name,
                        _to_json("".join(part.arguments)),
                        provider_id=part.id,
                        wire=part.wire,
                        data=part.data,
                    )
                    parts.append(unwrap_call(call, self._reachable))
                    next_call += 1
                case _Text() if (text := "".join(part.pieces)).strip():
                    parts.append(Text(text))
                case Thinking():
                    parts.append(part)
                case _:
                    pass
        return parts


def _part_to_record(text: str) -> str:
    """Return the text of a failed response, or only its beginning if it is too long."""
    omitted = len(text) - _MAX_FAILED_TEXT_CHARS
    if omitted <= 0:
        return text
    note = f"\n[… {omitted:,} characters are left out here …]"
    return text[:_MAX_FAILED_TEXT_CHARS] + note


def _to_json(arguments: str) -> Raw:
    """Return the arguments of a call as a JSON object on one line, repaired if necessary.

    Text that cannot be repaired becomes a JSON string.
    """
    written = arguments.strip() or "{}"
    if written.startswith("{"):
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            # Models send line breaks, but a line of the journal must not contain any.
            return Raw(msgspec.json.format(written, indent=-1).encode())
    from refold.values.json_repair import repair_object

    repaired = repair_object(written)
    if repaired is not None:
        return Raw(repaired)
    # The tool reports invalid arguments to the model.
    return Raw(msgspec.json.encode(clean(arguments)))


class _Wrapped(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: Raw = Raw(b"{}")


def unwrap_call(call: ToolCall, reachable: Callable[[str], bool]) -> ToolCall:
    """Return the call that `call` wraps, if `call` is a call of `tool_call`.

    Return `call` unchanged if it is a call of another tool, or if `reachable` returns False for
    the wrapped tool. If a call of `tool_call` is malformed, that tool reports to the model what
    is wrong.
    """
    if call.name != CALLER_TOOL:
        return call
    try:
        wrapped = msgspec.json.decode(call.arguments, type=_Wrapped)
        if find_repeated_key(call.arguments) is not None:
            return call
        inner = _parse_object(wrapped.arguments)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return call
    if wrapped.name == CALLER_TOOL or not reachable(wrapped.name):
        return call
    return replace(call, name=wrapped.name, arguments=inner, via=CALLER_TOOL)


def _parse_object(arguments: Raw) -> Raw:
    """Return the arguments of a call as a JSON object. Raises `DecodeError` if they are not."""
    written = bytes(arguments)
    if written.startswith(b'"'):  # many models put the object into a string
        text = msgspec.json.decode(written, type=str).strip()
        written = msgspec.json.format(text or "{}", indent=-1).encode()
    if written == b"null":
        written = b"{}"
    msgspec.json.decode(written, type=dict[str, object])
    return Raw(written)
