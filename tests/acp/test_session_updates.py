"""What an editor receives for each document: text once, differences as old and new text."""

import difflib
from typing import Any

import acp
import pytest
from acp import schema
from hypothesis import given
from hypothesis import strategies as st

from refold.acp.call_display import CallDisplay, edits
from refold.acp.prompt_content import message_of, to_code_block
from refold.acp.session_updates import SessionUpdates
from refold.errors import BadInput
from refold.values.usage import Usage
from refold.views.stream_json.documents import AssistantMessage, Notice, ToolCall
from refold.views.stream_json.encode import Document
from refold.views.stream_json.live_documents import TextDelta, ThinkingDelta, ToolProgress


def text(offset: int, text: str, message: int = 5) -> TextDelta:
    return TextDelta(after=4, message=message, offset=offset, text=text)


def answer(text: str, thinking: str = "") -> AssistantMessage:
    return AssistantMessage(
        seq=9, text=text, thinking=thinking, model="m", stop="end", partial=False,
        usage=Usage(), cost=None,
    )  # fmt: skip


def list_updates(*documents: Document) -> list[tuple[str, str]]:
    updates = SessionUpdates(lambda *_: CallDisplay("", "other", ()), "/w")
    result: list[Any] = [
        update for document in documents for update in updates.updates_of(document)
    ]
    return [(item.session_update, item.content.text) for item in result]


def test_streamed_text_is_not_sent_again_when_complete() -> None:
    assert list_updates(text(0, "Hel"), text(3, "lo"), answer("Hello")) == [
        ("agent_message_chunk", "Hel"), ("agent_message_chunk", "lo"),
    ]  # fmt: skip


def test_text_that_a_longer_piece_repeats_is_sent_once() -> None:
    assert list_updates(text(0, "Hel"), text(0, "Hello"), answer("Hello.")) == [
        ("agent_message_chunk", "Hel"), ("agent_message_chunk", "lo"),
        ("agent_message_chunk", "."),
    ]  # fmt: skip


def test_a_response_that_was_not_streamed_is_sent_after_its_thinking() -> None:
    assert list_updates(answer("Yes.", "Hm.")) == [
        ("agent_thought_chunk", "Hm."), ("agent_message_chunk", "Yes."),
    ]  # fmt: skip


def test_a_notice_during_a_session_is_sent_as_a_thought() -> None:
    notice = Notice(seq=9, text="the MCP server s cannot be used: it is gone")

    assert list_updates(notice) == [
        ("agent_thought_chunk", "refold: the MCP server s cannot be used: it is gone\n\n")
    ]


def test_a_piece_received_after_the_complete_response_is_not_sent() -> None:
    assert list_updates(answer("Hello"), text(0, "Hel")) == [
        ("agent_message_chunk", "Hello")
    ]


def test_offsets_of_thinking_and_text_are_counted_separately() -> None:
    thought = ThinkingDelta(after=4, message=5, offset=0, text="Hm.")
    assert list_updates(thought, text(0, "Yes"), answer("Yes.", "Hm.")) == [
        ("agent_thought_chunk", "Hm."), ("agent_message_chunk", "Yes"),
        ("agent_message_chunk", "."),
    ]  # fmt: skip


def test_repeated_command_output_is_sent_once_to_a_terminal_of_the_editor() -> None:
    updates = SessionUpdates(
        lambda *_: CallDisplay("", "execute", ()), "/w", terminals=True
    )
    list(updates.updates_of(ToolCall(seq=3, call_id="c", tool="bash", arguments={})))
    pieces = ((0, "a😀"), (0, "a😀b"), (3, "c"))

    drawn = [
        update.field_meta["terminal_output"]["data"]
        for offset, words in pieces
        for update in updates.updates_of(
            ToolProgress(after=4, message=2, offset=offset, call_id="c", text=words)
        )
        if update.field_meta
    ]

    assert drawn == ["a😀", "b", "c"]


LINES = st.lists(st.sampled_from(["a", "b", "-c", "+d", " e", ""]), max_size=8)


@given(LINES, LINES, st.booleans(), st.booleans())
def test_a_hunk_is_sent_as_the_old_and_new_text_of_its_lines(
    before: list[str], after: list[str], ends: bool, ended: bool
) -> None:
    old = "\n".join(before) + ("\n" if ends and before else "")
    new = "\n".join(after) + ("\n" if ended and after else "")
    contents = edits("a.py", "changed", make_diff(old, new), "/w")

    if old == new:
        assert contents == []
    else:
        assert [(e.path, e.old_text, e.new_text) for e in contents] == [
            ("/w/a.py", old, new)
        ]


def make_diff(old: str, new: str) -> str:
    """With all of both texts as context, and without a head, as tools write it."""
    rows = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), n=100
    )
    marked = [
        row[:-1] if row.endswith("\n") else f"{row}\n\\ No newline at end of file"
        for row in rows
    ]
    return "\n".join(marked[2:])


def test_a_created_file_has_no_old_text() -> None:
    (content,) = edits("a.py", "created", "@@ -0,0 +1,2 @@\n+x\n+y", "/w")
    assert (content.old_text, content.new_text) == (None, "x\ny\n")


@given(st.text(alphabet="`\na", max_size=30))
def test_no_embedded_text_closes_the_code_block_around_it(words: str) -> None:
    first, *middle, last = to_code_block(words).split("\n")
    assert first == last
    assert set(first) == {"`"}
    assert all(first not in item for item in middle)


def test_a_binary_resource_that_is_not_an_image_is_rejected() -> None:
    blob = schema.BlobResourceContents(uri="file:///a.bin", blob="AA==", mime_type="x/y")
    with pytest.raises(BadInput, match="is x/y: refold takes text and images"):
        message_of([acp.resource_block(blob)])


def test_typed_text_of_a_prompt_is_separated_from_embedded_files() -> None:
    file = acp.embedded_text_resource("zed:///thread", "once")
    message = message_of([acp.text_block("Look: "), acp.resource_block(file)])
    assert (message.typed, message.attached) == (
        "Look: zed:///thread",
        "zed:///thread:\n```\nonce\n```",
    )


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("file:///w/a.py#L10-20", "@/w/a.py:10-20"),
        ("file:///w/a.py#L10-L20", "@/w/a.py:10-20"),
        ("file:///w/a.py#L10:20", "@/w/a.py:10-20"),
        ("file:///w/a.py#L10C3-L20C1", "@/w/a.py:10-20"),
        ("file:///w/a.py#L7", "@/w/a.py:7"),
        ("file:///w/a%20b.py#L7-7", '@"/w/a b.py":7'),
        ("file:///w/a.md#heading", "@/w/a.md"),
        ("https://host/a.py#L10-20", "https://host/a.py#L10-20"),
    ],
)
def test_line_numbers_in_the_uri_of_a_resource_reach_the_model(
    uri: str, words: str
) -> None:
    link = acp.resource_link_block("a.py", uri)
    embedded = acp.resource_block(acp.embedded_text_resource(uri, "x = 1"))

    assert message_of([link]).text == words
    assert message_of([embedded]).attached == f"{words}:\n```\nx = 1\n```"
