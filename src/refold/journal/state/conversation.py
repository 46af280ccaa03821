"""The talk: what the model has heard and said, and the calls still open.

This is the part of a session that rewinds. It knows no money and no ids; that
is `account`. The results of one answer enter together, in the order of its
calls, however they ended: so a request made again is the same request.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Answered,
    AnswerRejected,
    Compacted,
    CompactionRequested,
    Delivered,
    Ended,
    Entry,
    Imported,
    Judged,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    NestedCallMade,
    Said,
    Started,
    SystemPromptSet,
    VariablesSaved,
)
from refold.values.control import Compact, Control, Todo, Todos
from refold.values.display import Diff
from refold.values.growing import Log
from refold.values.messages import (
    Image,
    Message,
    Part,
    Spoken,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.values.tools import ToolSpec

Stage: TypeAlias = Literal["called", "asked", "allowed", "denied", "started", "ended"]
_JUDGED: dict[str, Stage] = {"allow": "allowed", "ask": "asked", "deny": "denied"}

A_LINE = 200  # characters of a result that no line instead of it would save
A_PICTURE = 800  # tokens, roughly, whatever the provider
NO_WORDS = "<reminder>The person sent nothing to read.</reminder>"

ELSEWHERE = (
    "Not known here: the session was exported while this was under way. It may have happened "
    "there: look first."
)

_ENDED_KEPT = 64  # of the calls that code made, for whoever waits for them

CallNews: TypeAlias = Judged | Answered | Started | Ended
HEARS = (
    Said, Delivered, ModelAsked, ModelAnswered, ModelFailed, AnswerRejected, SystemPromptSet,
    Judged, Answered, Started, Ended, CompactionRequested, Compacted, NestedCallMade, VariablesSaved,
    Imported,
)  # fmt: skip


class OpenCall(Struct, frozen=True):
    call: ToolCall
    stage: Stage = "called"
    since: int = 0  # the seq that brought it to this stage
    called: int = 0  # the seq of the answer that holds it
    started: int = 0  # the seq of its start
    reason: str = ""  # why it is asked about, or was denied
    hash: str = ""  # of all that the verdict was about
    once: bool = False  # a yes is for this call, and no rule comes of it
    answers: tuple[str, ...] = ()  # a person's, to the questions of the call
    result: ToolResult | None = None
    nested: NestedCallMade | None = None  # by code, within another call
    changes: tuple[Diff, ...] = ()  # what it would do to files, shown with the question


class Undelivered(Struct, frozen=True):
    seq: int
    said: Said


# Whose words are a wish to be carried out, and no news from somebody at work.
REQUESTERS = ("person", "parent")
# What the person ran themselves: heard with their next words, and no turn begins for it.
SHELL = "shell"


class UserText(Struct, frozen=True):
    """What a person said and the model has heard, and the event that it stands in.

    In a child that is what its parent said; then no `person` did.
    """

    seq: int
    text: str
    delivered: int  # the seq of the message that told the model
    person: bool = True


class Conversation(Struct, frozen=True):
    messages: Log[Spoken] = field(default_factory=Log[Spoken])
    calls: tuple[OpenCall, ...] = ()  # of the last answer, until all have ended
    nested: tuple[OpenCall, ...] = ()  # made by the code of those: open, or just ended
    undelivered: tuple[Undelivered, ...] = ()
    system_prompt: SystemPromptSet = SystemPromptSet()
    images: tuple[str, ...] = ()  # the blobs that the messages show
    size: int = 0  # characters in the messages
    result_size: int = 0  # of them in results of calls, but for a line of each
    prompt_size: int = 0  # characters besides: the system text, the tools
    user_messages: Log[UserText] = field(default_factory=Log[UserText])
    todos: tuple[Todo, ...] = ()
    chars_per_token: float = (
        4.0  # characters of a token, as the newest answer's usage has it
    )
    compaction: CompactionRequested | None = None  # somebody wants it told shorter
    compacted_size: int = 0  # its size when it was last told shorter; 0: it never was
    variables: str = ""  # the blob that holds those of the session's Python,
    variable_parts: tuple[str, ...] = ()  # and those that it names

    def call(self, call_id: str) -> OpenCall | None:
        every = (*self.calls, *self.nested)
        return next((c for c in every if c.call.id == call_id), None)

    @property
    def asked(self) -> tuple[OpenCall, ...]:
        """The calls that a person has to answer."""
        return tuple(c for c in (*self.calls, *self.nested) if c.stage == "asked")


def apply(talk: Conversation, entry: Entry) -> Conversation:
    match entry.event:  # what there is most of comes first
        case Ended() | Started() | Judged() | Answered():
            return _moved(talk, entry.event, entry.seq)
        case ModelAsked(notes) | AnswerRejected(notes):
            return _told(talk, entry.seq, *notes) if notes else talk
        case ModelAnswered() | ModelFailed():
            return _answered(talk, entry.event, entry.seq)
        case Said() | Delivered():
            return _heard(talk, entry.event, entry.seq)
        case SystemPromptSet():
            return replace(
                talk, system_prompt=entry.event, prompt_size=_told_size(entry.event)
            )
        case CompactionRequested() | Compacted() | Imported():
            return _anew(talk, entry.event, entry.seq)
        case NestedCallMade() | VariablesSaved():
            return _by_code(talk, entry.event, entry.seq)
        case _:
            return talk


def _answered(
    talk: Conversation, event: ModelAnswered | ModelFailed, seq: int
) -> Conversation:
    match event:
        case ModelAnswered(message):
            calls = tuple([OpenCall(c, since=seq, called=seq) for c in message.calls])
            measured = replace(talk, calls=calls, chars_per_token=_ratio(talk, event))
            return _plus(measured, seq, message)
        case ModelFailed(partial_text=shown) if shown:
            return _plus(talk, seq, Message("assistant", (Text(shown),)))
        case _:
            return talk


def _by_code(
    talk: Conversation, event: NestedCallMade | VariablesSaved, seq: int
) -> Conversation:
    if isinstance(event, VariablesSaved):
        return replace(talk, variables=event.blob, variable_parts=event.parts)
    made = OpenCall(event.call, since=seq, called=seq, nested=event)
    return replace(talk, nested=(*talk.nested, made))


def _imported(talk: Conversation, seq: int) -> Conversation:
    """No call goes on, whatever its stage, and nothing is as before but what was said.

    Who is told what, and which variables there are, is begun anew.
    """
    results = tuple(
        call.result or ToolResult(call.call.id, ELSEWHERE, failed=True)
        for call in talk.calls
    )
    rest = replace(
        talk,
        calls=(),
        nested=(),
        system_prompt=SystemPromptSet(),
        prompt_size=0,
        compaction=None,
        variables="",
        variable_parts=(),
    )
    return _plus(rest, seq, Message("tool", results)) if results else rest


def _heard(talk: Conversation, event: Said | Delivered, seq: int) -> Conversation:
    if isinstance(event, Said):
        return replace(talk, undelivered=(*talk.undelivered, Undelivered(seq, event)))
    heard = [each for each in talk.undelivered if each.seq in event.messages]
    left = tuple(each for each in talk.undelivered if each.seq not in event.messages)
    said = talk.user_messages
    for each in heard:
        words, sender = each.said.text, each.said.sender
        if words.strip() and sender in REQUESTERS:
            said = said.plus(UserText(each.seq, words, seq, sender == "person"))
    shown = tuple(image for each in heard for image in each.said.images)
    told = replace(talk, undelivered=left, user_messages=said)
    texts = [each.said.text for each in heard if each.said.text.strip()]
    if heard and not texts and not shown:  # an answer must not follow an answer
        texts = [NO_WORDS]
    return _told(told, seq, *texts, shown=shown)


def _moved(talk: Conversation, event: CallNews, seq: int) -> Conversation:
    """The call that the news is of, one stage on; with the last end, all results."""
    id_ = event.call_id
    if talk.nested:
        if any(c.call.id == id_ for c in talk.nested):
            within = tuple(_step_of(c, event, seq) for c in talk.nested)
            return replace(talk, nested=_newest(within))
        if isinstance(event, Ended):
            left = tuple(c for c in talk.nested if c.nested and c.nested.parent_call != id_)
            talk = replace(talk, nested=left)
    calls = tuple([_step_of(c, event, seq) for c in talk.calls])
    if not isinstance(event, Ended):
        return replace(talk, calls=calls)
    if event.control is not None:
        talk = _controlled(talk, event.control)
    results = tuple([c.result for c in calls if c.result is not None])
    if len(results) < len(calls) or not calls:
        return replace(talk, calls=calls)
    return _plus(replace(talk, calls=()), seq, Message("tool", results))


def _newest(within: tuple[OpenCall, ...]) -> tuple[OpenCall, ...]:
    """Without the older of those that have ended: code may make many thousands."""
    if len(within) <= _ENDED_KEPT:
        return within
    ended = [c for c in within if c.result is not None]
    left = {c.call.id for c in ended[:-_ENDED_KEPT]}
    return tuple(c for c in within if c.call.id not in left)


def _step_of(call: OpenCall, event: CallNews, seq: int) -> OpenCall:
    if call.call.id != event.call_id or call.result is not None:
        return call
    match event:
        case Ended():
            failed = event.outcome != "done"
            result = ToolResult(event.call_id, event.text, failed, event.images)
            return replace(call, stage="ended", since=seq, result=result)
        case Started():
            return replace(call, stage="started", since=seq, started=seq)
        case Judged():
            return replace(
                call,
                stage=_JUDGED[event.verdict],
                since=seq,
                reason=event.reason,
                once=event.once,
                hash=event.hash,
                changes=event.changes,
            )
        case Answered(_, allowed, reason, answers):
            if call.stage != "asked":
                return call
            stage = "allowed" if allowed else "denied"
            return replace(call, stage=stage, since=seq, reason=reason, answers=answers)


def _controlled(talk: Conversation, control: Control) -> Conversation:
    match control:
        case Todos(items):
            return replace(talk, todos=items)
        case Compact(kind, focus):
            return replace(talk, compaction=CompactionRequested(kind, focus))
        case _:
            return talk


def _anew(
    talk: Conversation, event: CompactionRequested | Compacted | Imported, seq: int
) -> Conversation:
    match event:
        case CompactionRequested():
            return replace(talk, compaction=event)
        case Compacted():
            return _shorter(talk, event, seq)
        case Imported():
            return _imported(talk, seq)


def _shorter(talk: Conversation, event: Compacted, seq: int) -> Conversation:
    messages = compacted(talk.messages, event, seq)
    size = sum(message_size(s.message) for s in messages)
    results = sum(_in_results(s.message) for s in messages)
    images = images_in(messages)
    told = replace(talk, messages=messages, images=images, size=size, result_size=results)
    return replace(told, compaction=None, compacted_size=size)


def _told_size(briefed: SystemPromptSet) -> int:
    """Characters that the model is told besides the talk."""
    return len(briefed.system) + sum(map(tool_size, briefed.tools))


def tool_size(tool: ToolSpec) -> int:
    """Characters that the model reads of a tool."""
    return len(tool.name) + len(tool.description) + len(bytes(tool.parameters))


def _ratio(talk: Conversation, answer: ModelAnswered) -> float:
    """Characters of a token, by what a provider counted. Kept within what can be true."""
    read = answer.usage.input
    if answer.partial or read <= 0 or answer.usage.estimated:
        return talk.chars_per_token
    sent, images = talk.size + talk.prompt_size, A_PICTURE * len(talk.images)
    return min(8.0, max(1.0, sent / max(read - images, read // 4, 1)))


def _told(
    talk: Conversation, seq: int, *words: str, shown: tuple[Image, ...] = ()
) -> Conversation:
    parts = tuple(Text(w) for w in words if w.strip())
    return _plus(talk, seq, Message("user", (*parts, *shown)))


def _plus(talk: Conversation, seq: int, message: Message) -> Conversation:
    # An answer cut off inside its first call says nothing; no provider takes that.
    if not message.parts:
        return talk
    messages, size = talk.messages.plus(Spoken(seq, message)), message_size(message)
    told = replace(talk, messages=messages, size=talk.size + size)
    if message.role == "assistant":  # no answer brings results, or shows an image
        return told
    shown, results = talk.images, talk.result_size + _in_results(message)
    new = [image.blob for image in message.images if image.blob not in shown]
    return replace(told, images=(*shown, *new), result_size=results)


def _in_results(message: Message) -> int:
    texts = [part.text for part in message.parts if isinstance(part, ToolResult)]
    return sum([max(0, len(text) - A_LINE) for text in texts])


def message_size(message: Message) -> int:
    """Characters of it that the model reads."""
    return sum([part_size(part) for part in message.parts])


def part_size(part: Part) -> int:
    """Characters of it that the model reads."""
    match part:
        case ToolResult() | Text() | Thinking():
            return len(part.text)
        case ToolCall(_, name, arguments):
            return len(name) + len(arguments)
        case Image():
            return 0


# The messages of a talk after it was told shorter. Pure; part of the fold of `talk`.
#
# Whatever stands after the first change is a new object: what has been encoded of the
# talk is remembered by identity, and all from there on has to be sent anew.


def compacted(messages: Log[Spoken], event: Compacted, seq: int) -> Log[Spoken]:
    """`messages` as the model is told them after `event`, which stands at `seq`."""
    lines = dict(event.pruned)
    if event.kind == "prune":
        return Log(list(_pruned(messages, lines)))
    # These results nobody has read yet: only their words are too long.
    told = tuple(Text(part) for part in (event.preserved, event.summary) if part.strip())
    at = _first(messages, event.first_kept)
    left = [Spoken(s.seq, _with(s.message, lines, images=True)) for s in messages[at:]]
    return Log([Spoken(seq, Message("user", told)), *left] if told else left)


def images_in(messages: Iterable[Spoken]) -> tuple[str, ...]:
    """The blobs of the images that the messages show, each once."""
    return tuple(dict.fromkeys(i.blob for s in messages for i in s.message.images))


def _first(messages: Log[Spoken], kept: int) -> int:
    found = (n for n, spoken in enumerate(messages) if spoken.seq == kept)
    return next(found, len(messages)) if kept else len(messages)


def _pruned(messages: Log[Spoken], lines: dict[str, str]) -> Iterator[Spoken]:
    same = True
    for spoken in messages:
        message = _with(spoken.message, lines)
        same = same and message is spoken.message
        yield spoken if same else Spoken(spoken.seq, message)


def _with(message: Message, lines: dict[str, str], *, images: bool = False) -> Message:
    hit = any(isinstance(p, ToolResult) and p.call_id in lines for p in message.parts)
    return (
        replace(message, parts=tuple(_part(p, lines, images) for p in message.parts))
        if hit
        else message
    )


def _part(part: Part, lines: dict[str, str], images: bool) -> Part:
    if isinstance(part, ToolResult) and part.call_id in lines:
        shown = part.images if images else ()
        return ToolResult(part.call_id, lines[part.call_id], part.failed, shown)
    return part
