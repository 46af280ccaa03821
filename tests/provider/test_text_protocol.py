"""A provider that calls tools as text is a provider like any other."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.errors import Overloaded, ProviderError, Refused, TooLong, Unreachable
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Provider,
    Request,
    Retrying,
    TextDelta,
    ThinkingDelta,
)
from refold.provider.retry import Backoff, RetryingProvider
from refold.provider.text_protocol.protocol import TextProtocol
from refold.provider.text_protocol.selection import (
    CallProtocolSelector,
    TextCallModels,
    Tools,
    choose_protocol,
    needs_text,
    with_call_protocol,
)
from refold.testing.provider_conformance import ProviderContract
from refold.testing.providers import Line, Reply, ScriptedProvider
from refold.testing.wire_answers import WireName, answer
from tests.provider.wires import (
    CONVERSATION,
    TOOLS,
    WIRES,
    message,
    open_wire,
    request,
    stream_deltas,
    words,
)

CALL = '{"name": "book", "arguments": {"to": "the station"}}'
TAGGED = f"<tool_call>\n{CALL}\n</tool_call>"
ASKED = request(message("user", "A taxi, please."), system="Be brief.", tools=TOOLS)


def ask(provider: Provider, *request: Request) -> list[list[Delta]]:
    async def main() -> list[list[Delta]]:
        return [await stream_deltas(provider, item) for item in request or (ASKED,)]

    return anyio.run(main)


def calls(deltas: Sequence[Delta]) -> list[tuple[str, str]]:
    """Name and arguments of each."""
    names_and_arguments = dict[int, list[str]]()
    for delta in deltas:
        if isinstance(delta, CallDelta):
            names_and_arguments.setdefault(delta.index, ["", ""])
            names_and_arguments[delta.index][0] += delta.name
            names_and_arguments[delta.index][1] += delta.arguments
    return [(name, arguments) for name, arguments in names_and_arguments.values()]


def stop(deltas: Sequence[Delta]) -> str:
    assert isinstance(deltas[-1], Done)
    return deltas[-1].stop


def notices(deltas: Sequence[Delta]) -> list[str]:
    return [d.reason for d in deltas if isinstance(d, Retrying)]


BOOKED = [("book", '{"to": "the station"}')]


class TestTextProtocol(ProviderContract):
    @asynccontextmanager
    async def scripted_provider(self, *replies: Reply) -> AsyncGenerator[Provider, None]:
        yield TextProtocol(ScriptedProvider(*replies))


class TestAsNeeded(ProviderContract):
    @asynccontextmanager
    async def scripted_provider(self, *replies: Reply) -> AsyncGenerator[Provider, None]:
        yield CallProtocolSelector(ScriptedProvider(*replies))


def test_tool_call_written_as_text_is_made() -> None:
    inner = ScriptedProvider(Reply(f"At once.\n{TAGGED}", thinking="Hm."))

    (deltas,) = ask(TextProtocol(inner))

    assert (words(deltas), calls(deltas), stop(deltas)) == ("At once.\n", BOOKED, "calls")
    assert ThinkingDelta("H") in deltas
    assert inner.heard[0].tools == ()
    assert "- book(to?: any): Book a taxi." in inner.heard[0].system


def test_text_without_a_call_stays_text_in_the_text_protocol() -> None:
    (deltas,) = ask(TextProtocol(ScriptedProvider("There are none {now}.")))

    assert (words(deltas), calls(deltas), stop(deltas)) == (
        "There are none {now}.",
        [],
        "end",
    )


@pytest.mark.parametrize("why", ["length", "refused"])
def test_cut_off_answer_calls_nothing(why: str) -> None:
    cut = Reply(TAGGED, stop="length" if why == "length" else "refused")

    (deltas,) = ask(TextProtocol(ScriptedProvider(cut)))

    assert (words(deltas), calls(deltas), stop(deltas)) == (TAGGED, [], why)


def test_text_call_stays_text_when_calls_are_not_allowed() -> None:
    model_request = request(message("user", "So?"), tools=TOOLS, tool_choice="none")

    (deltas,) = ask(TextProtocol(ScriptedProvider(TAGGED)), model_request)

    assert (words(deltas), calls(deltas)) == (TAGGED, [])


class Breaking:
    """Streams its text, and fails before the end."""

    def __init__(self, *messages: str, error: ProviderError | None = None) -> None:
        self._said, self._error = messages, error or Unreachable("it broke off")

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        for piece in self._said:
            yield TextDelta(piece)
        raise self._error


class Saying:
    """Streams exactly these deltas."""

    def __init__(self, *deltas: Delta) -> None:
        self._deltas = deltas

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        for delta in self._deltas:
            yield delta


@pytest.mark.parametrize("make", [TextProtocol, CallProtocolSelector])
def test_stream_that_breaks_off_calls_nothing(
    make: type[TextProtocol] | type[CallProtocolSelector],
) -> None:
    assert calls(read_until_error(make(Breaking(f"{TAGGED}\n")))) == []


def read_until_error(provider: Provider) -> list[Delta]:
    async def main() -> list[Delta]:
        received: list[Delta] = []
        try:
            async with aclosing(provider.stream(ASKED)) as deltas:
                async for delta in deltas:
                    received.append(delta)
        except Unreachable:
            return received
        raise AssertionError("it did not break")

    return anyio.run(main)


def test_native_and_text_calls_of_one_answer_are_numbered_separately() -> None:
    both = Reply(TAGGED, calls=(("look", "{}"),))

    (deltas,) = ask(TextProtocol(ScriptedProvider(both)))

    assert calls(deltas) == [("look", "{}"), *BOOKED]


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_works_with_the_text_protocol(wire: WireName) -> None:
    async def main() -> list[Delta]:
        async with open_wire(wire, answer(wire, Reply(f"So.\n{TAGGED}"))) as (provider, _):
            model_request = request(*CONVERSATION, tools=TOOLS)
            return await stream_deltas(TextProtocol(provider), model_request)

    deltas = anyio.run(main)

    assert (words(deltas), calls(deltas), stop(deltas)) == ("So.\n", BOOKED, "calls")


NO_TOOLS = (
    'Ollama refused the request for Ollama\'s "m-1" (400): '
    "registry.ollama.ai/library/gemma3:4b does not support tools",
    "400 codellama:latest does not support tools",
    "This model doesn't support tool use in streaming mode.",
    "deepseek-r1 does not support function calling",
    "Model deepseek-r1:v14 does not support tool call, but you have assigned some",
    "Function calling is not enabled for models/gemma-3-12b-it",
    "tools is not supported in this model. For a list of supported models, refer to",
    "<400> InternalError.Algo.InvalidParameter: The tool call is not supported.",
    "400 Function call is not supported for this model.",
    "`tool calling` is not supported with this model",
    'No endpoints found that support tool use. Try disabling "question".',
    "No endpoints found that support the provided 'tool_choice' value.",
    '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    "tools param requires --jinja flag",
    "Unsupported param: tools",
    "Error: Jinja Exception: Only user, system and assistant roles are supported!",
    "Only user and assistant roles are supported!",
)
OTHER = (
    "the model does not support images",
    "Function calling with a response mime type: 'application/json' is unsupported",
    "Tool call validation failed: parameters did not match the schema",
    "the tools you sent are too many",
)


@pytest.mark.parametrize("text", NO_TOOLS)
def test_refusal_of_tools_is_retried_with_the_text_protocol(text: str) -> None:
    inner = ScriptedProvider(Refused(text), TAGGED, "Done.")
    provider = CallProtocolSelector(inner)

    first, second = ask(provider, ASKED, ASKED)

    assert calls(first) == BOOKED
    assert notices(first) == [
        "m-1 takes no tools; refold reads its calls from its text from now on "
        "(the setting text_tools does so from the start)"
    ]
    assert (words(second), notices(second)) == ("Done.", [])
    assert [bool(item.tools) for item in inner.heard] == [True, False, False]


@pytest.mark.parametrize("error", [*map(Refused, OTHER), TooLong(NO_TOOLS[0])])
def test_refusal_for_another_reason_is_raised(error: ProviderError) -> None:
    with pytest.raises(type(error), match=str(error).split(" ")[0]):
        ask(CallProtocolSelector(ScriptedProvider(error)))


@pytest.mark.parametrize("text", [Refused(NO_TOOLS[0]), TAGGED])
def test_text_call_model_is_remembered_for_the_next_session(
    tmp_path: Path, text: ProviderError | str
) -> None:
    first = TextCallModels(tmp_path, "lab", "http://127.0.0.1:1/v1")
    ask(
        with_call_protocol(
            ScriptedProvider(text, TAGGED),
            "lab",
            "openai-chat",
            "m-1",
            text_call_models=first,
        ),
        ASKED,
    )

    again = TextCallModels(tmp_path, "lab", "http://127.0.0.1:1/v1")
    other = TextCallModels(tmp_path, "lab", "http://127.0.0.1:2/v1")
    inner = ScriptedProvider(TAGGED)
    (deltas,) = ask(
        with_call_protocol(inner, "lab", "openai-chat", "m-1", text_call_models=again),
        ASKED,
    )

    assert ("m-1" in again, "m-2" in again, "m-1" in other) == (True, False, False)
    assert (calls(deltas), notices(deltas)) == (BOOKED, [])
    assert [bool(item.tools) for item in inner.heard] == [False]


def test_text_call_model_is_forgotten_after_a_month(
    tmp_path: Path,
) -> None:
    models = TextCallModels(tmp_path, "lab", "")
    models.add("m-1")
    (file,) = (tmp_path / "models" / "tools-as-text").iterdir()
    os.utime(file, (0, 0))

    assert "m-1" not in models
    nowhere = TextCallModels(tmp_path / "models" / "tools-as-text" / file.name, "lab", "")
    nowhere.add("m-1")  # a file stands where its directory would be
    assert "m-1" not in nowhere


def test_server_error_500_about_tools_is_retried_with_the_text_protocol() -> None:
    inner = ScriptedProvider(Overloaded("500: tools param requires --jinja flag"), TAGGED)

    (deltas,) = ask(RetryingProvider(CallProtocolSelector(inner), Backoff(retries=0)))

    assert calls(deltas) == BOOKED


def test_refusal_of_tools_in_a_request_without_tools_is_raised() -> None:
    with pytest.raises(Refused):
        ask(
            CallProtocolSelector(ScriptedProvider(Refused(NO_TOOLS[0]))),
            request(message("user", "So?")),
        )


WRITTEN = (
    TAGGED, f"\n{CALL}\n", f"```json\n{CALL}\n```\n", f"[{CALL}]", f"[TOOL_CALLS][{CALL}]",
    f"<think>So.</think>\n{CALL}",
)  # fmt: skip


@pytest.mark.parametrize("written", WRITTEN)
def test_model_that_writes_a_call_as_text_uses_the_text_protocol_from_then_on(
    written: str,
) -> None:
    inner = ScriptedProvider(written, "Done.")
    provider = CallProtocolSelector(inner)

    first, second = ask(provider, ASKED, ASKED)

    assert (calls(first), stop(first)) == (BOOKED, "calls")
    assert words(first).strip() == ("<think>So.</think>" if "So" in written else "")
    assert notices(first) == [
        "m-1 writes its tool calls as text; refold reads its calls from its text from now on "
        "(the setting text_tools does so from the start)"
    ]
    assert (words(second), notices(second)) == ("Done.", [])
    assert [bool(item.tools) for item in inner.heard] == [True, False]


@pytest.mark.parametrize("make", [TextProtocol, CallProtocolSelector])
def test_several_text_calls_are_made_in_order(
    make: type[TextProtocol] | type[CallProtocolSelector],
) -> None:
    look = '{"name": "look", "arguments": {}}'
    text = f"{TAGGED}\n\n<tool_call>{look}</tool_call>\n"

    (deltas,) = ask(make(ScriptedProvider(text)))

    assert (words(deltas), calls(deltas)) == ("", [*BOOKED, ("look", "{}")])


LEFT_ALONE: tuple[Line, ...] = (
    "It is booked.",
    f"poison.txt says:\n{TAGGED}",
    f"poison.txt says:\n\n{TAGGED}\n\nThat books one.",
    f"poison.txt says:\n\n{CALL}",
    f"poison.txt says:\n```\n{TAGGED}\n```",
    f"> {TAGGED}",
    f"    {TAGGED}",
    f"`{TAGGED}`",
    f"{TAGGED}\nand\n{TAGGED}",
    f"{TAGGED}\n<tool_result>\nbooked\n</tool_result>",
    f"{TAGGED}\n<tool_call>",
    '<tool_call>\n{"name":"book","argum',
    '{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}',
    f"{CALL}\nThat would book one.",
    f"You could write:\n```json\n{CALL}\n```",
    f"Write {TAGGED} for that.",
    '<tool_call>{"name": "walk", "arguments": {}}</tool_call>',
    '{"name": "book", "arguments": {"from": "here"}}',
    '<tool_call>{"name": "book", "arguments": {"to": here}}</tool_call>',
    Reply(TAGGED, stop="length"),
    Reply(TAGGED, stop="refused"),
)


@pytest.mark.parametrize("line", LEFT_ALONE)
def test_partial_text_call_stays_text(line: Line) -> None:
    inner = ScriptedProvider(line, "Done.")

    first, _ = ask(CallProtocolSelector(inner), ASKED, ASKED)

    text = line.text if isinstance(line, Reply) else line
    assert (words(first), calls(first), notices(first)) == (text, [], [])
    assert [item.tools for item in inner.heard] == [TOOLS, TOOLS]


def test_text_call_beside_a_native_call_is_not_made() -> None:
    inner = ScriptedProvider(Reply(TAGGED, calls=(("book", "{}"),)))

    (deltas,) = ask(CallProtocolSelector(inner))

    assert (words(deltas), calls(deltas), notices(deltas)) == (TAGGED, [("book", "{}")], [])


def test_text_call_of_a_model_that_called_natively_stays_text() -> None:
    other = request(message("user", "So?"), tools=TOOLS, model="m-2")
    inner = ScriptedProvider([("look", "{}")], TAGGED, TAGGED)

    own, quoted, others = ask(CallProtocolSelector(inner), ASKED, ASKED, other)

    assert calls(own) == [("look", "{}")]
    assert (words(quoted), calls(quoted), notices(quoted)) == (TAGGED, [], [])
    assert calls(others) == BOOKED


def test_text_after_a_native_call_is_text() -> None:
    own = CallDelta(0, "{}", name="look")

    (deltas,) = ask(CallProtocolSelector(Saying(own, TextDelta(TAGGED), Done())))

    assert (words(deltas), calls(deltas)) == (TAGGED, [("look", "{}")])


def test_refusal_of_tools_in_the_middle_of_an_answer_is_raised() -> None:
    with pytest.raises(Refused):
        ask(CallProtocolSelector(Breaking("I am", error=Refused(NO_TOOLS[0]))))


def test_only_the_model_that_wrote_a_text_call_uses_the_text_protocol() -> None:
    inner = ScriptedProvider(TAGGED, TAGGED, "Done.", "Done.")
    other = request(message("user", "So?"), tools=TOOLS, model="m-2")

    ask(CallProtocolSelector(inner), ASKED, ASKED, other, ASKED)

    assert [(a.model, bool(a.tools)) for a in inner.heard] == [
        ("m-1", True),
        ("m-1", False),
        ("m-2", True),
        ("m-1", False),
    ]


def test_text_calls_stay_text_when_detection_is_off() -> None:
    (deltas,) = ask(CallProtocolSelector(ScriptedProvider(TAGGED), from_responses=False))

    assert (words(deltas), calls(deltas)) == (TAGGED, [])


def test_text_before_an_error_is_streamed_while_calls_are_detected() -> None:
    for text in ("Wait, I think { so } it", f"So:\n{TAGGED}", "So:\n<tool_call>{"):
        assert words(read_until_error(CallProtocolSelector(Breaking(text)))) == text


BEGINNINGS = (
    '{"city": "Bergen", "ra',
    '{"name": "Ada", ',
    '{"name": "Ada Lovelace"',
    '{"id": 7, "title": "T',
    '{"type": "object", "prop',
    "[1, 2, ",
    '[{"name": "Ada", "age"',
    '["name", "a',
    '{"id": "a\\"b", "type": null, "so": ',
    '```json\n{"name": "Ada", "',
    '{"This is no JSON, but',
)


@pytest.mark.parametrize("begun", BEGINNINGS)
def test_json_that_is_not_a_call_streams_before_its_end(begun: str) -> None:
    at_once = words(read_until_error(CallProtocolSelector(Breaking(begun))))
    in_pieces = words(read_until_error(CallProtocolSelector(Breaking(*begun))))

    assert at_once == in_pieces == begun


TO = b'{"type":"object","properties":{"name":{},"to":{}},"required":["name","to"]}'
LIKE_A_CALL = b'{"type":"object","required":["name","arguments"]}'
ASKED_FOR = (
    (TO, '{"name": "book", "to": "the station"}'),
    (TO, '```json\n{"name": "book", "to": "the station"}\n```\n'),
    (LIKE_A_CALL, CALL),
    (LIKE_A_CALL, f"```json\n{CALL}\n```"),
    (LIKE_A_CALL, f"So:\n```json\n{CALL}\n```"),
    (LIKE_A_CALL, f"```json\n{CALL}\n```\nThat is all."),
    (b'{"properties":{"name":{"type":"string"}}}', '{\n  "name": "Ada"\n}'),
)


@pytest.mark.parametrize("make", [TextProtocol, CallProtocolSelector])
@pytest.mark.parametrize(("schema", "text"), ASKED_FOR)
def test_json_answer_that_matches_the_schema_is_not_taken_as_a_call(
    schema: bytes, text: str, make: type[TextProtocol] | type[CallProtocolSelector]
) -> None:
    with_schema = replace(ASKED, schema=Raw(schema))

    (deltas,) = ask(make(ScriptedProvider(text)), with_schema)

    assert (words(deltas), calls(deltas), stop(deltas)) == (text, [], "end")
    assert notices(deltas) == []


@pytest.mark.parametrize("make", [TextProtocol, CallProtocolSelector])
@pytest.mark.parametrize("text", [CALL, TAGGED, f"```json\n{CALL}\n```"])
def test_json_call_that_does_not_match_the_schema_is_a_call(
    text: str, make: type[TextProtocol] | type[CallProtocolSelector]
) -> None:
    (deltas,) = ask(make(ScriptedProvider(text)), replace(ASKED, schema=Raw(TO)))

    assert (words(deltas).strip(), calls(deltas), stop(deltas)) == ("", BOOKED, "calls")


@pytest.mark.parametrize("make", [TextProtocol, CallProtocolSelector])
@pytest.mark.parametrize("schema", [b'"none"', b'{"$ref":"#/so"}'])
def test_invalid_schema_does_not_prevent_a_call(
    schema: bytes, make: type[TextProtocol] | type[CallProtocolSelector]
) -> None:
    (deltas,) = ask(make(ScriptedProvider(CALL)), replace(ASKED, schema=Raw(schema)))

    assert calls(deltas) == BOOKED


@pytest.mark.parametrize(
    ("provider", "model", "needs"),
    [
        ("ollama", "gemma3:4b", False),
        ("gemini", "gemma-3-27b-it", True),
        ("gemini", "models/gemma-3n-e4b-it", True),
        ("gemini", "gemma-4-31b-it", False),
        ("gemini", "gemini-3.8-flash", False),
        ("vllm", "gemma3", False),
    ],
)
def test_models_known_to_need_the_text_protocol_are_recognized(
    provider: str, model: str, needs: bool
) -> None:
    assert needs_text(provider, model) is needs


def test_tools_setting_takes_precedence_over_the_list_of_text_models() -> None:
    inner = ScriptedProvider()

    def protocol_of(model: str, tools: Tools = "auto") -> str:
        protocol = with_call_protocol(inner, "gemini", "gemini", model, tools)
        return "native" if protocol is inner else type(protocol).__name__

    assert protocol_of("gemma-3-4b-it") == "TextProtocol"
    assert protocol_of("gemini-3") == "CallProtocolSelector"
    assert protocol_of("gemma-3-4b-it", "native") == "native"
    assert protocol_of("gemini-3", "text") == "TextProtocol"


@pytest.mark.parametrize(
    ("model", "patterns", "expected"),
    [
        ("gemma-2-9b-it", ["gemma*"], "text"),
        ("google/gemma-2-9b-it", ["gemma*"], "text"),
        ("google/Gemma-2-9b-it", ["Google/gemma-?-*"], "text"),
        ("gemma3:4b", ["phi*", "gemma3:*"], "text"),
        ("codegemma", ["gemma*"], "native"),
        ("gemma/codestral", ["gemma"], "native"),
        ("gemma3:4b", ["gemma3"], "native"),
        ("gemma3", [], "native"),
    ],
)
def test_text_tools_setting_selects_models_by_pattern(
    model: str, patterns: list[str], expected: Tools
) -> None:
    assert choose_protocol(model, "native", patterns) == expected


@pytest.mark.parametrize("tools", ["auto", "native", "text"])
def test_models_that_match_no_pattern_follow_the_provider_setting(tools: Tools) -> None:
    assert choose_protocol("qwen3", tools, ["gemma*"]) == tools
