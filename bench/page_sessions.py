"""Measures a page with a long stored conversation, at rest and scrolled, and with a long list.

`bench.page` prints the figures. The long conversation is a day of work as a journal has it: questions,
model steps, reads, edits with their diffs, and commands with their output.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct, json

from bench.sessions import make_journals, prose
from refold.config.paths import paths
from refold.journal.events import codec
from refold.journal.events.kinds import (
    Delivered,
    Ended,
    Entry,
    Event,
    Judged,
    ModelAnswered,
    ModelAsked,
    Said,
    SessionStarted,
    Started,
    SystemPromptSet,
    TurnEnded,
    TurnStarted,
)
from refold.journal.journal_directory import JournalDirectory
from refold.values.display import Diff
from refold.values.messages import Message, Text, ToolCall
from refold.values.usage import Usage

LONG_ID = "20260101-000001-0001"
LAST_WORDS = "That was the last question."
STEPS = 24  # in each turn
QUIET = 500  # milliseconds without a change, after which a page is at rest
PIXELS = 120  # scrolled up in each frame, as by one step of a mouse wheel
FRAMES = 240
LISTED_STEPS = 2  # calls in each conversation of the list

# Notes when the page last changed or computed for more than 50 ms, and when its first rows were
# drawn; both in milliseconds since the address was opened.
WATCH = """
window.last_ = 0;
window.first_ = 0;
const changed = () => {
  last_ = performance.now();
  if (!first_ && document.querySelector(".card")) requestAnimationFrame(() => { first_ ||= performance.now(); });
};
new MutationObserver(changed).observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) last_ = Math.max(last_, task.startTime + task.duration);
}).observe({ entryTypes: ["longtask"] });
"""
_AT_REST = f"() => last_ && performance.now() - last_ > {QUIET}"
_SCROLL = f"""async () => {{
  const scroller = document.querySelector(".scroller");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const took = [];
  let before = await frame();
  for (let n = 0; n < {FRAMES}; n += 1) {{
    scroller.scrollTop -= {PIXELS};
    const now = await frame();
    took.push(now - before);
    before = now;
  }}
  return took.sort((a, b) => a - b);
}}"""


class LongConversation(Struct, frozen=True):
    """The figures of the long conversation.

    `at_rest` are the seconds from the address until the page is at rest, `heap` the MB above
    those of an empty page, `frames` the milliseconds of each frame while it is scrolled up.
    """

    events: int
    at_rest: float
    heap: float
    frames: tuple[float, ...]  # the shortest first

    def __str__(self) -> str:
        middle, late = (self.frames[int(part * len(self.frames))] for part in (0.5, 0.95))
        return (
            f"at rest after {self.at_rest:.2f} s, heap +{self.heap:.1f} MB; frames while scrolling: "
            f"median {middle:.1f} ms, p95 {late:.1f} ms, longest {self.frames[-1]:.0f} ms"
        )


def measure_long(page: Any, path: str, events: int) -> LongConversation:
    """Measure the long conversation, which the server of `page` has. `page` is logged in."""
    empty = _heap(page)
    page.goto(_address(page, f"{path}?c={LONG_ID}"))
    page.locator("article", has_text=LAST_WORDS).wait_for()
    page.wait_for_function(_AT_REST)
    at_rest = page.evaluate("last_") / 1000
    heap = _heap(page) - empty
    return LongConversation(events, at_rest, heap, tuple(page.evaluate(_SCROLL)))


def measure_list(page: Any, path: str) -> float:
    """Return the seconds from the address until the first rows are drawn."""
    page.goto(_address(page, path))
    page.wait_for_function("() => first_")
    return page.evaluate("first_") / 1000


def write_list(home: Path, conversations: int, workspace: Path) -> None:
    make_journals(_sessions(home), conversations, LISTED_STEPS, workspace)


def write_long(home: Path, min_events: int, workspace: Path) -> int:
    """Write a conversation of at least `min_events` events. Return their number."""
    lines, head = list[bytes](), codec.Head()
    for seq, event in enumerate(_day(str(workspace), min_events), start=1):
        line, head = codec.encode(Entry(seq, event, at=1.8e9 + seq), head)
        lines.append(line + b"\n")
    file = _sessions(home).path(LONG_ID) / "events.jsonl"
    file.parent.mkdir(parents=True, mode=0o700)
    file.write_bytes(b"".join(lines))
    return len(lines)


def _sessions(home: Path) -> JournalDirectory:
    return JournalDirectory(
        paths({**os.environ, "REFOLD_HOME": str(home)}).data / "sessions"
    )


def _day(work: str, min_events: int) -> Iterator[Event]:
    chance, paragraphs = random.Random(7), prose()
    yield SessionStarted(work, "0.1.0", id=LONG_ID)
    yield SystemPromptSet("You are a coding agent.", (), "openai-chat/mock-model", 128_000)
    seq = 2
    while seq < min_events:
        for event in _turn(
            chance, paragraphs, seq, is_last=seq + 6 * STEPS + 6 >= min_events
        ):
            yield event
            seq += 1


def _turn(
    chance: random.Random, paragraphs: Any, seq: int, *, is_last: bool
) -> Iterator[Event]:
    yield Said(chance.choice(paragraphs)[:300])
    yield TurnStarted(seq + 1)
    yield Delivered((seq + 1,))
    for step in range(STEPS):
        call, end = _step(chance, paragraphs, f"c{seq}-{step}")
        yield ModelAsked()
        yield _response("calls", Text(chance.choice(paragraphs)[:300]), call)
        yield Judged(call.id, "allow", "bypass")
        yield Started(call.id)
        yield end
    yield ModelAsked()
    yield _response("end", Text(LAST_WORDS if is_last else chance.choice(paragraphs)))
    yield TurnEnded("answered")


def _step(chance: random.Random, paragraphs: Any, id_: str) -> tuple[ToolCall, Ended]:
    """Return a call and its end: it reads or edits a file, or runs a command."""
    text, path = chance.choice(paragraphs), f"src/part_{chance.randrange(40)}.py"
    match chance.randrange(3):
        case 0:
            return _call(id_, "read_file", path=path), Ended(id_, "done", text)
        case 1:
            lines = text.split("\n")
            diff = f"@@ -1,{len(lines)} +1,{len(lines)} @@\n" + "\n".join(
                f"-{line}\n+{line}!" for line in lines
            )
            call = _call(id_, "edit_file", path=path, old=text, new=f"{text}!")
            return call, Ended(id_, "done", "edited", shown=(Diff(path, "changed", diff),))
        case _:
            call = _call(id_, "bash", command=f"pytest -q tests/{path}")
            return call, Ended(id_, "done", text + "\na line of output" * 20)


def _call(id_: str, tool: str, **arguments: str) -> ToolCall:
    return ToolCall(id_, tool, Raw(json.encode(arguments)))


def _response(stop: Any, *parts: Any) -> ModelAnswered:
    usage = Usage(fresh=900, output=80)
    return ModelAnswered(Message("assistant", parts), usage, stop, "mock-model", cost=0.001)


def _address(page: Any, path: str) -> str:
    scheme, _, host, *_ = page.url.split("/")
    return f"{scheme}//{host}{path}"


def _heap(page: Any) -> float:
    """Return the size of the reachable JavaScript objects in MB."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    size = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return size / 1e6
