"""Makes a session in which every text that another party can choose is the same hostile text."""

import json

import msgspec
from msgspec import Raw

from refold.journal.events.kinds import (
    Answered,
    ChildBorn,
    ChildEnded,
    Ended,
    Entry,
    Event,
    Forked,
    JournalRepaired,
    Judged,
    ModelAnswered,
    ModelFailed,
    NestedCallMade,
    Said,
    SessionStarted,
    Settled,
    Started,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.events.setting_events import AgentChosen, ModelChosen, Renamed, Tagged
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import Node
from refold.values.control import Todo
from refold.values.display import Checklist, Diff, Note, Output
from refold.values.messages import Image, Message, Text, Thinking, ToolCall
from refold.views.call_summary import label
from refold.views.export.content import ExportOptions

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20


def export_options(image: bytes | None = PNG) -> ExportOptions:
    return ExportOptions(
        label=lambda call: label(call, None),
        image=lambda node, name: image,
        when=lambda at: f"at {at:.0f}",
        thoughts=True,
    )


def hostile_node(text: str, below: int = 1) -> Node:
    """Return a node in which every text is `text`, with `below` levels of such children."""
    events = _events(text)
    entries = [Entry(seq, event, 100.0 + seq) for seq, event in enumerate(events, start=1)]
    view = fold(entries)
    node = Node("root", text or "s", entries, view)
    if not below:
        return node
    known = view.children.children
    child = msgspec.structs.replace(hostile_node(text, below - 1), child=known[0])
    lost = msgspec.structs.replace(hostile_node(text, 0), child=known[1])
    return msgspec.structs.replace(node, children=(child, lost))


def _events(text: str) -> list[Event]:
    data = {text: text, "command": text, "n": [text], "lines": f"a\n{text}"}
    raw = Raw(json.dumps(data).encode())  # which also writes half characters
    result = (
        Diff(text, "changed", f"@@ -1 +1 @@\n-{text}\n+{text}"), Output(text, text, 1, text),
        Output(text, text, None, text), Note(text), Checklist((Todo(text, "done"),)),
    )  # fmt: skip
    calls = (
        ToolCall("c", text, raw),
        ToolCall("d", text, Raw(b'"no object"')),
        ToolCall("e", text, raw),
    )
    parts = (
        Thinking(text),
        Text(text),
        Text(f"```{text}\n{text}\n```\n\n# {text}\n\n| {text} |\n|--:|\n| {text} |"),
    )
    image = Image("0" * 64, text, text)
    return [
        SessionStarted(text, text, text), Renamed(text), Tagged((text,)), ModelChosen(text),
        AgentChosen(text), JournalRepaired(text), Forked(text, 3, id=text), Said(text, images=(image,)),
        TurnStarted(8), SystemPromptSet(text, model=text, agent=text),
        ModelAnswered(Message("assistant", (*parts, *calls)), model=text, refusal=text, served_by=text),
        Judged("c", "ask", text, text), Answered("c", True, text), Started("c"),
        NestedCallMade(ToolCall("c1", text, raw), "c"), Ended("c1", "done", text, result),
        ChildBorn("child-1", "c", text, text, title=text), ChildBorn("child-2", "gone", text, text),
        ChildEnded("child-1", "answered", "done", text, text),
        Ended("c", "failed", text, result, full_blob="0" * 64, images=(image,)),
        Judged("d", "deny", text, text), Ended("d", "refused", text), Started("e"),
        Said(text, "child-1"), Said(text, "parent"), Said(text, text),
        Settled(11, model=text, failed=text), ModelFailed(text, text, text, model=text),
        TurnEnded("failed", text), Said(text, when="next"),
    ]  # fmt: skip
