"""Events and live news as JSON-able documents, one a line, for programs. Pure.

What each type means is written in docs/headless.md; a test holds the two
together. Documents of events carry their `seq`; those of live news carry the
seq they came after and may be missed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from refold.journal.below import ChildAsks
from refold.journal.events import (
    AgentChosen,
    Answered,
    BudgetSet,
    Checkpointed,
    CompactAsked,
    Compacted,
    Distilled,
    EffortChosen,
    Ended,
    Entry,
    FilesFound,
    FilesRestored,
    Judged,
    Mended,
    ModeChanged,
    ModelAnswered,
    ModelChosen,
    ModelFailed,
    PlanAnswered,
    Rejected,
    Reserved,
    Said,
    Settled,
    StepsSet,
    Stopped,
    TurnEnded,
    TurnStarted,
)
from refold.journal.fold import View
from refold.journal.frame import Frame
from refold.values.asked import Asking
from refold.values.control import EnterPlan, PlanReady, Todos
from refold.values.messages import Thinking, ToolCall
from refold.values.shown import Diff
from refold.views.budget import budget_document
from refold.views.result import arguments
from refold.views.stream_below import of_below

Document: TypeAlias = dict[str, object]
PutToPerson: TypeAlias = Judged | ChildAsks  # a call that a person has to answer
SCHEMA = 1  # of these documents; fields may be added without a new number


def init(view: View, session_id: str, version: str) -> Document:
    """The first document of a stream."""
    return {
        "type": "system",
        "subtype": "init",
        "schema": SCHEMA,
        "session_id": session_id,
        "directory": view.about.directory,
        "version": version,
    }


def approval_request(
    event: PutToPerson, call: ToolCall | None = None, rule: str = ""
) -> Document:
    """A call waits for a verdict. `rule` is what may be granted with a yes; "" for none."""
    about = {"tool": call.name, "arguments": arguments(call)} if call else {}
    return {
        "type": "tool_approval_request", "call_id": asked_id(event), "hash": event.hash,
        **about, "reason": event.reason, "once": event.once, "rule": rule, **_who(event),
    }  # fmt: skip


def question(event: PutToPerson, questions: Sequence[Asking]) -> Document:
    """The model asks what only the person knows."""
    return {
        "type": "question", "call_id": asked_id(event), "hash": event.hash,
        "questions": msgspec.to_builtins(questions), **_who(event),
    }  # fmt: skip


def asked_id(event: PutToPerson) -> str:
    """What an answer to this is given by."""
    return event.id if isinstance(event, ChildAsks) else event.call_id


def _who(event: PutToPerson) -> Document:
    """Which child asks, and its agent."""
    return {"who": event.who} if isinstance(event, ChildAsks) else {}


def documents(
    frame: Frame, *, live: bool, asked: Callable[[PutToPerson], Document] = approval_request
) -> Iterator[Document]:
    """What a frame says. `live` false leaves out what may be missed.

    `asked` gives the document about a call that a person is asked about.
    """
    if isinstance(frame.item, Entry):
        event = frame.item.event
        if isinstance(event, ChildAsks) or (
            isinstance(event, Judged) and event.verdict == "ask"
        ):
            yield {"seq": frame.seq, **asked(event)}
            return
        for found in _event(frame.item):
            yield {"seq": frame.seq, **found}
    elif live:
        yield {"after": frame.seq, **msgspec.to_builtins(frame.item)}


def _event(entry: Entry) -> Iterator[Document]:
    yield from _of_the_talk(entry)
    yield from _of_calls(entry)
    if found := _of_the_session(entry):
        yield found


def _of_the_talk(entry: Entry) -> Iterator[Document]:
    match entry.event:
        case Said(words, sender, when, pictures=pictures):
            shown = {"pictures": [p.name for p in pictures]} if pictures else {}
            yield {
                "type": "user_message", "text": words, "sender": sender, "when": when, **shown,
            }  # fmt: skip
        case TurnStarted():
            yield {"type": "turn_start", "turn": entry.seq}
        case ModelAnswered() as answer:
            yield from _answer(answer)
        case ModelFailed(reason, kind):
            yield {"type": "error", "kind": kind, "reason": reason}
        case Rejected(notes):
            yield {"type": "answer_rejected", "reason": "\n".join(notes)}
        case Stopped(reason, outcome):
            yield {"type": "interrupted", "outcome": outcome, "reason": reason}
        case TurnEnded(outcome, reason):
            yield {"type": "turn_end", "outcome": outcome, "reason": reason}
        case _:
            return


def _of_calls(entry: Entry) -> Iterator[Document]:
    match entry.event:
        case Judged(call_id, verdict, rule, reason):
            yield _verdict(call_id, verdict, rule, reason)
        case Answered(call_id, allowed, reason):
            yield _verdict(call_id, "allow" if allowed else "deny", "", reason)
        case Ended() as end:
            yield from _ended(end)
        case _:
            return


def _of_the_session(entry: Entry) -> Document | None:
    match entry.event:
        case ModeChanged(mode):
            return {"type": "mode_changed", "mode": mode}
        case Ended(control=EnterPlan()):
            return {"type": "mode_changed", "mode": "plan"}
        case ModelChosen(model):
            return {"type": "model_changed", "model": model}
        case EffortChosen(effort):
            return {"type": "effort_changed", "effort": effort}
        case Mended(lost):
            return {"type": "notice", "text": f"the journal was damaged at its end: {lost}"}
        case _:
            return _of_plans_and_files(entry)


def _of_plans_and_files(entry: Entry) -> Document | None:
    match entry.event:
        case Ended(control=PlanReady(title, text)):
            return {"type": "plan_ready", "plan": entry.seq, "title": title, "text": text}
        case PlanAnswered(plan, True, text):
            return {"type": "plan_approved", "plan": plan, "text": text}
        case PlanAnswered(plan):
            return {"type": "plan_rejected", "plan": plan}
        case Checkpointed(trees, left_out, changed):
            return {
                "type": "checkpoint", "roots": [root for root, _ in trees],
                "left_out": left_out, "changed": [_change(*each) for each in changed],
            }  # fmt: skip
        case FilesRestored(checkpoint, before, files):
            return {
                "type": "files_restored", "checkpoint": checkpoint, "before": before,
                "files": files,
            }  # fmt: skip
        case _:
            return _of_the_window(entry) or _of_the_money(entry)


def _of_the_window(entry: Entry) -> Document | None:
    match entry.event:
        case Ended(control=Todos(items)):
            return {"type": "todo_update", "todos": msgspec.to_builtins(items)}
        case CompactAsked(kind, focus):
            return {"type": "compact_asked", "kind": kind, "focus": focus}
        case Compacted() as made:
            return {
                "type": "compact", "kind": made.kind, "reason": made.reason,
                "dropped": made.dropped, "kept_from": made.kept, "summary": made.summary,
                "before": made.before, "after": made.after,
            }  # fmt: skip
        case FilesFound(files):
            changed = [_change(*each) for each in files]
            return {"type": "files_changed_elsewhere", "files": changed}
        case AgentChosen(agent):
            return {"type": "agent_changed", "agent": agent}
        case _:
            return None


def _of_the_money(entry: Entry) -> Document | None:
    match entry.event:
        case BudgetSet(budget):
            return {"type": "budget", **budget_document(budget)}
        case StepsSet(steps):
            return {"type": "steps", "steps": steps or None}
        case Reserved(purpose, model, dollars, tokens):
            return {
                "type": "side_call", "purpose": purpose, "model": model,
                "dollars": dollars, "tokens": tokens,
            }  # fmt: skip
        case Settled(reserved, usage, model, cost, failed):
            return {
                "type": "usage", "side_call": reserved, "model": model,
                "usage": msgspec.to_builtins(usage), "cost": cost, "failed": failed,
            }  # fmt: skip
        case Distilled(upto, kept, model):
            return {"type": "memory", "upto": upto, "kept": kept, "model": model}
        case _:
            return of_below(entry)


def _change(path: str, kind: str) -> Document:
    return {"path": path, "kind": kind}


def _verdict(call_id: str, verdict: str, rule: str, reason: str) -> Document:
    return {
        "type": "tool_approval_result", "call_id": call_id, "verdict": verdict,
        "rule": rule, "reason": reason,
    }  # fmt: skip


def _answer(answer: ModelAnswered) -> Iterator[Document]:
    message = answer.message
    thinking = "".join(p.text for p in message.parts if isinstance(p, Thinking))
    yield {
        "type": "assistant_message", "text": message.text, "thinking": thinking,
        "model": answer.model, "stop": answer.stop, "partial": answer.partial,
        "usage": msgspec.to_builtins(answer.usage), "cost": answer.cost,
    }  # fmt: skip
    for call in message.calls:
        yield _called(call)


def _called(call: ToolCall) -> Document:
    return {
        "type": "tool_call", "call_id": call.id, "tool": call.name,
        "arguments": arguments(call),
    }  # fmt: skip


def _ended(end: Ended) -> Iterator[Document]:
    yield {
        "type": "tool_result", "call_id": end.call_id, "outcome": end.outcome,
        "text": end.text, "whole": end.whole,
    }  # fmt: skip
    for shown in end.shown:
        if isinstance(shown, Diff):
            yield {
                "type": "diff", "call_id": end.call_id, "path": shown.path,
                "kind": shown.kind, "text": shown.text,
            }  # fmt: skip
