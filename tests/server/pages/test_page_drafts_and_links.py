"""Drafts as a browser keeps them, and links whose text is another address."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import refold

NODE = shutil.which("node")
HERE = Path(__file__).parent
SHARED = Path(refold.__file__).parent / "server/pages/shared"
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
]


def run(program: str, module: str, **fields: object) -> Any:
    assert NODE
    text = json.dumps({"module": (SHARED / module).as_uri(), **fields})
    done = subprocess.run(
        [NODE, HERE / program], input=text.encode(), capture_output=True, check=True,
        timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)


def drafts(*steps: list[object], width: int = 1_000_000) -> Any:
    return run("drafts.mjs", "drafts.js", steps=steps, room=width)


def test_drafts_are_stored_per_conversation_and_removed_once_sent() -> None:
    assert drafts(
        ["set", "a", "one"], ["set", "b", "two"], ["get", "a"], ["get", "b"], ["get", "c"],
        ["set", "a", ""], ["get", "a"], ["get", "b"],
    ) == [None, None, "one", "two", "", None, "", "two"]  # fmt: skip


def test_drafts_of_a_new_conversation_move_to_its_id() -> None:
    assert drafts(["set", "", "x"], ["move", "", "a"], ["get", ""], ["get", "a"])[2:] == [
        "",
        "x",
    ]


@pytest.mark.parametrize("id_", ["__proto__", "constructor", "a b", "ä"])
def test_drafts_accept_special_conversation_ids(id_: str) -> None:
    assert drafts(["get", id_], ["set", "other", "x"], ["get", "other"])[2] == "x"


def test_drafts_are_bounded_in_number_and_length() -> None:
    many = [["set", f"c{n}", "x" * 200_000] for n in range(60)]

    last = drafts(*many, ["get", "c59"], ["get", "c0"], width=10**9)[-2:]

    assert (len(last[0]), last[1]) == (100_000, "")


def test_the_oldest_drafts_are_removed_if_storage_is_full() -> None:
    result = drafts(["set", "a", "x" * 50], ["set", "b", "y" * 50], ["get", "a"], ["get", "b"],
                  width=100)  # fmt: skip

    assert result[2:] == ["", "y" * 50]


@pytest.mark.parametrize(
    ("text", "target", "misleads"),
    [
        ("the docs", "https://example.org/a", False),
        ("https://github.com", "http://evil.example/", True),
        ("https://github.com", "https://github.com/", False),
        ("github.com", "https://github.com", False),
        ("www.github.com/a", "https://github.com/a", False),
        ("github.com", "https://github.com.evil.example", True),
        ("github.com", "https://evil.example/github.com", True),
        ("github.com", "https://github.com@evil.example", True),
        ("See https://github.com/a now", "https://evil.example/", True),
        ("See https://github.com/a.", "https://github.com/a", False),
        ("https://github.com/a", "https://github.com/b", True),
        ("git\u200bhub.com", "https://evil.example/", True),
        ("\uff47ithub.com", "https://evil.example/", True),
        ("me@example.org", "mailto:me@example.org", False),
        ("me@example.org", "mailto:you@example.org", True),
        ("me@example.org", "https://evil.example/", True),
        ("g\u0456thub.com", "https://g\u0456thub.com", True),
        ("here", "https://g\u0456thub.com", True),
        ("version 1.2.3", "https://example.org", False),
    ],
)
def test_links_whose_text_is_another_address_are_marked_misleading(
    text: str, target: str, misleads: bool
) -> None:
    assert run("links.mjs", "links.js", links=[[text, target]]) == [misleads]
