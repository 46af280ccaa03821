"""The talk: what the model has heard and said, and the calls still open.

This is the part of a session that rewinds. It knows no money and no ids; that
is `account`. The results of one answer enter together, in the order of its
calls, however they ended: so a request made again is the same request.
"""

from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from refold.journal.events import (
    Answered,
    Asked,
    Briefed,
    Ended,
    Entry,
    Judged,
    ModelAnswered,
    ModelFailed,
    Rejected,
    Said,
    Started,
    TakenUp,
)
from refold.values.log import Log
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

Stage: TypeAlias = Literal["called", "asked", "allowed", "denied", "started", "ended"]
_JUDGED: dict[str, Stage] = {"allow": "allowed", "ask": "asked", "deny": "denied"}

CallNews: TypeAlias = Judged | Answered | Started | Ended
HEARS = (
    Said, TakenUp, Asked, ModelAnswered, ModelFailed, Rejected, Briefed,
    Judged, Answered, Started, Ended,
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


class Unheard(Struct, frozen=True):
    seq: int
    said: Said


class Talk(Struct, frozen=True):
    messages: Log[Spoken] = field(default_factory=Log[Spoken])
    calls: tuple[OpenCall, ...] = ()  # of the last answer, until all have ended
    unheard: tuple[Unheard, ...] = ()
    briefed: Briefed = Briefed()
    pictures: tuple[str, ...] = ()  # the blobs that the messages show
    size: int = 0  # characters in the messages

    def call(self, call_id: str) -> OpenCall | None:
        return next((c for c in self.calls if c.call.id == call_id), None)


def apply(talk: Talk, entry: Entry) -> Talk:
    match entry.event:
        case Said():
            return replace(talk, unheard=(*talk.unheard, Unheard(entry.seq, entry.event)))
        case TakenUp(words):
            heard = [w.said for w in talk.unheard if w.seq in words]
            left = tuple(w for w in talk.unheard if w.seq not in words)
            shown = tuple(image for said in heard for image in said.pictures)
            told = replace(talk, unheard=left)
            return _told(told, entry.seq, *(said.words for said in heard), shown=shown)
        case Asked(notes) | Rejected(notes):
            return _told(talk, entry.seq, *notes)
        case ModelAnswered(message):
            calls = tuple(
                OpenCall(call, since=entry.seq, called=entry.seq) for call in message.calls
            )
            return _plus(replace(talk, calls=calls), entry.seq, message)
        case ModelFailed(shown=shown) if shown:
            return _plus(talk, entry.seq, Message("assistant", (Text(shown),)))
        case Briefed():
            return replace(talk, briefed=entry.event)
        case Judged() | Answered() | Started() | Ended():
            return _moved(talk, entry.event, entry.seq)
        case _:
            return talk


def _moved(talk: Talk, event: CallNews, seq: int) -> Talk:
    """The call that the news is of, one stage on; with the last end, all results."""
    id_ = event.call_id
    calls = [
        _step(c, event, seq) if c.call.id == id_ and c.result is None else c
        for c in talk.calls
    ]
    results = [c.result for c in calls if c.result is not None]
    if len(results) < len(calls) or not calls:
        return replace(talk, calls=tuple(calls))
    return _plus(replace(talk, calls=()), seq, Message("tool", tuple(results)))


def _step(call: OpenCall, event: CallNews, seq: int) -> OpenCall:
    match event:
        case Judged(_, verdict, _, reason, once=once, hash=hash_):
            stage = _JUDGED[verdict]
            found = replace(call, stage=stage, since=seq, reason=reason)
            return replace(found, once=once, hash=hash_)
        case Answered(_, allowed, reason, answers):
            if call.stage != "asked":
                return call
            stage = "allowed" if allowed else "denied"
            return replace(call, stage=stage, since=seq, reason=reason, answers=answers)
        case Started():
            return replace(call, stage="started", since=seq, started=seq)
        case Ended(id_, outcome, text, pictures=pictures):
            result = ToolResult(id_, text, outcome != "done", pictures)
            return replace(call, stage="ended", since=seq, result=result)


def _told(talk: Talk, seq: int, *words: str, shown: tuple[Image, ...] = ()) -> Talk:
    parts = tuple(Text(w) for w in words if w.strip())
    return _plus(talk, seq, Message("user", (*parts, *shown)))


def _plus(talk: Talk, seq: int, message: Message) -> Talk:
    # An answer cut off inside its first call says nothing; no provider takes that.
    if not message.parts:
        return talk
    shown = tuple(image.blob for image in message.pictures)
    return replace(
        talk,
        messages=talk.messages.plus(Spoken(seq, message)),
        pictures=(*talk.pictures, *(b for b in shown if b not in talk.pictures)),
        size=talk.size + sum(map(_size, message.parts)),
    )


def _size(part: Part) -> int:
    match part:
        case Text(text) | Thinking(text) | ToolResult(_, text):
            return len(text)
        case ToolCall(_, name, arguments):
            return len(name) + len(bytes(arguments))
        case Image():
            return 0
