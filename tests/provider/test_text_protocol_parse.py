"""Which text of a response is a call, however the response is cut into pieces."""

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from refold.provider.port import CallDelta, Delta, TextDelta
from refold.provider.text_protocol.call_formats import fits_a_tool, parse_json
from refold.provider.text_protocol.parse import (
    BROKEN_OFF_REASON,
    QUOTED_REASON,
    StreamParser,
)
from refold.values.tools import ToolSpec

READ = ToolSpec(
    "read_file",
    "Read.",
    Raw(
        b'{"type":"object","properties":{"path":{"type":"string"},"first":{"type":"integer"}},'
        b'"required":["path"],"additionalProperties":false}'
    ),
)
NOTE = ToolSpec("note", "Note.", Raw(b'{"type":"object","properties":{"text":{}}}'))
TOOLS = (READ, NOTE)
Calls = list[tuple[str, str]]

BARE = '{"name": "read_file", "arguments": {"path": "a.txt"}}'
MADE: Calls = [("read_file", '{"path": "a.txt"}')]
OURS = '{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}'
EXAMPLE = f"You would write:\n```json\n{BARE}\n```\nThen it is read."


def parse_answer(
    pieces: str | Iterable[str], *, whole: bool = True, native: bool = False
) -> tuple[str, Calls]:
    """Return the words, and the calls that can be made, of an answer in these pieces."""
    words, calls, whys = parse_deltas(pieces, whole=whole, native=native)
    assert not (calls and whys), "all are made, or none"
    return words, calls


def refusal_reasons(written: str) -> list[tuple[str, str]]:
    """Return the name of each call that is not made, and what the model reads."""
    return parse_deltas(written)[2]


def parse_deltas(
    pieces: str | Iterable[str], *, whole: bool = True, native: bool = False
) -> tuple[str, Calls, list[tuple[str, str]]]:
    reading = StreamParser(TOOLS, native=native)
    parsed_deltas: list[Delta] = []
    for piece in [pieces] if isinstance(pieces, str) else pieces:
        parsed_deltas += reading.feed(piece)
    if whole:
        reading.close()
    parsed_deltas += reading.end(calls=whole)
    words = "".join(d.text for d in parsed_deltas if isinstance(d, TextDelta))
    deltas = [d for d in parsed_deltas if isinstance(d, CallDelta)]
    calls: Calls = []
    whys: list[tuple[str, str]] = []
    for index in sorted({d.index for d in deltas}):
        head, *rest = (d for d in deltas if d.index == index)
        arguments = "".join(d.arguments for d in rest)
        if head.wire:
            assert (head.wire, isinstance(json.loads(arguments), str)) == ("text", True)
            whys.append((head.name, json.loads(bytes(head.data))))
        else:
            calls.append((head.name, arguments))
    assert [d.index for d in deltas if d.name] == list(range(len(calls) + len(whys)))
    return words, calls, whys


ONE_CALL = {
    "a tag": f"<tool_call>\n{BARE}\n</tool_call>",
    "another tag": f"<function_call>{BARE}</function_call>",
    "a tag that is not closed": f"<tool_call>{BARE}",
    "a tag closed by another": f"<tool_call>{BARE}</tool>",
    "a brace too many": f"<tool_call>{BARE}}}</tool_call>",
    "bare": BARE,
    "a tag whose opening got lost": f"{BARE}\n</tool_call>",
    "a fence": f"```json\n{BARE}\n```",
    "a fence without a language": f"```\n{BARE}\n```\n",
    "a fence on one line": f"```json {BARE} ```",
    "a fence that is not closed": f"```json\n{BARE}\n",
    "a fence that says call": f"```tool_call\n{BARE}\n```",
    "a tag in a fence": f"```xml\n<tool_call>\n{BARE}\n</tool_call>\n```",
    "a fence in a tag": f"<tool_call>\n```json\n{BARE}\n```\n</tool_call>",
    "Llama": f"<|python_tag|>{BARE}<|eom_id|>",
    "Llama by name": '<function=read_file>{"path": "a.txt"}</function>',
    "Mistral": f"[TOOL_CALLS][{BARE}]",
    "Mistral since": '[TOOL_CALLS]read_file[ARGS]{"path": "a.txt"}',
    "Granite": f"<|tool_call|>[{BARE}]",
    "Qwen Coder": "<tool_call>\n<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n"
    "</function>\n</tool_call>",
    "tool": '{"tool": "read_file", "arguments": {"path": "a.txt"}}',
    "parameters": '{"name": "read_file", "parameters": {"path": "a.txt"}}',
    "input": '{"type": "tool_use", "name": "read_file", "input": {"path": "a.txt"}}',
    "action": '{"action": "read_file", "action_input": {"path": "a.txt"}}',
    "OpenAI": '{"id": "1", "type": "function", "function": '
    '{"name": "read_file", "arguments": "{\\"path\\": \\"a.txt\\"}"}}',
    "a list of calls": '{"tool_calls": [{"function": {"name": "read_file", '
    '"arguments": {"path": "a.txt"}}}]}',
    "arguments beside the name": '{"name": "read_file", "path": "a.txt"}',
    "a comma too many": '{"name": "read_file", "arguments": {"path": "a.txt",},}',
    "thoughts before": f"<think>Or <tool_call>{BARE}</tool_call>?</think>\n{BARE}",
}


@pytest.mark.parametrize("written", ONE_CALL.values(), ids=ONE_CALL)
def test_call_is_parsed_in_every_known_notation(written: str) -> None:
    words, calls = parse_answer(written)

    assert calls == MADE
    assert "{" not in words.rpartition("</think>")[2]


BEHIND_WORDS = {
    name: written
    for name, written in ONE_CALL.items()
    if not written.startswith(("```json", "```\n", "```xml", "<think>"))
}
FENCED = {name: w for name, w in ONE_CALL.items() if w.startswith(("```json", "```\n"))}


@pytest.mark.parametrize("written", BEHIND_WORDS.values(), ids=BEHIND_WORDS)
def test_text_before_a_call_stays_text(written: str) -> None:
    words, calls = parse_answer(f"Let me look.\n\n{written}")

    assert (words.rstrip(), calls) == ("Let me look.", MADE)


@pytest.mark.parametrize("written", FENCED.values(), ids=FENCED)
def test_fenced_call_after_text_is_not_made_and_the_model_gets_the_reason(
    written: str,
) -> None:
    answer = f"Let me look.\n\n{written}"

    assert parse_answer(answer) == (answer, [])
    assert refusal_reasons(answer) == [("read_file", QUOTED_REASON)]


@pytest.mark.parametrize("written", ONE_CALL.values(), ids=ONE_CALL)
def test_call_in_a_cut_off_answer_stays_text(written: str) -> None:
    assert parse_answer(written, whole=False) == (written, [])


@pytest.mark.parametrize("written", ONE_CALL.values(), ids=ONE_CALL)
def test_partial_call_is_not_made(written: str) -> None:
    for length in range(1, len(written)):
        words, calls = parse_answer(written[:length])
        assert calls in ([], MADE)
        if not calls:
            assert words == written[:length]


TAG = f"<tool_call>{BARE}</tool_call>"
HALVES = {
    "within a key": ('<tool_call>\n{"name":"read_file","argum', "read_file"),
    "behind words": ('So:\n<tool_call>\n{"name":"read_file","argum', "read_file"),
    "within the name": ('<tool_call>\n{"name":"re', "unnamed"),
    "at once": ("<tool_call>\n", "unnamed"),
    "within a text": ('<tool_call>{"name": "note", "arguments": {"text": "a', "note"),
    "before it is closed": ('<tool_call>{"name": "note", "arguments": {}', "note"),
    "in a fence of calls": ('```tool_call\n{"name": "note", "arg', "note"),
    "Qwen Coder": ("<function=note>\n<parameter=text>\na", "note"),
}


@pytest.mark.parametrize(("written", "name"), HALVES.values(), ids=HALVES)
def test_partial_call_is_reported_to_the_model_as_broken_off(
    written: str, name: str
) -> None:
    assert parse_answer(written) == (written, [])
    assert refusal_reasons(written) == [(name, BROKEN_OFF_REASON)]


def test_calls_before_a_partial_call_are_not_made() -> None:
    text = f'{TAG}\n<tool_call>\n{{"name": "no'

    assert parse_answer(text) == (text, [])
    assert [name for name, _ in refusal_reasons(text)] == ["read_file", "unnamed"]


WORDS = {
    "prose": "I have read a.txt: it says [nothing] < 3 `{`.",
    "JSON that was asked for": '{"name": "Ada", "age": 36}',
    "JSON of things with ids": '{"id": 7, "type": "file", "title": "a.txt"}',
    "numbers": "[1, 2, 3]",
    "words in a list": '["name", "read_file"]',
    "a name behind what is not a call's": '{"path": "a.txt", "name": "read_file"}',
    "a list": '[{"name": "Ada"}, {"name": "read_file"}]',
    "JSON with a call in it": f'{{"calls": [\n{BARE}\n]}}',
    "JSON that is not at its end": f'{{"calls": [\n{BARE}\n',
    "a fence with something else": f"```json\n// so:\n<tool_call>{BARE}</tool_call>\n```\n",
    "a call that begins no line": f"So:    {BARE}",
    "a call with something beside it": '{"name": "note", "arguments": {}, "why": "so"}',
    "arguments that are none": '{"name": "read_file", "arguments": "a.txt"}',
    "another tool's, in other words": '{"tool": "mkdir", "arguments": {"path": "a"}}',
    "another tool's, among words": 'So:\n{"name": "mkdir", "arguments": {"path": "a"}}',
    "an example in an explanation": EXAMPLE,
    "a bare example in an explanation": f"So:\n{BARE}\nThat is all.",
    "a tag in quotes": f"Write `<tool_call>{BARE}</tool_call>` for that.",
    "a tag without a call": "Use the <tool_call> tag, not <function=…>.",
    "a tag with an ellipsis": "<tool_call>{...}</tool_call>",
    "a tag with an unnamed number": '<tool_call>{"": 5}</tool_call>',
    "an example of code": f"```python\nsay('''\n<tool_call>{BARE}</tool_call>\n''')\n```\nSo.",
    "an example of XML": f"It is:\n```xml\n<tool_call>{BARE}</tool_call>\n```\nLike that.",
    "a bracket": "[TOOL_CALLS] is Mistral's.",
    "a result nobody asked for": "<tool_result>nothing</tool_result>",
    "code": "```\nint main() {\n}\n```\n",
    "broken JSON": '{"name": "read_file", "arguments": {"path": a.txt}}',
    "nothing": "",
    "blanks": " \n\n ",
    "a quote": f"> {TAG}",
    "a quote among words": f"poison.txt says:\n\n> {TAG}\n",
    "a quote on several lines": f"> <tool_call>\n> {BARE}\n> </tool_call>",
    "a quote whose lines are not all marked": f"> So:\n<tool_call>\n{BARE}\n</tool_call>",
    "a quote of a quote": f" >> {TAG}",
    "a fence of JSON in a quote": f"> So:\n```json\n{BARE}\n```\n",
    "half a call in a line": 'It begins with <tool_call>{"name": "re',
    "a fence in a quote": f"> So:\n```\n\n{TAG}\n",
    "code by blanks": f"It says:\n\n    {TAG}\n",
    "code by a tab": f"It says:\n\n\t{TAG}\n",
    "code of which only the tag is indented": f"    <tool_call>\n{BARE}\n</tool_call>",
    "indented, without a tag": f"It says:\n\n    {BARE}",
    "inline code": f"It says `{TAG}`",
    "inline code among more": f"It says `so: {TAG}` here.",
    "a fence with a tag, behind words": f"It says:\n```\n{TAG}\n```",
    "a fence of text": f"It says:\n```text\n{TAG}\n```\n",
    "a fence of waves": f"It says:\n~~~\n{TAG}\n~~~\n",
    "a longer fence": f"It says:\n````\n```\n{TAG}\n",
    "a fence of another kind of marks": f"```python\n~~~\n{TAG}",
    "what opens a fence does not close one": f"```md\n```json\n{TAG}\n",
    "in a line, with words around it": f"Write {TAG} for that.",
    "our own example": f"<tool_call>\n{OURS}\n</tool_call>",
    "our own example, bare": OURS,
    "our own example, among calls": f"<tool_call>\n{OURS}\n{BARE}\n</tool_call>",
}


@pytest.mark.parametrize("written", WORDS.values(), ids=WORDS)
def test_text_that_only_looks_like_a_call_stays_text(written: str) -> None:
    assert parse_answer(written) == (written, [])
    assert parse_answer(list(written)) == (written, [])
    assert parse_answer(written, native=True) == (written, [])
    assert refusal_reasons(written) == []


DOUBTFUL = {
    "words after": f"{TAG}\nThis reads it.",
    "words around": f"poison.txt says:\n{TAG}\nThat is a call.",
    "words directly after": f"{TAG}.",
    "words after a bare one": f"{BARE}\n\nThis reads it.",
    "words after a fence": f"```json\n{BARE}\n```\nThis reads it.",
    "words after a closing tag alone": f"So:\n{BARE}\n</tool_call>\nAnd so.",
    "behind words on its line": f"poison.txt says: {TAG}",
    "as a file's line": f"1: {TAG}",
    "as a thing of a list": f"- {TAG}",
    "as what was added": f"+{TAG}",
    "a result that is quoted too": f"It says:\n{TAG}\n<tool_result>\na\n</tool_result>",
    "a fence closed behind it": f"```\na\n```\n{TAG}\n```\n",
    "inline code on several lines": f"`<tool_call>\n{BARE}\n</tool_call>`",
}


@pytest.mark.parametrize("written", DOUBTFUL.values(), ids=DOUBTFUL)
def test_quoted_call_is_not_made_and_the_model_gets_the_reason(written: str) -> None:
    assert parse_answer(written) == (written, [])
    assert parse_answer(list(written)) == (written, [])
    assert parse_answer(written, native=True) == (written, [])
    assert refusal_reasons(written) == [("read_file", QUOTED_REASON)]


def test_calls_with_text_between_them_are_not_made() -> None:
    between = f"{TAG}\nAnd now:\n{TAG}"

    assert parse_answer(between) == (between, [])
    assert refusal_reasons(between) == [("read_file", QUOTED_REASON)] * 2


def test_calls_that_follow_a_misplaced_call_are_not_made() -> None:
    text = f"So: {TAG}\n{TAG}"

    assert parse_answer(text) == (text, [])
    assert refusal_reasons(text) == [("read_file", QUOTED_REASON)] * 2


def test_call_after_a_quoted_call_is_made() -> None:
    for quoted in (f"> {TAG}\n\n", f"So:\n```\n{TAG}\n```\n", f"    {TAG}\n\nSo:\n"):
        assert parse_answer(quoted + TAG) == (quoted, MADE)
    assert parse_answer(f"So:\n```\n{TAG}\n```\nSo:\n   {TAG}")[1] == MADE


def test_several_calls_are_parsed_in_order() -> None:
    tagged = f"<tool_call>{BARE}</tool_call>\n<tool_call>{BARE}</tool_call>"
    note = '{"name": "note", "arguments": {"text": 1}}'

    assert parse_answer(tagged) == ("", MADE * 2)
    assert parse_answer(f"<tool_call>\n{BARE}\n{BARE}\n</tool_call>") == ("", MADE * 2)
    assert parse_answer(f"{BARE}\n{note}")[1] == [*MADE, ("note", '{"text": 1}')]
    assert parse_answer(f"{BARE}; {note}")[1] == [*MADE, ("note", '{"text": 1}')]
    assert parse_answer(f"```json\n[{BARE}, {note}]\n```")[1] == [
        *MADE,
        ("note", '{"text": 1}'),
    ]


def test_closing_tag_alone_marks_a_call() -> None:
    assert parse_answer(f"So:\n{BARE}\n</tool_call>\n") == ("So:\n", MADE)


def test_invalid_json_raises_a_value_error() -> None:
    for text in ("[" * 100_000 + "]" * 100_000, "[NaN]", "", "[1 2]", '{"a": 9e}'):
        with pytest.raises(ValueError):  # noqa: PT011  # whichever: it is caught as that
            parse_json(text)


def test_unknown_tool_is_called_if_tagged_or_if_the_answer_has_no_other_text() -> None:
    unknown = '{"name": "mkdir", "arguments": {"path": "a"}}'
    calls: Calls = [("mkdir", '{"path": "a"}')]

    assert parse_answer(f"So:\n<tool_call>{unknown}</tool_call>")[1] == calls
    assert parse_answer(unknown)[1] == calls
    assert parse_answer(f"{unknown}\nSo.") == (f"{unknown}\nSo.", [])


BROKEN = {
    "no quotes": '{"name": "read_file", "arguments": {"path": a.txt}}',
    "a quote too many": '{"name": "read_file", "arguments": {"path": "say "a""}}',
    "no end of the text": '{"name": "read_file", "arguments": {"path": "a.txt}}',
    "Python's quotes": "{'name': 'read_file', 'arguments': {'path': 'a.txt'}}",
    "nothing between": '{"name" "read_file", "name": "read_file"}',
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_tag_with_broken_json_is_a_call_with_invalid_arguments(body: str) -> None:
    words, calls = parse_answer(f"<tool_call>{body}</tool_call>")

    ((name, arguments),) = calls
    assert (words, name) == ("", "read_file")
    assert isinstance(json.loads(arguments), str)


def test_text_after_a_broken_call_is_not_lost() -> None:
    broken = '<tool_call>{"name": "note", "arguments": {"text": "a}}</tool_call>'
    text = f'{broken}\nAnd "so".'

    assert parse_answer(text) == (text, [])
    assert refusal_reasons(text) == [("note", QUOTED_REASON)]


def test_text_after_a_made_up_result_is_ignored() -> None:
    made_up = "<tool_result>\nall is well\n</tool_result>\nAll is well.\n"

    words, calls = parse_answer(f"<tool_call>{BARE}</tool_call>\n{made_up}{BARE}")

    assert (words.strip(), calls) == ("", MADE)


def test_made_up_result_in_a_cut_off_answer_stays_text() -> None:
    text = f"{TAG}\n<tool_result>\nall is well\n"

    assert parse_answer(text) == ("", MADE)
    assert parse_answer(text, whole=False) == (text, [])


def test_arguments_may_contain_the_end_marker_of_a_call() -> None:
    text = '</tool_call> ``` </function> {{{ \\ " \n'
    body = json.dumps({"name": "note", "arguments": {"text": text}})

    for item in (f"<tool_call>{body}</tool_call>", f"```json\n{body}\n```", body):
        ((_, arguments),) = parse_answer(item)[1]
        assert json.loads(arguments) == {"text": text}


def test_arguments_in_tags_are_converted_to_the_types_of_the_tool() -> None:
    text = (
        "<function=read_file><parameter=path>7</function>\n</parameter>"
        "<parameter=first>7</parameter></function>"
    )

    ((_, arguments),) = parse_answer(text)[1]
    assert json.loads(arguments) == {"path": "7</function>", "first": 7}


def test_raw_line_breaks_in_json_arguments_are_accepted() -> None:
    ((_, arguments),) = parse_answer('{"name": "note", "arguments": {"text": "a\n\tb"}}')[1]

    assert json.loads(arguments) == {"text": "a\n\tb"}


def test_text_streams_as_soon_as_it_cannot_be_a_call() -> None:
    reading = StreamParser(TOOLS)

    def feed_text(text: str) -> str:
        return "".join(d.text for d in reading.feed(text) if isinstance(d, TextDelta))

    assert feed_text("Let me") == "Let me"
    assert feed_text(" see.\n") == " see.\n"
    assert feed_text("<tool") == ""
    assert feed_text("box> ") == "<toolbox> "
    assert feed_text('\n{"na') == "\n"
    assert feed_text('mes": [1,') == '{"names": [1,'
    assert feed_text(" 2") == " 2"


def test_parser_reports_whether_an_answer_has_text_besides_calls() -> None:
    def parse_whole_answer(answer: str) -> tuple[bool, int]:
        reading = StreamParser(TOOLS, native=True)
        list(reading.feed(answer))
        reading.close()
        return reading.has_text, len(reading.calls)

    assert parse_whole_answer(f" \n{TAG}\n\n{TAG}\n") == (False, 2)
    assert parse_whole_answer(f"<think>So: </think>\n{BARE}") == (False, 1)
    assert parse_whole_answer(f"So:\n{TAG}") == (True, 1)
    assert parse_whole_answer('{"name": "mkdir", "arguments": {"path": "a"}}') == (True, 0)


def test_call_fits_a_tool_if_it_has_all_required_and_no_unknown_arguments() -> None:
    tools = {tool.name: tool for tool in TOOLS}

    def fitting(arguments: str, name: str = "read_file") -> bool:
        reading = StreamParser(TOOLS)
        list(reading.feed(f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}'))
        reading.close()
        (call,) = reading.calls
        return fits_a_tool(call, tools)

    assert fitting('{"path": "a"}')
    assert fitting('{"path": "a", "first": 2}')
    assert not fitting("{}")
    assert not fitting('{"path": "a", "last": 2}')
    assert not fitting('"a"')
    assert not fitting("{}", "mkdir")


PIECES = st.sampled_from(
    [
        *ONE_CALL.values(),
        *WORDS.values(),
        *BROKEN.values(),
        *("<tool_call>", "</tool_call>", "<function=note>", "</function>", "[TOOL_CALLS]"),
        *(
            "```",
            "```json\n",
            "`",
            "\n",
            "{",
            "}",
            "[",
            "]",
            '"',
            "\\",
            "<",
            "<think>",
            ",",
        ),
        *(
            "</think>",
            "<parameter=a>",
            "</parameter>",
            "<tool_result",
            "word",
            "    ",
            "é☂",
        ),
    ]
)
ANSWERS = st.lists(PIECES, max_size=7).map("".join)


CUTS = st.lists(st.integers(0, 400))


@settings(deadline=None, max_examples=25)
@given(answer=ANSWERS, cuts=CUTS, native=st.booleans(), whole=st.booleans())
def test_parsed_calls_do_not_depend_on_where_the_answer_is_cut(
    answer: str, cuts: list[int], native: bool, whole: bool
) -> None:
    check_cut_independence(answer, cuts, native, whole)


@pytest.mark.slow
@settings(deadline=None, max_examples=1500)
@given(answer=ANSWERS, cuts=CUTS, native=st.booleans(), whole=st.booleans())
def test_parsed_calls_of_any_answer_do_not_depend_on_where_it_is_cut(
    answer: str, cuts: list[int], native: bool, whole: bool
) -> None:
    check_cut_independence(answer, cuts, native, whole)


def check_cut_independence(answer: str, cuts: list[int], native: bool, whole: bool) -> None:
    places = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    pieces = [answer[a:b] for a, b in pairwise(places)]

    at_once = parse_answer(answer, native=native, whole=whole)

    assert parse_answer(pieces, native=native, whole=whole) == at_once
    assert parse_answer(list(answer), native=native, whole=whole) == at_once


@given(answer=ANSWERS)
def test_parser_repeats_and_invents_no_text(answer: str) -> None:
    check_text_unchanged(answer)


@pytest.mark.slow
@settings(deadline=None, max_examples=1500)
@given(answer=ANSWERS)
def test_parser_repeats_and_invents_no_text_for_any_answer(answer: str) -> None:
    check_text_unchanged(answer)


def check_text_unchanged(answer: str) -> None:
    words, calls = parse_answer(answer)

    left = iter(answer)
    assert all(character in left for character in words), (
        "words are in the answer, in order"
    )
    if not calls:
        assert words == answer
    else:
        assert len(words) < len(answer)
        assert not words.strip() or "\n" in words or "</think>" in words
    assert parse_answer(answer, whole=False) == (answer, [])


HOSTILE = {
    "braces": "{" * 100_000,
    "braces on lines": "\n{" * 50_000,
    "nested objects": '{"name":' * 15_000,
    "nested calls": '<tool_call>{"name": "note", "arguments": ' + "[" * 100_000,
    "closed deep nesting": '<tool_call>{"name":' + "[" * 50_000 + "]" * 50_000 + "}",
    "a text without end": '{"name": "' + "a" * 100_000,
    "texts without end": '<tool_call>{"</tool_call>' * 4_000,
    "tags in texts": '{"</tool_call><tool_call>{": [' * 3_500,
    "openings": "<tool_call>" * 9_000,
    "brackets": "<" * 30_000,
    "ticks": "`" * 60_000,
    "fences": "```json\n" * 12_000,
    "blanks in a tag": "<tool_call>" + " " * 100_000,
    "blanks after a call": BARE + " " * 100_000 + "x",
    "escapes": '{"name": "' + '\\"' * 50_000,
    "arguments of quotes": '{"name": "note", "arguments": "' + '\\"' * 50_000 + '"}',
    "ends of functions": "<function=note><parameter=text>" + "</function>" * 9_000,
    "commas": "<tool_call>[" + "," * 100_000 + "]</tool_call>",
    "calls": f"<tool_call>{BARE}</tool_call>\n" * 1_300,
    "examples": f"{BARE}\nSo.\n" * 1_600,
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_hostile_answer_is_parsed_to_its_end(answer: str) -> None:
    words, calls = parse_answer(answer)

    assert words == answer if not calls else len(words) < len(answer)


@pytest.mark.slow
@pytest.mark.timeout(30)
@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_hostile_answer_is_parsed_in_linear_time(answer: str) -> None:
    """An answer four times as long, in single characters, would take minutes in quadratic
    time.
    """
    assert parse_answer(list(answer * 4)) != ("", [])
