"""The conversation: messages as the model sees them, and the calls that are still open.

A rewind changes this part of a session, but not costs and ids (`account`). The results of one
response are added at once, in the order of its calls and not of their ends, so that a repeated
request is identical. Compaction makes new objects only from the first changed message on. Wires
cache encoded messages by identity, so only the new objects are encoded again.
"""

from collections.abc import Iterable
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
    HookRan,
    Imported,
    Judged,
    MessageEdited,
    MessageWithdrawn,
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
    StoredMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.values.tools import ToolSpec

Stage: TypeAlias = Literal["called", "asked", "allowed", "denied", "started", "ended"]
_STAGE_BY_VERDICT: dict[str, Stage] = {"allow": "allowed", "ask": "asked", "deny": "denied"}

MIN_PRUNED_CHARS = 200  # a shorter result is not worth pruning
IMAGE_TOKENS = 800  # a rough value for all providers
EMPTY_MESSAGE = "<reminder>The person sent nothing to read.</reminder>"

UNKNOWN_AFTER_EXPORT = (
    "Not known here: the session was exported while this was under way. It may have happened "
    "there: look first."
)

_MAX_ENDED_CALLS = 64  # by code; they stay visible because something may wait for them

CallNews: TypeAlias = Judged | Answered | Started | Ended | HookRan
EVENT_KINDS = (
    Said, Delivered, ModelAsked, ModelAnswered, ModelFailed, AnswerRejected, SystemPromptSet,
    Judged, MessageEdited, MessageWithdrawn, Answered, Started, Ended, CompactionRequested, Compacted, NestedCallMade, VariablesSaved,
    Imported, HookRan,
)  # fmt: skip


class OpenCall(Struct, frozen=True):
    call: ToolCall
    stage: Stage = "called"
    since: int = 0  # the seq of the event that led to this stage
    called: int = 0  # the seq of the response that contains it
    started: int = 0  # the seq of its start
    reason: str = ""  # why the user is asked, or why it was denied
    hash: str = ""  # of the call and the targets of its paths
    once: bool = False  # an approval is for this call only and adds no rule
    answers: tuple[str, ...] = ()  # the user's, to the questions of the call
    result: ToolResult | None = None
    nested: NestedCallMade | None = None  # set if code made it within another call
    changes: tuple[Diff, ...] = ()  # what it would do to files, shown with the question
    hooks: tuple[HookRan, ...] = ()  # run before it
    outside: bool = False  # the user is asked because text from outside was read


class Undelivered(Struct, frozen=True):
    seq: int
    said: Said


# Senders whose messages are requests. Other senders, such as a background command, report.
REQUEST_SENDERS = ("person", "parent")
# A command that the user ran. It is delivered with the next message and starts no turn.
SHELL_SENDER = "shell"


class UserText(Struct, frozen=True):
    """A delivered request with the seq of its event. In a subagent, the parent sent it."""

    seq: int
    text: str
    delivered: int  # the seq of the message in the conversation
    person: bool = True  # False: the parent agent wrote it


class Conversation(Struct, frozen=True):
    messages: Log[StoredMessage] = field(default_factory=Log[StoredMessage])
    calls: tuple[OpenCall, ...] = ()  # of the last response, until all have ended
    nested: tuple[OpenCall, ...] = ()  # made by code within `calls`: open, or just ended
    undelivered: tuple[Undelivered, ...] = ()
    system_prompt: SystemPromptSet = SystemPromptSet()
    images: tuple[str, ...] = ()  # blobs of the images in the messages
    size: int = 0  # characters in the messages
    result_size: int = 0  # characters that pruning all results would save
    prompt_size: int = 0  # characters of the system prompt and the tools
    user_messages: Log[UserText] = field(default_factory=Log[UserText])
    todos: tuple[Todo, ...] = ()
    chars_per_token: float = 4.0  # by the usage of the newest response
    compaction: CompactionRequested | None = None  # requested, not done yet
    compacted_size: int = 0  # the size after the last compaction, or 0
    edits: tuple[tuple[int, str | None], ...] = ()  # of messages; null: deleted
    variables: str = ""  # the blob with the variables of the session's Python
    variable_parts: tuple[str, ...] = ()  # the blobs that it refers to

    def call(self, call_id: str) -> OpenCall | None:
        for calls in (self.calls, self.nested):
            for call in calls:
                if call.call.id == call_id:
                    return call
        return None

    @property
    def waiting_calls(self) -> tuple[OpenCall, ...]:
        """The calls that wait for a decision of the user."""
        return tuple(c for c in (*self.calls, *self.nested) if c.stage == "asked")


def apply(conversation: Conversation, entry: Entry) -> Conversation:
    """Return the conversation after this entry. An event of another kind changes nothing."""
    match entry.event:  # the most frequent kinds come first
        case Ended() | Started() | Judged() | Answered():
            return _advance_calls(conversation, entry.event, entry.seq)
        case ModelAsked(notes) | AnswerRejected(notes):
            return _user_message(conversation, entry.seq, *notes) if notes else conversation
        case ModelAnswered() | ModelFailed():
            return _with_answer(conversation, entry.event, entry.seq)
        case Said() | Delivered() | MessageWithdrawn():
            return _apply_message(conversation, entry.event, entry.seq)
        case SystemPromptSet():
            size = _prompt_size(entry.event)
            return replace(conversation, system_prompt=entry.event, prompt_size=size)
        case CompactionRequested() | Compacted() | Imported() | MessageEdited():
            return _rebuild(conversation, entry.event, entry.seq)
        case NestedCallMade() | VariablesSaved() | HookRan():
            return _with_nested_event(conversation, entry.event, entry.seq)
        case _:
            return conversation


def _with_answer(
    conversation: Conversation, event: ModelAnswered | ModelFailed, seq: int
) -> Conversation:
    """Add a response with its calls, or the text of a failed response that is not repeated."""
    match event:
        case ModelAnswered(message):
            calls = tuple([OpenCall(c, since=seq, called=seq) for c in message.calls])
            ratio = _new_ratio(conversation, event)
            measured = replace(conversation, calls=calls, chars_per_token=ratio)
            return _append_message(measured, seq, message)
        case ModelFailed(partial_text=text, dropped=False) if text:
            return _append_message(conversation, seq, Message("assistant", (Text(text),)))
        case _:
            return conversation


def _with_nested_event(
    conversation: Conversation, event: NestedCallMade | VariablesSaved | HookRan, seq: int
) -> Conversation:
    """Add a call that code made, note where the variables are, or apply a hook's answer."""
    if isinstance(event, VariablesSaved):
        return replace(conversation, variables=event.blob, variable_parts=event.parts)
    if isinstance(event, HookRan):
        return _apply_hook(conversation, event, seq)
    call = OpenCall(event.call, since=seq, called=seq, nested=event)
    return replace(conversation, nested=(*conversation.nested, call))


def _apply_hook(conversation: Conversation, event: HookRan, seq: int) -> Conversation:
    """Change the call that the hook is about, or drop the message or the compaction that it
    blocked.
    """
    match event:
        case HookRan("PreToolUse"):
            return _advance_calls(conversation, event, seq)
        case HookRan("UserPromptSubmit", outcome="blocked"):
            left = tuple(w for w in conversation.undelivered if w.seq != event.about)
            return replace(conversation, undelivered=left)
        case HookRan("PreCompact", outcome="blocked"):
            return replace(conversation, compaction=None)
        case _:
            return conversation


def _after_import(conversation: Conversation, seq: int) -> Conversation:
    """End open calls as unknown, and keep nothing but the messages."""
    results = tuple(
        call.result or ToolResult(call.call.id, UNKNOWN_AFTER_EXPORT, failed=True)
        for call in conversation.calls
    )
    cleared = replace(
        conversation,
        calls=(),
        nested=(),
        system_prompt=SystemPromptSet(),
        prompt_size=0,
        compaction=None,
        variables="",
        variable_parts=(),
    )
    if not results:
        return cleared
    return _append_message(cleared, seq, Message("tool", results))


def _apply_message(
    conversation: Conversation, event: Said | Delivered | MessageWithdrawn, seq: int
) -> Conversation:
    """Add a waiting message, remove a waiting message, or deliver waiting messages."""
    if isinstance(event, Said):
        undelivered = (*conversation.undelivered, Undelivered(seq, event))
        return replace(conversation, undelivered=undelivered)
    if isinstance(event, MessageWithdrawn):
        left = tuple(w for w in conversation.undelivered if w.seq != event.message)
        return replace(conversation, undelivered=left)
    return _deliver(conversation, event, seq)


def _deliver(conversation: Conversation, event: Delivered, seq: int) -> Conversation:
    """Return the conversation with the delivered messages, joined into one user message."""
    delivered = [m for m in conversation.undelivered if m.seq in event.messages]
    left = tuple(m for m in conversation.undelivered if m.seq not in event.messages)
    requests = conversation.user_messages
    for message in delivered:
        text, sender = message.said.text, message.said.sender
        if text.strip() and sender in REQUEST_SENDERS:
            requests = requests.plus(UserText(message.seq, text, seq, sender == "person"))
    result = replace(conversation, undelivered=left, user_messages=requests)
    images = tuple(image for message in delivered for image in message.said.images)
    texts = [message.said.text for message in delivered if message.said.text.strip()]
    if delivered and not texts and not images:
        # Without a message, two responses would be in a row, which providers refuse.
        texts = [EMPTY_MESSAGE]
    return _user_message(result, seq, *texts, images=images)


def _advance_calls(conversation: Conversation, event: CallNews, seq: int) -> Conversation:
    """Advance the event's call. When the last call ends, add the results of all."""
    id_ = event.call_id
    nested = conversation.nested
    if any(c.call.id == id_ for c in nested):
        nested_calls = tuple(_advance_call(c, event, seq) for c in nested)
        return replace(conversation, nested=_drop_oldest_ended(nested_calls))
    if nested and isinstance(event, Ended):  # the calls that it made are over, too
        left = tuple(c for c in nested if c.nested and c.nested.parent_call != id_)
        conversation = replace(conversation, nested=left)
    calls = tuple([_advance_call(c, event, seq) for c in conversation.calls])
    if not isinstance(event, Ended):
        return replace(conversation, calls=calls)
    if event.control is not None:
        conversation = _apply_control(conversation, event.control)
    results = tuple([c.result for c in calls if c.result is not None])
    have_all_ended = bool(calls) and len(results) == len(calls)
    if not have_all_ended:
        return replace(conversation, calls=calls)
    return _append_message(replace(conversation, calls=()), seq, Message("tool", results))


def _drop_oldest_ended(nested_calls: tuple[OpenCall, ...]) -> tuple[OpenCall, ...]:
    """Return the calls without the oldest ended calls: code can make many thousands."""
    if len(nested_calls) <= _MAX_ENDED_CALLS:
        return nested_calls
    ended = [c for c in nested_calls if c.result is not None]
    dropped = {c.call.id for c in ended[:-_MAX_ENDED_CALLS]}
    return tuple(c for c in nested_calls if c.call.id not in dropped)


def _advance_call(call: OpenCall, event: CallNews, seq: int) -> OpenCall:
    """Return the call after the event.

    Return the same call if it has ended, or if the event is about another call.
    """
    if call.call.id != event.call_id or call.result is not None:
        return call
    match event:
        case Ended():
            failed = event.outcome != "done"
            result = ToolResult(event.call_id, event.text, failed, event.images)
            return replace(call, stage="ended", since=seq, result=result)
        case Started():
            return replace(call, stage="started", since=seq, started=seq)
        case HookRan():
            return _with_hook(call, event)
        case Judged():
            return replace(
                call,
                stage=_STAGE_BY_VERDICT[event.verdict],
                since=seq,
                reason=event.reason,
                once=event.once,
                hash=event.hash,
                changes=event.changes,
                outside=event.outside,
            )
        case Answered(_, allowed, reason, answers):
            if call.stage != "asked":
                return call
            stage = "allowed" if allowed else "denied"
            return replace(call, stage=stage, since=seq, reason=reason, answers=answers)


def _with_hook(call: OpenCall, event: HookRan) -> OpenCall:
    call = replace(call, hooks=(*call.hooks, event))
    if bytes(event.arguments) == b"null":  # the hook has not changed the arguments
        return call
    return replace(call, call=replace(call.call, arguments=event.arguments))


def _apply_control(conversation: Conversation, control: Control) -> Conversation:
    """Return the conversation after a tool changed the todos or requested a compaction."""
    match control:
        case Todos(items):
            return replace(conversation, todos=items)
        case Compact(kind, focus):
            return replace(conversation, compaction=CompactionRequested(kind, focus))
        case _:
            return conversation


def _rebuild(
    conversation: Conversation,
    event: CompactionRequested | Compacted | Imported | MessageEdited,
    seq: int,
) -> Conversation:
    """Change earlier messages, or note that a compaction is requested or withdrawn."""
    match event:
        case MessageEdited():
            return with_edit(conversation, event) or conversation
        case CompactionRequested():
            return replace(conversation, compaction=None if event.withdrawn else event)
        case Compacted():
            return _compact(conversation, event, seq)
        case Imported():
            return _after_import(conversation, seq)


def _compact(conversation: Conversation, event: Compacted, seq: int) -> Conversation:
    from refold.journal.state.compacted_messages import compact_messages  # most have none

    result = _remeasure(conversation, compact_messages(conversation.messages, event, seq))
    return replace(result, compaction=None, compacted_size=result.size)


def _remeasure(conversation: Conversation, messages: Log[StoredMessage]) -> Conversation:
    """Return the conversation with these messages, and with sizes computed from them."""
    return replace(
        conversation,
        messages=messages,
        images=images_in(messages),
        size=sum(message_size(s.message) for s in messages),
        result_size=sum(_result_chars(s.message) for s in messages),
    )


def with_edit(conversation: Conversation, event: MessageEdited) -> Conversation | None:
    """Return the edited conversation; None if calls are open, or if the message is missing."""
    from refold.journal.state.message_edits import edit_messages  # rarely needed

    if conversation.calls:  # an edit must not separate a call from its result
        return None
    number, text = event.message, event.text
    of_user = next((u for u in conversation.user_messages if u.seq == number), None)
    delivered, before = (of_user.delivered, of_user.text) if of_user else (0, "")
    messages = edit_messages(conversation.messages, event, delivered, before)
    if messages is None:
        return None
    requests = list[UserText]()
    for request in conversation.user_messages:
        if request.seq != number:
            requests.append(request)
        elif text is not None:
            requests.append(replace(request, text=text))
    edits = (*(e for e in conversation.edits if e[0] != number), (number, text))
    result = _remeasure(conversation, messages)
    return replace(result, user_messages=Log(requests), edits=edits)


def _prompt_size(prompt: SystemPromptSet) -> int:
    """Characters of the system prompt and the tools."""
    return len(prompt.system) + sum(map(tool_size, prompt.tools))


def tool_size(tool: ToolSpec) -> int:
    """Characters of a tool's description as the model gets it."""
    return len(tool.name) + len(tool.description) + len(bytes(tool.parameters))


def _new_ratio(conversation: Conversation, answer: ModelAnswered) -> float:
    """Return the characters per token; without a count of the provider, the old ratio."""
    read = answer.usage.input
    if answer.partial or read <= 0 or answer.usage.estimated:
        return conversation.chars_per_token
    sent_chars = conversation.size + conversation.prompt_size
    image_tokens = IMAGE_TOKENS * len(conversation.images)
    # Images are estimated, so text has at least a quarter of the tokens.
    text_tokens = max(read - image_tokens, read // 4, 1)
    return min(8.0, max(1.0, sent_chars / text_tokens))  # others are implausible


def _user_message(
    conversation: Conversation, seq: int, *texts: str, images: tuple[Image, ...] = ()
) -> Conversation:
    """Add a message of the user with these images and texts. Blank texts are left out."""
    parts = tuple(Text(text) for text in texts if text.strip())
    return _append_message(conversation, seq, Message("user", (*parts, *images)))


def _append_message(conversation: Conversation, seq: int, message: Message) -> Conversation:
    # For example, a response that was cut off in its first call. No provider accepts it.
    if not message.parts:
        return conversation
    messages = conversation.messages.plus(StoredMessage(seq, message))
    size = message_size(message)
    result = replace(conversation, messages=messages, size=conversation.size + size)
    if message.role == "assistant":  # a response has no results and no images
        return result
    known = conversation.images
    new = [image.blob for image in message.images if image.blob not in known]
    result_size = conversation.result_size + _result_chars(message)
    return replace(result, images=(*known, *new), result_size=result_size)


def _result_chars(message: Message) -> int:
    """Return the number of characters that pruning the results of a message would save."""
    texts = [part.text for part in message.parts if isinstance(part, ToolResult)]
    return sum([max(0, len(text) - MIN_PRUNED_CHARS) for text in texts])


def message_size(message: Message) -> int:
    """Characters of a message."""
    return sum([part_size(part) for part in message.parts])


def part_size(part: Part) -> int:
    """Characters of a part; 0 for an image."""
    match part:
        case ToolResult() | Text() | Thinking():
            return len(part.text)
        case ToolCall(_, name, arguments):
            return len(name) + len(arguments)
        case Image():
            return 0


def images_in(messages: Iterable[StoredMessage]) -> tuple[str, ...]:
    """Return the blobs of the images in the messages, each once."""
    return tuple(dict.fromkeys(i.blob for s in messages for i in s.message.images))
