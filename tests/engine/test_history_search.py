"""Every message and call of a session is found, and nothing else is shown."""

from collections.abc import Sequence
from functools import partial

import anyio
import pytest
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.journal.events.kinds import (
    Compacted,
    Ended,
    Event,
    ModelAnswered,
    Rewound,
    Said,
    SessionStarted,
)
from refold.journal.store.port import MemoryStore
from refold.session.full_history import History
from refold.testing.providers import ScriptedProvider
from refold.tools.session_history import history_search
from refold.values.messages import Message, Text, ToolCall
from tests.engine.house import lines, open_session, raw, world

BEGUN = SessionStarted("/")


def search_history(
    events: Sequence[Event], secrets: Sequence[str] = (), **arguments: object
) -> str:
    """Return what the tool finds in a session with these events; the first has number 2."""

    async def main() -> str:
        store = MemoryStore(*lines([BEGUN, *events][: 1 if secrets else None]))
        session = await open_session(store, world(ScriptedProvider()), secrets)
        if secrets:
            await session.record(*events)
        history = History(session.record)
        return (await history_search.run(**arguments, history=history)).text

    return anyio.run(main)


def test_history_search_marks_results_from_outside_as_outside() -> None:
    async def main(**arguments: object) -> bool:
        events = [
            *call_events(1, "fetch", "{}", "a page"),
            *call_events(2, "read_file", "{}", "a file"),
        ]
        page = replace(events[1], outside=True)
        store = MemoryStore(*lines([BEGUN, events[0], page, *events[2:]]))
        session = await open_session(store, world(ScriptedProvider()))
        history = History(session.record)
        return (await history_search.run(**arguments, history=history)).outside

    calls = [anyio.run(partial(main, **data)) for data in (
        {"query": "a page"}, {"call": "call-1"}, {"query": "a file"}, {"call": "call-2"},
    )]  # fmt: skip

    assert calls == [True, True, False, False]


def call_events(n: int, name: str, arguments: str, result: str) -> list[Event]:
    call = ToolCall(f"call-{n}", name, raw(arguments))
    return [
        ModelAnswered(Message("assistant", (call,))),
        Ended(call.id, "done", result),
    ]


def test_history_search_finds_rewound_and_compacted_messages() -> None:
    events = [
        Said("The door code is 4711."),
        ModelAnswered(Message("assistant", (Text("Noted."),))),
        Rewound(2),
        Compacted("full", preserved="The person said nothing.", summary="All is done."),
    ]

    assert search_history(events, query="door code") == "[2] person: The door code is 4711."
    assert search_history(events, query="noted") == "[3] assistant: Noted."
    assert search_history(events, query="all done") == "[5] summary: All is done."


def test_history_search_ignores_its_own_earlier_calls() -> None:
    events = [
        *call_events(0, "look", "{}", "detail-7 is here"),
        *call_events(1, "history_search", '{"query": "detail-7"}', "[3] result: detail-7"),
        *call_events(2, "history_search", '{"query": "detail-9"}', "Nothing."),
    ]

    assert (
        search_history(events, query="detail-7")
        == "[3] result of look (call-0): detail-7 is here"
    )
    assert search_history(events, query="detail-9").startswith(
        "Nothing in this session holds"
    )
    assert "[3] result: detail-7" in search_history(events, call="call-1")


@pytest.mark.parametrize("query", ["STRASSE", "straße", "ΟΔΟΣ", "οδος", "İstanbul"])
def test_history_search_ignores_case_and_unicode_variants(query: str) -> None:
    message = Said("İİİİ" * 200 + " at Straße, οδος, İstanbul " + "ßßßß" * 200)

    text = search_history([message], query=query)

    assert text.startswith("[2] person: … ")
    assert "Straße" in text
    assert len(text) < 600


def test_history_search_result_is_short_however_many_hits_there_are() -> None:
    events = [Said(f"{n} needle " + "x" * 100_000) for n in range(60)]

    text = search_history(events, query="needle", limit=50)

    assert text.startswith("[61] person: 59 needle")
    assert text.endswith("\n10 more hits.")
    assert len(text) < 30_000


def test_long_event_is_read_page_by_page() -> None:
    long_text = "".join(f"{n:06} " for n in range(10_000))

    pages, offset = "", 0
    while True:
        page = search_history([Said(long_text)], event=2, offset=offset)
        text, _, more = page.partition("\n[… ")
        pages += text
        if not more:
            break
        offset = int(more.split("offset ")[1].split(" ")[0])

    assert pages == f"[2] person:\n{long_text}"


def test_history_search_keeps_secrets_masked() -> None:
    text = search_history(
        [Said("It is hunter2-hunter2.")], secrets=["hunter2-hunter2"], event=2
    )

    assert text.startswith("[2] person:\nIt is ")
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({}, "Give a query"),
        ({"query": " \n"}, "Give a query"),
        ({"query": "x" * 501}, "500 characters at most"),
        ({"event": 99}, "There is no event 99"),
        ({"event": 2, "offset": 99}, "event 2 has 18 characters: there are none at 99"),
        ({"event": -1}, "There is no event -1"),
        ({"call": "call-9\n"}, "There is no call 'call-9\\n'"),
    ],
)
def test_history_search_rejects_invalid_arguments_with_the_reason(
    arguments: dict[str, object], wrong: str
) -> None:
    with pytest.raises(ToolFailed, match=wrong.replace("\\", "\\\\")):
        search_history([Said("Hello.")], (), **arguments)


class CountedStore(MemoryStore):
    """Counts the lines that are read from it."""

    line_count = 0

    async def read(self, after: int = 0) -> Sequence[bytes]:
        result = await super().read(after)
        self.line_count += len(result)
        return result


def test_a_history_search_reads_each_event_once() -> None:
    events = [
        event
        for number in range(50)
        for event in call_events(number, "look", "{}", f"detail-{number}. " * 20)
    ]
    store = CountedStore(*lines([BEGUN, *events]))

    async def main() -> tuple[str, int]:
        session = await open_session(store, world(ScriptedProvider()))
        store.line_count = 0
        reply = await history_search.run(query="detail-7.", history=History(session.record))
        return reply.text, store.line_count

    text, line_count = anyio.run(main)

    assert text.startswith("[17] result of look (call-7): detail-7.")
    assert line_count == 1 + len(events)
