"""Live news is redacted like the journal, in whatever pieces it arrives."""

from collections.abc import Callable, Iterable, Sequence

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from refold.journal.events.kinds import (
    Ended,
    Entry,
    Event,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Stopped,
    TurnEnded,
)
from refold.journal.store.port import MemoryStore
from refold.session.hub import Subscription
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.values.live import (
    CallComing,
    Live,
    Progress,
    SubagentDelta,
    TextCame,
    ThinkingCame,
    Waiting,
)
from refold.values.messages import Message, Text

KNOWN = ("hunter2-hunter2", "hunter2-hunter2-more", "hunter2-zebra", "schlüßel-😀\nsk-a")
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nowIB/+=\r\n-----END RSA PRIVATE KEY-----"
# Put together here, so that scanners do not take this file for a leak.
SHAPES = (
    "sk-" + "ant-api03-" + "x1" * 20, "sk-" + "proj-" + "Ab1" * 10, "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 30, "glpat-" + "a1" * 10, "xoxb-" + "12-ab" * 6,
    "AKIA" + "A1" * 8, "AIza" + "x" * 35, "hf_" + "a" * 34, "npm_" + "a1" * 18,
    "pypi-" + "AgEI" * 15, "eyJ" + "a" * 12 + ".eyJ" + "b" * 12 + "." + "c" * 12,
    PEM, PEM.replace("\r\n", "\\n"), "sk-" + "y" * 1_000, "ASIA" + "A1" * 8,
    "sk_live_" + "a1" * 12, "gldt-" + "a1" * 10, "shpat_" + "a1" * 16, "xai-" + "a1" * 40,
    "AGE-SECRET-KEY-1" + "Q1" * 29,
    PEM.replace("\r", "").replace("\n", "\n    "), PEM.replace("\n", "\nk-1.pem:12:"),
    PEM.replace("\r", "").replace("\n", "\nk-1.pem-12-"), PEM.replace("\n", "\n-"),
    PEM.replace("\n", "\n > ").replace("MIIE", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123ABCD\n\nMIIE"),
    PEM.replace("RSA ", "PGP ").replace("KEY", "KEY BLOCK").replace("MIIE", "Version: GnuPG v2 (x)\n\nMIIE\n=ab1c"),
)  # fmt: skip
SECRETS = (*KNOWN, *SHAPES)


def key() -> bytes:
    return b"k" * 32


WORDS = (
    "task-force", "risk", "sk-", "--", "-----", "-----BEGIN CERTIFICATE-----", "a.eyJ.x",
    "é", "😀", "\ud83d", "\n", " ", ", ", ".", "\x1b[1m", "\\n", "\\u00e9", "_", "ghost",
)  # fmt: skip


@some.composite
def texts(draw: some.DrawFn) -> str:
    """Words, secrets, and secrets that break off."""
    text = ""
    for word in draw(some.lists(some.sampled_from((*SECRETS, *WORDS)), max_size=6)):
        text += word[: draw(some.integers(1, len(word)) | some.just(len(word)))]
        text += draw(some.sampled_from((" ", " ", "", "\n", '"')))
    return text


@some.composite
def in_pieces(draw: some.DrawFn, text: some.SearchStrategy[str]) -> list[str]:
    whole = draw(text)
    if draw(some.booleans()):
        return list(whole)
    cuts = sorted(draw(some.sets(some.integers(0, len(whole)), max_size=8)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def read_masked(
    pieces: Iterable[Live], *events: Event, secrets: Sequence[str] = KNOWN
) -> list[Live]:
    """Return what a watcher receives of them, and until these events are written."""

    async def main() -> list[Live]:
        record = Recorder(MemoryStore(), masks=Redactor(secrets, key))
        watch = record.hub.watch()
        for piece in pieces:
            record.publish(piece)
        await record(*events)
        watch.close()
        return await read_news(watch)

    return anyio.run(main)


async def read_news(watch: Subscription) -> list[Live]:
    items = [frame.item async for frame in watch.frames()]
    return [item for item in items if not isinstance(item, Entry)]


def words(news: Iterable[Live]) -> list[str]:
    return [n.text for n in news if isinstance(n, TextCame | ThinkingCame | Progress)]


def progress(text: str) -> Live:
    return Progress("call-0", text)


def mask(text: str) -> str:
    return Redactor(KNOWN, key).mask_event(text)


@pytest.mark.parametrize("live", [TextCame, ThinkingCame, progress])
@given(pieces=in_pieces(texts()))
@example(pieces=["hunter2-hunter2", "-zebra"])
@example(pieces=[PEM, "BEGIN RSA"])
@example(pieces=["hsk-ant", SHAPES[0][6:]])
@example(pieces=[SHAPES[0] + "-----BEGIN ", "X"])
@example(pieces=[*SHAPES[7], *SHAPES[11]])
@example(pieces=["AKIA" + "A1" * 8, "x"])
@example(pieces=["eyJ" + "a" * 12 + "." + "eyJ" + SHAPES[11]])
@example(pieces=[*"sk-ansk-", *SHAPES[11]])
@example(pieces=[*SHAPES[1], *".sk-ansk-", *SHAPES[11]])
def test_streamed_pieces_join_to_the_masked_complete_text(
    live: Callable[[str], Live], pieces: list[str]
) -> None:
    whole, text = mask("".join(pieces)), ""

    for piece in words(read_masked(map(live, pieces), TurnEnded("answered"))):
        text += piece
        assert whole.startswith(text)

    assert text == whole


@given(some.sampled_from(SECRETS), some.data())
def test_no_part_of_a_split_secret_is_published(secret: str, data: some.DataObject) -> None:
    cut = data.draw(some.integers(1, len(secret) - 1))

    published = words(read_masked(map(TextCame, ["My key: ", secret[:cut]])))

    assert "".join(published) in (
        "My key: ",
        mask(f"My key: {secret}"),
    )  # it may be one by then


@given(in_pieces(texts()), some.integers(0, 9))
def test_a_late_watcher_gets_the_same_masked_text(pieces: list[str], join: int) -> None:
    async def main() -> tuple[list[Live], list[Live]]:
        record = Recorder(MemoryStore(), masks=Redactor(KNOWN))
        first = record.hub.watch()
        for piece in pieces[:join]:
            record.publish(TextCame(piece))
        late = record.hub.watch()
        for piece in pieces[join:]:
            record.publish(TextCame(piece))
        await record(TurnEnded("answered"))
        record.hub.close()
        return await read_news(first), await read_news(late)

    first, late = anyio.run(main)

    assert "".join(words(late)) == "".join(words(first))


ANSWER = ModelAnswered(Message("assistant", (Text("sk-"),)))


@pytest.mark.parametrize(
    ("live", "event"),
    [
        (TextCame, ANSWER), (ThinkingCame, ANSWER), (TextCame, ModelFailed("gone", "X")),
        (TextCame, Stopped("here")), (TextCame, ModelAsked()), (TextCame, TurnEnded("cancelled")),
        (progress, Ended("call-0", "done", "sk-")), (progress, TurnEnded("cancelled")),
    ],
)  # fmt: skip
def test_held_text_is_published_once_before_the_event_that_ends_it(
    live: Callable[[str], Live], event: Event
) -> None:
    async def main() -> list[Entry | Live]:
        record = Recorder(MemoryStore())
        watch = record.hub.watch()
        record.publish(live("so sk-"))
        await record(event)
        await record(TurnEnded("answered"))
        await record.close()
        record.hub.close()
        return [frame.item async for frame in watch.frames()]

    first, second, third, *_ = anyio.run(main)

    assert (first, second) == (live("so "), live("sk-"))
    assert isinstance(third, Entry)
    assert third.event == event


def test_held_text_is_published_when_the_session_closes() -> None:
    async def main() -> list[Live]:
        record = Recorder(MemoryStore())
        await record.open()
        watch = record.hub.watch()
        record.publish(TextCame("so sk-"))
        await record.close()
        record.hub.close()
        return await read_news(watch)

    assert anyio.run(main) == [TextCame("so "), TextCame("sk-")]


def test_text_is_held_separately_per_source_and_model_output_stays_in_order() -> None:
    news = [
        TextCame("a sk-"),
        progress("b gh"),
        Waiting(0, "no checkpoint"),
        ThinkingCame("c hf_"),
        CallComing("bash"),
        progress("ost"),
    ]

    assert read_masked(news) == [
        TextCame("a "),
        progress("b "),
        Waiting(0, "no checkpoint"),
        TextCame("sk-"),
        ThinkingCame("c "),
        ThinkingCame("hf_"),
        CallComing("bash"),
        progress("ghost"),
    ]


def test_a_masked_delta_of_a_subagent_is_not_held_again() -> None:
    delta = SubagentDelta("child-1", TextCame("sk-"))

    assert read_masked([delta]) == [delta]


def test_ordinary_words_are_published_without_delay() -> None:
    pieces = ["The risk", "-adjusted", " task", "-force; ", "A", "n eye for", " 12.5 - 3"]

    published = words(read_masked(map(TextCame, pieces)))

    assert published == [
        "The risk",
        "-adjusted",
        " task",
        "-force; ",
        "An eye for",
        " 12.5 - 3",
    ]


def test_a_very_long_secret_is_published_as_one_mask_before_its_end() -> None:
    pieces = ["sk-", *["x1" * 50] * 400, " and more"]

    published = words(read_masked(map(TextCame, pieces)))

    assert published == [mask("".join(pieces)).removesuffix(" and more"), " and more"]


def test_a_private_key_without_an_end_is_published_after_the_limit() -> None:
    pieces = ["-----BEGIN RSA PRIVATE KEY-----\n", *["MIIEowIB\n" * 100] * 30]

    published = words(read_masked(map(TextCame, pieces)))

    assert len("".join(published)) > 10_000
    assert "".join(pieces).startswith("".join(published))


def test_a_secret_learned_during_a_stream_is_masked_from_then_on() -> None:
    async def main() -> list[Live]:
        masks = Redactor()
        record = Recorder(MemoryStore(), masks=masks)
        watch = record.hub.watch()
        record.publish(TextCame("correct-h"))
        masks.learn("correct-horse")
        for piece in ("orse correct-", "horse"):
            record.publish(TextCame(piece))
        await record(TurnEnded("answered"))
        record.hub.close()
        return await read_news(watch)

    assert words(anyio.run(main)) == ["correct-", "horse ", "[secret]"]
