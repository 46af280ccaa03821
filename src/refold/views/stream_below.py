"""Children, and calls that code makes, as documents. Part of `stream`. Pure."""

from typing import TypeAlias

import msgspec

from refold.journal.below import (
    CallMade,
    ChildAnswered,
    ChildBorn,
    ChildEnded,
    ChildGranted,
    ChildStopped,
    Forked,
    Handed,
    VariablesKept,
    VariablesRestored,
)
from refold.journal.events import Entry, Imported
from refold.views.budget import budget_document
from refold.views.result import arguments

Document: TypeAlias = dict[str, object]


def of_below(entry: Entry) -> Document | None:
    match entry.event:
        case ChildBorn() | ChildEnded() | ChildGranted() | ChildStopped() | ChildAnswered():
            return _of_a_child(entry.event)
        case CallMade(call, within):
            return {
                "type": "tool_call", "call_id": call.id, "tool": call.name,
                "arguments": arguments(call), "within": within,
            }  # fmt: skip
        case Handed(name, blob, files, listed):
            return {
                "type": "variable_handed", "name": name, "blob": blob, "files": dict(files),
                "listed": listed,
            }  # fmt: skip
        case VariablesKept(_, _, kept, lost):
            return {"type": "variables", "kept": dict(kept), "lost": dict(lost)}
        case VariablesRestored(_, source, kept, lost):
            return {
                "type": "variables_restored", "source": source, "kept": dict(kept),
                "lost": dict(lost),
            }  # fmt: skip
        case Forked(source, seq):
            return {"type": "forked", "source": source, "from": seq}
        case Imported(source, id_, directory):
            return {
                "type": "imported", "source": source, "session_id": id_,
                "directory": directory,
            }  # fmt: skip
        case _:
            return None


def _of_a_child(
    event: ChildBorn | ChildEnded | ChildGranted | ChildStopped | ChildAnswered,
) -> Document:
    match event:
        case ChildBorn() as born:
            return {
                "type": "subagent_start", "child": born.child, "call_id": born.call_id,
                "agent": born.agent, "task": born.task, "background": born.beside,
                "directory": born.directory, "branch": born.branch,
            }  # fmt: skip
        case ChildEnded() as end:
            return {
                "type": "subagent_end", "child": end.child, "outcome": end.outcome,
                "status": end.status, "text": end.text, "reason": end.reason,
                "usage": msgspec.to_builtins(end.spent.usage), "cost": end.spent.cost,
                "directory": end.directory, "branch": end.branch,
            }  # fmt: skip
        case ChildGranted(child, budget):
            return {"type": "subagent_budget", "child": child, **budget_document(budget)}
        case ChildStopped(child, reason):
            return {"type": "subagent_stopped", "child": child, "reason": reason}
        case ChildAnswered(id_, allowed, reason, _, gone):
            verdict = "gone" if gone else "allow" if allowed else "deny"
            return {
                "type": "tool_approval_result", "call_id": id_, "verdict": verdict,
                "rule": "", "reason": reason,
            }  # fmt: skip
