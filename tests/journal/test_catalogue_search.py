"""Which searches find what, and hostile searches."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from refold.errors import BadInput
from refold.journal.catalogue.search_text import search_expression
from refold.journal.events.kinds import Ended, ModelAnswered, Said
from refold.journal.events.setting_events import Renamed, Tagged
from refold.journal.journal_directory import JournalDirectory
from refold.values.messages import Message, Text, ToolCall
from tests.journal.shelves import conversation_events, put_journal

CALL = ToolCall("c", "bash", Raw(b'{"command":"make umbrella","n":[1,"deep"]}'))


@pytest.fixture
def home(tmp_path: Path) -> JournalDirectory:
    return JournalDirectory(tmp_path / "data" / "sessions")


def search(home: JournalDirectory, text: str) -> list[tuple[str, str]]:
    marks = str.maketrans({"\x02": "[", "\x03": "]"})
    hits = home.catalogue().search(text, 20)
    return [(hit.who, hit.snippet.translate(marks)) for hit in hits]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("foo_bar", "call [foo_bar] in path/to/x.py"),
        ("path/to/x.py", "call foo_bar in [path/to/x.py]"),
        ("x.py foo", "call [foo]_bar in path/to/[x.py]"),
        ('"bar in path"', "call foo_[bar in path]/to/x.py"),
        ("pat*", "call foo_bar in [path]/to/x.py"),
        ('"in pa"*', "call foo_bar [in path]/to/x.py"),
        ("CALL", "[call] foo_bar in path/to/x.py"),
        ("日本", "[日本]語の文章を書く"),
        ("語の文", "日本[語の文]章を書く"),
        ("文*", "日本語の[文]章を書く"),
        ("서울", "[서울]에서 만나요"),
        ("cafe", "Das [Café] schließt"),
        ("schließt", "Das Café [schließt]"),
        ("C++", "is it [C]++?"),
    ],
)
def test_search_finds_words_in_paths_identifiers_and_several_scripts(
    home: JournalDirectory, query: str, shown: str
) -> None:
    texts = (
        "call foo_bar in path/to/x.py", "日本語の文章を書く", "서울에서 만나요",
        "Das Café schließt", "is it C++?",
    )  # fmt: skip
    put_journal(home, "one", *conversation_events(*texts[:3]))
    put_journal(home, "two", *conversation_events(*texts[3:]))

    assert search(home, query) == [("person", shown)]


def test_messages_calls_results_names_and_tags_are_found_with_their_source(
    home: JournalDirectory,
) -> None:
    answer = Message("assistant", (Text("An umbrella it is."), CALL))
    put_journal(
        home, "one",
        *conversation_events("umbrella?"), ModelAnswered(answer), Ended("c", "done", "umbrella made"),
        Renamed("umbrella"), Tagged(("umbrella",)), Said("The umbrella is done.", "child-1"),
    )  # fmt: skip

    best, call = search(home, "umbrella"), search(home, "deep")

    assert {who for who, _ in best} == {"person", "name", "tags"}  # of one session, three
    assert call == [("model", "An umbrella it is.\nbash make umbrella [deep]")]
    assert search(home, "made") == [("tool", "umbrella [made]")]
    assert search(home, '"umbrella is done"') == [("child-1", "The [umbrella is done].")]


def test_search_finds_the_beginning_and_the_end_of_a_long_output(
    home: JournalDirectory,
) -> None:
    long = "first " + "word " * 5_000 + "last"
    put_journal(
        home,
        "one",
        *conversation_events("go"),
        Ended("c", "done", long.replace("word", "mid", 1)),
    )
    put_journal(
        home,
        "two",
        *conversation_events("go"),
        Ended("c", "done", "x " * 5_000 + "middle " + "y " * 5_000),
    )

    assert [len(search(home, word)) for word in ("first", "last", "middle")] == [1, 1, 0]


def test_search_applies_the_session_filter_and_the_limit(
    home: JournalDirectory,
) -> None:
    for n in range(9):
        put_journal(
            home, f"s{n}", *conversation_events("umbrella", directory=f"/work/{n % 3}")
        )

    catalogue = home.catalogue()
    of_one = catalogue.search("umbrella", 20, lambda c: c.about.directory == "/work/1")

    assert sorted(hit.card.id for hit in of_one) == ["s1", "s4", "s7"]
    assert len(catalogue.search("umbrella", 4)) == 4


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "there is nothing to search for in ''"),
        ('"" * -- ()', "there is nothing to search for in "),
        (
            "x" * 10_001,
            "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'… is too long to search for: 10001",
        ),
        (" ".join(f"w{n}" for n in range(41)), "41 words are too many to search for"),
    ],
)
def test_invalid_search_query_is_refused_with_the_reason(query: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        search_expression(query)

    assert str(caught.value).startswith(message)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example('NOT "')
@example("a AND OR NOT NEAR(b, 3)")
@example('{who} : x ^y -z + "q" * (')
@example("a\x00b\x01c\x02d")
@example("\ud83d half \udcff")
@example('"' * 999 + "a")
@example('"' + "word " * 1_900 + '"')
@example("a" * 10_000)
@example("%_'; DROP TABLE words; --")
@given(st.text(max_size=60))
def test_no_search_query_causes_an_internal_error(tmp_path: Path, query: str) -> None:
    home = JournalDirectory(tmp_path / "data" / "sessions")
    if not home.root.exists():
        put_journal(
            home,
            "one",
            *conversation_events("a b c word near NOT x y z q \x00\x01\x02 half"),
        )

    try:
        hits = home.catalogue().search(query, 5)
    except BadInput:
        return

    assert all(hit.card.id == "one" for hit in hits)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.text(min_size=1, max_size=80))
def test_any_message_text_can_be_indexed_and_found(tmp_path: Path, text: str) -> None:
    home = JournalDirectory(tmp_path / "data" / "sessions")
    clean = text.encode("utf-8", "replace").decode()
    put_journal(home, "one", *conversation_events(f"{clean} umbrella"))

    hits = home.catalogue().search("umbrella", 5)

    assert [hit.card.id for hit in hits] == ["one"]
    assert hits[0].snippet.endswith("\x02umbrella\x03")
