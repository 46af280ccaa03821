"""The reducer of the pages and the screen in Python show the same of every session."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import refold
from refold.client.event_documents import (
    FEED_START,
    documents_after,
    older_documents,
    parse_cursor,
)
from refold.client.types import Frame
from refold.journal.events import codec
from refold.journal.events.kinds import Entry, Rewound
from refold.journal.state.event_history import EventHistory
from refold.journal.state.fold import View, fold
from refold.session.pending_requests import PlanToJudge, requests
from refold.values.messages import ToolCall
from refold.values.usage import Budget
from refold.views.screen.blocks import (
    AnswerBlock,
    Block,
    CallBlock,
    DroppedBlock,
    MessageBlock,
    NoticeBlock,
    ThinkingBlock,
    TurnEndBlock,
)
from refold.views.screen.screen import Screen, apply_frame
from refold.views.stream_json.snapshot import Choices, snapshot, status
from tests.server.pages.session_corpus import Plain, Session, documents_with_ends

NODE = shutil.which("node")
HERE = Path(__file__).parent
REDUCER = Path(refold.__file__).parent / "server/pages/shared/reducer.js"
GOLDEN = sorted((HERE.parents[1] / "session/golden").glob("*.jsonl"))
SESSIONS = 60
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
]


def fold_in_page(sessions: list[Plain]) -> list[list[Plain]]:
    """Return what the pages would show, by the JavaScript."""
    assert NODE
    text = json.dumps({"reducer": REDUCER.as_uri(), "sessions": sessions})
    done = subprocess.run(
        [NODE, HERE / "fold.mjs"], input=text.encode(), capture_output=True, check=False,
        timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def plain(screen: Screen, seen_numbers: set[int]) -> Plain:
    """Return the screen, as far as documents describe it: only events in `seen_numbers` had
    one.
    """
    view = screen.view
    blocks = [
        b
        for b in screen.blocks
        if not (isinstance(b, NoticeBlock) and b.seq not in seen_numbers)
    ]
    waits = requests(view)
    plan = next((r.plan.seq for r in waits if isinstance(r, PlanToJudge)), 0)
    return {
        "blocks": [block(b) for b in blocks],
        "coming": [[part.kind, str(part.text)] for part in screen.coming],
        "status": [screen.status.doing, screen.status.reason, screen.status.tries],
        "moved": [item.node for item in screen.moved],
        "ports": [*screen.ports],
        "requests": sorted(r.id for r in waits if not isinstance(r, PlanToJudge)),
        "plan": plan,
        "turn": view.turn.seq,
        "todos": [
            {"subject": t.subject, "status": t.status} for t in view.conversation.todos
        ],
        "team": [
            [c.name, c.born.teammate, c.runs, c.idle, c.stopped]
            for c in view.children.children
        ],
        "switches": [bool(view.rights.teams), bool(view.rights.tracing)],
        "mail": [[m.sender, m.to, m.kind, m.text] for m in view.children.mail],
        "background": [
            [
                c.name,
                c.started.command,
                c.runs,
                *((c.end.outcome, c.end.text) if c.end else ("", "")),
            ]
            for c in view.background.commands
        ],
    }


def block(block: Block) -> list[Any]:
    match block:
        case MessageBlock():
            images = [[i.blob, i.name] for i in block.images]
            return [
                "heard", block.seq, block.words, block.user_text, block.sender, block.later,
                block.key, images,
            ]  # fmt: skip
        case AnswerBlock():
            return ["words", block.seq, block.text, block.partial]
        case DroppedBlock():
            return ["dropped", block.seq, block.text, block.reason]
        case ThinkingBlock():
            return ["thought", block.seq, block.text]
        case CallBlock():
            return describe_call(block)
        case NoticeBlock():
            return ["news", block.seq]
        case TurnEndBlock():
            return ["turn_over", block.seq, block.outcome, block.reason]


def describe_call(block: CallBlock) -> list[Any]:
    call: ToolCall = block.call
    diffs = [[d.path, d.kind, d.text] for d in block.shown if hasattr(d, "before")]  # type: ignore
    changes = [[d.path, d.kind, d.text] for d in block.changes]
    return [
        "called", block.seq, call.id, call.name, call.plain_arguments, block.stage, block.reason,
        block.answered, block.tail, block.text, block.whole, block.within, diffs, changes,
        [i.blob for i in block.images],
    ]  # fmt: skip


def compare_screens(frames: list[Frame]) -> tuple[Plain, list[Plain]]:
    """Return the session for the JavaScript, and the screen in Python at each of its cuts."""
    documents, cuts, expected = list[Plain](), [0], [plain(Screen(), set())]
    screen, seqs = Screen(), set[int]()
    for frame, records in documents_with_ends(frames):
        screen = apply_frame(screen, frame)
        documents += records
        if isinstance(frame.item, Entry) and isinstance(frame.item.event, Rewound):
            documents.append(page_snapshot(screen.view, screen.ports))
        if records:
            seqs.add(frame.seq)
            cuts.append(len(documents))
            expected.append(plain(screen, seqs))
    return {"documents": documents, "cuts": cuts}, expected


def page_snapshot(view: View, ports: Sequence[int] = ()) -> Plain:
    """Return the snapshot that a page orders after a rewind: todos and a plan may be others
    now.
    """
    choices = Choices(
        model="a/m", agent="main", mode="default", effort="", steps=9, budget=Budget(),
        teams=bool(view.rights.teams), tracing=bool(view.rights.tracing),
    )  # fmt: skip
    now = replace(status(view, choices, ()), ports=ports)
    return msgspec.json.decode(msgspec.json.encode(snapshot(view, now)))


def differences(sessions: list[list[Frame]]) -> list[str]:
    pairs = [compare_screens(frames) for frames in sessions]
    records = fold_in_page([session for session, _ in pairs])
    return [
        f"session {n}, {part} after {session['documents'][cut - 1]}: {screen_differences(mine, there)}"
        for n, ((session, expected), screens) in enumerate(zip(pairs, records, strict=True))
        for cut, mine, there in zip(session["cuts"], expected, screens, strict=True)
        for part in screen_differences(
            mine, {**there, "requests": sorted(there["requests"])}
        )
    ]


def screen_differences(mine: Plain, there: Plain) -> Plain:
    """Return, for each part of the screen, what only Python shows and what only JavaScript
    shows.
    """
    differences: Plain = {}
    for part, ours in mine.items():
        if ours != there[part]:
            pairs = (
                (ours, there[part]) if isinstance(ours, list) else ([ours], [there[part]])
            )
            differences[part] = [
                [x for x in a if x not in b] for a, b in (pairs, pairs[::-1])
            ] or pairs
    return differences


def test_python_and_page_reducers_agree_on_random_sessions() -> None:
    sessions = [Session(Random(seed), 60).frames for seed in range(SESSIONS)]
    kinds = {
        doc["type"]
        for s in sessions
        for _, document in documents_with_ends(s)
        for doc in document
    }

    assert len(kinds) > 30  # the corpus has something to compare
    assert differences(sessions)[:3] == []


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_python_and_page_reducers_agree_on_recorded_sessions(path: Path) -> None:
    entries = [entry for entry, _ in codec.decode(path.read_bytes().splitlines())]

    assert differences([[Frame(e.seq, 0, e) for e in entries]]) == []


def page_documents(entries: list[Entry], size: int) -> tuple[Plain, Plain]:
    """Return the session for the JavaScript: all at once, and as windows from the end."""
    view, every = (
        fold(entries),
        list(documents_after(FEED_START, EventHistory(entries), "c")),
    )
    newest, *older = parts(entries, size)
    rewound = any(isinstance(entry.event, Rewound) for entry in entries)
    state = page_snapshot(
        view
    )  # a page asks for it after a rewind; the status is always sent
    after = [state if rewound else state["status"]]
    whole = [*map(msgspec.json.decode, every), *after]
    documents = [*newest, *after]
    return {"documents": whole, "cuts": [len(whole)]}, {
        "documents": documents, "cuts": [len(documents)], "older": older,
    }  # fmt: skip


def parts(entries: list[Entry], size: int) -> list[list[Plain]]:
    records, before = list[list[Plain]](), None
    while not records or before:
        part = older_documents(EventHistory(entries), before, size, "c")
        records.append([msgspec.json.decode(data) for data in part])
        begin = [doc["id"] for doc in records[-1] if doc["type"] == "history"]
        before = parse_cursor(begin[0]) if begin else None
    return records


@pytest.mark.parametrize("size", [1, 7, 40])
def test_all_pages_of_a_long_session_fold_to_the_screen_of_its_whole_journal(
    size: int,
) -> None:
    pairs = [page_documents(entries_of(seed), size) for seed in range(SESSIONS)]
    records = fold_in_page([session for pair in pairs for session in pair])

    cut = 0
    for n, (session, (whole,), result) in enumerate(
        zip([pair[1] for pair in pairs], records[::2], records[1::2], strict=True)
    ):
        newest, full = result[0], result[-1]
        assert screen_differences(whole, full) == {}, f"session {n} with all its windows"
        blocks = newest.pop("blocks")
        assert screen_differences({k: whole[k] for k in newest}, newest) == {}, (
            f"session {n}"
        )
        assert blocks == whole["blocks"][len(whole["blocks"]) - len(blocks) :]
        cut += len(session["older"]) > 0
    assert size > 20 or cut > SESSIONS / 2


def entries_of(seed: int) -> list[Entry]:
    frames = Session(Random(seed), 120).frames
    return [frame.item for frame in frames if isinstance(frame.item, Entry)]


def test_text_sent_again_after_a_reconnect_is_not_shown_twice() -> None:
    start = [
        {"type": "turn_start", "seq": 1, "turn": 1}, {"type": "model_start", "seq": 2},
        {"type": "text_delta", "after": 2, "message": 2, "offset": 0, "text": "a😀b"},
    ]  # fmt: skip
    again = [
        {"type": "text_delta", "after": 2, "message": 2, "offset": 0, "text": "a😀bc"},
        {"type": "text_delta", "after": 2, "message": 2, "offset": 4, "text": "d"},
    ]
    ((shown_now,),) = fold_in_page([{"documents": [*start, *again], "cuts": [5]}])

    assert shown_now["coming"] == [["words", "a😀bcd"]]


def test_repeated_thinking_and_text_pieces_are_merged_separately() -> None:
    pieces = [("thinking_delta", 0, "é😀"), ("text_delta", 0, "ab"), ("thinking_delta", 0, "é😀?"),
              ("text_delta", 1, "bc")]  # fmt: skip
    documents = [
        {"type": "turn_start", "seq": 1, "turn": 1}, {"type": "model_start", "seq": 2},
        *({"type": kind, "after": 2, "message": 2, "offset": at, "text": text}
          for kind, at, text in pieces),
    ]  # fmt: skip
    ((shown_now,),) = fold_in_page([{"documents": documents, "cuts": [6]}])

    assert shown_now["coming"] == [
        ["thought", "é😀"], ["words", "ab"], ["thought", "?"], ["words", "c"],
    ]  # fmt: skip


def test_a_dropped_answer_is_marked_and_the_retry_is_a_new_block() -> None:
    documents = [
        {"type": "turn_start", "seq": 1, "turn": 1}, {"type": "model_start", "seq": 2},
        {"type": "text_delta", "after": 2, "message": 2, "offset": 0, "text": "I lo"},
        {"type": "error", "seq": 3, "kind": "Overloaded", "reason": "busy", "partial": "I lo",
         "dropped": True},
        {"type": "model_start", "seq": 4},
        {"type": "retry", "after": 4, "seconds": 3, "reason": "busy", "attempt": 2, "attempts": 10},
        {"type": "text_delta", "after": 4, "message": 4, "offset": 0, "text": "Yes"},
    ]  # fmt: skip
    ((shown_now,),) = fold_in_page([{"documents": documents, "cuts": [7]}])

    assert shown_now["blocks"] == [["dropped", 3, "I lo", "busy"]]
    assert shown_now["coming"] == [["words", "Yes"]]
