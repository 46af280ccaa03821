"""Requests only grow at their end, so that a provider's cache stays valid.

The server counts what it could read from its cache; the session reports those figures.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold import Agent, Effect, Reply, tool
from refold.journal.events.kinds import Compacted, Entry
from refold.prompts.summary import summary_prompt
from refold.provider.catalog import connect
from refold.testing.caching_server import CachingModel, Counted
from refold.testing.providers import Reply as Line
from refold.testing.wire_answers import WireName
from refold.testing.wire_server import wire_server
from refold.values.usage import Usage
from tests.provider.wires import KEY, message, request, spec_of, stream_deltas

CACHED: tuple[WireName, ...] = ("anthropic", "openai-responses", "openai-chat", "gemini")
NAMES = {
    "anthropic": "anthropic/claude-sonnet-5-5",
    "openai-responses": "openai/gpt-6.1-sol",
    "openai-chat": "openai-chat/gpt-6.1-sol",
    "gemini": "gemini/gemini-3.8-flash",
}
STEPS = 100


@tool(Effect.LOOK)
async def weather(city: str) -> Reply:
    """Say what the weather is in a city."""
    return Reply(f"In {city} there is rain, {'and more rain, ' * 10}and then some sun.")


def calls(n: int, many: int = 2) -> Line:
    """Return the n-th answer: words, and calls that no other answer makes."""
    called = (("weather", f'{{"city": "City {n}-{k}"}}') for k in range(many))
    return Line(f"Step {n}: I look at more cities.", tuple(called), thinking="More?")


def call_until_done(n: int) -> Line:
    return calls(n) if n < STEPS else Line("It rains everywhere.")


def run(
    wire: WireName,
    reply: Callable[[int], Line],
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    **settings: object,
) -> tuple[CachingModel, str, Usage]:
    """Run one turn. Return the server's counts, the end of the turn, and the session's
    record.
    """
    model, spec = CachingModel(wire, reply), spec_of(wire)

    async def main() -> tuple[str, Usage]:
        async with wire_server(model) as server:
            monkeypatch.setenv(spec.url_env, server.url)
            monkeypatch.setenv(spec.key_env, KEY)
            agent = Agent(
                model=NAMES[wire], tools=[weather], home=home, directory=home, persist=False,
                system_prompt="Be brief and be sure. " * 300,
                settings={"limits.steps": STEPS, **settings},
            )  # fmt: skip
            async with agent.session() as session:
                result = await session.run("Look at the weather of all cities.")
                return result.outcome, result.usage

    return model, *anyio.run(main)


def conversation_in(wire: WireName, body: dict[str, Any]) -> list[Any]:
    """Return the pieces of all messages, in order, however they are grouped.

    Marks for a cache are left out: they move, and are not content.
    """
    match wire:
        case "anthropic":
            result = [
                (m["role"], {k: v for k, v in block.items() if k != "cache_control"})
                for m in body["messages"]
                for block in m["content"]
            ]
        case "gemini":
            result = [(c["role"], part) for c in body["contents"] for part in c["parts"]]
        case "openai-responses":
            result = body["input"]
        case _:
            result = body["messages"]
    return list(result)


def fields_around_messages(body: dict[str, Any]) -> dict[str, Any]:
    """Return all but the messages, and whether it may call."""
    apart = ("messages", "contents", "input", "tool_choice", "toolConfig")
    return {name: value for name, value in body.items() if name not in apart}


def cached_share(requests: list[Counted]) -> float:
    """Return how much of what repeats was read. Half an item more may be found; none is
    wanted.
    """
    read = sum(min(r.cached, r.repeated) for r in requests)
    return read / sum(r.repeated for r in requests)


@pytest.mark.slow
@pytest.mark.parametrize("wire", CACHED)
def test_nearly_all_repeated_tokens_are_read_from_cache_over_a_hundred_steps(
    wire: WireName, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Three steps before the limit it gets a reminder; after it, it may only answer in
    text."""
    model, outcome, usage = run(wire, call_until_done, monkeypatch, tmp_path)

    conversations = [conversation_in(wire, r.body) for r in model.requests]
    assert (outcome, len(conversations)) == ("step_limit", STEPS + 1)
    for before, after in pairwise(conversations):
        assert after[: len(before)] == before
        assert len(after) > len(before)
    assert all(
        fields_around_messages(r.body) == fields_around_messages(model.requests[0].body)
        for r in model.requests
    )
    assert cached_share(model.requests) > 0.95
    assert usage.cached == model.cached
    assert usage.input == sum(r.size for r in model.requests)

    if wire == "openai-responses":
        assert model.requests[0].body["prompt_cache_key"]

    *_, noted, _, _, last = model.requests
    assert "more answers are allowed" in str(conversation_in(wire, noted.body)[-1])
    assert cached_share(model.requests[-4:-1]) > 0.95
    assert "limit of this turn is reached" in str(conversation_in(wire, last.body)[-1])
    if wire == "anthropic" and last.body.get("tool_choice"):
        # A change of the tool choice drops the cached messages, and no
        # other body can forbid calls; tools and system are read all the same.
        assert last.cached > 1024 - 128
    else:
        assert cached_share([last]) > 0.95


TODOS = (
    '{"todos": [{"subject": "all cities", "status": "in_progress"}, {"subject": "sum up"}]}'
)


@tool(Effect.LOOK)
async def forecast(day: int) -> Reply:
    """Say what the weather will be."""
    return Reply(f"On day {day} there will be rain, {'and more rain, ' * 60}and some sun.")


def work_with_todos(n: int) -> Line:
    """Work with todos, in a small window, that is summed up now and then."""
    if n == 0:
        return Line(calls=(("todo_write", TODOS),))
    if n >= STEPS - 5:
        return Line("It rains everywhere.")
    return Line(f"Day {n}.", (("forecast", f'{{"day": {n}}}'),), thinking="More?")


@pytest.mark.slow
@pytest.mark.parametrize("wire", CACHED)
def test_request_only_grows_at_its_end_between_two_compactions(
    wire: WireName, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """This includes reminders of todos, of the budget and of the step limit."""
    model, spec = CachingModel(wire, work_with_todos), spec_of(wire)
    compactions: list[Compacted] = []

    async def main() -> None:
        async with wire_server(model) as server:
            monkeypatch.setenv(spec.url_env, server.url)
            monkeypatch.setenv(spec.key_env, KEY)
            agent = Agent(
                model=NAMES[wire], tools=[forecast], home=tmp_path,
                directory=tmp_path, persist=False, system_prompt="Be brief and be sure. " * 50,
                settings={
                    "limits.steps": STEPS, "limits.wrap_up_steps": 12, "budget.calls": STEPS + 20,
                    f"providers.{spec.name}.window": 16_000,
                },
            )  # fmt: skip
            async with agent.session() as session, session.stream("Look.") as frames:
                async for frame in frames:
                    if isinstance(frame.item, Entry) and isinstance(
                        frame.item.event, Compacted
                    ):
                        compactions.append(frame.item.event)

    anyio.run(main)

    bodies = [r.body for r in model.requests]
    outcome = [
        conversation_in(wire, body)
        for body in bodies
        if summary_prompt()[:60] not in str(body)
    ]
    whole = str(outcome)
    breaks = sum(after[: len(before)] != before for before, after in pairwise(outcome))
    assert len(outcome) > 88
    assert {c.kind for c in compactions} == {"prune", "full"}
    assert breaks == len(compactions) <= 20
    for reminder in ("todos are open", "may use up is left", "more answers are allowed"):
        assert reminder in whole


def test_answer_with_many_calls_does_not_lose_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def many(n: int) -> Line:
        return calls(n, many=12) if n < 4 else Line("It rains everywhere.")

    model, _, _ = run("anthropic", many, monkeypatch, tmp_path)

    assert cached_share(model.requests) > 0.95


def count_tokens(model: CachingModel, wire: WireName, *text: str) -> Usage:
    spec = spec_of(wire)

    async def main() -> Usage:
        async with wire_server(model) as server:
            provider = connect(spec, {spec.url_env: server.url, spec.key_env: KEY})
            conversation_in = request(
                *(message("user", w) for w in text), system="Be brief." * 900
            )
            deltas = await stream_deltas(provider, conversation_in)
            await provider.aclose()
            return deltas[-1].usage  # type: ignore[union-attr]  # Done is last

    return anyio.run(main)


@pytest.mark.parametrize("wire", CACHED)
def test_cache_mock_reads_exactly_the_prefix_sent_before(wire: WireName) -> None:
    model = CachingModel(wire, lambda n: Line("Yes."))

    first = count_tokens(model, wire, "Rain?")
    again = count_tokens(model, wire, "Rain?")
    more = count_tokens(model, wire, "Rain?", "x" * 4000)
    other = count_tokens(model, wire, "Snow?" * 900)

    assert first.cached == 0
    assert again.cached >= again.input - 128
    assert first.input - 128 <= more.cached <= first.input
    assert more.input > more.cached + 999
    assert other.cached <= first.input
    assert other.input - other.cached > 1000


@pytest.mark.parametrize("wire", CACHED)
def test_cache_mock_does_not_cache_short_prompts(wire: WireName) -> None:
    model = CachingModel(wire, lambda n: Line("Yes."))

    async def main() -> list[Usage]:
        spec = spec_of(wire)
        async with wire_server(model) as server:
            provider = connect(spec, {spec.url_env: server.url, spec.key_env: KEY})
            short = request(message("user", "Rain? " * 500))
            deltas = [await stream_deltas(provider, short) for _ in range(2)]
            await provider.aclose()
            return [item[-1].usage for item in deltas]  # type: ignore[union-attr]

    assert [u.cached for u in anyio.run(main)] == [0, 0]


def test_cache_mock_looks_back_no_further_than_the_real_provider() -> None:
    """The provider looks back twenty blocks from the mark, and misses an older entry."""
    model = CachingModel("anthropic", lambda n: Line("Yes."))
    words = [f"{n} " * 2000 for n in range(40)]

    count_tokens(model, "anthropic", *words[:1])
    near = count_tokens(model, "anthropic", *words[:20])
    far = count_tokens(model, "anthropic", *words[:40])

    assert near.cached > 3000
    assert 0 < far.cached < near.cached + near.cache_write


@pytest.mark.parametrize("wire", ["openai-responses", "openai-chat"])
def test_each_session_has_its_own_cache(wire: WireName) -> None:
    model, spec = CachingModel(wire, lambda n: Line("Yes.")), spec_of(wire)
    asking = request(message("user", "Rain? " * 2000))

    async def main() -> list[Usage]:
        # A server in the vendor's place may not know the key; this one is the vendor.
        vendor = replace(spec, base_url="")
        async with wire_server(model) as server:
            provider = connect(vendor, {spec.url_env: server.url, spec.key_env: KEY})
            deltas = [
                await stream_deltas(provider, replace(asking, session=s)) for s in "aab"
            ]
            await provider.aclose()
            return [item[-1].usage for item in deltas]  # type: ignore[union-attr]

    assert [u.cached > 0 for u in anyio.run(main)] == [False, True, False]
