"""Makes OpenTelemetry spans from a session tree, by the conventions for generative AI. Pure.

A turn is the operation `invoke_agent`, a model call `chat`, a tool call `execute_tool`. The
turns of a subagent are below the call that started it. Each turn of the root is a trace of its
own. Ids are hashes of the session's id and the event's number, so the same journal always gives
the same spans. Messages and results are included only with `content`. `activity` finds the
spans, `trace_attributes` describes responses and messages, `app.otlp` encodes and sends spans.

The SDK of OpenTelemetry is not used: it records spans while they happen, so it could not trace
a session later. The engine would have to call it, and importing it takes longer than a start
may.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType

from msgspec import Struct

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
from refold.values.messages import Text
from refold.values.modes import Outcome
from refold.views.activity import (
    ModelStep,
    SideCall,
    SubagentRun,
    ToolStep,
    activity_of,
)
from refold.views.trace_attributes import (
    Attribute,
    Attributes,
    cost_attributes,
    decode_json_text,
    input_message,
    output_message,
    response_attributes,
    to_json,
    usage_attributes,
)

_OTHER_VALUE = "_OTHER"  # the conventions' value for whatever has no name in them
_MAX_TIME_SECONDS = 2.0**63 / 1e9  # seconds since 1970
_CUT_OFF = "cut_off"  # the process exited, and the turn was not continued
# Providers for which the conventions have a different name.
_PROVIDER_NAMES = {
    "gemini": "gcp.gemini", "mistral": "mistral_ai", "moonshot": "moonshot_ai",
    "openai-chat": "openai", "xai": "x_ai",
}  # fmt: skip
# The attribute whose value follows the operation in the name of a span.
_NAME_ATTRIBUTES = {
    "invoke_agent": "gen_ai.agent.name", "chat": "gen_ai.request.model",
    "execute_tool": "gen_ai.tool.name",
}  # fmt: skip
_GOOD_OUTCOMES: frozenset[Outcome] = frozenset({"answered", "final", "plan_ready"})


class TraceSpan(Struct, frozen=True):
    """A span. `parent_id` is "" for the root of a trace, `error` is the class of its error, or
    "".
    """

    trace_id: str  # 32 hex digits
    span_id: str  # 16 hex digits
    parent_id: str
    name: str
    start: int  # nanoseconds since 1970
    end: int
    attributes: Mapping[str, Attribute]
    remote: bool = False  # a model was called, which usually runs elsewhere
    error: str = ""
    message: str = ""  # of the error; only with content


class _Turn(Struct):
    """A turn that is being collected. `said` has the event numbers of its messages."""

    seq: int
    at: float
    ended: float | None = None
    end: TurnEnded | None = None
    end_seq: int = 0
    said: tuple[int, ...] = ()


def traces(
    root: Node, *, content: bool = False, before: Mapping[str, int] = MappingProxyType({})
) -> Sequence[TraceSpan]:
    """Return the ended spans of a tree, each after its parent.

    A fork has no spans for the entries that it copied from its source. If the tree lacks older
    entries of a session, `before` has the number of model calls in them, by session: so later
    calls keep their numbers.
    """
    return tuple(_NodeSpans(root, None, _Options(content, before)).spans())


class _Options(Struct, frozen=True):
    content: bool
    earlier_steps: Mapping[str, int]


class _NodeSpans:
    """Makes the spans of one node. `spans` also yields the spans of its subagents."""

    def __init__(self, node: Node, parent: TraceSpan | None, options: _Options) -> None:
        self._node, self._parent, self._options = node, parent, options
        self._content = options.content
        entries = node.entries
        self._last_time = entries[-1].at if entries else 0.0
        # The number of the last event that was copied from the source of a fork; 0: none was.
        self._last_copied = max(
            (entry.seq for entry in entries if isinstance(entry.event, Forked)), default=0
        )
        self._turn_of = {entry.seq: entry.turn for entry in entries}
        self._said = {
            entry.seq: entry.event.text
            for entry in entries
            if isinstance(entry.event, Said)
        }
        self._prompts = [
            (entry.seq, entry.event)
            for entry in entries
            if isinstance(entry.event, SystemPromptSet)
        ]
        self._turns = _turns(entries)
        # The finished spans, by the event number of a turn or the id of a call.
        self._spans = dict[int | str, TraceSpan]()

    def spans(self) -> Iterator[TraceSpan]:
        """Yield the spans of turns, then those of calls, then those of subagents.

        Running turns are left out, and so are turns that a fork copied from its source.
        """
        if not self._node.entries:
            yield from self._span_without_journal()
        for turn in self._turns.values():
            is_copied = 0 < turn.end_seq <= self._last_copied
            if not self._is_running(turn) and not is_copied:
                # Spans of calls and subagents look up their parents here.
                span = self._spans[turn.seq] = self._turn_span(turn)
                yield span
        for call in self._own_calls():
            turn = self._turns.get(self._turn_of.get(call.seq, 0))
            if self._may_change(call, turn):
                continue
            span = self._span(call, turn)
            if isinstance(call, ToolStep):
                self._spans[call.id] = span
            yield span
        for child in self._node.children:
            yield from self._child_spans(child)

    def _may_change(
        self, call: ModelStep | ToolStep | SideCall, turn: _Turn | None
    ) -> bool:
        """Whether the span of a call is not final: its turn runs, or it runs outside of turns."""
        if turn:
            return self._is_running(turn)
        return call.ended is None and self._node.written

    def _child_spans(self, child: Node) -> Iterator[TraceSpan]:
        """Yield the spans of a subagent, below the span of the call or turn that started it.

        If the turn that started it is left out, its subagents are left out, too.
        """
        parent: TraceSpan | None = None
        record = child.child  # what the journal of this node says about the subagent
        if record:
            turn = self._turn_of.get(record.seq, 0)
            parent = self._spans.get(record.born.call_id) or self._spans.get(turn)
            is_known_turn = turn in self._turns
            is_copied = record.seq <= self._last_copied
            if parent is None and (is_known_turn or is_copied):
                return
        yield from _NodeSpans(child, parent, self._options).spans()

    def _is_running(self, turn: _Turn) -> bool:
        return turn.end is None and self._node.written

    def _own_calls(self) -> Iterator[ModelStep | ToolStep | SideCall]:
        """Yield the node's calls, without those that a fork copied from its source.

        A call that began in the source and ended only in the fork is its own.
        """
        entries, copied_count = self._node.entries, self._last_copied
        copied_spans = activity_of(entries[:copied_count]).spans if copied_count else ()
        ended_in_source = {
            (span.seq, span.id) for span in copied_spans if span.ended is not None
        }
        for span in activity_of(entries).spans:
            if isinstance(span, SubagentRun) or (span.seq, span.id) in ended_in_source:
                continue
            never_ended = span.ended is None
            if never_ended and span.seq <= copied_count:
                continue
            yield span

    def _turn_span(self, turn: _Turn) -> TraceSpan:
        prompt = self._prompt(turn.end_seq or self._node.entries[-1].seq)
        agent = prompt.agent or (self._node.child.born.agent if self._node.child else "")
        attributes = self._common_attributes("invoke_agent", prompt.model, agent) | {
            "refold.seq": turn.seq,
            "refold.outcome": turn.end.outcome if turn.end else _CUT_OFF,
        }
        if self._content:
            messages = [input_message(self._said.get(seq, "")) for seq in turn.said]
            attributes["gen_ai.input.messages"] = to_json(messages)
            instructions = [{"type": "text", "content": prompt.system}]
            attributes["gen_ai.system_instructions"] = to_json(instructions)
        error, message = _CUT_OFF, ""
        if turn.end:
            error = "" if turn.end.outcome in _GOOD_OUTCOMES else turn.end.outcome
            message = turn.end.reason
        end_time = self._last_time if turn.ended is None else turn.ended
        return self._make_span(
            ("turn", turn.seq, ""), self._parent, (turn.at, end_time), attributes,
            (error, message),
        )  # fmt: skip

    def _span_without_journal(self) -> Iterator[TraceSpan]:
        """Yield the span of a subagent without a journal, from the record in its parent's
        journal.
        """
        record = self._node.child
        if record is None or record.end is None or self._parent is None:
            return
        attributes = self._common_attributes("invoke_agent", "", record.born.agent)
        attributes |= usage_attributes(record.end.spent.usage) | {
            "refold.outcome": record.end.outcome
        }
        error = "" if record.end.outcome in _GOOD_OUTCOMES else record.end.outcome
        yield self._make_span(
            ("child", record.seq, ""), self._parent, (record.at, record.at), attributes,
            (error, record.end.reason),
        )  # fmt: skip

    def _span(self, call: ModelStep | ToolStep | SideCall, turn: _Turn | None) -> TraceSpan:
        """Return the span of a call.

        The span of a call that was cut off ends with the turn, or with the last event.
        """
        parent = self._span_around(call, turn) or self._parent
        end_time = call.ended
        if end_time is None and turn:
            end_time = turn.ended
        if end_time is None:
            end_time = self._last_time
        match call:
            case ToolStep():
                return self._tool_span(call, parent, end_time)
            case ModelStep():
                return self._chat_span(call, parent, end_time)
            case _:
                return self._side_call_span(call, parent, end_time)

    def _span_around(
        self, call: ModelStep | ToolStep | SideCall, turn: _Turn | None
    ) -> TraceSpan | None:
        """Return the span of the call whose code made `call`, or that of its turn; None without
        both.
        """
        caller: TraceSpan | None = None
        match call:
            case ToolStep(made=made) if made:
                caller = self._spans.get(made.parent_call)
            case SideCall(reserved) if reserved.call_id:
                caller = self._spans.get(reserved.call_id)
            case _:
                pass
        if caller is None and turn:
            return self._spans.get(turn.seq)
        return caller

    def _tool_span(
        self, step: ToolStep, parent: TraceSpan | None, end_time: float
    ) -> TraceSpan:
        outcome = step.end.outcome if step.end else _CUT_OFF
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": step.call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": step.call.id,
            "gen_ai.conversation.id": self._node.session,
            "refold.seq": step.seq,
            "refold.outcome": outcome,
        }
        if step.judged:
            attributes["refold.permission"] = step.judged.verdict
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = decode_json_text(step.call.arguments)
            if step.end:
                attributes["gen_ai.tool.call.result"] = step.end.text
        began = step.at if step.started is None else step.started
        return self._make_span(
            ("call", step.seq, step.id), parent, (began, end_time), attributes,
            ("" if outcome == "done" else outcome, ""),  # class of the error, message
        )  # fmt: skip

    def _chat_span(
        self, step: ModelStep, parent: TraceSpan | None, end_time: float
    ) -> TraceSpan:
        prompt, end = self._prompt(step.seq), step.end
        earlier_steps = self._options.earlier_steps.get(self._node.session, 0)
        model = (end.model if end else "") or prompt.model
        attributes = self._common_attributes("chat", model, prompt.agent) | {
            "refold.seq": step.seq,
            "refold.step": earlier_steps + step.number,
        }
        if prompt.max_output:
            attributes["gen_ai.request.max_tokens"] = prompt.max_output
        if prompt.temperature is not None:
            attributes["gen_ai.request.temperature"] = prompt.temperature
        error, message = _CUT_OFF, ""
        match end:
            case ModelAnswered():
                attributes |= response_attributes(end, content=self._content)
                error = "stopped" if end.partial else ""
            case ModelFailed():
                error, message = end.kind or _OTHER_VALUE, end.reason
            case None:
                pass
        return self._make_span(
            ("step", step.seq, ""), parent, (step.at, end_time), attributes | cost_attributes(step),
            (error, message),
        )  # fmt: skip

    def _side_call_span(
        self, call: SideCall, parent: TraceSpan | None, end_time: float
    ) -> TraceSpan:
        reserved, end = call.reserved, call.end
        model = (end.model if end else "") or reserved.model
        attributes = self._common_attributes("chat", model, self._prompt(call.seq).agent)
        attributes |= {"refold.seq": call.seq, "refold.purpose": reserved.purpose}
        if end and end.cached:
            attributes["refold.cached"] = True
        if self._content:
            if reserved.prompt:
                attributes["gen_ai.input.messages"] = to_json(
                    [input_message(reserved.prompt)]
                )
            if end and end.text:
                attributes["gen_ai.output.messages"] = to_json(
                    [output_message([Text(end.text)], "stop")]
                )
        error, message = _CUT_OFF, ""
        if end:
            error = _OTHER_VALUE if end.failed else ""
            message = end.failed
        return self._make_span(
            ("side", call.seq, ""), parent, (call.at, end_time), attributes | cost_attributes(call),
            (error, message),
        )  # fmt: skip

    def _prompt(self, seq: int) -> SystemPromptSet:
        """Return the system prompt that was in use at the event `seq`."""
        newest_first = reversed(self._prompts)
        prompts_until = (prompt for start, prompt in newest_first if start <= seq)
        return next(prompts_until, SystemPromptSet())

    def _common_attributes(self, operation: str, model: str, agent: str) -> Attributes:
        provider, slash, name = model.partition("/")
        provider_name = _PROVIDER_NAMES.get(provider, provider) if slash else _OTHER_VALUE
        attributes: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": provider_name,
            "gen_ai.conversation.id": self._node.session,
        }
        if name or model:
            attributes["gen_ai.request.model"] = name or model
        if agent:
            attributes["gen_ai.agent.name"] = agent
        return attributes

    def _make_span(
        self,
        key: tuple[str, int, str],
        parent: TraceSpan | None,
        times: tuple[float, float],
        attributes: Attributes,
        failed: tuple[str, str],
    ) -> TraceSpan:
        """Return a span.

        Its id is a hash of `key`: kind, event number, id of the call. `times` are its start and
        end, `failed` the class of its error and the message, both "" if it did not fail.
        """
        _, seq, _ = key
        error, message = failed
        session = self._node.session
        start, end = map(_nanoseconds, times)
        operation = str(attributes["gen_ai.operation.name"])
        subject = attributes.get(_NAME_ATTRIBUTES[operation], "")
        turn = self._turn_of.get(seq, 0)  # 0: the event is outside of turns
        return TraceSpan(
            parent.trace_id if parent else _hash(32, session, "trace", turn or seq),
            _hash(16, session, *key),
            parent.span_id if parent else "",
            f"{operation} {subject}".rstrip(),
            start,
            max(start, end),
            attributes | ({"error.type": error} if error else {}),
            remote=operation == "chat",
            error=error,
            message=message if error and self._content else "",
        )


def _turns(entries: Sequence[Entry]) -> dict[int, _Turn]:
    """Return the turns by the number of the event that began each."""
    turns = dict[int, _Turn]()
    current: _Turn | None = None
    for entry in entries:
        match entry.event:
            case TurnStarted():
                current = turns[entry.seq] = _Turn(entry.seq, entry.at)
            case Delivered(messages) if current:
                current.said = (*current.said, *messages)
            case TurnEnded() as end if current:
                current.end = end
                current.ended, current.end_seq = entry.at, entry.seq
                current = None
            case _:
                pass
    return turns


def _hash(digits: int, *parts: str | int) -> str:
    return sha256("\0".join(map(str, parts)).encode()).hexdigest()[:digits]


def _nanoseconds(seconds: float) -> int:
    # The protocol allows no later time than the maximum.
    allowed_seconds = min(max(seconds, 0.0), _MAX_TIME_SECONDS)
    microseconds = round(allowed_seconds * 1_000_000)  # a float has no finer resolution
    return microseconds * 1000
