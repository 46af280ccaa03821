"""A tree of sessions as it is shown: agent, progress, usage."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from refold.errors import BadInput
from refold.journal.events.kinds import (
    ChildAsked,
    ChildBorn,
    ChildEnded,
    Event,
    Judged,
    ModelAsked,
    ModelFailed,
    Reserved,
    Said,
    Settled,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.session_tree import Node, find, walk
from refold.journal.store.session_files import CHILDREN_DIRECTORY
from refold.journal.store.tree_reader import JournalLines, tree, tree_of
from refold.values.messages import ToolCall
from refold.values.usage import Spent, Usage
from refold.views.activity import activity_of, spent_by
from refold.views.call_summary import label
from refold.views.cost import spending_document, spending_lines, tree_spending
from refold.views.session_tree import (
    TreeRow,
    agent_of,
    node_status,
    tree_document,
    tree_lines,
    tree_row,
)
from refold.views.styled import plain_text
from refold.views.timeline import slowest, timeline, timeline_lines
from refold.views.wrap import cells
from tests.views.planted import (
    HOSTILE,
    answer,
    child,
    family,
    hold,
    start_events,
    with_leaves,
    write_journal,
)

ID = "20260101-000000-abcd"


def words(call: ToolCall) -> str:
    return label(call, None)


def read(path: Path) -> Node:
    return tree(path, ID)


def row(path: Path, now: float = 1000.0) -> TreeRow:
    return tree_row(read(path), now, words)


def test_a_session_tree_shows_nested_subagents_below_their_parents(tmp_path: Path) -> None:
    root = row(family(tmp_path))

    assert plain_text(tree_lines(root, 100)) == (
        f"root  {ID}  main  answered  find the bug\n"
        "│  2 steps · 1 call · 207 in · 20 out · $0.62 · 15.0 s\n"
        "├─ child-1  explore  answered  find it\n"
        "│  │  1 step · 0 calls · 100 in · 10 out · $0.25 · 7.0 s\n"
        "│  └─ child-1  explore  failed  find it deeper\n"
        "│        1 step · 0 calls · 100 in · 10 out · $0.25 · 5.0 s\n"
        "└─ child-2  rlm  answered  ask them all\n"
        "      2 steps · 2 calls · leaves 3 done, 1 failed · 290 in · 29 out · $0.53 · 20.0 s\n"
        "in all  4 sessions · leaves 3 done, 1 failed · 697 in · 69 out · $1.66"
    )


def test_leaf_calls_are_listed_one_by_one_if_requested(tmp_path: Path) -> None:
    write_journal(tmp_path, with_leaves(2, failed=(2,)))

    lines = tree_lines(row(tmp_path), 60, every_leaf=True, symbols=False)

    assert plain_text(lines).split("\n")[2:] == [
        "   leaf-1  done  m/small  1.0 s  what is 1",
        "   leaf-2  failed  m/small  1.0 s  what is 2  the model was…",
    ]


def test_tree_lines_fit_the_screen_and_use_only_ascii_if_requested(tmp_path: Path) -> None:
    root = row(family(tmp_path))

    for room in (20, 40, 80):
        parts = plain_text(tree_lines(root, room, every_leaf=True)).split("\n")
        assert max(map(cells, parts)) <= room
    plain = plain_text(tree_lines(root, 200, symbols=False))
    assert set(filter(lambda c: not c.isascii(), plain)) == {"·"}


ASKING: tuple[Event, ...] = (
    ModelAsked(), answer("", ("call-0", "bash", '{"command": "rm x"}')),
)  # fmt: skip


@pytest.mark.parametrize(
    ("events", "held", "expected"),
    [
        ((), True, "missing"),
        ([*start_events()[:2]], True, "new"),
        ([*start_events(), ModelAsked()], True, "running"),
        ([*start_events(), ModelAsked()], False, "cut_off"),
        ([*start_events(), *ASKING, Judged("call-0", "ask")], True, "waiting"),
        ([*start_events(), *ASKING, Judged("call-0", "ask")], False, "cut_off"),
        ([*start_events(), child("child-1"), ChildAsked("child-1/call-2", "child-1", "explore",
          ToolCall("child-1/call-2", "bash", msgspec.Raw(b"{}")))], True, "waiting"),
        ([*start_events(), TurnEnded("step_limit")], False, "step_limit"),
        ([*start_events(), TurnEnded("answered"), Said("and"), TurnStarted(7)], True, "running"),
        ([*start_events(), TurnEnded("interrupted")], True, "interrupted"),
    ],
)  # fmt: skip
def test_a_status_shows_whether_a_process_is_running_the_session(
    tmp_path: Path, events: Sequence[Event], held: bool, expected: str
) -> None:
    if events:
        write_journal(tmp_path, events)
    if held:
        hold(tmp_path)

    assert node_status(read(tmp_path)) == expected


@pytest.mark.parametrize(
    ("events", "activity"),
    [
        ([ModelAsked()], "the model is called"),
        ([*ASKING, Judged("call-0", "allow"), Started("call-0")], 'bash rm x'),
        ([*ASKING, Judged("call-0", "ask")], "waits for a person: bash rm x"),
        ([Reserved("leaf", "m/small", leaf=1), Reserved("leaf", "m/small", leaf=2)],
         "2 model calls by code are running"),
    ],
)  # fmt: skip
def test_session_tree_shows_the_activity_of_running_agents(
    tmp_path: Path, events: Sequence[Event], activity: str
) -> None:
    write_journal(tmp_path, [*start_events(), *events])
    hold(tmp_path)

    shown_row = row(tmp_path, now=110.0)

    assert (shown_row.activity, shown_row.seconds) == (activity, 7.0)
    assert f"now: {activity}" in plain_text(tree_lines(shown_row, 100))


def test_the_usage_of_all_nodes_adds_up_to_the_usage_that_providers_reported(
    tmp_path: Path,
) -> None:
    root = read(family(tmp_path))
    own = [spent_by(action) for node in walk(root) for action in activity_of(node.entries).spans
           if not action.id.startswith("child")]  # fmt: skip

    total = sum(own, Spent())
    root_row = tree_row(root, 0.0, words)
    cost = tree_spending(root, agent_of)

    assert (total.usage, round(total.dollars, 3), total.answers) == (
        Usage(697, 0, 0, 69),
        1.655,
        10,
    )
    assert root_row.total == total
    assert cost.spent == total
    assert sum((n.spent for n in cost.nodes), Spent()) == total
    for parts in (cost.by_model, cost.by_purpose):
        assert sum(parts.values(), Spent()) == total
    assert set(cost.by_purpose) == {"main", "summary", "leaf"}


def test_cost_lists_each_node_and_the_subagent_usage_of_each_turn(tmp_path: Path) -> None:
    spending = tree_spending(read(family(tmp_path)), agent_of)

    assert plain_text(spending_lines(spending, turns=True)) == (
        "  1  find the bug\n"
        "     207 in · 20 out · $0.62\n"
        "     490 in · 49 out · $1.03 by its subagents\n"
        "\n"
        "m/big    600 in · 60 out · $1.50\n"
        "m/small  97 in · 9 out · $0.15\n"
        "\n"
        "main     600 in · 60 out · $1.50\n"
        "summary  7 in · 0 out · $0.12\n"
        "leaf     90 in · 9 out · $0.0300\n"
        "\n"
        "root main                     207 in · 20 out · $0.62\n"
        "root/child-1 explore          100 in · 10 out · $0.25\n"
        "root/child-1/child-1 explore  100 in · 10 out · $0.25\n"
        "root/child-2 rlm              290 in · 29 out · $0.53\n"
        "in all  697 in · 69 out · $1.66"
    )
    document = json.loads(msgspec.json.encode(spending_document(spending)))
    assert [n["address"] for n in document["nodes"]] == [
        "root", "root/child-1", "root/child-1/child-1", "root/child-2",
    ]  # fmt: skip
    assert document["turns"][0]["below"]["answers"] == 7
    assert sum(n["known_cost"] for n in document["nodes"]) == document["cost"]


def test_a_subagent_with_a_lost_journal_has_the_cost_recorded_by_its_parent(
    tmp_path: Path,
) -> None:
    used = Spent(Usage(50), 0.75, 1)
    write_journal(tmp_path, [
        *start_events(), child("child-1"), ChildEnded("child-1", "final", "done", "42", spent=used),
        child("child-2"), TurnEnded("answered"),
    ])  # fmt: skip

    root = row(tmp_path)

    assert [item.status for item in root.below] == ["final", "missing"]
    assert root.total == used
    assert tree_spending(root.node, agent_of).spent == used


def test_control_and_bidi_characters_in_a_tree_are_escaped(tmp_path: Path) -> None:
    write_journal(tmp_path, [
        *start_events(HOSTILE, HOSTILE), ModelAsked(), answer(HOSTILE, ("call-0", HOSTILE, "{}")),
        ChildBorn("child-1", "call-0", HOSTILE, HOSTILE),
        Reserved("leaf", HOSTILE, leaf=1, prompt=HOSTILE),
        Settled(9, None, HOSTILE, None, HOSTILE),
        ChildBorn("../../../etc", "call-0", "explore", "no name of a child"),
        ModelAsked(), ModelFailed(HOSTILE, HOSTILE),
        TurnEnded("failed", HOSTILE),
    ])  # fmt: skip
    write_journal(tmp_path / "children/child-1", [*start_events(HOSTILE), ModelAsked()])
    hold(tmp_path / "children/child-1")

    root = row(tmp_path)
    every = timeline(root.node, 1.0, words)
    text = "\n".join((
        plain_text(tree_lines(root, 400, every_leaf=True)), plain_text(timeline_lines(every, 400)),
        plain_text(spending_lines(tree_spending(root.node, agent_of), turns=True)),
    ))  # fmt: skip

    assert [item.node.address for item in root.below] == ["root/child-1"]
    for letter in "\x1b\x07\x9b\u202e\u200b":
        assert letter not in text
    assert all("\\x1b]0;owned" in r for r in text.split("\n") if "owned" in r)
    documents = [tree_document(root, every_leaf=True), *every]
    again = [json.loads(msgspec.json.encode(document)) for document in documents]
    assert again[0]["leaf_nodes"][0]["failed"] == HOSTILE


def test_control_sequences_in_the_address_of_a_waiting_subagent_are_escaped(
    tmp_path: Path,
) -> None:
    call = ToolCall("x", "bash", msgspec.Raw(b"{}"))
    write_journal(tmp_path, [*start_events(), ChildAsked("x", HOSTILE, "explore", call)])
    hold(tmp_path)

    text = plain_text(tree_lines(row(tmp_path), 400))

    assert "\x1b" not in text
    assert "now: \\x1b]0;owned" in text


def test_a_damaged_subagent_journal_is_reported_and_other_journals_are_read(
    tmp_path: Path,
) -> None:
    family(tmp_path)  # a root with two children, of which the first has a child
    journal = tmp_path / "children/child-1/events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    changed = lines[5].replace(b"deeper", b"Deeper")  # its hash is that of the old text
    journal.write_bytes(b"".join([*lines[:5], changed]))
    unfinished = tmp_path / "children/child-2/events.jsonl"
    unfinished.write_bytes(unfinished.read_bytes() + b'{"h":"half of a line')

    root = row(tmp_path)

    one, two = root.below
    assert (len(one.node.entries), one.status, two.status) == (5, "cut_off", "answered")
    assert "was changed after it was written" in one.node.damage
    assert [item.node.address for item in one.below] == ["root/child-1/child-1"]
    assert "damaged: " in plain_text(tree_lines(root, 400))
    assert not two.node.damage


def test_rows_of_a_timeline_are_in_chronological_order(tmp_path: Path) -> None:
    write_journal(
        tmp_path,
        [
            *start_events(),
            child("child-1"),
            ModelAsked(),
            answer("So."),
            TurnEnded("answered"),
        ],
    )
    write_journal(tmp_path / "children/child-1", with_leaves(2, failed=(2,)), began=105.0)

    result = timeline(read(tmp_path), 1000.0, words)

    assert [(t.address, t.kind, t.outcome, t.seconds) for t in result] == [
        ("root/child-1", "child", "cut_off", None),
        ("root/step-1", "model", "done", 1.0),
        ("root/child-1/step-1", "model", "done", 1.0),
        ("root/child-1/call-0", "tool", "done", 7.0),
        ("root/child-1/call-0.1", "tool", "done", 5.0),
        ("root/child-1/leaf-1", "leaf", "done", 1.0),
        ("root/child-1/leaf-2", "leaf", "failed", 1.0),
        ("root/child-1/step-2", "model", "done", 1.0),
    ]
    assert [t.address for t in slowest(result, 2)] == [
        "root/child-1/call-0", "root/child-1/call-0.1",
    ]  # fmt: skip
    assert [t.within for t in result if t.kind == "leaf"] == ["call-0", "call-0"]
    parts = plain_text(timeline_lines(result, 60)).split("\n")
    assert max(map(cells, parts)) <= 60
    assert parts[4].endswith("root/child-1/call-0.1  done  read_fil…")


def test_an_address_finds_its_node_of_the_session_tree(tmp_path: Path) -> None:
    root = read(family(tmp_path))

    assert find(root, ())[0] is root
    node, rest = find(root, ("child-1", "child-1", "leaf-3"))
    assert (node.address, rest) == ("root/child-1/child-1", "leaf-3")
    assert find(root, ("child-2", "call-0.1"))[1] == "call-0.1"
    with pytest.raises(BadInput, match="root has no child-9: it has child-1, child-2"):
        find(root, ("child-9",))


class CountedLines(JournalLines):
    """Counts how often the journals of a tree are read."""

    def __init__(self, path: Path, reads: Counter[str]) -> None:
        super().__init__(path)
        self._directory, self._reads = path, reads
        self.read = partial(self._read_counted, self.read)

    def _read_counted(
        self, read_lines: Callable[[int], Sequence[bytes]], after: int
    ) -> Sequence[bytes]:
        self._reads[self.name] += 1
        return read_lines(after)

    def below(self, child: str) -> "CountedLines":
        return CountedLines(self._directory / CHILDREN_DIRECTORY / child, self._reads)


def test_a_tree_of_1000_leaf_calls_and_50_subagents_reads_each_journal_once(
    tmp_path: Path,
) -> None:
    names = [f"child-{n}" for n in range(1, 51)]
    write_journal(tmp_path, [*start_events(), *map(child, names), TurnEnded("answered")])
    whole = write_journal(tmp_path / "children/child-1", with_leaves(20))
    for name in names[1:]:
        (tmp_path / "children" / name).mkdir()
        (tmp_path / "children" / name / "events.jsonl").write_bytes(whole)

    reads = Counter[str]()
    root_row = tree_row(tree_of(CountedLines(tmp_path, reads), ID), 1000.0, words)
    lines = tree_lines(root_row, 100, every_leaf=True)

    assert (root_row.all_leaves.count, len(lines)) == (1000, 2 + 50 * 2 + 1000 + 1)
    assert (len(reads), set(reads.values())) == (51, {1})
