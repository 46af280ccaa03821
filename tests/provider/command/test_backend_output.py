"""Parsing what programs print: plain text and lines of JSON, however they are cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import BadInput
from refold.provider.command.json_path import json_path, json_paths
from refold.provider.command.output import ProgramOutputReader, token_usage
from refold.provider.command.spec import Counts, ProgramOutput
from refold.provider.port import Delta, Done, TextDelta, ThinkingDelta
from refold.values.usage import Usage

LINES = ProgramOutput(
    "jsonl",
    text=json_paths("say if type=text"),
    whole=json_paths("all"),
    thinking=json_paths("thought"),
    error=json_paths("error"),
    end=json_paths("end"),
    cost=json_paths("cost"),
    between="\n",
)


def read(output: ProgramOutput, *pieces: bytes) -> tuple[list[Delta], ProgramOutputReader]:
    reading = ProgramOutputReader(output)
    deltas = [delta for piece in pieces for delta in reading.feed(piece)]
    return [*deltas, *reading.end()], reading


def words(deltas: list[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, TextDelta))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b.1", 3),
        ("a.b.-1", 3),
        ("a.b.9", None),
        ("a.missing.deep", None),
        ("kind if kind=x", "x"),
        ("kind if a.c=true none=null never=null n=1.5", "x"),
        ("kind if kind=y", None),
    ],
)
def test_json_path_finds_a_value_by_keys_indexes_and_conditions(
    text: str, expected: object
) -> None:
    line = {"a": {"b": [2, 3], "c": True}, "kind": "x", "none": None, "n": 1.5}

    assert json_path(text).find(line) == expected


@pytest.mark.parametrize("text", ["", "a..b", "a b", "a if b", "a if =c", "if a=b"])
def test_bad_json_path_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match="is not a path"):
        json_path(text)


def test_json_lines_stream_text_and_thinking_and_give_the_cost_at_the_end() -> None:
    deltas, reading = read(
        LINES,
        b'{"type":"text","say":"Hel"}\n{"thought":"hm","type":"text",',
        b'"say":"lo"}\n{"type":"other","say":"no"}\n\n{"cost":0.5,"end":true,"all":"Hello"}',
    )

    assert deltas == [TextDelta("Hel"), ThinkingDelta("hm"), TextDelta("\nlo")]
    assert reading.over
    assert reading.to_done() == Done(cost=0.5, by_agent=True)


def test_json_answer_without_pieces_is_taken_from_the_final_line() -> None:
    assert read(LINES, b'{"all":"Hello"}\n{"end":1}\n')[0] == [TextDelta("Hello")]


def test_output_lines_that_are_not_json_are_skipped_and_recorded() -> None:
    deltas, reading = read(LINES, b'warning: x\n[1]\n{"type":"text","say":"Hi"}\n')

    assert (words(deltas), reading.strange) == ("Hi", "warning: x")


def test_emoji_cut_in_two_does_not_lose_its_json_line() -> None:
    deltas, reading = read(LINES, b'{"type":"text","say":"a\\ud83d"}\n')

    assert (words(deltas), reading.strange) == ("a\ufffd", "")


def test_error_from_the_program_is_recorded_in_its_own_words() -> None:
    assert read(LINES, b'{"error":["no","luck"]}\n')[1].trouble == '["no","luck"]'


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ('{"i":10,"c":4,"w":1,"o":3,"r":2}', Usage(5, 4, 1, 3, 2)),
        ('{"i":3,"c":4}', Usage(0, 4)),
        ('{"o":3}', Usage(output=3)),
        ('{"i":true,"o":-1}', None),
        ('{"c":4}', None),
        ("[]", None),
    ],
)
def test_cached_tokens_are_subtracted_from_an_input_count_that_includes_them(
    line: str, usage: Usage | None
) -> None:
    counts = Counts(
        json_paths("i"),
        json_paths("c"),
        json_paths("w"),
        json_paths("o"),
        json_paths("r"),
        inclusive=True,
    )

    assert token_usage(json.loads(line), counts) == usage


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ('{"i":10,"c":4,"o":3,"t":20}', Usage(6, 4, 0, 10, 7)),
        ('{"i":10,"o":3,"r":5,"t":20}', Usage(10, 0, 0, 10, 5)),
        ('{"i":10,"o":3,"t":0}', Usage(10, 0, 0, 3)),
        ('{"i":10,"o":3}', Usage(10, 0, 0, 3)),
        ('{"t":20}', None),
    ],
)
def test_output_tokens_are_computed_from_the_total_when_not_reported(
    line: str, usage: Usage | None
) -> None:
    counts = Counts(
        json_paths("i"),
        json_paths("c"),
        (),
        json_paths("o"),
        json_paths("r"),
        json_paths("t"),
        inclusive=True,
    )

    assert token_usage(json.loads(line), counts) == usage


def test_token_counts_are_read_from_text_on_standard_error() -> None:
    output = ProgramOutput(
        printed=(("fresh", r"^read:\s+([\d,]+)"), ("output", r"^said: (\d+)"))
    )

    done = read(output, b"Hi")[1].to_done("read:  1,024 tokens\nsaid: 7 tokens\n")

    assert done == Done(Usage(fresh=1024, output=7), by_agent=True)


def test_terminal_control_sequences_are_removed_from_plain_text() -> None:
    raw = b"\n\n  \x1b[1mBold\x1b[0m\r\n\x1b]0;title\x07 two\x08 \x1b]8;;x\x1b\\link\n\n"

    assert words(read(ProgramOutput(), raw)[0]) == "Bold\n two link"


@given(st.data())
def test_plain_text_is_decoded_the_same_wherever_its_bytes_are_cut(
    data: st.DataObject,
) -> None:
    raw = " \n☂ one\x1b[31mred\x1b[0m\n\n\x1b]0;t\x1b\\two ☂\n ".encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    assert words(read(ProgramOutput(), *pieces)[0]) == "☂ onered\n\ntwo ☂"
