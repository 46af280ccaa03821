"""What a page does itself on a node with people: commands that are orders, and recorded changes."""

from typing import Any

import msgspec
import pytest

from refold.client.protocol import (
    CompactConversation,
    Continue,
    Order,
    SendMessage,
    SetAgent,
    SetEffort,
    SetMode,
    SetModel,
    SwitchTeams,
    parse_order,
)
from tests.server.pages.test_page_drafts_and_links import NODE, run

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
]


def orders_of(name: str, words: str = "") -> list[Order] | None:
    orders = run("people.mjs", "typed_orders.js", call="ordersOf", args=[name, words])
    return orders and [parse_order(msgspec.json.encode(order)) for order in orders]


@pytest.mark.parametrize(
    ("name", "words", "orders"),
    [
        ("mode", "plan", [SetMode(mode="plan")]),
        ("model", "a/m", [SetModel(model="a/m")]),
        ("agent", "code", [SetAgent(agent="code")]),
        ("effort", "high", [SetEffort(effort="high")]),
        ("plan", "", [SetMode(mode="plan")]),
        ("plan", "A wall", [SetMode(mode="plan"), SendMessage("A wall", when="next")]),
        ("compact", "", [CompactConversation()]),
        ("compact", "prune", [CompactConversation(kind="prune")]),
        ("compact", "the names", [CompactConversation(focus="the names")]),
        ("continue", "", [Continue()]),
        ("teams", "off", [SwitchTeams(on=False)]),
        ("teams", "ada hello", None),
        ("mode", "", None),
        ("cd", "/etc", None),
    ],
)
def test_a_slash_command_on_a_web_node_becomes_orders_of_the_protocol(
    name: str, words: str, orders: list[Order] | None
) -> None:
    assert orders_of(name, words) == orders


def called(seq: int, *diffs: tuple[str, str, str], rewound: bool = False) -> dict[str, Any]:
    changes = [{"path": path, "kind": kind, "text": text} for path, kind, text in diffs]
    return {"kind": "called", "seq": seq, "rewound": rewound, "diffs": changes}


def test_recorded_changes_of_a_file_are_joined_without_rewound_ones() -> None:
    blocks = [
        called(3, ("/work/a.py", "created", "@@ -0,0 +1,1 @@\n+one")),
        {"kind": "words", "seq": 4, "text": "Written."},
        called(5, ("/work/a.py", "changed", "@@ -1,1 +1,1 @@\n-one\n+two"), ("/etc/b", "deleted", "@@ -1,1 +0,0 @@\n-b")),
        called(7, ("/work/c", "created", "@@ -0,0 +1,1 @@\n+c"), rewound=True),
    ]  # fmt: skip

    def changes(since: int) -> Any:
        args = [blocks, since, "/work"]
        return run("people.mjs", "review_source.js", call="recordedChanges", args=args)

    first = {"path": "a.py", "kind": "created", "added": 2, "removed": 1, "event": 0,
             "text": "@@ -0,0 +1,1 @@\n+one\n@@ -1,1 +1,1 @@\n-one\n+two"}  # fmt: skip
    second = {"path": "/etc/b", "kind": "deleted", "added": 0, "removed": 1, "event": 0,
              "text": "@@ -1,1 +0,0 @@\n-b"}  # fmt: skip
    assert changes(1) == [first, second]
    assert [(file["path"], file["kind"]) for file in changes(4)] == [
        ("a.py", "changed"),
        ("/etc/b", "deleted"),
    ]
