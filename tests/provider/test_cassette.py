"""What is recorded is replayed, and nothing else."""

import itertools
import json
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from refold import Agent, Effect, Reply, tool
from refold.errors import (
    BadInput,
    Overloaded,
    ProviderError,
    Refused,
    TooLong,
    Unreachable,
)
from refold.provider.cassette import CassetteWriter, Recording, Replaying
from refold.provider.cassette_format import Mask, join_deltas, no_mask
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Provider,
    Request,
    RequestSent,
    ResponseBytes,
    Retrying,
    TextDelta,
    ThinkingDelta,
)
from refold.testing.providers import FaultyProvider, ScriptedProvider, cassette
from refold.testing.providers import Reply as Line
from refold.values.messages import Message
from refold.values.text import clean
from refold.values.usage import Usage
from tests.provider.test_history_validity import ANYTHING, conversations
from tests.provider.wires import TOOLS, message, request, stream_deltas, words

ASK = request(message("user", "Rain?"))
LONGER = request(
    message("user", "Rain?"), message("assistant", "Yes."), message("user", "Why?")
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


class Fixed:
    """Answers the n-th request with these deltas, and raises the last one if it is an
    error.
    """

    def __init__(self, *answers: list[Delta | ProviderError]) -> None:
        self._answers = iter(answers)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        for item in next(self._answers):
            await anyio.lowlevel.checkpoint()
            if isinstance(item, ProviderError):
                raise item
            yield item


def open_recording(inner: Provider, file: Path, mask: Mask = no_mask) -> Recording:
    return Recording(inner, CassetteWriter(file, mask))


def ask(provider: Provider, *requests: Request) -> list[list[Delta] | ProviderError]:
    """Return what comes of each; an error is its own answer."""

    async def main() -> list[list[Delta] | ProviderError]:
        answers: list[list[Delta] | ProviderError] = []
        for item in requests:
            try:
                answers.append(await stream_deltas(provider, item))
            except ProviderError as error:
                answers.append(error)
        return answers

    return anyio.run(main)


def read_deltas(provider: Provider, *requests: Request) -> list[Delta]:
    result = ask(provider, *requests)[-1]
    if isinstance(result, ProviderError):
        raise result
    return result


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


EVERYTHING: list[Delta | ProviderError] = [
    Retrying(1.5, "busy"),
    ThinkingDelta("Clo"),
    ThinkingDelta("uds."),
    ThinkingDelta("", "acme", Raw(b'{ "signature": "s\\n"}')),
    TextDelta("Let me "),
    TextDelta("look. ☂"),
    CallDelta(0, "", "theirs-1", "look"),
    CallDelta(0, '{"a":'),
    CallDelta(0, "1}"),
    CallDelta(1, "{}", "theirs-2", "book", "acme", Raw(b"[1,\n 2]")),
    TextDelta("Well."),
    Done(Usage(1, 2, 3, 4, 5), "calls", "acme-1", "acme/one", 0.25),
]


def test_replay_gives_back_every_part_of_a_recorded_answer(file: Path) -> None:
    read_deltas(open_recording(Fixed(EVERYTHING), file), ASK)

    assert read_deltas(Replaying(file), ASK) == [
        Retrying(1.5, "busy"),
        ThinkingDelta("Clouds.", "acme", Raw(b'{ "signature": "s\\n"}')),
        TextDelta("Let me look. ☂"),
        CallDelta(0, '{"a":1}', "theirs-1", "look"),
        CallDelta(1, "{}", "theirs-2", "book", "acme", Raw(b"[1,\n 2]")),
        TextDelta("Well."),
        Done(Usage(1, 2, 3, 4, 5), "calls", "acme-1", "acme/one", 0.25),
    ]


def test_recording_passes_the_answer_through_unchanged(file: Path) -> None:
    assert read_deltas(open_recording(Fixed(EVERYTHING), file), ASK) == EVERYTHING


@pytest.mark.parametrize(
    "error",
    [
        Overloaded("busy ☂", retry_after=2.5),
        Overloaded("busy"),
        Unreachable("gone"),
        Refused("no"),
        TooLong("too long"),
        ProviderError("odd"),
    ],
)
def test_recorded_error_is_replayed_after_the_text_before_it(
    error: ProviderError, file: Path
) -> None:
    told_first: list[Delta | ProviderError] = [TextDelta("Ye"), error]
    ask(open_recording(Fixed(told_first), file), ASK)

    async def main() -> tuple[list[Delta], BaseException | None]:
        deltas, raised = list[Delta](), None
        try:
            async for delta in Replaying(file).stream(ASK):
                deltas.append(delta)
        except ProviderError as again:
            raised = again
        return deltas, raised

    deltas, raised = anyio.run(main)
    assert deltas == [TextDelta("Ye")]
    assert (type(raised), str(raised)) == (type(error), str(error))
    assert getattr(raised, "retry_after", None) == getattr(error, "retry_after", None)


def test_cassette_is_readable_by_its_owner_only_and_never_overwritten(file: Path) -> None:
    read_deltas(open_recording(ScriptedProvider("Yes."), file), ASK)
    before = file.read_bytes()

    with pytest.raises(BadInput, match="exists already: name a new file"):
        open_recording(ScriptedProvider("No."), file)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == before


def test_cassette_that_cannot_be_created_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be made: .*No such file or directory"):
        open_recording(ScriptedProvider("Yes."), tmp_path / "nowhere" / "calls.jsonl")


def test_each_recorded_call_stores_only_what_is_new(file: Path) -> None:
    first = request(message("user", "Rain?"), system="Be brief.", tools=TOOLS, effort="low")
    conversation = [*first.messages, *LONGER.messages[1:]]
    longer = replace(first, messages=type(first.messages)(conversation), effort="max")

    read_deltas(open_recording(ScriptedProvider("Yes.", "So."), file), first, longer)

    _, _, _, data, _ = lines(file)
    assert data == {
        "asked": 2,
        "as": 1,
        "same": 1,
        "messages": [
            {"role": "assistant", "parts": [{"type": "text", "text": "Yes."}]},
            {"role": "user", "parts": [{"type": "text", "text": "Why?"}]},
        ],
        "request": {"effort": "max"},
    }


def test_cassette_grows_linearly_with_the_conversation(file: Path) -> None:
    conversation, sizes = list[Message](), list[int]()
    provider = open_recording(ScriptedProvider(*["Yes."] * 40), file)
    for n in range(40):
        conversation.append(message("user", f"{n:03}" * 50))
        read_deltas(provider, request(*conversation, system="Be brief. " * 50))
        sizes.append(file.stat().st_size)

    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) - min(steps) < 10


def test_interleaved_calls_of_two_sessions_are_recorded_separately(file: Path) -> None:
    one, other = (request(message("user", w), session=w) for w in ("one", "other"))
    longer = replace(one, messages=LONGER.messages)
    provider = open_recording(ScriptedProvider("a", "b", "c", "d"), file)

    read_deltas(provider, one, other, replace(one), replace(other))

    shared = [(x["as"], x["same"]) for x in lines(file) if "asked" in x]
    assert shared == [(0, 0), (0, 0), (1, 1), (2, 1)]
    replaying = Replaying(file)
    assert [words(read_deltas(replaying, r)) for r in (one, other, one, other)] == list(
        "abcd"
    )
    with pytest.raises(Refused):
        read_deltas(Replaying(file), longer)


def test_traced_bytes_pass_through_and_are_not_recorded(file: Path) -> None:
    answers: list[Delta | ProviderError] = [
        RequestSent("POST x", b"secret"),
        ResponseBytes(b"secret"),
        Done(),
    ]
    deltas = read_deltas(open_recording(Fixed(answers), file), replace(ASK, trace=True))

    assert deltas == answers
    assert b"secret" not in file.read_bytes()
    assert read_deltas(Replaying(file), ASK) == [Done()]


def test_image_with_changed_content_does_not_match_the_recording(file: Path) -> None:
    before, after = (replace(ASK, pictures={"abc": data}) for data in (b"1", b"2"))
    read_deltas(open_recording(ScriptedProvider("Yes.", "So."), file), before, after)

    assert words(read_deltas(Replaying(file), before, after)) == "So."
    with pytest.raises(Refused, match=r"call 2: pictures\.abc"):
        read_deltas(Replaying(file), before, before)


def test_images_are_recorded_by_their_digest(file: Path) -> None:
    with_picture = replace(ASK, pictures={"abc": b"the bytes"})
    read_deltas(open_recording(ScriptedProvider("Yes."), file), with_picture)

    assert b"the bytes" not in file.read_bytes()
    assert words(read_deltas(Replaying(file), with_picture)) == "Yes."
    with pytest.raises(Refused, match=r"call 1: pictures\.abc: recorded 'sha256:"):
        read_deltas(Replaying(file), replace(ASK, pictures={"abc": b"other bytes"}))


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (request(message("user", "Snow?")), "messages[0].parts[0].text: recorded 'Rain?', asked 'Snow?'"),
        (request(message("user", "Rain?", "Now?")), "messages[0].parts[1]: recorded nothing, asked "
         '{"type": "text", "text": "Now?"}'),
        (LONGER, 'messages[1]: recorded nothing, asked {"role": "assistant", "parts": [{"type": "text", "text": "Y…'),
        (replace(ASK, model="m-2"), "model: recorded 'm-1', asked 'm-2'"),
        (replace(ASK, system="Be brief."), "system: recorded '', asked 'Be brief.'"),
        (replace(ASK, tools=TOOLS[:1]), "tools[0]: recorded nothing, asked "
         '{"name": "look", "description": "Look out.", "parameters": …'),
        (replace(ASK, tool_choice="none"), "tool_choice: recorded 'auto', asked 'none'"),
        (replace(ASK, effort="low"), "effort: recorded '', asked 'low'"),
        (replace(ASK, schema=Raw(b"{}")), "schema: recorded 'null', asked '{}'"),
        (replace(ASK, max_output=7), "max_output: recorded 0, asked 7"),
        (replace(ASK, session="s"), "session: recorded '', asked 's'"),
    ],
)  # fmt: skip
def test_mismatched_request_names_the_first_difference(
    other: Request, difference: str, file: Path
) -> None:
    read_deltas(open_recording(ScriptedProvider("Yes."), file), ASK)
    replaying = Replaying(file)

    with pytest.raises(Refused) as caught:
        read_deltas(replaying, other)

    assert str(caught.value) == f"the cassette {file}, call 1: {difference}"
    assert words(read_deltas(replaying, ASK)) == "Yes."  # nothing was used up


def test_long_values_in_a_mismatch_are_cut_to_where_they_differ(file: Path) -> None:
    start, end = "x" * 500, "z" * 500
    read_deltas(
        open_recording(ScriptedProvider("Yes."), file),
        request(message("user", f"{start}A{end}")),
    )

    with pytest.raises(Refused) as caught:
        read_deltas(Replaying(file), request(message("user", f"{start}B{end}")))

    x, z = "x" * 20, "z" * 39
    assert str(caught.value).endswith(f"recorded '…{x}A{z}…', asked '…{x}B{z}…'")


def test_mismatch_in_a_later_call_is_reported_with_its_number(file: Path) -> None:
    read_deltas(open_recording(ScriptedProvider("Yes.", "So."), file), ASK, LONGER)
    replaying = Replaying(file)
    read_deltas(replaying, ASK)

    other = request(*[m.message for m in LONGER.messages[:2]], message("user", "When?"))
    with pytest.raises(
        Refused, match=r"call 2: messages\[2\]\.parts\[0\]\.text: recorded 'Why"
    ):
        read_deltas(replaying, other)


def test_more_calls_than_were_recorded_are_refused(file: Path) -> None:
    read_deltas(open_recording(ScriptedProvider("Yes."), file), ASK)
    replaying = Replaying(file)
    read_deltas(replaying, ASK)

    with pytest.raises(Refused, match=r"holds 1 call, and one more was requested$"):
        read_deltas(replaying, ASK)


def test_calls_out_of_order_are_refused(file: Path) -> None:
    read_deltas(open_recording(ScriptedProvider("Yes.", "So."), file), ASK, LONGER)

    with pytest.raises(Refused, match=r"call 1: messages\[1\]"):
        read_deltas(Replaying(file), LONGER)


def test_concurrent_calls_may_be_replayed_in_any_order(file: Path) -> None:
    one, two, later = (request(message("user", w)) for w in ("one", "two", "later"))

    async def record() -> None:
        provider = open_recording(ScriptedProvider("1", "2", "3"), file)
        async with anyio.create_task_group() as group:
            group.start_soon(stream_deltas, provider, one)
            group.start_soon(stream_deltas, provider, two)
        await stream_deltas(provider, later)

    anyio.run(record)

    replaying = Replaying(file)
    assert [words(read_deltas(replaying, r)) for r in (two, one, later)] == ["2", "1", "3"]
    with pytest.raises(Refused, match="call 1: "):
        read_deltas(Replaying(file), later)


def test_ignored_fields_may_differ_and_other_fields_may_not(file: Path) -> None:
    read_deltas(
        open_recording(ScriptedProvider("Yes."), file),
        replace(ASK, system="Monday", session="1"),
    )
    ignoring = frozenset({"system", "session"})

    again = replace(ASK, system="Tuesday", session="2")
    assert words(read_deltas(Replaying(file, ignoring), again)) == "Yes."
    with pytest.raises(Refused, match="call 1: model"):
        read_deltas(Replaying(file, ignoring), replace(again, model="m-2"))
    with pytest.raises(BadInput, match="a request has no day to ignore"):
        Replaying(file, frozenset({"day"}))


def test_call_cut_off_in_the_cassette_is_refused_and_earlier_calls_replay(
    file: Path,
) -> None:
    read_deltas(open_recording(ScriptedProvider("Yes.", "So."), file), ASK, LONGER)
    *whole, data = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole) + data[:20])
    replaying = Replaying(file)

    assert words(read_deltas(replaying, ASK)) == "Yes."
    with pytest.raises(Refused, match="call 2: its recording was stopped"):
        read_deltas(replaying, LONGER)


def test_cassette_cut_at_any_byte_replays_the_complete_answers_before_the_cut(
    file: Path,
) -> None:
    read_deltas(open_recording(ScriptedProvider("Yes.", "So."), file), ASK, LONGER)
    whole = file.read_bytes()
    head = whole.index(b"\n") + 1

    for end in range(head, len(whole)):
        file.write_bytes(whole[:end])
        result = ask(Replaying(file), ASK, LONGER)
        ends = [n for n, byte in enumerate(whole[:end]) if byte == 10]
        count = (len(ends) - 1) // 2
        assert [words(f) for f in result if isinstance(f, list)] == ["Yes.", "So."][:count]
        assert all("cassette" in str(f) for f in result if isinstance(f, ProviderError))


def test_answer_stopped_by_the_user_stops_at_the_same_point_in_replay(file: Path) -> None:
    async def stop() -> None:
        provider = open_recording(ScriptedProvider("Yes indeed."), file)
        async with aclosing(provider.stream(ASK)) as deltas:
            async for _ in deltas:
                break

    anyio.run(stop)

    received = list[Delta]()

    async def again() -> None:
        async for delta in Replaying(file).stream(ASK):
            received.append(delta)

    with pytest.raises(Refused, match="its recording was stopped"):
        anyio.run(again)
    assert received == [TextDelta("Y")]


def test_reader_that_stops_after_done_does_not_mark_the_call_as_stopped(file: Path) -> None:
    async def main() -> None:
        async with aclosing(open_recording(Fixed([Done()]), file).stream(ASK)) as deltas:
            async for _ in deltas:
                break

    anyio.run(main)

    assert lines(file)[-1] == {"answered": 1, "deltas": [{"delta": "done"}]}


class Closing(ScriptedProvider):
    closed = False

    async def aclose(self) -> None:
        self.closed = True


def test_recording_closes_its_provider(file: Path) -> None:
    inner = Closing("Yes.")

    anyio.run(open_recording(inner, file).aclose)

    assert inner.closed
    anyio.run(open_recording(ScriptedProvider("Yes."), file.with_name("x")).aclose)


def test_cancelled_call_is_recorded_as_stopped(file: Path) -> None:
    async def stop() -> None:
        with anyio.move_on_after(0.02):
            await stream_deltas(
                open_recording(FaultyProvider("Yes.", fault="hang", after=2), file), ASK
            )

    anyio.run(stop)

    assert lines(file)[-1] == {
        "answered": 1, "deltas": [{"delta": "text", "text": "Ye"}], "stopped": True,
    }  # fmt: skip


def test_answer_that_ended_without_done_replays_without_done(file: Path) -> None:
    read_deltas(open_recording(FaultyProvider("Yes.", fault="silence", after=2), file), ASK)

    assert read_deltas(Replaying(file), ASK) == [TextDelta("Ye")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a cassette"),
        ('{"text": "Yes."}\n', "is not a cassette"),
        ("PNG\n", "is not a cassette"),
        ("[]\n", "is not a cassette"),
        ('{"cassette": 9}\n', "is of version 9, and this refold reads version 1"),
        ('{"cassette": 1}\n{"asked"\n', "line 2: "),
        ('{"cassette": 1}\n{"answered": 4, "deltas": []}\n', "line 2: 4; record it again"),
        (
            '{"cassette":1}\n{"asked":1,"as":0,"same":0,"messages":[]}\n'
            '{"answered":1,"deltas":[{"delta":"done","stop":"maybe"}]}\n',
            "line 3: .*maybe",
        ),
    ],
)
def test_file_that_is_not_a_cassette_is_refused_at_once(
    text: str, says: str, file: Path
) -> None:
    file.write_text(text)

    with pytest.raises(BadInput, match=says) as caught:
        Replaying(file)
    assert str(file) in str(caught.value)


def test_models_that_share_a_cassette_make_one_recording(file: Path) -> None:
    tape = CassetteWriter(file)
    one, other = (Recording(ScriptedProvider(w), tape) for w in ("Yes.", "So."))
    read_deltas(one, ASK)
    read_deltas(other, replace(LONGER, model="m-2"))

    assert words(read_deltas(Replaying(file), ASK, replace(LONGER, model="m-2"))) == "So."


def test_missing_cassette_is_named_in_the_error(file: Path) -> None:
    with pytest.raises(BadInput, match=r"calls\.jsonl cannot be read: No such"):
        Replaying(file)


def test_deleted_cassette_is_an_error_and_is_not_recreated(file: Path) -> None:
    provider = open_recording(ScriptedProvider("Yes."), file)
    os.unlink(file)

    with pytest.raises(Refused, match="cannot be written"):
        read_deltas(provider, ASK)
    assert not file.exists()


def fill_disk(file: Path) -> None:
    """Later writes to `file` fail with a full disk."""
    os.unlink(file)
    file.symlink_to("/dev/full")


full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


async def leave_early(provider: Provider, file: Path) -> str:
    async with aclosing(provider.stream(ASK)) as deltas:
        async for _ in deltas:
            fill_disk(file)
            break
    return "left"


async def cancel(provider: Provider, file: Path) -> str:
    with anyio.CancelScope() as scope:
        async with aclosing(provider.stream(ASK)) as deltas:
            async for _ in deltas:
                fill_disk(file)
                scope.cancel()
    return "cancelled" if scope.cancelled_caught else "went on"


async def fail(provider: Provider, file: Path) -> str:
    try:
        async with aclosing(provider.stream(ASK)) as deltas:
            async for _ in deltas:
                fill_disk(file)
    except Overloaded as error:
        return str(error)
    return "went on"


@full_disk
@pytest.mark.parametrize(
    ("end", "text"), [(leave_early, "left"), (cancel, "cancelled"), (fail, "busy")]
)
def test_full_disk_during_a_failed_call_is_reported_at_the_next_call(
    end: Callable[[Provider, Path], Awaitable[str]], text: str, file: Path
) -> None:
    inner = Fixed([TextDelta("Ye"), TextDelta("s"), Overloaded("busy")], [Done()])
    provider = open_recording(inner, file)

    async def main() -> str:
        ended = await end(provider, file)
        with pytest.raises(Refused, match=r"No space left.* record to a new file"):
            await stream_deltas(provider, ASK)
        return ended

    assert anyio.run(main) == text


@full_disk
def test_full_disk_during_a_successful_call_is_reported_at_once(file: Path) -> None:
    async def main() -> None:
        async for _ in open_recording(ScriptedProvider("Yes."), file).stream(ASK):
            if not file.is_symlink():
                fill_disk(file)

    with pytest.raises(Refused, match="No space left"):
        anyio.run(main)


@full_disk
def test_nothing_is_recorded_after_a_failed_write_and_earlier_calls_replay(
    file: Path,
) -> None:
    provider, aside = (
        open_recording(ScriptedProvider("Yes.", "So."), file),
        file.with_name("x"),
    )
    read_deltas(provider, ASK)
    file.rename(aside)
    file.symlink_to("/dev/full")
    full = ask(provider, LONGER)
    aside.replace(file)
    again = ask(provider, LONGER)

    assert [type(item) for item in (*full, *again)] == [Refused, Refused]
    assert len(lines(file)) == 3
    assert words(read_deltas(Replaying(file), ASK)) == "Yes."


def test_masked_secrets_match_again_even_when_split_over_two_deltas(file: Path) -> None:
    """One key comes in two deltas, and one is inside the JSON of a call."""

    def mask(data: bytes) -> bytes:
        return data.replace(b"hunter22\nx", b"[secret]").replace(
            rb"hunter22\nx", b"[secret]"
        )

    answers: list[Delta | ProviderError] = [
        TextDelta("It is hunt"), TextDelta("er22\nx"),
        CallDelta(0, r'{"key":"hunter22\nx"}', "t", "look"), Done(),
    ]  # fmt: skip
    with_secret = replace(ASK, messages=request(message("user", "hunter22\nx")).messages)
    read_deltas(open_recording(Fixed(answers), file, mask), with_secret)

    assert b"hunter22" not in file.read_bytes()
    assert read_deltas(Replaying(file, mask=mask), with_secret) == [
        TextDelta("It is [secret]"), CallDelta(0, '{"key":"[secret]"}', "t", "look"), Done(),
    ]  # fmt: skip


RAW = st.sampled_from([b"", b"null", b'{ "a":1 }', b'"\\n"', b"[1,\n 2]"]).map(Raw)
WIRE = st.sampled_from(["", "anthropic", "gemini"])
COUNT = st.integers(0, 2**40)
DELTAS = st.lists(
    st.one_of(
        st.builds(TextDelta, ANYTHING),
        st.builds(ThinkingDelta, ANYTHING, WIRE, RAW),
        st.builds(CallDelta, st.integers(0, 2), ANYTHING, ANYTHING, ANYTHING, WIRE, RAW),
        st.builds(Retrying, st.floats(0, 99), ANYTHING),
    ),
    max_size=6,
)
DONE = st.builds(
    Done,
    st.builds(Usage, COUNT, COUNT, COUNT, COUNT, COUNT),
    st.sampled_from(["end", "calls", "length", "refused"]),
    ANYTHING,
    ANYTHING,
    st.one_of(st.none(), st.floats(0, 9)),
)
REQUESTS = st.builds(
    lambda conversation, **more: request(*conversation, **more),
    conversations(),
    system=ANYTHING,
    model=ANYTHING,
    session=ANYTHING,
    schema=RAW,
    tools=st.sampled_from([(), TOOLS]),
    effort=st.sampled_from(["", "low", "max"]),
    max_output=COUNT,
    pictures=st.dictionaries(ANYTHING, st.binary(max_size=3), max_size=2),
)


def without_timing(delta: Delta) -> Delta:
    texts = {n: getattr(delta, n) for n in delta.__struct_fields__}
    return replace(delta, **{n: clean(t) for n, t in texts.items() if isinstance(t, str)})


@given(st.lists(st.tuples(REQUESTS, DELTAS, DONE), min_size=1, max_size=3))
@example([(replace(ASK, session="\x00", pictures={"\ud800": b""}), [], Done())])
def test_any_recorded_requests_and_answers_are_replayed(
    calls: list[tuple[Request, list[Delta], Done]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "calls.jsonl"
        answers: list[list[Delta | ProviderError]] = [
            [*deltas, done] for _, deltas, done in calls
        ]
        requests = [sent for sent, _, _ in calls]
        first = ask(open_recording(Fixed(*answers), file), *requests)

        again = ask(Replaying(file), *requests)

    assert first == answers
    assert again == [[without_timing(d) for d in join_deltas(answer)] for answer in first]  # type: ignore[arg-type]


@given(conversations(), conversations())
def test_two_requests_match_exactly_if_they_are_equal(
    one: list[Message], other: list[Message]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "calls.jsonl"
        ask(open_recording(ScriptedProvider("Yes."), file), request(*one))

        (result,) = ask(Replaying(file), request(*other))

    assert isinstance(result, list) == (one == other)


@tool(Effect.LOOK)
async def weather(city: str) -> Reply:
    """Say what the weather is in a city."""
    return Reply(f"rain in {city}")


SESSION = (
    Line("Let me look.", (("weather", '{"city": "Oslo"}'),), thinking="Oslo?"),
    [("weather", '{"city": "Bergen"}'), ("nothing", "{}")],
    "Rain in both.",
    Overloaded("busy"),
)


def run(provider: Provider, home: Path) -> tuple[str, str, list[object]]:
    """Three turns of a session: their results, and the conversation."""

    async def main() -> tuple[str, str, list[object]]:
        agent = Agent(
            provider=provider,
            tools=[weather],
            home=home,
            directory=home,
            system_prompt="Hi.",
        )
        async with agent.session() as session:
            await session.run("Rain in Oslo and Bergen?")
            last = await session.run("And now?")
            conversation = [(s.seq, s.message) for s in session.view.conversation.messages]
            return last.outcome, last.reason, [*conversation, session.view.account]

    return anyio.run(main)


def test_complete_session_is_replayed_to_the_same_view(file: Path, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    recorded = run(open_recording(ScriptedProvider(*SESSION), file), tmp_path / "1")

    replaying = Replaying(file, frozenset({"session", "system"}))
    replayed = run(replaying, tmp_path / "1")

    assert replayed == recorded
    assert replayed[0] == "failed"
    assert replaying.calls_left == 0


def test_session_that_differs_from_the_cassette_fails_with_the_difference(
    file: Path, tmp_path: Path
) -> None:
    run(open_recording(ScriptedProvider(*SESSION), file), tmp_path)
    text = file.read_text().replace("rain in Oslo", "sun in Oslo")
    file.write_text(text)

    outcome, reason, _ = run(Replaying(file, frozenset({"session", "system"})), tmp_path)

    assert outcome == "failed"
    assert (
        "call 2: messages[2].parts[0].text: recorded 'sun in Oslo', asked 'rain" in reason
    )


def test_cassette_helper_records_on_the_first_run_and_replays_afterwards(
    file: Path,
) -> None:
    def fail_if_created() -> Provider:
        raise AssertionError("it was asked")

    with cassette(file, lambda: ScriptedProvider("Yes.", "So.")) as provider:
        read_deltas(provider, ASK, LONGER)

    with cassette(file, fail_if_created) as provider:
        assert words(read_deltas(provider, ASK, LONGER)) == "So."
    with (
        pytest.raises(AssertionError, match="holds 1 calls more than were asked"),
        cassette(file, fail_if_created) as provider,
    ):
        read_deltas(provider, ASK)
