"""Lines and events from bytes, wherever the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.provider.sse import Events, Lines


def split_all(splitter: Lines | Events, *chunks: bytes) -> list[bytes]:
    return [data for c in chunks for data in splitter.feed(c)] + splitter.end()


STREAM = (
    b"\xef\xbb\xbf: keep-alive\n\nevent: x\ndata: one\n\ndata:two\ndata: three\ndata\n\n"
    b"id: 7\nretry: 9\n\ndata:  spaced\n\n: bye\n\ndata: never finished\n"
)
EVENTS = [b"one", b"two\nthree\n", b" spaced"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_sse_events_are_the_same_for_every_line_end_and_cut(end: bytes, size: int) -> None:
    stream = STREAM.replace(b"\n", end)
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]

    assert split_all(Events(), *chunks) == EVENTS


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"", b"data: x"])), st.data())
def test_sse_events_do_not_depend_on_where_bytes_are_cut(
    parts: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))

    for splitter in (Lines, Events):
        assert split_all(splitter(), whole) == split_all(
            splitter(), whole[:cut], whole[cut:]
        )


def test_last_line_needs_no_line_end() -> None:
    assert split_all(Lines(), b'{"a":1}\n{"b"', b":2}") == [b'{"a":1}', b'{"b":2}']


@pytest.mark.parametrize(
    ("sent", "events"),
    [
        (b'data: {"a":1}\n\ndata: {"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'data: {"a":1}\n\ndata: {"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b"data: [DONE]", [b"[DONE]"]),
        (b'data: {"a":1}\n\ndata: {"b":', [b'{"a":1}']),
        (b"data: \n", []),
    ],
)
def test_last_event_without_an_empty_line_counts_if_its_data_is_complete(
    sent: bytes, events: list[bytes]
) -> None:
    splitter = Events()

    assert [*splitter.feed(sent), *splitter.end()] == events
