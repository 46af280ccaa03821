"""Records a journal with every kind of event, and the state that it folds to.

    python tests/session/golden/record.py 0.2

writes `0.2.jsonl` and `0.2.json` beside this file. Each release adds its own; the journals
of earlier ones are never written again, because users have them on their disks. The folded
state is written again (`record.py --fold 0.1`) only if the shape of a view changes: read
the difference before you commit it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Raw

from refold.journal.events import codec
from refold.journal.events.kinds import (
    Answered,
    AnswerRejected,
    Delivered,
    Ended,
    Event,
    Granted,
    JournalRepaired,
    Judged,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Noted,
    RequestLogged,
    Rewound,
    Said,
    SessionResumed,
    SessionStarted,
    Started,
    Stopped,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
    Unknown,
)
from refold.journal.events.setting_events import EffortChosen, ModeChanged, ModelChosen
from refold.journal.state.fold import View, fold
from refold.journal.store.port import MemoryStore
from refold.session.recorder import Recorder
from refold.values.control import Final
from refold.values.display import Diff, Note, Output
from refold.values.growing import Log
from refold.values.messages import Message, Text, Thinking, ToolCall
from refold.values.tools import ToolSpec
from refold.values.usage import Usage
from tests.engine.worlds import render_conversation

LOOK = ToolCall("call-0", "read_file", Raw(b'{"path":"a.txt"}'), "toolu_0")
EDIT = ToolCall(
    "call-1", "edit_file", Raw(b'{"path":"a.txt","old":"1","new":"2"}'), "toolu_1"
)
RUN = ToolCall("call-2", "bash", Raw(b'{"command":"make"}'), "toolu_2")
FINISH = ToolCall("call-3", "finish", Raw(b'{"answer":"Two."}'), "toolu_3")
ABOVE = "sha256-above"


def answer(*parts: Any, **fields: Any) -> ModelAnswered:
    usage = Usage(fresh=10, cached=5, cache_write=1, output=3, reasoning=2)
    return ModelAnswered(Message("assistant", parts), usage, model="acme/one", **fields)


EVENTS: list[Event] = [
    SessionStarted("/work", "0.1.0"),
    ModelChosen("acme/one"),
    ModeChanged("accept-edits"),
    Said("Change the number, please: é 😀 \u2028.", client_key="key-1"),
    TurnStarted(4),
    EffortChosen("high"),
    SystemPromptSet("You are refold.", (ToolSpec("read_file", "Read.", Raw(b'{"type":"object"}')),),
            "acme/one", 100_000, 4_000, "high", Raw(b'{"type":"object"}')),
    Delivered((4,)),
    ModelAsked(("<reminder>Be brief.</reminder>",), True, ("step_limit",)),
    ModelFailed("busy", "Overloaded", "", Usage(fresh=3), "acme/one", 0.5),
    TurnEnded("failed", "busy"),
    TurnStarted(10, "continue"),
    ModelAsked(),
    answer(Thinking("Look first.", "acme", Raw(b'{"sig":"x"}')), Text("I look."), LOOK, EDIT,
           RUN, stop="calls"),
    Judged("call-0", "allow", "", "it only looks"),
    Started("call-0"),
    Judged("call-1", "allow", "edit_file(*)", "the rule"),
    Started("call-1"),
    Judged("call-2", "ask", "", "no rule allows bash here"),
    Ended("call-1", "done", "changed", (Diff("/work/a.txt", "changed", "-1\n+2", "b", "c"),)),
    RequestLogged("POST https://api.acme.test/v1/chat", ABOVE, ABOVE, 12),
    Ended("call-0", "done", "1\t1", (Note("read a.txt"),), (("/work/a.txt", ABOVE),), "f" * 64),
    SessionResumed("0.1.0"),
    Granted("bash(make)"),
    Answered("call-2", True),
    Started("call-2"),
    Said("And tell me when.", "person", "next"),
    Ended("call-2", "failed", "make: no rule", (Output("make", "make: no rule", 2),)),
    ModelAsked(),
    answer(Text("Cut o"), stop="length"),
    ModelAsked(),
    answer(Text("no JSON"), cost=0.25),
    AnswerRejected(("<reminder>Once more, as JSON.</reminder>",)),
    ModelAsked(("<reminder>Go on.</reminder>",), False, ("continuation",)),
    answer(FINISH, stop="calls"),
    Judged("call-3", "allow"),
    Started("call-3"),
    Ended("call-3", "done", "ended", control=Final("Two.")),
    TurnEnded("final"),
    JournalRepaired("half a line of 12 bytes, written when it crashed"),
    Noted("plug-in", Raw(b'{"a":[1,null]}')),
    Unknown("Teleported", Raw(b'{"to":"mars"}')),
    TurnStarted(25),
    Delivered((25,)),
    ModelAsked(),
    answer(Text("At no"), partial=True),
    Stopped("the person left"),
    TurnEnded("interrupted", "the person left"),
    Rewound(40),
    Said("Once more."),
]  # fmt: skip


def as_json(view: View) -> dict[str, Any]:
    """Return the view of a session as plain JSON, with the numbers of its marks."""
    parts = {
        name: getattr(view, name) for name in view.__struct_fields__ if name != "marks"
    }
    encoded = msgspec.json.encode(parts, enc_hook=_plain)
    return {
        "transcript": render_conversation(view).split("\n"),
        "marks": [mark.seq for mark in view.marks],
        **msgspec.json.decode(encoded),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Log):
        return list(value)  # pyright: ignore
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore
    raise NotImplementedError(type(value))


async def record() -> tuple[list[bytes], View]:
    store = MemoryStore()
    clock = iter(range(1_700_000_000, 1_800_000_000)).__next__
    recorder = Recorder(store, clock=lambda: float(clock()))
    for event in EVENTS:
        await recorder(event, author="golden")
    return store.lines, recorder.view


def main(name: str) -> None:
    missing = set(codec.KINDS_BY_NAME) - {codec.kind_of(event) for event in EVENTS}
    assert not missing, f"no {missing} in EVENTS"
    lines, view = anyio.run(record)
    beside = Path(__file__).with_name(name)
    with open(f"{beside}.jsonl", "xb") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    write(Path(f"{beside}.json"), view)


def fold_again(name: str) -> None:
    beside = Path(__file__).with_name(name)
    lines = Path(f"{beside}.jsonl").read_bytes().splitlines()
    write(Path(f"{beside}.json"), fold(entry for entry, _ in codec.decode(lines)))


def write(path: Path, view: View) -> None:
    text = msgspec.json.format(msgspec.json.encode(as_json(view)), indent=1)
    path.write_text(text.decode() + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--fold":
        fold_again(sys.argv[2])
    else:
        main(sys.argv[1])
