"""A session as Markdown and as plain text: complete, and no text breaks out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec.structs import replace

from refold.journal.events.kinds import Ended, Entry, Event, Said, TurnEnded
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import Node
from refold.journal.store.tree_reader import tree
from refold.values.display import Diff, Output
from refold.values.messages import Thinking
from refold.views.export.text import markdown, plain_document
from tests.views.hostile_story import export_options, hostile_node
from tests.views.planted import answer, family, start_events

NASTY = [
    "```", "````", "~~~", "```\n```\n", "</details>", "<summary>", "\n\n</details>\n\n", "# head",
    "| a |", "\n---\n", "\n===\n", "<script>", "\u202e", "\x1b[2J", "\x00", "`", "``", "    ", "\t", "\n",
    "> ", "- ", "1. ", "\\", "&amp;", "[x](y)", "<!--", "\r", "\u2028",
]  # fmt: skip
TEXTS = some.lists(some.sampled_from(NASTY) | some.text(max_size=6), max_size=8).map(
    "".join
)


def node_of(*events: Event) -> Node:
    all_events = [*start_events("do it"), *events]
    entries = [
        Entry(seq, event, 100.0 + seq) for seq, event in enumerate(all_events, start=1)
    ]
    return Node("root", "s", entries, fold(entries))


def export_text(node: Node) -> str:
    return "".join(markdown(node, export_options()))


def tokens(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


@given(TEXTS)
def test_exported_calls_and_results_stay_in_their_fences(text: str) -> None:
    end = Ended("c", "failed", text, (Output("x", text, 1), Diff("f", "changed", text)))
    outcome = export_text(
        node_of(answer("Well.", ("c", "bash", '{"command": "x\\ny"}')), end)
    )

    result = tokens(outcome + "\n\nlast\n")

    marks = [t.content.strip() for t in result if t.type == "html_block"]
    fences = [t.info for t in result if t.type == "fence"]
    assert [m.partition("\n")[0] for m in marks] == ["<details>", "</details>"]
    assert fences == ["", "text", "diff"]
    assert [t.content for t in result if t.type == "inline"][-1] == "last"


@given(TEXTS)
def test_exported_message_never_absorbs_what_follows_it(text: str) -> None:
    events = (Said(text), answer(text), answer("Then."), TurnEnded("failed", "no model"))

    result = tokens(export_text(node_of(*events)))

    top = [t.content for t in result if t.type == "inline" and t.level == 1]
    assert "Then." in top
    assert any(item.startswith("*failed: no model*") for item in top)
    assert not [t for t in result if t.type.startswith("html")]


@pytest.mark.parametrize("fence", ["```py\nx = 1", "~~~\nx", "````\n```\nx"])
def test_a_fence_left_open_in_a_response_is_closed_at_its_end(fence: str) -> None:
    text = export_text(node_of(answer(fence), answer("After it.")))

    inline = [t.content for t in tokens(text) if t.type == "inline"]

    assert "After it." in inline


def test_a_response_is_exported_as_its_original_markdown() -> None:
    text = "# One\n\n**two** `three`\n\n| a | b |\n|---|---|\n| 1 | 2 |"

    assert text in export_text(node_of(answer(text)))


def test_each_subagent_is_exported_once_at_the_call_that_started_it(tmp_path: Path) -> None:
    node = tree(family(tmp_path / "s"), "s")

    result = export_text(node)
    text = "".join(plain_document(node, export_options()))

    for item in (result, text):
        assert [
            item.count(value) for value in ("Deep.", "All asked.", "It is in parse().")
        ] == [1, 1, 1]
    assert "### child-1: find it" in result
    assert result.index("Deep.") < result.index("It is in parse().")


def test_thinking_is_exported_only_if_requested() -> None:
    thought = answer("Yes.")
    message = replace(thought.message, parts=(Thinking("Hm, hm."), *thought.message.parts))
    node = node_of(replace(thought, message=message))
    silent = replace(export_options(), thoughts=False)

    both = [
        ("".join(form(node, options)).count("Hm, hm."))
        for form in (markdown, plain_document)
        for options in (export_options(), silent)
    ]

    assert both == [1, 0, 1, 0]


def test_subagents_are_exported_only_if_requested(tmp_path: Path) -> None:
    node = tree(family(tmp_path / "s"), "s")
    alone = replace(export_options(), children=False)

    assert "Deep." not in "".join(markdown(node, alone))
    assert "Deep." not in "".join(plain_document(node, alone))


@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "\u202egnp.exe", "\x9b2J", "\x00"])
def test_control_sequences_are_escaped_in_text_exports(text: str) -> None:
    exported = export_text(hostile_node(text)) + "".join(
        plain_document(hostile_node(text), export_options())
    )

    assert not set(exported) & set("\x00\x07\x1b\x9b\u202e")
