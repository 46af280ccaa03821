"""Converts live news to documents for programs, and back. Pure.

`encode` makes the documents of events.
"""

from refold.values.live import (
    CallComing,
    ChildMoved,
    Live,
    PortsChanged,
    Progress,
    SubagentDelta,
    TextCame,
    ThinkingCame,
    Waiting,
)
from refold.views.stream_json import live_documents
from refold.views.stream_json.live_documents import LiveDocument


def encode_live(live: Live, after: int) -> LiveDocument:
    """Return the document of live news. `after` is the number of the last event before it."""
    match live:
        case TextCame(text):
            return live_documents.TextDelta(after=after, text=text)
        case ThinkingCame(text):
            return live_documents.ThinkingDelta(after=after, text=text)
        case CallComing(name):
            return live_documents.CallBegun(after=after, name=name)
        case Progress(call_id, text):
            return live_documents.ToolProgress(after=after, call_id=call_id, text=text)
        case Waiting(seconds, reason, attempt, attempts):
            return live_documents.Retry(
                after=after, seconds=seconds, reason=reason, attempt=attempt,
                attempts=attempts,
            )  # fmt: skip
        case SubagentDelta(node, piece):
            return live_documents.WithinChild(after=after, node=node, live=piece)
        case ChildMoved(node, agent, title, steps, tokens, cost, label):
            return live_documents.ChildMoved(
                after=after, node=node, agent=agent, title=title, steps=steps,
                tokens=tokens, cost=cost, label=label,
            )  # fmt: skip
        case PortsChanged(ports):
            return live_documents.PortsChanged(after=after, ports=ports)


def to_live(document: LiveDocument) -> Live:
    """Return the live news from which the document was made."""
    match document:
        case live_documents.TextDelta(text=text):
            return TextCame(text)
        case live_documents.ThinkingDelta(text=text):
            return ThinkingCame(text)
        case live_documents.CallBegun(name=name):
            return CallComing(name)
        case live_documents.ToolProgress(call_id=call_id, text=text):
            return Progress(call_id, text)
        case live_documents.Retry() as wait:
            return Waiting(wait.seconds, wait.reason, wait.attempt, wait.attempts)
        case live_documents.WithinChild(node=node, live=piece):
            return SubagentDelta(node, piece)
        case live_documents.ChildMoved() as moved:
            return ChildMoved(
                moved.node, moved.agent, moved.title, moved.steps, moved.tokens,
                moved.cost, moved.label,
            )  # fmt: skip
        case live_documents.PortsChanged(ports=ports):
            return PortsChanged(tuple(ports))
