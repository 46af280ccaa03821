"""How a conversation is encoded for a small model, and how its responses become calls."""

from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec import Raw

from refold.prompts.presets import SMALL_TOOLS, small_system, small_tool
from refold.provider.local.embedded import LocalStreamState, call_schema, plain_request
from refold.provider.port import CallDelta, Delta, Request, TextDelta
from refold.tools.builtin import builtin
from refold.tools.turn_control import finish
from refold.values.control import Final
from refold.values.growing import Log
from refold.values.messages import (
    Message,
    Role,
    StoredMessage,
    Text,
    ToolCall,
    ToolResult,
)
from refold.values.tools import ToolSpec

SHORT = (small_tool(tool.spec) for tool in (*builtin(), finish))
TOOLS = tuple(spec for spec in SHORT if spec)
LOOK = ToolSpec(
    "look",
    "look\n out",
    Raw(b'{"type":"object","properties":{"where":{"type":"string"}},"required":["where"]}'),
)


def message(role: Role, *parts: Any) -> Message:
    return Message(role, tuple(Text(p) if isinstance(p, str) else p for p in parts))


def call(id_: str, name: str = "look", arguments: bytes = b'{"where":"up"}') -> Message:
    return message("assistant", ToolCall(id_, name, Raw(arguments)))


def result(id_: str, text: str, *, failed: bool = False) -> Message:
    return message("tool", ToolResult(id_, text, failed))


def request(*messages: Message, **fields: Any) -> Request:
    spoken = [StoredMessage(n, m) for n, m in enumerate(messages, start=1)]
    return Request(Log(spoken), **{"system": "Be brief.", "tools": (LOOK,), **fields})


def render_messages(request: Request) -> list[tuple[str, str]]:
    return [(s.message.role, s.message.text) for s in plain_request(request).messages]


def list_offered_tools(request: Request) -> list[str]:
    schema = call_schema(request)
    assert schema is not None
    return [item["properties"]["tool"]["const"] for item in schema["anyOf"]]


def read_deltas(request: Request, answer: str) -> list[Delta]:
    """Return what an answer means that comes in single characters."""
    reading = LocalStreamState(request)
    deltas = [delta for character in answer for delta in reading.feed(character)]
    return [*deltas, *reading.end()]


def read_call(request: Request, answer: str) -> tuple[str, Any]:
    deltas = [d for d in read_deltas(request, answer) if isinstance(d, CallDelta)]
    name, arguments = "".join(d.name for d in deltas), "".join(d.arguments for d in deltas)
    return name, msgspec.json.decode(arguments)


def test_small_model_system_prompt_lists_one_tool_per_line() -> None:
    model_request = plain_request(request(message("user", "Look up.")))

    assert model_request.tools == ()
    assert model_request.system == snapshot("""\
Be brief.

Reply with one JSON object: {"tool": NAME, "arguments": {...}}

Tools:
- look(where): look out
- finish(answer): end, and tell the person the answer\
""")


def test_small_model_reads_calls_as_json_and_results_as_plain_text() -> None:
    model_request = request(
        message("user", "Look up."),
        call("1"),
        result("1", "a cloud"),
        message("user", "<reminder>Hurry.</reminder>"),
        call("2"),
        result("2", "too dark", failed=True),
        message("assistant", "It is dark."),
        message("user", "Thanks."),
    )

    assert render_messages(model_request) == snapshot(
        [
            ("user", "Look up."),
            ("assistant", '{"tool": "look", "arguments": {"where": "up"}}'),
            (
                "user",
                "Result:\na cloud\n\n"
                "If the task is done call finish with the answer, else call the next tool.",
            ),
            ("user", "<reminder>Hurry.</reminder>"),
            ("assistant", '{"tool": "look", "arguments": {"where": "up"}}'),
            (
                "user",
                "It failed:\ntoo dark\n\n"
                "If the task is done call finish with the answer, else call the next tool.",
            ),
            ("assistant", '{"tool": "finish", "arguments": {"answer": "It is dark."}}'),
            ("user", "Thanks."),
        ]
    )


def test_small_model_request_only_grows_at_its_end() -> None:
    conversation = [
        message("user", "Look."),
        call("1"),
        result("1", "a"),
        call("2"),
        result("2", "b"),
    ]

    for length in range(1, len(conversation)):
        before, after = (
            request(*conversation[:length]),
            request(*conversation[: length + 1]),
        )
        assert render_messages(after)[:length] == render_messages(before)
        assert plain_request(after).system == plain_request(before).system


def test_answers_are_sent_as_plain_text_when_there_are_no_tools() -> None:
    conversation = (message("user", "Go."), message("assistant", "```python\nx\n```"))

    assert render_messages(request(*conversation, tools=())) == [
        ("user", "Go."),
        ("assistant", "```python\nx\n```"),
    ]


def test_line_numbers_are_sent_with_colons_so_that_they_are_not_read_as_digits() -> None:
    model_request = request(
        call("1", "read_file"), result("1", "1\t4217\n2\tx\ty\n(2 lines)")
    )

    assert render_messages(model_request)[1][1].startswith(
        "Result:\n1: 4217\n2: x\ty\n(2 lines)\n"
    )


def test_long_result_is_cut_in_the_middle() -> None:
    model_request = request(call("1"), result("1", "a" * 5000 + "b" * 5000))

    text = render_messages(model_request)[1][1]
    assert "a" * 2000 + "\n[6,000 characters are not shown]\n" + "b" * 2000 in text


def test_json_answer_of_a_small_model_is_parsed_as_a_call() -> None:
    answer = '{"tool": "look", "arguments": {"where": "a \\"} b"}}'

    assert read_call(request(), answer) == ("look", {"where": 'a "} b'})


@pytest.mark.parametrize("gap", ["", " ", "\n    "])
def test_small_model_call_is_parsed_with_any_whitespace(gap: str) -> None:
    pieces = [
        "{",
        '"tool"',
        ":",
        '"look"',
        ",",
        '"arguments"',
        ":",
        '{"where":"}"}',
        "}",
        "",
    ]

    assert read_call(request(), gap.join(pieces)) == ("look", {"where": "}"})


def test_finish_call_becomes_answer_text_unless_finish_is_a_tool() -> None:
    answer = '{"tool": "finish", "arguments": {"answer": "It is \\u2602."}}'

    assert read_deltas(request(), answer) == [TextDelta("It is ☂.")]
    own = request(tools=(LOOK, finish.spec))
    assert read_call(own, answer) == ("finish", {"answer": "It is ☂."})


def test_small_model_is_offered_only_finish_when_calls_are_not_allowed() -> None:
    model_request = request(tools=(LOOK, finish.spec), tool_choice="none")

    assert list_offered_tools(model_request) == ["finish"]
    answer = '{"tool": "finish", "arguments": {"answer": "So far: nothing."}}'
    assert read_deltas(model_request, answer) == [TextDelta("So far: nothing.")]


def test_text_that_is_not_a_call_stays_text() -> None:
    assert read_deltas(request(), "I cannot.") == [TextDelta("I cannot.")]


def test_finish_call_that_is_cut_off_keeps_its_text() -> None:
    assert read_deltas(request(), '{"tool": "finish", "arguments": {"answer": "It i') == [
        TextDelta('{"answer": "It i')
    ]


def test_next_step_instruction_follows_the_note_about_files() -> None:
    note, again = (
        "After that call:\n\na.txt (1 line):\nup",
        message("user", "<reminder>Hurry.</reminder>"),
    )
    model_request = request(
        message("user", "Look up."),
        call("1"),
        result("1", "ok"),
        message("user", note),
        again,
    )

    assert render_messages(model_request)[2:] == [
        ("user", "Result:\nok"),
        (
            "user",
            f"{note}\n\n"
            "If the task is done call finish with the answer, else call the next tool.",
        ),
        ("user", "<reminder>Hurry.</reminder>"),
    ]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("finish(report.txt)", "report.txt"),
        ("finish('It is 3.')", "It is 3."),
        ("finish", ""),
    ],
)
def test_finish_written_as_a_shell_command_ends_the_turn(command: str, answer: str) -> None:
    text = f'{{"tool": "look", "arguments": {{"where": "{command}"}}}}'

    assert read_deltas(request(), text) == [TextDelta(answer)]


@pytest.mark.parametrize(
    "command", ["finish.sh now and then and again", "finishing", "echo finish(3)", "up"]
)
def test_shell_command_that_does_not_finish_stays_a_call(command: str) -> None:
    text = f'{{"tool": "look", "arguments": {{"where": "{command}"}}}}'

    assert read_call(request(), text) == ("look", {"where": command})


def test_small_model_request_without_tools_has_no_call_schema() -> None:
    model_request = request(message("user", "Hello."), tools=())

    assert call_schema(model_request) is None
    assert plain_request(model_request) == model_request


def test_every_tool_is_offered_along_with_finish() -> None:
    assert list_offered_tools(request()) == ["look", "finish"]
    assert list_offered_tools(request(tools=(LOOK, finish.spec))) == ["look", "finish"]


def test_call_repeated_with_the_same_result_leaves_only_finish() -> None:
    twice = (call("1"), result("1", "a"), call("2"), result("2", "a"))
    tools = (LOOK, finish.spec, TOOLS[0])

    assert list_offered_tools(request(*twice, tools=tools)) == ["finish"]
    assert list_offered_tools(request(*twice, message("user", "Go on."), tools=tools)) == [
        "finish"
    ]


def test_call_whose_repetition_was_rejected_leaves_only_finish() -> None:
    twice = (call("1"), result("1", "a"), call("2"), result("2", "Not done.", failed=True))

    assert list_offered_tools(request(*twice, tools=(LOOK, finish.spec, TOOLS[0]))) == [
        "finish"
    ]


def test_call_that_failed_twice_alike_is_left_out_of_the_offered_tools() -> None:
    twice = (
        *(call("1"), result("1", "a", failed=True)),
        *(call("2"), result("2", "a", failed=True)),
    )

    texts = list_offered_tools(request(*twice, tools=(LOOK, finish.spec, TOOLS[0])))

    assert texts == ["finish", "read_file"]


def test_calls_with_different_arguments_or_results_do_not_count_as_repeated() -> None:
    once = (call("1"), result("1", "a"))
    other = call("2", arguments=b'{"where":"down"}')

    assert list_offered_tools(request(*once)) == ["look", "finish"]
    assert list_offered_tools(request(*once, call("2"), result("2", "b"))) == [
        "look",
        "finish",
    ]
    assert list_offered_tools(request(*once, other, result("2", "a"))) == ["look", "finish"]


def test_small_model_prompt_stays_small() -> None:
    """The model's tokenizer counts 270 tokens; four characters for each token is close."""
    model_request = plain_request(request(system=small_system(), tools=TOOLS))

    assert len(model_request.system) / 4 < 350
    assert [tool.name for tool in TOOLS] == list(SMALL_TOOLS)


def test_short_tool_descriptions_have_the_arguments_of_the_full_tools() -> None:
    whole = {tool.name: tool for tool in (*builtin(), finish)}
    for spec in TOOLS:
        parameters = msgspec.json.decode(spec.parameters)
        assert list(parameters["properties"]) == list(SMALL_TOOLS[spec.name].takes)
        whole[spec.name].parse(
            msgspec.json.encode(dict.fromkeys(parameters["required"], "x"))
        )


def test_tool_without_a_short_description_is_left_out_for_small_models() -> None:
    assert small_tool(LOOK) is None


async def _finish() -> Any:
    return await finish.run(answer="42")


def test_finish_ends_the_turn_with_its_answer() -> None:
    import anyio

    assert anyio.run(_finish).control == Final("42")
