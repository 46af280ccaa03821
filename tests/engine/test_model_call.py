"""Requests and responses of model calls: content, size, price, request log."""

import json
from collections import Counter
from collections.abc import AsyncGenerator

import anyio
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.engine.answer_draft import Draft
from refold.engine.policies.answer_schema import require_schema
from refold.engine.policies.compaction import in_window
from refold.engine.policies.conversation import converse, final
from refold.engine.policies.step_limit import at_most
from refold.engine.policies.turn_end import stopping
from refold.engine.request_log import Trace
from refold.engine.world import World
from refold.errors import JournalError, Unreachable
from refold.journal.events.kinds import AnswerRejected, ModelAnswered, RequestLogged
from refold.journal.state.fold import View
from refold.journal.store.logged_requests import wire_calls
from refold.journal.store.port import MemoryBlobs, MemoryStore
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Provider,
    Request,
    RequestSent,
    ResponseBytes,
    TextDelta,
    ThinkingDelta,
)
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.session.session import Session
from refold.testing.clock import Clock
from refold.testing.providers import Reply, ScriptedProvider
from refold.tools.contract import ImageData, tool
from refold.tools.contract import Reply as ToolReply
from refold.tools.turn_control import finish
from refold.values.messages import Image, ToolResult
from refold.values.tools import Effect
from refold.values.usage import Usage
from refold.views.stream_json.turn_result import result
from tests.engine.house import (
    BOOK,
    OPEN_HAND,
    WEATHER,
    book,
    entries,
    open_session,
    run,
    weather,
    world,
)

AGE = Raw(b'{"type":"object","required":["age"],"properties":{"age":{"type":"integer"}}}')
PNG = b"\x89PNG\r\n\x1a\n and the rest"


def world_with_schema(provider: Provider, times: int = 3) -> World:
    policies = (stopping, require_schema(AGE, times), final, at_most(20), converse)
    return world(provider, policies=policies, schema=AGE)


def test_answer_that_matches_the_schema_ends_the_turn_as_structured_data() -> None:
    provider = ScriptedProvider('{"age": 40}')

    view = run(MemoryStore(), world_with_schema(provider), "How old?")

    assert view.turn.outcome == "answered"
    assert result(view, "s", 0.0).structured == {"age": 40}
    assert provider.heard[0].schema == AGE


def test_answer_that_violates_the_schema_is_returned_with_the_problem() -> None:
    provider = ScriptedProvider(
        "About forty.", '{"age": "forty"}', '```json\n{"age": 40}\n```'
    )

    view = run(MemoryStore(), world_with_schema(provider), "How old?")

    texts = [request.messages[-1].message.text for request in provider.heard[1:]]
    assert view.turn.outcome == "answered"
    assert "it is not JSON" in texts[0]
    assert "$.age: 'forty' is not of type 'integer'" in texts[1]
    assert result(view, "s", 0.0).structured == {"age": 40}


@pytest.mark.parametrize("times", [0, 1, 3])
def test_invalid_answer_is_returned_at_most_the_configured_number_of_times(
    times: int,
) -> None:
    provider = ScriptedProvider(*["Forty."] * 9)

    view = run(MemoryStore(), world_with_schema(provider, times), "How old?")

    assert view.turn.outcome == "failed"
    assert f"after {times} corrections: it is not JSON" in view.turn.reason
    assert len(provider.heard) == times + 1
    assert result(view, "s", 0.0).structured is None


def test_answer_of_the_finish_tool_must_match_the_schema() -> None:
    wrong, right = (
        ("finish", '{"answer": "40"}'),
        ("finish", '{"answer": "{\\"age\\": 40}"}'),
    )
    provider = ScriptedProvider([wrong], [right])
    finishing_world = replace(world_with_schema(provider), tools=(finish,))

    view = run(MemoryStore(), finishing_world, "How old?")

    assert (view.turn.outcome, view.turn.answer) == ("final", '{"age": 40}')
    assert view.turn.steps == 2


def test_answer_with_calls_is_not_checked_against_the_schema() -> None:
    provider = ScriptedProvider(Reply("I look.", (WEATHER,)), '{"age": 40}')

    view = run(MemoryStore(), world_with_schema(provider), "How old?")

    assert (view.turn.outcome, view.turn.steps) == ("answered", 2)


def test_interrupt_during_a_corrected_answer_ends_the_turn() -> None:
    class Stopping:
        def __init__(self) -> None:
            self.asked = 0

        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            self.asked += 1
            yield TextDelta("Forty.")
            if self.asked == 2:
                await session.inbox.interrupt()
                await anyio.sleep_forever()
            yield Done()

    async def run_story() -> View:
        nonlocal session
        session = await open_session(MemoryStore(), world_with_schema(Stopping()))
        await session.inbox.say("How old?")
        return await session.run_turns()

    session = anyio.run(open_session, MemoryStore(), world(ScriptedProvider()))

    assert anyio.run(run_story).turn.outcome == "interrupted"


def test_rejected_answer_is_recorded_with_the_policy_that_rejected_it() -> None:
    store = MemoryStore()

    run(store, world_with_schema(ScriptedProvider("Forty.", '{"age": 40}')), "How old?")

    (entry,) = (e for e in entries(store) if isinstance(e.event, AnswerRejected))
    assert entry.by == "policy shape"


# Effort, session, price. ---------------------------------------------------------------


def test_request_has_the_effort_and_the_maximum_output_of_the_session() -> None:
    provider = ScriptedProvider("Hi.")

    run(MemoryStore(), world(provider, effort="high", max_output=7), "Hello.")

    (request,) = provider.heard
    assert (request.effort, request.max_output) == ("high", 7)


def test_answer_is_priced_once_when_it_arrives() -> None:
    store = MemoryStore()
    lines = [
        Reply("One.", (WEATHER,), usage=Usage(fresh=10)),
        Reply("Two.", usage=Usage(5)),
    ]
    scripted_world = world(ScriptedProvider(*lines), price=lambda _, used: used.fresh / 10)

    view = run(store, scripted_world, "Go.")

    assert view.account.spent.cost == view.turn.spent.cost == 1.5
    costs = [e.event.cost for e in entries(store) if isinstance(e.event, ModelAnswered)]
    assert costs == [1.0, 0.5]


def test_one_unknown_price_makes_the_sum_unknown_and_not_zero() -> None:
    def price(_: str, usage: Usage) -> float | None:
        return None if usage.output == len("Two.") else 1.0

    provider = ScriptedProvider(Reply("One.", (WEATHER,)), "Two.")

    view = run(MemoryStore(), world(provider, price=price), "Go.")

    spent = view.account.spent
    assert (spent.cost, spent.dollars, spent.unpriced) == (None, 1.0, 1)
    assert result(view, "s", 0.0).cost is None


class Telling:
    """Reports its own price, and the model that answered in place of the requested one."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield TextDelta("Hi.")
        yield Done(Usage(fresh=1), by="acme/two", cost=0.25)


def test_cost_and_model_reported_by_the_provider_take_precedence() -> None:
    scripted_world = world(Telling(), name="acme/one", price=lambda *_: 99.0)

    view = run(MemoryStore(), scripted_world, "Hello.")

    assert [(m, s.cost) for m, s in view.account.by_model] == [("acme/two", 0.25)]


def test_empty_answer_is_charged() -> None:
    class Thinking:
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            yield ThinkingDelta("Hm.")
            yield Done(Usage(fresh=10, output=5), model="m")

    view = run(
        MemoryStore(), world(Thinking(), price=lambda _, used: used.fresh / 10), "Hi."
    )

    assert (view.turn.outcome, view.turn.spent.cost) == (
        "failed",
        3.0,
    )  # 1.0 for each of the three attempts
    assert view.account.spent.usage == Usage(fresh=30, output=15)


@pytest.mark.parametrize(("price", "cost"), [(0.0, 0.0), (2.0, None), (None, None)])
def test_cost_of_an_interrupted_answer_is_unknown_unless_the_model_is_free(
    price: float | None, cost: float | None
) -> None:
    class Slow:
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            yield TextDelta("So f")
            await sessions[0].inbox.interrupt()
            await anyio.sleep_forever()

    async def run_story() -> View:
        sessions.append(
            await open_session(MemoryStore(), world(Slow(), price=lambda *_: price))
        )
        await sessions[0].inbox.say("Hello.")
        return await sessions[0].run_turns()

    sessions: list[Session] = []

    assert anyio.run(run_story).account.spent.cost == cost


def test_model_that_answered_is_recorded_if_it_differs_from_the_requested_one() -> None:
    class Routed:
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            yield TextDelta("Hi.")
            yield Done(model=names.pop(0))

    store, names = MemoryStore(), ["auto", "deep-9"]

    run(store, world(Routed(), name="acme/auto"), "One.")
    run(store, world(Routed(), name="acme/auto"), "Two.")

    served_bies = [
        e.event.served_by for e in entries(store) if isinstance(e.event, ModelAnswered)
    ]
    assert served_bies == ["", "deep-9"]


def test_time_to_first_token_is_recorded_for_streamed_responses_only() -> None:
    def time_to_first_token(*deltas: Delta) -> float | None:
        clock = Clock()
        draft = Draft(0, "m", lambda model, usage: None, clock=clock)
        for delta in (*deltas, Done()):
            clock.jump(0.4)
            draft.add(delta)
        answer = draft.to_answer()
        assert answer is not None
        return answer.first_piece

    thought, call = ThinkingDelta("Hm."), CallDelta(0, "{}", name="look")

    assert time_to_first_token(TextDelta("Yes."), TextDelta(" It is.")) == 0.4
    assert time_to_first_token(thought, call) == 0.4
    assert time_to_first_token(TextDelta("Yes. It is.")) is None


def test_refusal_gives_the_reason_if_the_provider_does() -> None:
    class Refusing:
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            yield Done(stop="refused", why="cyber")

    view = run(MemoryStore(), world(Refusing()), "Hello.")

    assert view.turn.reason == "the model refused to answer: cyber"


# The window. ---------------------------------------------------------------------------


def world_with_window(provider: Provider, window: int) -> World:
    alone = in_window(lambda _: None)
    return world(provider, policies=(alone, converse), window=window, name="acme/one")


def test_request_larger_than_the_window_fails_unsent_with_its_size() -> None:
    provider = ScriptedProvider("Hi.")

    view = run(MemoryStore(), world_with_window(provider, 1000), "word " * 2_000)

    assert view.turn.outcome == "failed"
    assert "at least 1,7" in view.turn.reason
    assert "acme/one takes 1,000" in view.turn.reason
    assert provider.heard == []
    assert view.conversation.messages[-1].message.text == "word " * 2_000  # nothing is lost


def test_request_that_may_fit_the_window_is_sent() -> None:
    view = run(
        MemoryStore(), world_with_window(ScriptedProvider("Hi."), 1000), "word " * 1_000
    )

    assert view.turn.outcome == "answered"


def test_model_with_a_larger_window_continues_the_conversation() -> None:
    store = MemoryStore()
    run(store, world_with_window(ScriptedProvider(), 1000), "word " * 2_000)

    view = run(store, world_with_window(ScriptedProvider("Long."), 100_000), "And now?")

    assert (view.turn.outcome, view.turn.answer) == ("answered", "Long.")


# Images. -----------------------------------------------------------------------------


@tool(Effect.LOOK)
async def camera() -> ToolReply:
    """Take a screenshot."""
    return ToolReply("Taken.", images=(ImageData(PNG, "image/png", "sky.png"),))


def test_image_of_the_user_and_image_of_a_tool_reach_the_model_with_their_bytes() -> None:
    provider = ScriptedProvider([("camera", "{}")], "Blue.")
    scripted_world = world(provider, tools=(camera,))
    sketch = ImageData(b"GIF89a...", "image/gif", "sketch.gif")

    async def run_story() -> View:
        session = await open_session(
            MemoryStore(), scripted_world, ["GIF89a..."]
        )  # no mask touches them
        await session.inbox.say("Like this?", images=[sketch])
        return await session.run_turns()

    view = anyio.run(run_story)

    last = provider.heard[-1]
    message, _, came = (spoken.message for spoken in last.messages)
    images = [*message.images, *came.images]
    assert [(p.media_type, p.name) for p in images] == [
        ("image/gif", "sketch.gif"), ("image/png", "sky.png"),
    ]  # fmt: skip
    assert [last.pictures[p.blob] for p in images] == [sketch.content, PNG]
    assert provider.heard[0].pictures == {images[0].blob: sketch.content}
    assert view.conversation.images == tuple(p.blob for p in images)


def test_image_with_a_missing_blob_does_not_stop_the_session() -> None:
    provider, store = (
        ScriptedProvider([("camera", "{}")], "Blue.", "Still blue."),
        MemoryStore(),
    )
    run(store, world(provider, tools=(camera,)), "Look up.")
    store.blobs.contents.clear()

    view = run(store, world(provider, tools=(camera,)), "And now?")

    assert view.turn.answer == "Still blue."
    assert provider.heard[-1].pictures == {}
    results = [p for s in provider.heard[-1].messages for p in s.message.parts]
    assert [p.images for p in results if isinstance(p, ToolResult)] == [
        (Image(view.conversation.images[0], "image/png", "sky.png"),)
    ]


def test_image_is_read_once_per_turn_for_any_number_of_steps() -> None:
    class Counting(MemoryBlobs):
        def __init__(self) -> None:
            super().__init__()
            self.got = Counter[str]()

        async def get(self, name: str) -> bytes:
            self.got[name] += 1
            return await super().get(name)

    blobs = Counting()
    store = MemoryStore(blobs=blobs)
    provider = ScriptedProvider([("camera", "{}")], [WEATHER], [BOOK], "Blue.", "Still.")

    run(store, world(provider, tools=(camera, weather, book)), "Look up.")
    assert set(blobs.got.values()) == {1}
    run(store, world(provider, tools=(camera, weather, book)), "And now?")

    assert set(blobs.got.values()) == {2}
    assert all(request.pictures for request in provider.heard[1:])


# Traces. -------------------------------------------------------------------------------


class OverAWire:
    """Tells what goes over its wire: a body that grows, and two pieces back.

    Before it, what stays the same goes to `too`, as a program's instructions do.
    """

    def __init__(self, *failing: int, too: str = "") -> None:
        self._failing, self._too, self.asked = failing, too, 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        if request.trace:
            text = json.dumps([s.message.text for s in request.messages])
            if self._too:
                yield RequestSent(self._too, INSTRUCTIONS)
            yield RequestSent("POST http://acme.test", text.encode())
            yield ResponseBytes(b"first ")
        if self.asked in self._failing:
            raise Unreachable("gone")
        yield TextDelta(f"Answer {self.asked}.")
        if request.trace:
            yield ResponseBytes(b"second")
        yield Done(Usage(fresh=1))


INSTRUCTIONS = b"Be brief. " * 100


def run_traced_session(store: MemoryStore, providers: list[OverAWire], *text: str) -> None:
    """A traced session: these words in turn, each to the next of the providers."""

    async def run_story() -> None:
        house, trace = iter([*providers, *providers[-1:] * len(text)]), Trace()
        record = Recorder(store, masks=Redactor(()), clock=lambda: 0.0)
        session = await Session.open(record, lambda _: world(next(house), trace=trace))
        for word in text:
            await session.inbox.say(word)
            await session.run_turns()

    anyio.run(run_story)


def read_traces(store: MemoryStore) -> list[tuple[bytes, bytes]]:
    """Return every traced call as it was sent and as it returned."""
    calls = wire_calls(entries(store), store.blobs.contents.__getitem__)
    return [(call.request, call.answer) for call in calls]


def test_traced_calls_are_read_byte_for_byte_including_a_failed_one() -> None:
    store, provider = MemoryStore(), OverAWire(2)
    traced_world = world(provider, trace=Trace())

    async def run_story() -> list[tuple[bytes, bytes]]:
        session = await open_session(store, traced_world)
        for words in ("a" * 500, "b" * 500, "c" * 500):
            await session.inbox.say(words)
            await session.run_turns()
        return read_traces(store)

    outcome = anyio.run(run_story)

    assert [json.loads(sent)[-1][:1] for sent, _ in outcome] == ["a", "b", "c"]
    assert [len(json.loads(sent)) for sent, _ in outcome] == [1, 3, 4]
    assert [came for _, came in outcome] == [b"first second", b"first ", b"first second"]


@pytest.mark.parametrize("too", ["", "file system.md"])
def test_traces_grow_with_new_messages_and_not_with_the_whole_conversation(
    too: str,
) -> None:
    store = MemoryStore()

    run_traced_session(store, [OverAWire(too=too)], *(f"{n} " * 200 for n in range(40)))

    calls = [*wire_calls(entries(store), store.blobs.contents.__getitem__)]
    last = calls[-1]
    assert (last.to, len(json.loads(last.request))) == ("POST http://acme.test", 79)
    assert {call.request for call in calls if call.to == too} <= {INSTRUCTIONS}
    sizes = sum(len(blob) for blob in store.blobs.contents.values())
    assert sizes < 40 * 1000  # forty of some 600 bytes; whole ones would be 20 times that


def test_trace_prefixes_are_remembered_for_the_last_addresses_only() -> None:
    store = MemoryStore()
    anew = [OverAWire(too=f"POST http://acme.test/{n}") for n in (*range(40), 39, 0)]

    run_traced_session(store, anew, *("Hello." for _ in anew))

    events = [e.event for e in entries(store) if isinstance(e.event, RequestLogged)]
    alike = {event.target.rpartition("/")[2]: event.same_prefix for event in events}
    assert (alike["39"], alike["0"]) == (len(INSTRUCTIONS), 0)


def test_trace_that_could_not_be_stored_is_stored_by_the_next_drain() -> None:
    class Full:
        async def put(self, blob: bytes) -> str:
            raise JournalError("full")

    async def run_story() -> list[RequestLogged]:
        trace.add_delta(RequestSent("POST http://acme.test", b"one"))
        with pytest.raises(JournalError):
            await trace.drain(Full())
        trace.add_delta(RequestSent("POST http://acme.test", b"one, two"))
        return await trace.drain(blobs)

    trace, blobs = Trace(), MemoryBlobs()

    outcome = anyio.run(run_story)

    assert [(event.same_prefix, blobs.contents[event.request]) for event in outcome] == [
        (0, b"one"),
        (3, b", two"),
    ]


def test_nothing_is_traced_unless_requested() -> None:
    store = MemoryStore()

    run(store, world(OverAWire(), rules=OPEN_HAND), "Hello.")

    assert not [e for e in entries(store) if isinstance(e.event, RequestLogged)]
    assert store.blobs.contents == {}


def test_trace_of_an_interrupted_answer_is_stored() -> None:
    store = MemoryStore()

    class Slow:
        async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
            yield RequestSent("POST http://acme.test", b"{}")
            yield ResponseBytes(b"half")
            yield TextDelta("So f")
            await sessions[0].inbox.interrupt()
            await anyio.sleep_forever()

    async def run_story() -> list[tuple[bytes, bytes]]:
        sessions.append(await open_session(store, world(Slow(), trace=Trace())))
        await sessions[0].inbox.say("Hello.")
        await sessions[0].run_turns()
        return read_traces(store)

    sessions: list[Session] = []

    assert anyio.run(run_story) == [(b"{}", b"half")]
