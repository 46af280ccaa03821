"""Deferred tools, which the model knows by name only: found, called, and judged."""

import anyio
import pytest
from msgspec import Raw, json

from refold.engine.answer_draft import unwrap_call
from refold.journal.events.kinds import Ended, Judged, ModelAnswered, SystemPromptSet
from refold.journal.store.port import MemoryStore
from refold.permissions.rules import parse
from refold.provider.text_protocol.protocol import TextProtocol
from refold.testing.providers import Line, Reply, ScriptedProvider
from refold.tools.tool_search import search_tools
from refold.values.messages import ToolCall
from tests.engine.house import (
    BOOK,
    OPEN_HAND,
    book,
    entries,
    open_session,
    raw,
    run,
    weather,
    world,
)

DEFERRED = (book,)
TOOLS = (weather, *search_tools(DEFERRED))
BY_WAY = ("tool_call", '{"name": "book", "arguments": {"what": "taxi"}}')


def run_script(
    *lines: Line, orders: list[str] | None = None
) -> tuple[MemoryStore, list[Ended]]:
    store = MemoryStore()
    scripted_world = world(ScriptedProvider(*lines), orders, tools=TOOLS, deferred=DEFERRED)
    run(store, scripted_world, "Go.")
    events = [entry.event for entry in entries(store)]
    return store, [event for event in events if isinstance(event, Ended)]


def list_calls(store: MemoryStore) -> list[ToolCall]:
    events = [entry.event for entry in entries(store)]
    answers = [event for event in events if isinstance(event, ModelAnswered)]
    return [call for answer in answers for call in answer.message.calls]


def test_call_through_tool_call_is_recorded_as_a_call_of_the_deferred_tool() -> None:
    orders = list[str]()

    store, ended = run_script([BY_WAY], "Done.", orders=orders)

    assert list_calls(store) == [
        ToolCall("call-0", "book", raw('{"what":"taxi"}'), "theirs-0-0", via="tool_call")
    ]
    assert (orders, [end.outcome for end in ended]) == (["taxi"], ["done"])


def test_deferred_tool_called_by_its_own_name_runs() -> None:
    orders = list[str]()

    run_script([BOOK], "Done.", orders=orders)

    assert orders == ["taxi"]


def test_permission_rules_apply_to_the_deferred_tool_itself() -> None:
    """A rule for `tool_call` does not cover it, and one for the tool does."""
    orders, store = list[str](), MemoryStore()
    rules = (*OPEN_HAND, parse("tool_call", "allow"), parse("book", "deny"))
    provider = ScriptedProvider([BY_WAY], "No.")

    run(store, world(provider, orders, tools=TOOLS, deferred=DEFERRED, rules=rules), "Go.")

    judged = [e.event for e in entries(store) if isinstance(e.event, Judged)]
    assert (orders, [(item.verdict, item.rule) for item in judged]) == (
        [],
        [("deny", "book")],
    )


def test_offered_tools_do_not_change_after_a_deferred_tool_was_found() -> None:
    provider = ScriptedProvider(
        [("tool_search", '{"query": "order"}')], [BY_WAY], [BOOK], "Done."
    )
    store = MemoryStore()

    run(store, world(provider, tools=TOOLS, deferred=DEFERRED), "Go.")

    offered = [tuple(tool.name for tool in request.tools) for request in provider.heard]
    assert offered == [("weather", "tool_search", "tool_call")] * 4
    briefed = [e for e in entries(store) if isinstance(e.event, SystemPromptSet)]
    assert len(briefed) == 1


def test_deferred_tool_is_found_with_its_schema_and_called() -> None:
    _, (result, done) = run_script(
        [("tool_search", '{"query": "select:book"}')], [BY_WAY], "Done."
    )

    assert bytes(book.spec.parameters).decode() in result.text
    assert (result.outcome, done.outcome) == ("done", "done")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('{"name": "bok", "arguments": {}}', "There is no tool 'bok' to be called so. Did you mean 'book'? There are: book."),
        ('{"name": "rm", "arguments": {}}', "There is no tool 'rm' to be called so. There are: book."),
        ('{"name": "tool_call", "arguments": {"name": "book"}}', "There is no tool 'tool_call' to be called so. There are: book."),
        ('{"name": "book", "what": "taxi"}', "there is no argument 'what'; 'arguments' is missing. tool_call takes name, arguments. Nothing was done."),
        ('{"name": "book", "arguments": [1]}', "'arguments': Expected `object`, got `array`. tool_call takes name, arguments. Nothing was done."),
        ('{"name": "book", "arguments": "taxi"}', "'arguments': Expected `object`, got `str`. tool_call takes name, arguments. Nothing was done."),
        ('{"name": "book", "arguments": {"what": "taxi", "what": "jet"}}', "The arguments have the key 'what' twice in one object, and it is unclear which value counts. Give it once. Nothing was done."),
        ('{"name": "book", "arguments": {}, "arguments": {"what": "jet"}}', "The arguments have the key 'arguments' twice in one object, and it is unclear which value counts. Give it once. Nothing was done."),
        ('{"name": "weather", "name": "book", "arguments": {"what": "jet"}}', "The arguments have the key 'name' twice in one object, and it is unclear which value counts. Give it once. Nothing was done."),
        ('{"name": "book", "arguments": "{\\"what\\": 1, \\"what\\": 2}"}', "The arguments have the key 'what' twice in one object, and it is unclear which value counts. Give it once. Nothing was done."),
        ('{"name": "book", "arguments": {"wat": 1}}', "there is no argument 'wat'; 'what' is missing. book takes what. Nothing was done."),
    ],
)  # fmt: skip
def test_invalid_tool_call_fails_with_the_reason(arguments: str, message: str) -> None:
    orders = list[str]()

    _, (ended,) = run_script([("tool_call", arguments)], "Sorry.", orders=orders)

    assert (ended.outcome, ended.text, orders) == ("failed", message, [])


@pytest.mark.parametrize(
    "answer_text",
    [
        '<tool_call>{"name": "tool_call", "arguments": {"name": "book", "arguments": {"what": "taxi"}}}</tool_call>',
        '<tool_call>{"name": "book", "arguments": {"what": "taxi"}}</tool_call>',
        '{"name": "tool_call", "arguments": {"name": "book", "arguments": {"what": "taxi"}}}',
    ],
)  # fmt: skip
def test_model_with_text_calls_can_call_deferred_tools(answer_text: str) -> None:
    orders, store = list[str](), MemoryStore()
    provider = TextProtocol(ScriptedProvider(answer_text, "Done."))

    run(store, world(provider, orders, tools=TOOLS, deferred=DEFERRED), "Go.")

    assert orders == ["taxi"]
    assert [call.name for call in list_calls(store)] == ["book"]


def test_deferred_call_cut_off_by_the_output_limit_is_not_made() -> None:
    orders = list[str]()
    cut = Reply("So", calls=(BY_WAY,), stop="length")

    store, _ = run_script(cut, "Done.", orders=orders)

    assert (list_calls(store), orders) == ([], [])


def test_unknown_tool_error_lists_deferred_tools() -> None:
    _, (ended,) = run_script([("buy", "{}")], "Sorry.")

    assert ended.text == (
        "There is no tool 'buy'. The tools are: weather, tool_search, tool_call, book."
    )


def test_own_tool_named_tool_call_is_called_directly_without_deferred_tools() -> None:
    store = MemoryStore()
    scripted_world = world(ScriptedProvider([BY_WAY], "Sorry."))

    run(store, scripted_world, "Go.")

    assert [call.name for call in list_calls(store)] == ["tool_call"]


def test_deferred_call_that_waits_for_approval_runs_after_a_restart() -> None:
    """The journal has it under the tool's own name, so it need not be found again."""
    orders, store = list[str](), MemoryStore()
    scripted_world = world(
        ScriptedProvider([BY_WAY]), orders, tools=TOOLS, deferred=DEFERRED, rules=()
    )
    run(store, scripted_world, "Go.")

    async def answer_later() -> None:
        later = world(
            ScriptedProvider("Done."), orders, tools=TOOLS, deferred=DEFERRED, rules=()
        )
        session = await open_session(store, later)
        await session.inbox.answer("call-0", allowed=True)
        await session.run_turns()

    anyio.run(answer_later)

    assert orders == ["taxi"]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"name":"book"}', "{}"),
        ('{"name":"book","arguments":null}', "{}"),
        ('{"arguments":{"a": {"b":[1]}},"name":"book"}', '{"a": {"b":[1]}}'),
        (json.encode({"name": "book", "arguments": '{"a":\n1}'}).decode(), '{"a":1}'),
        ('{"name":"book","arguments":""}', "{}"),
    ],
)
def test_deferred_call_arguments_are_accepted_in_several_forms(
    written: str, arguments: str
) -> None:
    call = ToolCall("call-1", "tool_call", raw(written))

    assert unwrap_call(call, "book".__eq__) == ToolCall(
        "call-1", "book", raw(arguments), via="tool_call"
    )


@pytest.mark.parametrize(
    "written",
    [
        b"", b"[]", b"{", b'"book"', b"\xff", b'{"name":1}', b'{"name":"book","x":1}',
        b'{"name":"book","arguments":1}', b'{"name":"book","arguments":"{"}',
        b'{"name":"book","arguments":"[]"}', b"[" * 5000,
    ],
)  # fmt: skip
def test_malformed_tool_call_is_not_unwrapped(written: bytes) -> None:
    call = ToolCall("call-1", "tool_call", Raw(written))

    assert unwrap_call(call, "book".__eq__) is call
