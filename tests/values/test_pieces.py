"""Parts of a streamed text: a reader that gets some of them twice has the text once."""

from hypothesis import given
from hypothesis import strategies as st

from refold.values.live import (
    ChildMoved,
    Piece,
    Progress,
    TextCame,
    ThinkingCame,
    stream_key,
)


@given(
    st.text("aé😀\n", max_size=20),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))),
)
def test_pieces_received_twice_give_the_text_once(
    text: str, again: list[tuple[int, int]]
) -> None:
    """`again` has the start and the end of a piece that is sent again after a reconnect."""
    result = ""
    for start, end in [*again, (0, len(text))]:
        piece = Piece(5, min(start, len(result)), text[min(start, len(result)) : end])
        result += piece.after(len(result))

    assert result == text


def test_piece_ends_where_the_next_one_begins() -> None:
    first = Piece(5, 0, "a😀")

    assert first.end == 2
    assert Piece(5, 0, "a😀b").after(first.end) == "b"
    assert first.after(7) == ""


def test_each_call_and_the_two_texts_of_a_response_have_separate_stream_keys() -> None:
    news = (TextCame("a"), ThinkingCame("a"), Progress("1", "a"), Progress("2", "a"))

    assert len({stream_key(live) for live in news}) == 4
    assert stream_key(Progress("1", "b")) == stream_key(news[2])
    assert stream_key(ChildMoved("child-1", "", "", 0, 0, None, "")) is not None
