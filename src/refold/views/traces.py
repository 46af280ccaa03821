"""A session tree as OpenTelemetry spans, by the semantic conventions for generative AI. Pure.

A turn is `invoke_agent`, a model call `chat`, a tool call `execute_tool`; the turns of a
subagent are below the call that started it. Each turn of the root is a trace of its own. Ids
are hashes of the session's id and the event's number, so the same journal always gives the
same spans. What was said and done is in them only with `content`. `activity` finds the spans,
`app.otlp` encodes and sends them.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from refold.journal.events.kinds import (
    Delivered,
    Entry,
    Forked,
    ModelAnswered,
    ModelFailed,
    Said,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.session_tree import Node
from refold.values.messages import Part, Text, Thinking, ToolCall
from refold.values.modes import Outcome
from refold.values.usage import Usage
from refold.views.activity import (
    ModelStep,
    SideCall,
    Span,
    SubagentRun,
    ToolStep,
    activity_of,
    spent_by,
)

Attribute: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = dict[str, Attribute]

_OTHER = "_OTHER"  # the word of the conventions for what has no name
_LATEST = 2.0**63 / 1e9  # seconds since 1970
_CUT_OFF = "cut_off"  # its process died, and nothing has continued it
# Where the conventions have a name of their own for a provider.
_PROVIDERS = {
    "gemini": "gcp.gemini", "mistral": "mistral_ai", "moonshot": "moonshot_ai",
    "openai-chat": "openai", "xai": "x_ai",
}  # fmt: skip
_FINISHED = {
    "end": "stop", "calls": "tool_calls", "length": "length", "refused": "content_filter",
}  # fmt: skip
# What follows the operation in the name of a span.
_NAMED = {
    "invoke_agent": "gen_ai.agent.name", "chat": "gen_ai.request.model",
    "execute_tool": "gen_ai.tool.name",
}  # fmt: skip
_GOOD: frozenset[Outcome] = frozenset({"answered", "final", "plan_ready"})


class TraceSpan(Struct, frozen=True):
    """`parent_id` "": the root of its trace. `error` is its class, "" if it went well."""

    trace_id: str  # 32 hex digits
    span_id: str  # 16 hex digits
    parent_id: str
    name: str
    start: int  # nanoseconds since 1970
    end: int
    attributes: Mapping[str, Attribute]
    remote: bool = False  # a model was called, which usually runs elsewhere
    error: str = ""
    message: str = ""  # what the error said; only with content


class _Turn(Struct):
    """A turn while it is collected. `said` are the events of its messages."""

    seq: int
    at: float
    ended: float | None = None
    end: TurnEnded | None = None
    end_seq: int = 0
    said: tuple[int, ...] = ()


def traces(
    root: Node, *, content: bool = False, before: Mapping[str, int] = MappingProxyType({})
) -> Sequence[TraceSpan]:
    """Its spans, each after its parent. What is still running is left out.

    What a fork has copied belongs to the session that it was copied from. `before` is how
    many steps a session had before its entries, where those are not all.
    """
    return tuple(_NodeSpans(root, None, _Options(content, before)).all())


class _Options(Struct, frozen=True):
    content: bool
    before: Mapping[str, int]


class _NodeSpans:
    """The spans of one node, and through `all` those below it."""

    def __init__(self, node: Node, above: TraceSpan | None, options: _Options) -> None:
        self._node, self._above, self._options = node, above, options
        self._content = options.content
        entries = node.entries
        self._last = entries[-1].at if entries else 0.0
        self._copied = max(
            (e.seq for e in entries if isinstance(e.event, Forked)), default=0
        )
        self._turn_of = {e.seq: e.turn for e in entries}
        self._said = {e.seq: e.event.text for e in entries if isinstance(e.event, Said)}
        self._prompts = [
            (e.seq, e.event) for e in entries if isinstance(e.event, SystemPromptSet)
        ]
        self._turns = _turns(entries)
        self._made = dict[int | str, TraceSpan]()  # by the seq of a turn, the id of a call

    def all(self) -> Iterator[TraceSpan]:
        if not self._node.entries:
            yield from self._unread()
        for turn in self._turns.values():
            if not self._runs(turn) and not 0 < turn.end_seq <= self._copied:
                made = self._made[turn.seq] = self._turn(turn)
                yield made
        for each in self._own():
            turn = self._turns.get(self._turn_of.get(each.seq, 0))
            waits = each.ended is None and self._node.written
            if self._runs(turn) if turn else waits:
                continue
            made = self._span(each, turn)
            if isinstance(each, ToolStep):
                self._made[each.id] = made
            yield made
        for child in self._node.children:
            yield from self._below(child)

    def _below(self, child: Node) -> Iterator[TraceSpan]:
        known, above = child.child, None
        if known:
            turn = self._turn_of.get(known.seq, 0)
            above = self._made.get(known.born.call_id) or self._made.get(turn)
            if above is None and (turn in self._turns or known.seq <= self._copied):
                return  # that turn is left out, and so is what it started
        yield from _NodeSpans(child, above, self._options).all()

    def _runs(self, turn: _Turn) -> bool:
        return turn.end is None and self._node.written

    def _own(self) -> Iterator[ModelStep | ToolStep | SideCall]:
        """Its calls, but for those that ended before the session was forked."""
        entries, cut = self._node.entries, self._copied
        before = {
            (each.seq, each.id)
            for each in (activity_of(entries[:cut]).spans if cut else ())
            if each.ended is not None
        }
        for each in activity_of(entries).spans:
            copied = each.seq <= cut and each.ended is None
            known = copied or (each.seq, each.id) in before
            if not known and not isinstance(each, SubagentRun):
                yield each

    def _turn(self, turn: _Turn) -> TraceSpan:
        prompt = self._prompt(turn.end_seq or self._node.entries[-1].seq)
        agent = prompt.agent or (self._node.child.born.agent if self._node.child else "")
        found = self._about("invoke_agent", prompt.model, agent) | {
            "refold.seq": turn.seq,
            "refold.outcome": turn.end.outcome if turn.end else _CUT_OFF,
        }
        if self._content:
            heard = [_heard(self._said.get(seq, "")) for seq in turn.said]
            found["gen_ai.input.messages"] = _json(heard)
            instructions = [{"type": "text", "content": prompt.system}]
            found["gen_ai.system_instructions"] = _json(instructions)
        error = _CUT_OFF
        if turn.end:
            error = "" if turn.end.outcome in _GOOD else turn.end.outcome
        return self._made_of(
            ("turn", turn.seq, ""), self._above,
            (turn.at, self._last if turn.ended is None else turn.ended), found,
            (error, turn.end.reason if turn.end else ""),
        )  # fmt: skip

    def _unread(self) -> Iterator[TraceSpan]:
        """A subagent without a journal: only its parent tells of it."""
        known = self._node.child
        if known is None or known.end is None or self._above is None:
            return
        found = self._about("invoke_agent", "", known.born.agent)
        found |= _used(known.end.spent.usage) | {"refold.outcome": known.end.outcome}
        error = "" if known.end.outcome in _GOOD else known.end.outcome
        yield self._made_of(
            ("child", known.seq, ""), self._above, (known.at, known.at), found,
            (error, known.end.reason),
        )  # fmt: skip

    def _span(self, each: ModelStep | ToolStep | SideCall, turn: _Turn | None) -> TraceSpan:
        above: TraceSpan | None = None
        match each:
            case ToolStep(made=made) if made:
                above = self._made.get(made.parent_call)
            case SideCall(reserved) if reserved.call_id:
                above = self._made.get(reserved.call_id)
            case _:
                pass
        above = above or (self._made.get(turn.seq) if turn else None) or self._above
        until = each.ended
        if until is None:
            until = self._last if turn is None or turn.ended is None else turn.ended
        match each:
            case ToolStep():
                return self._tool(each, above, until)
            case ModelStep():
                return self._chat(each, above, until)
            case _:
                return self._aside(each, above, until)

    def _tool(self, each: ToolStep, above: TraceSpan | None, until: float) -> TraceSpan:
        outcome = each.end.outcome if each.end else _CUT_OFF
        found: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": each.call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": each.call.id,
            "gen_ai.conversation.id": self._node.session,
            "refold.seq": each.seq,
            "refold.outcome": outcome,
        }
        if each.judged:
            found["refold.permission"] = each.judged.verdict
        if self._content:
            found["gen_ai.tool.call.arguments"] = _text(each.call.arguments)
            if each.end:
                found["gen_ai.tool.call.result"] = each.end.text
        began = each.at if each.started is None else each.started
        return self._made_of(
            ("call", each.seq, each.id), above, (began, until), found,
            ("" if outcome == "done" else outcome, ""),
        )  # fmt: skip

    def _chat(self, each: ModelStep, above: TraceSpan | None, until: float) -> TraceSpan:
        prompt, end = self._prompt(each.seq), each.end
        model = (end.model if end else "") or prompt.model
        found = self._about("chat", model, prompt.agent) | {
            "refold.seq": each.seq,
            "refold.step": each.number + self._options.before.get(self._node.session, 0),
        }
        if prompt.max_output:
            found["gen_ai.request.max_tokens"] = prompt.max_output
        if prompt.temperature is not None:
            found["gen_ai.request.temperature"] = prompt.temperature
        error, message = _CUT_OFF, ""
        match end:
            case ModelAnswered():
                found |= _answered(end, content=self._content)
                error = "stopped" if end.partial else ""
            case ModelFailed():
                error, message = end.kind or _OTHER, end.reason
            case None:
                pass
        return self._made_of(
            ("step", each.seq, ""), above, (each.at, until), found | _paid(each),
            (error, message),
        )  # fmt: skip

    def _aside(self, each: SideCall, above: TraceSpan | None, until: float) -> TraceSpan:
        reserved, end = each.reserved, each.end
        model = (end.model if end else "") or reserved.model
        found = self._about("chat", model, self._prompt(each.seq).agent)
        found |= {"refold.seq": each.seq, "refold.purpose": reserved.purpose}
        if end and end.cached:
            found["refold.cached"] = True
        if self._content:
            if reserved.prompt:
                found["gen_ai.input.messages"] = _json([_heard(reserved.prompt)])
            if end and end.text:
                found["gen_ai.output.messages"] = _json([_told([Text(end.text)], "stop")])
        error = _CUT_OFF
        if end:
            error = _OTHER if end.failed else ""
        return self._made_of(
            ("side", each.seq, ""), above, (each.at, until), found | _paid(each),
            (error, end.failed if end else ""),
        )  # fmt: skip

    def _prompt(self, seq: int) -> SystemPromptSet:
        """The one that held at this event."""
        before = (prompt for at, prompt in reversed(self._prompts) if at <= seq)
        return next(before, SystemPromptSet())

    def _about(self, operation: str, model: str, agent: str) -> Attributes:
        provider, slash, name = model.partition("/")
        found: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider) if slash else _OTHER,
            "gen_ai.conversation.id": self._node.session,
        }
        if name or model:
            found["gen_ai.request.model"] = name or model
        if agent:
            found["gen_ai.agent.name"] = agent
        return found

    def _made_of(
        self,
        key: tuple[str, int, str],
        above: TraceSpan | None,
        times: tuple[float, float],
        found: Attributes,
        failed: tuple[str, str],
    ) -> TraceSpan:
        """`failed` is the class of the error, "" if it went well, and what was said of it."""
        (_, seq, _), (error, message) = key, failed
        session, start = self._node.session, _nanoseconds(times[0])
        operation = str(found["gen_ai.operation.name"])
        trace = _hash(32, session, "trace", self._turn_of.get(seq, 0) or seq)
        return TraceSpan(
            above.trace_id if above else trace,
            _hash(16, session, *key),
            above.span_id if above else "",
            f"{operation} {found.get(_NAMED[operation], '')}".rstrip(),
            start,
            max(start, _nanoseconds(times[1])),
            found | ({"error.type": error} if error else {}),
            remote=operation == "chat",
            error=error,
            message=message if error and self._content else "",
        )


def _turns(entries: Sequence[Entry]) -> dict[int, _Turn]:
    found = dict[int, _Turn]()
    open_: _Turn | None = None
    for entry in entries:
        match entry.event:
            case TurnStarted():
                open_ = found[entry.seq] = _Turn(entry.seq, entry.at)
            case Delivered(messages) if open_:
                open_.said = (*open_.said, *messages)
            case TurnEnded() as end if open_:
                open_.ended, open_.end, open_.end_seq = entry.at, end, entry.seq
                open_ = None
            case _:
                pass
    return found


def _hash(digits: int, *parts: str | int) -> str:
    return sha256("\0".join(map(str, parts)).encode()).hexdigest()[:digits]


def _nanoseconds(at: float) -> int:
    # A float holds no more of a time than this, and the protocol none that is later.
    return round(min(max(at, 0.0), _LATEST) * 1_000_000) * 1000


def _answered(end: ModelAnswered, *, content: bool) -> Attributes:
    finished = _FINISHED[end.stop]
    found: Attributes = {"gen_ai.response.finish_reasons": (finished,)}
    if end.served_by:
        found["gen_ai.response.model"] = end.served_by
    if end.first_piece is not None:
        found["gen_ai.response.time_to_first_chunk"] = end.first_piece
    if content:
        told = _told(end.message.parts, finished)
        found["gen_ai.output.messages"] = _json([told])
    return found


def _paid(each: Span) -> Attributes:
    spent = spent_by(each)
    if not spent.answers:
        return {}
    cost: Attributes = {} if spent.cost is None else {"refold.cost_usd": spent.cost}
    return _used(spent.usage) | cost


def _used(usage: Usage) -> Attributes:
    """All input tokens are in the first; the others are parts."""
    found: Attributes = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
    }
    parts = {
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return found | {name: count for name, count in parts.items() if count}


def _heard(text: str) -> dict[str, object]:
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def _told(parts: Sequence[Part], finished: str) -> dict[str, object]:
    told = [each for part in parts for each in _part(part)]
    return {"role": "assistant", "parts": told, "finish_reason": finished}


def _part(part: Part) -> Iterator[dict[str, object]]:
    match part:
        case Text(text):
            yield {"type": "text", "content": text}
        case Thinking(text) if text:
            yield {"type": "reasoning", "content": text}
        case ToolCall(id_, name, arguments):
            yield {
                "type": "tool_call",
                "id": id_,
                "name": name,
                "arguments": _value(arguments),
            }
        case _:
            return


def _value(data: Raw) -> object:
    """What a model wrote as JSON; as text, if it is none."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return _text(data)


def _text(data: Raw) -> str:
    return bytes(data).decode("utf-8", "replace")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
